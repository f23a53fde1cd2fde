"""Every way in which LangGraph comes to the node: twice, at once, in branches, streamed, interrupted, cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import RetryPolicy, Send

from continuity.client import AsyncContinuityClient, RecoveryBlocked
from continuity.integrations import (
    AsyncGovernedToolRunner,
    RegisteredTool,
    agoverned_langgraph_tools,
    governed_langgraph_tools,
)
from tests.langgraph.hall import (
    ASK,
    Destination,
    agent_graph,
    arunner_of,
    call,
    runner_of,
    scripted,
    sqlite_saver,
    thread,
    tool_messages,
)
from tests.patience import PATIENCE_S

CALLS = [call(call_id=f"c{n}", to=str(n)) for n in range(3)]
AT_ONCE = 4
PAUSE_S = 0.05


def resumed(graph, config):
    """Resume a thread until it has ended; only another worker may hold it up."""
    ends_at_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at_s:
        try:
            return graph.invoke(None, config, durability="sync")
        except RecoveryBlocked as error:
            assert error.code == "attempt_in_progress"  # noqa: PT017 - the loop goes on
            time.sleep(PAUSE_S)
    raise AssertionError("no end")


def has_each_result_once(values, destination):
    assert [message.tool_call_id for message in tool_messages(values)] == [one["id"] for one in CALLS]
    assert sorted(arguments["to"] for arguments in destination.arguments) == ["0", "1", "2"]


# --- Again ---


@pytest.fixture
def retried(hall, destination, saver):
    """Make a graph whose governed node LangGraph itself tries again, whatever it raises."""

    def made(**options):
        graph = StateGraph(MessagesState)
        script = scripted([call()])
        graph.add_node("model", lambda state: {"messages": [script(state["messages"])]})
        node = governed_langgraph_tools(runner_of(hall, destination.tool(**options)))
        policy = RetryPolicy(max_attempts=3, initial_interval=0.01, jitter=False, retry_on=Exception)
        graph.add_node("tools", node, retry_policy=policy)
        graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
        return graph.compile(saver)

    return made


def test_a_node_that_is_tried_again_repeats_no_effect_that_nobody_knows_of(retried, destination):
    destination.raises = [TimeoutError()]
    with pytest.raises(RecoveryBlocked) as caught:
        retried().invoke(ASK, thread(), durability="sync")
    assert caught.value.code == "needs_confirmation"
    assert len(destination.effects) == 1


def test_a_node_that_is_tried_again_finds_what_its_first_try_did(retried, destination):
    destination.raises = [TimeoutError()]
    values = retried(capability="query").invoke(ASK, thread(), durability="sync")
    assert [m.content for m in tool_messages(values)] == ['{"sent": 1}']
    assert len(destination.effects) == 1


# --- At once ---


def test_a_thread_that_several_workers_resume_at_once_has_one_effect_and_one_message_a_call(
    hall, destination, tmp_path
):
    client, config, path = hall.client(), thread(), tmp_path / "checkpoints.db"
    node = governed_langgraph_tools(runner_of(hall, destination.tool(), client=client))
    script = scripted(CALLS)
    with sqlite_saver(path) as saver:
        agent_graph(node, script, saver, interrupt_before=["tools"]).invoke(ASK, config, durability="sync")
    starting = threading.Barrier(AT_ONCE)

    def worker(_number):
        with sqlite_saver(path) as saver:
            graph = agent_graph(node, script, saver)
            starting.wait()
            return resumed(graph, config)

    with ThreadPoolExecutor(AT_ONCE) as workers:
        for values in workers.map(worker, range(AT_ONCE)):
            has_each_result_once(values, destination)


def test_a_thread_that_is_awaited_several_times_at_once_has_one_effect_and_one_message_a_call(
    hall, destination, tmp_path
):
    config, path, script = thread(), str(tmp_path / "checkpoints.db"), scripted(CALLS)

    async def worker(node):
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            graph = agent_graph(node, script, saver)
            ends_at_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < ends_at_s:
                try:
                    return await graph.ainvoke(None, config, durability="sync")
                except RecoveryBlocked as error:
                    assert error.code == "attempt_in_progress"  # noqa: PT017 - the loop goes on
                    await asyncio.sleep(PAUSE_S)
        raise AssertionError("no end")

    async def scenario():
        async with arunner_of(hall, destination.atool()) as runner:
            node = agoverned_langgraph_tools(runner)
            async with AsyncSqliteSaver.from_conn_string(path) as saver:
                first = agent_graph(node, script, saver, interrupt_before=["tools"])
                await first.ainvoke(ASK, config, durability="sync")
            return await asyncio.gather(*(worker(node) for _ in range(AT_ONCE)))

    for values in asyncio.run(scenario()):
        has_each_result_once(values, destination)


def test_branches_that_are_sent_the_same_message_have_one_effect_and_one_message_a_call(hall, destination, saver):
    graph = StateGraph(MessagesState)
    script = scripted(CALLS)
    graph.add_node("model", lambda state: {"messages": [script(state["messages"])]})
    graph.add_node("tools", governed_langgraph_tools(runner_of(hall, destination.tool())))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: [Send("tools", state)] * 3, ["tools"])
    compiled, config = graph.compile(saver), thread()
    try:
        compiled.invoke(ASK, config, durability="sync")
    except RecoveryBlocked as error:
        assert error.code == "attempt_in_progress"  # noqa: PT017 - it need not be raised
        resumed(compiled, config)
    has_each_result_once(compiled.get_state(config).values, destination)


# --- Streamed and interrupted ---


def test_a_graph_that_is_streamed_is_held_to_the_same(hall, destination, saver):
    graph = agent_graph(governed_langgraph_tools(runner_of(hall, destination.tool())), scripted(CALLS), saver)
    config = thread()
    assert list(graph.stream(ASK, config, durability="sync"))
    has_each_result_once(graph.get_state(config).values, destination)
    with pytest.raises(RecoveryBlocked) as caught:
        list(graph.stream(ASK, thread(), durability="exit"))
    assert caught.value.code == "durability_not_sync"


def test_a_graph_that_is_streamed_in_a_loop_is_held_to_the_same(hall, destination, tmp_path):
    async def scenario():
        async with (
            AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver,
            arunner_of(hall, destination.atool()) as runner,
        ):
            graph, config = agent_graph(agoverned_langgraph_tools(runner), scripted(CALLS), saver), thread()
            async for _ in graph.astream(ASK, config, durability="sync"):
                pass
            return (await graph.aget_state(config)).values

    has_each_result_once(asyncio.run(scenario()), destination)


def test_a_graph_that_a_person_interrupts_before_and_after_its_tools_is_held_to_the_same(hall, destination, saver):
    node = governed_langgraph_tools(runner_of(hall, destination.tool()))
    graph = agent_graph(node, scripted(CALLS), saver, interrupt_before=["tools"], interrupt_after=["tools"])
    config = thread()
    graph.invoke(ASK, config, durability="sync")
    assert destination.effects == []
    graph.invoke(None, config, durability="sync")
    has_each_result_once(graph.get_state(config).values, destination)
    values = graph.invoke(None, config, durability="sync")
    assert values["messages"][-1].content == "done"
    has_each_result_once(values, destination)


def test_a_graph_that_is_cancelled_in_the_middle_of_a_call_tells_before_it_ends(hall, tmp_path):
    """So that its thread waits for no lease: the destination is asked at once."""
    destination = Destination()

    async def scenario():
        happened, config = asyncio.Event(), thread()

        async def execute(*given):
            receipt = destination.execute(*given)
            if len(destination.effects) == 2:
                happened.set()
                await asyncio.sleep(60)
            return receipt

        tool = RegisteredTool("send", execute, destination.aquery, capability="query")
        async with (
            AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver,
            AsyncContinuityClient(hall.url, hall.token()) as client,
        ):
            runner = AsyncGovernedToolRunner(client, [tool], namespace="tests", enabled=True)
            graph = agent_graph(agoverned_langgraph_tools(runner), scripted(CALLS), saver)
            running = asyncio.create_task(graph.ainvoke(ASK, config, durability="sync"))
            await happened.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return await graph.ainvoke(None, config, durability="sync")

    has_each_result_once(asyncio.run(scenario()), destination)
    assert len(destination.asked) == 1
