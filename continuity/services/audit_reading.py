"""What a person reads of the audit log at a page: found entries, one opened entry, a file of the clear columns.

Rules:

* Clear columns need no key and leave no entry: a locked vault shows them too.
* A detail is opened after an entry `audit.viewed` was written in the same transaction that says by whom. Where that
  cannot be written, it stays sealed.
* A file leaves after its entry `audit.exported`, in the same way; where that cannot be written there is no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from continuity.errors import NotFoundError, SealedError, UnavailableError, VaultError
from continuity.services import audit_search
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.audit_search import AuditQuestion
from continuity.services.auditing import ListedEntry
from continuity.store.schema import vault

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.store.store import Store

EXPORT_MOST: Final = 10_000
"""Entries of one file, the newest: some 3 MB."""
UNRECORDED: Final = "unrecorded"
"""`ListedEntry.detail_state` of a detail that stays sealed because the look could not be written down."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, and with which request."""

    actor: str
    request_id: str


@dataclass(frozen=True, slots=True)
class AuditReading:
    """Use cases of the page. Safe to share between threads.

    Attributes:
        store: Where the log is.
        log: The log, with the vault that opens details.
        now_us: The time, microseconds since 1970, UTC.
    """

    store: Store
    log: AuditLog
    now_us: Callable[[], int]

    def page(
        self, question: AuditQuestion, *, count: int, before: int | None = None
    ) -> tuple[list[ListedEntry], int | None]:
        """Return entries newest first, at most `count`, details sealed; and the `before` of the next page.

        A page of what is rare and asked for in several ways may hold few entries, or none, and have a next one.

        Raises:
            UnavailableError: Storage cannot answer.
        """
        rows, floor = self.store.read(
            lambda connection: audit_search.search(connection, question, count=count + 1, before=before)
        )
        shown = rows[:count]
        after = shown[-1].seq if len(rows) > count else floor or None
        return [_listed(row) for row in shown], after

    def open(self, seq: int, *, reader: Reader) -> ListedEntry:
        """Return one entry with its detail, if it has one and it may be opened.

        Raises:
            NotFoundError: There is no such entry.
            UnavailableError: Storage cannot answer.
        """
        closed = self.store.read(lambda connection: _one(connection, seq))
        if closed.detail_state == "none":
            return closed
        try:
            return self.store.write(lambda connection: self._opened(connection, seq, reader))
        except SealedError:
            return closed
        except (UnavailableError, VaultError, SQLAlchemyError):
            # Nobody could know afterwards that it was read.
            return _with(closed, UNRECORDED, None)

    def export(self, question: AuditQuestion, *, form: str, reader: Reader) -> list[ListedEntry]:
        """Return what goes into a file: the newest `EXPORT_MOST` entries that are asked for, newest first.

        Args:
            question: Which.
            form: ``csv`` or ``json``; the log says which.
            reader: Who gets the file.

        Raises:
            UnavailableError: Storage cannot answer, or the export could not be written down: there is no file.
        """
        # Before it is written down, so that nobody waits to write while a long log is searched.
        rows = self.store.read(lambda connection: _newest(connection, question))
        entry = AuditEntry(
            action="audit.exported", actor=reader.actor, object_id=f"{rows[-1].seq}-{rows[0].seq}" if rows else None,
            result="done", request_id=reader.request_id, detail={"form": form, "entries": len(rows)},
        )  # fmt: skip
        self.store.write(lambda connection: self.log.append(connection, entry, now_us=self.now_us()))
        return [_listed(row) for row in rows]

    def epoch(self) -> int:
        """Return the vault's epoch: cursors of before a restore lead nowhere.

        Raises:
            UnavailableError: Storage cannot answer.
        """
        return int(self.store.autocommit(lambda connection: connection.execute(sa.select(vault.c.epoch)).scalar_one()))

    def record(self, action: str, *, reader: Reader, result: str = "done", object_id: str | None = None) -> None:
        """Write down what somebody does with the log itself, before they get anything of it.

        Raises:
            UnavailableError: Storage cannot answer. Nothing was written.
        """
        entry = AuditEntry(
            action=action, actor=reader.actor, object_id=object_id, result=result, request_id=reader.request_id or None
        )
        self.store.write(lambda connection: self.log.append(connection, entry, now_us=self.now_us()))

    def _opened(self, connection: Connection, seq: int, reader: Reader) -> ListedEntry:
        try:
            opened = _with(_one(connection, seq), "open", self.log.detail(connection, seq))
        except SealedError:
            raise
        except VaultError:
            return _with(_one(connection, seq), "unreadable", None)
        seen = AuditEntry(
            action="audit.viewed", actor=reader.actor, object_id=str(seq), result="done", request_id=reader.request_id
        )
        self.log.append(connection, seen, now_us=self.now_us())
        return opened


def _newest(connection: Connection, question: AuditQuestion) -> Sequence[Any]:
    """Read the newest `EXPORT_MOST` entries, newest first."""
    rows: list[Any] = []
    before = None
    while len(rows) < EXPORT_MOST:
        more, floor = audit_search.search(connection, question, count=audit_search.PAGE_MOST, before=before)
        rows += more
        if len(more) == audit_search.PAGE_MOST:
            before = more[-1].seq
        elif floor:
            before = floor
        else:
            break
    return rows


def _one(connection: Connection, seq: int) -> ListedEntry:
    row = audit_search.one(connection, seq)
    if row is None:
        raise NotFoundError("There is no such entry.")
    return _listed(row)


def _listed(row: Any) -> ListedEntry:
    shown = {
        name: None if (value := getattr(row, name)) is None else str(value)
        for name in ("action", "actor", "object_id", "result", "request_id")
    }
    entry = AuditEntry(
        action=shown["action"] or "", actor=shown["actor"] or "", object_id=shown["object_id"],
        result=shown["result"] or "", request_id=shown["request_id"],
    )  # fmt: skip
    return ListedEntry(row.seq, row.at, entry, "sealed" if row.has_detail else "none")


def _with(listed: ListedEntry, state: str, detail: Mapping[str, Any] | None) -> ListedEntry:
    clear = listed.entry
    entry = AuditEntry(
        action=clear.action, actor=clear.actor, object_id=clear.object_id, result=clear.result,
        request_id=clear.request_id, detail=detail,
    )  # fmt: skip
    return ListedEntry(listed.seq, listed.at_us, entry, state)
