"""A person's own sessions: where they are signed in, and ending that somewhere else.

A session is named here by a handle, a hash of what the database knows it by: it finds the row among the person's
own, and nobody signs in with it.

Source: security.md S11.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import sessions as session_rules
from app.auth.schema import sessions
from app.auth.sessions import SignedIn
from app.auth.settings import SECOND_US, SessionSettings
from continuity.errors import NotFoundError
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.clock import Clock
from continuity.store.store import Store

_HANDLE_CHARS: Final = 24
_PURPOSE: Final = b"atmem session handle v1"


@dataclass(frozen=True, slots=True)
class OwnSession:
    """A line of the list. Times in microseconds; `ends_us` is the latest it can end by itself."""

    handle: str
    created_us: int
    seen_us: int
    ends_us: int
    is_this: bool


class OwnSessions:
    """Lists and ends the sessions of the person who asks. Every end has its audit entry."""

    def __init__(self, store: Store, audit: AuditLog, *, clock: Clock, settings: SessionSettings) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._settings = settings

    def all(self, person: SignedIn) -> list[OwnSession]:
        """Return the person's sessions, the one that asks first and then the latest seen."""
        rows = self._store.read(lambda connection: self._rows(connection, person))
        own = session_rules.hash_of(person.session_id)
        found = [
            OwnSession(
                handle=handle_of(row.session_hash), created_us=row.created_at, seen_us=row.seen_at,
                ends_us=row.created_at + self._settings.absolute_s * SECOND_US, is_this=row.session_hash == own,
            )
            for row in rows
        ]  # fmt: skip
        return sorted(found, key=lambda each: (not each.is_this, -each.seen_us, each.handle))

    def end(self, person: SignedIn, handle: str, *, request_id: str) -> None:
        """End one other session. NotFoundError for one that is not the person's, or not there any more."""

        def work(connection: Connection) -> None:
            wanted = [row.session_hash for row in self._rows(connection, person) if is_named(row.session_hash, handle)]
            if not wanted or wanted[0] == session_rules.hash_of(person.session_id):
                raise NotFoundError("There is no such session any more.")
            self._end(connection, person, wanted, request_id=request_id)

        self._store.write(work)

    def end_others(self, person: SignedIn, *, request_id: str) -> int:
        """End every session of the person but the one that asks; return how many."""

        def work(connection: Connection) -> int:
            own = session_rules.hash_of(person.session_id)
            others = [row.session_hash for row in self._rows(connection, person) if row.session_hash != own]
            if others:
                self._end(connection, person, others, request_id=request_id)
            return len(others)

        return self._store.write(work)

    def _rows(self, connection: Connection, person: SignedIn) -> list[sa.Row[bytes, int, int]]:
        now_us = self._clock.now_us()
        idle_s = self._settings.idle_of(person.role)
        return list(connection.execute(
            sa.select(sessions.c.session_hash, sessions.c.created_at, sessions.c.seen_at).where(
                sessions.c.user_pk == person.user_pk,
                sessions.c.stamp == person.stamp,
                sessions.c.created_at > now_us - self._settings.absolute_s * SECOND_US,
                sessions.c.seen_at > now_us - idle_s * SECOND_US,
            )
        ))  # fmt: skip

    def _end(self, connection: Connection, person: SignedIn, hashes: list[bytes], *, request_id: str) -> None:
        connection.execute(sa.delete(sessions).where(sessions.c.session_hash.in_(hashes)))
        entry = AuditEntry(
            action="user.end_sessions", actor=person.actor, object_id=person.user_id, result="done",
            request_id=request_id, detail={"sessions": len(hashes)},
        )  # fmt: skip
        self._audit.append(connection, entry, now_us=self._clock.now_us())


def handle_of(session_hash: bytes) -> str:
    return hmac.digest(session_hash, _PURPOSE, hashlib.sha256).hex()[:_HANDLE_CHARS]


def is_named(session_hash: bytes, handle: str) -> bool:
    return hmac.compare_digest(handle_of(session_hash).encode("ascii"), handle.encode("utf-8", "surrogatepass"))
