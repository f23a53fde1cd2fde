"""Credentials as an administrator looks at them: a page of them, newest first, or one. Nothing here changes anything.

The names of principals are sealed. Where the vault is locked, or one of them cannot be opened, everything else is
shown all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth.schema import credentials, memberships, users
from continuity.errors import DecryptionError, IntegrityError, NotFoundError, SealedError
from continuity.services.callers import CallerKind, Role
from continuity.services.clock import Clock
from continuity.services.owners import PARTITION as NAMES
from continuity.services.owners import Owners
from continuity.store.schema import partitions, workflows
from continuity.store.schema import vault as vault_rows
from continuity.store.schema import workspaces as workspace_rows
from continuity.store.store import Store

PAGE_SIZE: Final = 50


class State(StrEnum):
    """What becomes of a request with the token."""

    ALIVE = "alive"
    REFUSED = "refused"
    """Neither expired nor revoked, but its issuer could not issue it today, or its workflow is gone."""
    EXPIRED = "expired"
    VOID = "void"
    """From before a restore of the vault."""
    REVOKED = "revoked"


class NameState(StrEnum):
    """Why a principal's name is not there."""

    SHOWN = "shown"
    SEALED = "sealed"
    UNREADABLE = "unreadable"


LISTED: Final = (State.ALIVE, State.EXPIRED, State.REVOKED)
"""States that a list can be asked for. `ALIVE` finds refused ones too, `EXPIRED` void ones too."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One credential. Times in microseconds; `workspace` None: all of the issuer's.

    `key_id` is that of the master key over a name that is unreadable.
    """

    credential_id: str
    kind: str
    principal_id: str
    name_state: NameState
    key_id: int | None
    workspace: str | None
    workflow_id: str | None
    scope: str | None
    issuer: str
    issued_at_us: int
    expires_at_us: int
    revoked_at_us: int | None
    last_used_at_us: int | None
    state: State


@dataclass(frozen=True, slots=True)
class CredentialQuestion:
    """Which credentials; `before` is the position of the last one that was seen."""

    kind: str = ""
    state: State | None = None
    workspace: str = ""
    issuer: str = ""
    principal_id: str = ""
    before: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class CredentialPage:
    """Newest first, at most `PAGE_SIZE`. `next_before` is the position to go on behind, None at the end."""

    credentials: tuple[Credential, ...]
    next_before: tuple[int, str] | None


class CredentialList:
    """Reads credentials for administrators, who see all of them."""

    def __init__(self, store: Store, owners: Owners, clock: Clock) -> None:
        self._store = store
        self._owners = owners
        self._clock = clock

    def page(self, question: CredentialQuestion) -> CredentialPage:
        """Return a page. SealedError when a principal is asked for while the vault is locked."""
        rows, now_us = self._store.read(lambda connection: self._rows(connection, question))
        shown = tuple(self._named(rows[:PAGE_SIZE], now_us=now_us))
        last = rows[PAGE_SIZE - 1] if len(rows) > PAGE_SIZE else None
        return CredentialPage(shown, None if last is None else (last.issued_at, last.credential_id))

    def one(self, credential_id: str) -> Credential:
        """Return one credential. NotFoundError when there is none of this id."""
        wanted = credentials.c.credential_id == credential_id
        rows, now_us = self._store.read(lambda connection: self._read(connection, wanted, most=1))
        if not rows:
            raise NotFoundError("There is no such credential.")
        return self._named(rows, now_us=now_us)[0]

    def _rows(self, connection: Connection, question: CredentialQuestion) -> tuple[list[Any], int]:
        now_us, epoch = self._now(connection)
        wanted = [sa.true()]
        if question.kind:
            wanted.append(credentials.c.kind == question.kind)
        if question.state is not None:
            wanted.append(_of_state(question.state, now_us=now_us, epoch=epoch))
        if question.workspace:
            wanted.append(workspace_rows.c.name == question.workspace)
        if question.issuer:
            wanted.append(users.c.username == question.issuer)
        if question.principal_id:
            owner = self._owners.find(connection, question.principal_id)
            wanted.append(sa.false() if owner is None else credentials.c.owner_pk == owner.owner_pk)
        if question.before is not None:
            position = sa.tuple_(credentials.c.issued_at, credentials.c.credential_id)
            wanted.append(position < sa.tuple_(*question.before))
        return self._read(connection, sa.and_(*wanted), most=PAGE_SIZE + 1)

    def _read(self, connection: Connection, wanted: sa.ColumnElement[bool], *, most: int) -> tuple[list[Any], int]:
        now_us, _ = self._now(connection)
        return list(connection.execute(_READ.where(wanted).limit(most))), now_us

    def _now(self, connection: Connection) -> tuple[int, int]:
        mark = connection.execute(sa.select(vault_rows.c.clock_high_water, vault_rows.c.epoch)).one()
        return max(self._clock.now_us(), mark.clock_high_water), mark.epoch

    def _named(self, rows: list[Any], *, now_us: int) -> list[Credential]:
        is_sealed, found = False, []
        for row in rows:
            name, state = ("", NameState.SEALED) if is_sealed else self._name(row)
            is_sealed = state is NameState.SEALED
            key_id = self._key_id() if state is NameState.UNREADABLE else None
            found.append(_credential(row, name=name, name_state=state, key_id=key_id, now_us=now_us))
        return found

    def _key_id(self) -> int | None:
        statement = sa.select(partitions.c.key_id).where(partitions.c.partition_id == NAMES)
        return self._store.autocommit(lambda connection: connection.execute(statement).scalar_one_or_none())

    def _name(self, row: Any) -> tuple[str, NameState]:
        try:
            return self._owners.name(row.owner_pk, epoch=row.epoch), NameState.SHOWN
        except SealedError:
            return "", NameState.SEALED
        except (DecryptionError, IntegrityError):
            # One damaged name takes no other row away.
            return "", NameState.UNREADABLE


