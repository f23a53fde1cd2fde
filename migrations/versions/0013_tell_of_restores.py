"""The vault says of what time the data is that a restore brought back."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("continuity_vault", sa.Column("restored_from", INTEGER, nullable=True))


def downgrade() -> None:
    op.drop_column("continuity_vault", "restored_from")
