"""The agents of examples/ as real processes: a parent that has loaded LangGraph once forks one for each run.

An agent can die at every point of `continuity.running.Seams`, each time or the n-th, and at two more: at
``writes.before``, when LangGraph is about to keep what the tools returned, and at ``checkpoint.before``, when it is
about to write the checkpoint after them. ``python -m tests.crash.agents`` is the parent (tests/crash/forks.py).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from continuity.client import AsyncContinuityClient, ContinuityClient, RecoveryBlocked
from continuity.integrations import AsyncGovernedToolRunner, GovernedToolRunner, GovernedToolsMiddleware
from continuity.integrations.langgraph import agoverned_langgraph_tools
from continuity.terminal import address, credential, tell
from examples import conversation, local_server
from examples.blind_agent import agent as blind_agent
from examples.blind_agent import printer
from examples.mailing_agent import agent as mailing_agent
from examples.mailing_agent import post_office
from examples.paying_agent import agent as paying_agent
from examples.paying_agent import payments_server
from examples.publishing_agent import agent as publishing_agent
from tests.crash import forks
from tests.langgraph.agents import ScriptedModel

AGENTS: Mapping[str, ModuleType] = {
    "publishing": publishing_agent, "paying": paying_agent, "mailing": mailing_agent, "blind": blind_agent,
}  # fmt: skip
SERVERS: Mapping[str, ModuleType] = {"paying": payments_server, "mailing": post_office, "blind": printer}
CALLS = 3
"""Tool calls in the one message of each agent."""


class Death:
    """Kills this process at the n-th time that it passes a point."""

    def __init__(self, at: str, time: int) -> None:
        self._at = at
        self._left = time
        self._settled = 0

    def passed(self, point: str) -> None:
        self._settled += point == "outcome.after_reply"
        if point == self._at:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def before(self, point: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Pass a point before a method of the saver, a coroutine function or not, once every call is settled."""

        def dying(*arguments: Any, **options: Any) -> Any:
            if self._settled == CALLS:
                self.passed(point)
            return method(*arguments, **options)

        return dying


def agent(*, name: str, argv: list[str], environment: Mapping[str, str], die_at: str = "", time: int = 1) -> None:
    """Be one run of an agent, as its command line."""
    os.environ.update(environment)
    death = Death(die_at, time)
    SqliteSaver.put_writes = death.before("writes.before", SqliteSaver.put_writes)
    SqliteSaver.put = death.before("checkpoint.before", SqliteSaver.put)
    sys.exit(AGENTS[name].main(argv, trace=death.passed))


def awaited_agent(
    *, name: str, argv: list[str], environment: Mapping[str, str], die_at: str = "", time: int = 1
) -> None:
    """Be the same agent on an event loop: the async client, node and saver."""
    os.environ.update(environment)
    death = Death(die_at, time)
    AsyncSqliteSaver.aput_writes = death.before("writes.before", AsyncSqliteSaver.aput_writes)
    AsyncSqliteSaver.aput = death.before("checkpoint.before", AsyncSqliteSaver.aput)
    options = conversation.options_of(AGENTS[name].AGENT, argv)
    sys.exit(tell(lambda: asyncio.run(_awaited(AGENTS[name].AGENT, options, death)), ask_again=""))


async def _awaited(agent: conversation.Agent, options: argparse.Namespace, death: Death) -> dict[str, Any]:
    config = {"configurable": {"thread_id": options.thread}}
    Path(options.checkpoints).parent.mkdir(exist_ok=True)
    async with (
        AsyncContinuityClient(address(options), credential(), trace=death.passed) as client,
        AsyncSqliteSaver.from_conn_string(options.checkpoints) as saver,
    ):
        runner = AsyncGovernedToolRunner(client, agent.tools(options), namespace=agent.name, enabled=True)
        graph = conversation.graph_of(agoverned_langgraph_tools(runner), agent.calls(options), saver)
        has_begun = bool((await graph.aget_state(config)).values)
        await graph.ainvoke(None if has_begun else {"messages": [("user", "Go.")]}, config, durability="sync")
        return conversation.answer_of(options.thread, (await graph.aget_state(config)).values["messages"])


def langchain_agent(
    *, name: str, argv: list[str], environment: Mapping[str, str], die_at: str = "", time: int = 1
) -> None:
    """Be the same agent as LangChain makes it, governed by the middleware: its calls start at the same time."""
    os.environ.update(environment)
    death = Death(die_at, time)
    SqliteSaver.put_writes = death.before("writes.before", SqliteSaver.put_writes)
    SqliteSaver.put = death.before("checkpoint.before", SqliteSaver.put)
    options = conversation.options_of(AGENTS[name].AGENT, argv)
    sys.exit(tell(lambda: _first_cause(lambda: _langchain(AGENTS[name].AGENT, options, death)), ask_again=""))


def _langchain(agent: conversation.Agent, options: argparse.Namespace, death: Death) -> dict[str, Any]:
    config = {"configurable": {"thread_id": options.thread}}
    Path(options.checkpoints).parent.mkdir(exist_ok=True)
    calls = [
        {"name": name, "args": dict(arguments), "id": f"call_{number}", "type": "tool_call"}
        for number, (name, arguments) in enumerate(agent.calls(options), start=1)
    ]
    tools = agent.tools(options)
    with (
        closing(sqlite3.connect(options.checkpoints, check_same_thread=False)) as connection,
        ContinuityClient(address(options), credential(), trace=death.passed) as client,
    ):
        governed = GovernedToolsMiddleware(GovernedToolRunner(client, tools, namespace=agent.name, enabled=True))
        built: Any = create_agent(
            ScriptedModel(replies=[calls]), [_shown(tool.name) for tool in tools], middleware=[governed],
            checkpointer=SqliteSaver(connection),
        )  # fmt: skip
        has_begun = bool(built.get_state(config).values)
        built.invoke(None if has_begun else {"messages": [("user", "Go.")]}, config, durability="sync")
        return conversation.answer_of(options.thread, built.get_state(config).values["messages"])


def _shown(name: str) -> StructuredTool:
    """Return what the model sees of a tool; a governed call never reaches it."""

    def never(**_: Any) -> str:
        raise AssertionError("The agent's own tool was run.")

    return StructuredTool.from_function(never, name=name, description=name, args_schema={"type": "object"})


def _first_cause(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Raise the stop that those behind it were stopped by: LangGraph may raise any one of them."""
    try:
        return run()
    except RecoveryBlocked as error:
        if isinstance(error.__cause__, RecoveryBlocked):
            raise error.__cause__ from None
        raise


def destination(*, name: str, argv: list[str]) -> None:
    """Be the server that an agent acts at."""
    local_server.serve(SERVERS[name].answer, _parser(SERVERS[name]), argv)


def _parser(server: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.set_defaults(window=getattr(server, "WINDOW_S", 0))
    return parser


if __name__ == "__main__":
    jobs = {"agent": agent, "awaited_agent": awaited_agent, "langchain_agent": langchain_agent}
    forks.main({**jobs, "destination": destination})
