"""Deleting a run of evidence: content and key destroyed, an encrypted tombstone left. By administrators alone.

Steps, each durable before the next, each safe to repeat; the same as for a workflow (`continuity.services.deletion`):

1. One transaction marks the run as deleting and writes its tombstone; nothing more is recorded or read.
2. Its partition goes on the shred list beside the key: no backup brings it back.
3. Its records are destroyed, `DESTROYED_AT_ONCE` a transaction; the last one destroys its data key and says so in the
   audit log.
4. No file of the database keeps their bytes (`Store.scrub`).

Whatever was interrupted is finished by `EvidenceDeletions.finish_all`.

Source: vault.md, "delete".
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from continuity.errors import (
    ConflictError,
    ForbiddenError,
    IntegrityError,
    UnavailableError,
)
from continuity.services import evidence_runs as runs
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.deletion import TOMBSTONES
from continuity.services.evidence_runs import EvidenceRuns
from continuity.services.identifiers import new_id
from continuity.services.partitions import ensure_partition
from continuity.services.sealing import seal_json
from continuity.services.unfinished import finish_each, finish_one
from continuity.store import deletion as shredding
from continuity.store import evidence as statements
from continuity.store import workflows
from continuity.vault.place import Place
from continuity.vault.shred import ShredHead
from continuity.vault.vault import SHRED_PURPOSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.services.evidence_reading import EvidenceReading
    from continuity.services.ledger import Ledger
    from continuity.store.store import Store


@dataclass(frozen=True, slots=True)
class EvidenceDeletions:
    """Deletes runs of evidence.

    Attributes:
        store: Where everything is written.
        ledger: Holds the vault and reads its row.
        runs: Opens runs.
        reading: Tells the time.
        audit: The audit log.
    """

    store: Store
    ledger: Ledger
    runs: EvidenceRuns
    reading: EvidenceReading
    audit: AuditLog
    _scrubbed: threading.Event = field(default_factory=threading.Event, repr=False)

    def delete(self, caller: Caller, run: str) -> dict[str, int]:
        """Delete a run. Its run_id can never be used again in its workspace.

        Args:
            caller: Who asks.
            run: Its evidence_id or run_id.

        Returns:
            How many rows of each kind were destroyed.

        Raises:
            NotFoundError: No such run for this caller. Nothing has happened.
            ForbiddenError: The caller is no administrator. Nothing has happened.
            ConflictError: ``evidence_deleted``; ``request_conflict`` for a run_id of several workspaces.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; ask again, or the next start finishes it.
        """
        evidence_id = self.store.write(lambda connection: self._begin(connection, caller, run))
        counts = self._finish(evidence_id, actor=caller.actor, request_id=caller.request_id)
        self._scrub()
        return counts

    def finish_all(self) -> int:
        """Finish every deletion that was interrupted; returns how many. For the start of a server.

        Raises:
            SealedError: The vault is locked; they are finished after it is unlocked.
            VaultError: One is damaged, or nobody began its deletion; the others are finished.
        """
        try:
            return finish_each(self._begun, self._finish_as_system)
        finally:
            if not self._scrubbed.is_set():
                self._scrub()

    def reapply(self, evidence_id: str) -> None:
        """Destroy again what a restored database has brought back of a run that is on the shred list. Safe to repeat.

        Its data key opens no more, so that what it was called is known only if the tombstone was there already.

        Raises:
            IntegrityError: The run is not on the shred list. Nothing has happened.
        """
        if not self.runs.vault.has_shredded(evidence_id):
            raise IntegrityError("The run was not deleted. Nothing was done.")
        finish_one(evidence_id, self._finish_as_system)
        self._scrub()

    def _begun(self, count: int) -> Sequence[str]:
        return self.store.read(lambda connection: statements.deleting(connection, count=count))

    def _finish_as_system(self, evidence_id: str) -> None:
        self._finish(evidence_id, actor="system", request_id=new_id("req"))

    def _begin(self, connection: Connection, caller: Caller, run: str) -> str:
        """Mark a run as deleting; returns its evidence_id. Somebody else's beginning is as good as ours."""
        connection.execute(workflows.LOCKED_VAULT).one()
        found = self.runs.find(connection, caller, run)
        if caller.kind is not CallerKind.PERSON or caller.role is not Role.ADMINISTRATOR:
            raise ForbiddenError("Administrators alone delete evidence.")
        now_us = self.reading.now_us(connection)
        row = connection.execute(statements.LOCKED_RUN_BY_ID, {"evidence_id": found.evidence_id}).one()
        evidence_id: str = row.evidence_id
        if row.deleting_at is not None:
            return evidence_id
        opened = self.runs.open(row)
        head = opened.head
        key = ensure_partition(connection, self.runs.vault, TOMBSTONES, kind="settings")
        tombstone = {
            "run_id": head.run_id, "workspace": head.workspace_pk, "creator": head.creator, "created": head.created_us,
        }  # fmt: skip
        statements.update_run(connection, row.run_pk, {
            "deleting_at": now_us,
            "sealed_head": runs.seal_head(opened.key, evidence_id, replace(head, is_deleting=True)),
            "sealed_tombstone": seal_json(key, tombstone, _tombstone_place(evidence_id)),
        })  # fmt: skip
        entry = AuditEntry(
            action="evidence.deletion_begun", actor=caller.actor, object_id=evidence_id, result="done",
            request_id=caller.request_id,
        )  # fmt: skip
        self.audit.append(connection, entry, now_us=now_us)
        return evidence_id

    def _finish(self, evidence_id: str, *, actor: str, request_id: str) -> dict[str, int]:
        recorded, run_pk = self.store.read(lambda connection: self._require_begun(connection, evidence_id))
        head = self.runs.vault.shred(evidence_id, recorded=recorded)
        counts: Counter[str] = Counter()
        while True:
            destroyed = self.store.write(lambda connection: statements.destroy_some(connection, run_pk))
            if not destroyed["records"]:
                break
            counts.update(destroyed)
        entry = AuditEntry(
            action="evidence.deleted", actor=actor, object_id=evidence_id, result="done", request_id=request_id
        )
        self.store.write(lambda connection: self._end(connection, evidence_id, head, entry))
        self._scrubbed.clear()
        return {"runs": 1, **counts}

    def _end(self, connection: Connection, evidence_id: str, shred_head: ShredHead, entry: AuditEntry) -> None:
        # The vault's row before the run's, as everywhere.
        shredding.advance_shred_head(connection, length=shred_head.length, head=shred_head.head)
        row = connection.execute(statements.LOCKED_RUN_BY_ID, {"evidence_id": evidence_id}).one()
        if row.deleted_at is not None:
            raise runs.was_deleted()
        now_us = self.reading.now_us(connection)
        # Nothing is recorded once the deletion has begun; what a hand has put in goes as well.
        while statements.destroy_some(connection, row.run_pk)["records"]:
            pass
        statements.destroy_key(connection, evidence_id)
        statements.entomb(connection, row.run_pk, at_us=now_us)
        shredding.note_shredded(
            connection, partition_ix=self.runs.vault.index(SHRED_PURPOSE, evidence_id), at_us=now_us
        )
        self.audit.append(connection, entry, now_us=now_us)

    def _require_begun(self, connection: Connection, evidence_id: str) -> tuple[ShredHead, int]:
        """Return what the database knows of the shred list, if the sealed head says that the deletion has begun.

        A column alone could be anybody's, and what is on the list no backup brings back.
        """
        self.reading.now_us(connection)
        row = connection.execute(statements.RUN_BY_ID, {"evidence_id": evidence_id}).one()
        if row.deleted_at is None and not self.runs.vault.has_shredded(evidence_id):
            # Whoever puts it on the list between our look and this has asked the head as well.
            with suppress(ConflictError):
                if not self.runs.unseal(row).head.is_deleting:
                    raise IntegrityError("The run's columns contradict its sealed head. Nothing was done.")
        recorded = shredding.shred_head(connection)
        return ShredHead(recorded.shred_length, recorded.shred_head), row.run_pk

    def _scrub(self) -> None:
        # The run is deleted and its key destroyed, whatever comes of this: housekeeping asks again.
        with suppress(UnavailableError):
            if self.store.scrub():
                self._scrubbed.set()


def _tombstone_place(evidence_id: str) -> Place:
    return Place("continuity_evidence_runs", TOMBSTONES, evidence_id, "sealed_tombstone")
