"""Opens what a decision reads and seals what it writes: the one place where rows become values and back.

Rules:

* Every clear column that a decision reads also stands in the sealed head or state. A difference is
  `IntegrityError`: dispatch stops, nothing is repeated.
* `Ledger.record` writes an event, the operation it changed and the head in one go, so none of them can be
  forgotten. It is called inside `Store.write`; nothing is true before that has returned.
* A workflow's partition id is its workflow_id; rows are named by what names them in their table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from continuity import limits
from continuity.decisions import records
from continuity.decisions.clocks import Reading
from continuity.decisions.events import (
    AttemptGranted,
    Event,
    LateReceiptKept,
    OperationEvent,
    OutcomeRecorded,
    WorkflowDeleting,
    WorkflowEnabled,
    WorkflowPaused,
    evolve,
    evolve_workflow,
)
from continuity.decisions.model import Operation, VaultFacts, Workflow
from continuity.decisions.phases import Standpoint, standpoint
from continuity.decisions.states import Status
from continuity.errors import (
    ConflictError,
    DecryptionError,
    IntegrityError,
    NotFoundError,
    OperationNotFoundError,
    SealedError,
)
from continuity.services import chains, proofs
from continuity.services.callers import Caller, CallerKind
from continuity.services.clockwatch import ClockWatch
from continuity.services.proofs import Counters
from continuity.store import workflows as statements
from continuity.vault.place import Place

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.store.compiled import Compiled
    from continuity.store.workflows import AnyRow
    from continuity.vault.partition import PartitionKey
    from continuity.vault.vault import Vault

# Kept, as `json.dumps` makes a new encoder for every value when it is told how to write.
_RECORD: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

COORDINATORS: Final = "coordinator"
OPERATORS: Final = "operators"


@dataclass(frozen=True, slots=True)
class Origin:
    """What never changes about a workflow.

    Attributes:
        workflow_key: The host's key.
        workspace_pk: Its workspace.
        owner_pk: Its key namespace.
        namespace: ``operators`` or ``coordinator``.
        creator: Principal that created it.
        creator_role: Kind of that principal on the wire.
        created_us: When.
    """

    workflow_key: str
    workspace_pk: int
    owner_pk: int
    namespace: str
    creator: str
    creator_role: str
    created_us: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A workflow as a decision reads it, under its lock.

    Attributes:
        workflow_pk: Its row.
        key: Its data key.
        workflow: Its head.
        origin: What never changes.
        vault: What must be known of the vault.
        chain_seq: Sequence number of its last event.
        chain_hash: Hash of its last event.
        head_bytes: Stored size of the sealed head.
        retained_bytes: Stored size of all its sealed columns.
        reserved_bytes: Kept free for receipts of its attempts.
        deleting_at: When its deletion began.
        counters: Its coordinator's, where they were read with it.
    """

    workflow_pk: int
    key: PartitionKey = field(repr=False)
    workflow: Workflow
    origin: Origin
    vault: VaultFacts
    chain_seq: int
    chain_hash: bytes
    head_bytes: int
    retained_bytes: int
    reserved_bytes: int
    deleting_at: int | None
    counters: Counters | None = None

    @property
    def workflow_id(self) -> str:
        """``wf_…``."""
        return self.workflow.workflow_id


@dataclass(frozen=True, slots=True)
class OpenedOperation:
    """An operation as a decision reads it.

    Attributes:
        operation: Its state.
        state_bytes: Stored size of that state.
        database_us: The database's time when it was read, None where the host's clock decides.
        definition: Its definition as it was created, where it was asked for.
    """

    operation: Operation
    state_bytes: int
    database_us: int | None
    definition: Mapping[str, Any] | None = field(default=None, repr=False)


def head_place(workflow_id: str) -> Place:
    """Return where a sealed head stands."""
    return Place("continuity_workflows", workflow_id, workflow_id, "sealed_head")


