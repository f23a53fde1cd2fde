"""Actions of the audit log compare by their bytes on PostgreSQL too: by a language's rules no noun has a range.

Under most of them the dot counts for nothing at first, and ``user.sign_in`` comes behind ``users``.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLE, COLUMN = "continuity_audit", "action"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        # Makes its index anew as well.
        op.alter_column(TABLE, COLUMN, type_=sa.String(64, collation="C"), existing_nullable=False)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column(TABLE, COLUMN, type_=sa.String(64, collation="default"), existing_nullable=False)
