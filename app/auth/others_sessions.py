"""Where people are signed in, for administrators: all sessions that are alive, person by person, and ending them.

Ending takes power away and must be quick: it asks for no password, and it is audited. A session is named by its
handle, as a person's own ones are; the row is deleted, and no request brings a row back (`app.auth.sessions`).

Source: security.md S07, S11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import own_sessions
from app.auth import sessions as session_rules
from app.auth.accounts import By
from app.auth.schema import sessions, users
from app.auth.settings import SECOND_US, SessionSettings
from continuity.errors import NotFoundError
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.callers import Role
from continuity.services.clock import Clock
from continuity.store.schema import vault
from continuity.store.store import Store

PAGE_SIZE: Final = 25
"""People a page; each has at most five sessions."""


@dataclass(frozen=True, slots=True)
class Session:
    """One session. Times in microseconds; `ends_us` is the latest it can end, `idle_us` when it ends unused."""

    handle: str
    created_us: int
    seen_us: int
    ends_us: int
    idle_us: int
    is_this: bool


@dataclass(frozen=True, slots=True)
class Present:
    """A person and their sessions, the latest seen first."""

    user_id: str
    username: str
    role: Role
    sessions: tuple[Session, ...]


@dataclass(frozen=True, slots=True)
class PresentPage:
    """By username. `next_after` is the name to go on behind, None at the end."""

    people: tuple[Present, ...]
    next_after: str | None


class OthersSessions:
    """Lists and ends the sessions of anybody."""

    def __init__(self, store: Store, audit: AuditLog, *, clock: Clock, settings: SessionSettings) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._settings = settings

    def page(self, *, after: str = "", q: str = "", session_id: str = "") -> PresentPage:
        """Return the people who are signed in, behind the name `after`; `session_id` is the one that asks."""
        return self._store.read(lambda connection: self._page(connection, after=after, q=q, session_id=session_id))

    def end(self, user_id: str, handle: str, *, by: By) -> None:
        """End one session. NotFoundError for one that is not this person's, or not there any more."""

        def work(connection: Connection) -> None:
            hashes = [each for each in _hashes(connection, user_id) if own_sessions.is_named(each, handle)]
            if not hashes:
                raise NotFoundError("There is no such session any more.")
            self._end(connection, user_id, hashes, by=by)

        self._store.write(work)

    def end_all(self, user_id: str, *, by: By, but: str = "") -> int:
        """End every session of the person, but the one of this id; return how many."""

        def work(connection: Connection) -> int:
            kept = session_rules.hash_of(but) if but else b""
            hashes = [each for each in _hashes(connection, user_id) if each != kept]
            if hashes:
                self._end(connection, user_id, hashes, by=by)
            return len(hashes)

        return self._store.write(work)

    def _page(self, connection: Connection, *, after: str, q: str, session_id: str) -> PresentPage:
        mark = connection.execute(sa.select(vault.c.epoch, vault.c.clock_high_water)).one()
        alive = self._alive(epoch=mark.epoch, now_us=max(self._clock.now_us(), mark.clock_high_water))
        wanted = [users.c.username > after, sa.exists().where(sessions.c.user_pk == users.c.user_pk, alive)]
        if q:
            wanted.append(users.c.username.startswith(q, autoescape=True))
        found = connection.execute(
            sa.select(users.c.user_pk, users.c.user_id, users.c.username, users.c.role)
            .where(*wanted).order_by(users.c.username).limit(PAGE_SIZE + 1)
        ).all()  # fmt: skip
        people = found[:PAGE_SIZE]
        rows = connection.execute(
            sa.select(sessions)
            .join(users, users.c.user_pk == sessions.c.user_pk)
            .where(alive, sessions.c.user_pk.in_([row.user_pk for row in people]))
            .order_by(sessions.c.seen_at.desc(), sessions.c.session_hash)
        ).all()
        own = session_rules.hash_of(session_id)
        shown = tuple(self._present(person, rows, own=own) for person in people)
        return PresentPage(shown, people[-1].username if len(found) > PAGE_SIZE else None)

    def _present(self, person: Any, rows: Sequence[Any], *, own: bytes) -> Present:
        mine = tuple(self._session(row, role=person.role, own=own) for row in rows if row.user_pk == person.user_pk)
        return Present(person.user_id, person.username, Role(person.role), mine)

    def _session(self, row: Any, *, role: str, own: bytes) -> Session:
        ends_us = row.created_at + self._settings.absolute_s * SECOND_US
        return Session(
            handle=own_sessions.handle_of(row.session_hash), created_us=row.created_at, seen_us=row.seen_at,
            ends_us=ends_us, idle_us=min(ends_us, row.seen_at + self._settings.idle_of(role) * SECOND_US),
            is_this=row.session_hash == own,
        )  # fmt: skip

    def _alive(self, *, epoch: int, now_us: int) -> sa.ColumnElement[bool]:
        settings = self._settings
        idle_us = sa.case(
            (users.c.role == Role.ADMINISTRATOR.value, now_us - settings.administrator_idle_s * SECOND_US),
            else_=now_us - settings.idle_s * SECOND_US,
        )
        return sa.and_(
            users.c.disabled_at.is_(None), sessions.c.stamp == users.c.stamp, sessions.c.epoch == epoch,
            sessions.c.created_at > now_us - settings.absolute_s * SECOND_US, sessions.c.seen_at > idle_us,
        )  # fmt: skip

    def _end(self, connection: Connection, user_id: str, hashes: list[bytes], *, by: By) -> None:
        connection.execute(sa.delete(sessions).where(sessions.c.session_hash.in_(hashes)))
        entry = AuditEntry(
            action="user.end_sessions", actor=by.actor, object_id=user_id, result="done",
            request_id=by.request_id, detail={"sessions": len(hashes)},
        )  # fmt: skip
        self._audit.append(connection, entry, now_us=self._clock.now_us())


def _hashes(connection: Connection, user_id: str) -> list[bytes]:
    """Return the sessions of a person, dead ones too. NotFoundError when there is no such person."""
    # Locked, as by whoever begins a session: one that goes on under a new id at this moment is found under that.
    person = sa.select(users.c.user_pk).where(users.c.user_id == user_id).with_for_update()
    user_pk = connection.execute(person).scalar_one_or_none()
    if user_pk is None:
        raise NotFoundError("There is no such account.")
    return list(connection.execute(
        sa.select(sessions.c.session_hash).where(sessions.c.user_pk == user_pk).order_by(sessions.c.session_hash)
    ).scalars())  # fmt: skip
