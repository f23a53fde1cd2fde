"""outcome and renew: every kind of attempt, receipt and neighbour, late evidence, and the life of a lease."""

import itertools
from dataclasses import replace

import pytest

from continuity.decisions.events import LateReceiptKept, OutcomeRecorded, evolve
from continuity.decisions.outcomes import Replayed, decide_outcome, decide_renewal, proves
from continuity.decisions.states import Mode, Outcome, Status
from continuity.errors import ConflictError
from tests.unit.cases import (
    LEASE,
    T0,
    S,
    make_attempt,
    make_ended,
    make_late,
    make_operation,
    make_report,
    make_vault,
    make_workflow,
    token_hash,
)

CONDITIONS = ["live", "expired", "superseded", "ended", "attested", "attested and superseded", "completed", "refused",
              "abandoned"]  # fmt: skip
AFTER = {
    (Outcome.SUCCEEDED, False): "completed", (Outcome.SUCCEEDED, True): "completed",
    (Outcome.UNKNOWN, False): "uncertain", (Outcome.UNKNOWN, True): "uncertain",
    (Outcome.ABSENT, False): "uncertain", (Outcome.ABSENT, True): "uncertain",
    (Outcome.REFUSED, False): "refused", (Outcome.REFUSED, True): "uncertain",
    (Outcome.NOT_DISPATCHED, False): "pending", (Outcome.NOT_DISPATCHED, True): "uncertain",
}  # fmt: skip
# An execute cannot end absent, a query neither refused nor undispatched (receipts.classify); and an
# operation that is being queried has an unresolved execute, always.
POSSIBLE = [
    (mode, outcome, has_others)
    for mode, outcome, has_others in itertools.product(Mode, Outcome, [False, True])
    if (mode is Mode.EXECUTE and outcome is not Outcome.ABSENT)
    or (mode is Mode.QUERY and has_others and outcome not in {Outcome.REFUSED, Outcome.NOT_DISPATCHED})
]


def reported_in(condition, mode, *, has_others):
    """An operation with attempt "a1" in `condition`, and the time of the report."""
    others = [make_ended("a0", started_us=T0 - 200 * S)] if has_others else []
    own = make_attempt("a1", mode=mode)
    now = T0 + (10 * S if condition == "live" else LEASE)
    if condition == "superseded":
        later = [make_attempt("a2", started_us=now, lease_until_us=now + LEASE)]
        return make_operation(Status.UNCERTAIN, [*others, own, *later]), now
    if condition == "ended":
        own = make_ended("a1", mode=mode, digest="another body")
        return make_operation(Status.UNCERTAIN, [*others, own]), now
    if condition.startswith("attested"):
        attempts = [replace(attempt, is_attested=True) for attempt in [*others, own]]
        if condition == "attested":
            return make_operation(Status.PENDING, attempts), now
        later = make_attempt("a2", started_us=now, lease_until_us=now + LEASE)
        return make_operation(Status.UNCERTAIN, [*attempts, later]), now
    status = Status(condition) if condition in {"completed", "refused", "abandoned"} else Status.UNCERTAIN
    return make_operation(status, [*others, own]), now


@pytest.mark.parametrize(
    ("mode", "outcome", "has_others", "condition"),
    [(*case, condition) for case in POSSIBLE for condition in CONDITIONS],
)
def test_a_receipt_does_what_the_design_says(mode, outcome, has_others, condition):
    operation, now = reported_in(condition, mode, has_others=has_others)
    head = make_workflow(operation)

    event = decide_outcome(operation, make_report(outcome=outcome), epoch=0, at_us=now)
    new_head, new = evolve(head, operation, event, seq=9)

    assert new.change_seq == new_head.standings[0].change_seq == 9
    assert new_head.clock_high_water_us == now
    assert new_head.standings[0].status is new.status
    if condition in {"live", "expired"}:
        assert isinstance(event, OutcomeRecorded)
        assert new_head.revision == head.revision + 1
        assert new.status == AFTER[outcome, has_others]
        ended = new.find("a1")
        assert (ended.ended_us, ended.outcome, ended.digest) == (now, outcome, "body")
        assert (ended.reply.accepted, ended.reply.status, ended.reply.reason) == (True, new.status, None)
        assert ended.reply.revision == new_head.revision
        assert new.late == ()
    else:
        assert isinstance(event, LateReceiptKept)
        assert (event.is_proved, event.is_extra) == (True, False)
        assert new_head.revision == head.revision
        assert (new.status, new.attempts) == (operation.status, operation.attempts)
        (late,) = new.late
        assert (late.reply.accepted, late.reply.reason) == (False, "stale_lease")
        assert (late.reply.status, late.reply.revision) == (operation.status, head.revision)
    assert (new.first_dispatch_us, new.late_decided, new.epoch) == (operation.first_dispatch_us, 0, 0)


