"""Answers of the Activity page, from rollups: what an answer costs depends on what it shows.

Rules:

* A charge counts on the day of its earliest time, an attempt on the day it was first seen, both in UTC. The list of
  workflows is by their first time, newest first, and by id where it is searched.
* Scopes are given by the caller, who has decided whether the person may see them.
* What is asked and answered stands in `observations.answers`; how a list is paged in `observations.workflow_list`
  and `observations.time_line`.

Source: observations.md, "The page".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity.errors import MalformedError
from observations import schema, store, time_line, workflow_list
from observations.answers import (
    SCOPES_MOST,
    AttemptLine,
    AttemptPage,
    DaySums,
    NamedSums,
    Range,
    Totals,
    WorkflowFilter,
    WorkflowLine,
    WorkflowPage,
    amount,
    sums_of,
)
from observations.costs import TALLY, Cause, Outcome, Vector, added
from observations.cursors import Cursors

PAGE_DEFAULT: Final = 50
PAGE_MOST: Final = 200
ATTEMPTS_PAGE: Final = 50
NAMES_SHOWN: Final = 200
"""Sources listed of a range; the rest are one line."""


@dataclass(frozen=True, slots=True)
class Queries:
    """Reads for the Activity page. Safe to share between threads.

    Attributes:
        units: Runs the reading transactions.
        cursors: Makes the cursors of both lists.
        now_us: The server's time, for the age of cursors.
    """

    units: store.Units
    cursors: Cursors
    now_us: Callable[[], int] = field(repr=False)

    def scopes(self) -> list[str]:
        """Return the first `SCOPES_MOST` scopes that events came for, by name."""
        statement = sa.select(schema.scopes.c.scope).order_by(schema.scopes.c.scope).limit(SCOPES_MOST)
        return self.units.read(lambda connection: list(connection.execute(statement).scalars()))

    def totals(self, asked: Range) -> Totals:
        """Return the sums of a range.

        Raises:
            UnavailableError: Storage cannot answer; so do all that follow.
        """
        columns = (*TALLY, "attempts", "unpriced_attempts")
        days = schema.days
        statement = (
            sa.select(days.c.cause, days.c.outcome, *(sa.func.sum(days.c[name]).label(name) for name in columns))
            .where(*_within(days, asked))
            .group_by(days.c.cause, days.c.outcome)
        )
        return _totals(self.units.read(lambda connection: connection.execute(statement).all()))

    def over_time(self, asked: Range) -> list[DaySums]:
        """Return the days of a range that have charges, oldest first."""
        days = schema.days
        is_first = (days.c.cause == Cause.FIRST).label("is_first")
        statement = (
            sa.select(days.c.day, is_first, *(sa.func.sum(days.c[name]).label(name) for name in TALLY))
            .where(*_within(days, asked))
            .group_by(days.c.day, is_first)
            .order_by(days.c.day)
        )
        found: dict[int, list[Vector]] = {}
        for row in self.units.read(lambda connection: connection.execute(statement).all()):
            found.setdefault(row.day, [{}, {}])[0 if row.is_first else 1] = store.vector_of(row)
        return [
            DaySums(day, sums_of(first), sums_of(repeated))
            for day, (first, repeated) in found.items()
            if first.get("charges") or repeated.get("charges")
        ]

    def by_source(self, asked: Range) -> list[NamedSums]:
        """Return the sums by charge source, the most expensive first, at most `NAMES_SHOWN` and a rest."""
        return self._by_name(asked, schema.pairs.c.charge_source)

    def by_price_source(self, asked: Range) -> list[NamedSums]:
        """Return the sums by price source, as `by_source`; charges that name none stand under None."""
        return self._by_name(asked, schema.pairs.c.price_source)

    def _by_name(self, asked: Range, column: sa.ColumnElement[str]) -> list[NamedSums]:
        pairs = schema.pairs
        sums = [sa.func.sum(pairs.c[name]).label(name) for name in TALLY]

        def one(shown: int, name: sa.ColumnElement[Any]) -> sa.Select[Any]:
            is_shown = sa.and_(pairs.c.shown == shown, *_within(pairs, asked))
            return sa.select(name.label("name"), *sums).where(is_shown)

        named = one(schema.PAIR_NAMED, column).group_by(column)
        other = one(schema.PAIR_OTHER, sa.null())

        def work(connection: Connection) -> tuple[Sequence[Any], Any]:
            return connection.execute(named).all(), connection.execute(other).one()

        rows, rest = self.units.read(work)
        vectors = sorted(((store.vector_of(row), row.name) for row in rows), key=_by_cost)
        shown = [
            NamedSums(name or None, is_other=False, sums=sums_of(vector)) for vector, name in vectors[:NAMES_SHOWN]
        ]
        left = added([store.vector_of(rest), *(vector for vector, _ in vectors[NAMES_SHOWN:])])
        if left.get("charges"):
            shown.append(NamedSums(None, is_other=True, sums=sums_of(left)))
        return shown

    def workflows(
        self, asked: WorkflowFilter, *, actor: str, limit: int = PAGE_DEFAULT, cursor: str | None = None
    ) -> WorkflowPage:
        """Return a page of the list.

        Args:
            asked: Which workflows.
            actor: Who asks; a cursor is good for nobody else.
            limit: Most lines, 1 to `PAGE_MOST`.
            cursor: `WorkflowPage.next_cursor` of the page before. Workflows that came after the first page are not
                shown on later ones, and one whose first time has moved since stands where it stood. A search looks
                at a bounded number of workflows a page, so that a page may be short, or empty, and have a next one.

        Raises:
            MalformedError: The limit or the cursor is not what it must be.
        """
        _check_limit(limit)
        question = [actor, "workflows", 2, *asked.range.scopes, asked.range.first_day, asked.range.last_day,
                    -1 if asked.outcome is None else int(asked.outcome), asked.search]  # fmt: skip
        now_us = self.now_us()
        position = None if cursor is None else self.cursors.read(cursor, asked=question, now_us=now_us)
        look = workflow_list.searched if asked.search else workflow_list.listed
        lines, after = self.units.read(lambda connection: look(connection, asked, limit=limit, position=position))
        return WorkflowPage(lines, None if after is None else self.cursors.write(after, asked=question, now_us=now_us))

    def find(self, scopes: Sequence[str], workflow_id: str) -> list[WorkflowLine]:
        """Return what was observed of a workflow, one line for each of `scopes` that knows it."""
        workflows = schema.workflows
        statement = workflow_list.LINES.where(schema.scopes.c.scope.in_(list(scopes)[:SCOPES_MOST])).where(
            workflows.c.workflow_id == workflow_id
        )
        return [
            workflow_list.line_of(row)
            for row in self.units.read(lambda connection: connection.execute(statement).all())
        ]

    def attempts(
        self, scope: str, workflow_id: str, *, actor: str, cursor: str | None = None, limit: int = ATTEMPTS_PAGE
    ) -> AttemptPage | None:
        """Return attempts of a workflow with their charges, oldest first; None when the scope does not know it.

        Args:
            scope: Its observation scope.
            workflow_id: Which.
            actor: As for `workflows`.
            cursor: `AttemptPage.next_cursor` of the page before.
            limit: Most attempts, 1 to `PAGE_MOST`.

        Raises:
            MalformedError: The limit or the cursor is not what it must be.
        """
        _check_limit(limit)
        question, now_us = [actor, "attempts", 2, scope, workflow_id], self.now_us()
        position = None if cursor is None else self.cursors.read(cursor, asked=question, now_us=now_us)

        def work(connection: Connection) -> tuple[WorkflowLine, list[AttemptLine], list[Any] | None] | None:
            workflow = connection.execute(
                workflow_list.LINES.where(schema.scopes.c.scope == scope, schema.workflows.c.workflow_id == workflow_id)
            ).first()
            if workflow is None:
                return None
            return (
                workflow_list.line_of(workflow),
                *time_line.attempts_of(connection, workflow, limit=limit, position=position),
            )

        found = self.units.read(work)
        if found is None:
            return None
        line, lines, after = found
        next_cursor = None if after is None else self.cursors.write(after, asked=question, now_us=now_us)
        return AttemptPage(line, lines, next_cursor)


def _by_cost(item: tuple[Vector, str]) -> tuple[int, str]:
    return (-amount(item[0], "cost"), item[1])


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE_MOST:
        raise MalformedError(f"limit must be from 1 to {PAGE_MOST}.")


def _within(table: sa.Table, asked: Range) -> list[sa.ColumnElement[bool]]:
    scopes = sa.select(schema.scopes.c.scope_pk).where(schema.scopes.c.scope.in_(asked.scopes))
    return [table.c.scope_pk.in_(scopes), table.c.day.between(asked.first_day, asked.last_day)]


def _totals(rows: Iterable[Any]) -> Totals:
    vectors = {
        (Cause(row.cause), Outcome(row.outcome)): store.vector_of(row)
        | {"attempts": int(row.attempts), "unpriced_attempts": int(row.unpriced_attempts)}
        for row in rows
    }

    def over(is_wanted: Callable[[Cause, Outcome], bool]) -> Vector:
        return added(vector for key, vector in vectors.items() if is_wanted(*key))

    whole = over(lambda _cause, _outcome: True)
    outcomes = {outcome: over(lambda _cause, each, outcome=outcome: each is outcome) for outcome in Outcome}  # type: ignore[misc]
    return Totals(
        sums=sums_of(whole),
        repeated=sums_of(over(lambda cause, _outcome: cause is not Cause.FIRST)),
        attempts=whole.get("attempts", 0),
        retries=over(lambda cause, _outcome: cause in {Cause.RETRY, Cause.BOTH}).get("attempts", 0),
        recoveries=over(lambda cause, _outcome: cause in {Cause.RECOVERY, Cause.BOTH}).get("attempts", 0),
        unpriced_attempts=whole.get("unpriced_attempts", 0),
        by_outcome={outcome: sums_of(vector) for outcome, vector in outcomes.items()},
        attempts_by_outcome={outcome: vector.get("attempts", 0) for outcome, vector in outcomes.items()},
    )
