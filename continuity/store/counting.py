"""Statements that count again what counters say. For checks, never for decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from continuity.store.schema import definitions, events, operations, owners, receipts, workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

_SEALED: Final = (
    (workflows, workflows.c.sealed_head),
    (operations, operations.c.sealed_state),
    (definitions, definitions.c.sealed_definition),
    (receipts, receipts.c.sealed_receipt),
    (events, events.c.sealed_event),
)


def stored_bytes(connection: Connection, workflow_pk: int) -> int:
    """Return the bytes of a workflow's sealed columns, counted now."""
    sums = (
        sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(column)), 0))
        .where(table.c.workflow_pk == workflow_pk)
        .scalar_subquery()
        for table, column in _SEALED
    )
    return sum(connection.execute(sa.select(*sums)).one())


def sealed_after(connection: Connection, workflow_pk: int, *, count: int) -> Sequence[Row[int, str]]:
    """Return ``workflow_pk, workflow_id`` of workflows with content, whatever their columns say, in order."""
    statement = (
        sa.select(workflows.c.workflow_pk, workflows.c.workflow_id)
        .where(workflows.c.workflow_pk > workflow_pk, workflows.c.sealed_head.is_not(None))
        .order_by(workflows.c.workflow_pk)
        .limit(count)
    )
    return connection.execute(statement).all()


def indexes(connection: Connection, workflow_pk: int) -> tuple[bytes, bytes, list[bytes]]:
    """Return a workflow's blind indexes: of its key, its definition, and the names of its operations in order."""
    head = sa.select(workflows.c.key_ix, workflows.c.definition_ix).where(workflows.c.workflow_pk == workflow_pk)
    names = sa.select(operations.c.name_ix).where(operations.c.workflow_pk == workflow_pk)
    key_ix, definition_ix = connection.execute(head).one()
    return key_ix, definition_ix, list(connection.execute(names.order_by(operations.c.ordinal)).scalars())


def owners_off(connection: Connection) -> Sequence[Row[int]]:
    """Return ``owner_pk`` of every coordinator whose counters differ from its workflows' rows."""
    held = (
        sa.select(
            workflows.c.owner_pk,
            sa.func.sum(workflows.c.retained_bytes).label("retained"),
            sa.func.sum(workflows.c.reserved_bytes).label("reserved"),
            sa.func.sum(sa.case((workflows.c.phase.in_(["done", "ended", "deleted"]), 0), else_=1)).label("unfinished"),
        )
        .group_by(workflows.c.owner_pk)
        .subquery()
    )
    statement = (
        sa.select(owners.c.owner_pk)
        .select_from(owners.outerjoin(held, held.c.owner_pk == owners.c.owner_pk))
        .where(
            owners.c.kind == "continuity_coordinator",
            (owners.c.retained_bytes != sa.func.coalesce(held.c.retained, 0))
            | (owners.c.reserved_bytes != sa.func.coalesce(held.c.reserved, 0))
            | (owners.c.unfinished != sa.func.coalesce(held.c.unfinished, 0)),
        )
    )
    return connection.execute(statement).all()
