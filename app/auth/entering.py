"""What signing in, a new password and a new second factor have in common: beginning a session, and saying so.

Rules:

* What was verified outside of a transaction is checked again under the row's lock: whoever was disabled, reset or
  given a second factor meanwhile is not let in.
* A session begins in the transaction that says so in the audit log, and the one before it ends there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import challenges, sessions, throttle
from app.auth.schema import second_factors, users
from app.auth.sessions import Opened, Sessions
from continuity.errors import UnauthenticatedError
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.callers import Role
from continuity.services.clock import Clock
from continuity.store.store import Store

SIGN_IN: Final = "user.sign_in"


@dataclass(frozen=True, slots=True)
class Visit:
    """Where a request comes from: the peer's address and the request's id."""

    address: str
    request_id: str


LOCAL_VISIT: Final = Visit(address="127.0.0.1", request_id="")


@dataclass(frozen=True, slots=True)
class Welcome:
    """What somebody who has just proved who they are is told."""

    session: Opened
    username: str
    role: Role
    must_change: bool


class Entering:
    """Begins sessions and writes down who came in, and who did not."""

    def __init__(self, store: Store, audit: AuditLog, *, clock: Clock, sessions_: Sessions) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._sessions = sessions_

    def account(self, condition: sa.ColumnElement[bool]) -> Any:
        """Return the account's row with ``has_second_factor``, None when there is none."""
        return self._store.autocommit(lambda connection: account(connection, condition))

    def may_enter(self, row: Any) -> bool:
        """Say whether the account's password is one to sign in with: enabled, and not a dead temporary one."""
        is_dead = row.temporary_until is not None and self._clock.now_us() >= row.temporary_until
        return row.disabled_at is None and not is_dead

    def enter(self, connection: Connection, row: Any, *, action: str, visit: Visit, replaced: str | None) -> Welcome:
        """Begin a session inside the caller's transaction; `replaced` ends, and so do the counted attempts."""
        if replaced is not None:
            sessions.end(connection, replaced)
        throttle.clear_account(connection, row.username)
        if action == SIGN_IN:
            mine = sa.update(users).where(users.c.user_pk == row.user_pk)
            connection.execute(mine.values(signed_in_at=self._clock.now_us()))
        opened = self._sessions.open(connection, user_pk=row.user_pk, stamp=row.stamp)
        self.record(connection, row, action=action, visit=visit)
        return Welcome(opened, row.username, Role(row.role), must_change=row.temporary_until is not None)

    def move_stamp(self, connection: Connection, row: Any, **values: object) -> Any:
        """End every session and every open step of the person, change the account; return its new row."""
        sessions.end_all(connection, user_pk=row.user_pk)
        challenges.end_all(connection, user_pk=row.user_pk)
        return connection.execute(
            sa.update(users)
            .where(users.c.user_pk == row.user_pk)
            .values(stamp=users.c.stamp + 1, **values)
            .returning(*COLUMNS)
        ).one()

    def refuse(self, row: Any, *, action: str, visit: Visit, result: str = UnauthenticatedError.code) -> None:
        """Put a failure on record; the same writes whether the account exists or not."""
        self._store.write(lambda connection: self.record(connection, row, action=action, visit=visit, result=result))

    def record(self, connection: Connection, row: Any, *, action: str, visit: Visit, result: str = "done") -> None:
        """Write an audit entry inside the caller's transaction. Of a failure it is never said who did it."""
        user_id = None if row is None else row.user_id
        actor = "nobody" if row is None or result != "done" else f"user:{user_id}"
        entry = AuditEntry(
            action=action, actor=actor, object_id=user_id, result=result, request_id=visit.request_id or None,
            detail=None,
        )  # fmt: skip
        self._audit.append(connection, entry, now_us=self._clock.now_us())


def account(connection: Connection, condition: sa.ColumnElement[bool]) -> Any:
    """Return the account's row with ``has_second_factor``, None when there is none."""
    return connection.execute(
        sa.select(*COLUMNS, second_factors.c.confirmed_at.is_not(None).label("has_second_factor"))
        .select_from(users.outerjoin(second_factors, second_factors.c.user_pk == users.c.user_pk))
        .where(condition)
    ).one_or_none()


def check_unchanged(connection: Connection, row: Any, *, message: str) -> None:
    """Lock the account and refuse when it changed since its password was verified."""
    stamp = connection.execute(
        sa.select(users.c.stamp).where(users.c.user_pk == row.user_pk).with_for_update()
    ).scalar_one_or_none()
    if stamp != row.stamp:
        raise UnauthenticatedError(message)


COLUMNS: Final = (
    users.c.user_pk, users.c.user_id, users.c.username, users.c.role, users.c.password_hash,
    users.c.temporary_until, users.c.disabled_at, users.c.stamp,
)  # fmt: skip
