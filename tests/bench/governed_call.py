"""What governing a tool call costs: a call through AtMem beside the same call without it.

The tool does nothing, so that the difference is all that governing adds: creation and begin in one request, the
outcome in another, on connections that are kept alive, each durable on the server's disk. Rounds are interleaved.

    python -m tests.bench.governed_call --rounds 300

The floor that is printed with it is two raw commits of the server's database, which no way of recording a call before
and after it can do without. Processor time is printed as well: other work on the machine makes calls slower, and hardly
more expensive.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from continuity.client import AsyncContinuityClient, AsyncTool, ContinuityClient, Tool
from continuity.integrations import GovernedToolRunner, RegisteredTool
from continuity.integrations.langgraph import governed_langgraph_tools
from tests.bench.asking import RawCommit, Timings
from tests.bench.decisions import WARM_UP
from tests.langgraph.hall import Hall
from tests.servers import initialised, start, stop

CALLS = (1, 3)
_numbers = itertools.count()
OPERATION = {"name": "act", "tool": "act", "arguments": {"document": "a page"}}


def act(_arguments: Any, operation_id: str, _key: str, _timeout_s: float) -> dict[str, Any]:
    """Do nothing, and say so."""
    return {"outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": "none", "result": {"done": 1}}


async def aact(*given: Any) -> dict[str, Any]:
    return act(*given)


class Calls:
    """A call by the client, plain and governed."""

    def __init__(self, url: str, token: str) -> None:
        self._client = ContinuityClient(url, token)
        self._async_client = AsyncContinuityClient(url, token)
        self._runner = asyncio.Runner()

    def plain(self) -> None:
        act({}, "op_none", "", 30)

    def governed(self) -> None:
        self._client.run_new_operation(f"key-{secrets.token_hex(12)}", OPERATION, {"act": Tool(act)})

    def awaited(self) -> None:
        key = f"key-{secrets.token_hex(12)}"
        self._runner.run(self._async_client.run_new_operation(key, OPERATION, {"act": AsyncTool(aact)}))

    def close(self) -> None:
        self._runner.run(self._async_client.aclose())
        self._runner.close()
        self._client.close()


class Graphs:
    """A node of LangGraph that runs the calls of a message, plain and governed, checkpoints and all."""

    def __init__(self, url: str, token: str, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)
        saver = SqliteSaver(self._connection)
        self._client = ContinuityClient(url, token)
        runner = GovernedToolRunner(self._client, [RegisteredTool("act", act)], namespace="bench", enabled=True)
        self._graphs = {"plain": _graph(_plain, saver), "governed": _graph(governed_langgraph_tools(runner), saver)}

    def run(self, kind: str, calls: int) -> None:
        config = {"configurable": {"thread_id": f"t{next(_numbers)}"}}
        self._graphs[kind].invoke({"messages": [("user", str(calls))]}, config, durability="sync")

    def close(self) -> None:
        self._client.close()
        self._connection.close()


def _plain(state: Any) -> dict[str, Any]:
    messages = []
    for call in state["messages"][-1].tool_calls:
        result = act(call["args"], "op_none", "", 30)["result"]
        messages.append(ToolMessage(str(result), tool_call_id=call["id"]))
    return {"messages": messages}


def _model(state: Any) -> dict[str, Any]:
    calls = [
        {"name": "act", "args": {"document": "a page"}, "id": f"call_{number}", "type": "tool_call"}
        for number in range(int(state["messages"][0].content))
    ]
    return {"messages": [AIMessage("", id=f"ai-{secrets.token_hex(12)}", tool_calls=calls)]}


def _graph(node: Any, saver: SqliteSaver) -> Any:
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", _model)
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    graph.add_edge("tools", END)
    return graph.compile(checkpointer=saver)


def measure(rounds: int, works: dict[str, Callable[[], None]]) -> Timings:
    """Run every work once a round; the first rounds do not count."""
    timings = Timings()
    for work in list(works.values()) * WARM_UP:
        work()
    for _ in range(rounds):
        for name, work in works.items():
            timings.measure(name, work)
    return timings


def processor_ms(server: psutil.Process, rounds: int, work: Callable[[], None]) -> tuple[float, float]:
    """Return what one of many calls in a row costs here and at the server."""

    def spent() -> tuple[float, float]:
        at_server = server.cpu_times()
        return time.process_time(), at_server.user + at_server.system

    begun = spent()
    for _ in range(rounds):
        work()
    here, there = (1e3 * (after - before) / rounds for before, after in zip(begun, spent(), strict=True))
    return here, there


def show(timings: Timings) -> None:
    print(f"{'milliseconds':40}{'p50':>9}{'p95':>9}")
    for name in timings.values:
        print(f"{name:40}{timings.p50(name):9.3f}{timings.p95(name):9.3f}")
    added = timings.p50("governed call") - timings.p50("plain call")
    print(f"a governed call adds {added:.3f} ms, {added / (2 * timings.p50('raw commit')):.2f} times two raw commits")
    for calls in CALLS:
        added = timings.p50(f"governed node, {calls} calls") - timings.p50(f"plain node, {calls} calls")
        print(f"a governed node adds {added / calls:.3f} ms a call with {calls} a message")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        server = start(initialised(folder / "instance"))
        try:
            hall = Hall(server)
            calls, graphs = Calls(hall.url, hall.token()), Graphs(hall.url, hall.token(), folder)
            works: dict[str, Callable[[], None]] = {
                "raw commit": RawCommit(folder), "plain call": calls.plain, "governed call": calls.governed,
                "governed call, awaited": calls.awaited,
            }  # fmt: skip
            for count in CALLS:
                for kind in ("plain", "governed"):
                    works[f"{kind} node, {count} calls"] = lambda kind=kind, count=count: graphs.run(kind, count)
            show(measure(options.rounds, works))
            print(f"\n{'processor time, milliseconds':40}{'here':>9}{'server':>9}")
            for name, work in works.items():
                here, there = processor_ms(psutil.Process(server.process.pid), options.rounds, work)
                print(f"{name:40}{here:9.3f}{there:9.3f}")
            calls.close()
            graphs.close()
        finally:
            stop(server)


if __name__ == "__main__":
    main()
