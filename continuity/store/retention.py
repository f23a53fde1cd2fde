"""Statements that find what is old: finished workflows in the order of their creation, runs with unfinished work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from continuity.store.schema import run_links, workflows
from continuity.store.workflows import HEAD, AnyRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FINISHED: Final = ("done", "ended")
_NOTHING_LEFT: Final = (*_FINISHED, "deleted")


def finished(
    connection: Connection, places: Sequence[int | None], *, after: int, count: int
) -> Sequence[AnyRow]:  # fmt: skip
    """Return heads of finished workflows, oldest first.

    Args:
        connection: A reading transaction.
        places: Workspaces to look in; only None for all of them at once.
        after: Only rows with a larger ``workflow_pk``.
        count: At most so many.
    """
    found: list[AnyRow] = []
    for place in places:
        for phase in _FINISHED:
            statement = HEAD.where(
                workflows.c.phase == phase, workflows.c.workflow_pk > after, workflows.c.deleting_at.is_(None)
            )
            if place is not None:
                statement = statement.where(workflows.c.workspace_pk == place)
            found += connection.execute(statement.order_by(workflows.c.workflow_pk).limit(count)).all()
    return sorted(found, key=lambda row: row.workflow_pk)[:count]


def has_unfinished(connection: Connection, run_ix: bytes) -> bool:
    """Say whether a workflow of this run has work left."""
    statement = (
        sa.select(workflows.c.workflow_pk)
        .join(run_links, run_links.c.workflow_pk == workflows.c.workflow_pk)
        .where(run_links.c.run_ix == run_ix, workflows.c.phase.not_in(_NOTHING_LEFT))
        .limit(1)
    )
    return connection.execute(statement).first() is not None
