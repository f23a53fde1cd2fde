"""One run of one operation against a server that answers as a test says: what is called, what is reported.

Every test runs with the client that blocks, with the one for event loops, and with that and coroutine callbacks.
"""

from __future__ import annotations

import pickle
import threading

import pytest

from continuity import errors, limits
from continuity.client import (
    ContinuityClient,
    NotDispatched,
    OutcomeNotRecorded,
    RecoveryBlocked,
    Refused,
    Tool,
    langgraph_node,
)
from tests.sdk import scripts
from tests.sdk.scripts import (
    ABSENT,
    LEASE_TOKEN,
    OPERATION,
    SUCCESS,
    TOKEN,
    WORKFLOW,
    accepted,
    blocked,
    completed,
    granted,
    late,
    lost,
    refused,
    world,
)
from tests.sdk.waiting import CLIENTS


@pytest.fixture(autouse=True, params=CLIENTS, ids=lambda kind: kind.__name__)
def kind(request, monkeypatch):
    monkeypatch.setattr(scripts, "make_client", request.param)
    return request.param


class Upload:
    """A destination that counts what is asked of it."""

    def __init__(self, execute=SUCCESS, query=ABSENT):
        self.executes, self.queries = [], []
        self.answers = {"execute": execute, "query": query}

    def _call(self, name, calls, arguments):
        calls.append(arguments)
        answer = self.answers[name]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def tools(self):
        return {
            "upload": Tool(
                execute=lambda *arguments: self._call("execute", self.executes, arguments),
                query=lambda *arguments: self._call("query", self.queries, arguments),
            )
        }


def run(client, tool):
    return client.run_operation(WORKFLOW, "upload", tool.tools())


def stops(client, tool):
    with pytest.raises(RecoveryBlocked) as caught:
        run(client, tool)
    return caught.value


# --- What begin says is what happens ---


def test_a_granted_execute_is_called_once_and_its_result_returned_after_the_server_took_it():
    tool = Upload()

    with world(begin=[granted()], outcome=[accepted()]) as there:
        assert run(there.client, tool) == {"url": "there"}

        (outcome,) = there.calls("outcome")
        (begin,) = there.calls("begin")
    assert tool.executes == [({"a": [1, "two"]}, OPERATION, "ik_1", 30)]
    assert tool.queries == []
    assert begin.path == f"/v1/continuity/{WORKFLOW}/begin"
    assert set(begin.body) == {"name", "run_id", "attempt_id"}
    assert outcome.body == {
        "name": "upload", "run_id": begin.body["run_id"], "attempt_id": begin.body["attempt_id"],
        "lease_token": LEASE_TOKEN, "receipt": SUCCESS,
    }  # fmt: skip


def test_a_completed_operation_returns_its_saved_result_and_calls_nothing():
    tool = Upload()

    with world(begin=[completed()]) as there:
        assert run(there.client, tool) == {"url": "there"}

        assert there.calls("outcome") == []
    assert tool.executes == tool.queries == []


def test_a_saved_result_may_be_null():
    with world(begin=[completed({**SUCCESS, "result": None})]) as there:
        assert run(there.client, Upload()) is None


def test_a_granted_query_never_executes():
    tool = Upload(query=SUCCESS)

    with world(begin=[granted("query")], outcome=[accepted()]) as there:
        assert run(there.client, tool) == {"url": "there"}

    assert tool.executes == []
    assert len(tool.queries) == 1


BLOCKED = [
    "workflow_disabled_or_capture_unavailable", "abandoned", "refused_by_destination", "earlier_work_unfinished",
    "attempt_already_issued", "attempt_in_progress", "attempt_limit_reached", "workflow_revision_limit_reached",
    "late_receipt_needs_decision", "restored_needs_decision", "idempotency_window_expired", "needs_confirmation",
    "a_reason_of_a_later_version",
]  # fmt: skip


@pytest.mark.parametrize("reason", BLOCKED)
def test_a_blocked_operation_calls_nothing_and_says_why_and_where(reason):
    tool = Upload()

    with world(begin=[blocked(reason)]) as there:
        stop = stops(there.client, tool)

        assert stop.page == f"{there.server.url}/resume-work/{WORKFLOW}"
        assert len(there.calls("begin")) == 1
    assert (stop.code, stop.workflow_id) == (reason, WORKFLOW)
    assert stop.next_step
    assert stop.next_step in str(stop)
    assert tool.executes == tool.queries == []


