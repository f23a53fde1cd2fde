"""Lock state, generation and rotations of the vault's keys, and which processes hold them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WORD = sa.String(32)
PUBLIC_ID = sa.String(40)
ACTOR = sa.String(160)
VAULT_COLUMNS = ("locked_by", "locked_at", "generation")


def _create_rotations() -> None:
    op.create_table(
        "continuity_rotations",
        sa.Column("rotation_pk", INTEGER, nullable=False),
        sa.Column("state", WORD, nullable=False),
        *(
            sa.Column(name, INTEGER, nullable=False)
            for name in ("old_key_id", "new_key_id", "total", "done", "unreadable")
        ),
        sa.Column("cursor", PUBLIC_ID, nullable=False),
        sa.Column("started_at", INTEGER, nullable=False),
        sa.Column("started_by", ACTOR, nullable=False),
        sa.Column("driven_at", INTEGER, nullable=False),
        sa.Column("finished_at", INTEGER, nullable=True),
        sa.CheckConstraint(
            "state IN ('adding', 'announced', 'running', 'held', 'retiring', 'done')",
            name=op.f("ck_continuity_rotations_state"),
        ),
        sa.PrimaryKeyConstraint("rotation_pk", name=op.f("pk_continuity_rotations")),
        sqlite_autoincrement=True,
    )


def _create_holders() -> None:
    op.create_table(
        "continuity_key_holders",
        sa.Column("holder_id", PUBLIC_ID, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("generation", INTEGER, nullable=False),
        sa.Column("key_ids", sa.String(200), nullable=False),
        sa.Column("seen_at", INTEGER, nullable=False),
        sa.CheckConstraint("state IN ('open', 'locked')", name=op.f("ck_continuity_key_holders_state")),
        sa.PrimaryKeyConstraint("holder_id", name=op.f("pk_continuity_key_holders")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_continuity_key_holders_seen_at"), "continuity_key_holders", ["seen_at"])


def upgrade() -> None:
    op.add_column("continuity_vault", sa.Column("generation", INTEGER, nullable=False, server_default=sa.text("1")))
    op.add_column("continuity_vault", sa.Column("locked_at", INTEGER, nullable=True))
    op.add_column("continuity_vault", sa.Column("locked_by", ACTOR, nullable=True))
    _create_rotations()
    _create_holders()


def downgrade() -> None:
    op.drop_table("continuity_key_holders")
    op.drop_table("continuity_rotations")
    for column in VAULT_COLUMNS:
        op.drop_column("continuity_vault", column)