def state_place(workflow_id: str, ordinal: int) -> Place:
    """Return where an operation's sealed state stands."""
    return Place("continuity_operations", workflow_id, str(ordinal), "sealed_state")


def definition_place(workflow_id: str, ordinal: int) -> Place:
    """Return where an operation's sealed definition stands."""
    return Place("continuity_definitions", workflow_id, str(ordinal), "sealed_definition")


def receipt_place(workflow_id: str, ordinal: int, seq: int) -> Place:
    """Return where a sealed receipt stands."""
    return Place("continuity_receipts", workflow_id, f"{ordinal}.{seq}", "sealed_receipt")


def event_place(workflow_id: str, seq: int) -> Place:
    """Return where a sealed event stands."""
    return Place("continuity_events", workflow_id, str(seq), "sealed_event")


def to_bytes(value: Any) -> bytes:
    """Write a record for sealing: compact JSON, UTF-8."""
    return _RECORD.encode(value).encode()


def vault_facts(row: AnyRow) -> VaultFacts:
    """Read what a decision must know of the vault; `Ledger.facts` compares it with its proof as well.

    Raises:
        SealedError: The vault is locked. Nothing has happened.
    """
    if row.vault_state == "locked":
        raise SealedError("The vault is locked. Nothing was done.")
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


def was_deleted() -> ConflictError:
    """Make the answer to whoever may know of a workflow that was deleted."""
    return ConflictError("This workflow was deleted; its key cannot be used again.", code="workflow_deleted")