def test_a_live_lease_says_until_when_and_how_long_to_wait_at_most():
    with world(begin=[blocked("attempt_in_progress", lease_until=2_000_000_000.5)]) as there:
        stop = stops(there.client, Upload())

    assert stop.lease_until == 2_000_000_000.5
    assert 0 <= stop.retry_after_s <= limits.LEASE_S


@pytest.mark.parametrize("reply", [{"action": "blocked"}, {"action": "blocked", "reason": 5}, {"action": "completed"}])
def test_a_stop_without_a_reason_and_a_completion_without_a_receipt_are_outside_the_contract(reply):
    with world(begin=[lambda handler, _seen: handler.reply(reply)]) as there, pytest.raises(errors.TransportError):
        run(there.client, Upload())


def test_a_stop_survives_pickling():
    stop = RecoveryBlocked("abandoned", WORKFLOW, page="http://x", lease_until=1.5, retry_after_s=2.5)

    copy = pickle.loads(pickle.dumps(stop))

    assert vars(copy) == vars(stop)


def test_a_refused_begin_raises_what_the_server_names():
    tool = Upload()

    with world(begin=[refused(409, "clock_moved_backwards")]) as there:
        with pytest.raises(errors.ConflictError) as caught:
            run(there.client, tool)

        assert len(there.calls("begin")) == 1
    assert caught.value.code == "clock_moved_backwards"
    assert tool.executes == []


@pytest.mark.parametrize(
    "failure", [lost, refused(503, "storage_unavailable"), refused(429, "throttled"), refused(423, "vault_locked")]
)
def test_begin_is_never_sent_again(failure):
    tool = Upload()

    with world(begin=[failure, granted()], outcome=[accepted()]) as there:
        with pytest.raises(errors.ContinuityError):
            run(there.client, tool)

        assert len(there.calls("begin")) == 1
    assert tool.executes == tool.queries == []


def test_every_run_asks_with_new_ids_and_a_given_run_id_is_kept():
    with world(begin=[completed()]) as there:
        for _ in range(3):
            run(there.client, Upload())
        there.client.run_operation(WORKFLOW, "upload", Upload().tools(), run_id="mine")

        begins = [seen.body for seen in there.calls("begin")]
    assert len({body["attempt_id"] for body in begins}) == 4
    assert len({body["run_id"] for body in begins}) == 4
    assert begins[-1]["run_id"] == "mine"


@pytest.mark.parametrize(
    "over",
    [
        {"attempt_id": "at_of_another"}, {"run_id": "run_of_another"}, {"operation_id": None}, {"tool": None},
        {"lease_token": None}, {"lease_token": 5}, {"arguments": None}, {"arguments": []}, {"timeout_seconds": None},
        {"timeout_seconds": 0}, {"timeout_seconds": -1}, {"timeout_seconds": 90.5}, {"timeout_seconds": "30"},
        {"timeout_seconds": True}, {"action": "dispatch"}, {"action": None}, {"action": []},
    ],
)  # fmt: skip
def test_a_grant_that_is_not_for_this_begin_calls_nothing(over):
    tool = Upload()

    with world(begin=[granted(**over)]) as there, pytest.raises(errors.TransportError):
        run(there.client, tool)

    assert tool.executes == tool.queries == []


def test_a_client_that_sends_no_key_hands_out_an_empty_one():
    tool = Upload()

    with world(begin=[granted(idempotency_key=None)], outcome=[accepted()]) as there:
        run(there.client, tool)

    assert tool.executes[0][2] == ""


@pytest.mark.parametrize("workflow_id", ["", "a/b", "../x", "wf 1", "wf?x", "wf%2f", None, 3, "x" * 129, "wf_\n"])
def test_an_id_that_is_none_is_refused_unsent(workflow_id):
    with world(begin=[completed()]) as there:
        with pytest.raises(errors.MalformedError):
            there.client.run_operation(workflow_id, "upload", {})

        assert there.server.seen == []


# --- The thirty seconds ---


