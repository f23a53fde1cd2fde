"""The index behind the list of everything in a workspace no longer holds tombstones."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLE = "continuity_workflows"
COLUMNS = ["workspace_pk", "workflow_pk"]
IS_LIVING = sa.text("deleted_at IS NULL")


def upgrade() -> None:
    op.create_index(
        "ix_continuity_workflows_living", TABLE, COLUMNS, sqlite_where=IS_LIVING, postgresql_where=IS_LIVING
    )
    op.drop_index("ix_continuity_workflows_workspace_pk_workflow_pk", TABLE)


def downgrade() -> None:
    op.create_index("ix_continuity_workflows_workspace_pk_workflow_pk", TABLE, COLUMNS)
    op.drop_index("ix_continuity_workflows_living", TABLE)
