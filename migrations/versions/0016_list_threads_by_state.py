"""Lists of threads in one state: of an owner, and of all workspaces; neither has one workspace to look in."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TABLE = "continuity_threads"
INDEXES = (
    ("ix_continuity_threads_owned_in_state", ["owner_ix", "state", "thread_pk"]),
    ("ix_continuity_threads_in_state", ["state", "thread_pk"]),
)


def upgrade() -> None:
    living = sa.text("deleted_at IS NULL")
    for name, columns in INDEXES:
        op.create_index(name, TABLE, columns, sqlite_where=living, postgresql_where=living)


def downgrade() -> None:
    for name, _ in INDEXES:
        op.drop_index(name, TABLE)