@pytest.mark.parametrize(
    ("waited_s", "is_executed"), [(0, True), (29.999, True), (30, False), (31, False), (3_600, False), (-0.001, False)]
)
def test_execute_is_called_only_while_its_grant_is_young(waited_s, is_executed):
    tool = Upload()
    now = [500.0]

    def slow(handler, seen):
        now[0] += waited_s
        granted()(handler, seen)

    with world(begin=[slow], outcome=[accepted("pending")], clock=lambda: now[0]) as there:
        if is_executed:
            run(there.client, tool)
        else:
            assert stops(there.client, tool).code == "not_dispatched"

        (receipt,) = there.receipts()
    assert len(tool.executes) == is_executed
    assert receipt["outcome"] == ("confirmed_succeeded" if is_executed else "not_dispatched")


def test_the_time_counts_from_before_begin_was_sent():
    readings = iter([100.0, 129.0, 129.0, 129.0])
    points = []

    def clock():
        points.append("clock")
        return next(readings)

    with world(begin=[granted()], outcome=[accepted()], clock=clock, trace=points.append) as there:
        run(there.client, Upload())

    assert points[:3] == ["begin.before_send", "clock", "begin.after_reply"]
    assert points.index("effect.before") < points.index("clock", 3)


def test_a_late_query_is_still_asked():
    tool = Upload(query=SUCCESS)
    now = [0.0]

    def slow(handler, seen):
        now[0] += 100
        granted("query")(handler, seen)

    with world(begin=[slow], outcome=[accepted()], clock=lambda: now[0]) as there:
        run(there.client, tool)

    assert len(tool.queries) == 1


# --- What a callback says ---


@pytest.mark.parametrize(
    ("said", "sent", "code", "because"),
    [
        (NotDispatched("No route."), {"outcome": "not_dispatched", "reason": "No route."}, "not_dispatched",
         "No route."),
        (Refused("Quota."), {"outcome": "confirmed_refused", "reason": "Quota."}, "refused_by_destination", "Quota."),
        (TimeoutError("secret"), {"outcome": "unknown", "detail": "The tool raised TimeoutError."}, "outcome_unknown",
         "The tool raised TimeoutError."),
        (ValueError("secret"), {"outcome": "unknown", "detail": "The tool raised ValueError."}, "outcome_unknown",
         "The tool raised ValueError."),
        ({"outcome": "unknown"}, {"outcome": "unknown"}, "outcome_unknown", "does not know"),
        ({"outcome": "unknown", "why": "secret"}, {"outcome": "unknown"}, "outcome_unknown", "does not know"),
    ],
)  # fmt: skip
def test_what_execute_says_is_reported_and_stops_the_run(said, sent, code, because):
    tool = Upload(execute=said)
    status = {"not_dispatched": "pending", "refused_by_destination": "refused"}.get(code, "uncertain")

    with world(begin=[granted()], outcome=[accepted(status)]) as there:
        stop = stops(there.client, tool)

        (receipt,) = there.receipts()
        assert len(there.calls("begin")) == 1
    assert stop.code == code
    assert sent.items() <= receipt.items()
    assert because in stop.because
    assert stop.because in str(stop)
    assert "secret" not in str(stop) + str({**receipt, "why": ""})
    assert pickle.loads(pickle.dumps(stop)).because == stop.because
    assert stop.__cause__ is (said if isinstance(said, Exception) else None)


@pytest.mark.parametrize("said", [NotDispatched("No route."), Refused("Quota.")])
def test_an_attempt_that_did_nothing_does_not_speak_for_an_earlier_one_that_nobody_knows_about(said):
    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        stop = stops(there.client, Upload(execute=said))

    assert stop.code == "outcome_unknown"
    assert stop.because == said.message


def test_a_saved_refusal_says_what_the_destination_said():
    refusal = {"outcome": "confirmed_refused", "operation_id": OPERATION, "reason": "Quota."}
    with world(begin=[blocked("refused_by_destination", receipt=refusal)]) as there:
        stop = stops(there.client, Upload())

    assert (stop.code, stop.because) == ("refused_by_destination", "Quota.")


def test_not_dispatched_from_a_query_proves_nothing_and_says_why():
    for said in (NotDispatched("No route."), Refused("No access.")):
        with world(begin=[granted("query")], outcome=[accepted("uncertain")]) as there:
            stop = stops(there.client, Upload(query=said))

            (receipt,) = there.receipts()
        assert (stop.code, stop.because) == ("outcome_unknown", said.message)
        assert (receipt["outcome"], receipt["detail"]) == ("unknown", said.message)


DEEP = {"a": 1}
for _ in range(40):
    DEEP = {"a": DEEP}

