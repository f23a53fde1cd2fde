"""People's controls: enable, pause, stop, confirm, delete.

Each is bound to the revision that the person saw, never acts while a lease is live, and says plainly what
it refuses. A pause never undoes a grant; a stop never calls anything completed; a confirm is a person's
word and is marked as such.

Source: operations.md "People's controls".
"""

from __future__ import annotations

from continuity import limits
from continuity.decisions.clocks import Reading
from continuity.decisions.events import (
    OperationAbandoned,
    OutcomeConfirmed,
    WorkflowDeleting,
    WorkflowEnabled,
    WorkflowPaused,
)
from continuity.decisions.model import Operation, VaultFacts, Workflow
from continuity.decisions.states import Status
from continuity.errors import ConflictError
from continuity.limits import SECOND_US


def require_revision(workflow: Workflow, seen: int | None) -> None:
    """Refuse a control whose author has seen another revision; None means "whatever it is" (credentials only).

    Raises:
        ConflictError: ``stale_revision``. Nothing has changed.
    """
    if seen is not None and seen != workflow.revision:
        raise ConflictError(
            f"The workflow has changed: it is at revision {workflow.revision}, not {seen}. Nothing was changed.",
            code="stale_revision",
        )


def decide_enable(workflow: Workflow, vault: VaultFacts, *, actor: str, at_us: int) -> WorkflowEnabled | None:
    """Return the event that enables recovery, None when it is enabled already or would allow nothing.

    Of a finished workflow it allows workers to have the saved receipts, where there are any.

    Raises:
        ConflictError: ``capture_not_full`` or ``workflow_revision_limit_reached``. Nothing has changed.
    """
    has_saved = any(standing.status is Status.COMPLETED for standing in workflow.standings)
    if workflow.is_enabled or (workflow.is_finished and not has_saved):
        return None
    if not vault.is_capture_full:
        raise ConflictError("The vault's capture mode must be full before work is enabled.", code="capture_not_full")
    _require_room(workflow, limits.REVISIONS_PER_WORKFLOW)
    return WorkflowEnabled(at_us=at_us, actor=actor)


def decide_pause(workflow: Workflow, *, actor: str, at_us: int) -> WorkflowPaused | None:
    """Return the event that pauses new attempts, None when they are paused already or there can be no more.

    Raises:
        ConflictError: ``workflow_revision_limit_reached``. Nothing has changed.
    """
    if not workflow.is_enabled or workflow.is_finished:
        return None
    _require_headroom(workflow)
    return WorkflowPaused(at_us=at_us, actor=actor)


def decide_abandon(
    workflow: Workflow, operation: Operation, *, actor: str, reason: str, at_us: int
) -> OperationAbandoned:
    """Return the event that stops one operation for good.

    Raises:
        ConflictError: ``operation_final``, ``lease_live`` or ``workflow_revision_limit_reached``.
            Nothing has changed.
    """
    _require_settled(operation, at_us)
    _require_headroom(workflow)
    return OperationAbandoned(at_us=at_us, actor=actor, ordinal=operation.ordinal, reason=reason)


def decide_confirm(
    workflow: Workflow, operation: Operation, vault: VaultFacts, reading: Reading, *,
    happened: bool, late_receipts: int, reason: str, actor: str, at_us: int, digest: str | None,
) -> OutcomeConfirmed:  # fmt: skip
    """Return the event of a person's attestation.

    Args:
        workflow: The head; its revision has been checked with `require_revision`.
        operation: The operation.
        vault: What must be known of the vault.
        reading: The clock as it was read.
        happened: What the person attests.
        late_receipts: How many late receipts the person has seen.
        reason: Why the person is sure.
        actor: Who attests.
        at_us: The time to stamp it with.
        digest: Hex SHA-256 of the attested receipt, None for "did not happen".

    Raises:
        ConflictError: ``operation_final``, ``stale_revision``, ``lease_live``, ``effect_may_still_land``,
            ``attempt_limit_reached`` or ``workflow_revision_limit_reached``. Nothing has changed.
    """
    if not operation.is_final and late_receipts != len(operation.late):
        raise ConflictError(
            f"{len(operation.late)} late receipts are kept, not {late_receipts}. Look at them first; "
            "nothing was changed.",
            code="stale_revision",
        )
    _require_settled(operation, at_us)
    if not happened:
        # By the clock as it was read: a mark above it says nothing of how long the effect has had to land.
        _require_landed(operation, vault, reading, min(at_us, reading.now_us))
        if len(operation.attempts) >= limits.ATTEMPTS_PER_OPERATION:
            raise ConflictError(
                f"All {limits.ATTEMPTS_PER_OPERATION} attempts are used: it can be stopped or confirmed as "
                "happened, not repeated.",
                code="attempt_limit_reached",
            )
    _require_headroom(workflow)
    return OutcomeConfirmed(
        at_us=at_us, actor=actor, ordinal=operation.ordinal, happened=happened, reason=reason,
        epoch=vault.epoch, digest=digest,
    )  # fmt: skip


def decide_delete(workflow: Workflow, *, actor: str, at_us: int) -> WorkflowDeleting:
    """Return the event with which a deletion begins.

    Raises:
        ConflictError: ``workflow_unfinished``. Nothing has changed.
    """
    if workflow.is_unfinished_work:
        raise ConflictError(
            "Work of this workflow is unfinished: finish it or stop it first. Nothing was deleted.",
            code="workflow_unfinished",
        )
    return WorkflowDeleting(at_us=at_us, actor=actor)


def absence_can_be_attested_from_us(operation: Operation, vault: VaultFacts, reading: Reading) -> int:
    """Return from when on a person may attest that nothing happened: no effect can still land by then."""
    from_us = operation.may_land_until_us
    if vault.restored_us is not None:
        from_us = max(from_us, vault.restored_us + limits.RESTORE_QUIET_S * SECOND_US)
    if reading.stepped_us is not None:
        quiet_us = limits.FORWARD_STEP_QUIET_S * SECOND_US + (operation.absence_us or 0)
        from_us = max(from_us, reading.stepped_us + quiet_us)
    return from_us


def _require_landed(operation: Operation, vault: VaultFacts, reading: Reading, at_us: int) -> None:
    from_us = absence_can_be_attested_from_us(operation, vault, reading)
    if at_us < from_us:
        wait_s = -((at_us - from_us) // SECOND_US)
        raise ConflictError(
            f"The effect may still land for {wait_s} s. Look at the destination after that; nothing was changed.",
            code="effect_may_still_land",
        )


def _require_settled(operation: Operation, at_us: int) -> None:
    if operation.is_final:
        raise ConflictError(
            f"The operation is {operation.status} and stays so. Nothing was changed.", code="operation_final"
        )
    live = operation.live_attempt(at_us)
    if live is not None:
        left_s = -((at_us - live.lease_until_us) // SECOND_US)
        raise ConflictError(
            f"An attempt holds a lease for another {left_s} s, longer if it is renewed. Nothing was changed.",
            code="lease_live",
        )


def _require_headroom(workflow: Workflow) -> None:
    headroom = len(workflow.standings) + limits.CONTROL_HEADROOM
    _require_room(workflow, limits.REVISIONS_PER_WORKFLOW + headroom)


def _require_room(workflow: Workflow, most: int) -> None:
    if workflow.revision >= most:
        raise ConflictError(
            "The workflow has used all its revisions. Nothing was changed.", code="workflow_revision_limit_reached"
        )
