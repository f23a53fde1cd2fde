"""outcome and renew: what a receipt does to its attempt, and how long a lease may be kept.

Rules:

* A receipt ends its attempt when token, run and attempt are those of the last attempt, that attempt has
  not ended, and the operation is uncertain. Expiry of the lease alone does not matter.
* A restore voids the leases of before: what another attempt has done since the backup is not in it, so a receipt of
  before is evidence, and a person decides.
* The very same receipt of the same attempt with its token answers as the first time.
* Anything else is late evidence: kept, never acted upon. The first late body that an attempt's own token
  proves is always kept; of all others at most ten an operation.

Source: operations.md "outcome".
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from continuity import limits
from continuity.decisions.events import LateReceiptKept, OutcomeRecorded
from continuity.decisions.model import Attempt, Operation, Reply, VaultFacts, Workflow
from continuity.decisions.states import Outcome, Status
from continuity.errors import ConflictError
from continuity.limits import LEASE_S, SECOND_US


@dataclass(frozen=True, slots=True)
class Report:
    """A receipt as it came in.

    Attributes:
        attempt_id: The attempt that it names.
        run_id: The run that it names.
        lease_hash: Hex SHA-256 of the lease token sent with it.
        outcome: What it claims, from `receipts.classify`.
        digest: Hex SHA-256 of its canonical form.
        actor: Who sent it.
    """

    attempt_id: str
    run_id: str
    lease_hash: str
    outcome: Outcome
    digest: str
    actor: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """The receipt is known: answer `reply` again and write nothing."""

    reply: Reply


def proves(attempt: Attempt | None, *, run_id: str, lease_hash: str) -> bool:
    """Say, in constant time for the token, whether a lease token is that of `attempt` and `run_id`."""
    if attempt is None:
        return False
    is_token = hmac.compare_digest(attempt.lease_hash.encode(), lease_hash.encode())
    return is_token and attempt.run_id == run_id


def decide_outcome(
    operation: Operation, report: Report, *, epoch: int, at_us: int
) -> OutcomeRecorded | LateReceiptKept | Replayed:
    """Say what a receipt does. Changes nothing.

    Args:
        operation: The operation it was sent for.
        report: The receipt.
        epoch: The vault's, which rises with every restore.
        at_us: The time to stamp it with.

    Returns:
        The event that records it, or the reply to give again.

    Raises:
        ConflictError: ``late_receipt_limit_reached``. Nothing has been kept.
    """
    attempt = operation.find(report.attempt_id)
    is_proved = proves(attempt, run_id=report.run_id, lease_hash=report.lease_hash)
    known = _known_reply(operation, report, attempt if is_proved else None)
    if known is not None:
        return Replayed(known)
    if attempt is not None and is_proved and _is_current(operation, attempt, epoch):
        return OutcomeRecorded(
            at_us=at_us,
            actor=report.actor,
            ordinal=operation.ordinal,
            attempt_id=attempt.attempt_id,
            outcome=report.outcome,
            digest=report.digest,
            renewals=attempt.renewals,
            lease_until_us=attempt.lease_until_us,
        )
    return _late(operation, report, is_proved=is_proved, at_us=at_us)


def _is_current(operation: Operation, attempt: Attempt, epoch: int) -> bool:
    is_open = operation.status is Status.UNCERTAIN and not attempt.has_ended
    return is_open and attempt is operation.last and operation.epoch == epoch


def _known_reply(operation: Operation, report: Report, proved: Attempt | None) -> Reply | None:
    """Find the reply of an exact repeat: of the ending for a proved sender, of late evidence for its own kind."""
    if proved is not None and proved.digest == report.digest:
        return proved.reply
    for late in operation.late:
        is_same = (late.attempt_id, late.run_id, late.digest) == (report.attempt_id, report.run_id, report.digest)
        if is_same and late.is_proved == (proved is not None):
            return late.reply
    return None


def _late(operation: Operation, report: Report, *, is_proved: bool, at_us: int) -> LateReceiptKept:
    has_own_place = is_proved and not any(
        late.is_proved and not late.is_extra and late.attempt_id == report.attempt_id for late in operation.late
    )
    extras = sum(late.is_extra for late in operation.late)
    if not has_own_place and extras >= limits.UNPROVED_LATE_RECEIPTS:
        raise ConflictError(
            f"{limits.UNPROVED_LATE_RECEIPTS} late receipts without an attempt of their own are kept already; "
            "this one was not.",
            code="late_receipt_limit_reached",
        )
    return LateReceiptKept(
        at_us=at_us,
        actor=report.actor,
        ordinal=operation.ordinal,
        attempt_id=report.attempt_id,
        run_id=report.run_id,
        outcome=report.outcome,
        digest=report.digest,
        is_proved=is_proved,
        is_extra=not has_own_place,
    )


def decide_renewal(
    workflow: Workflow, operation: Operation, vault: VaultFacts, *,
    attempt_id: str, run_id: str, lease_hash: str, now_us: int,
) -> Attempt:  # fmt: skip
    """Return the last attempt with its lease renewed to now + 120 s. A renewal is no revision.

    Raises:
        ConflictError: ``stale_lease`` (not the current attempt, run and token), ``lease_expired``,
            ``workflow_paused`` or ``renewal_limit_reached``. Nothing has changed.
    """
    attempt = operation.find(attempt_id)
    is_proved = proves(attempt, run_id=run_id, lease_hash=lease_hash)
    if attempt is None or not is_proved or not _is_current(operation, attempt, vault.epoch):
        raise ConflictError("The lease is not that of the current attempt.", code="stale_lease")
    if not attempt.is_live(now_us):
        raise ConflictError("The lease has run out; its receipt is still taken.", code="lease_expired")
    if not workflow.is_enabled or not vault.is_capture_full:
        raise ConflictError("The workflow is paused; the receipt is still taken.", code="workflow_paused")
    if attempt.renewals >= limits.RENEWALS:
        raise ConflictError(f"The lease was renewed {limits.RENEWALS} times.", code="renewal_limit_reached")
    return _replace_lease(attempt, now_us + _LEASE_US)


def _replace_lease(attempt: Attempt, until_us: int) -> Attempt:
    return Attempt(
        attempt_id=attempt.attempt_id, run_id=attempt.run_id, mode=attempt.mode, started_us=attempt.started_us,
        lease_until_us=until_us, lease_hash=attempt.lease_hash, renewals=attempt.renewals + 1,
    )  # fmt: skip


_LEASE_US: Final = LEASE_S * SECOND_US
