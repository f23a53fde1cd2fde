"""Opens rows for decisions and views: who may know of a workflow, its head, its operations, its receipts.

Rules:

* What is opened is compared with the clear columns beside it (`continuity.services.columns`).
* Whoever may not know of a workflow is answered as if there were none.
* Nothing is written here; `continuity.services.ledger` does that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from continuity.decisions import records
from continuity.decisions.clocks import Reading
from continuity.decisions.model import Operation, VaultFacts
from continuity.errors import (
    ConflictError,
    DecryptionError,
    IntegrityError,
    NotFoundError,
    OperationNotFoundError,
    SealedError,
)
from continuity.services import proofs
from continuity.services.callers import Caller, CallerKind
from continuity.services.clockwatch import ClockWatch
from continuity.services.columns import check_head, check_operation
from continuity.services.opened import Opened, OpenedOperation, Origin
from continuity.services.sealing import definition_place, head_place, open_json, receipt_place, state_place
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.store.compiled import Compiled
    from continuity.store.workflows import AnyRow
    from continuity.vault.vault import Vault


def vault_facts(row: AnyRow) -> VaultFacts:
    """Read what a decision must know of the vault; `Opener.facts` compares it with its proof as well.

    Raises:
        SealedError: The vault is locked. Nothing has happened.
    """
    if row.vault_state == "locked":
        raise SealedError("The vault is locked. Nothing was done.")
    return facts_of(row)


def facts_of(row: AnyRow) -> VaultFacts:
    """Read the same of a vault in whatever state, for who decides nothing by it."""
    return VaultFacts(
        is_capture_full=row.capture_mode == "full",
        clock_high_water_us=row.vault_mark,
        epoch=row.vault_epoch,
        restored_us=row.restored_at,
        is_recovery_open=bool(row.recovery_open),
    )


def no_such_workflow() -> NotFoundError:
    """Make the one answer to an id that is not the caller's to know."""
    return NotFoundError("There is no such workflow.")


def was_deleted(workflow_id: str) -> ConflictError:
    """Make the answer to whoever may know of a workflow that was deleted."""
    return ConflictError(
        "This workflow was deleted; its key cannot be used again.", code="workflow_deleted", workflow_id=workflow_id
    )


def is_visible(row: AnyRow, caller: Caller) -> bool:
    """Say whether a workflow's row is the caller's to know. Reads the row, never what the request says."""
    if caller.kind is CallerKind.WORKER:
        return bool(row.workflow_id == caller.workflow_id)
    if caller.kind is CallerKind.COORDINATOR:
        return bool(row.owner_pk == caller.owner_pk)
    if caller.kind not in {CallerKind.PERSON, CallerKind.OPERATOR}:
        return False
    return caller.workspaces is None or row.workspace_pk in caller.workspaces


