"""Retention: finished workflows and runs of evidence that nothing has touched for so many days, found and deleted.

Of threads the old records of their journals are let go of; a thread itself is its owner's to delete.

Nothing is deleted by itself: whoever runs a place asks, batch by batch, first without `apply`. Each deletion is the one
of `continuity.services.deletion`, `evidence_deletion` or `threads_trimming`, with its own entries in the audit log, so
that a run of batches can be stopped and taken up again anywhere. The audit log itself is never touched.

What is kept, however old it is:

* work that is not finished, and evidence of a run of which a workflow has work left;
* a workflow with an operation whose idempotency key its destination still honours: the receipt is what proves the key
  was used;
* one with a late receipt that claims a success nobody has decided about;
* one with an attempt whose absence is not final yet by the destination's own word;
* the journal of a thread that is not at rest;
* what does not open: it is for a person to look at.

Nothing younger than a day is touched, so nothing that a page of a list still goes on after (fifteen minutes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from continuity.errors import ConflictError, DecryptionError, ForbiddenError, IntegrityError, NotFoundError
from continuity.limits import SECOND_US
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.candidates import UNREADABLE, Candidate, Looked, Window
from continuity.services.cursors import Cursors
from continuity.services.documents import seconds
from continuity.services.evidence_runs import run_index
from continuity.services.reviewing import pulse_of
from continuity.store import evidence, workflows
from continuity.store import retention as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.model import Operation
    from continuity.evidence import Retention
    from continuity.services.deletion import Deletions
    from continuity.services.evidence_deletion import EvidenceDeletions
    from continuity.services.evidence_reading import EvidenceReading
    from continuity.services.evidence_runs import EvidenceRuns
    from continuity.services.ledger import Ledger
    from continuity.services.threads_retention import OldJournals
    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow

WORKFLOWS: Final = "workflows"
THREADS: Final = "threads"
_DEEDS: Final = {"evidence": "delete evidence", THREADS: "trim threads"}
DAY_US: Final = 86_400 * SECOND_US


@dataclass(frozen=True, slots=True)
class Retaining:
    """The use case of whoever runs a place.

    Attributes:
        store: Where everything is read.
        ledger: Opens workflows.
        runs: Opens runs of evidence.
        reading: Tells the time.
        deletions: Deletes workflows.
        evidence_deletions: Deletes runs of evidence.
        journals: Finds old records of threads, and lets go of them.
    """

    store: Store
    ledger: Ledger
    runs: EvidenceRuns
    reading: EvidenceReading
    deletions: Deletions
    evidence_deletions: EvidenceDeletions
    journals: OldJournals

    def batch(self, caller: Caller, request: Retention) -> dict[str, Any]:
        """Look at one batch, and delete what is old in it if that is asked.

        Returns:
            ``kind, applied, before`` (Unix seconds), ``looked_at, younger, items`` (each ``id, name, changed, bytes,
            outcome``: ``would_delete, deleted`` or ``kept`` with ``because``; of a thread ``would_trim, trimmed`` or
            ``kept``, and how many ``records``) and ``next_cursor`` (None at the end).

        Raises:
            ForbiddenError: Evidence or threads, and the caller is no administrator. Nothing has happened.
            MalformedError: The cursor is not one of this question.
            SealedError: The vault is locked. What was deleted before stays deleted.
            UnavailableError: Storage cannot answer. What was deleted before stays deleted; ask again.
        """
        is_administrator = caller.kind is CallerKind.PERSON and caller.role is Role.ADMINISTRATOR
        if request.kind != WORKFLOWS and not is_administrator:
            raise ForbiddenError(f"Administrators alone {_DEEDS[request.kind]}.")

        def look(connection: Connection) -> tuple[Looked, int, str | None]:
            row = connection.execute(workflows.VAULT).one()
            now_us = self.reading.now_us(connection)
            cursors = Cursors(self.ledger.vault, caller.actor, request.question, row.vault_epoch)
            after = 0 if request.cursor is None else cursors.read(request.cursor, now_us=now_us)
            before_us = now_us - request.older_than_days * DAY_US
            looked = self._look(connection, caller, request.kind, Window(after, request.limit, before_us, now_us))
            cursor = None if looked.after is None else cursors.write(looked.after, now_us=now_us)
            return looked, before_us, cursor

        looked, before_us, cursor = self.store.read(look)
        return {
            "kind": request.kind,
            "applied": request.apply,
            "before": seconds(before_us),
            "looked_at": len(looked.candidates) + looked.younger,
            "younger": looked.younger,
            "items": [self._item(caller, request, candidate, before_us) for candidate in looked.candidates],
            "next_cursor": cursor,
        }

    def _look(self, connection: Connection, caller: Caller, kind: str, window: Window) -> Looked:
        if kind == THREADS:
            return self.journals.look(connection, window)
        find = self._workflows if kind == WORKFLOWS else self._evidence
        return find(connection, caller, window)

    def _item(self, caller: Caller, request: Retention, candidate: Candidate, before_us: int) -> dict[str, Any]:
        because = candidate.kept
        if because is None and request.apply:
            because = self._delete(caller, request.kind, candidate, before_us)
        done, would = ("trimmed", "would_trim") if request.kind == THREADS else ("deleted", "would_delete")
        outcome = done if request.apply else would
        item: dict[str, Any] = {
            "id": candidate.id, "name": candidate.name, "changed": seconds(candidate.changed_us),
            "bytes": candidate.size_bytes, "outcome": outcome if because is None else "kept",
        }  # fmt: skip
        if candidate.records is not None:
            item["records"] = candidate.records
        return item if because is None else {**item, "because": because}

    def _delete(self, caller: Caller, kind: str, candidate: Candidate, before_us: int) -> str | None:
        """Delete one, or of a thread what is old; returns why it was kept after all."""
        try:
            if kind == WORKFLOWS:
                self.deletions.delete(caller, candidate.id, seen=candidate.seen)
            elif kind == THREADS:
                self.journals.trim(caller, candidate, before_us=before_us)
            else:
                self.evidence_deletions.delete(caller, candidate.id)
        except (ConflictError, NotFoundError) as error:
            return error.code
        except (DecryptionError, IntegrityError):
            return UNREADABLE
        return None

    def _workflows(self, connection: Connection, caller: Caller, window: Window) -> Looked:
        places = [None] if caller.workspaces is None else sorted(caller.workspaces)
        rows = statements.finished(connection, places, after=window.after, count=window.limit + 1)
        looked, next_after = window.cut(rows, [row.workflow_pk for row in rows])
        candidates = [
            self._workflow(connection, caller, row, window.now_us)
            for row in looked
            if row.changed_at < window.before_us
        ]
        return Looked(candidates, len(looked) - len(candidates), next_after)

    def _workflow(self, connection: Connection, caller: Caller, row: AnyRow, now_us: int) -> Candidate:
        name, kept = "", UNREADABLE
        try:
            opened = self.ledger.open(row, caller)
            name = opened.origin.workflow_key
            operations = self.ledger.operations(connection, opened)
            kept = _unresolved(operations, now_us) or ""
            if opened.workflow.is_unfinished_work:
                kept = "workflow_unfinished"
        except ConflictError as error:
            kept = error.code
        except (DecryptionError, IntegrityError):
            pass
        return Candidate(
            row.workflow_id, name, row.changed_at, row.retained_bytes, kept or None, pulse_of(row, now_us).mark
        )

    def _evidence(self, connection: Connection, caller: Caller, window: Window) -> Looked:
        places = self.runs.places(connection, caller)
        rows = evidence.runs_after(connection, places, after=window.after, count=window.limit + 1)
        looked, next_after = window.cut(rows, [row.run_pk for row in rows])
        candidates = [self._run(connection, row) for row in looked if row.received_at < window.before_us]
        return Looked(candidates, len(looked) - len(candidates), next_after)

    def _run(self, connection: Connection, row: AnyRow) -> Candidate:
        name, kept = "", UNREADABLE
        try:
            head = self.runs.open(row).head
            name, kept = head.run_id, ""
            if statements.has_unfinished(connection, run_index(self.runs.vault, head.workspace_pk, head.run_id)):
                kept = "workflow_unfinished"
        except ConflictError as error:
            kept = error.code
        except (DecryptionError, IntegrityError):
            pass
        return Candidate(row.evidence_id, name, row.received_at, row.retained_bytes, kept or None)


def _unresolved(operations: Sequence[Operation], now_us: int) -> str | None:
    """Return why these operations are not over for their destination or for a person, None when they are."""
    for operation in operations:
        first_us = operation.first_dispatch_us
        if operation.has_undecided_success:
            return "late_receipt_needs_decision"
        if operation.is_idempotent and first_us is not None and first_us + operation.retention_us > now_us:
            return "key_in_window"
        landing_us = max((operation.latest_landing_us(attempt) for attempt in operation.attempts), default=0)
        if landing_us + (operation.absence_us or 0) > now_us:
            return "absence_not_final"
    return None
