"""Clear columns of workflows and operations: what follows from a state, and whether a row agrees with what is sealed.

Every clear column that a decision reads also stands in the sealed head or state. A difference is
`IntegrityError`: dispatch stops, nothing is repeated. A new column of that kind is written and compared here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from continuity.errors import IntegrityError

if TYPE_CHECKING:
    from continuity.decisions.model import Operation, Workflow
    from continuity.decisions.phases import Standpoint
    from continuity.services.opened import Origin
    from continuity.store.workflows import AnyRow


def head_columns(workflow: Workflow, view: Standpoint) -> dict[str, Any]:
    """Return the clear columns of a workflow's row that follow from its state."""
    return {
        "enabled": workflow.is_enabled,
        "ever_enabled": workflow.was_enabled,
        "done_prefix": workflow.done_prefix,
        "revision": workflow.revision,
        "clock_high_water": workflow.clock_high_water_us,
        **phase_columns(view),
    }


def phase_columns(view: Standpoint) -> dict[str, Any]:
    """Return the columns that say what a workflow is shown as."""
    return {
        "phase": view.phase.value,
        "phase_due_at": view.due_us,
        "phase_after_due": None if view.after_due is None else view.after_due.value,
    }


def operation_columns(operation: Operation, sealed_state: bytes) -> dict[str, Any]:
    """Return the changing columns of an operation's row."""
    last = operation.last
    return {
        "status": operation.status.value,
        "attempt_count": len(operation.attempts),
        "lease_until": None if last is None or last.has_ended else last.lease_until_us,
        "change_seq": operation.change_seq,
        "sealed_state": sealed_state,
    }


def check_head(row: AnyRow, workflow: Workflow, origin: Origin) -> None:
    """Compare the columns of a workflow's row with its sealed head.

    Raises:
        IntegrityError: They differ. Nothing has happened.
    """
    is_same = (
        row.workspace_pk == origin.workspace_pk
        and row.owner_pk == origin.owner_pk
        and bool(row.enabled) == workflow.is_enabled
        and bool(row.ever_enabled) == workflow.was_enabled
        and row.operation_count == len(workflow.standings)
        and row.done_prefix == workflow.done_prefix
        and row.revision == workflow.revision
        and row.clock_high_water == workflow.clock_high_water_us
        and row.epoch == workflow.epoch
        and (row.deleting_at is not None) == workflow.is_deleting
    )
    if not is_same:
        raise IntegrityError("The workflow's columns contradict its sealed head. Nothing was done.")


def check_operation(row: AnyRow, operation: Operation, workflow: Workflow) -> None:
    """Compare the columns of an operation's row with its sealed state and its workflow's head.

    Raises:
        IntegrityError: They differ. Nothing has happened.
    """
    standing = workflow.standings[operation.ordinal]
    last = operation.last
    is_same = (
        row.operation_id == operation.operation_id
        and row.status == operation.status.value == standing.status.value
        and row.attempt_count == len(operation.attempts)
        and row.lease_until == (None if last is None or last.has_ended else last.lease_until_us)
        and row.change_seq == operation.change_seq == standing.change_seq
        and operation.epoch == standing.epoch
    )
    if not is_same:
        raise IntegrityError("The operation's columns contradict its sealed state. Nothing was done.")
