"""`langgraph_node` and `alanggraph_node` in real graphs: a fixed workflow, one effect whatever the graph does."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from continuity.client import (
    AsyncContinuityClient,
    AsyncTool,
    ContinuityClient,
    RecoveryBlocked,
    Tool,
    alanggraph_node,
    langgraph_node,
)
from tests.langgraph.hall import thread

_numbers = itertools.count()


class State(TypedDict, total=False):
    document: dict[str, Any]
    told: str


@pytest.fixture
def work(hall):
    """An enabled workflow of one operation, and the credential of its worker."""
    operation = {"name": "publish", "tool": "publish", "arguments": {"page": 1}, "capability": "query"}
    key = f"fixed-{next(_numbers)}"
    workflow_id = hall.operator.create_workflow(key, [operation], activate=True)["workflow_id"]
    return workflow_id, hall.grant(f"worker-{key}", "continuity_host", run_id=workflow_id)


def graph_of(node, saver, told=lambda state: {"told": f"done: {state['document']}"}):
    graph = StateGraph(State)
    graph.add_node("publish", node)
    graph.add_node("tell", told)
    graph.add_edge(START, "publish")
    graph.add_edge("publish", "tell")
    graph.add_edge("tell", END)
    return graph.compile(checkpointer=saver)


def fixed(hall, work, destination):
    workflow_id, token = work
    tools = {"publish": Tool(destination.execute, destination.query)}
    return langgraph_node(ContinuityClient(hall.url, token), workflow_id, "publish", tools, result_key="document")


def test_a_graph_publishes_once_however_often_and_wherever_it_is_run(hall, work, destination, saver):
    graph = graph_of(fixed(hall, work, destination), saver)
    config = thread()

    first = graph.invoke({}, config)
    again = graph.invoke({}, config)
    elsewhere = graph.invoke({}, thread())

    assert first == again == elsewhere == {"document": {"sent": 1}, "told": "done: {'sent': 1}"}
    assert len(destination.effects) == 1


def test_a_graph_that_failed_after_the_node_goes_on_from_its_checkpoint(hall, work, destination, saver):
    failing = [True]

    def told(_state):
        if failing:
            failing.pop()
            raise RuntimeError("the process ends here")
        return {"told": "done"}

    graph, config = graph_of(fixed(hall, work, destination), saver, told), thread()

    with pytest.raises(RuntimeError):
        graph.invoke({}, config)
    assert graph.invoke(None, config)["told"] == "done"

    assert len(destination.effects) == 1


def test_a_stop_stays_visible_and_the_same_thread_goes_on_when_the_destination_has_been_asked(
    hall, work, destination, saver
):
    destination.raises = [TimeoutError("nobody knows")]
    graph, config = graph_of(fixed(hall, work, destination), saver), thread()

    with pytest.raises(RecoveryBlocked) as caught:
        graph.invoke({}, config)
    assert caught.value.code == "outcome_unknown"
    assert graph.get_state(config).next == ("publish",)

    assert graph.invoke(None, config)["document"] == {"sent": 1}
    assert len(destination.effects) == 1


def test_a_replay_from_an_earlier_checkpoint_repeats_nothing(hall, work, destination, saver):
    graph, config = graph_of(fixed(hall, work, destination), saver), thread()
    graph.invoke({}, config)
    earliest = list(graph.get_state_history(config))[-1].config

    assert graph.invoke(None, earliest)["document"] == {"sent": 1}

    assert len(destination.effects) == 1


# --- The async twin ---


def awaited(hall, work, tmp_path, tools, play):
    """Run `play(graph, config)` with the async node on an AsyncSqliteSaver."""
    workflow_id, token = work

    async def main():
        async with (
            AsyncContinuityClient(hall.url, token) as client,
            AsyncSqliteSaver.from_conn_string(str(tmp_path / "async.db")) as saver,
        ):
            node = alanggraph_node(client, workflow_id, "publish", {"publish": tools}, result_key="document")
            await play(graph_of(node, saver), thread())

    asyncio.run(main())


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_an_awaited_graph_publishes_once(hall, work, destination, tmp_path, is_coroutine):
    callbacks = (destination.aexecute, destination.aquery) if is_coroutine else (destination.execute, destination.query)

    async def play(graph, config):
        first = await graph.ainvoke({}, config, durability="sync")
        assert first == await graph.ainvoke({}, config, durability="sync")
        assert first["document"] == {"sent": 1}

    awaited(hall, work, tmp_path, AsyncTool(*callbacks), play)

    assert len(destination.effects) == 1


def test_an_awaited_graph_that_is_cancelled_goes_on_and_asks_the_destination(hall, work, destination, tmp_path):
    async def play(graph, config):
        started = asyncio.Event()

        async def slow(*given):
            destination.execute(*given)
            started.set()
            await asyncio.Event().wait()

        tools.append(slow)
        running = asyncio.create_task(graph.ainvoke({}, config, durability="sync"))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        # Reported: the next run need not wait for a lease.
        assert (await graph.ainvoke(None, config, durability="sync"))["document"] == {"sent": 1}

    tools = []

    async def execute(*given):
        return await tools[0](*given)

    awaited(hall, work, tmp_path, AsyncTool(execute, destination.aquery), play)

    assert (len(destination.effects), len(destination.asked)) == (1, 1)


def test_nodes_are_called_by_the_name_of_their_operation(hall, work):
    workflow_id, token = work

    node = alanggraph_node(AsyncContinuityClient(hall.url, token), workflow_id, "publish", {}, result_key="document")

    assert node.__name__ == "publish"