class Ledger:
    """Opens, checks and records workflows. Safe to share between threads."""

    def __init__(
        self, vault: Vault, watch: ClockWatch, *, history_bytes: int = limits.COORDINATOR_HISTORY_BYTES
    ) -> None:
        """Keep the vault, the clock and a coordinator's budget in bytes."""
        self._vault = vault
        self._watch = watch
        self._history_bytes = history_bytes
        self._proved: tuple[Any, ...] = ()

    @property
    def vault(self) -> Vault:
        """The vault, for blind indexes."""
        return self._vault

    @property
    def history_bytes(self) -> int:
        """A coordinator's budget of retained history."""
        return self._history_bytes

    def read_clock(self, database_us: int | None = None) -> Reading:
        """Read the clock; call it after the workflow's row is locked."""
        return self._watch.read(database_us)

    def facts(self, row: AnyRow) -> VaultFacts:
        """Read what a decision must know of the vault, and compare it with its proof.

        Raises:
            SealedError: The vault is locked. Nothing has happened.
            IntegrityError: The vault's row is not what was written last. Nothing has happened.
        """
        facts = vault_facts(row)
        # It changes once a second; the same values with the same proof need not be proved for each row of a list.
        stands = (facts, row.vault_state, row.capture_mode, row.vault_proof)
        if stands != self._proved:
            proofs.check_vault(self._vault, row)
            self._proved = stands
        return facts

    # ---- opening

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
            raise was_deleted()
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
                raise was_deleted() from None
            raise
        head = json.loads(key.open(row.sealed_head, place=head_place(workflow_id)))
        workflow = records.workflow_from_json(head, workflow_id=workflow_id)
        origin = Origin(*head["origin"])
        _check_head(row, workflow, origin)
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
        _check_operation(row, operation, opened.workflow)
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

    # ---- recording

    def record(
        self, connection: Connection, opened: Opened, found: OpenedOperation, event: OperationEvent, *,
        receipt: bytes | None = None,
    ) -> tuple[Workflow, Operation]:  # fmt: skip
        """Write an event and everything it changes. Call it inside `Store.write`.

        Args:
            connection: The transaction.
            opened: The workflow, locked.
            found: The operation that the event concerns.
            event: What happened.
            receipt: Canonical bytes of the receipt that the event is about.

        Returns:
            Workflow and operation after the event.

        Raises:
            ConflictError: ``coordinator_history_limit``. Nothing has happened once `Store.write` has left.
        """
        workflow, operation = evolve(opened.workflow, found.operation, event, seq=opened.chain_seq + 1)
        state = self.save_operation(connection, opened, operation)
        written = len(state) - found.state_bytes
        if receipt is not None:
            written += self._keep_receipt(connection, opened, operation, event, receipt)
        following = self._following(connection, opened, workflow, operation)
        reserved = _reservation(found.operation, event)
        self._advance(connection, opened, workflow, following, event, written=written, reserved=reserved)
        return workflow, operation

    def record_control(
        self, connection: Connection, opened: Opened, event: WorkflowEnabled | WorkflowPaused | WorkflowDeleting
    ) -> Workflow:
        """Write an event that concerns no single operation. Call it inside `Store.write`."""
        workflow = evolve_workflow(opened.workflow, event)
        following = self._following(connection, opened, workflow, None)
        self._advance(connection, opened, workflow, following, event, written=0, reserved=0)
        return workflow

    def save_operation(self, connection: Connection, opened: Opened, operation: Operation) -> bytes:
        """Seal and write an operation's state; returns the sealed bytes."""
        sealed = seal_json(
            opened.key, records.operation_to_json(operation), state_place(opened.workflow_id, operation.ordinal)
        )
        statements.update_operation(
            connection, opened.workflow_pk, operation.ordinal, operation_columns(operation, sealed)
        )
        return sealed

    def _keep_receipt(
        self, connection: Connection, opened: Opened, operation: Operation, event: OperationEvent, receipt: bytes
    ) -> int:
        is_late = isinstance(event, LateReceiptKept)
        seq = len(operation.late) if is_late else _ending_seq(operation)
        attempt_id = event.attempt_id if isinstance(event, OutcomeRecorded | LateReceiptKept) else ""
        sealed = opened.key.seal(receipt, place=receipt_place(opened.workflow_id, operation.ordinal, seq))
        statements.insert_receipt(connection, {
            "workflow_pk": opened.workflow_pk, "ordinal": operation.ordinal, "seq": seq,
            "attempt_no": _attempt_no(operation, attempt_id), "received_at": event.at_us, "sealed_receipt": sealed,
        })  # fmt: skip
        return len(sealed)

    def _following(
        self, connection: Connection, opened: Opened, workflow: Workflow, changed: Operation | None
    ) -> Operation | None:
        """Return the first operation that is not completed, after an event."""
        ordinal = workflow.done_prefix
        if ordinal == len(workflow.standings):
            return None
        if changed is not None and changed.ordinal == ordinal:
            return changed
        standing = workflow.standings[ordinal]
        came_up = changed is not None and changed.ordinal == opened.workflow.done_prefix < ordinal
        if came_up and standing.status is Status.PENDING:
            # Nothing behind an unfinished operation is ever begun: its standing says all there is to know.
            return Operation(
                ordinal, "", "", "", can_query=False, is_idempotent=False, timeout_us=0, retention_us=0,
                absence_us=None, epoch=standing.epoch,
            )  # fmt: skip
        return self.operation_at(connection, replace(opened, workflow=workflow), ordinal).operation

    def _advance(
        self, connection: Connection, opened: Opened, workflow: Workflow, following: Operation | None, event: Event,
        *, written: int, reserved: int,
    ) -> None:  # fmt: skip
        """Append the event and write the head, the counters last."""
        seq = opened.chain_seq + 1
        place = event_place(opened.workflow_id, seq)
        sealed_event = seal_json(opened.key, records.event_to_json(event), place)
        chain = chains.link(
            opened.workflow_id, seq=seq, kind=event.kind.value, at_us=event.at_us, sealed_event=sealed_event,
            previous=opened.chain_hash,
        )  # fmt: skip
        statements.insert_event(connection, {
            "workflow_pk": opened.workflow_pk, "seq": seq, "kind": event.kind.value, "at": event.at_us,
            "hash": chain, "sealed_event": sealed_event,
        })  # fmt: skip
        view = standpoint(workflow, following, opened.vault, now_us=event.at_us)
        sealed_head = seal_head(opened.key, workflow, opened.origin, seq=seq, chain=chain)
        written += len(sealed_event) + len(sealed_head) - opened.head_bytes
        deleting_at = event.at_us if isinstance(event, WorkflowDeleting) else opened.deleting_at
        statements.update_workflow(connection, opened.workflow_pk, {
            **head_columns(workflow, view),
            "changed_at": event.at_us,
            "deleting_at": deleting_at,
            "retained_bytes": opened.retained_bytes + written,
            "reserved_bytes": opened.reserved_bytes + reserved,
            "sealed_head": sealed_head,
        })  # fmt: skip
        if opened.origin.namespace == COORDINATORS:
            self._count(connection, opened, workflow, event, written=written, reserved=reserved)

    def _count(
        self, connection: Connection, opened: Opened, workflow: Workflow, event: Event, *, written: int, reserved: int
    ) -> None:
        unfinished = int(workflow.is_unfinished_work) - int(opened.workflow.is_unfinished_work)
        proofs.count(
            connection, self._vault, opened.origin.owner_pk, known=opened.counters,
            change={"unfinished": unfinished, "retained": written, "reserved": reserved},
            budget_bytes=self._history_bytes if isinstance(event, AttemptGranted) else None,
        )  # fmt: skip


