"""The governed nodes in real graphs, on real savers, against a real server."""

from __future__ import annotations

import itertools
import sqlite3
from concurrent.futures import Future
from contextlib import closing

import pytest
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel._loop import SyncPregelLoop

from continuity.client import NotDispatched, RecoveryBlocked, Refused
from continuity.integrations import (
    GovernedToolRunner,
    governed_langgraph_tools,
)
from tests.langgraph.hall import (
    ASK,
    agent_graph,
    call,
    runner_of,
    scripted,
    sqlite_saver,
    thread,
    tool_messages,
)

NUMBERS = itertools.count()
HAPPENED = {"effect_id": "effect-2", "result": {"sent": 2}}


@pytest.fixture
def governed(hall, destination, saver):
    """Make a graph whose tools are governed, on a saver that keeps."""

    def make(*replies, tools=None, with_saver=saver, script=None, **options):
        node = governed_langgraph_tools(runner_of(hall, *(tools or [destination.tool()])))
        return agent_graph(node, script or scripted(*replies), with_saver, **options)

    return make


def stopped(graph, given, config, **options):
    with pytest.raises(RecoveryBlocked) as caught:
        graph.invoke(given, config, **{"durability": "sync", **options})
    return caught.value


# --- What each call comes to ---


def test_each_call_of_a_message_has_one_effect_and_one_tool_message_in_order(governed, destination):
    graph = governed([call(to="a"), call(call_id="c2", to="b")])
    values = graph.invoke(ASK, thread(), durability="sync")
    assert destination.arguments == [{"to": "a"}, {"to": "b"}]
    assert [(m.tool_call_id, m.content, m.status) for m in tool_messages(values)] == [
        ("c1", '{"sent": 1}', "success"),
        ("c2", '{"sent": 2}', "success"),
    ]


def test_two_equal_calls_of_one_message_are_two_operations(governed, destination):
    governed([call(to="a"), call(call_id="c2", to="a")]).invoke(ASK, thread(), durability="sync")
    assert destination.arguments == [{"to": "a"}, {"to": "a"}]
    assert len({operation_id for operation_id, _ in destination.effects}) == 2


def test_a_new_message_with_the_same_call_is_new_work(governed, destination):
    governed([call(to="a")], [call(to="a")]).invoke(ASK, thread(), durability="sync")
    assert len(destination.effects) == 2


def test_a_refused_call_is_told_to_the_model_and_its_thread_goes_on(governed, destination):
    destination.refuses = [Refused("Over the quota.")]
    values = governed([call(), call(call_id="c2")]).invoke(ASK, thread(), durability="sync")
    first, second = tool_messages(values)
    assert (first.status, second.status) == ("error", "success")
    assert "Over the quota." in first.content
    assert values["messages"][-1].content == "done"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 2**60])
def test_arguments_that_no_receipt_could_hold_are_told_to_the_model_and_its_thread_goes_on(
    governed, destination, number
):
    """They are read back from the step that holds them, where one NaN is not equal to another."""
    values = governed([call(n=number), call(call_id="c2")]).invoke(ASK, thread(), durability="sync")
    assert [m.status for m in tool_messages(values)] == ["error", "success"]
    assert values["messages"][-1].content == "done"


def test_ids_of_any_length_are_ids(governed, destination):
    calls = [call(call_id=("x" * 10_000) + end) for end in "ab"]
    values = governed(calls).invoke(ASK, thread("t" * 10_000), durability="sync")
    assert [m.tool_call_id for m in tool_messages(values)] == [one["id"] for one in calls]
    assert len(destination.effects) == 2


def test_a_saved_refusal_is_told_in_the_same_words_when_its_message_was_lost(governed, destination, hall):
    destination.refuses = [Refused("Over the quota.")]
    destination.raises = [TimeoutError()]
    graph, config = governed([call(), call(call_id="c2")]), thread()
    blocked = stopped(graph, ASK, config)
    assert tool_messages(graph.get_state(config).values) == []
    hall.confirm(blocked.workflow_id, receipt={"effect_id": "effect-1", "result": None})
    values = graph.invoke(None, config, durability="sync")
    assert [m.content for m in tool_messages(values)] == [
        "The destination refused, and nothing was done. Over the quota.",
        "null",
    ]


def test_a_call_that_never_left_is_run_again_by_resuming(governed, destination):
    destination.refuses = [NotDispatched("No route.")]
    graph, config = governed([call()]), thread()
    assert stopped(graph, ASK, config).code == "not_dispatched"
    values = graph.invoke(None, config, durability="sync")
    assert [m.status for m in tool_messages(values)] == ["success"]
    assert len(destination.effects) == 1


def test_an_uncertain_call_raises_and_after_a_decision_the_thread_finishes_with_one_message_a_call(
    governed, destination, hall
):
    destination.raises = [None, TimeoutError()]
    graph, config = governed([call(), call(call_id="c2"), call(call_id="c3")]), thread()
    assert stopped(graph, ASK, config).code == "outcome_unknown"
    assert len(destination.effects) == 2
    again = stopped(graph, None, config)
    assert again.code == "needs_confirmation"
    assert again.page == f"{hall.url}/resume-work/{again.workflow_id}"
    assert tool_messages(graph.get_state(config).values) == []
    hall.confirm(again.workflow_id, receipt=HAPPENED)
    values = graph.invoke(None, config, durability="sync")
    assert [m.tool_call_id for m in tool_messages(values)] == ["c1", "c2", "c3"]
    assert len(destination.effects) == 3


