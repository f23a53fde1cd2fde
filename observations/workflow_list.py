"""The list of workflows: newest first along the index of each scope, or by id where it is searched.

A workflow whose first time has moved since the first page stands where it stood then (`observations.moves`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from observations import moves, schema, store
from observations.answers import WorkflowFilter, WorkflowLine, sums_of
from observations.costs import DAY_US, Outcome, join

_CANDIDATES: Final = 1_000
"""Workflows that one page of a search looks at, at most: where few of those that begin so are wanted."""

LINES: Final = sa.select(schema.workflows, schema.scopes.c.scope).join(
    schema.scopes, schema.scopes.c.scope_pk == schema.workflows.c.scope_pk
)
"""Every workflow with the name of its scope, for `line_of`."""


def line_of(row: Any) -> WorkflowLine:
    """Read a workflow from a row of `LINES`."""
    return WorkflowLine(
        scope=row.scope,
        workflow_id=row.workflow_id,
        first_us=row.first_us,
        last_us=row.last_us,
        runs=row.runs,
        attempts=row.attempts,
        retries=row.retries,
        recoveries=row.recoveries,
        unpriced_attempts=row.unpriced_attempts,
        outcomes={outcome: getattr(row, outcome.word) for outcome in Outcome},
        sums=sums_of(store.vector_of(row)),
        repeated_microusd=join(row.repeated_hi, row.repeated_lo),
        repeated_charges=row.repeated_charges,
        repeated_priced=row.repeated_priced,
        refused=row.refused,
    )


def listed(
    connection: Connection, asked: WorkflowFilter, *, limit: int, position: list[Any] | None
) -> tuple[list[WorkflowLine], list[Any] | None]:
    """Return a page newest first, each scope read along its index and merged.

    Args:
        connection: A reading transaction.
        asked: Which workflows.
        limit: Most lines.
        position: What the page before returned; None for the first.

    Returns:
        At most `limit` lines and the position of the next page, None at the end.
    """
    workflows = schema.workflows
    if position is None:
        newest_pk = connection.execute(sa.select(sa.func.max(workflows.c.workflow_pk))).scalar_one() or 0
        pin = moves.newest(connection)
    else:
        *_, newest_pk, pin = position
    stood = moves.moved_workflows(connection, pin)
    scope_pks = _scope_pks(connection, asked.range.scopes)
    found = [_behind(connection, asked, scope_pk, position, limit=limit + 1 + len(stood)) for scope_pk in scope_pks]
    rows = [row for rows in found for row in rows if row.workflow_pk not in stood]
    if stood:
        moved = LINES.where(workflows.c.workflow_pk.in_(stood), workflows.c.scope_pk.in_(scope_pks))
        rows += [row for row in connection.execute(moved) if _stood_behind(row, stood, asked, position)]
    places = [(stood.get(row.workflow_pk, row.first_us), row.workflow_pk, row) for row in rows]
    places.sort(key=lambda place: place[:2], reverse=True)
    after = [*places[limit - 1][:2], newest_pk, pin] if len(places) > limit else None
    return [line_of(row) for _, _, row in places[:limit]], after


def _behind(
    connection: Connection, asked: WorkflowFilter, scope_pk: int, position: list[Any] | None, *, limit: int
) -> Sequence[Any]:
    """Return workflows of one scope behind a position, newest first, along the index."""
    workflows = schema.workflows
    wanted = [
        workflows.c.scope_pk == scope_pk,
        workflows.c.first_us >= asked.range.first_day * DAY_US,
        workflows.c.first_us < (asked.range.last_day + 1) * DAY_US,
    ]
    if asked.outcome is not None:
        # Written out, as an index over these alone is chosen only for what the database can read.
        wanted.append(sa.text(f"observations_workflows.{asked.outcome.word} > 0"))  # type: ignore[arg-type]
    if position is not None:
        wanted.append(sa.tuple_(workflows.c.first_us, workflows.c.workflow_pk) < tuple(position[:2]))
        wanted.append(workflows.c.workflow_pk <= position[2])
    order = (workflows.c.first_us.desc(), workflows.c.workflow_pk.desc())
    return connection.execute(LINES.where(*wanted).order_by(*order).limit(limit)).all()


def _stood_behind(row: Any, stood: dict[int, int], asked: WorkflowFilter, position: list[Any] | None) -> bool:
    """Say whether a workflow that has moved stood in the rest of the list when its first page was read."""
    was_us = stood[row.workflow_pk]
    is_behind = position is None or ((was_us, row.workflow_pk) < tuple(position[:2]) and row.workflow_pk <= position[2])
    return is_behind and _is_wanted(row, asked, first_us=was_us)


def searched(
    connection: Connection, asked: WorkflowFilter, *, limit: int, position: list[Any] | None
) -> tuple[list[WorkflowLine], list[Any] | None]:
    """Return a page by id: workflows whose id begins so, after the one that has an attempt of this id.

    Args:
        connection: A reading transaction.
        asked: Which workflows.
        limit: Most lines.
        position: What the page before returned; None for the first.

    Returns:
        At most `limit` lines and the position of the next page, None at the end.
    """
    scope_pks = _scope_pks(connection, asked.range.scopes)
    last = position or ["", 0]
    lines = [] if position is not None else _of_attempt(connection, scope_pks, asked)
    found = [_beginning(connection, asked.search, scope_pk, last, at_once=limit + 1) for scope_pk in scope_pks]
    for looked, row in enumerate(heapq.merge(*found, key=_place_by_id)):
        if len(lines) >= limit or looked == _CANDIDATES:
            return lines, last
        last = _place_by_id(row)
        if _is_wanted(row, asked, first_us=row.first_us):
            lines.append(line_of(row))
    return lines, None


def _beginning(
    connection: Connection, search: str, scope_pk: int, position: list[Any], *, at_once: int
) -> Iterator[Any]:
    """Return workflows of one scope behind a position whose ids begin so, in order: no more are read than are taken.

    Only where many are taken and few are wanted are more and more read at once.
    """
    workflows = schema.workflows
    begins = [
        workflows.c.scope_pk == scope_pk,
        workflows.c.workflow_id >= search,
        # Ids are ASCII letters, digits, - and _: all sort before this.
        workflows.c.workflow_id < search + "\x7f",
    ]
    order = (workflows.c.workflow_id, workflows.c.workflow_pk)
    while True:
        behind = sa.tuple_(*order) > tuple(position)
        rows = connection.execute(LINES.where(*begins, behind).order_by(*order).limit(at_once)).all()
        yield from rows
        if len(rows) < at_once:
            return
        position, at_once = _place_by_id(rows[-1]), min(2 * at_once, _CANDIDATES)


def _place_by_id(row: Any) -> list[Any]:
    return [row.workflow_id, row.workflow_pk]


def _of_attempt(connection: Connection, scope_pks: Sequence[int], asked: WorkflowFilter) -> list[WorkflowLine]:
    attempts = schema.attempts
    statement = LINES.join(attempts, attempts.c.workflow_pk == schema.workflows.c.workflow_pk).where(
        attempts.c.scope_pk.in_(scope_pks), attempts.c.attempt_id == asked.search
    )
    return [line_of(row) for row in connection.execute(statement) if _is_wanted(row, asked, first_us=row.first_us)]


def _is_wanted(row: Any, asked: WorkflowFilter, *, first_us: int) -> bool:
    """Say whether a workflow has the outcome that is asked for, and lies in the range by this first time."""
    is_in_range = asked.range.first_day <= first_us // DAY_US <= asked.range.last_day
    return is_in_range and (asked.outcome is None or getattr(row, asked.outcome.word) > 0)


def _scope_pks(connection: Connection, scopes: Sequence[str]) -> list[int]:
    statement = sa.select(schema.scopes.c.scope_pk).where(schema.scopes.c.scope.in_(scopes))
    return list(connection.execute(statement).scalars())
