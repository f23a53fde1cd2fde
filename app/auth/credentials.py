"""Bearer credentials: issue, revoke, list.

Rules (wire.md, Credentials and the table of roles):

* People issue credentials, operators and administrators, with the password given within ten minutes; never wider
  than their own scope: an operator's reach the workspaces he belongs to, a worker's one workflow of those.
* A token is shown once. What is stored is its SHA-256.
* A credential can do no more than its issuer could do today: disabled, moved out of the workspace or demoted to a
  role that issues none, its tokens are refused (`app.auth.principals`).
* A known principal_id may be issued a credential again only with the same kind and workspace; the older ones stay
  until they are revoked.
* Only administrators name a workspace that does not exist yet; it is made.
* Administrators alone issue and revoke observers' credentials, which belong to no workspace.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import tokens, workspaces
from app.auth.requests import GrantRequest, RevokeRequest
from app.auth.schema import credentials, memberships, users
from app.auth.settings import SECOND_US, CredentialSettings
from continuity.errors import ConflictError, ForbiddenError, NotFoundError, SealedError, UnauthenticatedError
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.clock import Clock
from continuity.services.owners import Owners
from continuity.store.schema import vault as vault_rows
from continuity.store.schema import workflows
from continuity.store.schema import workspaces as workspace_rows
from continuity.store.store import Store

_ISSUING_ROLES = (Role.OPERATOR, Role.ADMINISTRATOR)
_LIST_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Issued:
    """A credential that has just been made, with the only copy of its token."""

    credential_id: str
    principal_id: str
    kind: CallerKind
    token: str
    expires_at_us: int

    def __repr__(self) -> str:
        """Show everything but the token."""
        return f"Issued(credential_id={self.credential_id!r}, kind={self.kind.value!r})"


@dataclass(frozen=True, slots=True)
class CredentialView:
    """A line of the list. Times in microseconds; `workspace` None: all of the issuer's."""

    credential_id: str
    principal_id: str
    kind: str
    workspace: str | None
    workflow_id: str | None
    issuer: str
    issued_at_us: int
    expires_at_us: int
    revoked_at_us: int | None
    last_used_at_us: int | None


@dataclass(frozen=True, slots=True)
class _Issuer:
    user_pk: int
    scope: frozenset[int] | None

    def reaches(self, workspace_pk: int) -> bool:
        return self.scope is None or workspace_pk in self.scope


