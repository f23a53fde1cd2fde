"""Runs revisions on the connection that `app.migrating` gives, inside the transaction that it began.

For writing a new revision Alembic's own command is used, with the database of ``ATMEM_DATABASE_URL``:
``ATMEM_DATABASE_URL=sqlite:///scratch.db alembic -c migrations/alembic.ini revision --autogenerate -m "add notes"``.
"""

from __future__ import annotations

import os

import sqlalchemy as sa
from alembic import context

from app.auth import schema as accounts
from continuity.store import schema
from continuity.store.engine import make_engine
from observations import schema as observed

# One metadata a package, all with the naming convention of `continuity.store.schema.NAMING`.
METADATA = [schema.metadata, accounts.metadata, observed.metadata]


def run(connection: sa.Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_server_default=True,
        # SQLite's DDL is transactional as well, once the driver keeps out of it.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with make_engine(os.environ["ATMEM_DATABASE_URL"], pool_size=1).begin() as opened:
        run(opened)
