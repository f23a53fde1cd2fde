"""Lets go of old records of a journal, for the administrator's retention command; nothing else ever trims one.

Only a thread at rest is trimmed, and each thousand records with their entry in the audit log, so that it can be stopped
anywhere and be begun again.

Snapshots lose nothing by it: messages, state and runs are kept in rows of their own. A client that would go on from
a position that was trimmed is told so (``cursor_gap``) and loads the snapshot again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.decisions.threads.controls import decide_trim
from continuity.errors import ConflictError
from continuity.services import threads_rights as rights
from continuity.services.audit import AuditEntry
from continuity.store import threads as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.services.callers import Caller
    from continuity.services.threads_ledger import ThreadLedger
    from continuity.store.store import Store

AT_ONCE: Final = 1_000
"""Records a transaction: other writers must not wait for long."""


@dataclass(frozen=True, slots=True)
class ThreadTrimming:
    """Trims journals.

    Attributes:
        store: Where everything is written.
        ledger: Opens and records threads.
        audit: The audit log.
    """

    store: Store
    ledger: ThreadLedger
    audit: AuditLog

    def trim(self, caller: Caller, thread_id: str, *, older_than_us: int) -> int:
        """Let go of the records that were written before a time. Safe to ask again.

        Args:
            caller: Who asks, for the audit log; whoever calls this has checked that it is an administrator.
            thread_id: Which thread.
            older_than_us: Microseconds since the Unix epoch.

        Returns:
            How many records were let go.

        Raises:
            NotFoundError: There is no such thread.
            ConflictError: ``thread_busy``: it is not at rest. What was let go of before stays so.
            SealedError: The vault is locked.
            UnavailableError: Storage cannot answer; ask again.
        """
        trimmed = 0
        while count := self.store.write(lambda connection: self._some(connection, caller, thread_id, older_than_us)):
            trimmed += count
        return trimmed

    def _some(self, connection: Connection, caller: Caller, thread_id: str, older_than_us: int) -> int:
        row = connection.execute(statements.LOCKED_HEAD, {"thread_id": thread_id}).one_or_none()
        if row is None:
            raise rights.no_such_thread()
        try:
            opened = self.ledger.open_living(row)
        except ConflictError:
            # Deleted: nothing is left to let go.
            return 0
        first = opened.head.trimmed_seq
        place = {"thread_pk": opened.thread_pk, "after": first, "count": AT_ONCE}
        old = [record.seq for record in connection.execute(statements.RECORDS, place) if record.at < older_than_us]
        at_us = self.ledger.stamp_us(connection, opened)
        change = decide_trim(opened.head, first + len(old), at_us=at_us)
        if change is None:
            return 0
        statements.trim_records(connection, opened.thread_pk, change.head.trimmed_seq)
        self.ledger.record(connection, opened, change, at_us=at_us)
        # Nothing happened in the conversation: in a list it stays where it was.
        statements.update_thread(connection, opened.thread_pk, {"changed_at": opened.changed_us})
        self._note(connection, caller, thread_id, len(old))
        return len(old)

    def _note(self, connection: Connection, caller: Caller, thread_id: str, trimmed: int) -> None:
        entry = AuditEntry(
            action="thread.trimmed", actor=caller.actor, object_id=thread_id, result="done",
            request_id=caller.request_id, detail={"records": trimmed},
        )  # fmt: skip
        self.audit.append(connection, entry, now_us=self.ledger.reading(connection).now_us)
