"""Statements on the capture mode: the vault's row, and what stands in the way of leaving ``full``.

What is in the way is unfinished work, found along the index of phases: finished work has phases of its own and is
never looked at, however much of it there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from continuity.store.schema import operations, vault, workflows
from continuity.store.workflows import VAULT_COLUMNS, AnyRow, DatabaseTime

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ENABLED: Final = ("ready", "running", "resumable", "decision")
"""Phases of work that is enabled, or was when its attempt was granted."""
_UNFINISHED: Final = (*_ENABLED, "paused")
ALONE: Final = sa.select(*VAULT_COLUMNS, DatabaseTime().label("now_us")).where(vault.c.id == 1).with_for_update()
"""Against every decision: they hold the vault's row with a shared lock until they have committed."""

_IS_UNCERTAIN: Final = sa.exists().where(
    operations.c.workflow_pk == workflows.c.workflow_pk,
    operations.c.ordinal == workflows.c.done_prefix,
    operations.c.status == "uncertain",
)
"""Of an operation only the first that is not completed can be uncertain: what is behind it is never begun."""
_COLUMNS: Final = (workflows.c.workflow_pk, workflows.c.workflow_id, workflows.c.enabled)


def in_the_way(connection: Connection, *, count: int) -> Sequence[AnyRow]:
    """Return ``workflow_pk, workflow_id, enabled`` of enabled unfinished and uncertain work, oldest first."""
    parts = []
    for phase in _UNFINISHED:
        statement = sa.select(*_COLUMNS).where(
            workflows.c.phase == phase,
            workflows.c.deleting_at.is_(None),
            workflows.c.deleted_at.is_(None),
            workflows.c.enabled | _IS_UNCERTAIN,
        )
        parts.append(statement.order_by(workflows.c.workflow_pk).limit(count).subquery())
    together = sa.union_all(*(sa.select(*part.c) for part in parts)).subquery()
    return connection.execute(sa.select(*together.c).order_by(together.c.workflow_pk).limit(count)).all()


def write_mode(connection: Connection, mode: str, *, proof: bytes) -> None:
    """Write the capture mode with the row's proof."""
    connection.execute(sa.update(vault).where(vault.c.id == 1).values(capture_mode=mode, proof=proof))
