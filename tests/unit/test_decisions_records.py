"""State and events written and read again, every field changed once; and `evolve`, which replays them."""

import json
from dataclasses import fields, replace
from enum import StrEnum

import pytest

from continuity.decisions.events import (
    EVENTS,
    AttemptGranted,
    EventKind,
    LateReceiptKept,
    OperationAbandoned,
    OutcomeConfirmed,
    OutcomeRecorded,
    WorkflowDeleting,
    WorkflowEnabled,
    WorkflowPaused,
    evolve,
)
from continuity.decisions.model import Reply, Standing
from continuity.decisions.records import (
    event_from_json,
    event_to_json,
    operation_from_json,
    operation_to_json,
    workflow_from_json,
    workflow_to_json,
)
from continuity.decisions.states import Mode, Outcome, Status, TransitionError
from tests.unit.cases import (
    BOTH,
    LEASE,
    T0,
    S,
    end,
    grant,
    make_attempt,
    make_ended,
    make_late,
    make_operation,
    make_workflow,
)


def other(value):
    """A value of the same type that differs; for what may be missing, a value."""
    if value is None:
        return 7
    if isinstance(value, StrEnum):
        return next(member for member in type(value) if member is not value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    assert isinstance(value, str)
    return value + "x"


def changed(value, **special):
    """Copies of a dataclass value, each with one field changed: every field once."""
    for field in fields(value):
        new = special[field.name] if field.name in special else other(getattr(value, field.name))
        yield field.name, replace(value, **{field.name: new})


def through_text(value):
    return json.loads(json.dumps(value))


def operation_again(operation):
    return operation_from_json(through_text(operation_to_json(operation)), ordinal=operation.ordinal)


def workflow_again(workflow):
    return workflow_from_json(through_text(workflow_to_json(workflow)), workflow_id=workflow.workflow_id)


FULL = make_operation(Status.UNCERTAIN, [make_ended(), make_attempt("a2")], late=(make_late(),), absence_us=7, **BOTH)


@pytest.mark.parametrize(
    ("name", "operation"),
    list(changed(FULL, attempts=FULL.attempts[:1], late=(), absence_us=None, first_dispatch_us=None)),
)
def test_an_operation_keeps_every_field(name, operation):
    assert operation_again(operation) == operation
    if name != "ordinal":
        # The ordinal is the place of the record, not a part of it.
        assert operation_to_json(operation) != operation_to_json(FULL)


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        *changed(make_attempt(), outcome=Outcome.ABSENT, digest="d", reply=Reply(True, Status.PENDING, 3)),
        *changed(make_ended(), reply=None),
    ],
)
def test_an_attempt_keeps_every_field(name, attempt):
    operation = replace(FULL, attempts=(attempt,))

    assert operation_again(operation) == operation


@pytest.mark.parametrize(("name", "late"), list(changed(make_late(), reply=Reply(True, Status.PENDING, 3))))
def test_a_late_receipt_keeps_every_field(name, late):
    assert operation_again(replace(FULL, late=(late,))) == replace(FULL, late=(late,))


@pytest.mark.parametrize(("name", "reply"), list(changed(Reply(True, Status.PENDING, 3), reason="stale_lease")))
def test_a_reply_keeps_every_field(name, reply):
    operation = replace(FULL, attempts=(make_ended(reply=reply),), late=(make_late(reply=reply),))

    assert operation_again(operation) == operation


HEAD = make_workflow(standings=(Standing(Status.COMPLETED, 3, 0), Standing(Status.PENDING, 1, 2)))


@pytest.mark.parametrize(("name", "workflow"), list(changed(HEAD, standings=HEAD.standings[:1])))
def test_a_workflow_keeps_every_field(name, workflow):
    assert workflow_again(workflow) == workflow
    if name != "workflow_id":
        assert workflow_to_json(workflow) != workflow_to_json(HEAD)


@pytest.mark.parametrize(("name", "standing"), list(changed(Standing(Status.COMPLETED, 3, 0))))
def test_a_standing_keeps_every_field(name, standing):
    workflow = replace(HEAD, standings=(standing, standing))

    assert workflow_again(workflow) == workflow


