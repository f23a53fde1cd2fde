"""Second factors of people, and the policy that asks for them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
TABLES = ("policy", "challenges", "recovery_codes", "second_factors")


def _create_factors() -> None:
    op.create_table(
        "auth_second_factors",
        sa.Column("user_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("sealed_secret", BYTES, nullable=False),
        sa.Column("started_at", INTEGER, nullable=False),
        sa.Column("confirmed_at", INTEGER, nullable=True),
        sa.Column("last_step", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("user_pk", name=op.f("pk_auth_second_factors")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "auth_recovery_codes",
        sa.Column("user_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("code_hash", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("user_pk", "code_hash", name=op.f("pk_auth_recovery_codes")),
        sqlite_with_rowid=False,
    )


def _create_challenges() -> None:
    op.create_table(
        "auth_challenges",
        sa.Column("challenge_hash", BYTES, nullable=False),
        sa.Column("user_pk", INTEGER, nullable=False),
        sa.Column("stamp", INTEGER, nullable=False),
        sa.Column("epoch", INTEGER, nullable=False),
        sa.Column("created_at", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("challenge_hash", name=op.f("pk_auth_challenges")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_auth_challenges_user_pk"), "auth_challenges", ["user_pk"])
    op.create_index(op.f("ix_auth_challenges_created_at"), "auth_challenges", ["created_at"])


def upgrade() -> None:
    _create_factors()
    _create_challenges()
    op.create_table(
        "auth_policy",
        sa.Column("id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("administrators_need_second_factor", sa.Boolean(), nullable=False),
        sa.Column("changed_at", INTEGER, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_auth_policy_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_auth_policy")),
    )


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(f"auth_{table}")
