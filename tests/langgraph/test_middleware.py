"""Agents of LangChain that one line of middleware governs."""

from __future__ import annotations

import pytest

from continuity.client import RecoveryBlocked
from continuity.integrations import GovernedToolsMiddleware
from tests.langgraph import agents
from tests.langgraph.hall import ASK, call, runner_of, thread, tool_messages


@pytest.fixture(autouse=True)
def handled():
    """No governed call ever reaches the agent's own tool."""
    agents.HANDLED.clear()
    yield agents.HANDLED
    assert agents.HANDLED == []


@pytest.fixture
def governed(hall, destination, saver):
    def make(*replies, tools=None, **options):
        middleware = GovernedToolsMiddleware(runner_of(hall, *(tools or [destination.tool()])), **options)
        return agents.agent([middleware], *replies, saver=saver)

    return make


def test_calls_of_a_message_run_in_their_order_and_each_has_one_tool_message(governed, destination):
    calls = [call(call_id=f"c{n}", to=str(n)) for n in range(12)]
    values = governed(calls).invoke(ASK, thread(), durability="sync")
    assert destination.arguments == [{"to": str(n)} for n in range(12)]
    assert [message.tool_call_id for message in tool_messages(values)] == [f"c{n}" for n in range(12)]


def test_an_uncertain_call_keeps_later_ones_from_being_begun_and_the_thread_finishes_after_a_decision(
    governed, destination, hall
):
    destination.raises = [None, TimeoutError()]
    agent = governed([call(call_id=f"c{n}", to=str(n)) for n in range(9)])
    config = thread()
    with pytest.raises(RecoveryBlocked) as stopped:
        agent.invoke(ASK, config, durability="sync")
    assert stopped.value.code in {"outcome_unknown", "earlier_call_unresolved"}
    assert destination.arguments == [{"to": "0"}, {"to": "1"}]
    assert all(message.tool_call_id == "c0" for message in tool_messages(agent.get_state(config).values))
    work = hall.work(stopped.value)
    assert work["operations"][0]["arguments"] == {"to": "1"}
    with pytest.raises(RecoveryBlocked):
        agent.invoke(None, config, durability="sync")
    assert len(destination.effects) == 2
    hall.confirm(work["workflow_id"], receipt={"effect_id": "effect-2", "result": {"sent": 2}})
    values = agent.invoke(None, config, durability="sync")
    assert [message.tool_call_id for message in tool_messages(values)] == [f"c{n}" for n in range(9)]
    assert destination.arguments == [{"to": str(n)} for n in range(9)]
