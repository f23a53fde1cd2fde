"""What happened to a workflow, as values, and `evolve`, the only function that changes state.

Every event but a late receipt takes one revision. Every event takes one sequence number of its
workflow's hash-chained log. Renewals of a lease are no events: the event that ends an attempt, or the
grant that follows it, is what counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Final

from continuity.decisions.model import Attempt, LateReceipt, Operation, Reply, Standing, Workflow
from continuity.decisions.states import Mode, Outcome, Step, after
from continuity.limits import LEASE_S, SECOND_US


class EventKind(StrEnum):
    """Names of events, as stored and as shown in a workflow's history."""

    CREATED = "created"
    ENABLED = "enabled"
    PAUSED = "paused"
    GRANTED = "attempt_granted"
    ENDED = "outcome_recorded"
    LATE = "late_receipt_kept"
    ABANDONED = "abandoned"
    CONFIRMED = "outcome_confirmed"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class WorkflowEnabled:
    """Recovery was enabled."""

    kind: ClassVar[EventKind] = EventKind.ENABLED
    at_us: int
    actor: str


@dataclass(frozen=True, slots=True)
class WorkflowPaused:
    """New attempts were paused."""

    kind: ClassVar[EventKind] = EventKind.PAUSED
    at_us: int
    actor: str


@dataclass(frozen=True, slots=True)
class AttemptGranted:
    """A begin was granted; for an execute the effect may have happened from here on."""

    kind: ClassVar[EventKind] = EventKind.GRANTED
    at_us: int
    actor: str
    ordinal: int
    attempt_id: str
    run_id: str
    mode: Mode
    lease_hash: str


@dataclass(frozen=True, slots=True)
class OutcomeRecorded:
    """A receipt ended the attempt that it names."""

    kind: ClassVar[EventKind] = EventKind.ENDED
    at_us: int
    actor: str
    ordinal: int
    attempt_id: str
    outcome: Outcome
    digest: str
    renewals: int
    lease_until_us: int


@dataclass(frozen=True, slots=True)
class LateReceiptKept:
    """A receipt was kept as late evidence. It takes no revision and changes no state."""

    kind: ClassVar[EventKind] = EventKind.LATE
    at_us: int
    actor: str
    ordinal: int
    attempt_id: str
    run_id: str
    outcome: Outcome
    digest: str
    is_proved: bool
    is_extra: bool


@dataclass(frozen=True, slots=True)
class OperationAbandoned:
    """An operation was stopped for good."""

    kind: ClassVar[EventKind] = EventKind.ABANDONED
    at_us: int
    actor: str
    ordinal: int
    reason: str


@dataclass(frozen=True, slots=True)
class OutcomeConfirmed:
    """A person attested whether the effect happened; `digest` is that of the attested receipt."""

    kind: ClassVar[EventKind] = EventKind.CONFIRMED
    at_us: int
    actor: str
    ordinal: int
    happened: bool
    reason: str
    epoch: int
    digest: str | None


@dataclass(frozen=True, slots=True)
class WorkflowDeleting:
    """Its deletion has begun; begin is refused from here on."""

    kind: ClassVar[EventKind] = EventKind.DELETING
    at_us: int
    actor: str


Event = (
    WorkflowEnabled
    | WorkflowPaused
    | AttemptGranted
    | OutcomeRecorded
    | LateReceiptKept
    | OperationAbandoned
    | OutcomeConfirmed
    | WorkflowDeleting
)
OperationEvent = AttemptGranted | OutcomeRecorded | LateReceiptKept | OperationAbandoned | OutcomeConfirmed

EVENTS: Final[dict[EventKind, type[Event]]] = {
    cls.kind: cls
    for cls in (
        WorkflowEnabled, WorkflowPaused, AttemptGranted, OutcomeRecorded, LateReceiptKept,
        OperationAbandoned, OutcomeConfirmed, WorkflowDeleting,
    )
}  # fmt: skip


def evolve_workflow(workflow: Workflow, event: WorkflowEnabled | WorkflowPaused | WorkflowDeleting) -> Workflow:
    """Return the workflow after an event that concerns no single operation."""
    workflow = replace(
        workflow,
        revision=workflow.revision + 1,
        clock_high_water_us=max(workflow.clock_high_water_us, event.at_us),
    )
    if isinstance(event, WorkflowEnabled):
        return replace(workflow, is_enabled=True, was_enabled=True)
    if isinstance(event, WorkflowPaused):
        return replace(workflow, is_enabled=False)
    return replace(workflow, is_enabled=False, is_deleting=True)


