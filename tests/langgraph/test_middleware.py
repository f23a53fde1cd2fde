"""Agents of LangChain that one line of middleware governs."""

from __future__ import annotations

import asyncio

import pytest
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import BaseModel, Field

from continuity.client import OutcomeNotRecorded, RecoveryBlocked, Refused
from continuity.errors import ContinuityError
from continuity.integrations import GovernedToolRunner, GovernedToolsMiddleware, RegisteredTool
from tests.langgraph import agents
from tests.langgraph.hall import ASK, arunner_of, call, runner_of, thread, tool_messages


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


@pytest.mark.parametrize("at_once", [None, 1, 2])
def test_calls_of_a_message_run_in_their_order_and_each_has_one_tool_message(governed, destination, at_once):
    calls = [call(call_id=f"c{n}", to=str(n)) for n in range(12)]
    config = thread() if at_once is None else {**thread(), "max_concurrency": at_once}
    values = governed(calls).invoke(ASK, config, durability="sync")
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


def stopped(agent, given, config, **options):
    with pytest.raises(RecoveryBlocked) as caught:
        agent.invoke(given, config, **{"durability": "sync", **options})
    return caught.value


def test_a_call_with_arguments_that_do_not_fit_is_told_to_the_model_and_not_begun(governed, destination):
    values = governed([call(whom="a"), call(call_id="c2", to="b")]).invoke(ASK, thread(), durability="sync")
    first, second = tool_messages(values)
    assert (first.status, second.status) == ("error", "success")
    assert "to" in first.content
    assert destination.arguments == [{"to": "b"}]


def test_the_registrations_own_schema_counts_before_that_of_the_agents_tool(governed, destination):
    class Short(BaseModel):
        to: str = Field(max_length=3)

    agent = governed([call(to="everybody")], tools=[destination.tool(arguments=Short)])
    (message,) = tool_messages(agent.invoke(ASK, thread(), durability="sync"))
    assert (message.status, destination.effects) == ("error", [])


def test_a_refused_call_is_told_to_the_model(governed, destination):
    destination.refuses = [Refused("Over the quota.")]
    values = governed([call(to="a")]).invoke(ASK, thread(), durability="sync")
    (message,) = tool_messages(values)
    assert (message.status, values["messages"][-1].content) == ("error", "done")


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        ([call(to="a"), call(to="b")], "call_id_duplicate"),
        ([call(call_id=None, to="a")], "call_id_missing"),
        ([call(to="a"), call("look", "c2", at="b")], "tool_not_registered"),
        ([call(to="a"), call("nothing", "c2")], "tool_not_registered"),
        ([call(call_id=f"c{n}", to="a") for n in range(33)], "too_many_calls"),
    ],
)
def test_a_message_is_refused_as_a_whole(governed, destination, calls, code):
    assert stopped(governed(calls), ASK, thread()).code == code
    assert destination.effects == []


@pytest.mark.parametrize("calls", [[call(to="a"), call(to="b")], [call(call_id=None, to="a")]])
def test_calls_without_an_id_of_their_own_are_refused_where_strangers_may_pass(governed, destination, calls):
    agent = governed([*calls, call("look", "c9", at="b")], unregistered="pass")
    assert stopped(agent, ASK, thread()).code in {"call_id_duplicate", "call_id_missing"}
    assert destination.effects == []


def test_an_unregistered_tool_may_be_let_pass(governed, destination):
    agent = governed([call("look", "c1", at="x"), call(call_id="c2", to="a")], unregistered="pass")
    values = agent.invoke(ASK, thread(), durability="sync")
    assert [m.content for m in tool_messages(values)] == ["looked at x", '{"sent": 1}']


@pytest.mark.parametrize("durability", [None, "async"])
def test_any_other_durability_is_refused(governed, destination, durability):
    assert stopped(governed([call(to="a")]), ASK, thread(), durability=durability).code == "durability_not_sync"
    assert destination.effects == []


def test_an_agent_without_a_checkpointer_is_refused(hall, destination):
    agent = agents.agent([GovernedToolsMiddleware(runner_of(hall, destination.tool()))], [call(to="a")], saver=None)
    assert stopped(agent, ASK, thread(), durability=None).code == "checkpointer_missing"
    assert destination.effects == []


def test_a_call_that_other_middleware_has_edited_is_refused(hall, destination, saver):
    @wrap_tool_call
    def edit(request, handler):
        return handler(request.override(tool_call={**request.tool_call, "args": {"to": "elsewhere"}}))

    governed = GovernedToolsMiddleware(runner_of(hall, destination.tool()))
    agent = agents.agent([edit, governed], [call(to="a")], saver=saver)
    assert stopped(agent, ASK, thread()).code == "call_changed"
    assert destination.effects == []


def test_a_call_that_other_middleware_answers_itself_holds_up_the_next_only_until_its_answer_is_stored(
    hall, destination, saver
):
    @wrap_tool_call
    def forbid(request, handler):
        if request.tool_call["id"] == "c1":
            return ToolMessage("Not allowed.", tool_call_id="c1", status="error")
        return handler(request)

    governed = GovernedToolsMiddleware(runner_of(hall, destination.tool()))
    agent = agents.agent([forbid, governed], [call(to="a"), call(call_id="c2", to="b")], saver=saver)
    values = agent.invoke(ASK, thread(), durability="sync")
    assert [m.content for m in tool_messages(values)] == ["Not allowed.", '{"sent": 1}']
    assert destination.arguments == [{"to": "b"}]