WRONG = [
    None, "ok", 1, True, [], [SUCCESS], {}, {"outcome": "succeeded"}, {"outcome": None},
    {**SUCCESS, "operation_id": "op_other"}, {k: v for k, v in SUCCESS.items() if k != "operation_id"},
    {**SUCCESS, "effect_id": ""}, {**SUCCESS, "effect_id": 5}, {**SUCCESS, "effect_id": None},
    {k: v for k, v in SUCCESS.items() if k != "result"}, {**SUCCESS, "result": float("nan")},
    {**SUCCESS, "result": object()}, {**SUCCESS, "result": {1: 2}}, {**SUCCESS, "result": "x" * 70_000},
    {**SUCCESS, "result": "\ud800"}, {**SUCCESS, "result": "\x00"}, {**SUCCESS, "result": 2**60},
    {**SUCCESS, "result": DEEP}, {**SUCCESS, "result": [0] * 10_001}, {**SUCCESS, "result": {1, 2}},
    {"outcome": "absent", "operation_id": OPERATION},
    {"outcome": "confirmed_refused", "operation_id": OPERATION}, iter([SUCCESS]), SUCCESS.items(),
]  # fmt: skip


FAULTS = [
    ({"outcome": "succeeded"}, "outcome is none of"),
    ({**SUCCESS, "operation_id": "op_other"}, "operation_id"),
    ({**SUCCESS, "effect_id": ""}, "effect_id"),
    ({k: v for k, v in SUCCESS.items() if k != "result"}, "result"),
    ({"outcome": "confirmed_refused", "operation_id": OPERATION}, "reason"),
    ({"outcome": "absent", "operation_id": OPERATION}, "absent is not for execute"),
    (None, "nothing that can be kept"),
]


@pytest.mark.parametrize(("returned", "fault"), FAULTS, ids=range(len(FAULTS)))
def test_a_receipt_that_is_none_is_told_with_its_fault(returned, fault):
    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        stop = stops(there.client, Upload(execute=returned))

        assert stop.because == there.receipts()[0]["detail"]
    assert fault in str(stop)
    assert "op_other" not in str(stop)


@pytest.mark.parametrize("returned", WRONG, ids=range(len(WRONG)))
def test_what_is_no_receipt_becomes_unknown(returned):
    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        assert stops(there.client, Upload(execute=returned)).code == "outcome_unknown"

        (receipt,) = there.receipts()
    assert receipt["outcome"] == "unknown"
    assert receipt["operation_id"] == OPERATION


def test_what_is_no_receipt_is_kept_for_a_person_to_look_at():
    returned = {"outcome": "confirmed_succeeded", "operation_id": "op_other", "effect_id": "e", "result": 1}

    with world(begin=[granted()], outcome=[accepted("uncertain")]) as there:
        stops(there.client, Upload(execute=returned))

        assert there.receipts()[0]["returned"] == returned


def test_the_first_result_is_the_one_that_will_be_saved():
    receipt = {**SUCCESS, "result": {"pair": (1, 2.0), "n": 30.0}, "more": "kept"}

    with world(begin=[granted()], outcome=[accepted()]) as there:
        result = run(there.client, Upload(execute=receipt))

        (sent,) = there.receipts()
    assert result == sent["result"] == {"pair": [1, 2], "n": 30}
    assert isinstance(result["pair"], list)
    assert sent["more"] == "kept"


