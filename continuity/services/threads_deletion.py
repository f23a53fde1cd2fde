"""Deleting a thread: content and key destroyed, an encrypted tombstone left. Its name can never be used again.

Steps, each durable before the next, each safe to repeat; the same as for a workflow (`continuity.services.deletion`):

1. One transaction marks the thread as deleting and writes its tombstone; everything is refused from here on.
2. Its partition goes on the shred list beside the key: no backup brings it back.
3. Its journal is destroyed, `DESTROYED_AT_ONCE` records a transaction; the last one destroys its data key and the rest,
   and says so in the audit log.
4. No file of the database keeps their bytes (`Store.scrub`).

Whatever was interrupted is finished by `ThreadDeletions.finish_all`.

Source: vault.md, "delete"; threads.md, rule 8.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from continuity.decisions.threads.controls import decide_delete
from continuity.errors import ConflictError, IntegrityError, UnavailableError
from continuity.services import threads_rights as rights
from continuity.services.audit import AuditEntry
from continuity.services.deletion import TOMBSTONES
from continuity.services.identifiers import new_id
from continuity.services.partitions import ensure_partition
from continuity.services.sealing import seal_json
from continuity.services.threads_rights import Right
from continuity.services.unfinished import finish_each, finish_one
from continuity.store import deletion as shredding
from continuity.store import threads as statements
from continuity.vault.place import Place
from continuity.vault.shred import ShredHead
from continuity.vault.vault import SHRED_PURPOSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.services.callers import Caller
    from continuity.services.threads_ledger import ThreadLedger
    from continuity.store.store import Store


@dataclass(frozen=True, slots=True)
class ThreadDeletions:
    """Deletes threads.

    Attributes:
        store: Where everything is written.
        ledger: Opens threads.
        audit: The audit log.
    """

    store: Store
    ledger: ThreadLedger
    audit: AuditLog
    _scrubbed: threading.Event = field(default_factory=threading.Event, repr=False)

    def delete(self, caller: Caller, thread_id: str) -> dict[str, int]:
        """Delete an idle thread. Safe to ask again.

        Args:
            caller: Who asks: the owner, or an administrator.
            thread_id: Which thread.

        Returns:
            How many rows of each kind were destroyed.

        Raises:
            NotFoundError: No such thread for this caller. Nothing has happened.
            ForbiddenError: The caller may see it, and not delete it. Nothing has happened.
            ConflictError: ``thread_busy`` (nothing has happened) or ``thread_deleted``.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; ask again, or the next start finishes it.
        """
        has_begun = self.store.write(lambda connection: self._begin(connection, caller, thread_id))
        try:
            counts = self._finish(thread_id, actor=caller.actor, request_id=caller.request_id)
        except ConflictError:
            # Begun here and finished by another process, which knows what it destroyed.
            if not has_begun:
                raise
            counts = {"threads": 1}
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

    def reapply(self, thread_id: str) -> None:
        """Destroy again what a restored database has brought back of a thread on the shred list. Safe to repeat.

        Raises:
            IntegrityError: The thread is not on the shred list. Nothing has happened.
        """
        if not self.ledger.vault.has_shredded(thread_id):
            raise IntegrityError("The thread was not deleted. Nothing was done.")
        finish_one(thread_id, self._finish_as_system)
        self._scrub()

    def _begin(self, connection: Connection, caller: Caller, thread_id: str) -> bool:
        """Mark a thread as deleting; False when somebody has done so before."""
        owner_ix = self.ledger.caller_ix(caller)
        row = connection.execute(statements.LOCKED_HEAD, {"thread_id": thread_id}).one_or_none()
        if row is None:
            raise rights.no_such_thread()
        rights.require(caller, row, Right.DELETE, owner_ix=owner_ix)
        if row.deleting_at is not None and row.deleted_at is None:
            return False
        opened = self.ledger.open_living(row)
        at_us = self.ledger.stamp_us(connection, opened)
        opened = self.ledger.expire(connection, opened, at_us)
        change = decide_delete(opened.head, at_us=at_us)
        self.ledger.record(connection, opened, change, at_us=at_us)
        origin = opened.origin
        tombstone = {
            "name": origin.name, "agent": origin.agent, "workspace": origin.workspace_pk, "owner": origin.owner,
            "created": origin.created_us,
        }  # fmt: skip
        key = ensure_partition(connection, self.ledger.vault, TOMBSTONES, kind="settings")
        sealed = seal_json(key, tombstone, _tombstone_place(thread_id))
        statements.update_thread(connection, opened.thread_pk, {"sealed_tombstone": sealed})
        # Who it was must be known even if somebody else has to finish it.
        entry = AuditEntry(
            action="thread.deletion_begun", actor=caller.actor, object_id=thread_id, result="done",
            request_id=caller.request_id,
        )  # fmt: skip
        self.audit.append(connection, entry, now_us=at_us)
        return True

    def _begun(self, count: int) -> Sequence[str]:
        return self.store.read(
            lambda connection: list(connection.execute(statements.DELETING, {"count": count}).scalars())
        )

    def _finish_as_system(self, thread_id: str) -> None:
        self._finish(thread_id, actor="system", request_id=new_id("req"))

    def _finish(self, thread_id: str, *, actor: str, request_id: str) -> dict[str, int]:
        recorded, thread_pk = self.store.read(lambda connection: self._require_begun(connection, thread_id))
        head = self.ledger.vault.shred(thread_id, recorded=recorded)
        destroyed = 0
        while count := self.store.write(lambda connection: statements.destroy_records(connection, thread_pk)):
            destroyed += count
        entry = AuditEntry(
            action="thread.deleted", actor=actor, object_id=thread_id, result="done", request_id=request_id
        )
        counts = self.store.write(lambda connection: self._end(connection, thread_id, head, entry))
        self._scrubbed.clear()
        return {"threads": 1, "journal": destroyed, **counts}

    def _end(self, connection: Connection, thread_id: str, shred_head: ShredHead, entry: AuditEntry) -> dict[str, int]:
        # The vault's row before the thread's, as everywhere.
        shredding.advance_shred_head(connection, length=shred_head.length, head=shred_head.head)
        row = connection.execute(statements.LOCKED_HEAD, {"thread_id": thread_id}).one()
        facts = self.ledger.facts(row)
        if row.deleted_at is not None:
            raise rights.was_deleted()
        at_us = max(self.ledger.reading(connection).now_us, row.clock_high_water, facts.clock_high_water_us)
        # Nothing is written once the deletion has begun; what a hand has put in goes as well.
        while statements.destroy_records(connection, row.thread_pk):
            pass
        counts = statements.destroy(connection, thread_pk=row.thread_pk, thread_id=thread_id)
        statements.entomb(connection, row.thread_pk, at_us=at_us)
        partition_ix = self.ledger.vault.index(SHRED_PURPOSE, thread_id)
        shredding.note_shredded(connection, partition_ix=partition_ix, at_us=at_us)
        self.audit.append(connection, entry, now_us=at_us)
        return counts

    def _require_begun(self, connection: Connection, thread_id: str) -> tuple[ShredHead, int]:
        """Return what the database knows of the shred list, if the sealed head says that the deletion has begun.

        A column alone could be anybody's, and what is on the list no backup brings back.
        """
        row = connection.execute(statements.HEAD, {"thread_id": thread_id}).one()
        facts = self.ledger.facts(row)
        if row.deleted_at is None and not self.ledger.vault.has_shredded(thread_id):
            # Whoever puts it on the list between our look and this has asked the head as well.
            with suppress(ConflictError):
                self.ledger.unseal(row, facts)
        recorded = shredding.shred_head(connection)
        return ShredHead(recorded.shred_length, recorded.shred_head), row.thread_pk

    def _scrub(self) -> None:
        # The thread is deleted and its key destroyed, whatever comes of this: housekeeping asks again.
        with suppress(UnavailableError):
            if self.store.scrub():
                self._scrubbed.set()


def _tombstone_place(thread_id: str) -> Place:
    return Place("continuity_threads", TOMBSTONES, thread_id, "sealed_tombstone")