class Credentials:
    """Issues, revokes and lists credentials on behalf of people."""

    def __init__(
        self, store: Store, owners: Owners, *, audit: AuditLog, clock: Clock, settings: CredentialSettings
    ) -> None:
        self._store = store
        self._owners = owners
        self._audit = audit
        self._clock = clock
        self._settings = settings

    def issue(self, caller: Caller, grant: GrantRequest, *, newest: str | None = None) -> Issued:
        """Make a credential and return its token, this once.

        `newest` is what `newest` said when a form was shown: sent once more by a browser, the form makes no other one.
        """
        _check_may_issue(caller)
        if not caller.is_fresh:
            raise ForbiddenError("Give your password again to issue a credential.", code="reauthentication_required")
        token = tokens.new_token(grant.kind)

        def work(connection: Connection) -> Issued:
            if newest is not None:
                _check_newest(connection, caller, newest)
            return self._issue(connection, caller, grant=grant, token=token)

        return self._store.write(work)

    def newest(self, caller: Caller) -> str:
        """Return the id of the credential that the caller has issued last, ``none`` before the first."""
        return self._store.read(lambda connection: _newest(connection, caller))

    def revoke(self, caller: Caller, request: RevokeRequest) -> int:
        """End the principal's credentials within the caller's scope at once; return how many were alive."""
        _check_may_issue(caller)
        return self._store.write(lambda connection: self._revoke(connection, caller, request=request))

    def revoke_one(self, caller: Caller, credential_id: str) -> bool:
        """End one credential within the caller's scope at once; return whether it was not revoked before."""
        _check_may_issue(caller)

        def work(connection: Connection) -> bool:
            row = _found(connection, _issuer(connection, caller), credential_id)
            return bool(self._end(connection, caller, credentials.c.credential_id == row.credential_id))

        return self._store.write(work)

    def revoke_principal_of(self, caller: Caller, credential_id: str) -> int:
        """End every credential of the same principal within the caller's scope; return how many were not revoked.

        Finds the principal without its name, so that it works while the vault is locked.
        """
        _check_may_issue(caller)

        def work(connection: Connection) -> int:
            issuer = _issuer(connection, caller)
            row = _found(connection, issuer, credential_id)
            return self._end(connection, caller, sa.and_(credentials.c.owner_pk == row.owner_pk, _within(issuer)))

        return self._store.write(work)

    def renew(self, caller: Caller, credential_id: str, *, expires_in_s: int, newest: str | None = None) -> Issued:
        """Make another credential for the same principal and scope; the older ones stay as they are.

        The caller becomes its issuer: one for "all workspaces of the issuer" reaches those of the caller.
        """
        _check_may_issue(caller)
        before = self._store.read(
            lambda connection: _grant_of(connection, _issuer(connection, caller, is_to_write=False), credential_id)
        )
        name = self._owners.name(before.owner_pk, epoch=before.epoch)
        agents = self._owners.agents(before.owner_pk, epoch=before.epoch)
        grant = GrantRequest(
            principal_id=name, kind=CallerKind(before.kind), workflow_id=before.workflow_id,
            workspace=before.workspace, expires_in_s=expires_in_s, observation_scope=before.scope, agents=agents,
        )  # fmt: skip
        return self.issue(caller, grant, newest=newest)

    def end_of_workflow(self, connection: Connection, workflow_pk: int) -> None:
        """End the credentials of a workflow's workers, in the transaction that destroys the workflow."""
        alive = sa.and_(credentials.c.workflow_pk == workflow_pk, credentials.c.revoked_at.is_(None))
        connection.execute(sa.update(credentials).where(alive).values(revoked_at=self._clock.now_us()))

    def in_scope(self, caller: Caller) -> list[CredentialView]:
        """Return the credentials within the caller's scope, newest first, at most 1,000."""
        _check_may_issue(caller)
        return self._store.read(lambda connection: self._list(connection, caller))

    def _issue(self, connection: Connection, caller: Caller, *, grant: GrantRequest, token: str) -> Issued:
        # The vault's row first and shared: whoever wraps a key must not meet the last step of a rotation.
        mark = connection.execute(
            sa.select(vault_rows.c.epoch, vault_rows.c.clock_high_water, vault_rows.c.state)
            .with_for_update(read=True)
        ).one()  # fmt: skip
        if mark.state == "locked":
            raise SealedError("The vault is locked.")
        issuer = _issuer(connection, caller)
        if grant.kind is CallerKind.OBSERVER and issuer.scope is not None:
            raise ForbiddenError("Only administrators issue observers' credentials.")
        workspace_pk, workflow_pk = _reach(connection, issuer, grant)
        owner_pk = self._owners.ensure(
            connection, grant.principal_id, kind=grant.kind, workspace_pk=workspace_pk, agents=grant.agents
        )
        now_us = max(self._clock.now_us(), mark.clock_high_water)
        issued = Issued(
            credential_id=f"crd_{secrets.token_hex(10)}",
            principal_id=grant.principal_id,
            kind=grant.kind,
            token=token,
            expires_at_us=now_us + grant.expires_in_s * SECOND_US,
        )
        connection.execute(sa.insert(credentials).values(
            credential_id=issued.credential_id, token_hash=tokens.hash_of(token), kind=grant.kind.value,
            owner_pk=owner_pk, issuer_pk=issuer.user_pk, workspace_pk=workspace_pk, workflow_pk=workflow_pk,
            issued_at=now_us, expires_at=issued.expires_at_us, epoch=mark.epoch, scope=grant.observation_scope,
        ))  # fmt: skip
        detail = {"principal_id": grant.principal_id, "role": grant.kind.value, "run_id": grant.workflow_id} | (
            {"agents": sorted(grant.agents)} if grant.agents else {}
        )
        entry = AuditEntry(
            action="credential.issue", actor=caller.actor, object_id=issued.credential_id, result="done",
            request_id=caller.request_id, detail=detail,
        )  # fmt: skip
        self._audit.append(connection, entry, now_us=now_us)
        return issued

    def _revoke(self, connection: Connection, caller: Caller, *, request: RevokeRequest) -> int:
        issuer = _issuer(connection, caller)
        owner = self._owners.find(connection, request.principal_id)
        if owner is None or owner.kind not in {kind.value for kind in tokens.LETTERS}:
            raise _unknown_principal()
        ours = sa.and_(credentials.c.owner_pk == owner.owner_pk, _within(issuer))
        if request.workspace is not None:
            workspace_pk = workspaces.find(connection, request.workspace)
            if workspace_pk is None:
                raise _unknown_principal()
            ours = sa.and_(ours, credentials.c.workspace_pk == workspace_pk)
        if connection.execute(sa.select(credentials.c.credential_id).where(ours).limit(1)).first() is None:
            raise _unknown_principal()
        return self._end(connection, caller, ours)

    def _end(self, connection: Connection, caller: Caller, ours: sa.ColumnElement[bool]) -> int:
        now_us = self._clock.now_us()
        ended = connection.execute(
            sa.update(credentials).where(ours, credentials.c.revoked_at.is_(None)).values(revoked_at=now_us)
            .returning(credentials.c.credential_id)
        ).scalars().all()  # fmt: skip
        for credential_id in sorted(ended):
            entry = AuditEntry(
                action="credential.revoke", actor=caller.actor, object_id=credential_id, result="done",
                request_id=caller.request_id, detail=None,
            )  # fmt: skip
            self._audit.append(connection, entry, now_us=now_us)
        return len(ended)

    def _list(self, connection: Connection, caller: Caller) -> list[CredentialView]:
        names = self._owners.names(connection)
        user_pk = connection.execute(sa.select(users.c.user_pk).where(_is_user(caller))).scalar_one()
        rows = connection.execute(
            sa.select(credentials, users.c.username, workflows.c.workflow_id, workspace_rows.c.name.label("workspace"))
            .join(users, users.c.user_pk == credentials.c.issuer_pk)
            .outerjoin(workflows, workflows.c.workflow_pk == credentials.c.workflow_pk)
            .outerjoin(workspace_rows, workspace_rows.c.workspace_pk == credentials.c.workspace_pk)
            .where(_within(_Issuer(user_pk, caller.workspaces)))
            .order_by(credentials.c.issued_at.desc(), credentials.c.credential_id)
            .limit(_LIST_MOST)
        )
        return [
            CredentialView(
                row.credential_id, names[row.owner_pk], row.kind, row.workspace, row.workflow_id, row.username,
                issued_at_us=row.issued_at, expires_at_us=row.expires_at, revoked_at_us=row.revoked_at,
                last_used_at_us=row.last_used_at,
            )
            for row in rows
        ]  # fmt: skip


