"""begin: may this attempt go to the destination, and how?

The decision is the table `ROWS`, read from top to bottom; the first row that applies decides. The table
in ``docs/operations.md`` is generated from it. Only the rows that grant change anything, and the reply of
a grant leaves only after its commit.

Source: operations.md "begin: the decision table".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from continuity import limits
from continuity.decisions.clocks import Reading
from continuity.decisions.model import Attempt, Operation, VaultFacts, Workflow
from continuity.decisions.states import Mode, Outcome, Status
from continuity.limits import SECOND_US


class Action(StrEnum):
    """What the host is to do."""

    EXECUTE = "execute"
    QUERY = "query"
    COMPLETED = "completed"
    BLOCKED = "blocked"


class Reason(StrEnum):
    """Why; stable codes that pages and clients explain."""

    AUTHORIZED = "authorized_attempt"
    SAVED_RECEIPT = "saved_receipt"
    DISABLED = "workflow_disabled_or_capture_unavailable"
    ABANDONED = "abandoned"
    REFUSED = "refused_by_destination"
    EARLIER_UNFINISHED = "earlier_work_unfinished"
    ALREADY_ISSUED = "attempt_already_issued"
    IN_PROGRESS = "attempt_in_progress"
    ATTEMPT_LIMIT = "attempt_limit_reached"
    REVISION_LIMIT = "workflow_revision_limit_reached"
    LATE_RECEIPT = "late_receipt_needs_decision"
    RESTORED = "restored_needs_decision"
    WINDOW_EXPIRED = "idempotency_window_expired"
    NEEDS_CONFIRMATION = "needs_confirmation"


NEEDS_PERSON: Final = frozenset({
    Reason.ATTEMPT_LIMIT, Reason.REVISION_LIMIT, Reason.LATE_RECEIPT, Reason.RESTORED,
    Reason.WINDOW_EXPIRED, Reason.NEEDS_CONFIRMATION,
})  # fmt: skip
"""Reasons that only a person can clear."""


@dataclass(frozen=True, slots=True)
class Question:
    """Everything a begin is decided by.

    Attributes:
        workflow: The head.
        operation: The operation asked for.
        vault: What must be known of the vault.
        attempt_id: The attempt asked for; empty when only the phase of the workflow is wanted.
        now_us: The time of the decision, never below a mark.
        reading: The clock as it was read.
    """

    workflow: Workflow
    operation: Operation
    vault: VaultFacts
    attempt_id: str
    now_us: int
    reading: Reading


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the table says."""

    action: Action
    reason: Reason

    @property
    def mode(self) -> Mode | None:
        """The mode of a grant, None when nothing is granted."""
        return Mode(self.action) if self.action in {Action.EXECUTE, Action.QUERY} else None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the decision table.

    Attributes:
        when: The condition in words, for people.
        applies: The condition.
        action: What the host is to do.
        reason: Why.
    """

    when: str
    applies: Callable[[Question], bool]
    action: Action
    reason: Reason


def decide_begin(question: Question) -> Verdict:
    """Return the verdict of the first row that applies. Changes nothing."""
    for row in ROWS:
        if row.applies(question):
            return Verdict(row.action, row.reason)
    raise AssertionError("the last row applies to everything that is uncertain")  # pragma: no cover


def window_end_us(operation: Operation) -> int | None:
    """Return from when on the destination's key no longer protects a repeat; None when it never did."""
    if not operation.is_idempotent or operation.first_dispatch_us is None:
        return None
    margin_us = operation.timeout_us + limits.LANDING_MARGIN_S * SECOND_US
    return operation.first_dispatch_us + operation.retention_us - margin_us


def absence_final_from_us(operation: Operation) -> int | None:
    """Return the time after which a query must be granted for its ``absent`` to be final; None when never."""
    if operation.absence_us is None:
        return None
    ends = (_last_landing_us(operation, a) for a in operation.attempts if a.is_unresolved)
    return max(ends, default=0) + operation.absence_us


def _last_landing_us(operation: Operation, attempt: Attempt) -> int:
    landing = operation.latest_landing_us(attempt)
    return landing if attempt.has_ended else max(landing, attempt.lease_until_us)


def _is_uncertain(q: Question) -> bool:
    return q.operation.status is Status.UNCERTAIN


