"""Workspaces as people and credentials name them. Their rows belong to `continuity`; their names are not secret."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from continuity.errors import MalformedError
from continuity.store.schema import workspaces
from continuity.wire import IDENTIFIER

DEFAULT: Final = "default"


def check_name(name: str) -> None:
    if not IDENTIFIER.fullmatch(name):
        raise MalformedError("workspace must be 1 to 128 characters of A-Z a-z 0-9 _ -.")


def find(connection: Connection, name: str) -> int | None:
    """Return the workspace's number, None when there is none of this name."""
    return connection.execute(
        sa.select(workspaces.c.workspace_pk).where(workspaces.c.name == name)
    ).scalar_one_or_none()


def ensure(connection: Connection, name: str) -> int:
    """Return the workspace's number, made now when there was none. Safe when two do it at once."""
    check_name(name)
    insert = sqlite_insert if connection.dialect.name == "sqlite" else postgresql_insert
    made = connection.execute(
        insert(workspaces).values(name=name).on_conflict_do_nothing().returning(workspaces.c.workspace_pk)
    ).scalar_one_or_none()
    if made is not None:
        return made
    return connection.execute(sa.select(workspaces.c.workspace_pk).where(workspaces.c.name == name)).scalar_one()


def names(connection: Connection) -> dict[int, str]:
    """Return every workspace's name by its number."""
    rows = connection.execute(sa.select(workspaces.c.workspace_pk, workspaces.c.name))
    return {row.workspace_pk: row.name for row in rows}