@pytest.mark.parametrize("mode", ["execute", "query"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_an_interrupt_is_reported_as_unknown_and_goes_on(mode, interrupt):
    tool = Upload(execute=interrupt, query=interrupt)

    with world(begin=[granted(mode)], outcome=[accepted("uncertain")]) as there:
        with pytest.raises(type(interrupt)) as caught:
            run(there.client, tool)

        (receipt,) = there.receipts()
    assert caught.value is interrupt
    assert receipt["outcome"] == "unknown"


def test_an_interrupt_goes_on_even_if_nobody_takes_its_receipt():
    with world(begin=[granted()], outcome=[refused(503, "storage_unavailable")]) as there:
        with pytest.raises(KeyboardInterrupt):
            run(there.client, Upload(execute=KeyboardInterrupt()))

        assert sum(there.sleeps) <= 5


def test_an_interrupt_before_the_callback_says_that_nothing_was_sent():
    tool = Upload()

    def trace(point):
        if point == "effect.before":
            raise KeyboardInterrupt

    with world(begin=[granted()], outcome=[accepted("pending")], trace=trace) as there:
        with pytest.raises(KeyboardInterrupt):
            run(there.client, tool)

        assert there.receipts()[0]["outcome"] == "not_dispatched"
    assert tool.executes == []


@pytest.mark.parametrize(("mode", "outcome"), [("execute", "not_dispatched"), ("query", "unknown")])
@pytest.mark.parametrize("tools", [{}, {"another": Tool(execute=lambda *_: SUCCESS)}])
def test_a_missing_tool_is_reported_and_named(mode, outcome, tools):
    with world(begin=[granted(mode)], outcome=[accepted("pending")]) as there:
        with pytest.raises(RecoveryBlocked) as caught:
            there.client.run_operation(WORKFLOW, "upload", tools)

        assert there.receipts()[0]["outcome"] == outcome
    assert caught.value.code == "tool_unavailable"
    for named in (mode, "'upload'", *map(repr, tools)):
        assert named in str(caught.value)


def test_a_tool_without_query_is_not_executed_instead():
    executes = []
    tools = {"upload": Tool(execute=lambda *a: executes.append(a))}

    with (
        world(begin=[granted("query")], outcome=[accepted("uncertain")]) as there,
        pytest.raises(RecoveryBlocked) as caught,
    ):
        there.client.run_operation(WORKFLOW, "upload", tools)

    assert caught.value.code == "tool_unavailable"
    assert executes == []


def test_a_lost_reply_to_begin_says_that_an_attempt_may_have_been_granted():
    with world(begin=[lost]) as there, pytest.raises(errors.TransportError, match="may have been granted") as caught:
        run(there.client, Upload())

    assert not isinstance(caught.value, errors.NotReachedError)
    assert there.server.url in str(caught.value)


def test_a_lost_reply_to_creation_with_begin_says_so_too():
    operation = {"name": "upload", "tool": "upload"}
    with (
        world(others=lost) as there,
        pytest.raises(errors.TransportError, match="may have been granted"),
    ):
        there.client.run_new_operation("k", operation, Upload().tools())


def test_a_server_that_is_not_there_has_granted_nothing():
    with (
        ContinuityClient("http://127.0.0.1:1", TOKEN) as client,
        pytest.raises(errors.NotReachedError, match="Nothing was sent") as caught,
    ):
        run(client, Upload())

    assert "granted" not in str(caught.value)


def test_a_coroutine_function_is_no_callback():
    async def upload(*_):
        return SUCCESS

    with pytest.raises(TypeError):
        Tool(execute=upload)
    with pytest.raises(TypeError):
        Tool(execute=lambda *_: SUCCESS, query=upload)


def test_a_tool_cannot_change_what_the_next_attempt_gets():
    def spoil(arguments, *_):
        arguments.clear()
        return SUCCESS

    with world(begin=[granted()], outcome=[accepted()]) as there:
        for _ in range(2):
            assert there.client.run_operation(WORKFLOW, "upload", {"upload": Tool(execute=spoil)}) == {"url": "there"}


# --- Delivering the receipt ---


@pytest.mark.parametrize(
    "failure",
    [
        lost, refused(423, "vault_locked"), refused(429, "throttled"), refused(503, "storage_unavailable"),
        refused(503, "vault_key_unavailable"), refused(500, "internal_error"),
        lambda handler, _seen: handler.reply_bytes(b"<html>", 502),
        lambda handler, _seen: handler.reply_bytes(b"{}", 302, {"Location": "/x"}),
    ],
)  # fmt: skip
def test_an_outcome_is_sent_again_with_the_same_body(failure):
    tool = Upload()

    with world(begin=[granted()], outcome=[failure, failure, accepted(replayed=True)]) as there:
        assert run(there.client, tool) == {"url": "there"}

        bodies = {seen.raw for seen in there.calls("outcome")}
        assert len(there.calls("outcome")) == 3
    assert len(bodies) == 1
    assert len(tool.executes) == 1


def test_waiting_grows_is_spread_and_has_a_cap():
    with world(begin=[granted()], outcome=[refused(503, "storage_unavailable", **{"Retry-After": "0"})]) as there:
        with pytest.raises(OutcomeNotRecorded):
            run(there.client, Upload())

        sleeps = there.sleeps
    assert all(0.125 <= wait <= 15 for wait in sleeps)
    assert sleeps[0] < 0.3
    assert max(sleeps) > 7
    assert len(set(sleeps)) == len(sleeps)
    assert 270 < sum(sleeps) <= 300


def test_retry_after_is_honoured():
    busy = refused(429, "throttled", **{"Retry-After": "40"})

    with world(begin=[granted()], outcome=[busy, busy, accepted()]) as there:
        run(there.client, Upload())

        assert there.sleeps == [40, 40]


def test_a_server_that_asks_for_more_patience_than_there_is_ends_it():
    with world(begin=[granted()], outcome=[refused(503, "storage_unavailable", **{"Retry-After": "3600"})]) as there:
        with pytest.raises(OutcomeNotRecorded):
            run(there.client, Upload())

        assert there.sleeps == []


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "malformed"), (401, "unauthenticated"), (403, "forbidden"), (404, "not_found"), (413, "too_large"),
     (409, "late_receipt_limit_reached"), (500, "vault_integrity_error")],
)  # fmt: skip
def test_any_other_refusal_is_final_and_leaves_the_receipt_in_hand(status, code):
    secret = {**SUCCESS, "result": "SENTINEL"}

    with world(begin=[granted()], outcome=[refused(status, code)]) as there:
        with pytest.raises(OutcomeNotRecorded) as caught:
            run(there.client, Upload(execute=secret))

        assert len(there.calls("outcome")) == 1
        attempt_id = there.calls("begin")[0].body["attempt_id"]
    error = caught.value
    assert error.receipt == secret
    assert error.attempt_id == attempt_id
    assert error.__cause__.code == code
    assert "SENTINEL" not in repr(error) + str(error)
    assert pickle.loads(pickle.dumps(error)).receipt == secret


