"""Tables of people, their sessions and credentials."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
WORD = sa.String(32)
ID = sa.String(24)
KINDS = (
    "'evidence_collector', 'continuity_host', 'continuity_coordinator', "
    "'continuity_observer', 'thread_worker', 'thread_application'"
)


def _create_people() -> None:
    op.create_table(
        "auth_users",
        sa.Column("user_pk", INTEGER, nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("username", sa.String(length=64), nullable=False),
        sa.Column("role", WORD, nullable=False),
        sa.Column("password_hash", sa.String(length=200), nullable=False),
        sa.Column("temporary_until", INTEGER, nullable=True),
        sa.Column("created_at", INTEGER, nullable=False),
        sa.Column("disabled_at", INTEGER, nullable=True),
        sa.Column("stamp", INTEGER, nullable=False),
        sa.CheckConstraint("role IN ('operator', 'investigator', 'administrator')", name=op.f("ck_auth_users_role")),
        sa.PrimaryKeyConstraint("user_pk", name=op.f("pk_auth_users")),
        sa.UniqueConstraint("user_id", name=op.f("uq_auth_users_user_id")),
        sa.UniqueConstraint("username", name=op.f("uq_auth_users_username")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "auth_memberships",
        sa.Column("user_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("workspace_pk", INTEGER, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("user_pk", "workspace_pk", name=op.f("pk_auth_memberships")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_auth_memberships_workspace_pk"), "auth_memberships", ["workspace_pk"])


def _create_sessions() -> None:
    op.create_table(
        "auth_sessions",
        sa.Column("session_hash", BYTES, nullable=False),
        sa.Column("user_pk", INTEGER, nullable=False),
        sa.Column("stamp", INTEGER, nullable=False),
        sa.Column("created_at", INTEGER, nullable=False),
        sa.Column("seen_at", INTEGER, nullable=False),
        sa.Column("fresh_until", INTEGER, nullable=False),
        sa.Column("epoch", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("session_hash", name=op.f("pk_auth_sessions")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_auth_sessions_user_pk_created_at"), "auth_sessions", ["user_pk", "created_at"])
    op.create_table(
        "auth_throttle",
        sa.Column("bucket", sa.String(length=80), nullable=False),
        sa.Column("window_start", INTEGER, nullable=False),
        sa.Column("attempts", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("bucket", name=op.f("pk_auth_throttle")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_auth_throttle_window_start"), "auth_throttle", ["window_start"])


def _create_credentials() -> None:
    op.create_table(
        "auth_credentials",
        sa.Column("credential_id", ID, nullable=False),
        sa.Column("token_hash", BYTES, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("owner_pk", INTEGER, nullable=False),
        sa.Column("issuer_pk", INTEGER, nullable=False),
        sa.Column("workspace_pk", INTEGER, nullable=True),
        sa.Column("workflow_pk", INTEGER, nullable=True),
        sa.Column("issued_at", INTEGER, nullable=False),
        sa.Column("expires_at", INTEGER, nullable=False),
        sa.Column("revoked_at", INTEGER, nullable=True),
        sa.Column("last_used_at", INTEGER, nullable=True),
        sa.Column("epoch", INTEGER, nullable=False),
        sa.CheckConstraint(f"kind IN ({KINDS})", name=op.f("ck_auth_credentials_kind")),
        sa.CheckConstraint(
            "(workflow_pk IS NOT NULL) = (kind = 'continuity_host')", name=op.f("ck_auth_credentials_workflow")
        ),
        sa.PrimaryKeyConstraint("credential_id", name=op.f("pk_auth_credentials")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_auth_credentials_token_hash")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_auth_credentials_owner_pk"), "auth_credentials", ["owner_pk"])
    op.create_index(op.f("ix_auth_credentials_workflow_pk"), "auth_credentials", ["workflow_pk"])


def upgrade() -> None:
    _create_people()
    _create_sessions()
    _create_credentials()


def downgrade() -> None:
    for table in ("credentials", "throttle", "sessions", "memberships", "users"):
        op.drop_table(f"auth_{table}")
