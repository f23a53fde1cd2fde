"""A bearer token becomes a `Caller`.

Rules:

* One SELECT, outside of any transaction, and no write: this stands in front of every begin and outcome.
* Form and checksum first: what is no token costs no look-up. Everything refused has one message.
* A token counts while it is neither expired nor revoked, of the vault's epoch, its workflow is not deleted, and
  its issuer is enabled and could issue it today. What the issuer may reach is read now, not remembered.
* Time is never earlier than the vault's high-water mark, so a clock set back revives nothing.
* Scope comes from the row alone; ids in a request are checked against it by the services.
* An observer sees no workspace. Its token counts while its issuer is an administrator. The producer token of the
  environment is an observer as well: any text, compared whole and in constant time. So is the token of metrics,
  which belongs to a monitor: it sees no workspace and no scope.

Source: wire.md, Credentials; security.md T01 to T07.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from app.auth import tokens, workspaces
from app.auth.schema import credentials, memberships, users
from app.auth.sessions import SignedIn, home_of
from app.auth.settings import SECOND_US, CredentialSettings
from continuity.errors import SealedError, UnauthenticatedError
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.clock import Clock
from continuity.services.owners import Owners
from continuity.store.compiled import Compiled
from continuity.store.schema import vault as vault_rows
from continuity.store.schema import workflows
from continuity.store.schema import workspaces as workspace_rows
from continuity.store.store import Store

# "Bearer" in any case, one space, nothing else (RFC 9110, 11.4). Two headers arrive joined by a comma.
_HEADER: Final = re.compile(r"bearer (\S+)", re.IGNORECASE | re.ASCII)
_REFUSED: Final = "A valid credential is required."
_USES_MOST: Final = 10_000
_OWNING: Final = frozenset({CallerKind.COORDINATOR, CallerKind.THREAD_WORKER, CallerKind.APPLICATION})
"""Kinds to whose principals something belongs."""
PRODUCER: Final = "env:producer"
"""`Caller.actor` of whoever brings the producer token of the environment."""
MONITOR: Final = "env:monitor"
"""`Caller.actor` of whoever brings the metrics token of the environment."""


class EnvironmentToken:
    """A token that an installation takes from its environment; a digest of it is all that is kept.

    With a scope it is a producer's, without one it is a monitor's.
    """

    def __init__(self, token: str, scope: str | None = None) -> None:
        self._digest = _digest(token)
        self.scope = scope

    def __repr__(self) -> str:
        return f"EnvironmentToken(scope={self.scope!r})"

    def is_same(self, token: str) -> bool:
        """Say whether `token` is this one."""
        return hmac.compare_digest(self._digest, _digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Principals:
    """Finds out whose token a request brings."""

    def __init__(
        self, store: Store, clock: Clock, *, owners: Owners, of_environment: Sequence[EnvironmentToken] = ()
    ) -> None:
        self._store = store
        self._clock = clock
        self._owners = owners
        self._of_environment = tuple(of_environment)
        self.uses = LastUses(store, clock, CredentialSettings())

    def bearer(self, header: str, *, request_id: str) -> Caller:
        """Return the caller behind an ``Authorization`` header; UnauthenticatedError for everything else."""
        matched = _HEADER.fullmatch(header)
        token = matched[1] if matched else ""
        for known in self._of_environment:
            if known.is_same(token):
                return _of_environment(known, request_id=request_id)
        if not tokens.is_well_formed(token):
            raise UnauthenticatedError(_REFUSED)
        parameters = {"token_hash": tokens.hash_of(token)}
        rows = self._store.autocommit(lambda connection: _FIND.all(connection, parameters))
        if not rows or not _is_alive(rows[0], now_us=self._clock.now_us()):
            raise UnauthenticatedError(_REFUSED)
        caller = self._caller(rows, request_id=request_id)
        self.uses.note(rows[0].credential_id, last_used_at=rows[0].last_used_at)
        return caller

    def _caller(self, rows: Sequence[Any], *, request_id: str) -> Caller:
        row = rows[0]
        kind = CallerKind(row.kind)
        if kind is CallerKind.OBSERVER:
            if row.role != Role.ADMINISTRATOR or row.scope is None:
                raise UnauthenticatedError(_REFUSED)
            return _observer(f"cred:{row.credential_id}", request_id=request_id, scope=row.scope)
        seen = _seen(rows)
        if seen is not None and not seen:
            raise UnauthenticatedError(_REFUSED)
        home = row.workspace_pk if row.workspace_pk is not None else home_of(seen, default_pk=row.default_pk)
        return Caller(
            kind=kind,
            actor=f"cred:{row.credential_id}",
            request_id=request_id,
            workspaces=seen,
            home_workspace=home,
            owner_pk=row.owner_pk if kind in _OWNING else None,
            workflow_id=row.workflow_id,
            principal=self._name(row.owner_pk, epoch=row.epoch),
            agents=self._agents(row.owner_pk, epoch=row.epoch) if kind is CallerKind.THREAD_WORKER else frozenset(),
        )

    def _name(self, owner_pk: int, *, epoch: int) -> str:
        try:
            return self._owners.name(owner_pk, epoch=epoch)
        except SealedError:
            # The token is good. That the vault is locked is for the service to say, if it needs the vault.
            return ""

    def _agents(self, owner_pk: int, *, epoch: int) -> frozenset[str]:
        try:
            return self._owners.agents(owner_pk, epoch=epoch)
        except SealedError:
            # As above.
            return frozenset()


def _of_environment(known: EnvironmentToken, *, request_id: str) -> Caller:
    if known.scope is not None:
        return _observer(PRODUCER, request_id=request_id, scope=known.scope)
    return Caller(
        kind=CallerKind.MONITOR, actor=MONITOR, request_id=request_id, workspaces=frozenset(), home_workspace=0
    )


def _observer(actor: str, *, request_id: str, scope: str) -> Caller:
    """Return a caller who sees no workspace and may submit events into one scope."""
    return Caller(
        kind=CallerKind.OBSERVER,
        actor=actor,
        request_id=request_id,
        workspaces=frozenset(),
        home_workspace=0,
        observation_scope=scope,
    )


def person(signed_in: SignedIn, *, request_id: str) -> Caller:
    """Return the caller behind a session."""
    return Caller(
        kind=CallerKind.PERSON,
        actor=signed_in.actor,
        request_id=request_id,
        workspaces=signed_in.workspaces,
        home_workspace=signed_in.home_workspace,
        role=signed_in.role,
        is_fresh=signed_in.is_fresh,
        principal=signed_in.username,
    )


class LastUses:
    """Remembers when credentials were used, to be written down now and then and never in a request's way."""

    def __init__(self, store: Store, clock: Clock, settings: CredentialSettings) -> None:
        self._store = store
        self._clock = clock
        self._interval_us = settings.last_used_s * SECOND_US
        self._lock = threading.Lock()
        self._uses: dict[str, int] = {}

    def note(self, credential_id: str, *, last_used_at: int | None) -> None:
        """Remember a use, when what stands in the database is a minute old or more."""
        now_us = self._clock.now_us()
        if last_used_at is not None and now_us - last_used_at < self._interval_us:
            return
        with self._lock:
            if len(self._uses) < _USES_MOST:
                self._uses[credential_id] = now_us

    def flush(self) -> None:
        """Write down what was remembered. Meant for a thread of its own, about once a minute."""
        with self._lock:
            uses, self._uses = self._uses, {}
        if not uses:
            return
        statement = (
            sa.update(credentials)
            .where(credentials.c.credential_id == sa.bindparam("used_id"))
            .values(last_used_at=sa.bindparam("used_at"))
        )
        # In one order, so that two processes cannot wait for each other.
        values = [{"used_id": credential_id, "used_at": uses[credential_id]} for credential_id in sorted(uses)]
        self._store.write(lambda connection: connection.execute(statement, values).rowcount)