def test_a_lost_receipt_is_found_by_asking_and_the_effect_is_not_repeated(governed, destination):
    destination.raises = [TimeoutError()]
    graph, config = governed([call()], tools=[destination.tool(capability="query")]), thread()
    assert stopped(graph, ASK, config).code == "outcome_unknown"
    values = graph.invoke(None, config, durability="sync")
    assert [m.content for m in tool_messages(values)] == ['{"sent": 1}']
    assert (len(destination.effects), len(destination.asked)) == (1, 1)


def test_a_paused_call_stays_paused_when_its_thread_is_resumed(governed, destination, hall):
    destination.refuses = [NotDispatched("No route.")]
    graph, config = governed([call()]), thread()
    hall.pause(stopped(graph, ASK, config).workflow_id)
    assert stopped(graph, None, config).code == "workflow_disabled_or_capture_unavailable"
    assert destination.effects == []


# --- What is refused before anything is begun ---


def test_a_graph_without_a_checkpointer_is_refused(governed, destination):
    assert stopped(governed([call()], with_saver=None), ASK, thread(), durability=None).code == "checkpointer_missing"
    assert destination.effects == []


def test_checkpoints_in_memory_are_refused(governed, destination):
    with sqlite_saver(":memory:") as saver:
        assert stopped(governed([call()], with_saver=saver), ASK, thread()).code == "checkpointer_in_memory"
    graph = governed([call()], with_saver=InMemorySaver())
    assert stopped(graph, ASK, thread()).code == "checkpointer_unsupported"
    assert destination.effects == []


def test_a_subclass_of_a_saver_is_refused_since_it_may_keep_less(governed, destination, tmp_path):
    class Forgetful(SqliteSaver):
        """Could forget."""

    with sqlite_saver(tmp_path / "other.db", kind=Forgetful) as saver:
        assert stopped(governed([call()], with_saver=saver), ASK, thread()).code == "checkpointer_unsupported"
    assert destination.effects == []


def test_a_database_in_memory_that_has_a_name_is_refused(governed, destination):
    """SQLite gives a path for it, as for a file."""
    connection = sqlite3.connect("file:/kept?vfs=memdb", uri=True, check_same_thread=False)
    with closing(connection):
        assert stopped(governed([call()], with_saver=SqliteSaver(connection)), ASK, thread()).code == (
            "checkpointer_not_durable"
        )
    assert destination.effects == []


def test_a_database_that_does_not_wait_for_its_disk_is_refused(governed, destination, saver):
    saver.conn.execute("PRAGMA synchronous = NORMAL")
    assert stopped(governed([call()]), ASK, thread()).code == "checkpointer_not_durable"
    assert destination.effects == []


@pytest.mark.parametrize("durability", [None, "async", "exit"])
def test_any_other_durability_is_refused(governed, destination, durability):
    assert stopped(governed([call()]), ASK, thread(), durability=durability).code == "durability_not_sync"
    assert destination.effects == []


def test_a_message_that_only_the_state_holds_is_refused(hall, destination, saver):
    """The node that runs the tools is handed a message that no step has stored."""
    governed = governed_langgraph_tools(runner_of(hall, destination.tool()))

    def model_and_tools(state, config):
        message = AIMessage("", id="unstored", tool_calls=[call()])
        return governed({"messages": [*state["messages"], message]}, config)

    graph = StateGraph(MessagesState).add_node("both", model_and_tools).add_edge(START, "both").compile(saver)
    assert stopped(graph, ASK, thread()).code == "message_not_stored"
    assert destination.effects == []


def test_a_message_that_was_edited_since_it_was_stored_is_refused(hall, destination, saver):
    governed = governed_langgraph_tools(runner_of(hall, destination.tool()))

    def tools(state, config):
        message = state["messages"][-1]
        edited = AIMessage("", id=message.id, tool_calls=[call(to="elsewhere")])
        return governed({"messages": [edited]}, config)

    assert stopped(agent_graph(tools, scripted([call(to="a")]), saver), ASK, thread()).code == "call_changed"
    assert destination.effects == []


def test_a_last_message_of_somebody_else_is_refused(hall, destination, saver):
    node = governed_langgraph_tools(runner_of(hall, destination.tool()))
    graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").compile(saver)
    assert stopped(graph, ASK, thread()).code == "message_not_assistant"


@pytest.fixture
def nested(hall, destination, saver):
    """Make a graph whose governed node stands in a subgraph that is compiled with this checkpointer."""

    def made(checkpointer):
        node = governed_langgraph_tools(runner_of(hall, destination.tool()))
        inner = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools")
        outer = StateGraph(MessagesState)
        outer.add_node("model", lambda _: {"messages": [AIMessage("", id=f"m-{next(NUMBERS)}", tool_calls=[call()])]})
        outer.add_node("sub", inner.compile(checkpointer=checkpointer))
        outer.add_edge(START, "model").add_edge("model", "sub").add_edge("sub", END)
        return outer.compile(saver)

    return made


