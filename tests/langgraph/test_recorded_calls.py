"""A call that was recorded is never told to the model as undone, whatever became of its tool or its arguments."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage

from continuity.client import NotDispatched, RecoveryBlocked
from continuity.integrations import GovernedToolsMiddleware, governed_langgraph_tools
from tests.langgraph import agents
from tests.langgraph.hall import ASK, agent_graph, call, runner_of, scripted, thread, tool_messages

NARROW = {"type": "object", "properties": {"to": {"maxLength": 3}}}
HAPPENED = {"effect_id": "effect-1", "result": {"sent": 1}}


@pytest.fixture(params=["node", "agent"])
def registered(request, hall, destination, saver):
    """Make the same application again and again, each time with its tool registered as given."""
    client, script = hall.client(), scripted([call(to="everybody")])

    def made(**options):
        runner = runner_of(hall, destination.tool(**options), client=client)
        if request.param == "node":
            return agent_graph(governed_langgraph_tools(runner), script, saver)
        return agents.agent([GovernedToolsMiddleware(runner)], [call(to="everybody")], saver=saver)

    return made


def stopped(graph, given, config):
    with pytest.raises(RecoveryBlocked) as caught:
        graph.invoke(given, config, durability="sync")
    return caught.value


def test_a_call_in_doubt_raises_also_when_its_tool_takes_less_by_now(registered, destination, hall):
    destination.raises = [TimeoutError()]
    config = thread()
    assert stopped(registered(), ASK, config).code == "outcome_unknown"

    again = stopped(registered(arguments=NARROW), None, config)

    assert again.code == "needs_confirmation"
    assert tool_messages(registered().get_state(config).values) == []
    hall.confirm(again.workflow_id, receipt=HAPPENED)
    values = registered(arguments=NARROW).invoke(None, config, durability="sync")
    assert [(m.content, m.status) for m in tool_messages(values)] == [('{"sent": 1}', "success")]
    assert len(destination.effects) == 1


def test_a_call_in_doubt_is_asked_for_also_when_its_tool_takes_less_by_now(registered, destination):
    destination.raises = [TimeoutError()]
    config = thread()
    stopped(registered(capability="query"), ASK, config)

    values = registered(capability="query", arguments=NARROW).invoke(None, config, durability="sync")

    assert [(m.content, m.status) for m in tool_messages(values)] == [('{"sent": 1}', "success")]
    assert len(destination.effects) == len(destination.asked) == 1


def test_a_call_in_doubt_is_not_repeated_under_its_key_when_its_tool_takes_less_by_now(registered, destination):
    able = {"capability": "idempotent", "retention_seconds": 3_600}
    destination.raises = [TimeoutError()]
    config = thread()
    stopped(registered(**able), ASK, config)

    assert stopped(registered(**able, arguments=NARROW), None, config).code == "outcome_unknown"

    assert len(destination.effects) == 1


def test_a_call_that_never_left_ends_refused_when_its_tool_takes_less_by_now(registered, destination, hall):
    destination.refuses = [NotDispatched("No route.")]
    config = thread()
    workflow_id = stopped(registered(), ASK, config).workflow_id

    values = registered(arguments=NARROW).invoke(None, config, durability="sync")

    (message,) = tool_messages(values)
    assert message.status == "error"
    assert "nothing was done" in message.content
    assert hall.operator.get_workflow(workflow_id)["operations"][0]["status"] == "refused"
    assert destination.effects == []


def test_a_call_that_does_not_fit_and_was_never_recorded_leaves_no_work_behind(hall, destination, saver):
    client = hall.client()
    runner = runner_of(hall, destination.tool(arguments=NARROW), client=client)
    graph = agent_graph(governed_langgraph_tools(runner), scripted([call(to="everybody")]), saver)
    before = hall.operator.list_workflows(limit=1)["workflows"]

    (message,) = tool_messages(graph.invoke(ASK, thread(), durability="sync"))

    assert message.status == "error"
    assert hall.operator.list_workflows(limit=1)["workflows"] == before


def test_a_call_in_doubt_whose_arguments_were_edited_to_what_cannot_be_recorded_is_a_changed_call(
    hall, destination, saver
):
    destination.raises = [TimeoutError()]
    graph = agent_graph(governed_langgraph_tools(runner_of(hall, destination.tool())), scripted([call(to="a")]), saver)
    config = thread()
    doubt = stopped(graph, ASK, config)
    last = graph.get_state(config).values["messages"][-1]
    edited = AIMessage("", id=last.id, tool_calls=[call(to=float("nan"))])
    forked = graph.update_state(config, {"messages": [edited]}, as_node="model")

    changed = stopped(graph, None, forked)

    assert (changed.code, changed.workflow_id) == ("call_changed", doubt.workflow_id)
    assert len(destination.effects) == 1


def test_a_call_whose_work_was_deleted_says_which_work_it_was(hall, destination, saver):
    graph = agent_graph(governed_langgraph_tools(runner_of(hall, destination.tool())), scripted([call()]), saver)
    config = thread()
    graph.invoke(ASK, config, durability="sync")
    workflow_id = hall.operator.list_workflows(limit=1)["workflows"][0]["workflow_id"]
    hall.delete(workflow_id)
    before = next(state for state in graph.get_state_history(config) if state.next == ("tools",))

    gone = stopped(graph, None, before.config)

    assert (gone.code, gone.workflow_id) == ("workflow_deleted", workflow_id)
    assert len(destination.effects) == 1