def test_first_in_its_list_it_is_repeated_and_answered_for_by_no_other_middleware(hall, destination, saver):
    @wrap_tool_call
    def swallow(request, handler):
        try:
            return handler(request)
        except RecoveryBlocked:
            return ToolMessage("Try again.", tool_call_id=request.tool_call["id"], status="error")

    destination.raises = [TimeoutError()]
    governed = GovernedToolsMiddleware(runner_of(hall, destination.tool()), behind="pass_over")
    agent = agents.agent([governed, swallow], [call(to="a")], saver=saver)
    assert stopped(agent, ASK, thread()).code == "outcome_unknown"


def test_calls_behind_one_whose_receipt_was_not_recorded_name_its_work(destination, saver):
    class Client:
        """Stands for a server that was lost after the effect."""

        url = "http://127.0.0.1:1"

        def run_new_operation(self, *_):
            page = f"{self.url}/resume-work/wf_1"
            raise OutcomeNotRecorded({}, workflow_id="wf_1", attempt_id="at_1", page=page)

    raised = []

    @wrap_tool_call
    def listen(request, handler):
        try:
            return handler(request)
        except Exception as error:
            raised.append(error)
            raise

    runner = GovernedToolRunner(Client(), [destination.tool()], namespace="tests", enabled=True)
    calls = [call(to="a"), call(call_id="c2", to="b")]
    agent = agents.agent([listen, GovernedToolsMiddleware(runner)], calls, saver=saver)
    with pytest.raises(ContinuityError):
        agent.invoke(ASK, thread(), durability="sync")
    assert {error.code for error in raised} == {"outcome_not_recorded", "earlier_call_unresolved"}
    assert {(error.workflow_id, error.page) for error in raised} == {("wf_1", f"{Client.url}/resume-work/wf_1")}


def test_the_stored_message_is_read_once_a_message(hall, destination, saver):
    reads = []

    class Counting:
        """Counts what is read back by the middleware: by the checkpoint's own id, and in no other way."""

        def __init__(self, get_tuple):
            self.get_tuple = get_tuple

        def __call__(self, config):
            reads.append(config["configurable"].get("checkpoint_id"))
            return self.get_tuple(config)

    saver.get_tuple = Counting(saver.get_tuple)
    governed = GovernedToolsMiddleware(runner_of(hall, destination.tool()))
    calls = [call(call_id=f"c{n}", to="a") for n in range(5)]
    agents.agent([governed], calls, saver=saver).invoke(ASK, thread(), durability="sync")
    assert len([one for one in reads if one is not None]) == 1


def test_going_back_to_before_the_tools_repeats_nothing(governed, destination):
    agent, config = governed([call(to="a"), call(call_id="c2", to="b")]), thread()
    first = agent.invoke(ASK, config, durability="sync")
    before = next(state for state in agent.get_state_history(config) if set(state.next) == {"tools"})
    again = agent.invoke(None, before.config, durability="sync")
    assert [m.content for m in tool_messages(again)] == [m.content for m in tool_messages(first)]
    assert len(destination.effects) == 2


def test_a_runner_that_cannot_be_awaited_is_refused_in_an_agent_that_is(hall, destination, tmp_path):
    async def scenario():
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
            governed = GovernedToolsMiddleware(runner_of(hall, destination.tool()))
            with pytest.raises(RecoveryBlocked) as caught:
                await agents.agent([governed], [call(to="a")], saver=saver).ainvoke(ASK, thread(), durability="sync")
        return caught.value.code

    assert asyncio.run(scenario()) == "runner_mismatch"
    assert destination.effects == []


def test_an_agent_that_is_awaited_promises_the_same(hall, destination, tmp_path):
    calls = [call(call_id=f"c{n}", to=str(n)) for n in range(9)]

    async def scenario():
        destination.raises = [None, TimeoutError()]
        async with (
            AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver,
            arunner_of(hall, destination.atool()) as runner,
        ):
            agent, config = agents.agent([GovernedToolsMiddleware(runner)], calls, saver=saver), thread()
            with pytest.raises(RecoveryBlocked) as caught:
                await agent.ainvoke(ASK, config, durability="sync")
            workflow_id = caught.value.workflow_id
            receipt = {"effect_id": "effect-2", "result": {"sent": 2}}
            await asyncio.to_thread(hall.confirm, workflow_id, receipt=receipt)
            return len(destination.effects), await agent.ainvoke(None, config, durability="sync")

    effects, values = asyncio.run(scenario())
    assert effects == 2
    assert [m.tool_call_id for m in tool_messages(values)] == [f"c{n}" for n in range(9)]
    assert destination.arguments == [{"to": str(n)} for n in range(9)]


def test_a_call_behind_one_that_another_worker_runs_says_how_long_to_wait(hall, saver):
    """Whichever of the two errors reaches the caller, it names the work and the time."""
    client, config, seen = hall.client(), thread(), []

    def worker(execute):
        governed = GovernedToolsMiddleware(runner_of(hall, RegisteredTool("send", execute), client=client))
        return agents.agent([governed], [call(to="a"), call(call_id="c2", to="b")], saver=saver)

    def execute(_arguments, operation_id, _key, _timeout_s):
        if not seen:
            seen.append(stopped(worker(execute), None, config))
        return {"outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": "e", "result": 1}

    values = worker(execute).invoke(ASK, config, durability="sync")
    assert len(tool_messages(values)) == 2
    assert seen[0].code in {"attempt_in_progress", "earlier_call_unresolved"}
    assert 0 < seen[0].retry_after_s <= 120
    assert seen[0].page.endswith(seen[0].workflow_id)
