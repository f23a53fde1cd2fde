"""The other savers and graphs that are awaited: the same promises, the same refusals."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import psycopg
import psycopg.rows
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg_pool import ConnectionPool

from continuity.client import RecoveryBlocked
from continuity.integrations import agoverned_langgraph_tools, governed_langgraph_tools
from tests.langgraph.hall import (
    ASK,
    agent_graph,
    arunner_of,
    call,
    runner_of,
    scripted,
    thread,
    tool_messages,
)

HAPPENED = {"effect_id": "effect-2", "result": {"sent": 2}}


def stopped(graph, given, config):
    with pytest.raises(RecoveryBlocked) as caught:
        graph.invoke(given, config, durability="sync")
    return caught.value


def test_postgresql_keeps_a_thread_as_well(hall, destination, postgresql):
    with PostgresSaver.from_conn_string(postgresql) as saver:
        saver.setup()
        destination.raises = [TimeoutError()]
        node = governed_langgraph_tools(runner_of(hall, destination.tool(capability="query")))
        graph, config = agent_graph(node, scripted([call(), call(call_id="c2")]), saver), thread()
        assert stopped(graph, ASK, config).code == "outcome_unknown"
        values = graph.invoke(None, config, durability="sync")
    assert [m.tool_call_id for m in tool_messages(values)] == ["c1", "c2"]
    assert len(destination.effects) == 2


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_postgresql_connection_that_does_not_wait_for_its_disk_is_refused(hall, destination, postgresql, pipelined):
    with PostgresSaver.from_conn_string(postgresql) as saver:
        saver.setup()
    with PostgresSaver.from_conn_string(postgresql, pipeline=pipelined) as saver:
        node = governed_langgraph_tools(runner_of(hall, destination.tool()))
        graph = agent_graph(node, scripted([call()]), saver)
        assert len(tool_messages(graph.invoke(ASK, thread(), durability="sync"))) == 1
        saver.conn.execute("SET synchronous_commit = off")
        assert stopped(graph, ASK, thread()).code == "checkpointer_not_durable"
    assert len(destination.effects) == 1


def test_a_postgresql_connection_that_commits_nothing_is_refused(hall, destination, postgresql):
    """It reads back what it wrote, and whoever resumes the thread finds nothing."""
    with PostgresSaver.from_conn_string(postgresql) as saver:
        saver.setup()
    with psycopg.Connection.connect(postgresql, autocommit=False, row_factory=psycopg.rows.dict_row) as connection:
        node = governed_langgraph_tools(runner_of(hall, destination.tool()))
        graph = agent_graph(node, scripted([call()]), PostgresSaver(connection))
        assert stopped(graph, ASK, thread()).code == "checkpointer_not_durable"
    assert destination.effects == []


def test_a_pool_of_postgresql_connections_keeps_a_thread(hall, destination, postgresql):
    with PostgresSaver.from_conn_string(postgresql) as saver:
        saver.setup()
    with ConnectionPool(postgresql, min_size=1, open=True, kwargs={"autocommit": True}) as pool:
        node = governed_langgraph_tools(runner_of(hall, destination.tool()))
        graph = agent_graph(node, scripted([call()]), PostgresSaver(pool))
        assert len(tool_messages(graph.invoke(ASK, thread(), durability="sync"))) == 1


@pytest.fixture
def postgresql(postgresql_server):
    name = postgresql_server.create()
    # The server of the tests waits for no disk; a saver must be told to.
    with psycopg.connect(postgresql_server.url(name), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = on")
    yield postgresql_server.url(name)
    postgresql_server.drop(name)


@asynccontextmanager
async def asqlite(path):
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        yield saver


@asynccontextmanager
async def apostgresql(url):
    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        await saver.setup()
        yield saver


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def opened(request, tmp_path):
    """Opens a saver for graphs that are awaited; the test runs once on each."""
    if request.param == "sqlite":
        return lambda: asqlite(tmp_path / "async.db")
    url = request.getfixturevalue("postgresql")
    return lambda: apostgresql(url)


def test_an_awaited_graph_promises_the_same(hall, destination, opened):
    async def scenario():
        destination.raises = [None, TimeoutError()]
        async with opened() as saver, arunner_of(hall, destination.atool()) as runner:
            graph = agent_graph(agoverned_langgraph_tools(runner), scripted([call(), call(call_id="c2")]), saver)
            config = thread()
            with pytest.raises(RecoveryBlocked) as first:
                await graph.ainvoke(ASK, config, durability="sync")
            with pytest.raises(RecoveryBlocked) as second:
                await graph.ainvoke(None, config, durability="sync")
            await asyncio.to_thread(hall.confirm, second.value.workflow_id, receipt=HAPPENED)
            return first.value, second.value, await graph.ainvoke(None, config, durability="sync")

    first, second, values = asyncio.run(scenario())
    assert (first.code, second.code) == ("outcome_unknown", "needs_confirmation")
    assert [m.tool_call_id for m in tool_messages(values)] == ["c1", "c2"]
    assert len(destination.effects) == 2


def test_an_awaited_postgresql_connection_that_does_not_wait_for_its_disk_is_refused(hall, destination, postgresql):
    async def scenario():
        async with apostgresql(postgresql) as saver, arunner_of(hall, destination.atool()) as runner:
            await saver.conn.execute("SET synchronous_commit = off")
            graph = agent_graph(agoverned_langgraph_tools(runner), scripted([call()]), saver)
            with pytest.raises(RecoveryBlocked) as caught:
                await graph.ainvoke(ASK, thread(), durability="sync")
            return caught.value.code

    assert asyncio.run(scenario()) == "checkpointer_not_durable"
    assert destination.effects == []


def test_an_awaited_graph_refuses_the_same(hall, destination, tmp_path):
    async def code(saver, **options):
        async with arunner_of(hall, destination.atool()) as runner:
            graph = agent_graph(agoverned_langgraph_tools(runner), scripted([call()]), saver)
            with pytest.raises(RecoveryBlocked) as caught:
                await graph.ainvoke(ASK, thread(), **options)
            return caught.value.code

    async def scenario():
        async with asqlite(":memory:") as memory, asqlite(tmp_path / "async.db") as saver:
            yielded = [
                await code(None),
                await code(memory, durability="sync"),
                await code(InMemorySaver(), durability="sync"),
                await code(saver),
                await code(saver, durability="async"),
            ]
            await saver.conn.execute("PRAGMA synchronous = OFF")
            return [*yielded, await code(saver, durability="sync")]

    assert asyncio.run(scenario()) == [
        "checkpointer_missing", "checkpointer_in_memory", "checkpointer_unsupported", "durability_not_sync",
        "durability_not_sync", "checkpointer_not_durable",
    ]  # fmt: skip
    assert destination.effects == []


def test_an_ordinary_graph_on_an_awaited_saver_is_refused(hall, destination, tmp_path):
    async def scenario():
        node = governed_langgraph_tools(runner_of(hall, destination.tool()))
        async with asqlite(tmp_path / "async.db") as saver:
            graph = agent_graph(node, scripted([call()]), saver)
            with pytest.raises(RecoveryBlocked) as caught:
                await graph.ainvoke(ASK, thread(), durability="sync")
        return caught.value.code

    assert asyncio.run(scenario()) == "checkpointer_unsupported"
    assert destination.effects == []


def test_a_tool_of_coroutines_is_for_the_awaited_runner_alone(hall, destination):
    with pytest.raises(TypeError, match="AsyncGovernedToolRunner"):
        runner_of(hall, destination.atool())


def test_each_node_is_for_its_own_kind_of_runner(hall, destination):
    async def scenario():
        async with arunner_of(hall, destination.atool()) as runner:
            with pytest.raises(TypeError, match="needs a GovernedToolRunner"):
                governed_langgraph_tools(runner)

    asyncio.run(scenario())
    with pytest.raises(TypeError, match="AsyncGovernedToolRunner"):
        agoverned_langgraph_tools(runner_of(hall, destination.tool()))
