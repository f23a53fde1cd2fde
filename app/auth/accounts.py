"""People: create, change role, disable, enable, reset, recover.

Rules:

* A new or reset account has a temporary password: made here from 120 random bits, shown once, valid for 24 hours,
  and good for nothing but choosing another one.
* Role, password and being enabled move the account's `stamp`, which ends every session of it at once.
* The last administrator who can come in can be neither demoted nor disabled; one whose temporary password is over
  does not count. The rows of all administrators are locked before they are counted, so two demotions at once cannot
  both go through.
* A person who does it must be an administrator still, in that very transaction.
* `seen` is the mark of what somebody decided on (`app.auth.people`); where the account is another by now, nothing
  is changed. Without it, as on the host's command line, the account is taken as it is.
* Accounts are disabled and never deleted: a username and a user_id mean one person for good.
* Usernames are stored in their one canonical form (lower case ASCII) and no other form signs in.

Source: security.md A05, A10, A13 to A16.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import passwords as password_rules
from app.auth import people, second_factor, sessions, throttle, workspaces
from app.auth.passwords import Passwords
from app.auth.schema import memberships, second_factors, users
from app.auth.settings import SECOND_US, AuthSettings
from continuity.errors import ConflictError, ForbiddenError, MalformedError, NotFoundError
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.callers import Role
from continuity.services.clock import Clock
from continuity.store.store import Store

FIRST_ADMINISTRATOR: Final = "administrator"
_USERNAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_LIST_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class By:
    """Who does it: ``user:…`` with the request, or the host's own command line."""

    actor: str
    request_id: str | None = None


LOCAL: Final = By("cli")
"""Whoever may run commands on the instance: reading its key file is proof enough."""


@dataclass(frozen=True, slots=True)
class Temporary:
    """A temporary password, this once. Times in microseconds."""

    username: str
    password: str
    valid_until_us: int

    def __repr__(self) -> str:
        """Show everything but the password."""
        return f"Temporary(username={self.username!r})"


@dataclass(frozen=True, slots=True)
class AccountView:
    """A line of the list. Times in microseconds."""

    user_id: str
    username: str
    role: Role
    workspaces: tuple[str, ...]
    is_enabled: bool
    must_change_password: bool
    has_second_factor: bool
    signed_in_at_us: int | None
    created_at_us: int