def evolve(workflow: Workflow, operation: Operation, event: OperationEvent, *, seq: int) -> tuple[Workflow, Operation]:
    """Return workflow and operation after an event.

    Args:
        workflow: The head before.
        operation: The operation that the event concerns, before.
        event: What happened.
        seq: The event's sequence number in the workflow's log.

    Raises:
        TransitionError: The event is not legal in the operation's state. Nothing has changed.
    """
    revision = workflow.revision + (0 if isinstance(event, LateReceiptKept) else 1)
    operation = _change(operation, event, revision, seq=seq)
    standing = Standing(operation.status, seq, operation.epoch)
    standings = (*workflow.standings[: event.ordinal], standing, *workflow.standings[event.ordinal + 1 :])
    mark = max(workflow.clock_high_water_us, event.at_us)
    return replace(workflow, revision=revision, clock_high_water_us=mark, standings=standings), operation


def _change(operation: Operation, event: OperationEvent, revision: int, *, seq: int) -> Operation:
    match event:
        case AttemptGranted():
            return _grant(operation, event, seq=seq)
        case OutcomeRecorded():
            return _end(operation, event, revision, seq=seq)
        case LateReceiptKept():
            return _keep_late(operation, event, revision, seq=seq)
        case OperationAbandoned():
            return replace(operation, status=after(operation.status, Step.ABANDON), change_seq=seq)
        case OutcomeConfirmed():
            return _confirm(operation, event, seq=seq)


def _grant(operation: Operation, event: AttemptGranted, *, seq: int) -> Operation:
    is_execute = event.mode is Mode.EXECUTE
    step = Step.GRANT_EXECUTE if is_execute else Step.GRANT_QUERY
    attempt = Attempt(
        attempt_id=event.attempt_id,
        run_id=event.run_id,
        mode=event.mode,
        started_us=event.at_us,
        lease_until_us=event.at_us + LEASE_S * SECOND_US,
        lease_hash=event.lease_hash,
    )
    first = operation.first_dispatch_us
    return replace(
        operation,
        status=after(operation.status, step),
        attempts=(*operation.attempts, attempt),
        first_dispatch_us=event.at_us if first is None and is_execute else first,
        change_seq=seq,
    )


def step_of(operation: Operation, attempt: Attempt, outcome: Outcome) -> Step:
    """Return the step that `outcome` of `attempt` means for its operation."""
    if outcome in {Outcome.REFUSED, Outcome.NOT_DISPATCHED}:
        is_open = operation.has_others_unresolved(attempt)
        if outcome is Outcome.REFUSED:
            return Step.REFUSED_OTHERS_OPEN if is_open else Step.REFUSED
        return Step.NOT_DISPATCHED_OTHERS_OPEN if is_open else Step.NOT_DISPATCHED
    return {Outcome.SUCCEEDED: Step.SUCCEEDED, Outcome.UNKNOWN: Step.UNKNOWN, Outcome.ABSENT: Step.ABSENT}[outcome]


def _end(operation: Operation, event: OutcomeRecorded, revision: int, *, seq: int) -> Operation:
    attempt = operation.attempts[-1]
    status = after(operation.status, step_of(operation, attempt, event.outcome))
    ended = replace(
        attempt,
        ended_us=event.at_us,
        outcome=event.outcome,
        digest=event.digest,
        renewals=event.renewals,
        lease_until_us=event.lease_until_us,
        reply=Reply(accepted=True, status=status, revision=revision),
    )
    return replace(operation, status=status, attempts=(*operation.attempts[:-1], ended), change_seq=seq)


def _keep_late(operation: Operation, event: LateReceiptKept, revision: int, *, seq: int) -> Operation:
    late = LateReceipt(
        attempt_id=event.attempt_id,
        run_id=event.run_id,
        received_us=event.at_us,
        is_proved=event.is_proved,
        is_extra=event.is_extra,
        outcome=event.outcome,
        digest=event.digest,
        reply=Reply(accepted=False, status=operation.status, revision=revision, reason="stale_lease"),
    )
    return replace(operation, late=(*operation.late, late), change_seq=seq)


def _confirm(operation: Operation, event: OutcomeConfirmed, *, seq: int) -> Operation:
    step = Step.CONFIRM_HAPPENED if event.happened else Step.CONFIRM_DID_NOT_HAPPEN
    return replace(
        operation,
        status=after(operation.status, step),
        attempts=tuple(replace(attempt, is_attested=True) for attempt in operation.attempts),
        late_decided=len(operation.late),
        epoch=event.epoch,
        change_seq=seq,
    )