@pytest.mark.parametrize(
    ("resolved", "expected"),
    [
        ({"outcome": Outcome.NOT_DISPATCHED}, Status.PENDING),
        ({"outcome": Outcome.REFUSED}, Status.PENDING),
        ({"outcome": Outcome.UNKNOWN}, Status.UNCERTAIN),
        ({"outcome": Outcome.UNKNOWN, "is_attested": True}, Status.PENDING),
        ({"outcome": Outcome.ABSENT, "mode": Mode.QUERY}, Status.PENDING),
        ({"outcome": None, "ended_us": None, "digest": None, "reply": None}, Status.UNCERTAIN),
        ({"outcome": None, "ended_us": None, "digest": None, "reply": None, "mode": Mode.QUERY}, Status.PENDING),
    ],
)
def test_only_an_unresolved_execute_keeps_an_undispatched_operation_uncertain(resolved, expected):
    other = replace(make_ended("a0", started_us=T0 - 500 * S, lease_until_us=T0 - 380 * S), **resolved)
    operation = make_operation(Status.UNCERTAIN, [other, make_attempt()])

    event = decide_outcome(operation, make_report(outcome=Outcome.NOT_DISPATCHED), epoch=0, at_us=T0 + S)

    assert evolve(make_workflow(operation), operation, event, seq=9)[1].status is expected


def test_the_ending_records_the_lease_as_it_was_renewed():
    attempt = make_attempt(renewals=3, lease_until_us=T0 + 400 * S)
    operation = make_operation(Status.UNCERTAIN, [attempt])

    event = decide_outcome(operation, make_report(), epoch=0, at_us=T0 + 300 * S)

    assert (event.renewals, event.lease_until_us) == (3, T0 + 400 * S)
    ended = evolve(make_workflow(operation), operation, event, seq=9)[1].attempts[0]
    assert (ended.renewals, ended.lease_until_us) == (3, T0 + 400 * S)


def settled():
    """An operation that a first receipt completed, and the receipt."""
    operation = make_operation(Status.UNCERTAIN, [make_attempt()])
    report = make_report()
    event = decide_outcome(operation, report, epoch=0, at_us=T0 + S)
    return evolve(make_workflow(operation), operation, event, seq=9)[1], report


def test_the_very_same_receipt_answers_as_the_first_time():
    operation, report = settled()

    again = decide_outcome(operation, report, epoch=0, at_us=T0 + 900 * S)

    assert again == Replayed(operation.attempts[0].reply)
    assert (again.reply.accepted, again.reply.status, again.reply.revision) == (True, Status.COMPLETED, 6)


@pytest.mark.parametrize("over", [{"lease_hash": "forged"}, {"run_id": "r2"}, {"attempt_id": "a9"}])
def test_the_same_body_without_its_proof_is_late_evidence(over):
    operation, report = settled()

    event = decide_outcome(operation, replace(report, **over), epoch=0, at_us=T0 + 2 * S)

    assert isinstance(event, LateReceiptKept)
    assert (event.is_proved, event.is_extra) == (False, True)


@pytest.mark.parametrize("over", [{"lease_hash": "forged"}, {"run_id": "r2"}, {"attempt_id": "a9"}])
def test_a_live_attempt_is_ended_only_by_its_own_token_run_and_attempt(over):
    operation = make_operation(Status.UNCERTAIN, [make_attempt()])

    event = decide_outcome(operation, make_report(**over), epoch=0, at_us=T0 + S)

    assert isinstance(event, LateReceiptKept)
    assert not event.is_proved
    assert evolve(make_workflow(operation), operation, event, seq=9)[1].status is Status.UNCERTAIN