def test_patience_ends_after_five_minutes_with_the_receipt_in_hand():
    with world(begin=[granted()], outcome=[lost]) as there:
        with pytest.raises(OutcomeNotRecorded) as caught:
            run(there.client, Upload())

        assert there.clock[0] <= 1_000 + 300
    assert caught.value.receipt == SUCCESS
    assert isinstance(caught.value.__cause__, errors.TransportError)


def test_outcome_by_hand_is_sent_again_as_long_as_one_says():
    values = {"run_id": "r", "attempt_id": "a", "lease_token": "t", "receipt": SUCCESS}

    with world(outcome=[lost, accepted()]) as there:
        assert there.client.outcome(WORKFLOW, "upload", **values)["accepted"] is True

    with world(outcome=[lost, accepted()]) as there, pytest.raises(errors.TransportError):
        there.client.outcome(WORKFLOW, "upload", resend_for_s=0, **values)


# --- Late, absent, and not spinning ---


def test_a_receipt_that_came_too_late_stops_without_a_result():
    with world(begin=[granted()], outcome=[late()]) as there:
        assert stops(there.client, Upload()).code == "stale_lease"


def test_a_receipt_that_came_too_late_for_a_completed_operation_gives_the_saved_result():
    saved = {**SUCCESS, "result": "of the other"}

    with world(begin=[granted(), completed(saved)], outcome=[late("completed")]) as there:
        assert run(there.client, Upload()) == "of the other"

        assert len(there.calls("begin")) == 2


def view_with(attempts, **definition):
    """A view whose last attempt is the one of the latest begin."""

    def view(requests):
        begins = [seen.body["attempt_id"] for seen in requests if seen.call == "begin"]
        named = [{"attempt_id": f"at_{n}", "run_id": "r", **attempt} for n, attempt in enumerate(attempts)]
        named[-1]["attempt_id"] = begins[-1]
        return {"operations": [{"name": "other"}, {"name": "upload", "attempts": named, **definition}]}

    return view


def absent_world(attempts, *, begin, outcome, **definition):
    return world(begin=begin, outcome=outcome, view=view_with(attempts, **definition))


EXECUTE = {"mode": "execute", "started": 1000.0}
QUERY = {"mode": "query", "started": 1200.0, "ended": 1200.5, "outcome": "absent"}


def test_absence_that_is_never_final_stops_after_one_query():
    tool = Upload()

    with absent_world([EXECUTE, QUERY], begin=[granted("query")], outcome=[accepted("uncertain")]) as there:
        stop = stops(there.client, tool)

        assert len(there.calls("begin")) == 1
    assert (stop.code, stop.retry_after_s) == ("effect_not_found", None)
    assert len(tool.queries) == 1