def is_visible(row: AnyRow, caller: Caller) -> bool:
    """Say whether a workflow's row is the caller's to know. Reads the row, never what the request says."""
    if caller.kind is CallerKind.WORKER:
        return bool(row.workflow_id == caller.workflow_id)
    if caller.kind is CallerKind.COORDINATOR:
        return bool(row.owner_pk == caller.owner_pk)
    return caller.workspaces is None or row.workspace_pk in caller.workspaces


def seal_json(key: PartitionKey, value: Any, place: Place) -> bytes:
    """Seal a record for its place."""
    return key.seal(to_bytes(value), place=place)


def open_json(opened: Opened, sealed: bytes, place: Place) -> Any:
    """Open a sealed JSON value."""
    return json.loads(opened.key.open(sealed, place=place))


def seal_head(key: PartitionKey, workflow: Workflow, origin: Origin, *, seq: int, chain: bytes) -> bytes:
    """Seal a head: state, origin and the end of the event chain."""
    head = records.workflow_to_json(workflow)
    head["origin"] = [
        origin.workflow_key, origin.workspace_pk, origin.owner_pk, origin.namespace, origin.creator,
        origin.creator_role, origin.created_us,
    ]  # fmt: skip
    head["chain"] = [seq, chain.hex()]
    return seal_json(key, head, head_place(workflow.workflow_id))


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


def _check_head(row: AnyRow, workflow: Workflow, origin: Origin) -> None:
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


def _check_operation(row: AnyRow, operation: Operation, workflow: Workflow) -> None:
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


def _attempt_no(operation: Operation, attempt_id: str) -> int:
    """Return the number of an attempt, from 1; 0 when it was never issued."""
    for number, attempt in enumerate(operation.attempts, start=1):
        if attempt.attempt_id == attempt_id:
            return number
    return 0


def _ending_seq(operation: Operation) -> int:
    """Return where the receipt that ended an attempt is kept: 0 when it is the operation's own, else -number."""
    return 0 if operation.is_final else -len(operation.attempts)


def _reservation(before: Operation, event: OperationEvent) -> int:
    """Return by how much the bytes reserved for receipts change."""
    if isinstance(event, AttemptGranted):
        return limits.ATTEMPT_RESERVATION_BYTES
    if isinstance(event, OutcomeRecorded):
        return -limits.ATTEMPT_RESERVATION_BYTES
    if isinstance(event, LateReceiptKept) and event.is_proved and not event.is_extra:
        attempt = before.find(event.attempt_id)
        if attempt is not None and not attempt.has_ended:
            return -limits.ATTEMPT_RESERVATION_BYTES
    return 0
