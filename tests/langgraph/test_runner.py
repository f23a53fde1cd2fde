"""What is decided about the calls of a message, and what the model is told of what they came to."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from continuity.client import OutcomeNotRecorded, RecoveryBlocked
from continuity.errors import ConflictError, NotReachedError, TransportError, UnauthenticatedError
from continuity.integrations import AsyncGovernedToolRunner, GovernedToolRunner, RegisteredTool
from continuity.integrations.calls import Refusal, check_calls
from continuity.integrations.checks import (
    Saver,
    Step,
    answered_calls,
    assistant_message,
    check_config,
    check_message,
    check_sqlite,
    check_stored,
    saver_kind,
    step_of,
)
from continuity.stops import NEXT_STEPS
from tests.langgraph.hall import call

URL = "http://127.0.0.1:8768"
PAGE = f"{URL}/resume-work/wf_1"


def execute(*_):
    raise AssertionError("No callback runs without a grant.")


class Client:
    """Answers each run with the next of its answers; raises it if it is an error."""

    url = URL

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def run_new_operation(self, workflow_key, operation, tools):
        self.asked.append((workflow_key, operation, tools))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class AsyncClient(Client):
    async def run_new_operation(self, *given):
        return super().run_new_operation(*given)


TOOLS = [RegisteredTool("send", execute, destination="mail"), RegisteredTool("old", execute, retired=True)]
FROM = {"thread_id": "t", "message_id": "m"}


@pytest.fixture(params=["in order", "awaited"])
def run(request):
    """Runs calls with a client that gives these answers, with each kind of runner."""

    def in_order(calls, *answers, **options):
        client = Client(*answers)
        runner = GovernedToolRunner(client, TOOLS, namespace="n", enabled=True)
        return runner.run_calls(calls, **{**FROM, **options}), client

    def awaited(calls, *answers, **options):
        client = AsyncClient(*answers)
        runner = AsyncGovernedToolRunner(client, TOOLS, namespace="n", enabled=True)
        return asyncio.run(runner.run_calls(calls, **{**FROM, **options})), client

    return in_order if request.param == "in order" else awaited


def blocked(code, because=""):
    return RecoveryBlocked(code, "wf_1", page=PAGE, because=because)


# --- Runs ---


def test_a_result_is_told_as_it_is_if_it_is_text_and_as_json_if_not(run):
    calls = [call(call_id=f"c{n}") for n in range(4)]
    results, client = run(calls, "ä text", {"a": ["é", 1]}, None, 3)
    assert [result.content for result in results] == ["ä text", '{"a": ["é", 1]}', "null", "3"]
    assert not any(result.is_error for result in results)
    assert [result.workflow_key for result in results] == [key for key, _, _ in client.asked]


def test_what_is_asked_is_the_whole_definition_with_the_tool_bound_to_its_destination(run):
    _, client = run([call(to="a")], "done")
    [(_, operation, tools)] = client.asked
    assert (operation["name"], operation["tool"], operation["arguments"]) == ("send", "send@mail", {"to": "a"})
    assert list(tools) == ["send@mail"]
    assert tools["send@mail"].execute is execute


@pytest.mark.parametrize("error", [
    blocked("outcome_unknown"), blocked("needs_confirmation"), blocked("abandoned"), blocked("not_dispatched"),
    blocked("attempt_in_progress"), NotReachedError("x"), TransportError("x"), UnauthenticatedError("x"),
    OutcomeNotRecorded({}, workflow_id="wf_1", attempt_id="a", page=PAGE), KeyboardInterrupt(),
])  # fmt: skip
def test_whatever_is_no_certain_refusal_is_raised_and_later_calls_are_not_begun(run, error):
    answers = ["done", error, "never asked for"]
    with pytest.raises(type(error)) as caught:
        run([call(), call(call_id="c2"), call(call_id="c3")], *answers)
    assert caught.value is error


def test_a_certain_refusal_is_an_error_that_the_model_sees_and_the_next_call_runs(run):
    results, client = run([call(), call(call_id="c2")], blocked("refused_by_destination", "Over the quota."), "done")
    assert [(result.is_error, result.content) for result in results] == [
        (True, "The destination refused, and nothing was done. Over the quota."),
        (False, "done"),
    ]
    assert len(client.asked) == 2


def test_a_call_that_was_recorded_otherwise_says_where_people_see_what_was(run):
    with pytest.raises(RecoveryBlocked) as caught:
        run([call()], ConflictError("The key has another definition.", code="definition_conflict"))
    assert (caught.value.code, caught.value.workflow_id) == ("call_changed", "")
    assert caught.value.page.startswith(f"{URL}/resume-work?q=call-")


@pytest.mark.parametrize("code", [
    "workflow_deleted", "coordinator_open_limit", "coordinator_history_limit", "clock_moved_backwards",
    "capture_not_full",
])  # fmt: skip
def test_a_refusal_of_the_server_keeps_its_code(run, code):
    with pytest.raises(RecoveryBlocked) as caught:
        run([call()], ConflictError("No.", code=code))
    assert (caught.value.code, caught.value.because) == (code, "No.")
    assert "Nothing was begun." in caught.value.next_step


def test_a_retired_tool_executes_nothing_gives_back_what_is_saved_and_can_be_asked(run):
    results, client = run([call("old")], {"a": 1})
    assert results[0].content == '{"a": 1}'
    [(_, _, tools)] = client.asked
    assert tools["old"].execute is not execute
    with pytest.raises(RecoveryBlocked) as caught:
        run([call("old")], blocked("not_dispatched", "The tool is retired."))
    assert (caught.value.code, caught.value.workflow_id, caught.value.page) == ("tool_retired", "wf_1", PAGE)


@pytest.mark.parametrize(
    "arguments",
    [None, "text", [1], {"n": float("nan")}, {"n": 2**53}, {"text": "\ud800"}, {"x": "y" * 300_000}],
)
def test_arguments_that_cannot_be_recorded_are_told_to_the_model_and_nothing_is_asked(run, arguments):
    results, client = run([{**call(), "args": arguments}, call(call_id="c2")], "done")
    assert [result.is_error for result in results] == [True, False]
    assert len(client.asked) == 1


def test_nothing_runs_unless_the_application_says_so():
    for enabled in ({}, {"enabled": False}, {"enabled": 1}, {"enabled": "yes"}):
        runner = GovernedToolRunner(Client(), TOOLS, namespace="n", **enabled)
        with pytest.raises(RecoveryBlocked) as caught:
            runner.run_calls([call()], **FROM)
        assert caught.value.code == "integration_not_enabled"


@pytest.mark.parametrize(
    ("given", "code"), [({"thread_id": ""}, "thread_missing"), ({"message_id": ""}, "message_without_id")]
)
def test_without_an_identity_nothing_runs(run, given, code):
    with pytest.raises(RecoveryBlocked) as caught:
        run([call()], **given)
    assert caught.value.code == code


@pytest.mark.parametrize("namespace", ["", "n" * 257])
def test_a_namespace_has_a_length(namespace):
    with pytest.raises(ValueError, match="namespace"):
        GovernedToolRunner(Client(), TOOLS, namespace=namespace, enabled=True)


def test_each_refusal_has_its_own_words_on_what_is_safe_next():
    general = RecoveryBlocked("no_such_code", "", page=PAGE).next_step
    codes = {*CONFIG_CODES, *CALL_CODES, "call_changed", "tool_retired", "earlier_call_unresolved", "runner_mismatch"}
    assert all(NEXT_STEPS.get(code, general) != general for code in codes)


# --- Calls of one message ---

REGISTRY = {tool.name: tool for tool in TOOLS}
CALL_CODES = {"call_id_missing", "call_id_duplicate", "tool_not_registered", "too_many_calls"}


@pytest.mark.parametrize("may_pass", [True, False])
@pytest.mark.parametrize(
    ("calls", "code"),
    [
        ([], None),
        ([call()], None),
        ([call(), call("old", "c2")], None),
        ([call(call_id=f"c{n}") for n in range(32)], None),
        ([call(call_id=f"c{n}") for n in range(33)], "too_many_calls"),
        ([call(), call()], "call_id_duplicate"),
        ([call(call_id="")], "call_id_missing"),
        ([call(call_id=None)], "call_id_missing"),
        ([call(call_id=5)], "call_id_missing"),
        ([{"name": "send", "args": {}}], "call_id_missing"),
    ],
)
def test_a_message_is_run_whole_or_not_at_all(calls, code, may_pass):
    refusal = check_calls(calls, REGISTRY, may_pass=may_pass)
    assert (refusal and refusal.code) == code


def test_strangers_are_refused_unless_they_may_pass_and_count_for_no_limit():
    strangers = [call("other", f"s{n}") for n in range(40)]
    assert check_calls(strangers, REGISTRY).code == "tool_not_registered"
    assert check_calls([call(), *strangers], REGISTRY, may_pass=True) is None
    assert check_calls([{**call(), "name": None}], REGISTRY).code == "tool_not_registered"


# --- Configuration ---

CONFIG_CODES = {
    "checkpointer_missing", "checkpointer_unsupported", "checkpointer_in_memory", "checkpointer_not_durable",
    "durability_not_sync", "thread_missing", "continuity_namespace_malformed", "step_not_stored",
    "message_not_assistant", "message_without_id", "message_not_stored", "integration_not_enabled",
    "version_not_tested",
}  # fmt: skip


def saver_named(name):
    module, _, qualname = name.rpartition(".")
    return type(qualname, (), {"__module__": module, "__qualname__": qualname})()


SAVERS = {
    None: None,
    "other": saver_named("langgraph.checkpoint.memory.InMemorySaver"),
    **{kind: saver_named(kind.value) for kind in Saver},
}
DURABILITIES = [None, "sync", "async", "exit", "SYNC", True]


def test_of_every_saver_durability_and_kind_of_node_only_those_that_keep_are_admitted():
    for (kind, saver), durability, is_async in itertools.product(SAVERS.items(), DURABILITIES, [True, False]):
        configurable = {"__pregel_checkpointer": saver}
        if durability is not None:
            configurable["__pregel_durability"] = durability
        refusal = check_config(configurable, is_async=is_async)
        if kind is None:
            expected = "checkpointer_missing"
        elif kind == "other" or kind.is_async is not is_async:
            expected = "checkpointer_unsupported"
        else:
            expected = None if durability == "sync" else "durability_not_sync"
        assert (refusal and refusal.code) == expected


def test_savers_are_known_by_their_very_class():
    class Sub(type(SAVERS[Saver.SQLITE])):
        """May keep less."""

    assert saver_kind(SAVERS[Saver.POSTGRES]) is Saver.POSTGRES
    assert saver_kind(Sub()) is None
    assert saver_kind(None) is None


@pytest.mark.parametrize(
    ("path", "synchronous", "code"),
    [
        ("/a.db", 2, None), ("/a.db", 3, None), ("/a.db", 1, "checkpointer_not_durable"),
        ("/a.db", 0, "checkpointer_not_durable"), ("", 2, "checkpointer_in_memory"), ("", 0, "checkpointer_in_memory"),
    ],
)  # fmt: skip
def test_a_database_keeps_what_is_in_a_file_and_waited_for(path, synchronous, code):
    refusal = check_sqlite(path, synchronous)
    assert (refusal and refusal.code) == code


HERE = {"thread_id": "t", "checkpoint_ns": "tools:1", "checkpoint_map": {"": "cp"}}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, Step("t", "", "cp", "")),
        ({"thread_id": 7}, Step("7", "", "cp", "")),
        ({"continuity_namespace": "n"}, Step("t", "", "cp", "n")),
        ({"checkpoint_ns": "sub:2|tools:1", "checkpoint_map": {"": "cp", "sub:2": "in"}}, Step("t", "sub:2", "in", "")),
        ({"thread_id": None}, "thread_missing"),
        ({"thread_id": ""}, "thread_missing"),
        ({"thread_id": True}, "thread_missing"),
        ({"continuity_namespace": None}, "continuity_namespace_malformed"),
        ({"checkpoint_ns": None}, "step_not_stored"),
        ({"checkpoint_ns": "sub:2|tools:1"}, "step_not_stored"),
        ({"checkpoint_map": None}, "step_not_stored"),
        ({"checkpoint_map": {}}, "step_not_stored"),
        ({"checkpoint_map": {"": None}}, "step_not_stored"),
    ],
)
def test_the_step_is_the_one_that_the_nodes_own_graph_began_from(change, found):
    step = step_of({**HERE, **change})
    assert (step.code if isinstance(step, Refusal) else step) == found


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (AIMessage("", id="m"), None),
        (AIMessage("", id=None), "message_without_id"),
        (AIMessage("", id=""), "message_without_id"),
        (HumanMessage("", id="m"), "message_not_assistant"),
        (ToolMessage("", tool_call_id="c", id="m"), "message_not_assistant"),
        (None, "message_not_assistant"),
        ({"type": "ai", "id": "m"}, "message_not_assistant"),
    ],
)
def test_only_an_assistant_message_with_an_id_is_run(message, code):
    refusal = check_message(message)
    assert (refusal and refusal.code) == code


ASKED = AIMessage("", id="m", tool_calls=[call(to="a")])


def stored(*messages, key="messages", writes=()):
    return SimpleNamespace(checkpoint={"channel_values": {key: list(messages)}}, pending_writes=writes)


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        (stored(HumanMessage("x", id="h"), ASKED), None),
        (stored(ASKED, AIMessage("later", id="n")), None),
        (None, "step_not_stored"),
        (stored(), "message_not_stored"),
        (stored(ASKED, key="other"), "message_not_stored"),
        (stored(AIMessage("", id="n", tool_calls=[call(to="a")])), "message_not_stored"),
        (stored(AIMessage("", id="m", tool_calls=[call(to="b")])), "call_changed"),
        (stored(AIMessage("", id="m", tool_calls=[call(call_id="c2", to="a")])), "call_changed"),
        (stored(AIMessage("", id="m")), "call_changed"),
    ],
)
def test_a_message_is_stored_when_the_step_holds_it_with_the_same_calls(kept, code):
    refusal = check_stored(ASKED, kept, messages_key="messages")
    assert (refusal and refusal.code) == code


def test_the_message_of_a_step_is_its_last_assistant_message_with_an_id():
    assert assistant_message(stored(ASKED, HumanMessage("x")), messages_key="messages") is ASKED
    assert assistant_message(stored(ASKED, AIMessage("")), messages_key="messages") is ASKED
    assert assistant_message(stored(HumanMessage("x")), messages_key="messages") is None
    assert assistant_message(None, messages_key="messages") is None
    assert check_stored(None, stored(), messages_key="messages").code == "message_not_stored"


def test_calls_are_answered_by_tool_messages_among_the_writes_of_the_step():
    answer = ToolMessage("x", tool_call_id="c1")
    writes = [("task", "messages", [answer]), ("task2", "messages", ToolMessage("y", tool_call_id="c2")), ("t", "x", 5)]
    assert answered_calls(stored(writes=writes)) == {"c1", "c2"}
    assert answered_calls(stored(writes=None)) == set()
    assert answered_calls(None) == set()