def _may_repeat(q: Question) -> bool:
    end_us = window_end_us(q.operation)
    return _is_uncertain(q) and end_us is not None and q.now_us < end_us


def _is_absence_final(q: Question) -> bool:
    last, from_us = q.operation.last, absence_final_from_us(q.operation)
    if not _is_uncertain(q) or last is None or from_us is None or q.operation.absence_us is None:
        return False
    return (
        last.mode is Mode.QUERY
        and last.outcome is Outcome.ABSENT
        and last.started_us > from_us
        # Judged by the grant of the query, not by now: what it saw just after a step may have been too early.
        and not q.reading.is_quiet(q.operation.absence_us, last.started_us)
    )


def _is_restored(q: Question) -> bool:
    return not q.operation.is_final and q.operation.epoch < q.vault.epoch


ROWS: Final[tuple[Row, ...]] = (
    Row(
        "the workflow is disabled, or the capture mode is not full",
        lambda q: not q.workflow.is_enabled or q.workflow.is_deleting or not q.vault.is_capture_full,
        Action.BLOCKED, Reason.DISABLED,
    ),
    Row(
        "the operation is completed",
        lambda q: q.operation.status is Status.COMPLETED,
        Action.COMPLETED, Reason.SAVED_RECEIPT,
    ),
    Row(
        "the operation is abandoned",
        lambda q: q.operation.status is Status.ABANDONED,
        Action.BLOCKED, Reason.ABANDONED,
    ),
    Row(
        "the operation is refused",
        lambda q: q.operation.status is Status.REFUSED,
        Action.BLOCKED, Reason.REFUSED,
    ),
    Row(
        "an earlier operation of the workflow is not completed",
        lambda q: q.operation.ordinal > q.workflow.done_prefix,
        Action.BLOCKED, Reason.EARLIER_UNFINISHED,
    ),
    Row(
        "this attempt_id was already issued",
        lambda q: q.operation.find(q.attempt_id) is not None,
        Action.BLOCKED, Reason.ALREADY_ISSUED,
    ),
    Row(
        "a lease is live",
        lambda q: q.operation.live_attempt(q.now_us) is not None,
        Action.BLOCKED, Reason.IN_PROGRESS,
    ),
    Row(
        f"{limits.ATTEMPTS_PER_OPERATION} attempts are used",
        lambda q: len(q.operation.attempts) >= limits.ATTEMPTS_PER_OPERATION,
        Action.BLOCKED, Reason.ATTEMPT_LIMIT,
    ),
    Row(
        f"fewer than 2 revisions are left of {limits.REVISIONS_PER_WORKFLOW}",
        lambda q: q.workflow.revision + 2 > limits.REVISIONS_PER_WORKFLOW,
        Action.BLOCKED, Reason.REVISION_LIMIT,
    ),
    Row(
        "a proved late receipt claims success and no confirm has followed",
        lambda q: q.operation.has_undecided_success,
        Action.BLOCKED, Reason.LATE_RECEIPT,
    ),
    Row(
        "the operation was open when a backup was restored and no confirm has followed",
        _is_restored,
        Action.BLOCKED, Reason.RESTORED,
    ),
    Row(
        "pending",
        lambda q: q.operation.status is Status.PENDING,
        Action.EXECUTE, Reason.AUTHORIZED,
    ),
    Row(
        "uncertain, idempotent, and the destination still honours the key",
        _may_repeat,
        Action.EXECUTE, Reason.AUTHORIZED,
    ),
    Row(
        "uncertain, and a query proved absence after it had become final",
        _is_absence_final,
        Action.EXECUTE, Reason.AUTHORIZED,
    ),
    Row(
        "uncertain, the destination can be queried",
        lambda q: _is_uncertain(q) and q.operation.can_query,
        Action.QUERY, Reason.AUTHORIZED,
    ),
    Row(
        "uncertain, idempotent, and the window is over",
        lambda q: _is_uncertain(q) and q.operation.is_idempotent,
        Action.BLOCKED, Reason.WINDOW_EXPIRED,
    ),
    Row(
        "uncertain, and the destination can do neither",
        _is_uncertain,
        Action.BLOCKED, Reason.NEEDS_CONFIRMATION,
    ),
)  # fmt: skip
"""The decision table, after the clock check (`clocks.dispatch_time_us`)."""
