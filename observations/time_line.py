"""The time line of one workflow: its attempts, oldest first, each with its charges.

An attempt whose first time has moved since the first page stands where it stood then (`observations.moves`).
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from observations import moves, schema, store
from observations.answers import AttemptLine, ChargeLine, sums_of
from observations.costs import added

CHARGES_SHOWN: Final = 50
"""Charges listed of one attempt; its sums hold all."""


def attempts_of(
    connection: Connection, workflow: Any, *, limit: int, position: list[Any] | None
) -> tuple[list[AttemptLine], list[Any] | None]:
    """Return a page of a workflow's attempts, oldest first.

    Args:
        connection: A reading transaction.
        workflow: Its row.
        limit: Most attempts.
        position: What the page before returned; None for the first.

    Returns:
        At most `limit` attempts, each with at most `CHARGES_SHOWN` charges, and the position of the next page,
        None at the end.
    """
    attempts = schema.attempts
    key = (attempts.c.first_us, attempts.c.attempt_id)
    statement = sa.select(attempts, sa.literal(workflow.workflow_id).label("workflow_id")).where(
        attempts.c.workflow_pk == workflow.workflow_pk
    )
    *last, pin = position or (-1, "", moves.newest(connection))
    stood = moves.moved_attempts(connection, workflow.workflow_pk, pin)
    page = statement.where(sa.tuple_(*key) > tuple(last)).order_by(*key).limit(limit + 1 + len(stood))
    found = [row for row in connection.execute(page) if row.attempt_id not in stood]
    if stood:
        moved = connection.execute(statement.where(attempts.c.attempt_id.in_(stood)))
        found += [row for row in moved if (stood[row.attempt_id], row.attempt_id) > tuple(last)]
    places = [(stood.get(row.attempt_id, row.first_us), row.attempt_id, row) for row in found]
    if stood:
        places.sort(key=lambda place: place[:2])
    rows = [row for _, _, row in places[: limit + 1]]
    lines = []
    for row in rows[:limit]:
        sums = added(store.find_attempt_days(connection, row.scope_pk, row.attempt_id).values())
        charges = _charge_lines(connection, row) if sums else []
        lines.append(AttemptLine(row.attempt_id, store.attempt_of(row), sums_of(sums), charges))
    after = [*places[limit - 1][:2], pin] if len(rows) > limit else None
    return lines, after


def _charge_lines(connection: Connection, attempt: Any) -> list[ChargeLine]:
    charges = schema.charges
    statement = (
        sa.select(charges)
        .where(charges.c.scope_pk == attempt.scope_pk, charges.c.attempt_id == attempt.attempt_id)
        .order_by(charges.c.first_us, charges.c.charge_source, charges.c.charge_id)
        .limit(CHARGES_SHOWN)
    )
    return [ChargeLine(row.charge_source, row.charge_id, store.charge_of(row)) for row in connection.execute(statement)]
