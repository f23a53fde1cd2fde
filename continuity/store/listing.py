"""Statements behind lists, counts and the sweeper. No statement touches more rows than it answers with.

Lists go by ``workflow_pk`` downwards ("newest first") and go on after the last one seen; the filters are
columns of an index, words are blind indexes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from continuity import limits
from continuity.store.schema import terms, workflows, workspaces
from continuity.store.workflows import HEAD, AnyRow

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row


def page(
    connection: Connection,
    *,
    workspaces_seen: frozenset[int] | None,
    phases: Sequence[str],
    term_indexes: Sequence[bytes],
    workflow_id: str | None,
    before: int | None,
    count: int,
) -> Sequence[AnyRow]:
    """Return heads of workflows, newest first.

    Args:
        connection: A reading transaction.
        workspaces_seen: Workspaces to look in; None for all.
        phases: Stored phases to keep; empty for all but deleted ones.
        term_indexes: Blind indexes of words that a workflow must all have.
        workflow_id: Only this one.
        before: Only rows with a smaller ``workflow_pk``.
        count: At most so many.
    """
    conditions = _conditions(phases, workflow_id, before)
    places = [None] if workspaces_seen is None else sorted(workspaces_seen)
    branches = [_newest(place, conditions, term_indexes, count).subquery() for place in places]
    if not branches:
        return []
    # One branch a workspace, each ended by its own limit: together they would be sorted whole.
    found = sa.union_all(*(sa.select(branch.c.workflow_pk) for branch in branches)).subquery()
    statement = (
        HEAD.add_columns(workspaces.c.name.label("workspace"))
        .join(workspaces, workspaces.c.workspace_pk == workflows.c.workspace_pk)
        .where(workflows.c.workflow_pk.in_(sa.select(found.c.workflow_pk)))
        .order_by(workflows.c.workflow_pk.desc())
        .limit(count)
    )
    return connection.execute(statement).all()


def _conditions(phases: Sequence[str], workflow_id: str | None, before: int | None) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = [workflows.c.deleting_at.is_(None), workflows.c.deleted_at.is_(None)]
    if phases:
        conditions.append(workflows.c.phase.in_(list(phases)))
    if workflow_id is not None:
        conditions.append(workflows.c.workflow_id == workflow_id)
    if before is not None:
        conditions.append(workflows.c.workflow_pk < before)
    return conditions


def _newest(
    workspace_pk: int | None, conditions: Sequence[sa.ColumnElement[bool]], term_indexes: Sequence[bytes], count: int
) -> sa.Select[int]:
    """Return the statement that finds the newest rows of one workspace, or of all."""
    statement = sa.select(workflows.c.workflow_pk).where(*conditions)
    if workspace_pk is not None:
        statement = statement.where(workflows.c.workspace_pk == workspace_pk)
    for index in term_indexes:
        word = terms.alias()
        statement = statement.join(
            word,
            (word.c.workflow_pk == workflows.c.workflow_pk)
            & (word.c.workspace_pk == workflows.c.workspace_pk)
            & (word.c.term_ix == index),
        )
    return statement.order_by(workflows.c.workflow_pk.desc()).limit(count)


def count_by_phase(connection: Connection, workspaces_seen: frozenset[int] | None, phase: str) -> int:
    """Return how many workflows are stored in a phase, counted to one more than 1,000."""
    rows = sa.select(sa.literal(1).label("one")).where(workflows.c.phase == phase)
    if workspaces_seen is not None:
        rows = rows.where(workflows.c.workspace_pk.in_(sorted(workspaces_seen)))
    counted = sa.select(sa.func.count()).select_from(rows.limit(limits.EXACT_COUNT_MAX + 1).subquery())
    return int(connection.execute(counted).scalar_one())


def workspace_by_name(connection: Connection, name: str) -> int | None:
    """Return the ``workspace_pk`` of a name, None when there is none."""
    return connection.execute(
        sa.select(workspaces.c.workspace_pk).where(workspaces.c.name == name)
    ).scalar_one_or_none()


def due(connection: Connection, *, now_us: int, count: int) -> Sequence[str]:
    """Return ids of workflows whose phase has changed by itself, the longest overdue first."""
    statement = (
        sa.select(workflows.c.workflow_id)
        .where(workflows.c.phase_due_at.is_not(None), workflows.c.phase_due_at <= now_us)
        .order_by(workflows.c.phase_due_at)
        .limit(count)
    )
    return connection.execute(statement).scalars().all()


def deleting(connection: Connection, *, count: int) -> Sequence[str]:
    """Return ids of workflows whose deletion has begun and not ended."""
    statement = (
        sa.select(workflows.c.workflow_id)
        .where(workflows.c.deleting_at.is_not(None))
        .order_by(workflows.c.deleting_at)
        .limit(count)
    )
    return connection.execute(statement).scalars().all()


def ids_after(connection: Connection, workflow_pk: int, *, count: int) -> Sequence[Row[int, str]]:
    """Return ``workflow_pk, workflow_id`` of living workflows in the order of their creation."""
    statement = (
        sa.select(workflows.c.workflow_pk, workflows.c.workflow_id)
        .where(workflows.c.workflow_pk > workflow_pk, workflows.c.deleted_at.is_(None))
        .order_by(workflows.c.workflow_pk)
        .limit(count)
    )
    return connection.execute(statement).all()