SAMPLES = [
    WorkflowEnabled(T0, "user:1"),
    WorkflowPaused(T0, "user:1"),
    WorkflowDeleting(T0, "user:1"),
    AttemptGranted(T0, "cred:1", 0, "a1", "r1", Mode.QUERY, "hash"),
    OutcomeRecorded(T0, "cred:1", 0, "a1", Outcome.ABSENT, "body", 3, T0 + LEASE),
    LateReceiptKept(T0, "cred:1", 0, "a1", "r1", Outcome.UNKNOWN, "body", is_proved=True, is_extra=False),
    OperationAbandoned(T0, "user:1", 0, "because"),
    OutcomeConfirmed(T0, "user:1", 0, happened=True, reason="seen", epoch=2, digest=None),
]


@pytest.mark.parametrize(
    "event", [variant for sample in SAMPLES for _, variant in changed(sample)], ids=lambda event: event.kind.value
)
def test_an_event_keeps_every_field(event):
    assert event_from_json(through_text(event_to_json(event))) == event


def test_every_kind_of_event_can_be_written():
    assert {type(sample) for sample in SAMPLES} == set(EVENTS.values())
    assert set(EVENTS) == set(EventKind) - {EventKind.CREATED}


def test_a_renewal_does_not_change_the_length_of_a_record():
    lengths = {
        len(
            json.dumps(
                operation_to_json(make_operation(attempts=[make_attempt(renewals=n, lease_until_us=T0 + n * S)]))
            )
        )
        for n in range(11)
    }

    assert len(lengths) == 1


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.REFUSED, Status.ABANDONED])
@pytest.mark.parametrize(
    "event", [sample for sample in SAMPLES if hasattr(sample, "ordinal")], ids=lambda e: e.kind.value
)
def test_a_final_operation_takes_late_receipts_and_nothing_else(event, status):
    operation = make_operation(status, [make_attempt()])
    head = make_workflow(operation)

    if isinstance(event, LateReceiptKept):
        new_head, new = evolve(head, operation, event, seq=9)
        assert (new.status, new_head.revision) == (status, head.revision)
        return
    with pytest.raises(TransitionError):
        evolve(head, operation, event, seq=9)


def test_a_query_is_never_granted_to_a_pending_operation():
    operation = make_operation()

    with pytest.raises(TransitionError):
        grant(make_workflow(operation), operation, "a1", mode=Mode.QUERY, at=T0)


def test_a_grant_holds_a_lease_of_two_minutes_and_anchors_the_first_dispatch_once():
    operation = make_operation()
    head, operation = grant(make_workflow(operation), operation, "a1", at=T0 + S)
    head, operation = end(head, operation, Outcome.NOT_DISPATCHED, at=T0 + 2 * S)
    head, operation = grant(head, operation, "a2", at=T0 + 9 * S)
    head, operation = grant(head, operation, "q1", mode=Mode.QUERY, at=T0 + 200 * S)

    assert operation.first_dispatch_us == T0 + S
    assert [(a.started_us, a.lease_until_us) for a in operation.attempts] == [
        (T0 + S, T0 + S + LEASE), (T0 + 9 * S, T0 + 9 * S + LEASE), (T0 + 200 * S, T0 + 200 * S + LEASE),
    ]  # fmt: skip
    assert head.revision == 5 + 4


def test_an_event_of_one_operation_leaves_the_standings_of_the_others():
    first, second, third = (make_operation(ordinal=n, operation_id=f"op_{n}") for n in range(3))
    head = make_workflow(first, second, third)

    new_head, _ = grant(head, second, "a1", at=T0)

    assert new_head.standings == (head.standings[0], Standing(Status.UNCERTAIN, 6, 0), head.standings[2])


def test_an_event_below_the_mark_does_not_lower_it():
    operation = make_operation()
    head = make_workflow(operation, clock_high_water_us=T0 + 5 * S)

    assert grant(head, operation, "a1", at=T0)[0].clock_high_water_us == T0 + 5 * S
    assert grant(head, operation, "a1", at=T0 + 6 * S)[0].clock_high_water_us == T0 + 6 * S


def test_secrets_are_shown_in_no_repr():
    operation = make_operation(attempts=[make_attempt()])

    assert "ik_1" not in repr(operation)
    assert "hash-of-a1" not in repr(operation)
