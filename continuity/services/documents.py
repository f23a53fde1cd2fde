"""What the outside sees of a workflow: the view, the summary, the history.

Never in any of them: a lease hash, a lease token, an idempotency key. Times are Unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions.states import Outcome, Status
from continuity.limits import SECOND_US
from continuity.services.ledger import definition_place, event_place, open_json, receipt_place
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from continuity.decisions.model import Attempt, LateReceipt, Operation
    from continuity.services.ledger import Ledger, Opened
    from continuity.store.workflows import AnyRow

FORMAT: Final = "atmem-workflow-v1"
_HIDDEN: Final = frozenset({"kind", "at_us", "lease_hash", "ordinal", "epoch", "lease_until_us", "operations"})
"""Members of stored events that the history does not show: secrets, and what it says in other words."""

Receipts = Mapping[tuple[int, int], Mapping[str, Any]]
"""Receipts of a workflow by (ordinal, seq): 0 the operation's own, 1… late ones, -n the one that ended attempt n."""


def seconds(at_us: int) -> float:
    """Return Unix seconds, whole ones as int."""
    whole, rest = divmod(at_us, SECOND_US)
    return whole if rest == 0 else at_us / SECOND_US


def assurance(operation: Operation) -> str:
    """Say whose word a saved receipt is."""
    is_attested = operation.status is Status.COMPLETED and not any(
        attempt.outcome is Outcome.SUCCEEDED for attempt in operation.attempts
    )
    return "operator_attested" if is_attested else "host_reported"


def scope(workspace: str, *, run_id: str) -> dict[str, Any]:
    """Return a scope as the wire writes it."""
    return {"tenant_id": "local", "subject_id": None, "workspace_id": workspace, "run_id": run_id}


def view(connection: Connection, ledger: Ledger, opened: Opened, *, phase: str) -> dict[str, Any]:
    """Return the whole view of a workflow: definitions, operations, attempts, receipts.

    Raises:
        VaultError: Something does not open or contradicts the sealed head.
    """
    place = {"workflow_pk": opened.workflow_pk}
    rows = connection.execute(statements.OPERATIONS, place).all()
    found = [ledger.open_operation(row, opened).operation for row in rows]
    definitions = [
        open_json(opened, row.sealed_definition, definition_place(opened.workflow_id, row.ordinal))
        for row in connection.execute(statements.DEFINITIONS, place)
    ]
    receipts = _receipts(connection, opened)
    return {
        **_heading(connection, opened, phase),
        "definitions": definitions,
        "operations": [
            {**definition, **_operation(operation, receipts)}
            for definition, operation in zip(definitions, found, strict=True)
        ],
    }


def summary(opened: Opened, operations: Sequence[Operation], *, workspace: str, phase: str) -> dict[str, Any]:
    """Return one line of a list: no definitions, arguments or receipts."""
    return {
        **_head(opened, workspace, phase),
        "operations": [
            {
                "operation_id": operation.operation_id,
                "name": operation.name,
                "status": operation.status.value,
                "attempts": len(operation.attempts),
                "late_receipts": len(operation.late),
                "has_receipt": operation.status in {Status.COMPLETED, Status.REFUSED},
            }
            for operation in operations
        ],
    }


def history(connection: Connection, opened: Opened, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return what happened to a workflow, oldest first.

    Args:
        connection: A reading transaction.
        opened: The workflow.
        names: Names of its operations, in order.

    Returns:
        One object an event: ``seq, event, time, actor``, ``name`` where it concerns an operation, and
        what the event itself says.
    """
    rows = connection.execute(statements.EVENTS, {"workflow_pk": opened.workflow_pk}).all()
    return [_past(opened, row, names) for row in rows]


def _past(opened: Opened, row: AnyRow, names: Sequence[str]) -> dict[str, Any]:
    value = open_json(opened, row.sealed_event, event_place(opened.workflow_id, row.seq))
    entry: dict[str, Any] = {"seq": row.seq, "event": row.kind, "time": seconds(row.at)}
    if "ordinal" in value:
        entry["name"] = names[value["ordinal"]]
    return {**entry, **{name: child for name, child in value.items() if name not in _HIDDEN}}


def _heading(connection: Connection, opened: Opened, phase: str) -> dict[str, Any]:
    workspace = connection.execute(statements.WORKSPACE_NAME, {"workspace_pk": opened.origin.workspace_pk}).scalar_one()
    return _head(opened, workspace, phase)


def _head(opened: Opened, workspace: str, phase: str) -> dict[str, Any]:
    workflow, origin = opened.workflow, opened.origin
    return {
        "format": FORMAT,
        "workflow_id": workflow.workflow_id,
        "workflow_key": origin.workflow_key,
        "scope": scope(workspace, run_id=workflow.workflow_id),
        "enabled": workflow.is_enabled,
        "phase": phase,
        "creator_id": origin.creator,
        "creator_role": origin.creator_role,
        "created": seconds(origin.created_us),
        "revision": workflow.revision,
        "clock_high_water": seconds(workflow.clock_high_water_us),
    }


def _operation(operation: Operation, receipts: Receipts) -> dict[str, Any]:
    value: dict[str, Any] = {
        "operation_id": operation.operation_id,
        "status": operation.status.value,
        "attempts": [
            _attempt(attempt, receipts.get((operation.ordinal, -number)))
            for number, attempt in enumerate(operation.attempts, start=1)
        ],
        "receipt": receipts.get((operation.ordinal, 0)),
        "late_receipts": len(operation.late),
        "late": [
            _late(late, receipts.get((operation.ordinal, seq))) for seq, late in enumerate(operation.late, start=1)
        ],
    }
    if value["receipt"] is not None:
        value["assurance"] = assurance(operation)
    if operation.first_dispatch_us is not None:
        value["first_dispatch"] = seconds(operation.first_dispatch_us)
    last = operation.last
    if last is not None and not last.has_ended and not last.is_attested and not operation.is_final:
        value["lease_until"] = seconds(last.lease_until_us)
    return value


def _attempt(attempt: Attempt, receipt: Mapping[str, Any] | None) -> dict[str, Any]:
    value: dict[str, Any] = {
        "attempt_id": attempt.attempt_id,
        "run_id": attempt.run_id,
        "mode": attempt.mode.value,
        "started": seconds(attempt.started_us),
        "renewals": attempt.renewals,
    }
    if attempt.ended_us is not None and attempt.outcome is not None:
        value["ended"] = seconds(attempt.ended_us)
        value["outcome"] = attempt.outcome.value
    if receipt is not None:
        value["receipt"] = receipt
    return value


def _late(late: LateReceipt, receipt: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "attempt_id": late.attempt_id,
        "run_id": late.run_id,
        "received": seconds(late.received_us),
        "proved": late.is_proved,
        "receipt": receipt,
    }


def _receipts(connection: Connection, opened: Opened) -> Receipts:
    rows = connection.execute(statements.RECEIPTS, {"workflow_pk": opened.workflow_pk})
    return {
        (row.ordinal, row.seq): json.loads(
            opened.key.open(row.sealed_receipt, place=receipt_place(opened.workflow_id, row.ordinal, row.seq))
        )
        for row in rows
    }