class Opener:
    """Opens and checks workflows. Safe to share between threads."""

    def __init__(self, vault: Vault, watch: ClockWatch) -> None:
        """Keep the vault and the clock."""
        self._vault = vault
        self._watch = watch
        self._proved: tuple[Any, ...] = ()

    @property
    def vault(self) -> Vault:
        """The vault, for blind indexes."""
        return self._vault

    def read_clock(self, database_us: int | None = None) -> Reading:
        """Read the clock; call it after the workflow's row is locked."""
        return self._watch.read(database_us)

    def note_change(self, at_us: int) -> None:
        """Remember when something that a clock mark guards was changed, so that the vault's mark follows."""
        self._watch.note_change(at_us)

    def facts(self, row: AnyRow) -> VaultFacts:
        """Read what a decision must know of the vault, and compare it with its proof.

        Raises:
            SealedError: The vault is locked. Nothing has happened.
            IntegrityError: The vault's row is not what was written last. Nothing has happened.
        """
        facts = vault_facts(row)
        if self._vault.is_locked:
            # Here at least: what was proved before needs no key, and nothing is answered without one.
            raise SealedError("The vault is locked. Nothing was done.")
        # It changes once a second; the same values with the same proof need not be proved for each row of a list.
        stands = (facts, row.vault_state, row.capture_mode, row.vault_proof)
        if stands != self._proved:
            proofs.check_vault(self._vault, row)
            self._proved = stands
        return facts

    def lock(self, connection: Connection, caller: Caller, workflow_id: str) -> Opened:
        """Lock a workflow for a decision and open its head.

        Raises:
            NotFoundError: It does not exist or is not the caller's to know.
            ConflictError: ``workflow_deleted``.
            SealedError: The vault is locked.
            VaultError: It does not open, or its columns contradict it. Nothing has happened.
        """
        if caller.kind is not CallerKind.COORDINATOR:
            row = statements.LOCKED_HEAD_HOT.one_or_none(connection, {"workflow_id": workflow_id})
            return self.open(row, caller)
        row = statements.LOCKED_HEAD_AND_COUNTERS_HOT.one_or_none(connection, {"workflow_id": workflow_id})
        opened = self.open(row, caller)
        return replace(opened, counters=proofs.proved_counters(self._vault, row))

    def peek(self, connection: Connection, caller: Caller, workflow_id: str) -> Opened:
        """Open a workflow's head without a lock, for reading. Raises as `lock`."""
        row = connection.execute(statements.HEAD_BY_ID, {"workflow_id": workflow_id}).one_or_none()
        return self.open(row, caller)

    def open(self, row: AnyRow | None, caller: Caller) -> Opened:
        """Check that a row is the caller's to know and open its head. Raises as `lock`."""
        if row is None or not is_visible(row, caller):
            raise no_such_workflow()
        vault = self.facts(row)
        if row.deleted_at is not None or row.deleting_at is not None:
            raise was_deleted(row.workflow_id)
        return self.unseal(row, vault)

    def unseal(self, row: AnyRow, vault: VaultFacts) -> Opened:
        """Open the head of a row that is known to exist.

        Raises:
            ConflictError: ``workflow_deleted``: the row is older than the shred list, which no snapshot holds still.
            VaultError: It does not open, or row and head differ.
        """
        workflow_id: str = row.workflow_id
        try:
            key = self._vault.open_partition(workflow_id, row.wrapped_key, key_id=row.wrapping_key_id)
        except DecryptionError:
            if self._vault.has_shredded(workflow_id):
                raise was_deleted(workflow_id) from None
            raise
        head = json.loads(key.open(row.sealed_head, place=head_place(workflow_id)))
        workflow = records.workflow_from_json(head, workflow_id=workflow_id)
        origin = Origin(*head["origin"])
        check_head(row, workflow, origin)
        return Opened(
            workflow_pk=row.workflow_pk,
            key=key,
            workflow=workflow,
            origin=origin,
            vault=vault,
            chain_seq=head["chain"][0],
            chain_hash=bytes.fromhex(head["chain"][1]),
            head_bytes=len(row.sealed_head),
            retained_bytes=row.retained_bytes,
            reserved_bytes=row.reserved_bytes,
            deleting_at=row.deleting_at,
        )

    def operation(self, connection: Connection, opened: Opened, name: str) -> OpenedOperation:
        """Open one operation by its name.

        Raises:
            OperationNotFoundError: The workflow has none of that name.
            VaultError: It does not open, or its columns contradict it. Nothing has happened.
        """
        return self._operation(connection, opened, statements.OPERATION_HOT, name)

    def operation_with_definition(self, connection: Connection, opened: Opened, name: str) -> OpenedOperation:
        """Open one operation and its definition by its name. Raises as `operation`."""
        found = self._operation(connection, opened, statements.OPERATION_AND_DEFINITION_HOT, name)
        if found.definition is None:
            raise IntegrityError("The definition of the operation is missing.")
        return found

    def operation_at(self, connection: Connection, opened: Opened, ordinal: int) -> OpenedOperation:
        """Open the operation at a place of the workflow. Raises as `operation`."""
        place = {"workflow_pk": opened.workflow_pk, "ordinal": ordinal}
        row = connection.execute(statements.OPERATION_AT, place).one_or_none()
        return self.open_operation(row, opened)

    def operations(self, connection: Connection, opened: Opened) -> list[Operation]:
        """Open all operations, in their order. Raises `VaultError` when one is missing or damaged."""
        rows = connection.execute(statements.OPERATIONS, {"workflow_pk": opened.workflow_pk}).all()
        return self.open_operations(rows, opened)

    def open_operations(self, rows: Sequence[AnyRow], opened: Opened) -> list[Operation]:
        """Open the rows of all operations of a workflow. Raises as `operations`."""
        if len(rows) != len(opened.workflow.standings):
            raise IntegrityError("An operation of the workflow is missing.")
        return [self.open_operation(row, opened).operation for row in rows]

    def _operation(self, connection: Connection, opened: Opened, statement: Compiled, name: str) -> OpenedOperation:
        place = {"workflow_pk": opened.workflow_pk, "name_ix": self.name_index(name)}
        row = statement.one_or_none(connection, place)
        if row is None:
            raise OperationNotFoundError("The workflow has no operation of this name.")
        found = self.open_operation(row, opened)
        if found.operation.name != name:
            raise IntegrityError("The index of an operation's name is that of another. Nothing was done.")
        return found

    def open_operation(self, row: AnyRow | None, opened: Opened) -> OpenedOperation:
        """Open the row of an operation that must exist. Raises `VaultError`."""
        if row is None or not 0 <= row.ordinal < len(opened.workflow.standings):
            raise IntegrityError("An operation of the workflow is missing.")
        place = state_place(opened.workflow_id, row.ordinal)
        state = json.loads(opened.key.open(row.sealed_state, place=place))
        operation = records.operation_from_json(state, ordinal=row.ordinal)
        check_operation(row, operation, opened.workflow)
        return OpenedOperation(
            operation=operation,
            state_bytes=len(row.sealed_state),
            database_us=row.now_us,
            definition=self._definition(row, opened),
        )

    def _definition(self, row: AnyRow, opened: Opened) -> Mapping[str, Any] | None:
        sealed = getattr(row, "sealed_definition", None)
        if sealed is None:
            return None
        definition: Mapping[str, Any] = open_json(opened, sealed, definition_place(opened.workflow_id, row.ordinal))
        return definition

    def accepted_receipt(self, connection: Connection, opened: Opened, ordinal: int) -> Mapping[str, Any]:
        """Return the receipt that completed or refused an operation.

        Raises:
            VaultError: It is missing or does not open.
        """
        key = {"workflow_pk": opened.workflow_pk, "ordinal": ordinal, "seq": 0}
        sealed = connection.execute(statements.RECEIPT, key).scalar_one_or_none()
        if sealed is None:
            raise IntegrityError("The saved receipt is missing.")
        receipt: Mapping[str, Any] = open_json(opened, sealed, receipt_place(opened.workflow_id, ordinal, 0))
        return receipt

    def name_index(self, name: str) -> bytes:
        """Return the blind index of an operation's name."""
        return self._vault.index("operation_name", name)