def test_absence_that_is_final_goes_on_to_the_execute_that_is_granted():
    tool = Upload()

    with absent_world(
        [EXECUTE, QUERY], absence_final_after_seconds=60,
        begin=[granted("query"), granted("execute")], outcome=[accepted("uncertain"), accepted()],
    ) as there:  # fmt: skip
        assert run(there.client, tool) == {"url": "there"}

        assert [receipt["outcome"] for receipt in there.receipts()] == ["absent", "confirmed_succeeded"]
        assert len({seen.body["run_id"] for seen in there.calls("begin")}) == 1
    assert len(tool.executes) == 1


@pytest.mark.parametrize(
    ("attempts", "final_after_s", "wait_s"),
    [
        # Never ended: its lease until 1120, then 100 s.
        ([EXECUTE, QUERY], 100, 20),
        # Renewed twice: its lease may have lasted until 1360.
        ([{**EXECUTE, "renewals": 2}, QUERY], 1, 161),
        # Ended unknown: timeout and 30 s.
        ([{**EXECUTE, "ended": 1001.0, "outcome": "unknown"}, QUERY], 141, 1),
        # The later of two counts; one that reached nothing does not.
        ([EXECUTE, {**EXECUTE, "started": 1150.0}, QUERY], 1, 71),
    ],
)
def test_absence_that_is_not_final_yet_says_when_to_ask_again(attempts, final_after_s, wait_s):
    with absent_world(
        attempts, absence_final_after_seconds=final_after_s, begin=[granted("query")], outcome=[accepted("uncertain")]
    ) as there:
        stop = stops(there.client, Upload())

        assert len(there.calls("begin")) == 1
    assert stop.code == "effect_not_found"
    assert stop.retry_after_s == pytest.approx(wait_s)


@pytest.mark.parametrize(
    "view",
    [
        None, {}, {"operations": []}, {"operations": [{"name": "upload"}]}, {"operations": [5]},
        {"operations": [{"name": "upload", "absence_final_after_seconds": 1, "attempts": [5]}]},
        {"operations": [{"name": "upload", "absence_final_after_seconds": "soon", "attempts": []}]},
    ],
)  # fmt: skip
def test_a_view_that_nobody_can_read_stops_as_safely(view):
    with world(
        begin=[granted("query")], outcome=[accepted("uncertain")], view=None if view is None else lambda _seen: view
    ) as there:
        stop = stops(there.client, Upload())

    assert (stop.code, stop.retry_after_s) == ("effect_not_found", None)


def test_times_that_are_none_stop_as_safely():
    with absent_world(
        [EXECUTE, {**QUERY, "started": None}], absence_final_after_seconds=1,
        begin=[granted("query")], outcome=[accepted("uncertain")],
    ) as there:  # fmt: skip
        assert stops(there.client, Upload()).retry_after_s is None


def test_an_attempt_that_reached_nothing_does_not_put_absence_off():
    attempts = [EXECUTE, {**EXECUTE, "started": 1190.0, "ended": 1191.0, "outcome": "not_dispatched"}, QUERY]

    with absent_world(
        attempts, absence_final_after_seconds=1, begin=[granted("query"), granted()],
        outcome=[accepted("uncertain"), accepted()],
    ) as there:  # fmt: skip
        assert run(there.client, Upload()) == {"url": "there"}


def test_a_server_that_only_ever_grants_queries_is_asked_three_times_at_most():
    tool = Upload()

    with absent_world(
        [EXECUTE, {**QUERY, "started": 9_999.0}], absence_final_after_seconds=1,
        begin=[granted("query")], outcome=[accepted("uncertain")],
    ) as there:  # fmt: skip
        assert stops(there.client, tool).code == "effect_not_found"

        assert len(there.calls("begin")) == 3
    assert tool.executes == []


# --- Points, coordinators, graphs ---


def test_a_run_passes_its_points_in_order():
    points = []

    with world(begin=[granted()], outcome=[lost, accepted()], trace=points.append) as there:
        run(there.client, Upload())

    assert points == [
        "begin.before_send", "begin.after_reply", "effect.before", "effect.after",
        "outcome.before_send", "outcome.before_send", "outcome.after_reply",
    ]  # fmt: skip


