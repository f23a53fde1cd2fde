"""States of an operation and every legal step between them.

Rules:

* Everything about legality is in `TRANSITIONS`; one look-up, one error.
* Final states have no way out.
* `Status.UNCERTAIN` is entered in the transaction that grants an execute: from then on the effect may
  have happened.
* Back to `Status.PENDING` lead two ways only: `Step.NOT_DISPATCHED`, which stands for an attempt that
  never reached the destination while no other attempt is unresolved, and
  `Step.CONFIRM_DID_NOT_HAPPEN`, a person's attestation.

The picture in ``docs/operations.md`` is generated from `TRANSITIONS`; a test compares them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """State of one operation, as stored and as shown."""

    PENDING = "pending"
    UNCERTAIN = "uncertain"
    COMPLETED = "completed"
    REFUSED = "refused"
    ABANDONED = "abandoned"


FINAL: Final = frozenset({Status.COMPLETED, Status.REFUSED, Status.ABANDONED})


class Mode(StrEnum):
    """What an attempt is allowed to do at the destination."""

    EXECUTE = "execute"
    QUERY = "query"


class Outcome(StrEnum):
    """What a receipt says of its attempt, after `receipts.classify`."""

    SUCCEEDED = "confirmed_succeeded"
    UNKNOWN = "unknown"
    REFUSED = "confirmed_refused"
    NOT_DISPATCHED = "not_dispatched"
    ABSENT = "absent"


class Step(StrEnum):
    """What can happen to an operation."""

    GRANT_EXECUTE = "execute granted"
    GRANT_QUERY = "query granted"
    SUCCEEDED = "confirmed_succeeded"
    UNKNOWN = "unknown"
    ABSENT = "absent"
    REFUSED = "confirmed_refused, nothing else unresolved"
    REFUSED_OTHERS_OPEN = "confirmed_refused, another attempt unresolved"
    NOT_DISPATCHED = "not_dispatched, nothing else unresolved"
    NOT_DISPATCHED_OTHERS_OPEN = "not_dispatched, another attempt unresolved"
    ABANDON = "stop this work"
    CONFIRM_HAPPENED = "confirmed: it happened"
    CONFIRM_DID_NOT_HAPPEN = "confirmed: it did not happen"


TRANSITIONS: Final[dict[Status, dict[Step, Status]]] = {
    Status.PENDING: {
        Step.GRANT_EXECUTE: Status.UNCERTAIN,
        Step.ABANDON: Status.ABANDONED,
        Step.CONFIRM_HAPPENED: Status.COMPLETED,
        Step.CONFIRM_DID_NOT_HAPPEN: Status.PENDING,
    },
    Status.UNCERTAIN: {
        Step.GRANT_EXECUTE: Status.UNCERTAIN,
        Step.GRANT_QUERY: Status.UNCERTAIN,
        Step.SUCCEEDED: Status.COMPLETED,
        Step.UNKNOWN: Status.UNCERTAIN,
        Step.ABSENT: Status.UNCERTAIN,
        Step.REFUSED: Status.REFUSED,
        Step.REFUSED_OTHERS_OPEN: Status.UNCERTAIN,
        Step.NOT_DISPATCHED: Status.PENDING,
        Step.NOT_DISPATCHED_OTHERS_OPEN: Status.UNCERTAIN,
        Step.ABANDON: Status.ABANDONED,
        Step.CONFIRM_HAPPENED: Status.COMPLETED,
        Step.CONFIRM_DID_NOT_HAPPEN: Status.PENDING,
    },
    Status.COMPLETED: {},
    Status.REFUSED: {},
    Status.ABANDONED: {},
}


class TransitionError(RuntimeError):
    """A step that the state does not allow was about to be taken: a defect of ours. Nothing has changed."""


def after(status: Status, step: Step) -> Status:
    """Return the state that `step` leads to.

    Raises:
        TransitionError: `step` is not legal in `status`. Nothing has changed.
    """
    try:
        return TRANSITIONS[status][step]
    except KeyError:
        raise TransitionError(f"{step.name} is not possible for an operation that is {status}.") from None
