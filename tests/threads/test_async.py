"""The twins for event loops."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("langchain")

from langchain.agents.middleware import TodoListMiddleware
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from continuity.integrations import RegisteredTool
from continuity.threads import (
    AsyncThreadClient,
    AsyncThreadWorker,
    ClientPolicy,
    GovernedTool,
    Limits,
    WorkerClient,
    define_agent,
)
from examples.order_support.agent import Answer, Order, Question, lookup_order
from examples.order_support.model import ScriptedModel
from tests.langgraph.hall import Destination
from tests.patience import PATIENCE_S
from tests.threads.graphs import ALL, echoing


class Shop(Destination):
    def _receipt(self, operation_id):
        return {**super()._receipt(operation_id), "result": {"state": "cancelled"}}


def saver_of(folder, closed):
    @asynccontextmanager
    async def opened():
        async with AsyncSqliteSaver.from_conn_string(str(folder / "threads.db")) as saver:
            await saver.conn.execute("PRAGMA synchronous=FULL")
            yield saver
        closed.append(True)

    return opened


def test_a_conversation_on_an_event_loop(town, tmp_path):
    destination, closed, reported = Shop(), [], []
    name = f"agent-{secrets.token_hex(4)}"
    cancel = RegisteredTool(
        "cancel_order", destination.aexecute, destination.aquery, capability="query", arguments=Order
    )
    agent = define_agent(
        name=name, input=Question, output=Answer, model=ScriptedModel(), instructions="Be brief.",
        tools=[lookup_order, GovernedTool(cancel, "Cancel an order.", approval=True)],
        middleware=[TodoListMiddleware()],
        checkpointer=saver_of(tmp_path, closed), client=ClientPolicy(public=True), controls=ALL,
    )  # fmt: skip
    client = WorkerClient(town.url, town.worker_token(name), coordinator_token=town.token())

    async def talk():
        async with (
            AsyncThreadWorker(client, [agent], report=reported.append) as worker,
            AsyncThreadClient(town.url, town.application, subject="ann") as ann,
        ):
            thread = (await ann.create("talk", name))["thread_id"]
            following = ann.follow(thread)
            first = await anext(following)
            await ann.message(thread, "Cancel order 17")
            assert await worker.run_one()
            (waiting,) = (await ann.snapshot(thread))["waiting"]
            await ann.reply(thread, waiting["waiting_id"], True, revision=waiting["revision"])
            assert await worker.run_one()
            assert not await worker.run_one()
            updates = [first]
            async for update in following:
                updates.append(update)
                if update.record["kind"] in {"run_settled", "run_failed", "run_interrupted"}:
                    break
            await following.aclose()
            return updates, await ann.wait(thread)

    updates, snapshot = asyncio.run(talk())
    assert reported == []
    assert snapshot["thread"]["state"] == "idle"
    assert len(destination.effects) == 1
    seqs = [update.record["seq"] for update in updates[1:]]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert snapshot["runs"][-1]["state"] == "settled"
    governed = [m for m in snapshot["messages"] if m["type"] == "tool_call" and m["tool"] == "cancel_order"]
    assert [call["workflow_id"][:3] for call in governed] == ["wf_"]
    assert closed == [True]


def test_a_run_that_takes_too_long_is_cancelled_where_it_waits(town, tmp_path):
    # A time that is over before the node has begun says nothing of where it waits: such a machine gets more of it.
    for timeout_s in (0.5, 5, 50):
        seen, run = ran_out_of(town, tmp_path, timeout_s)
        assert run["state"] == "failed"
        assert "longer" in run["message"]
        if seen:
            break
    assert seen == ["begun", "cancelled"]


def ran_out_of(town, tmp_path, timeout_s):
    """Have a run take too long; return what its node has seen, and how it ended."""
    closed, reported, seen = [], [], []
    name = f"agent-{secrets.token_hex(4)}"

    async def slow(_state):
        seen.append("begun")
        try:
            await asyncio.sleep(10 * PATIENCE_S)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    from langgraph.graph import START, MessagesState, StateGraph  # noqa: PLC0415

    graph = StateGraph(MessagesState)
    graph.add_node("slow", slow)
    graph.add_edge(START, "slow")
    agent = define_agent(
        name=name, graph=graph.compile(), checkpointer=saver_of(tmp_path, closed), client=ClientPolicy(public=True),
        limits=Limits(timeout_seconds=timeout_s),
    )  # fmt: skip

    async def talk():
        client = WorkerClient(town.url, town.worker_token(name))
        async with (
            AsyncThreadWorker(client, [agent], report=reported.append) as worker,
            AsyncThreadClient(town.url, town.application, subject="ann") as ann,
        ):
            thread = (await ann.create("talk", name))["thread_id"]
            await ann.message(thread, "Hello")
            await worker.run_one()
            return await ann.snapshot(thread)

    snapshot = asyncio.run(talk())
    return seen, snapshot["runs"][-1]


def test_a_saver_for_the_other_kind_of_worker_is_refused(town, tmp_path):
    from tests.threads.graphs import saver_of as ordinary  # noqa: PLC0415

    name = f"agent-{secrets.token_hex(4)}"
    agent = define_agent(name=name, graph=echoing().compile(), checkpointer=ordinary(tmp_path))
    worker = AsyncThreadWorker(WorkerClient(town.url, town.worker_token(name)), [agent])

    async def open_it():
        async with worker:
            raise AssertionError("it was opened")

    with pytest.raises(ValueError, match="SqliteSaver is for ThreadWorker"):
        asyncio.run(open_it())
