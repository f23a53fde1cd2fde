"""The governed node in real graphs, on real savers, against a real server."""

from __future__ import annotations

import pytest

from continuity.client import RecoveryBlocked
from continuity.integrations import governed_langgraph_tools
from tests.langgraph.hall import ASK, agent_graph, call, runner_of, scripted, thread, tool_messages


def test_each_call_of_a_message_has_one_effect_and_one_tool_message_in_order(hall, destination, saver):
    node = governed_langgraph_tools(runner_of(hall, destination.tool()))
    graph = agent_graph(node, scripted([call(to="a"), call(call_id="c2", to="b")]), saver)
    values = graph.invoke(ASK, thread(), durability="sync")
    assert destination.arguments == [{"to": "a"}, {"to": "b"}]
    assert [(m.tool_call_id, m.content, m.status) for m in tool_messages(values)] == [
        ("c1", '{"sent": 1}', "success"),
        ("c2", '{"sent": 2}', "success"),
    ]


def test_an_uncertain_call_raises_and_after_a_decision_the_thread_finishes_with_one_message_a_call(
    hall, destination, saver
):
    destination.raises = [None, TimeoutError()]
    node = governed_langgraph_tools(runner_of(hall, destination.tool()))
    graph = agent_graph(node, scripted([call(), call(call_id="c2"), call(call_id="c3")]), saver)
    config = thread()
    with pytest.raises(RecoveryBlocked) as first:
        graph.invoke(ASK, config, durability="sync")
    assert first.value.code == "outcome_unknown"
    assert len(destination.effects) == 2
    with pytest.raises(RecoveryBlocked) as second:
        graph.invoke(None, config, durability="sync")
    assert second.value.code == "needs_confirmation"
    assert tool_messages(graph.get_state(config).values) == []
    hall.confirm(second.value.workflow_id, receipt={"effect_id": "effect-2", "result": {"sent": 2}})
    values = graph.invoke(None, config, durability="sync")
    assert [m.tool_call_id for m in tool_messages(values)] == ["c1", "c2", "c3"]
    assert len(destination.effects) == 3
