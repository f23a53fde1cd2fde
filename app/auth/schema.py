"""Tables of people and credentials, as SQLAlchemy Core metadata ``auth``.

Rules:

* No password, token or cookie value stands here, only an argon2id hash or a SHA-256.
* Times are whole microseconds since 1970 in UTC; words (role, kind) are stored as words with a check beside them.
* No foreign key into another package: workspaces, owners and workflows are known by number alone.
* ``user_pk`` grows and is never used again (AUTOINCREMENT, identity), so that nobody inherits a history.
* The secret of a second factor is sealed under a key derived from the instance's secret key (docs/adr/0016), and a
  recovery code is kept as a keyed hash: neither asks for the vault, which may be locked while people sign in.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Column, Index, Named, TypedColumns

from continuity.services.callers import Role
from continuity.store.schema import BYTES, INTEGER, NAMING, OWNER_KINDS, WORD

metadata: Final = sa.MetaData(naming_convention=NAMING)

ROLES: Final = tuple(role.value for role in Role)
CREDENTIAL_KINDS: Final = OWNER_KINDS[1:]
"""Every kind of the wire; `app.auth.credentials` says which of them are issued."""

ID: Final = sa.String(24)
"""``usr_`` or ``crd_`` and 20 hex digits."""


def _one_of(column: str, words: tuple[str, ...]) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(word) for word in words)})", name=column)


class UserColumns(TypedColumns):
    """People.

    ``temporary_until`` marks a password that must be changed; ``stamp`` ends sessions when it moves;
    ``signed_in_at`` is when somebody last came in with a password, NULL before the first time.
    """

    user_pk = Column(INTEGER, primary_key=True)
    user_id: Named[str] = Column(ID, unique=True)
    username: Named[str] = Column(sa.String(64), unique=True)
    role: Named[str] = Column(WORD)
    password_hash: Named[str] = Column(sa.String(200))
    temporary_until: Named[int | None] = Column(INTEGER)
    created_at: Named[int] = Column(INTEGER)
    disabled_at: Named[int | None] = Column(INTEGER)
    stamp: Named[int] = Column(INTEGER)
    signed_in_at: Named[int | None] = Column(INTEGER)


users: Final = sa.Table("auth_users", metadata, UserColumns, _one_of("role", ROLES), sqlite_autoincrement=True)


class MembershipColumns(TypedColumns):
    """Who belongs to which workspace. Administrators see all, whatever stands here."""

    user_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    workspace_pk = Column(INTEGER, primary_key=True, autoincrement=False)


memberships: Final = sa.Table(
    "auth_memberships", metadata, MembershipColumns, Index(None, "workspace_pk"), sqlite_with_rowid=False
)


class SessionColumns(TypedColumns):
    """Sessions, known by the SHA-256 of the cookie's value. Valid while ``stamp`` and ``epoch`` are today's."""

    session_hash = Column(BYTES, primary_key=True)
    user_pk: Named[int] = Column(INTEGER)
    stamp: Named[int] = Column(INTEGER)
    created_at: Named[int] = Column(INTEGER)
    seen_at: Named[int] = Column(INTEGER)
    fresh_until: Named[int] = Column(INTEGER)
    epoch: Named[int] = Column(INTEGER)


sessions: Final = sa.Table(
    "auth_sessions", metadata, SessionColumns, Index(None, "user_pk", "created_at"), sqlite_with_rowid=False
)


class ThrottleColumns(TypedColumns):
    """Attempts to give a password, one row a bucket; a window starts with its first attempt."""

    bucket = Column(sa.String(80), primary_key=True)
    window_start: Named[int] = Column(INTEGER)
    attempts: Named[int] = Column(INTEGER)


throttle: Final = sa.Table(
    "auth_throttle", metadata, ThrottleColumns, Index(None, "window_start"), sqlite_with_rowid=False
)


class CredentialColumns(TypedColumns):
    """Bearer tokens by their SHA-256.

    ``workspace_pk`` NULL: all workspaces of the issuer. ``owner_pk`` is the principal's row in
    ``continuity_owners``, ``issuer_pk`` the person who is answerable for it. ``scope`` is an observer's.
    """

    credential_id = Column(ID, primary_key=True)
    token_hash: Named[bytes] = Column(BYTES, unique=True)
    kind: Named[str] = Column(WORD)
    owner_pk: Named[int] = Column(INTEGER)
    issuer_pk: Named[int] = Column(INTEGER)
    workspace_pk: Named[int | None] = Column(INTEGER)
    workflow_pk: Named[int | None] = Column(INTEGER)
    issued_at: Named[int] = Column(INTEGER)
    expires_at: Named[int] = Column(INTEGER)
    revoked_at: Named[int | None] = Column(INTEGER)
    last_used_at: Named[int | None] = Column(INTEGER)
    epoch: Named[int] = Column(INTEGER)
    scope: Named[str | None] = Column(sa.String(128))


credentials: Final = sa.Table(
    "auth_credentials",
    metadata,
    CredentialColumns,
    _one_of("kind", CREDENTIAL_KINDS),
    sa.CheckConstraint("(workflow_pk IS NOT NULL) = (kind = 'continuity_host')", name="workflow"),
    Index(None, "owner_pk"),
    Index(None, "workflow_pk"),
    Index(None, "issued_at", "credential_id"),
    sqlite_with_rowid=False,
)


class SecondFactorColumns(TypedColumns):
    """The second factor of a person: one at most.

    ``confirmed_at`` NULL: it was begun and counts for nothing yet. ``last_step`` is the newest step of 30 seconds
    whose code was taken; no code of it or of an older one is taken again.
    """

    user_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    sealed_secret: Named[bytes] = Column(BYTES)
    started_at: Named[int] = Column(INTEGER)
    confirmed_at: Named[int | None] = Column(INTEGER)
    last_step: Named[int] = Column(INTEGER)


second_factors: Final = sa.Table("auth_second_factors", metadata, SecondFactorColumns, sqlite_with_rowid=False)


class RecoveryCodeColumns(TypedColumns):
    """Recovery codes that were not used yet, each by its keyed hash. A used one has no row."""

    user_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    code_hash = Column(BYTES, primary_key=True)


recovery_codes: Final = sa.Table("auth_recovery_codes", metadata, RecoveryCodeColumns, sqlite_with_rowid=False)


class ChallengeColumns(TypedColumns):
    """Who has given the password and owes the code, known by the SHA-256 of a cookie. No session.

    Valid for five minutes while ``stamp`` and ``epoch`` are today's.
    """

    challenge_hash = Column(BYTES, primary_key=True)
    user_pk: Named[int] = Column(INTEGER)
    stamp: Named[int] = Column(INTEGER)
    epoch: Named[int] = Column(INTEGER)
    created_at: Named[int] = Column(INTEGER)


challenges: Final = sa.Table(
    "auth_challenges", metadata, ChallengeColumns, Index(None, "user_pk"), Index(None, "created_at"),
    sqlite_with_rowid=False,
)  # fmt: skip


class PolicyColumns(TypedColumns):
    """What an administrator has decided for all people. One row at most; none is the default of everything."""

    id = Column(INTEGER, primary_key=True, autoincrement=False)
    administrators_need_second_factor: Named[bool] = Column(sa.Boolean)
    changed_at: Named[int] = Column(INTEGER)


policy: Final = sa.Table("auth_policy", metadata, PolicyColumns, sa.CheckConstraint("id = 1", name="one_row"))