@pytest.mark.parametrize(("named", "token"), [("a1", "a2"), ("a2", "a1")])
def test_the_token_of_another_attempt_proves_nothing(named, token):
    attempts = [make_ended("a1"), make_attempt("a2", started_us=T0 + 130 * S)]
    operation = make_operation(Status.UNCERTAIN, attempts)

    event = decide_outcome(operation, make_report(named, lease_hash=token_hash(token)), epoch=0, at_us=T0 + 140 * S)

    assert isinstance(event, LateReceiptKept)
    assert not event.is_proved


def test_a_late_receipt_repeated_answers_as_the_first_time_whatever_has_happened_since():
    operation = make_operation(Status.UNCERTAIN, [make_ended(digest="first"), make_attempt("a2")])
    report = make_report("a1", digest="second")
    kept = decide_outcome(operation, report, epoch=0, at_us=T0 + 300 * S)
    _, operation = evolve(make_workflow(operation), operation, kept, seq=9)
    operation = replace(operation, status=Status.COMPLETED)

    again = decide_outcome(operation, report, epoch=0, at_us=T0 + 900 * S)

    assert isinstance(again, Replayed)
    assert (again.reply.accepted, again.reply.status, again.reply.reason) == (False, Status.UNCERTAIN, "stale_lease")


def unproved(count):
    return tuple(
        make_late("nobody", is_proved=False, is_extra=True, digest=f"junk-{number}") for number in range(count)
    )


@pytest.mark.parametrize("kept", [0, 9])
def test_ten_receipts_without_proof_are_kept(kept):
    operation = make_operation(Status.UNCERTAIN, [make_attempt()], late=unproved(kept))

    event = decide_outcome(operation, make_report(lease_hash="forged"), epoch=0, at_us=T0 + S)

    assert (event.is_proved, event.is_extra) == (False, True)


def test_the_eleventh_receipt_without_proof_is_refused():
    operation = make_operation(Status.UNCERTAIN, [make_attempt()], late=unproved(10))

    with pytest.raises(ConflictError) as refusal:
        decide_outcome(operation, make_report(lease_hash="forged"), epoch=0, at_us=T0 + S)

    assert refusal.value.code == "late_receipt_limit_reached"


def test_at_the_limit_repeats_are_still_answered():
    operation = make_operation(Status.UNCERTAIN, [make_attempt()], late=unproved(10))
    report = make_report("nobody", lease_hash="forged", digest="junk-3")

    assert decide_outcome(operation, report, epoch=0, at_us=T0 + S) == Replayed(operation.late[3].reply)


def test_at_the_limit_the_current_attempt_can_still_end():
    operation = make_operation(Status.UNCERTAIN, [make_attempt()], late=unproved(10))

    assert isinstance(decide_outcome(operation, make_report(), epoch=0, at_us=T0 + S), OutcomeRecorded)


def test_the_first_late_body_that_its_token_proves_is_always_kept():
    operation = make_operation(Status.UNCERTAIN, [make_ended()], late=unproved(10))

    event = decide_outcome(operation, make_report(), epoch=0, at_us=T0 + S)

    assert (event.is_proved, event.is_extra) == (True, False)


def test_further_late_bodies_of_one_attempt_share_the_ten_places():
    operation = make_operation(Status.UNCERTAIN, [make_ended(), make_ended("a2")], late=(make_late(), *unproved(9)))

    event = decide_outcome(operation, make_report(digest="third"), epoch=0, at_us=T0 + S)
    assert (event.is_proved, event.is_extra) == (True, True)

    _, operation = evolve(make_workflow(operation), operation, event, seq=9)
    with pytest.raises(ConflictError):
        decide_outcome(operation, make_report(digest="fourth"), epoch=0, at_us=T0 + S)
    other = decide_outcome(operation, make_report("a2", digest="of another attempt"), epoch=0, at_us=T0 + S)
    assert (other.is_proved, other.is_extra) == (True, False)


def test_an_unproved_copy_does_not_take_the_place_of_the_proved_receipt():
    operation = make_operation(Status.UNCERTAIN, [make_ended(digest="first")])
    forged = decide_outcome(operation, make_report(lease_hash="forged"), epoch=0, at_us=T0 + S)
    _, operation = evolve(make_workflow(operation), operation, forged, seq=9)

    proved = decide_outcome(operation, make_report(), epoch=0, at_us=T0 + 2 * S)

    assert isinstance(proved, LateReceiptKept)
    assert (proved.is_proved, proved.is_extra) == (True, False)
    assert evolve(make_workflow(operation), operation, proved, seq=10)[1].has_undecided_success