# One row, or one a workspace of the issuer for a credential that reaches all of them.
_FIND: Final = Compiled(
    sa.select(
        credentials.c.credential_id, credentials.c.kind, credentials.c.owner_pk, credentials.c.workspace_pk,
        credentials.c.expires_at, credentials.c.revoked_at, credentials.c.last_used_at, credentials.c.epoch,
        credentials.c.scope,
        users.c.role, users.c.disabled_at, memberships.c.workspace_pk.label("member_of"),
        vault_rows.c.epoch.label("vault_epoch"), vault_rows.c.clock_high_water,
        workflows.c.workflow_id, workflows.c.deleted_at, workspace_rows.c.workspace_pk.label("default_pk"),
    )
    .select_from(
        credentials.join(users, users.c.user_pk == credentials.c.issuer_pk)
        .join(vault_rows, vault_rows.c.id == 1)
        .outerjoin(workflows, workflows.c.workflow_pk == credentials.c.workflow_pk)
        # Of operators alone: with a role that issues nothing no workspace is left, which is refused.
        .outerjoin(memberships, sa.and_(
            memberships.c.user_pk == users.c.user_pk,
            users.c.role == Role.OPERATOR.value,
            sa.or_(
                credentials.c.workspace_pk.is_(None),
                memberships.c.workspace_pk == credentials.c.workspace_pk,
            ),
        ))
        .outerjoin(workspace_rows, sa.and_(
            credentials.c.workspace_pk.is_(None), workspace_rows.c.name == workspaces.DEFAULT
        ))
    )
    .where(credentials.c.token_hash == sa.bindparam("token_hash"))
)  # fmt: skip


def _is_alive(row: Any, *, now_us: int) -> bool:
    is_workflow_there = row.kind != CallerKind.WORKER or (row.workflow_id is not None and row.deleted_at is None)
    return (
        row.revoked_at is None
        and row.epoch == row.vault_epoch
        and max(now_us, row.clock_high_water) < row.expires_at
        and row.disabled_at is None
        and is_workflow_there
    )


def _seen(rows: Sequence[Any]) -> frozenset[int] | None:
    """Return the workspaces that the credential reaches today; None for all, empty when there is none left."""
    row = rows[0]
    is_all = row.role == Role.ADMINISTRATOR
    if row.workspace_pk is not None:
        return frozenset({row.workspace_pk}) if is_all or row.member_of is not None else frozenset()
    return None if is_all else frozenset(each.member_of for each in rows if each.member_of is not None)