def _check_may_issue(caller: Caller) -> None:
    if caller.kind is not CallerKind.PERSON or caller.role not in _ISSUING_ROLES:
        raise ForbiddenError("Only operators and administrators manage credentials.")


def _is_user(caller: Caller) -> sa.ColumnElement[bool]:
    return users.c.user_id == caller.actor.removeprefix("user:")


def _issuer(connection: Connection, caller: Caller, *, is_to_write: bool = True) -> _Issuer:
    """Read the person's row again, locked: a demotion at this moment comes before or after, not between.

    A transaction that only reads locks nothing: PostgreSQL refuses that.
    """
    named = sa.select(users.c.user_pk, users.c.role, users.c.disabled_at).where(_is_user(caller))
    row = connection.execute(named.with_for_update(read=True) if is_to_write else named).one_or_none()
    if row is None or row.disabled_at is not None:
        raise UnauthenticatedError("Sign in again.")
    if row.role not in _ISSUING_ROLES:
        raise ForbiddenError("Only operators and administrators manage credentials.")
    if row.role == Role.ADMINISTRATOR:
        return _Issuer(row.user_pk, None)
    scope = connection.execute(
        sa.select(memberships.c.workspace_pk).where(memberships.c.user_pk == row.user_pk)
    ).scalars()
    return _Issuer(row.user_pk, frozenset(scope))


