"""What people send: sign-in, passwords, grants and revocations, checked field by field.

Frozen dataclasses with ``from_json`` like those of `continuity.wire`: unknown fields are refused, ``null`` in an
optional field means absent, nothing is coerced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from app.auth.one_time_codes import LONGEST
from app.auth.settings import CredentialSettings
from continuity.decisions.threads.bounds import AGENTS_PER_WORKER
from continuity.services.callers import CallerKind
from continuity.wire import IDENTIFIER, Fields

ISSUED: Final = (
    CallerKind.OPERATOR, CallerKind.WORKER, CallerKind.COORDINATOR, CallerKind.OBSERVER, CallerKind.THREAD_WORKER,
    CallerKind.APPLICATION,
)  # fmt: skip
"""Kinds of credentials that this version issues."""

_USERNAME_CHARS: Final = 256


def _secret(fields: Fields, name: str) -> str:
    """Read a password as it was typed. Empty is a wrong password, not a malformed request."""
    value = fields.take(name)
    if not isinstance(value, str):
        raise fields.fail(name, "a string")
    return value


def _code(fields: Fields) -> str:
    """Read the code of a second factor as it was typed."""
    value = fields.take("code")
    if not isinstance(value, str) or len(value) > LONGEST:
        raise fields.fail("code", f"a string of at most {LONGEST} characters")
    return value


@dataclass(frozen=True, slots=True, repr=False)
class LoginRequest:
    username: str
    password: str
    code: str | None = None

    @classmethod
    def from_json(cls, value: object) -> Self:
        fields = Fields(value)
        username = fields.take("username")
        if not isinstance(username, str) or len(username) > _USERNAME_CHARS:
            raise fields.fail("username", f"a string of at most {_USERNAME_CHARS} characters")
        password = _secret(fields, "password")
        code = None if fields.take("code") is None else _code(fields)
        made = cls(username=username, password=password, code=code)
        fields.finish()
        return made


@dataclass(frozen=True, slots=True, repr=False)
class ChangePasswordRequest:
    current_password: str
    new_password: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        fields = Fields(value)
        made = cls(_secret(fields, "current_password"), _secret(fields, "new_password"))
        fields.finish()
        return made


@dataclass(frozen=True, slots=True, repr=False)
class ReauthenticateRequest:
    password: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        fields = Fields(value)
        made = cls(_secret(fields, "password"))
        fields.finish()
        return made


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """A credential to issue.

    `workflow_id` (``run_id`` on the wire) is for workers, and only for them; `observation_scope` for observers, who
    have no workspace; `agents` for thread workers: whose runs they may claim.
    """

    principal_id: str
    kind: CallerKind
    workflow_id: str | None
    workspace: str | None
    expires_in_s: int
    observation_scope: str | None = None
    agents: frozenset[str] = frozenset()

    @classmethod
    def from_json(cls, value: object) -> Self:
        fields = Fields(value)
        principal_id = fields.identifier("principal_id")
        kind = _kind(fields)
        workflow_id = None if fields.take("run_id") is None else fields.identifier("run_id")
        workspace = None if fields.take("workspace_id") is None else fields.identifier("workspace_id")
        if (workflow_id is not None) != (kind is CallerKind.WORKER):
            raise fields.fail("run_id", "the workflow_id of a worker's workflow, and absent for every other role")
        scope = None if fields.take("observation_scope") is None else fields.identifier("observation_scope")
        if (scope is not None) != (kind is CallerKind.OBSERVER):
            raise fields.fail("observation_scope", "the scope of an observer, and absent for every other role")
        if workspace is not None and kind is CallerKind.OBSERVER:
            raise fields.fail("workspace_id", "absent for this role")
        agents = _agents(fields, kind)
        made = cls(principal_id, kind, workflow_id, workspace, _expiry(fields), scope, agents)
        fields.finish()
        return made


@dataclass(frozen=True, slots=True)
class RevokeRequest:
    principal_id: str
    workspace: str | None

    @classmethod
    def from_json(cls, value: object) -> Self:
        fields = Fields(value)
        principal_id = fields.identifier("principal_id")
        workspace = None if fields.take("workspace_id") is None else fields.identifier("workspace_id")
        fields.finish()
        return cls(principal_id, workspace)


def _kind(fields: Fields) -> CallerKind:
    value = fields.need("role")
    for kind in ISSUED:
        if value == kind.value:
            return kind
    raise fields.fail("role", f"one of {', '.join(kind.value for kind in ISSUED)}")


def _agents(fields: Fields, kind: CallerKind) -> frozenset[str]:
    value = fields.take("agents")
    if kind is not CallerKind.THREAD_WORKER:
        if value is not None:
            raise fields.fail("agents", "absent for this role")
        return frozenset()
    is_list = isinstance(value, list) and 0 < len(value) <= AGENTS_PER_WORKER
    if not is_list or not all(isinstance(name, str) and IDENTIFIER.fullmatch(name) for name in value):
        raise fields.fail("agents", f"a list of 1 to {AGENTS_PER_WORKER} names of agents")
    return frozenset(value)


def _expiry(fields: Fields) -> int:
    limits = CredentialSettings()
    value = fields.take("expires_in_seconds")
    if value is None:
        return limits.default_s
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limits.longest_s:
        raise fields.fail("expires_in_seconds", f"a whole number from 1 to {limits.longest_s}")
    return value
