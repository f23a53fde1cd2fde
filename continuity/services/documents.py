"""What the outside sees of a workflow: the view, the summary, the history.

Never in any of them: a lease hash, a lease token, an idempotency key. Times are Unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions.phases import standpoint
from continuity.decisions.states import Outcome, Status
from continuity.errors import IntegrityError
from continuity.limits import SECOND_US
from continuity.services.sealing import definition_place, event_place, open_json, receipt_place
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from continuity.decisions.model import Attempt, LateReceipt, Operation
    from continuity.services.callers import Caller
    from continuity.services.ledger import Ledger
    from continuity.services.opened import Opened
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


def view(connection: Connection, opened: Opened, operations: Sequence[Operation], *, now_us: int) -> dict[str, Any]:
    """Return the whole view of a workflow: definitions, operations, attempts, receipts.

    Raises:
        VaultError: Something does not open or contradicts the sealed head.
    """
    written = definitions(connection, opened)
    receipts = _receipts(connection, opened)
    workspace = workspace_name(connection, opened.origin.workspace_pk)
    return _view(opened, operations, written, receipts, workspace=workspace, now_us=now_us)


def new_view(
    opened: Opened, operations: Sequence[Operation], written: Sequence[bytes], *, workspace: str, now_us: int
) -> dict[str, Any]:
    """Return the view of a workflow that was created just now: what `view` would read back.

    Args:
        opened: The workflow as it was committed.
        operations: Its operations, as they were committed; none of them has a receipt.
        written: Their definitions in canonical form.
        workspace: Name of its workspace.
        now_us: When.
    """
    return _view(opened, operations, [json.loads(each) for each in written], {}, workspace=workspace, now_us=now_us)


def workspace_name(connection: Connection, workspace_pk: int) -> str:
    """Return the name of a workspace, which it keeps for ever."""
    name: str = connection.execute(statements.WORKSPACE_NAME, {"workspace_pk": workspace_pk}).scalar_one()
    return name


def current(connection: Connection, ledger: Ledger, caller: Caller, workflow_id: str) -> dict[str, Any]:
    """Return the view of a workflow as it is now.

    Args:
        connection: A reading transaction: what it shows may take long to open, and no writer should wait for it.
        ledger: Opens the workflow.
        caller: Who asks.
        workflow_id: Which workflow.

    Raises:
        NotFoundError: No such workflow for this caller.
        ConflictError: ``workflow_deleted``.
        SealedError: The vault is locked.
        VaultError: Something does not open or contradicts the sealed head.
    """
    opened = ledger.peek(connection, caller, workflow_id)
    operations = ledger.operations(connection, opened)
    now_us = ledger.read_clock(connection.execute(statements.VAULT).one().now_us).now_us
    return view(connection, opened, operations, now_us=now_us)


def definitions(connection: Connection, opened: Opened) -> list[dict[str, Any]]:
    """Return the definitions of a workflow as it was created, in order. Raises as `view`."""
    rows = connection.execute(statements.DEFINITIONS, {"workflow_pk": opened.workflow_pk}).all()
    if len(rows) != len(opened.workflow.standings):
        raise IntegrityError("A definition of the workflow is missing.")
    return [open_json(opened, row.sealed_definition, definition_place(opened.workflow_id, row.ordinal)) for row in rows]


def summary(opened: Opened, operations: Sequence[Operation], *, workspace: str, now_us: int) -> dict[str, Any]:
    """Return one line of a list: no definitions, arguments or receipts."""
    return {
        **_head(opened, operations, workspace=workspace, now_us=now_us),
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


def unreadable(row: AnyRow) -> dict[str, Any]:
    """Return the line of a workflow that does not open: its clear columns, and the master key that its own names."""
    return {
        "format": FORMAT,
        "workflow_id": row.workflow_id,
        "workflow_key": "",
        "scope": scope(row.workspace, run_id=row.workflow_id),
        "enabled": bool(row.enabled),
        "phase": row.phase,
        "creator_id": "",
        "creator_role": "",
        "created": seconds(row.created_at),
        "revision": row.revision,
        "clock_high_water": seconds(row.clock_high_water),
        "operations": [],
        "unreadable": True,
        "key_id": row.wrapping_key_id,
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


def _view(
    opened: Opened, operations: Sequence[Operation], written: Sequence[dict[str, Any]], receipts: Receipts, *,
    workspace: str, now_us: int,
) -> dict[str, Any]:  # fmt: skip
    return {
        **_head(opened, operations, workspace=workspace, now_us=now_us),
        "definitions": written,
        "operations": [
            {**definition, **_operation(operation, receipts)}
            for definition, operation in zip(written, operations, strict=True)
        ],
    }


def _head(opened: Opened, operations: Sequence[Operation], *, workspace: str, now_us: int) -> dict[str, Any]:
    workflow, origin = opened.workflow, opened.origin
    # Not the stored phase: a lease has run out or was renewed since that was written.
    following = next((operation for operation in operations if operation.status is not Status.COMPLETED), None)
    at_us = max(now_us, workflow.clock_high_water_us)
    phase = standpoint(workflow, following, opened.vault, now_us=at_us).phase.value
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
