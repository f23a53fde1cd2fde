"""Server-side sessions. A row decides; the cookie only names it.

Rules:

* A session id is 256 random bits; the row has its SHA-256. An id that a browser brings is never adopted.
* A session is valid while its row is there, its user is enabled, its `stamp` is the user's and its `epoch` the
  vault's. Role change, disabling, reset and a new password move the stamp, a restore moves the epoch.
* It ends after 30 minutes without a request (15 for administrators) and 12 hours after signing in. Polls do not
  count as requests. A session found ended is deleted, so that a clock set back cannot revive it; and time is never
  taken to be earlier than the vault's high-water mark or the row's own last use.
* Being seen is an UPDATE and never an INSERT: a request that finishes late cannot bring back what was ended.

Source: security.md S01 to S07, S13.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import csrf, workspaces
from app.auth.schema import memberships, policy, second_factors, sessions, users
from app.auth.settings import SECOND_US, SessionSettings
from continuity.errors import UnauthenticatedError
from continuity.services.callers import Role
from continuity.services.clock import Clock
from continuity.store.schema import vault
from continuity.store.schema import workspaces as workspace_rows
from continuity.store.store import Store

_ID_BYTES = 32


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that has just begun. The id goes into the cookie and nowhere else."""

    session_id: str
    csrf_token: str
    expires_at_us: int


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The person behind a valid session, as of this request."""

    session_id: str
    user_pk: int
    user_id: str
    username: str
    role: Role
    stamp: int
    workspaces: frozenset[int] | None
    home_workspace: int
    must_change: bool
    is_fresh: bool
    must_enrol: bool = False
    """The policy wants a second factor of this administrator, who has none: nothing else is open before."""

    @property
    def is_held(self) -> bool:
        """Say whether something must be done before anything else is open."""
        return self.must_change or self.must_enrol

    @property
    def actor(self) -> str:
        return f"user:{self.user_id}"


class Sessions:
    """Opens, finds and ends sessions."""

    def __init__(self, store: Store, clock: Clock, settings: SessionSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    def open(self, connection: Connection, *, user_pk: int, stamp: int) -> Opened:
        """Begin a session inside the caller's transaction; the oldest beyond five of this person end."""
        mark = connection.execute(sa.select(vault.c.epoch, vault.c.clock_high_water)).one()
        now_us = max(self._clock.now_us(), mark.clock_high_water)
        self._prune(connection, now_us=now_us)
        self._make_room(connection, user_pk=user_pk)
        session_id = secrets.token_urlsafe(_ID_BYTES)
        connection.execute(sa.insert(sessions).values(
            session_hash=hash_of(session_id), user_pk=user_pk, stamp=stamp, created_at=now_us, seen_at=now_us,
            fresh_until=now_us + self._settings.fresh_s * SECOND_US, epoch=mark.epoch,
        ))  # fmt: skip
        expires_at_us = now_us + self._settings.absolute_s * SECOND_US
        return Opened(session_id, csrf.token_for(session_id), expires_at_us)

    def find(self, session_id: str) -> SignedIn | None:
        """Return who is signed in, and count the request as a sign of life."""
        found = self._look(session_id)
        if found is None:
            return None
        person, seen_at = found
        now_us = self._clock.now_us()
        if seen_at <= now_us - self._settings.touch_s * SECOND_US:
            self._store.write(lambda connection: connection.execute(
                sa.update(sessions).where(_is(session_id), sessions.c.seen_at < now_us).values(seen_at=now_us)
            ).rowcount)  # fmt: skip
        return person

    def peek(self, session_id: str) -> SignedIn | None:
        """Return who is signed in without prolonging the session: for polls."""
        found = self._look(session_id)
        return None if found is None else found[0]

    def end(self, session_id: str) -> None:
        """Delete the session, whether it is there or not."""
        self._store.write(lambda connection: end(connection, session_id))

    def prune(self) -> None:
        """Delete every session that has ended by time."""
        self._store.write(lambda connection: self._prune(connection, now_us=self._clock.now_us()))

    def _look(self, session_id: str) -> tuple[SignedIn, int] | None:
        """Return the person and when the row says they were last seen; delete a session that has ended."""
        rows = self._store.autocommit(lambda connection: connection.execute(
            _FIND, {"session_hash": hash_of(session_id)}
        ).all())  # fmt: skip
        if not rows:
            return None
        row = rows[0]
        now_us = max(self._clock.now_us(), row.clock_high_water, row.seen_at)
        if not self._is_valid(row, now_us=now_us):
            self.end(session_id)
            return None
        return _signed_in(session_id, rows, now_us=now_us), row.seen_at

    def _is_valid(self, row: Any, *, now_us: int) -> bool:
        settings = self._settings
        idle_s = settings.idle_of(row.role)
        return (
            row.disabled_at is None
            and row.stamp == row.user_stamp
            and row.epoch == row.vault_epoch
            and now_us < row.seen_at + idle_s * SECOND_US
            and now_us < row.created_at + settings.absolute_s * SECOND_US
        )

    def _prune(self, connection: Connection, *, now_us: int) -> None:
        settings = self._settings
        connection.execute(sa.delete(sessions).where(sa.or_(
            sessions.c.created_at <= now_us - settings.absolute_s * SECOND_US,
            sessions.c.seen_at <= now_us - settings.idle_s * SECOND_US,
        )))  # fmt: skip

    def _make_room(self, connection: Connection, *, user_pk: int) -> None:
        kept = connection.execute(
            sa.select(sessions.c.session_hash)
            .where(sessions.c.user_pk == user_pk)
            .order_by(sessions.c.created_at.desc(), sessions.c.session_hash)
            .limit(self._settings.per_user - 1)
        ).scalars()
        connection.execute(
            sa.delete(sessions).where(sessions.c.user_pk == user_pk, sessions.c.session_hash.not_in(list(kept)))
        )


