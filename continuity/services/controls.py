"""What people, and operators' credentials, do with a workflow: enable, pause, stop, confirm.

Each leaves its trace twice in the same transaction: in the workflow's history and in the audit log. Free
text (a reason) is sealed in both. The view that it answers with is read afterwards, and may show what others
have done since; if the vault is locked, storage fails or the workflow is deleted just there, the control was done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from continuity.decisions import clocks, controls
from continuity.errors import MalformedError
from continuity.jsontext import canonical_bytes
from continuity.services import documents
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind
from continuity.services.identifiers import body_digest
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.clocks import Reading
    from continuity.services.audit import AuditLog
    from continuity.services.ledger import Ledger
    from continuity.services.opened import Opened
    from continuity.store.store import Store
    from continuity.wire import AbandonRequest, ConfigureRequest, ConfirmRequest


@dataclass(frozen=True, slots=True)
class Controls:
    """Use cases of operators.

    Attributes:
        store: Where everything is written.
        ledger: Opens and records workflows.
        audit: The audit log.
    """

    store: Store
    ledger: Ledger
    audit: AuditLog

    def configure(self, caller: Caller, workflow_id: str, request: ConfigureRequest) -> dict[str, Any]:
        """Enable recovery or pause new attempts.

        Returns:
            The view afterwards; nothing changes when it is so already, or when the workflow is finished and
            it would make no difference: a pause of any, enabling one without a saved receipt.

        Raises:
            MalformedError: A person sent no ``revision``. Nothing has happened.
            NotFoundError: No such workflow for this caller. Nothing has happened.
            ConflictError: ``workflow_deleted, stale_revision, capture_not_full, clock_moved_backwards``
                or ``workflow_revision_limit_reached``. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
        """
        _require_seen(caller, request.revision)

        def act(connection: Connection, opened: Opened, reading: Reading) -> Mapping[str, Any] | None:
            controls.require_revision(opened.workflow, request.revision)
            marks = (opened.workflow.clock_high_water_us, opened.vault.clock_high_water_us)
            if request.enabled:
                at_us = clocks.dispatch_time_us(reading, *marks)
                enabled = controls.decide_enable(opened.workflow, opened.vault, actor=caller.actor, at_us=at_us)
                if enabled is not None:
                    self.ledger.record_control(connection, opened, enabled)
                return None if enabled is None else {}
            at_us = clocks.stamp_us(reading, *marks)
            paused = controls.decide_pause(opened.workflow, actor=caller.actor, at_us=at_us)
            if paused is not None:
                self.ledger.record_control(connection, opened, paused)
            return None if paused is None else {}

        action = "workflow.enabled" if request.enabled else "workflow.paused"
        return self._control(caller, workflow_id, action, act)

    def abandon(self, caller: Caller, workflow_id: str, request: AbandonRequest) -> dict[str, Any]:
        """Stop one operation for good. It is never called completed; what depends on it stays blocked.

        Returns:
            The view afterwards.

        Raises:
            MalformedError: A person sent no ``revision``. Nothing has happened.
            NotFoundError: No such workflow or operation for this caller. Nothing has happened.
            ConflictError: ``workflow_deleted, stale_revision, operation_final, lease_live`` or
                ``workflow_revision_limit_reached``. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
        """
        _require_seen(caller, request.revision)

        def act(connection: Connection, opened: Opened, reading: Reading) -> Mapping[str, Any]:
            found = self.ledger.operation(connection, opened, request.name)
            controls.require_revision(opened.workflow, request.revision)
            event = controls.decide_abandon(
                opened.workflow, found.operation, actor=caller.actor, reason=request.reason,
                at_us=_stamp_us(opened, reading),
            )  # fmt: skip
            self.ledger.record(connection, opened, found, event)
            return {"operation": request.name, "reason": request.reason}

        return self._control(caller, workflow_id, "workflow.operation_stopped", act)

    def confirm(self, caller: Caller, workflow_id: str, request: ConfirmRequest) -> dict[str, Any]:
        """Record a person's word on whether the effect happened.

        Returns:
            The view afterwards: completed with an ``operator_attested`` receipt, or pending for exactly
            one further execute.

        Raises:
            NotFoundError: No such workflow or operation for this caller. Nothing has happened.
            ConflictError: ``workflow_deleted, stale_revision, operation_final, lease_live,
                effect_may_still_land, attempt_limit_reached`` or ``workflow_revision_limit_reached``.
                Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
        """

        def act(connection: Connection, opened: Opened, reading: Reading) -> Mapping[str, Any]:
            found = self.ledger.operation(connection, opened, request.name)
            controls.require_revision(opened.workflow, request.revision)
            receipt = _attested_receipt(request, found.operation.operation_id)
            event = controls.decide_confirm(
                opened.workflow, found.operation, opened.vault, reading, happened=request.happened,
                late_receipts=request.late_receipts, reason=request.reason, actor=caller.actor,
                at_us=_stamp_us(opened, reading), digest=None if receipt is None else body_digest(receipt),
            )  # fmt: skip
            self.ledger.record(connection, opened, found, event, receipt=receipt)
            return {"operation": request.name, "happened": request.happened, "reason": request.reason}

        return self._control(caller, workflow_id, "workflow.outcome_confirmed", act)

    def _control(
        self, caller: Caller, workflow_id: str, action: str,
        act: Callable[[Connection, Opened, Reading], Mapping[str, Any] | None],
    ) -> dict[str, Any]:  # fmt: skip
        """Run one control and return the view; `act` returns what the audit log keeps, None for no change."""

        def work(connection: Connection) -> None:
            opened = self.ledger.lock(connection, caller, workflow_id)
            database_us = connection.execute(statements.VAULT).one().now_us
            reading = self.ledger.read_clock(database_us)
            detail = act(connection, opened, reading)
            if detail is not None:
                entry = AuditEntry(
                    action=action, actor=caller.actor, object_id=workflow_id, result="done",
                    request_id=caller.request_id, detail=detail or None,
                )  # fmt: skip
                self.audit.append(connection, entry, now_us=_stamp_us(opened, reading))

        self.store.write(work)
        # After the commit: a long history must not keep other writers waiting.
        return self.store.read(lambda connection: documents.current(connection, self.ledger, caller, workflow_id))


def _stamp_us(opened: Opened, reading: Reading) -> int:
    return clocks.stamp_us(reading, opened.workflow.clock_high_water_us, opened.vault.clock_high_water_us)


def _require_seen(caller: Caller, revision: int | None) -> None:
    if caller.kind is CallerKind.PERSON and revision is None:
        raise MalformedError("revision is required: the revision of the workflow that you saw.")


def _attested_receipt(request: ConfirmRequest, operation_id: str) -> bytes | None:
    if not request.happened:
        return None
    return canonical_bytes(
        {
            "outcome": "confirmed_succeeded",
            "operation_id": operation_id,
            "effect_id": request.effect_id,
            "result": request.result,
        }
    )