def creating(begin):
    def answer(handler, seen):
        if seen.path == "/v1/continuity":
            replies = []

            class Recorder:
                @staticmethod
                def reply(value):
                    replies.append(value)

            inner = type(seen)(**{**vars(seen), "body": seen.body.get("begin")})
            begin(Recorder, inner)
            handler.reply({"workflow_id": WORKFLOW, "enabled": True, "begin": replies[0]})

    return answer


def test_a_coordinator_creates_and_begins_in_one_request():
    tool = Upload()
    operation = {"name": "upload", "tool": "upload", "arguments": {"a": 1}}

    with world(outcome=[accepted()], others=creating(granted())) as there:
        assert there.client.run_new_operation("key-1", operation, tool.tools()) == {"url": "there"}

        create, outcome = there.server.seen
    assert create.body["operations"] == [operation]
    assert create.body["activate"] is True
    assert create.body["begin"]["attempt_id"] == outcome.body["attempt_id"]
    assert len(tool.executes) == 1


def test_a_coordinator_gets_the_saved_result_of_known_work():
    tool = Upload()

    with world(others=creating(completed())) as there:
        operation = {"name": "upload", "tool": "upload"}
        assert there.client.run_new_operation("key-1", operation, tool.tools()) == {"url": "there"}

    assert tool.executes == []


def test_a_creation_whose_reply_holds_no_begin_calls_nothing():
    tool = Upload()

    with (
        world(others=lambda handler, _seen: handler.reply({"workflow_id": WORKFLOW})) as there,
        pytest.raises(errors.TransportError),
    ):
        there.client.run_new_operation("key-1", {"name": "upload", "tool": "upload"}, tool.tools())

    assert tool.executes == []


def test_a_graph_node_returns_its_result_under_its_key_and_lets_stops_through():
    with world(begin=[completed(), blocked("needs_confirmation")]) as there:
        node = langgraph_node(there.client, WORKFLOW, "upload", Upload().tools(), result_key="document")

        assert node({"anything": 1}) == {"document": {"url": "there"}}
        with pytest.raises(RecoveryBlocked):
            node({})
    assert node.__name__ == "upload"


def test_one_client_serves_many_threads():
    results = []

    with world(begin=[granted()], outcome=[accepted()]) as there:

        def work():
            results.append(run(there.client, Upload()))

        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert results == [{"url": "there"}] * 10


def test_neither_client_nor_grant_shows_a_secret():
    client = ContinuityClient("https://host", TOKEN)

    assert TOKEN not in repr(client)
    assert TOKEN not in str(vars(client))


def test_every_path_of_the_contract_is_sent_as_it_is_written():
    with world(others=lambda handler, seen: handler.reply({"ok": True})) as there:
        client = there.client
        client.create_workflow("k", [{"name": "a", "tool": "t"}])
        client.create_workflow("k", [{"name": "a", "tool": "t"}], activate=True)
        client.get_workflow(WORKFLOW)
        client.list_workflows()
        client.list_workflows(limit=5, q="a b&c")
        client.configure(WORKFLOW, enabled=False)
        client.abandon(WORKFLOW, "a", reason="no")
        client.renew(WORKFLOW, "a", run_id="r", attempt_id="x", lease_token="t")

        sent = [(seen.method, seen.path, seen.body) for seen in there.server.seen]
    root = "/v1/continuity"
    assert sent == [
        ("POST", root, {"workflow_key": "k", "operations": [{"name": "a", "tool": "t"}]}),
        ("POST", root, {"workflow_key": "k", "operations": [{"name": "a", "tool": "t"}], "activate": True}),
        ("GET", f"{root}/{WORKFLOW}", None),
        ("GET", root, None),
        ("GET", f"{root}?limit=5&q=a+b%26c", None),
        ("POST", f"{root}/{WORKFLOW}/configure", {"enabled": False}),
        ("POST", f"{root}/{WORKFLOW}/abandon", {"name": "a", "reason": "no"}),
        ("POST", f"{root}/{WORKFLOW}/renew", {"name": "a", "run_id": "r", "attempt_id": "x", "lease_token": "t"}),
    ]


@pytest.mark.parametrize(("reason", "said"), [("net down", "net down. Nothing"), ("Net down!", "Net down! Nothing")])
def test_the_reason_of_a_tool_ends_before_what_is_next_begins(reason, said):
    stop = RecoveryBlocked("not_dispatched", "wf_1", page="http://there", because=reason)

    assert said in str(stop)
    assert stop.because == reason
