"""A conversation on LangGraph whose tool calls AtMem governs: what the four agents have in common.

The model is a script, so that nothing leaves this machine: its first message holds all tool calls, its second says
that they are done. Everything else is as in a real agent: a graph, a checkpoint file, `durability="sync"`.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from continuity.client import ContinuityClient
from continuity.integrations import GovernedToolRunner, RegisteredTool
from continuity.integrations.langgraph import governed_langgraph_tools
from continuity.terminal import EPILOG, MistakeError, add_addresses, address, credential, observer_at, tell

Calls = Sequence[tuple[str, Mapping[str, Any]]]
"""Name of the tool and arguments, in the order in which the model asks for them."""


@dataclass(frozen=True)
class Agent:
    """What one agent is made of.

    Attributes:
        name: Also the namespace of its governed calls: another one would be new work.
        tools: Makes its registered tools of the command's options.
        calls: What its model asks for, all in one message.
        options: The options that `tools` and `calls` need, with their help.
    """

    name: str
    tools: Callable[[argparse.Namespace], Sequence[RegisteredTool]]
    calls: Callable[[argparse.Namespace], Calls]
    options: Mapping[str, str] = field(default_factory=dict)


def main(agent: Agent, argv: Sequence[str] | None = None, *, trace: Callable[[str], None] | None = None) -> int:
    """Run `start` or `resume` of an agent; return the exit code. `trace` is told the points that a run passes."""
    options = options_of(agent, argv)
    return tell(lambda: _talk(agent, options, trace), ask_again="Resume the thread: AtMem knows what is safe.")


def _talk(agent: Agent, options: argparse.Namespace, trace: Callable[[str], None] | None) -> dict[str, Any]:
    config = {"configurable": {"thread_id": options.thread}}
    observer = observer_at(options.atflows_url)

    def passed(point: str) -> None:
        if trace is not None:
            trace(point)
        if point == "effect.after":
            time.sleep(options.pause)

    with ContinuityClient(address(options), credential(), observer=observer, trace=passed) as client:
        runner = GovernedToolRunner(client, agent.tools(options), namespace=agent.name, enabled=True)
        with _checkpoints(Path(options.checkpoints)) as saver:
            graph = graph_of(governed_langgraph_tools(runner), agent.calls(options), saver)
            has_begun = bool(graph.get_state(config).values)
            if has_begun and options.command == "start":
                raise MistakeError(f"The thread {options.thread!r} has begun: resume it, or choose another --thread.")
            if not has_begun and options.command == "resume":
                raise MistakeError(f"The thread {options.thread!r} has not begun: start it.")
            graph.invoke(None if has_begun else {"messages": [("user", "Go.")]}, config, durability="sync")
            return answer_of(options.thread, graph.get_state(config).values["messages"])


def answer_of(thread: str, messages: Sequence[Any]) -> dict[str, Any]:
    """Return what is printed of a conversation that has ended: what came of each call."""
    return {
        "thread": thread,
        "calls": [
            {"id": message.tool_call_id, "tool": message.name, "status": message.status, "content": message.content}
            for message in messages
            if message.type == "tool"
        ],
    }


def graph_of(governed_tools: Any, calls: Calls, saver: Any) -> Any:
    """Compile model → tools → model; the node `governed_tools` is all that AtMem has to do with it."""

    def model(state: Any) -> dict[str, Any]:
        message_id = f"msg_{uuid.uuid4().hex}"
        if state["messages"][-1].type == "tool":
            return {"messages": [AIMessage("All done.", id=message_id)]}
        tool_calls = [
            {"name": name, "args": dict(arguments), "id": f"call_{number}", "type": "tool_call"}
            for number, (name, arguments) in enumerate(calls, start=1)
        ]
        return {"messages": [AIMessage("", id=message_id, tool_calls=tool_calls)]}

    def where(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", governed_tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", where, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


@contextmanager
def _checkpoints(path: Path) -> Iterator[SqliteSaver]:
    """Open LangGraph's own database, for its owner alone: it holds the conversation in clear text."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        yield SqliteSaver(connection)
    except sqlite3.Error as error:
        raise MistakeError(f"The checkpoint file {path} cannot be used: {error}.") from error
    finally:
        connection.close()


def options_of(agent: Agent, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line of an agent."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.{agent.name}.agent", epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (("start", "begin a conversation"), ("resume", "take one up where it was left")):
        command = commands.add_parser(name, help=about)
        command.add_argument("--thread", required=True, help="your name for the conversation; new work needs a new one")
        command.add_argument("--checkpoints", required=True, help="LangGraph's checkpoint file, the same at each call")
        command.add_argument(
            "--pause", type=float, default=0, help="seconds to wait between an effect and its receipt: time to kill it"
        )
        for option, help_text in agent.options.items():
            command.add_argument(f"--{option}", required=True, help=help_text)
        add_addresses(command)
    return parser.parse_args(argv)
