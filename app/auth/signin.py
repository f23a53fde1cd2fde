"""Signing in, changing and giving again a password, signing out.

Rules:

* In this order: refuse text that cannot be a password, count the attempt, hash, decide. Never argon2 inside a
  transaction, never a reply before the attempt is on disk.
* Unknown name, wrong password, disabled account and dead temporary password have one answer and cost one hash.
* What was verified is checked again under the row's lock: whoever was disabled or reset meanwhile is not let in.
* Each of them begins a new session; the one that was there before is dead, and so is its CSRF token.

Source: security.md A01, A03, A05, A07 to A09, S02.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import accounts, sessions, throttle
from app.auth import passwords as password_rules
from app.auth.passwords import Passwords
from app.auth.schema import users
from app.auth.sessions import Opened, Sessions, SignedIn
from app.auth.throttle import Throttle
from continuity.errors import MalformedError, UnauthenticatedError
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.callers import Role
from continuity.services.clock import Clock
from continuity.store.store import Store

WRONG = "Username or password is wrong."
SIGN_IN = "user.sign_in"
_WRONG_CURRENT = "The current password is wrong."


@dataclass(frozen=True, slots=True)
class Visit:
    """Where a request comes from: the peer's address and the request's id."""

    address: str
    request_id: str


_LOCAL_VISIT = Visit(address="127.0.0.1", request_id="")


@dataclass(frozen=True, slots=True)
class Welcome:
    """What somebody who has just given the right password is told."""

    session: Opened
    username: str
    role: Role
    must_change: bool


class SignIn:
    """Everything that takes a password."""

    def __init__(
        self,
        store: Store,
        audit: AuditLog,
        *,
        clock: Clock,
        passwords: Passwords,
        limit: Throttle,
        sessions_: Sessions,
    ) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._passwords = passwords
        self._limit = limit
        self._sessions = sessions_

    def sign_in(self, username: str, password: str, *, visit: Visit, replaced: str | None) -> Welcome:
        """Begin a session; the one the browser had (`replaced`) ends."""
        password_rules.check_text(password)
        self._limit.count(username, address=visit.address)
        row = self._row(accounts.named(username))
        if not self._is_right(row, password):
            self._refuse(row, action=SIGN_IN, visit=visit)
            raise UnauthenticatedError(WRONG)
        if self._passwords.is_outdated(row.password_hash):
            self._rehash(row, password)

        def work(connection: Connection) -> Welcome:
            self._check_unchanged(connection, row, message=WRONG)
            return self._enter(connection, row, action=SIGN_IN, visit=visit, replaced=replaced)

        return self._store.write(work)

    def change_password(self, person: SignedIn, *, current: str, new: str, visit: Visit) -> Welcome:
        """Replace the password, end every session of the person, begin a new one."""
        password_rules.check_text(current, name="current_password")
        password_rules.check_new(new, username=person.username, name="new_password")
        row = self._verified(person, current, action="user.change_password", visit=visit)
        if new == current:
            raise MalformedError("new_password must differ from the current one.")
        password_hash = self._passwords.hash(new)

        def work(connection: Connection) -> Welcome:
            self._check_unchanged(connection, row, message=_WRONG_CURRENT)
            sessions.end_all(connection, user_pk=row.user_pk)
            changed = connection.execute(
                sa.update(users)
                .where(users.c.user_pk == row.user_pk)
                .values(password_hash=password_hash, temporary_until=None, stamp=users.c.stamp + 1)
                .returning(*_COLUMNS)
            ).one()
            return self._enter(
                connection, changed, action="user.change_password", visit=visit, replaced=person.session_id
            )

        return self._store.write(work)

    def check_locally(self, username: str, password: str) -> None:
        """Refuse a wrong password at the host's command line before another one is asked for. It is an attempt."""
        password_rules.check_text(password)
        self._verified_locally(username, password, visit=_LOCAL_VISIT)

    def change_password_locally(self, username: str, *, current: str, new: str) -> None:
        """Do the same at the host's command line: no session begins, all end."""
        password_rules.check_text(current)
        password_rules.check_new(new, username=username)
        visit = _LOCAL_VISIT
        row = self._verified_locally(username, current, visit=visit)
        if new == current:
            raise MalformedError("The new password must differ from the current one.")
        password_hash = self._passwords.hash(new)

        def work(connection: Connection) -> None:
            self._check_unchanged(connection, row, message=WRONG)
            throttle.clear_account(connection, row.username)
            sessions.end_all(connection, user_pk=row.user_pk)
            connection.execute(
                sa.update(users)
                .where(users.c.user_pk == row.user_pk)
                .values(password_hash=password_hash, temporary_until=None, stamp=users.c.stamp + 1)
            )
            self._record(connection, row, action="user.change_password", visit=visit)

        self._store.write(work)

    def reauthenticate(self, person: SignedIn, *, password: str, visit: Visit) -> Welcome:
        """Take the password again; for ten minutes from now the session may do what asks for that."""
        password_rules.check_text(password)
        row = self._verified(person, password, action="user.reauthenticate", visit=visit)

        def work(connection: Connection) -> Welcome:
            self._check_unchanged(connection, row, message=_WRONG_CURRENT)
            return self._enter(connection, row, action="user.reauthenticate", visit=visit, replaced=person.session_id)

        return self._store.write(work)

    def sign_out(self, person: SignedIn, *, visit: Visit) -> None:
        """End the session."""

        def work(connection: Connection) -> None:
            sessions.end(connection, person.session_id)
            entry = AuditEntry(
                action="user.sign_out", actor=person.actor, object_id=person.user_id, result="done",
                request_id=visit.request_id, detail=None,
            )  # fmt: skip
            self._audit.append(connection, entry, now_us=self._clock.now_us())

        self._store.write(work)

    def _row(self, condition: sa.ColumnElement[bool]) -> Any:
        return self._store.autocommit(
            lambda connection: connection.execute(sa.select(*_COLUMNS).where(condition)).one_or_none()
        )

    def _is_right(self, row: Any, password: str) -> bool:
        """Pay for one hash whatever is wrong, and say whether this person may come in."""
        if row is None or not self._may_enter(row):
            self._passwords.verify_nothing(password)
            return False
        return self._passwords.verify(row.password_hash, password)

    def _may_enter(self, row: Any) -> bool:
        is_dead = row.temporary_until is not None and self._clock.now_us() >= row.temporary_until
        return row.disabled_at is None and not is_dead

    def _verified(self, person: SignedIn, password: str, *, action: str, visit: Visit) -> Any:
        self._limit.count(person.username, address=visit.address)
        row = self._row(users.c.user_pk == person.user_pk)
        if not self._is_right(row, password):
            self._refuse(row, action=action, visit=visit)
            raise UnauthenticatedError(_WRONG_CURRENT)
        return row

    def _verified_locally(self, username: str, password: str, *, visit: Visit) -> Any:
        self._limit.count(username, address=visit.address)
        row = self._row(accounts.named(username))
        if not self._is_right(row, password):
            self._refuse(row, action="user.change_password", visit=visit)
            raise UnauthenticatedError(WRONG)
        return row

    def _check_unchanged(self, connection: Connection, row: Any, *, message: str) -> None:
        """Lock the account and refuse when it changed since its password was verified."""
        stamp = connection.execute(
            sa.select(users.c.stamp).where(users.c.user_pk == row.user_pk).with_for_update()
        ).scalar_one_or_none()
        if stamp != row.stamp:
            raise UnauthenticatedError(message)

    def _enter(self, connection: Connection, row: Any, *, action: str, visit: Visit, replaced: str | None) -> Welcome:
        if replaced is not None:
            sessions.end(connection, replaced)
        throttle.clear_account(connection, row.username)
        opened = self._sessions.open(connection, user_pk=row.user_pk, stamp=row.stamp)
        if action == SIGN_IN:
            mine = sa.update(users).where(users.c.user_pk == row.user_pk)
            connection.execute(mine.values(signed_in_at=self._clock.now_us()))
        self._record(connection, row, action=action, visit=visit)
        return Welcome(opened, row.username, Role(row.role), must_change=row.temporary_until is not None)

    def _rehash(self, row: Any, password: str) -> None:
        """Write the hash again under today's settings, unless somebody has replaced it meanwhile."""
        password_hash = self._passwords.hash(password)
        mine = sa.and_(users.c.user_pk == row.user_pk, users.c.password_hash == row.password_hash)
        self._store.write(lambda connection: connection.execute(
            sa.update(users).where(mine).values(password_hash=password_hash)
        ).rowcount)  # fmt: skip

    def _refuse(self, row: Any, *, action: str, visit: Visit) -> None:
        """Put the failure on record; the same writes whether the account exists or not."""
        result = UnauthenticatedError.code
        self._store.write(lambda connection: self._record(connection, row, action=action, visit=visit, result=result))

    def _record(self, connection: Connection, row: Any, *, action: str, visit: Visit, result: str = "done") -> None:
        user_id = None if row is None else row.user_id
        actor = "nobody" if row is None or result != "done" else f"user:{user_id}"
        entry = AuditEntry(
            action=action, actor=actor, object_id=user_id, result=result, request_id=visit.request_id or None,
            detail=None,
        )  # fmt: skip
        self._audit.append(connection, entry, now_us=self._clock.now_us())


_COLUMNS = (
    users.c.user_pk, users.c.user_id, users.c.username, users.c.role, users.c.password_hash,
    users.c.temporary_until, users.c.disabled_at, users.c.stamp,
)  # fmt: skip