@pytest.mark.parametrize("checkpointer", [None, True])
def test_a_node_of_a_subgraph_that_is_stored_runs(nested, destination, checkpointer):
    assert len(tool_messages(nested(checkpointer).invoke(ASK, thread(), durability="sync"))) == 1
    assert len(destination.effects) == 1


def test_a_node_of_a_subgraph_that_is_not_stored_is_not_even_reached(nested, destination):
    """Every tested version of LangGraph waits there for a checkpoint that nobody writes, and fails."""
    with pytest.raises(AttributeError, match="_put_checkpoint_fut"):
        nested(False).invoke(ASK, thread(), durability="sync")
    assert destination.effects == []


def test_a_node_of_a_subgraph_that_is_not_stored_is_refused_where_langgraph_gets_so_far(
    nested, destination, monkeypatch
):
    """As if LangGraph had mended that: there is then no checkpoint to wait for."""
    nothing = Future()
    nothing.set_result(None)
    monkeypatch.setattr(SyncPregelLoop, "_put_checkpoint_fut", nothing, raising=False)
    assert stopped(nested(False), ASK, thread()).code == "step_not_stored"
    assert destination.effects == []


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        ([call(), call()], "call_id_duplicate"),
        ([call(call_id=None)], "call_id_missing"),
        ([call(), call("other", "c2")], "tool_not_registered"),
        ([call(call_id=f"c{n}") for n in range(33)], "too_many_calls"),
    ],
)
def test_a_message_is_refused_as_a_whole(governed, destination, calls, code):
    assert stopped(governed(calls), ASK, thread()).code == code
    assert destination.effects == []


def test_a_runner_that_was_not_enabled_runs_nothing(hall, destination, saver):
    node = governed_langgraph_tools(GovernedToolRunner(hall.client(), [destination.tool()], namespace="tests"))
    assert stopped(agent_graph(node, scripted([call()]), saver), ASK, thread()).code == "integration_not_enabled"
    assert destination.effects == []


def test_thirty_two_calls_of_one_message_run(governed, destination):
    values = governed([call(call_id=f"c{n}") for n in range(32)]).invoke(ASK, thread(), durability="sync")
    assert len(tool_messages(values)) == len(destination.effects) == 32


# --- Time travel ---


def test_going_back_to_before_the_tools_gives_the_saved_results_and_repeats_nothing(governed, destination):
    graph, config = governed([call(), call(call_id="c2")]), thread()
    first = graph.invoke(ASK, config, durability="sync")
    before = next(state for state in graph.get_state_history(config) if state.next == ("tools",))
    again = graph.invoke(None, before.config, durability="sync")
    assert [m.content for m in tool_messages(again)] == [m.content for m in tool_messages(first)]
    assert len(destination.effects) == 2


def test_a_fork_with_a_new_message_is_new_work(governed, destination):
    graph, config = governed([call()]), thread()
    graph.invoke(ASK, config, durability="sync")
    before = next(state for state in graph.get_state_history(config) if state.next == ("tools",))
    forked = graph.update_state(
        before.config,
        {"messages": [RemoveMessage(before.values["messages"][-1].id), AIMessage("", id="new", tool_calls=[call()])]},
        as_node="model",
    )
    values = graph.invoke(None, forked, durability="sync")
    assert len(tool_messages(values)) == 1
    assert len(destination.effects) == 2


def test_edited_arguments_under_an_existing_call_are_refused_and_the_error_names_the_work(governed, destination, hall):
    graph, config = governed([call(to="a")]), thread()
    graph.invoke(ASK, config, durability="sync")
    before = next(state for state in graph.get_state_history(config) if state.next == ("tools",))
    edited = AIMessage("", id=before.values["messages"][-1].id, tool_calls=[call(to="b")])
    forked = graph.update_state(before.config, {"messages": [edited]}, as_node="model")
    blocked = stopped(graph, None, forked)
    assert blocked.code == "call_changed"
    assert hall.work(blocked)["definitions"][0]["arguments"] == {"to": "a"}
    assert blocked.page == f"{hall.url}/resume-work/{blocked.workflow_id}"
    assert destination.arguments == [{"to": "a"}]


def test_another_thread_or_namespace_is_other_work_and_the_same_call_is_the_same_wherever_it_is_stored(
    hall, destination, tmp_path
):
    node = governed_langgraph_tools(runner_of(hall, destination.tool()))
    threads = [thread("t1"), thread("t2"), thread("t1", continuity_namespace="second"), thread("t1")]
    for number, config in enumerate(threads):
        with sqlite_saver(tmp_path / f"{number}.db") as saver:
            script = lambda _: AIMessage("", id="same", tool_calls=[call()])  # noqa: E731
            agent_graph(node, script, saver, interrupt_after=["tools"]).invoke(ASK, config, durability="sync")
    assert len(destination.effects) == 3
