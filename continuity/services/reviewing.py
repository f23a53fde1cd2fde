"""What a person must know to decide about a workflow: its view, and where each operation stands now.

The standing of an operation is what a begin would be told at this moment if recovery were enabled, and from
when on a person may attest. Reading it is a view of exact evidence: it is written to the audit log before
anything is returned. `Reviewing.pulse` is the cheap question of a poll; it opens nothing sealed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from continuity import limits
from continuity.decisions import clocks, controls
from continuity.decisions.beginning import Question, Reason, absence_final_from_us, decide_begin, window_end_us
from continuity.decisions.states import Status
from continuity.services import documents
from continuity.services.audit import AuditEntry
from continuity.services.documents import seconds
from continuity.services.opening import is_visible, no_such_workflow
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.clocks import Reading
    from continuity.decisions.model import Operation
    from continuity.services.audit import AuditLog
    from continuity.services.callers import Caller
    from continuity.services.ledger import Ledger
    from continuity.services.opened import Opened
    from continuity.store.store import Store


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a poll compares.

    Attributes:
        revision: The workflow's revision.
        changed_at: When anything of it changed last, Unix seconds; late receipts take no revision.
        phase: Its phase now.
    """

    revision: int
    changed_at: float
    phase: str

    @property
    def mark(self) -> str:
        """One word that differs whenever a page would look different."""
        return f"{self.revision}-{round(self.changed_at * limits.SECOND_US)}-{self.phase}"


@dataclass(frozen=True, slots=True)
class Reviewing:
    """Use cases of people who review.

    Attributes:
        store: Where everything is read, and the look itself written.
        ledger: Opens workflows.
        audit: The audit log.
    """

    store: Store
    ledger: Ledger
    audit: AuditLog

    def review(self, caller: Caller, workflow_id: str) -> dict[str, Any]:
        """Return everything about a workflow that a person decides by.

        Returns:
            The view with ``history``, ``now`` (Unix seconds), ``pulse``, ``is_capture_full`` and, in each operation,
            ``standing``: ``action`` and ``reason`` of the next begin, ``is_live``, ``window_end``,
            ``absence_from`` and ``attempts_left``.

        Raises:
            NotFoundError: No such workflow for this caller.
            ConflictError: ``workflow_deleted``.
            SealedError: The vault is locked.
        """

        def work(connection: Connection) -> tuple[dict[str, Any], int]:
            row = connection.execute(statements.HEAD_BY_ID, {"workflow_id": workflow_id}).one_or_none()
            opened = self.ledger.open(row, caller)
            reading = self.ledger.read_clock(connection.execute(statements.VAULT).one().now_us)
            operations = self.ledger.operations(connection, opened)
            view = documents.view(connection, opened, operations, now_us=reading.now_us)
            for shown, operation in zip(view["operations"], operations, strict=True):
                shown["standing"] = _standing(opened, operation, reading)
            names = [operation.name for operation in operations]
            review = {
                **view,
                "history": documents.history(connection, opened, names),
                "now": seconds(reading.now_us),
                "is_capture_full": opened.vault.is_capture_full,
                "pulse": pulse_of(row, reading.now_us).mark,
            }
            return review, reading.now_us

        review, now_us = self.store.read(work)
        note_view(self.store, self.audit, caller, workflow_id, now_us=now_us)
        return review

    def pulse(self, caller: Caller, workflow_id: str) -> Pulse:
        """Return what a poll compares; nothing sealed is opened and nothing is written.

        Raises:
            NotFoundError: No such workflow for this caller, or it was deleted.
            SealedError: The vault is locked.
        """

        def work(connection: Connection) -> Pulse:
            row = connection.execute(statements.HEAD_BY_ID, {"workflow_id": workflow_id}).one_or_none()
            is_gone = row is not None and (row.deleting_at is not None or row.deleted_at is not None)
            if row is None or is_gone or not is_visible(row, caller):
                raise no_such_workflow()
            self.ledger.facts(row)
            return pulse_of(row, self.ledger.read_clock(row.now_us).now_us)

        return self.store.autocommit(work)


def note_view(store: Store, audit: AuditLog, caller: Caller, workflow_id: str, *, now_us: int) -> None:
    """Write to the audit log that a person has looked.

    After the reading, for which no writer waits, and before anything is returned.

    Raises:
        UnavailableError: Storage cannot answer; then nobody must see what was read.
    """
    entry = AuditEntry(
        action="workflow.viewed", actor=caller.actor, object_id=workflow_id, result="done",
        request_id=caller.request_id,
    )  # fmt: skip
    store.write(lambda connection: audit.append(connection, entry, now_us=now_us))


def pulse_of(row: Any, now_us: int) -> Pulse:
    """Return what a poll compares, from a workflow's row."""
    is_due = row.phase_due_at is not None and row.phase_due_at <= now_us
    return Pulse(row.revision, seconds(row.changed_at), row.phase_after_due if is_due else row.phase)


def _standing(opened: Opened, operation: Operation, reading: Reading) -> dict[str, Any]:
    marks = (opened.workflow.clock_high_water_us, opened.vault.clock_high_water_us)
    now_us = clocks.stamp_us(reading, *marks)
    enabled = replace(opened.workflow, is_enabled=True)
    captured = replace(opened.vault, is_capture_full=True)
    verdict = decide_begin(Question(enabled, operation, captured, "", now_us, reading))
    live = operation.live_attempt(now_us)
    window_us, absence_us = window_end_us(operation), absence_final_from_us(operation)
    return {
        "action": verdict.action.value,
        "reason": verdict.reason.value,
        "is_live": live is not None,
        "lease_until": None if live is None else seconds(live.lease_until_us),
        "is_first": operation.status is Status.PENDING and verdict.reason is Reason.AUTHORIZED,
        "window_end": None if window_us is None else seconds(window_us),
        "absence_final_from": None if absence_us is None else seconds(absence_us),
        "absence_from": seconds(controls.absence_can_be_attested_from_us(operation, opened.vault, reading)),
        "attempts_left": limits.ATTEMPTS_PER_OPERATION - len(operation.attempts),
    }