_IS_MEMBER: Final = sa.exists().where(
    memberships.c.user_pk == users.c.user_pk,
    sa.or_(credentials.c.workspace_pk.is_(None), memberships.c.workspace_pk == credentials.c.workspace_pk),
)
_READ: Final = (
    sa.select(
        credentials, users.c.username, users.c.role, users.c.disabled_at, workflows.c.workflow_id,
        workflows.c.deleted_at, workspace_rows.c.name.label("workspace"), vault_rows.c.epoch.label("vault_epoch"),
        _IS_MEMBER.label("is_member"),
    )
    .select_from(
        credentials.join(users, users.c.user_pk == credentials.c.issuer_pk)
        .join(vault_rows, vault_rows.c.id == 1)
        .outerjoin(workflows, workflows.c.workflow_pk == credentials.c.workflow_pk)
        .outerjoin(workspace_rows, workspace_rows.c.workspace_pk == credentials.c.workspace_pk)
    )
    .order_by(credentials.c.issued_at.desc(), credentials.c.credential_id.desc())
)  # fmt: skip


def _of_state(state: State, *, now_us: int, epoch: int) -> sa.ColumnElement[bool]:
    is_over = sa.or_(credentials.c.expires_at <= now_us, credentials.c.epoch != epoch)
    if state is State.REVOKED:
        return credentials.c.revoked_at.is_not(None)
    return sa.and_(credentials.c.revoked_at.is_(None), is_over if state is State.EXPIRED else sa.not_(is_over))


def _state(row: Any, *, now_us: int) -> State:
    """Say what `app.auth.principals` would."""
    if row.revoked_at is not None:
        return State.REVOKED
    if row.epoch != row.vault_epoch:
        return State.VOID
    if row.expires_at <= now_us:
        return State.EXPIRED
    is_worker_of_nothing = row.kind == CallerKind.WORKER and (row.workflow_id is None or row.deleted_at is not None)
    may_issue = row.role == Role.ADMINISTRATOR or (
        row.role == Role.OPERATOR and row.is_member and row.kind != CallerKind.OBSERVER
    )
    return State.ALIVE if row.disabled_at is None and may_issue and not is_worker_of_nothing else State.REFUSED


def _credential(row: Any, *, name: str, name_state: NameState, key_id: int | None, now_us: int) -> Credential:
    return Credential(
        credential_id=row.credential_id, kind=row.kind, principal_id=name, name_state=name_state,
        key_id=key_id,
        workspace=row.workspace, workflow_id=row.workflow_id, scope=row.scope, issuer=row.username,
        issued_at_us=row.issued_at, expires_at_us=row.expires_at, revoked_at_us=row.revoked_at,
        last_used_at_us=row.last_used_at, state=_state(row, now_us=now_us),
    )  # fmt: skip
