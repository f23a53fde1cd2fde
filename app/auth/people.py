"""Accounts as an administrator looks at them: a page of them, or one. Nothing here changes anything.

`Person.mark` is a short word for all that a decision about the account rests on. A form carries it, and `Accounts`
refuses what was decided about another state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import workspaces
from app.auth.schema import memberships, second_factors, users
from continuity.errors import NotFoundError
from continuity.services.callers import Role
from continuity.services.clock import Clock
from continuity.store.store import Store

PAGE_SIZE: Final = 50
_MARK_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class Person:
    """One account. Times in microseconds; `workspaces` in order of their names.

    `temporary_until_us` is set while the password is a temporary one.
    """

    user_id: str
    username: str
    role: Role
    workspaces: tuple[str, ...]
    is_enabled: bool
    temporary_until_us: int | None
    has_second_factor: bool
    created_at_us: int
    signed_in_at_us: int | None
    mark: str


@dataclass(frozen=True, slots=True)
class PeopleQuestion:
    """Which accounts: of this role, whose name begins with `q`, behind the name `after`."""

    role: Role | None = None
    q: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """By username, at most `PAGE_SIZE`. `next_after` is the name to go on behind, None at the end."""

    people: tuple[Person, ...]
    next_after: str | None


class People:
    """Reads accounts for administrators."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def page(self, question: PeopleQuestion) -> PeoplePage:
        """Return a page of accounts."""
        return self._store.read(lambda connection: _page(connection, question))

    def one(self, user_id: str) -> Person:
        """Return one account. NotFoundError when there is none of this id."""
        found = self._store.read(lambda connection: _people(connection, users.c.user_id == user_id, most=1))
        if not found:
            raise NotFoundError("There is no such account.")
        return found[0]

    def named(self, username: str) -> Person:
        """Return the account of this name. NotFoundError when there is none."""
        found = self._store.read(lambda connection: _people(connection, users.c.username == username, most=1))
        if not found:
            raise NotFoundError("There is no such account.")
        return found[0]

    def now_us(self) -> int:
        """Return the time by which a temporary password is over or not."""
        return self._clock.now_us()

    def workspaces(self) -> list[str]:
        """Return the names of all workspaces, in order."""
        return sorted(self._store.autocommit(workspaces.names).values())


def mark_of(row: Any, names: Sequence[str]) -> str:
    """Return the mark of an account's row and its workspaces' names."""
    seen = (row.user_id, row.role, row.stamp, row.disabled_at, row.temporary_until, tuple(sorted(names)))
    return hashlib.sha256(repr(seen).encode("utf-8", "backslashreplace")).hexdigest()[:_MARK_CHARS]


def workspaces_of(connection: Connection, user_pks: Sequence[int]) -> Mapping[int, list[str]]:
    """Return the names of each person's workspaces, in order."""
    names = workspaces.names(connection)
    rows = connection.execute(sa.select(memberships).where(memberships.c.user_pk.in_(user_pks)))
    found: dict[int, list[str]] = {user_pk: [] for user_pk in user_pks}
    for row in rows:
        found[row.user_pk].append(names.get(row.workspace_pk, f"#{row.workspace_pk}"))
    return {user_pk: sorted(each) for user_pk, each in found.items()}


def _page(connection: Connection, question: PeopleQuestion) -> PeoplePage:
    wanted = [users.c.username > question.after]
    if question.role is not None:
        wanted.append(users.c.role == question.role.value)
    if question.q:
        wanted.append(users.c.username.startswith(question.q, autoescape=True))
    found = _people(connection, sa.and_(*wanted), most=PAGE_SIZE + 1)
    page = found[:PAGE_SIZE]
    return PeoplePage(tuple(page), page[-1].username if len(found) > PAGE_SIZE else None)


def _people(connection: Connection, wanted: sa.ColumnElement[bool], *, most: int) -> list[Person]:
    has_second = sa.exists().where(
        second_factors.c.user_pk == users.c.user_pk, second_factors.c.confirmed_at.is_not(None)
    )
    rows = connection.execute(
        sa.select(users, has_second.label("has_second")).where(wanted).order_by(users.c.username).limit(most)
    ).all()
    of = workspaces_of(connection, [row.user_pk for row in rows])
    return [
        Person(
            user_id=row.user_id, username=row.username, role=Role(row.role), workspaces=tuple(of[row.user_pk]),
            is_enabled=row.disabled_at is None, temporary_until_us=row.temporary_until,
            has_second_factor=bool(row.has_second), created_at_us=row.created_at,
            signed_in_at_us=row.signed_in_at, mark=mark_of(row, of[row.user_pk]),
        )
        for row in rows
    ]  # fmt: skip
