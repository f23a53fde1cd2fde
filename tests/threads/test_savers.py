"""Other savers, and questions of other middleware."""

from __future__ import annotations

import secrets
from contextlib import contextmanager

import pytest

pytest.importorskip("langchain")

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from continuity.errors import MalformedError
from continuity.threads import ClientPolicy, Limits, ThreadWorker, WorkerClient, define_agent
from tests.langgraph.agents import ScriptedModel
from tests.langgraph.hall import call
from tests.threads.graphs import ALL, echoing, saver_of


@tool
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


def talk(town, agent, *steps):
    """Run an agent: say something, and after each run do a step."""
    ann = town.talker()
    reported = []
    with ThreadWorker(WorkerClient(town.url, town.worker_token(agent.name)), [agent], report=reported.append) as worker:
        thread = ann.create("talk", agent.name)["thread_id"]
        ann.message(thread, "Go")
        worker.run_one()
        for step in steps:
            step(ann, thread)
            worker.run_one()
    assert reported == []
    return ann.snapshot(thread)


@pytest.mark.postgresql
def test_a_thread_on_postgresql(town, postgresql_server):
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415

    address = postgresql_server.url(postgresql_server.create())
    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
    agent = define_agent(
        name=f"agent-{secrets.token_hex(4)}", graph=echoing().compile(), client=ClientPolicy(public=True),
        checkpointer=lambda: PostgresSaver.from_conn_string(address), controls=ALL,
    )  # fmt: skip
    snapshot = talk(town, agent, lambda ann, thread: ann.message(thread, "Again"))
    assert [m["content"] for m in snapshot["messages"]] == ["Go", "You said: Go", "Again", "You said: Again"]


@pytest.mark.postgresql
def test_a_thread_on_a_pool_outlives_the_connections_of_its_steps(town, postgresql_server):
    import psycopg  # noqa: PLC0415
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
    from psycopg.rows import dict_row  # noqa: PLC0415
    from psycopg_pool import ConnectionPool  # noqa: PLC0415

    address = postgresql_server.url(postgresql_server.create())
    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()

    @contextmanager
    def checkpoints():
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        with ConnectionPool(
            address, min_size=1, max_size=4, kwargs=options, check=ConnectionPool.check_connection, open=True
        ) as pool:
            yield PostgresSaver(pool)

    def cut(ann, thread):
        with psycopg.connect(address, autocommit=True) as admin:
            ended = admin.execute(
                "SELECT count(pg_terminate_backend(pid, 1000)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
        assert ended[0] >= 1
        ann.message(thread, "Again")

    agent = define_agent(
        name=f"agent-{secrets.token_hex(4)}", graph=echoing().compile(), client=ClientPolicy(public=True),
        checkpointer=checkpoints, controls=ALL,
    )  # fmt: skip
    snapshot = talk(town, agent, cut)
    assert [m["content"] for m in snapshot["messages"]] == ["Go", "You said: Go", "Again", "You said: Again"]


def test_approvals_of_langchains_own_middleware(town, tmp_path):
    agent = define_agent(
        name=f"agent-{secrets.token_hex(4)}", model=ScriptedModel(replies=[[call(to="bob")]]), tools=[send],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"send": True})], checkpointer=saver_of(tmp_path),
        client=ClientPolicy(public=True, tools=("send",)), controls=ALL,
    )  # fmt: skip

    def decide(ann, thread):
        (waiting,) = ann.snapshot(thread)["waiting"]
        assert waiting["kind"] == "approval"
        with pytest.raises(MalformedError):
            ann.reply(thread, waiting["waiting_id"], "yes", revision=waiting["revision"])
        reply = {"decisions": [{"type": "approve"}]}
        ann.reply(thread, waiting["waiting_id"], reply, revision=waiting["revision"])

    snapshot = talk(town, agent, decide)
    (called,) = [m for m in snapshot["messages"] if m["type"] == "tool_call"]
    assert (called["outcome"], called["result"]) == ("ok", "sent to bob")
    assert snapshot["thread"]["state"] == "idle"


def test_a_saver_that_forgets_is_refused():
    with pytest.raises(ValueError, match="InMemorySaver is no checkpointer for threads"):
        define_agent(name="a", graph=echoing().compile(checkpointer=InMemorySaver()), checkpointer=InMemorySaver())


@pytest.mark.parametrize(
    "given",
    [{}, {"model": ScriptedModel(replies=[]), "graph": echoing()}, {"graph": echoing().compile(), "tools": [send]},
     {"graph": echoing().compile()}],
)  # fmt: skip
def test_parts_that_do_not_go_together_are_refused(given):
    with pytest.raises(ValueError, match=r"An agent|A graph"):
        define_agent(name="a", **given)


def test_limits_that_nothing_can_keep_are_refused():
    with pytest.raises(ValueError, match="max_steps"):
        Limits(max_steps=0)


def test_what_is_passed_in_is_borrowed_and_what_is_made_is_closed_once(town, tmp_path):
    from tests.threads.graphs import saver_at  # noqa: PLC0415

    name = f"agent-{secrets.token_hex(4)}"
    with saver_at(tmp_path / "borrowed.db") as saver:
        agent = define_agent(name=name, graph=echoing().compile(), checkpointer=saver, client=ClientPolicy(public=True))
        talk(town, agent)
        assert saver.conn.execute("SELECT count(*) FROM checkpoints").fetchone()[0] > 0
    closes = []

    class Store:
        def close(self):
            closes.append(1)

    agent = define_agent(
        name=name, model=ScriptedModel(replies=[]), checkpointer=saver_of(tmp_path), store=Store,
        client=ClientPolicy(public=True),
    )  # fmt: skip
    with agent.opened(None):
        assert closes == []
    assert closes == [1]