def check_there(connection: Connection, session_id: str) -> None:
    """Refuse a request whose session was ended meanwhile: what it begins would bring the session back (S07)."""
    found = connection.execute(sa.select(sessions.c.user_pk).where(_is(session_id)).with_for_update()).first()
    if found is None:
        raise UnauthenticatedError("Sign in first.")


def end(connection: Connection, session_id: str) -> None:
    """Delete one session inside the caller's transaction."""
    connection.execute(sa.delete(sessions).where(_is(session_id)))


def end_all(connection: Connection, *, user_pk: int) -> None:
    """Delete every session of one person inside the caller's transaction."""
    connection.execute(sa.delete(sessions).where(sessions.c.user_pk == user_pk))


# One row a workspace of the person, one at least. Administrators' memberships are not read.
_FIND = (
    sa.select(
        sessions.c.stamp, sessions.c.epoch, sessions.c.created_at, sessions.c.seen_at, sessions.c.fresh_until,
        users.c.user_pk, users.c.user_id, users.c.username, users.c.role, users.c.disabled_at,
        users.c.temporary_until, users.c.stamp.label("user_stamp"),
        vault.c.epoch.label("vault_epoch"), vault.c.clock_high_water,
        second_factors.c.confirmed_at, policy.c.administrators_need_second_factor,
        memberships.c.workspace_pk, workspace_rows.c.workspace_pk.label("default_pk"),
    )
    .select_from(
        sessions.join(users, users.c.user_pk == sessions.c.user_pk)
        .join(vault, vault.c.id == 1)
        .outerjoin(second_factors, second_factors.c.user_pk == users.c.user_pk)
        .outerjoin(policy, policy.c.id == 1)
        .outerjoin(memberships, sa.and_(
            memberships.c.user_pk == users.c.user_pk, users.c.role != Role.ADMINISTRATOR.value
        ))
        .outerjoin(workspace_rows, workspace_rows.c.name == workspaces.DEFAULT)
    )
    .where(sessions.c.session_hash == sa.bindparam("session_hash"))
)  # fmt: skip


def home_of(seen: frozenset[int] | None, *, default_pk: int | None) -> int:
    """Return where a principal creates: ``default`` when it may see that, else the oldest it may see, 0 for none."""
    if default_pk is not None and (seen is None or default_pk in seen):
        return default_pk
    return min(seen) if seen else 0


def _signed_in(session_id: str, rows: Any, *, now_us: int) -> SignedIn:
    row = rows[0]
    role = Role(row.role)
    own = frozenset(each.workspace_pk for each in rows if each.workspace_pk is not None)
    seen = None if role is Role.ADMINISTRATOR else own
    must_change = row.temporary_until is not None
    is_wanted = role is Role.ADMINISTRATOR and bool(row.administrators_need_second_factor)
    return SignedIn(
        session_id=session_id,
        user_pk=row.user_pk,
        user_id=row.user_id,
        username=row.username,
        role=role,
        stamp=row.stamp,
        workspaces=seen,
        home_workspace=home_of(seen, default_pk=row.default_pk),
        must_change=must_change,
        is_fresh=now_us < row.fresh_until,
        # A password of one's own comes first.
        must_enrol=is_wanted and row.confirmed_at is None and not must_change,
    )


def _is(session_id: str) -> sa.ColumnElement[bool]:
    return sessions.c.session_hash == hash_of(session_id)


def hash_of(session_id: str) -> bytes:
    """Return what the database knows a session by."""
    return hashlib.sha256(session_id.encode("ascii")).digest()
