"""What a reader of observations asks for and is answered: values, and no database.

Rules:

* Sums are exact whole numbers in Python and strings of digits in JSON (`Sums.to_json`).
* Missing is not 0: beside every sum stands how many charges have no cost (`Sums.unpriced`), how many conflict and
  how many report no tokens; ``None`` where nothing was reported at all.

Source: observations.md, "The page".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from continuity.errors import MalformedError
from observations.costs import Attempt, Charge, Outcome, Vector, join

DEMO: Final = "demo"
"""The scope of made-up data."""
DAYS_MOST: Final = 3_660
"""Longest range, ten years."""
SCOPES_MOST: Final = 50


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
        by_outcome: Sums by the attempt's outcome; every outcome is there.
        attempts_by_outcome: How many attempts ended how; every outcome is there.
    """

    sums: Sums
    repeated: Sums
    attempts: int
    retries: int
    recoveries: int
    unpriced_attempts: int
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


def sums_of(vector: Vector) -> Sums:
    """Read sums over charges from their columns."""
    return Sums(
        charges=vector.get("charges", 0),
        priced=vector.get("priced", 0),
        conflicting=vector.get("conflicting", 0),
        cost_microusd=amount(vector, "cost"),
        input_tokens=amount(vector, "input") if vector.get("with_input") else None,
        output_tokens=amount(vector, "output") if vector.get("with_output") else None,
        without_input=vector.get("charges", 0) - vector.get("with_input", 0),
        without_output=vector.get("charges", 0) - vector.get("with_output", 0),
    )


def amount(vector: Vector, stem: str) -> int:
    """Return a whole amount from the two columns that hold it: ``cost`` in micro-dollars, ``input``, ``output``."""
    return join(vector.get(f"{stem}_hi", 0), vector.get(f"{stem}_lo", 0))


def _digits(amount: int | None) -> str | None:
    return None if amount is None else str(amount)
