"""``python -m continuity.langgraph_example``: an agent on LangGraph that publishes a document once.

``start`` begins a conversation in which the model (a script: nothing goes over a network but to AtMem)
calls the tool `publish_document`; ``resume`` takes a conversation up where a killed process left it.
LangGraph restores the position from its checkpoint file, and AtMem says whether the document is published,
asked for, or given back as it was. `continuity.terminal` says what is printed and how the commands end.

The checkpoint file holds the conversation, the document too, in clear text: protect its directory.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from continuity.client import ContinuityClient, NotDispatched
from continuity.folder import folder_made, reason
from continuity.integrations import GovernedToolRunner, RegisteredTool
from continuity.terminal import EPILOG, MistakeError, add_addresses, address, credential, observed, observer_at, tell
from continuity.tools import DirectoryPublisher, make_output, publish_arguments

NAMESPACE: Final = "continuity.langgraph_example"
BUSY_S: Final = 5.0
"""How long to wait for another process that writes the same checkpoint file."""
_INSTALL: Final = "LangGraph is not installed. In the checkout: python -m pip install '.[langgraph]'"


def main(argv: Sequence[str] | None = None, *, trace: Callable[[str], None] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Its arguments without the program's name; those of the process when left out.
        trace: Told each point that a run passes.

    Returns:
        The exit code.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    if not options.enabled:
        parser.error("nothing runs without --enabled: your word that AtMem may govern this agent's calls")
    return tell(lambda: options.command(options, trace), ask_again="Resume: the output directory is asked.")


def _start(options: argparse.Namespace, trace: Callable[[str], None] | None) -> dict[str, Any]:
    publication = publish_arguments(options.document, options.output)
    # Before the thread begins, for it begins once; what does not begin leaves no directory behind.
    with folder_made(publication["output"]), _conversation(options, trace) as talk:
        if talk.has_begun:
            raise MistakeError(
                f"The thread {talk.thread!r} has begun: resume it, or choose another --thread for new work."
            )
        return talk.go_on({"messages": [("user", f"Publish {publication['document']}.")], "publication": publication})


def _resume(options: argparse.Namespace, trace: Callable[[str], None] | None) -> dict[str, Any]:
    if not Path(options.checkpoints).is_file():
        raise MistakeError(f"There is no checkpoint file {options.checkpoints}: name the one that start was given.")
    with _conversation(options, trace) as talk:
        if not talk.has_begun:
            raise MistakeError(f"The thread {talk.thread!r} has not begun in {options.checkpoints}: start it.")
        output = talk.values["publication"]["output"]
        if os.path.realpath(options.output) != output:
            raise MistakeError(f"--output must be the directory that start was given: {output}")
        return talk.go_on(None)


@dataclass(frozen=True, slots=True)
class _Conversation:
    """One thread of the graph and where it stands."""

    graph: Any
    thread: str
    client: ContinuityClient

    @property
    def config(self) -> dict[str, Any]:
        return {"configurable": {"thread_id": self.thread}}

    @property
    def values(self) -> Mapping[str, Any]:
        values: Mapping[str, Any] = self.graph.get_state(self.config).values
        return values

    @property
    def has_begun(self) -> bool:
        return bool(self.values)

    def go_on(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Run the thread to its end, from new input or from where it was left; return what the tool gave."""
        self.graph.invoke(given, self.config, durability="sync")
        result = next(message for message in reversed(self.values["messages"]) if message.type == "tool")
        if result.status == "error":
            raise MistakeError(f"The document was not published. {result.content}")
        return {"thread": self.thread, "result": json.loads(result.content), **observed(self.client)}


@contextmanager
def _conversation(options: argparse.Namespace, trace: Callable[[str], None] | None) -> Iterator[_Conversation]:
    token, observer = credential(), observer_at(options.atflows_url)
    with ContinuityClient(address(options), token, observer=observer, trace=trace) as client:
        runner = GovernedToolRunner(client, [_publishing(options.output)], namespace=NAMESPACE, enabled=True)
        path = Path(options.checkpoints)
        try:
            with _checkpoints(path) as connection:
                yield _Conversation(_graph(runner, connection), options.thread, client)
        except sqlite3.Error as error:
            raise MistakeError(f"The checkpoint file {path} cannot be used: {error}.") from error


def _publishing(output: str) -> RegisteredTool:
    """Register the publisher; its directory is made when publishing was granted, and not before."""
    publisher = DirectoryPublisher(output)

    def publish(arguments: dict[str, Any], *rest: Any) -> dict[str, Any]:
        if arguments.get("output") == os.path.realpath(output):
            try:
                make_output({"arguments": arguments})
            except OSError as error:
                raise NotDispatched(f"The output directory {output} cannot be made: {reason(error)}.") from error
        return publisher.execute(arguments, *rest)

    return RegisteredTool(
        DirectoryPublisher.TOOL, publish, publisher.query, capability="query", absence_final_after_seconds=1
    )


@contextmanager
def _checkpoints(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the checkpoint file for its owner alone, made where it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    # LangGraph writes from threads of its own, one at a time.
    connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    try:
        yield connection
    finally:
        connection.close()


def _graph(runner: GovernedToolRunner, connection: sqlite3.Connection) -> Any:
    """Compile model → tools → model, kept in the checkpoint file."""
    try:
        # Here and not above: importing them takes a second, which --help and mistakes need not wait for.
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415
        from langgraph.graph import END, START, MessagesState, StateGraph  # noqa: PLC0415

        from continuity.integrations.langgraph import governed_langgraph_tools  # noqa: PLC0415
    except ImportError as error:
        raise MistakeError(_INSTALL) from error

    class State(MessagesState):
        publication: dict[str, Any]

    def where(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph: Any = StateGraph(State)
    graph.add_node("model", _model)
    graph.add_node("tools", governed_langgraph_tools(runner))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", where, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=SqliteSaver(connection))


def _model(state: Any) -> dict[str, Any]:
    """Stand for a model: ask for the tool once, then say that it is done."""
    from langchain_core.messages import AIMessage  # noqa: PLC0415 - as above

    message_id = f"msg_{uuid.uuid4().hex}"
    if state["messages"][-1].type == "tool":
        return {"messages": [AIMessage("That is what came of it.", id=message_id)]}
    call = {"name": DirectoryPublisher.TOOL, "args": state["publication"], "id": "call_1", "type": "tool_call"}
    return {"messages": [AIMessage("", id=message_id, tool_calls=[call])]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m continuity.langgraph_example",
        description="Publish a document once, by an agent on LangGraph that may be killed at any time.",
        epilog=EPILOG,
    )
    commands = parser.add_subparsers(required=True, metavar="{start,resume}")
    start = commands.add_parser("start", help="begin a conversation that publishes a document")
    start.add_argument("--document", required=True, help="the file to publish, 1 byte to 128 KiB")
    start.set_defaults(command=_start)
    resume = commands.add_parser("resume", help="take a conversation up where it was left; repeat as often as you like")
    resume.set_defaults(command=_resume)
    for command in (start, resume):
        command.add_argument("--enabled", action="store_true", help="your word that AtMem may govern the agent's calls")
        command.add_argument("--thread", required=True, help="your name for the conversation; new work needs a new one")
        command.add_argument("--checkpoints", required=True, help="LangGraph's checkpoint file, the same at each call")
        command.add_argument("--output", required=True, help="the directory to publish into, the same at each call")
        add_addresses(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
