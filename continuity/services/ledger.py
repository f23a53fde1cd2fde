"""Writes what became of a workflow: an event, the operation that it changed and the head, all of them or none.

Rules:

* `Ledger.record` writes all three in one go, so none of them can be forgotten. It is called inside
  `Store.write`; nothing is true before that has returned.
* What a decision reads is opened by `continuity.services.opening`, which a ledger can do as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from continuity import limits
from continuity.decisions import records
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
from continuity.decisions.model import Operation, Workflow
from continuity.decisions.phases import standpoint
from continuity.decisions.states import Status
from continuity.services import chains, proofs
from continuity.services.clockwatch import ClockWatch
from continuity.services.columns import head_columns, operation_columns
from continuity.services.opened import COORDINATORS, Opened, OpenedOperation
from continuity.services.opening import Opener
from continuity.services.sealing import event_place, receipt_place, seal_head, seal_json, state_place
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from continuity.vault.vault import Vault


def _nothing() -> None:
    """Stand in for a look at the disk, where there is none to look at."""


class Ledger(Opener):
    """Opens, checks and records workflows. Safe to share between threads."""

    def __init__(
        self,
        vault: Vault,
        watch: ClockWatch,
        *,
        history_bytes: int = limits.COORDINATOR_HISTORY_BYTES,
        require_room: Callable[[], None] = _nothing,
    ) -> None:
        """Keep the vault, the clock, a coordinator's budget in bytes, and what refuses new work on a full disk."""
        super().__init__(vault, watch)
        self._history_bytes = history_bytes
        self._require_room = require_room

    @property
    def history_bytes(self) -> int:
        """A coordinator's budget of retained history."""
        return self._history_bytes

    def require_room(self) -> None:
        """Refuse what is new while the disk is nearly full; what was granted may still be recorded.

        Raises:
            StorageLowError: It is. Nothing has happened.
        """
        self._require_room()

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
        self.note_change(event.at_us)
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
