"""A principal that runs agents for threads has their names, sealed."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("continuity_owners", sa.Column("sealed_agents", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("continuity_owners", "sealed_agents")
