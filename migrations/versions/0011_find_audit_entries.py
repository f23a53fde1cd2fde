"""Entries of the audit log are found by action, actor, object, time and refusal without reading all of them."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLE = "continuity_audit"
COLUMNS = ("action", "actor", "object_id", "at")
IS_REFUSED = sa.text("result <> 'done'")


def upgrade() -> None:
    for column in COLUMNS:
        op.create_index(op.f(f"ix_{TABLE}_{column}_seq"), TABLE, [column, "seq"])
    op.create_index(f"ix_{TABLE}_refused", TABLE, ["seq"], sqlite_where=IS_REFUSED, postgresql_where=IS_REFUSED)


def downgrade() -> None:
    op.drop_index(f"ix_{TABLE}_refused", TABLE)
    for column in COLUMNS:
        op.drop_index(op.f(f"ix_{TABLE}_{column}_seq"), TABLE)
