"""What is decided about the calls of a message, and what the model is told of what they came to."""

from __future__ import annotations

import asyncio

import pytest

from continuity.client import OutcomeNotRecorded, RecoveryBlocked, Refused
from continuity.errors import ConflictError, NotReachedError, TransportError, UnauthenticatedError
from continuity.integrations import AsyncGovernedToolRunner, GovernedToolRunner, RegisteredTool
from continuity.integrations.calls import check_calls
from tests.langgraph.hall import call

URL = "http://127.0.0.1:8768"
PAGE = f"{URL}/resume-work/wf_1"


def execute(*_):
    raise AssertionError("No callback runs without a grant.")


class Client:
    """Answers each run with the next of its answers; raises it if it is an error."""

    url = URL

    def __init__(self, *answers, known=None):
        self.answers = list(answers)
        self.known = known
        self.asked = []
        self.looked_for = []

    def run_new_operation(self, workflow_key, operation, tools):
        self.asked.append((workflow_key, operation, tools))
        return self.answer()

    def run_operation(self, workflow_id, name, tools):
        self.asked.append((workflow_id, name, tools))
        return self.answer()

    def find_workflow(self, workflow_key, operations):
        self.looked_for.append((workflow_key, operations))
        if isinstance(self.known, BaseException):
            raise self.known
        return self.known

    def answer(self):
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class AsyncClient(Client):
    async def run_new_operation(self, *given):
        return super().run_new_operation(*given)

    async def run_operation(self, *given):
        return super().run_operation(*given)

    async def find_workflow(self, *given):
        return super().find_workflow(*given)


NARROW = {"type": "object", "properties": {"to": {"maxLength": 3}, "in": {"$ref": "#"}}}
TOOLS = [
    RegisteredTool("send", execute, destination="mail"),
    RegisteredTool("old", execute, retired=True),
    RegisteredTool("narrow", execute, arguments=NARROW),
]
FROM = {"thread_id": "t", "message_id": "m"}


@pytest.fixture(params=["in order", "awaited"])
def run(request):
    """Runs calls with a client that gives these answers, with each kind of runner."""

    def in_order(calls, *answers, known=None, **options):
        client = Client(*answers, known=known)
        runner = GovernedToolRunner(client, TOOLS, namespace="n", enabled=True)
        return runner.run_calls(calls, **{**FROM, **options}), client

    def awaited(calls, *answers, known=None, **options):
        client = AsyncClient(*answers, known=known)
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
    conflict = ConflictError("The key has another definition.", code="definition_conflict", workflow_id="wf_1")
    with pytest.raises(RecoveryBlocked) as caught:
        run([call()], conflict)
    assert (caught.value.code, caught.value.workflow_id, caught.value.page) == ("call_changed", "wf_1", PAGE)


@pytest.mark.parametrize("code", [
    "workflow_deleted", "coordinator_open_limit", "coordinator_history_limit", "clock_moved_backwards",
    "capture_not_full",
])  # fmt: skip
def test_a_refusal_of_the_server_keeps_its_code(run, code):
    with pytest.raises(RecoveryBlocked) as caught:
        run([call()], ConflictError("No.", code=code))
    assert (caught.value.code, caught.value.because) == (code, "No.")
    assert (caught.value.workflow_id, caught.value.page) == ("", f"{URL}/resume-work")
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


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"in": value}
    return value


@pytest.mark.parametrize("levels", [100, 5_000])
def test_arguments_nested_without_end_are_told_to_the_model_before_any_schema_sees_them(run, levels):
    results, client = run([{**call("narrow"), "args": nested(levels)}])
    assert results[0].is_error
    assert client.asked == []


def test_arguments_that_do_not_fit_are_told_to_the_model_only_when_nothing_of_them_was_recorded(run):
    """The tool took more once: what was begun then may have happened."""
    results, client = run([call("narrow", to="everybody")])
    assert results[0].is_error
    assert [operation["arguments"] for _, (operation,) in client.looked_for] == [{"to": "everybody"}]
    assert client.asked == []

    doubt = blocked("needs_confirmation")
    with pytest.raises(RecoveryBlocked) as caught:
        run([call("narrow", to="everybody")], doubt, known={"workflow_id": "wf_1"})
    assert caught.value is doubt


def test_a_result_that_was_saved_when_a_tool_took_more_is_given_back_and_the_tool_executes_nothing(run):
    results, client = run([call("narrow", to="everybody")], "saved", known={"workflow_id": "wf_1"})
    assert (results[0].content, results[0].is_error) == ("saved", False)
    [(workflow_id, name, tools)] = client.asked
    assert (workflow_id, name) == ("wf_1", "narrow")
    with pytest.raises(Refused, match="does not take these arguments any more"):
        tools["narrow"].execute({}, "op", "ik", 1.0)


@pytest.mark.parametrize(
    "known",
    [{"workflow_id": "wf_1"}, ConflictError("Another definition.", code="definition_conflict", workflow_id="wf_1")],
)
def test_a_recorded_call_whose_arguments_became_unrecordable_is_a_changed_call(run, known):
    with pytest.raises(RecoveryBlocked) as caught:
        run([call(n=float("nan"))], known=known)
    assert (caught.value.code, caught.value.workflow_id, caught.value.page) == ("call_changed", "wf_1", PAGE)


def test_arguments_that_do_not_fit_are_not_told_to_the_model_while_nobody_knows_what_was_recorded(run):
    with pytest.raises(NotReachedError):
        run([call("narrow", to="everybody")], known=NotReachedError("x"))


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


# --- Calls of one message ---

REGISTRY = {tool.name: tool for tool in TOOLS}


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
    for name in (None, ["send"], {}, 5):
        assert check_calls([{**call(), "name": name}], REGISTRY).code == "tool_not_registered"
        assert check_calls([{**call(), "name": name}], REGISTRY, may_pass=True) is None


def test_the_name_of_an_unknown_tool_is_not_repeated_at_any_length():
    assert len(check_calls([call("x" * 10_000)], REGISTRY).because) < 200