class Accounts:
    """Changes people's accounts. Every change is one transaction with its audit entry."""

    def __init__(
        self, store: Store, audit: AuditLog, *, clock: Clock, passwords: Passwords, settings: AuthSettings
    ) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._passwords = passwords
        self._settings = settings

    def create(self, username: str, *, role: Role, workspace_names: Sequence[str], by: By) -> Temporary:
        """Make an account with a temporary password; workspaces that do not exist yet are made."""
        check_username(username)
        wanted = list(dict.fromkeys(workspace_names)) or [workspaces.DEFAULT]
        for name in wanted:
            workspaces.check_name(name)
        made = self._temporary(username)
        password_hash = self._passwords.hash(made.password)

        def work(connection: Connection) -> None:
            check_may(connection, by)
            if _find(connection, username) is not None:
                raise ConflictError("There is an account of this name already.", code="request_conflict")
            user = self._insert(connection, made, role=role, password_hash=password_hash)
            _join(connection, user.user_pk, wanted)
            self._record(connection, "user.create", user.user_id, by=by, detail={"role": role.value})

        try:
            self._store.write(work)
        except sa.exc.IntegrityError:
            # On PostgreSQL two may find the name free at once; the unique constraint decides.
            raise ConflictError("There is an account of this name already.", code="request_conflict") from None
        return made

    def bootstrap(self) -> Temporary | None:
        """Make the first administrator; None when there is any account, so that it can be asked again."""
        if self._store.autocommit(lambda connection: connection.execute(sa.select(users.c.user_pk).limit(1)).first()):
            return None
        try:
            return self.create(
                FIRST_ADMINISTRATOR, role=Role.ADMINISTRATOR, workspace_names=[workspaces.DEFAULT], by=LOCAL
            )
        except ConflictError:
            # Another process did it at the same moment, and has shown the password.
            return None

    def set_role(self, username: str, role: Role, *, by: By, seen: str | None = None) -> None:
        """Change the role and end all sessions. The same role again changes nothing."""

        def work(connection: Connection) -> None:
            user = _locked(connection, username, by=by, seen=seen)
            if user.role == role:
                return
            if role is not Role.ADMINISTRATOR:
                self._check_not_last(connection, user.user_pk)
            _update(connection, user.user_pk, role=role.value)
            self._record(connection, "user.set_role", user.user_id, by=by, detail={"role": role.value})

        self._store.write(work)

    def set_workspaces(self, username: str, names: Sequence[str], *, by: By, seen: str | None = None) -> None:
        """Let the person belong to exactly these workspaces, from the next request on. New ones are made.

        Sessions go on: what somebody sees is read at each request.
        """
        wanted = sorted(set(names))
        if not wanted:
            raise MalformedError("workspace must be given at least once.")
        for name in wanted:
            workspaces.check_name(name)

        def work(connection: Connection) -> None:
            user = _locked(connection, username, by=by, seen=seen)
            if people.workspaces_of(connection, [user.user_pk])[user.user_pk] == wanted:
                return
            connection.execute(sa.delete(memberships).where(memberships.c.user_pk == user.user_pk))
            _join(connection, user.user_pk, wanted)
            self._record(connection, "user.set_workspaces", user.user_id, by=by, detail={"workspaces": wanted})

        self._store.write(work)

    def disable(self, username: str, *, by: By, seen: str | None = None) -> None:
        """Refuse sign-in, sessions and issued credentials of this person from now on."""

        def work(connection: Connection) -> None:
            user = _locked(connection, username, by=by, seen=seen)
            if user.disabled_at is not None:
                return
            self._check_not_last(connection, user.user_pk)
            _update(connection, user.user_pk, disabled_at=self._clock.now_us())
            self._record(connection, "user.disable", user.user_id, by=by)

        self._store.write(work)

    def enable(self, username: str, *, by: By, seen: str | None = None) -> None:
        """Let the person sign in again."""

        def work(connection: Connection) -> None:
            user = _locked(connection, username, by=by, seen=seen)
            if user.disabled_at is None:
                return
            _update(connection, user.user_pk, disabled_at=None)
            self._record(connection, "user.enable", user.user_id, by=by)

        self._store.write(work)

    def reset_password(self, username: str, *, by: By, seen: str | None = None) -> Temporary:
        """Replace the password by a temporary one and end all sessions."""
        made = self._temporary(username)
        password_hash = self._passwords.hash(made.password)

        def work(connection: Connection) -> None:
            user = _locked(connection, username, by=by, seen=seen)
            if by.actor == f"user:{user.user_id}":
                raise ConflictError("Your own password is changed on your own page, and not reset.")
            self._set_temporary(connection, user.user_pk, made, password_hash=password_hash)
            self._record(connection, "user.reset_password", user.user_id, by=by)

        self._store.write(work)
        return made

    def reset_second_factor(self, username: str, *, by: By, seen: str | None = None) -> bool:
        """Take somebody's second factor away and end all sessions; False, and nothing else, when there was none."""

        def work(connection: Connection) -> bool:
            user = _locked(connection, username, by=by, seen=seen)
            if by.actor == f"user:{user.user_id}":
                raise ConflictError("Your own second factor is turned off on your own page, with a code of it.")
            if not second_factor.remove_all(connection, user_pk=user.user_pk):
                return False
            _update(connection, user.user_pk)
            throttle.clear_codes(connection, username)
            self._record(connection, "user.reset_second_factor", user.user_id, by=by)
            return True

        return self._store.write(work)

    def recover_administrator(self, username: str = FIRST_ADMINISTRATOR) -> Temporary:
        """Make `username` an enabled administrator with a temporary password, new if need be. For the host alone.

        A second factor is taken away: whoever is locked out may have lost it.
        """
        check_username(username)
        made = self._temporary(username)
        password_hash = self._passwords.hash(made.password)

        def work(connection: Connection) -> None:
            throttle.clear(connection)
            user = _find(connection, username)
            if user is None:
                user_id = self._insert(connection, made, role=Role.ADMINISTRATOR, password_hash=password_hash).user_id
            else:
                user_id = user.user_id
                self._set_temporary(
                    connection, user.user_pk, made, password_hash=password_hash,
                    role=Role.ADMINISTRATOR.value, disabled_at=None,
                )  # fmt: skip
                if second_factor.remove_all(connection, user_pk=user.user_pk):
                    self._record(connection, "user.reset_second_factor", user_id, by=LOCAL)
            self._record(connection, "user.recover_administrator", user_id, by=LOCAL)

        self._store.write(work)
        return made

    def all(self) -> list[AccountView]:
        """Return all accounts by username, at most 10,000."""
        return self._store.read(_list)

    def _check_not_last(self, connection: Connection, user_pk: int) -> None:
        """Refuse to lose the last administrator, or the last one who can come in."""
        now_us = self._clock.now_us()
        able = {
            row.user_pk: row.temporary_until is None or row.temporary_until > now_us
            for row in _administrators(connection)
        }
        if user_pk not in able:
            return
        is_able = able.pop(user_pk)
        if not able or (is_able and not any(able.values())):
            raise ConflictError(
                "The last administrator can be neither demoted nor disabled.", code="last_administrator"
            )

    def _temporary(self, username: str) -> Temporary:
        until_us = self._clock.now_us() + self._settings.temporary_s * SECOND_US
        return Temporary(username, password_rules.temporary_password(), until_us)

    def _insert(self, connection: Connection, made: Temporary, *, role: Role, password_hash: str) -> sa.Row[int, str]:
        return connection.execute(
            sa.insert(users)
            .values(
                user_id=f"usr_{secrets.token_hex(10)}", username=made.username, role=role.value,
                password_hash=password_hash, temporary_until=made.valid_until_us, created_at=self._clock.now_us(),
                stamp=1,
            )
            .returning(users.c.user_pk, users.c.user_id)
        ).one()  # fmt: skip

    def _set_temporary(
        self, connection: Connection, user_pk: int, made: Temporary, *, password_hash: str, **more: object
    ) -> None:
        _update(connection, user_pk, password_hash=password_hash, temporary_until=made.valid_until_us, **more)
        throttle.clear_account(connection, made.username)

    def _record(
        self, connection: Connection, action: str, user_id: str, *, by: By, detail: dict[str, object] | None = None
    ) -> None:
        entry = AuditEntry(
            action=action, actor=by.actor, object_id=user_id, result="done", request_id=by.request_id, detail=detail
        )
        self._audit.append(connection, entry, now_us=self._clock.now_us())