def _check_newest(connection: Connection, caller: Caller, newest: str) -> None:
    # For writing: of two that come at once, the second one reads what the first has made.
    connection.execute(sa.select(users.c.user_pk).where(_is_user(caller)).with_for_update())
    if _newest(connection, caller) != newest:
        raise ConflictError("You have issued a credential since this form was opened.", code="stale_revision")


def _newest(connection: Connection, caller: Caller) -> str:
    found = connection.execute(
        sa.select(credentials.c.credential_id)
        .join(users, users.c.user_pk == credentials.c.issuer_pk)
        .where(_is_user(caller))
        .order_by(credentials.c.issued_at.desc(), credentials.c.credential_id.desc())
        .limit(1)
    ).scalar_one_or_none()
    return found or "none"


def _found(connection: Connection, issuer: _Issuer, credential_id: str) -> Any:
    row = connection.execute(
        sa.select(credentials.c.credential_id, credentials.c.owner_pk)
        .where(credentials.c.credential_id == credential_id, _within(issuer))
    ).one_or_none()  # fmt: skip
    if row is None:
        raise NotFoundError("There is no such credential.")
    return row


def _grant_of(connection: Connection, issuer: _Issuer, credential_id: str) -> Any:
    _found(connection, issuer, credential_id)
    return connection.execute(
        sa.select(
            credentials.c.owner_pk, credentials.c.epoch, credentials.c.kind, credentials.c.scope,
            workflows.c.workflow_id, workspace_rows.c.name.label("workspace"),
        )
        .outerjoin(workflows, workflows.c.workflow_pk == credentials.c.workflow_pk)
        .outerjoin(workspace_rows, workspace_rows.c.workspace_pk == credentials.c.workspace_pk)
        .where(credentials.c.credential_id == credential_id)
    ).one()  # fmt: skip


def _reach(connection: Connection, issuer: _Issuer, grant: GrantRequest) -> tuple[int | None, int | None]:
    """Return (workspace_pk, workflow_pk) of the new credential, checked against what the issuer reaches."""
    if grant.workflow_id is not None:
        return _worker_reach(connection, issuer, grant)
    if grant.workspace is None and grant.kind in {CallerKind.OPERATOR, CallerKind.OBSERVER}:
        return None, None
    name = grant.workspace or workspaces.DEFAULT
    if issuer.scope is None:
        return workspaces.ensure(connection, name), None
    workspace_pk = workspaces.find(connection, name)
    if workspace_pk is None or not issuer.reaches(workspace_pk):
        raise NotFoundError("There is no such workspace.")
    return workspace_pk, None


def _worker_reach(connection: Connection, issuer: _Issuer, grant: GrantRequest) -> tuple[int, int]:
    row = connection.execute(
        sa.select(
            workflows.c.workflow_pk, workflows.c.workspace_pk, workflows.c.deleted_at, workflows.c.deleting_at,
            workspace_rows.c.name,
        )
        .join(workspace_rows, workspace_rows.c.workspace_pk == workflows.c.workspace_pk)
        .where(workflows.c.workflow_id == grant.workflow_id)
        .with_for_update(read=True, of=workflows)
    ).one_or_none()  # fmt: skip
    if row is None or not issuer.reaches(row.workspace_pk) or grant.workspace not in {None, row.name}:
        raise NotFoundError("There is no such workflow.")
    if row.deleted_at is not None or row.deleting_at is not None:
        raise ConflictError("The workflow was deleted.", code="workflow_deleted")
    return row.workspace_pk, row.workflow_pk


def _within(issuer: _Issuer) -> sa.ColumnElement[bool]:
    """Credentials in the issuer's scope: of his workspaces, and those for "all of the issuer's" that are his own."""
    if issuer.scope is None:
        return sa.true()
    return sa.or_(
        credentials.c.workspace_pk.in_(sorted(issuer.scope)),
        sa.and_(
            credentials.c.workspace_pk.is_(None),
            credentials.c.issuer_pk == issuer.user_pk,
            credentials.c.kind != CallerKind.OBSERVER.value,
        ),
    )


def _unknown_principal() -> NotFoundError:
    return NotFoundError("There is no such principal.")
