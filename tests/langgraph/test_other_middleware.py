"""Governed tools in an agent with other middleware: what decides about a call is never passed over."""

from __future__ import annotations

import asyncio
import inspect
import itertools

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    ToolRetryMiddleware,
    wrap_tool_call,
)
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from continuity.client import RecoveryBlocked
from continuity.integrations import GovernedToolsMiddleware
from tests.langgraph import agents
from tests.langgraph.hall import ASK, arunner_of, call, runner_of, thread, tool_messages

ASKS_PER_CALL = "interrupt_mode" in inspect.signature(HumanInTheLoopMiddleware).parameters
PER_CALL = {"interrupt_mode": "per_call"} if ASKS_PER_CALL else {}
"""An older LangChain asks about a whole message alone."""


@wrap_tool_call
def forbid(request, _handler):
    return ToolMessage("Not allowed.", tool_call_id=request.tool_call["id"], status="error")


class Forbid(AgentMiddleware):
    """The same, as a class of one's own."""

    def wrap_tool_call(self, request, _handler):
        return ToolMessage("Not allowed.", tool_call_id=request.tool_call["id"], status="error")

    async def awrap_tool_call(self, request, handler):
        return self.wrap_tool_call(request, handler)


class Passing(AgentMiddleware):
    """Decides nothing, and stands before."""

    def wrap_tool_call(self, request, handler):
        return handler(request)


DECIDING = {
    "a function": lambda: forbid,
    "a class": Forbid,
    "one that imitates": lambda: LLMToolEmulator(model=agents.ScriptedModel(replies=[])),
    **({"one that asks about each call": lambda: asking(**PER_CALL)} if ASKS_PER_CALL else {}),
}


def asking(**options):
    return HumanInTheLoopMiddleware(interrupt_on={"send": True}, **options)


@pytest.fixture
def governed(hall, destination):
    def made(**options):
        return GovernedToolsMiddleware(runner_of(hall, destination.tool()), **options)

    return made


def stopped(agent, given, config):
    with pytest.raises(RecoveryBlocked) as caught:
        agent.invoke(given, config, durability="sync")
    return caught.value


@pytest.mark.parametrize("before", [[], [Passing()]], ids=["first", "second"])
@pytest.mark.parametrize("name", DECIDING)
def test_nothing_is_begun_where_something_behind_might_decide(governed, destination, saver, name, before):
    agent = agents.agent([*before, governed(), DECIDING[name]()], [call(to="a")], saver=saver)
    assert stopped(agent, ASK, thread()).code == "middleware_passed_over"
    assert destination.effects == []


def test_it_is_found_however_far_behind(governed, destination, saver):
    agent = agents.agent([governed(), ToolRetryMiddleware(), Forbid()], [call(to="a")], saver=saver)
    blocked = stopped(agent, ASK, thread())
    assert (blocked.code, blocked.because) == ("middleware_passed_over", "Forbid would not see the call.")
    assert destination.effects == []


def test_an_awaited_agent_is_held_to_the_same(hall, destination, tmp_path):
    async def scenario():
        async with (
            AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver,
            arunner_of(hall, destination.atool()) as runner,
        ):
            agent = agents.agent([GovernedToolsMiddleware(runner), Forbid()], [call(to="a")], saver=saver)
            with pytest.raises(RecoveryBlocked) as caught:
                await agent.ainvoke(ASK, thread(), durability="sync")
        return caught.value.code

    assert asyncio.run(scenario()) == "middleware_passed_over"
    assert destination.effects == []


def test_what_only_repeats_calls_may_stand_behind(governed, destination, saver):
    destination.raises = [TimeoutError()]
    agent, config = agents.agent([governed(), ToolRetryMiddleware()], [call(to="a")], saver=saver), thread()
    assert stopped(agent, ASK, config).code == "outcome_unknown"
    assert len(destination.effects) == 1


def test_an_application_may_accept_that_something_is_passed_over(governed, destination, saver):
    agent = agents.agent([governed(behind="pass_over"), Forbid()], [call(to="a")], saver=saver)
    agent.invoke(ASK, thread(), durability="sync")
    assert len(destination.effects) == 1


def test_calls_that_are_not_governed_meet_what_stands_behind(governed, saver):
    agent = agents.agent([governed(unregistered="pass"), Forbid()], [call("look", at="a")], saver=saver)
    (message,) = tool_messages(agent.invoke(ASK, thread(), durability="sync"))
    assert message.content == "Not allowed."


# --- A person is asked about the message ---


@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_person_rejects_is_not_done_and_what_he_edits_is_done_as_edited(governed, destination, saver, is_first):
    order = [governed(), asking()] if is_first else [asking(), governed()]
    calls = [call(call_id=f"c{n}", to=to) for n, to in enumerate("abc", start=1)]
    agent, config = agents.agent(order, calls, saver=saver), thread()
    agent.invoke(ASK, config, durability="sync")
    assert destination.effects == []
    decisions = [
        {"type": "reject", "message": "Not this one."},
        {"type": "edit", "edited_action": {"name": "send", "args": {"to": "instead"}}},
        {"type": "approve"},
    ]

    values = agent.invoke(Command(resume={"decisions": decisions}), config, durability="sync")

    answers = {message.tool_call_id: message.content for message in tool_messages(values)}
    assert "Not this one." in answers["c1"]
    assert answers["c2"].endswith('{"sent": 1}')
    assert answers["c3"] == '{"sent": 2}'
    assert destination.arguments == [{"to": "instead"}, {"to": "c"}]


def test_an_edited_call_in_doubt_is_the_same_call_when_its_thread_is_resumed(governed, destination, saver, hall):
    destination.raises = [TimeoutError()]
    agent, config = agents.agent([governed(), asking()], [call(to="a")], saver=saver), thread()
    agent.invoke(ASK, config, durability="sync")
    edit = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "instead"}}}
    doubt = stopped(agent, Command(resume={"decisions": [edit]}), config)

    again = stopped(agent, None, config)

    assert (again.code, again.workflow_id) == ("needs_confirmation", doubt.workflow_id)
    assert hall.work(again)["definitions"][0]["arguments"] == {"to": "instead"}
    assert len(destination.effects) == 1


# --- A person is asked about each call ---


def test_a_call_that_a_person_approves_before_it_is_governed_runs_once(governed, destination, saver):
    agent, config = agents.agent([asking(**PER_CALL), governed()], [call(to="a")], saver=saver), thread()
    agent.invoke(ASK, config, durability="sync")
    assert destination.effects == []
    interrupts = list(itertools.chain.from_iterable(task.interrupts for task in agent.get_state(config).tasks))
    approval = {"type": "approve"} if PER_CALL else {"decisions": [{"type": "approve"}]}

    agent.invoke(Command(resume={interrupts[0].id: approval}), config, durability="sync")

    assert destination.arguments == [{"to": "a"}]
