"""Accounts know when somebody last signed in; credentials are listed newest first without sorting all of them."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INDEX = "ix_auth_credentials_issued_at_credential_id"


def upgrade() -> None:
    op.add_column("auth_users", sa.Column("signed_in_at", INTEGER, nullable=True))
    op.create_index(op.f(INDEX), "auth_credentials", ["issued_at", "credential_id"])


def downgrade() -> None:
    op.drop_index(op.f(INDEX), "auth_credentials")
    op.drop_column("auth_users", "signed_in_at")
