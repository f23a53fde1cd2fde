"""Room for the proofs of the vault's row and of coordinators' counters; who migrates writes them (`app.databases`)."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ("continuity_vault", "continuity_owners")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("proof", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, "proof")