def check_username(username: str) -> None:
    if not _USERNAME.fullmatch(username):
        raise MalformedError(
            "username must be 1 to 64 characters of a-z 0-9 . _ -, with a letter or digit at both ends."
        )


def named(username: str) -> sa.ColumnElement[bool]:
    """Say which row is of this name; none for text that no name can be, which no database need see."""
    return users.c.username == username if _USERNAME.fullmatch(username) else sa.false()


def _find(connection: Connection, username: str) -> Any:
    return connection.execute(sa.select(users).where(named(username)).with_for_update()).one_or_none()


def _locked(connection: Connection, username: str, *, by: By, seen: str | None) -> Any:
    """Return the account's row. Administrators' rows are locked first and in one order, against deadlock."""
    check_may(connection, by)
    user = _find(connection, username)
    if user is None:
        raise NotFoundError("There is no such account.")
    if seen is not None and seen != people.mark_of(
        user, people.workspaces_of(connection, [user.user_pk])[user.user_pk]
    ):
        raise ConflictError("The account has changed since it was looked at.", code="stale_revision")
    return user


def check_may(connection: Connection, by: By) -> None:
    """Refuse a person who is no administrator any more. Locks the rows of all who are."""
    able = {f"user:{row.user_id}" for row in _administrators(connection)}
    if by.actor.startswith("user:") and by.actor not in able:
        raise ForbiddenError("Only administrators manage accounts.")


def _administrators(connection: Connection) -> Sequence[Any]:
    return connection.execute(
        sa.select(users.c.user_pk, users.c.user_id, users.c.temporary_until)
        .where(users.c.role == Role.ADMINISTRATOR.value, users.c.disabled_at.is_(None))
        .order_by(users.c.user_pk)
        .with_for_update()
    ).all()


def _join(connection: Connection, user_pk: int, names: Sequence[str]) -> None:
    for name in names:
        workspace_pk = workspaces.ensure(connection, name)
        connection.execute(sa.insert(memberships).values(user_pk=user_pk, workspace_pk=workspace_pk))


def _update(connection: Connection, user_pk: int, **values: object) -> None:
    """Change the account and end its sessions."""
    connection.execute(sa.update(users).where(users.c.user_pk == user_pk).values(stamp=users.c.stamp + 1, **values))
    sessions.end_all(connection, user_pk=user_pk)


def _list(connection: Connection) -> list[AccountView]:
    names = workspaces.names(connection)
    of: dict[int, list[str]] = {}
    for row in connection.execute(sa.select(memberships)):
        of.setdefault(row.user_pk, []).append(names[row.workspace_pk])
    with_factor = set(connection.execute(
        sa.select(second_factors.c.user_pk).where(second_factors.c.confirmed_at.is_not(None))
    ).scalars())  # fmt: skip
    rows = connection.execute(sa.select(users).order_by(users.c.username).limit(_LIST_MOST))
    return [
        AccountView(
            row.user_id, row.username, Role(row.role), tuple(sorted(of.get(row.user_pk, []))),
            is_enabled=row.disabled_at is None, must_change_password=row.temporary_until is not None,
            has_second_factor=row.user_pk in with_factor, signed_in_at_us=row.signed_in_at,
            created_at_us=row.created_at,
        )
        for row in rows
    ]  # fmt: skip