@pytest.mark.parametrize(
    ("attempt", "run_id", "token", "expected"),
    [
        (make_attempt(), "r1", "hash-of-a1", True),
        (make_attempt(), "r1", "hash-of-a2", False),
        (make_attempt(), "r1", "", False),
        (make_attempt(), "r2", "hash-of-a1", False),
        (make_attempt(), "r1", "häsh", False),
        (None, "r1", "hash-of-a1", False),
    ],
)
def test_a_token_proves_its_own_attempt_and_run(attempt, run_id, token, expected):
    assert proves(attempt, run_id=run_id, lease_hash=token) is expected


def renew(operation, *, now, vault=None, workflow=None, **over):
    asked = {"attempt_id": "a1", "run_id": "r1", "lease_hash": token_hash("a1"), **over}
    workflow = make_workflow(operation) if workflow is None else workflow
    return decide_renewal(workflow, operation, vault or make_vault(), now_us=now, **asked)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("used", [0, 9])
def test_a_live_lease_is_renewed_for_another_two_minutes(used, mode):
    attempt = make_attempt(renewals=used, mode=mode)
    operation = make_operation(Status.UNCERTAIN, [make_ended("a0"), attempt])

    renewed = renew(operation, now=T0 + LEASE - 1)

    assert renewed == replace(attempt, renewals=used + 1, lease_until_us=T0 + 2 * LEASE - 1)


def refused_renewal(operation, **over):
    with pytest.raises(ConflictError) as refusal:
        renew(operation, **{"now": T0 + S, **over})
    return refusal.value.code


def test_an_eleventh_renewal_is_refused():
    assert refused_renewal(make_operation(Status.UNCERTAIN, [make_attempt(renewals=10)])) == "renewal_limit_reached"


@pytest.mark.parametrize("late_us", [0, 1, 10**9])
def test_a_lease_that_has_run_out_is_not_renewed_even_if_nobody_took_over(late_us):
    operation = make_operation(Status.UNCERTAIN, [make_attempt()])

    assert refused_renewal(operation, now=T0 + LEASE + late_us) == "lease_expired"


def test_a_pause_or_reduced_capture_stops_renewals():
    operation = make_operation(Status.UNCERTAIN, [make_attempt()])

    assert refused_renewal(operation, workflow=make_workflow(operation, is_enabled=False)) == "workflow_paused"
    assert refused_renewal(operation, vault=make_vault(is_capture_full=False)) == "workflow_paused"


@pytest.mark.parametrize("over", [{"lease_hash": "forged"}, {"run_id": "r2"}, {"attempt_id": "a9"}])
def test_a_renewal_needs_token_run_and_attempt(over):
    assert refused_renewal(make_operation(Status.UNCERTAIN, [make_attempt()]), **over) == "stale_lease"


@pytest.mark.parametrize("condition", CONDITIONS[2:])
def test_what_is_not_the_current_attempt_is_not_renewed(condition):
    operation, now = reported_in(condition, Mode.EXECUTE, has_others=False)

    assert refused_renewal(operation, now=now) == "stale_lease"


def test_a_receipt_of_before_a_restore_is_evidence_and_completes_nothing():
    operation = make_operation(Status.UNCERTAIN, [make_attempt()])

    event = decide_outcome(operation, make_report(), epoch=1, at_us=T0 + S)

    assert isinstance(event, LateReceiptKept)
    assert event.is_proved


def test_a_lease_of_before_a_restore_is_not_renewed():
    operation = make_operation(Status.UNCERTAIN, [make_attempt()])

    with pytest.raises(ConflictError) as caught:
        renew(operation, now=T0 + S, vault=make_vault(epoch=1))
    assert caught.value.code == "stale_lease"


def test_an_attempt_that_was_granted_after_a_person_had_decided_counts():
    operation = make_operation(Status.UNCERTAIN, [make_attempt()], epoch=1)

    assert isinstance(decide_outcome(operation, make_report(), epoch=1, at_us=T0 + S), OutcomeRecorded)
