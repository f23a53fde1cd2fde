"""Answers of the Activity page, from rollups: what an answer costs depends on what it shows.

Rules:

* Sums are exact whole numbers in Python and strings of digits in JSON (`Sums.to_json`).
* Missing is not 0: beside every sum stands how many charges have no cost (`Sums.unpriced`), how many conflict and
  how many report no tokens; ``None`` where nothing was reported at all.
* A charge counts on the day of its earliest time, an attempt on the day it was first seen, both in UTC. The list of
  workflows is by their first time, newest first, and by id where it is searched.
* Scopes are given by the caller, who has decided whether the person may see them. `DEMO` is the scope of made-up
  data.

Source: observations.md, "The page".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity.errors import MalformedError
from observations import moves, schema, store
from observations.costs import DAY_US, TALLY, Attempt, Cause, Charge, Outcome, Vector, added, join
from observations.cursors import Cursors

DEMO: Final = "demo"
DAYS_MOST: Final = 3_660
"""Longest range, ten years."""
SCOPES_MOST: Final = 50
PAGE_DEFAULT: Final = 50
PAGE_MOST: Final = 200
ATTEMPTS_PAGE: Final = 50
CHARGES_SHOWN: Final = 50
"""Charges listed of one attempt; its sums hold all."""
NAMES_SHOWN: Final = 200
"""Sources listed of a range; the rest are one line."""
_CANDIDATES: Final = 1_000
"""Workflows that one page of a search looks at."""


@dataclass(frozen=True, slots=True)
class Range:
    """Which days of which scopes.

    Attributes:
        scopes: Names of observation scopes, at most `SCOPES_MOST`.
        first_day: UTC day since 1970, included; as is the next.
        last_day: Not more than `DAYS_MOST` days in all.
    """

    scopes: tuple[str, ...]
    first_day: int
    last_day: int

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            MalformedError: Too many scopes or days, or the days are in the wrong order.
        """
        if len(self.scopes) > SCOPES_MOST:
            raise MalformedError(f"At most {SCOPES_MOST} scopes at once.")
        if not 0 <= self.last_day - self.first_day < DAYS_MOST:
            raise MalformedError(f"The range must be of 1 to {DAYS_MOST} days.")


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over charges.

    Attributes:
        charges: How many.
        priced: How many have a known cost.
        conflicting: How many were contradicted; those with a cost count with the one that was first.
        cost_microusd: Sum of the known costs; more may have been spent when `unpriced` is not 0.
        input_tokens: Sum of what was reported, None when no charge reported any.
        output_tokens: See `input_tokens`.
        without_input: How many charges report no input tokens.
        without_output: How many charges report no output tokens.
    """

    charges: int
    priced: int
    conflicting: int
    cost_microusd: int
    input_tokens: int | None
    output_tokens: int | None
    without_input: int
    without_output: int

    @property
    def unpriced(self) -> int:
        """How many charges have no known cost."""
        return self.charges - self.priced

    @property
    def known_cost(self) -> int | None:
        """The sum of known costs, None when no cost is known at all."""
        return self.cost_microusd if self.priced else None

    def to_json(self) -> dict[str, Any]:
        """Return it for a download: amounts as strings of digits, null for what is not known."""
        return {
            "charges": self.charges, "priced": self.priced, "unpriced": self.unpriced,
            "conflicting": self.conflicting, "cost_microusd": _digits(self.known_cost),
            "input_tokens": _digits(self.input_tokens), "output_tokens": _digits(self.output_tokens),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Totals:
    """A range as a whole.

    Attributes:
        sums: Of all charges.
        repeated: Of charges of attempts that were a retry or a recovery, each once.
        attempts: How many were first seen in the range.
        retries: How many of them were retries; both a retry and a recovery count in both.
        recoveries: How many of them were recoveries.
        unpriced_attempts: How many of them have no priced charge.
        by_cause: Sums by why the attempt was made; every cause is there.
        by_outcome: Sums by the attempt's outcome; every outcome is there.
        attempts_by_outcome: How many attempts ended how; every outcome is there.
    """

    sums: Sums
    repeated: Sums
    attempts: int
    retries: int
    recoveries: int
    unpriced_attempts: int
    by_cause: dict[Cause, Sums]
    by_outcome: dict[Outcome, Sums]
    attempts_by_outcome: dict[Outcome, int]


@dataclass(frozen=True, slots=True)
class DaySums:
    """A day of the chart: what first attempts cost, and what retries and recoveries did."""

    day: int
    first: Sums
    repeated: Sums


@dataclass(frozen=True, slots=True)
class NamedSums:
    """A line by source. `name` is None for charges without one; `is_other` for the sum of those not listed."""

    name: str | None
    is_other: bool
    sums: Sums


@dataclass(frozen=True, slots=True)
class WorkflowLine:
    """A workflow of the list. Times in microseconds; `repeated_…` are of attempts that were a retry or a recovery."""

    scope: str
    workflow_id: str
    first_us: int
    last_us: int
    runs: int
    attempts: int
    retries: int
    recoveries: int
    unpriced_attempts: int
    outcomes: dict[Outcome, int]
    sums: Sums
    repeated_microusd: int
    repeated_charges: int
    repeated_priced: int
    refused: int

    @property
    def is_demo(self) -> bool:
        """Whether it is made-up data."""
        return self.scope == DEMO

    def to_json(self) -> dict[str, Any]:
        """Return it for a download; times as Unix seconds."""
        return {
            "scope": self.scope, "workflow_id": self.workflow_id, "first": self.first_us / 1e6,
            "last": self.last_us / 1e6, "runs": self.runs, "attempts": self.attempts, "retries": self.retries,
            "recoveries": self.recoveries, "unpriced_attempts": self.unpriced_attempts,
            "outcomes": {outcome.word: count for outcome, count in self.outcomes.items()}, **self.sums.to_json(),
            "repeated_cost_microusd": _digits(self.repeated_microusd if self.repeated_priced else None),
            "refused_events": self.refused,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorkflowPage:
    """Newest first, or by id where it was searched. `next_cursor` is None at the end."""

    workflows: list[WorkflowLine]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class WorkflowFilter:
    """Which workflows.

    Attributes:
        range: Those first seen on these days.
        outcome: Those with at least one attempt of this outcome.
        search: The beginning of a workflow_id, or a whole attempt_id.
    """

    range: Range
    outcome: Outcome | None = None
    search: str = ""


@dataclass(frozen=True, slots=True)
class ChargeLine:
    """A charge of an attempt."""

    charge_source: str
    charge_id: str
    charge: Charge


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """An attempt of the time line, with its first `CHARGES_SHOWN` charges; `sums` are of all of them."""

    attempt_id: str
    attempt: Attempt
    sums: Sums
    charges: list[ChargeLine]


@dataclass(frozen=True, slots=True)
class AttemptPage:
    """Attempts of one workflow, oldest first."""

    workflow: WorkflowLine
    attempts: list[AttemptLine]
    next_cursor: str | None


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
        look = _searched if asked.search else _listed
        lines, after = self.units.read(lambda connection: look(connection, asked, limit=limit, position=position))
        return WorkflowPage(lines, None if after is None else self.cursors.write(after, asked=question, now_us=now_us))

    def find(self, scopes: Sequence[str], workflow_id: str) -> list[WorkflowLine]:
        """Return what was observed of a workflow, one line for each of `scopes` that knows it."""
        workflows = schema.workflows
        statement = _LINE.where(schema.scopes.c.scope.in_(list(scopes)[:SCOPES_MOST])).where(
            workflows.c.workflow_id == workflow_id
        )
        return [_line(row) for row in self.units.read(lambda connection: connection.execute(statement).all())]

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
                _LINE.where(schema.scopes.c.scope == scope, schema.workflows.c.workflow_id == workflow_id)
            ).first()
            if workflow is None:
                return None
            return (_line(workflow), *_time_line(connection, workflow, limit=limit, position=position))

        found = self.units.read(work)
        if found is None:
            return None
        line, lines, after = found
        next_cursor = None if after is None else self.cursors.write(after, asked=question, now_us=now_us)
        return AttemptPage(line, lines, next_cursor)


def sums_of(vector: Vector) -> Sums:
    """Read sums over charges from their columns."""
    return Sums(
        charges=vector.get("charges", 0),
        priced=vector.get("priced", 0),
        conflicting=vector.get("conflicting", 0),
        cost_microusd=_amount(vector, "cost"),
        input_tokens=_amount(vector, "input") if vector.get("with_input") else None,
        output_tokens=_amount(vector, "output") if vector.get("with_output") else None,
        without_input=vector.get("charges", 0) - vector.get("with_input", 0),
        without_output=vector.get("charges", 0) - vector.get("with_output", 0),
    )


def _amount(vector: Vector, stem: str) -> int:
    return join(vector.get(f"{stem}_hi", 0), vector.get(f"{stem}_lo", 0))


def _digits(amount: int | None) -> str | None:
    return None if amount is None else str(amount)


def _by_cost(item: tuple[Vector, str]) -> tuple[int, str]:
    return (-_amount(item[0], "cost"), item[1])


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
        by_cause={cause: sums_of(over(lambda each, _, cause=cause: each is cause)) for cause in Cause},  # type: ignore[misc]
        by_outcome={outcome: sums_of(vector) for outcome, vector in outcomes.items()},
        attempts_by_outcome={outcome: vector.get("attempts", 0) for outcome, vector in outcomes.items()},
    )


# ---- workflows

_LINE: Final = sa.select(schema.workflows, schema.scopes.c.scope).join(
    schema.scopes, schema.scopes.c.scope_pk == schema.workflows.c.scope_pk
)


def _line(row: Any) -> WorkflowLine:
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


def _scope_pks(connection: Connection, scopes: Sequence[str]) -> list[int]:
    statement = sa.select(schema.scopes.c.scope_pk).where(schema.scopes.c.scope.in_(scopes))
    return list(connection.execute(statement).scalars())


def _listed(
    connection: Connection, asked: WorkflowFilter, *, limit: int, position: list[Any] | None
) -> tuple[list[WorkflowLine], list[Any] | None]:
    """Return a page newest first, each scope read along its index and merged."""
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
        moved = _LINE.where(workflows.c.workflow_pk.in_(stood), workflows.c.scope_pk.in_(scope_pks))
        rows += [row for row in connection.execute(moved) if _stood_behind(row, stood, asked, position)]
    places = [(stood.get(row.workflow_pk, row.first_us), row.workflow_pk, row) for row in rows]
    places.sort(key=lambda place: place[:2], reverse=True)
    after = [*places[limit - 1][:2], newest_pk, pin] if len(places) > limit else None
    return [_line(row) for _, _, row in places[:limit]], after


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
    return connection.execute(_LINE.where(*wanted).order_by(*order).limit(limit)).all()


def _stood_behind(row: Any, stood: dict[int, int], asked: WorkflowFilter, position: list[Any] | None) -> bool:
    """Say whether a workflow that has moved stood in the rest of the list when its first page was read."""
    was_us = stood[row.workflow_pk]
    is_in_range = asked.range.first_day <= was_us // DAY_US <= asked.range.last_day
    is_behind = position is None or ((was_us, row.workflow_pk) < tuple(position[:2]) and row.workflow_pk <= position[2])
    return is_in_range and is_behind and (asked.outcome is None or getattr(row, asked.outcome.word) > 0)


def _searched(
    connection: Connection, asked: WorkflowFilter, *, limit: int, position: list[Any] | None
) -> tuple[list[WorkflowLine], list[Any] | None]:
    """Return a page by id: workflows whose id begins so, after the one that has an attempt of this id."""
    workflows = schema.workflows
    after_id, after_pk = position or ("", 0)
    prefix = [
        workflows.c.workflow_id >= asked.search,
        # Ids are ASCII letters, digits, - and _: all sort before this.
        workflows.c.workflow_id < asked.search + "\x7f",
        sa.tuple_(workflows.c.workflow_id, workflows.c.workflow_pk) > (after_id, after_pk),
    ]
    order = (workflows.c.workflow_id, workflows.c.workflow_pk)
    scope_pks = _scope_pks(connection, asked.range.scopes)
    found = [
        connection.execute(
            _LINE.where(workflows.c.scope_pk == scope_pk, *prefix).order_by(*order).limit(_CANDIDATES)
        ).all()
        for scope_pk in scope_pks
    ]
    lines = [] if position is not None else _of_attempt(connection, scope_pks, asked)
    looked = 0
    candidates = list(heapq.merge(*found, key=lambda row: (row.workflow_id, row.workflow_pk)))[:_CANDIDATES]
    for row in candidates:
        if len(lines) >= limit:
            break
        looked += 1
        if _is_wanted(row, asked):
            lines.append(_line(row))
    is_end = looked == len(candidates) and len(candidates) < _CANDIDATES
    after = None if is_end or not looked else [candidates[looked - 1].workflow_id, candidates[looked - 1].workflow_pk]
    return lines, after


def _of_attempt(connection: Connection, scope_pks: Sequence[int], asked: WorkflowFilter) -> list[WorkflowLine]:
    attempts = schema.attempts
    statement = _LINE.join(attempts, attempts.c.workflow_pk == schema.workflows.c.workflow_pk).where(
        attempts.c.scope_pk.in_(scope_pks), attempts.c.attempt_id == asked.search
    )
    return [_line(row) for row in connection.execute(statement) if _is_wanted(row, asked)]


def _is_wanted(row: Any, asked: WorkflowFilter) -> bool:
    is_in_range = asked.range.first_day <= row.first_us // DAY_US <= asked.range.last_day
    return is_in_range and (asked.outcome is None or getattr(row, asked.outcome.word) > 0)


# ---- attempts of a workflow


def _time_line(
    connection: Connection, workflow: Any, *, limit: int, position: list[Any] | None
) -> tuple[list[AttemptLine], list[Any] | None]:
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
