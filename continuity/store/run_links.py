"""Statements on which workflows the attempts of a run belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from continuity.store.compiled import Compiled
from continuity.store.schema import run_links

if TYPE_CHECKING:
    from sqlalchemy import Connection

_SQLITE: Final = Compiled(sqlite_insert(run_links).on_conflict_do_nothing())
_POSTGRESQL: Final = Compiled(postgresql_insert(run_links).on_conflict_do_nothing())
_OF_RUN: Final = (
    sa.select(run_links.c.workflow_pk)
    .where(run_links.c.run_ix == bindparam("run_ix"))
    .order_by(run_links.c.workflow_pk)
    .limit(bindparam("count"))
)


def note(connection: Connection, run_ix: bytes, workflow_pk: int) -> None:
    """Note that an attempt of a workflow belongs to a run, unless that is known."""
    statement = _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL
    statement.send(connection, {"run_ix": run_ix, "workflow_pk": workflow_pk})


def workflows_of(connection: Connection, run_ix: bytes, *, count: int) -> Sequence[int]:
    """Return ``workflow_pk`` of a run's workflows in the order of their creation, so many at most."""
    return connection.execute(_OF_RUN, {"run_ix": run_ix, "count": count}).scalars().all()


def forget(connection: Connection, run_indexes: Sequence[bytes], workflow_pk: int) -> None:
    """Let a workflow no longer be found by its runs."""
    place = (run_links.c.workflow_pk == workflow_pk, run_links.c.run_ix.in_(run_indexes))
    connection.execute(sa.delete(run_links).where(*place))
