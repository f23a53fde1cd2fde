"""Deleting a finished workflow: content and key destroyed, an encrypted tombstone left.

Steps, each durable before the next, each safe to repeat:

1. One transaction marks the workflow as deleting; begin is refused from here on.
2. Its partition goes on the shred list beside the key: no backup brings it back.
3. One transaction destroys its data key and rows, leaves the tombstone, revokes its credentials.
4. No file of the database keeps their bytes (`Store.scrub`); asked again until it is so.

Whatever was interrupted is finished by `Deletions.finish_all` at the next start.

Source: vault.md, "delete".
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from continuity.decisions import clocks, controls
from continuity.decisions.phases import Phase
from continuity.errors import ConflictError, DecryptionError, IntegrityError, UnavailableError
from continuity.services import proofs, run_links
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind
from continuity.services.checking import reserved_bytes
from continuity.services.identifiers import new_id
from continuity.services.opened import Opened
from continuity.services.opening import is_visible, was_deleted
from continuity.services.partitions import ensure_partition
from continuity.services.reviewing import pulse_of
from continuity.services.sealing import seal_json
from continuity.services.unfinished import finish_each, finish_one
from continuity.services.workflows import words_of
from continuity.store import counters, counting, deletion, listing
from continuity.store import workflows as statements
from continuity.vault.place import Place
from continuity.vault.shred import ShredHead
from continuity.vault.vault import SHRED_PURPOSE

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.model import Operation
    from continuity.services.audit import AuditLog
    from continuity.services.ledger import Ledger
    from continuity.store.store import Store

TOMBSTONES: Final = "settings"
"""Partition under which tombstones are sealed."""

RevokeCredentials = Callable[["Connection", int], None]
"""Revokes every credential that names a workflow (by ``workflow_pk``), in the given transaction."""


@dataclass(frozen=True, slots=True)
class Deletions:
    """Deletes workflows.

    Attributes:
        store: Where everything is written.
        ledger: Opens workflows.
        audit: The audit log.
        revoke_credentials: What ends the credentials of a workflow.
    """

    store: Store
    ledger: Ledger
    audit: AuditLog
    revoke_credentials: RevokeCredentials
    _scrubbed: threading.Event = field(default_factory=threading.Event, repr=False)

    def delete(self, caller: Caller, workflow_id: str, *, seen: str | None = None) -> dict[str, int]:
        """Delete a finished workflow. Its key can never be created again.

        Args:
            caller: Who asks.
            workflow_id: Which workflow.
            seen: The `Pulse.mark` of what somebody looked at before; None deletes whatever is there. A late receipt
                takes no revision, and changes this.

        Returns:
            How many rows of each kind were destroyed.

        Raises:
            NotFoundError: No such workflow for this caller. Nothing has happened.
            ConflictError: ``workflow_unfinished, stale_revision`` (nothing has happened) or ``workflow_deleted``.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; ask again, or the next start finishes it.
        """
        has_begun = self.store.write(lambda connection: self._begin(connection, caller, workflow_id, seen))
        try:
            counts = self._finish(workflow_id, actor=caller.actor, request_id=caller.request_id)
        except ConflictError:
            # Begun here and finished by another process, which knows what it destroyed.
            if not has_begun:
                raise
            counts = {"workflows": 1}
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
            # Also what a process before this one has deleted, the first time.
            if not self._scrubbed.is_set():
                self._scrub()

    def reapply(self, workflow_id: str) -> None:
        """Destroy again what a restored database has brought back of a workflow on the shred list. Safe to repeat.

        Its data key opens no more: key and creator are known only if the tombstone was there already.

        Raises:
            IntegrityError: The workflow is not on the shred list. Nothing has happened.
        """
        if not self.ledger.vault.has_shredded(workflow_id):
            raise IntegrityError("The workflow was not deleted. Nothing was done.")
        finish_one(workflow_id, self._finish_as_system)
        self._scrub()

    def _begin(self, connection: Connection, caller: Caller, workflow_id: str, seen: str | None) -> bool:
        """Mark a workflow as deleting; False when somebody has done so before."""
        row = connection.execute(statements.LOCKED_HEAD, {"workflow_id": workflow_id}).one_or_none()
        if row is not None and row.deleting_at is not None and row.deleted_at is None and is_visible(row, caller):
            return False
        opened = self.ledger.open(row, caller)
        now = connection.execute(statements.VAULT).one().now_us
        marks = (opened.workflow.clock_high_water_us, opened.vault.clock_high_water_us)
        reading = self.ledger.read_clock(now)
        if seen is not None and pulse_of(row, reading.now_us).mark != seen:
            raise ConflictError("The workflow changed after it was looked at.", code="stale_revision")
        at_us = clocks.stamp_us(reading, *marks)
        event = controls.decide_delete(opened.workflow, actor=caller.actor, at_us=at_us)
        self.ledger.record_control(connection, opened, event)
        operations = self.ledger.operations(connection, opened)
        self._write_tombstone(connection, opened, operations)
        self._forget_words(connection, opened, [operation.name for operation in operations])
        run_links.forget(connection, self.ledger.vault, opened, operations)
        # Who it was must be known even if somebody else has to finish it.
        entry = AuditEntry(
            action="workflow.deletion_begun", actor=caller.actor, object_id=workflow_id, result="done",
            request_id=caller.request_id,
        )  # fmt: skip
        self.audit.append(connection, entry, now_us=at_us)
        return True

    def _forget_words(self, connection: Connection, opened: Opened, names: Sequence[str]) -> None:
        """Take a workflow out of the search, while it still opens and says what its words are."""
        deletion.forget_words(
            connection,
            workspace_pk=opened.origin.workspace_pk,
            workflow_pk=opened.workflow_pk,
            term_indexes=[
                self.ledger.vault.index("term", word) for word in words_of(opened.origin.workflow_key, names)
            ],
        )

    def _begun(self, count: int) -> Sequence[str]:
        return self.store.read(lambda connection: listing.deleting(connection, count=count))

    def _finish_as_system(self, workflow_id: str) -> None:
        self._finish(workflow_id, actor="system", request_id=new_id("req"))

    def _finish(self, workflow_id: str, *, actor: str, request_id: str) -> dict[str, int]:
        recorded = self.store.read(lambda connection: self._require_begun(connection, workflow_id))
        head = self.ledger.vault.shred(workflow_id, recorded=recorded)

        def destroy(connection: Connection) -> dict[str, int]:
            # The vault's row before the workflow's, as everywhere.
            deletion.advance_shred_head(connection, length=head.length, head=head.head)
            row = connection.execute(statements.LOCKED_HEAD, {"workflow_id": workflow_id}).one()
            facts = self.ledger.facts(row)
            if row.deleted_at is not None:
                raise was_deleted(workflow_id)
            now = connection.execute(statements.VAULT).one().now_us
            at_us = clocks.stamp_us(self.ledger.read_clock(now), row.clock_high_water, facts.clock_high_water_us)
            counts = self._destroy(connection, row, at_us)
            entry = AuditEntry(
                action="workflow.deleted", actor=actor, object_id=workflow_id, result="done", request_id=request_id
            )
            self.audit.append(connection, entry, now_us=at_us)
            return counts

        counts = self.store.write(destroy)
        self._scrubbed.clear()
        return counts

    def _require_begun(self, connection: Connection, workflow_id: str) -> ShredHead:
        """Return what the database knows of the shred list, if the sealed head says that the deletion has begun.

        A column alone could be anybody's, and what is on the list no backup brings back.
        """
        row = connection.execute(statements.HEAD_BY_ID, {"workflow_id": workflow_id}).one()
        facts = self.ledger.facts(row)
        if row.deleted_at is None and not self.ledger.vault.has_shredded(workflow_id):
            # Whoever puts it on the list between our look and this has asked the head as well.
            with suppress(ConflictError):
                self.ledger.unseal(row, facts)
        recorded = deletion.shred_head(connection)
        return ShredHead(recorded.shred_length, recorded.shred_head)

    def _scrub(self) -> None:
        # The work is deleted and its key destroyed, whatever comes of this: housekeeping asks again.
        with suppress(UnavailableError):
            if self.store.scrub():
                self._scrubbed.set()

    def _destroy(self, connection: Connection, row: statements.AnyRow, at_us: int) -> dict[str, int]:
        workflow_id: str = row.workflow_id
        counts = deletion.destroy(connection, workflow_pk=row.workflow_pk, workflow_id=workflow_id)
        deletion.entomb(connection, row.workflow_pk, at_us=at_us)
        deletion.note_shredded(
            connection, partition_ix=self.ledger.vault.index(SHRED_PURPOSE, workflow_id), at_us=at_us
        )
        self.revoke_credentials(connection, row.workflow_pk)
        self._release(connection, row)
        return {"workflows": 1, **counts}

    def _write_tombstone(self, connection: Connection, opened: Opened, operations: Sequence[Operation]) -> None:
        """Seal key, scope and creator under a key that stays, while the workflow still opens."""
        origin = opened.origin
        key = ensure_partition(connection, self.ledger.vault, TOMBSTONES, kind="settings")
        place = _tombstone_place(opened.workflow_id)
        value = {
            "workflow_key": origin.workflow_key, "workspace": origin.workspace_pk, "creator": origin.creator,
            "creator_role": origin.creator_role, "created": origin.created_us, "owner": origin.owner_pk,
            # Counted now, while it opens: the columns that say so are anybody's.
            "retained": counting.stored_bytes(connection, opened.workflow_pk),
            "reserved": sum(map(reserved_bytes, operations)),
        }  # fmt: skip
        deletion.keep_tombstone(connection, opened.workflow_pk, seal_json(key, value, place))

    def _release(self, connection: Connection, row: statements.AnyRow) -> None:
        """Give a coordinator back what a deleted workflow held; other namespaces are not counted."""
        # Whoever forged a tombstone or counters keeps the coordinator from new work (a check tells), and not this
        # content from being destroyed.
        with suppress(DecryptionError, IntegrityError):
            key = ensure_partition(connection, self.ledger.vault, TOMBSTONES, kind="settings")
            sealed = deletion.tombstone(connection, row.workflow_pk)
            if sealed is None:
                self._release_restored(connection, row)
                return
            tombstone = json.loads(key.open(sealed, place=_tombstone_place(row.workflow_id)))
            if tombstone["creator_role"] != CallerKind.COORDINATOR:
                return
            # A deletion that an earlier version began has a tombstone without these: its columns are all there is.
            columns = {"owner": row.owner_pk, "retained": row.retained_bytes, "reserved": row.reserved_bytes}
            held = {**columns, **tombstone}
            proofs.count(
                connection, self.ledger.vault, held["owner"], known=None,
                change={"unfinished": 0, "retained": -held["retained"], "reserved": -held["reserved"]},
            )  # fmt: skip

    def _release_restored(self, connection: Connection, row: statements.AnyRow) -> None:
        """Do the same for what a restore has brought back and nobody can open: its columns are all there is."""
        if counters.is_coordinator(connection, row.owner_pk):
            is_unfinished = row.phase not in {Phase.DONE, Phase.ENDED}
            proofs.count(
                connection, self.ledger.vault, row.owner_pk, known=None,
                change={
                    "unfinished": -int(is_unfinished), "retained": -row.retained_bytes, "reserved": -row.reserved_bytes,
                },
            )  # fmt: skip


def _tombstone_place(workflow_id: str) -> Place:
    return Place("continuity_workflows", TOMBSTONES, workflow_id, "sealed_tombstone")
