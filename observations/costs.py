"""What is known of an attempt and of a charge, and what each adds to the totals. Pure.

Rules:

* Facts only grow. A time is the earliest or latest seen, ``retry`` and ``recovery`` are true once any event says
  so, an outcome is the strongest seen, an amount is set once. So the facts of a set of events without conflict do
  not depend on their order or on how often each came.
* A known amount never changes: an event that says otherwise is refused whole, and the charge is conflicting.
* An unknown cost is not 0: it is counted as unpriced and adds nothing to a sum. A reported 0 is a real 0.
* Totals are sums of what each attempt and charge adds (`footprint`, `charge_pair`), so a fact that changes moves
  the totals by the difference of two footprints, and nothing else is ever added.
* Money and tokens are whole numbers. A sum is kept in two columns, ``value >> 27`` and ``value & (2**27 - 1)``
  added up apart, each without carrying: neither passes 63 bits before 2**36 amounts of the largest size.

Source: observations.md, "Rules".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final

from observations.events import Event, EventName

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
LIMB_BITS: Final = 27
_LIMB_MASK: Final = (1 << LIMB_BITS) - 1

Vector = dict[str, int]
"""Numbers by the name of their column; a column that is not there is 0."""


class Outcome(IntEnum):
    """How an attempt ended, weakest first; `OPEN` while no event has said."""

    OPEN = 0
    UNKNOWN = 1
    BLOCKED = 2
    ABANDONED = 3
    COMPLETED = 4

    @property
    def word(self) -> str:
        """The name in lower case, as pages and filters write it."""
        return self.name.lower()


class Cause(IntEnum):
    """Why an attempt was made. The last three together are what repetition cost."""

    FIRST = 0
    RETRY = 1
    RECOVERY = 2
    BOTH = 3

    @property
    def word(self) -> str:
        """The name in lower case, as pages and filters write it."""
        return self.name.lower()


class CostState(StrEnum):
    """What is known of a charge's cost."""

    REPORTED = "reported"
    UNKNOWN = "unknown"
    CONFLICTING = "conflicting"


TALLY: Final = (
    "charges", "priced", "conflicting", "cost_hi", "cost_lo", "with_input", "input_hi", "input_lo", "with_output",
    "output_hi", "output_lo",
)  # fmt: skip
"""Columns of sums over charges: how many, how many with a cost, how many conflicting, the sums in two limbs each,
and how many charges reported input and output tokens at all."""
ATTEMPT_COUNTS: Final = ("attempts", "unpriced_attempts")
"""Columns of a day beside `TALLY`; unpriced attempts are those without any priced charge."""
WORKFLOW_COUNTS: Final = (
    "attempts", "unpriced_attempts", "retries", "recoveries",
    *(outcome.word for outcome in Outcome), "repeated_hi", "repeated_lo", "repeated_charges", "repeated_priced",
)  # fmt: skip
"""Columns of a workflow beside `TALLY`: attempts by outcome, and what retries and recoveries cost, once each, in how
many charges, how many of which have a cost."""
FACTS: Final = (
    "price_source", "cost_microusd", "input_tokens", "output_tokens", "cached_input_tokens", "cached_basis", "model",
)  # fmt: skip
"""What an event may say of a charge, each to be set once."""

_STRENGTH: Final = {
    EventName.COMPLETED: Outcome.COMPLETED,
    EventName.ABANDONED: Outcome.ABANDONED,
    EventName.BLOCKED: Outcome.BLOCKED,
    EventName.UNKNOWN: Outcome.UNKNOWN,
}


def join(high: int, low: int) -> int:
    """Return the sum that two limbs stand for."""
    return (int(high) << LIMB_BITS) + int(low)


def time_us(event: Event) -> int:
    """Return the event's time in whole microseconds since 1970."""
    return round(event.time * SECOND_US)


def day_of(at_us: int) -> int:
    """Return the UTC day of a time, counted from 1 January 1970."""
    return at_us // DAY_US


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is known of an attempt.

    Attributes:
        workflow_id: Where it belongs, for good; so do the next two.
        operation_id: See `workflow_id`.
        run_id: See `workflow_id`.
        is_retry: An event said so.
        is_recovery: An event said so.
        outcome: The strongest seen.
        first_us: Its earliest time, microseconds.
        last_us: Its latest time.
    """

    workflow_id: str
    operation_id: str
    run_id: str
    is_retry: bool
    is_recovery: bool
    outcome: Outcome
    first_us: int
    last_us: int

    @property
    def cause(self) -> Cause:
        """Why it was made."""
        return Cause(self.is_retry + 2 * self.is_recovery)


@dataclass(frozen=True, slots=True)
class Charge:
    """What is known of a charge. None is not known.

    Attributes:
        attempt_id: The one attempt that it belongs to.
        first_us: Its earliest time, microseconds; its day is this time's.
        price_source: Set once, as are all that follow but the last.
        cost_microusd: See `price_source`.
        input_tokens: See `price_source`.
        output_tokens: See `price_source`.
        cached_input_tokens: See `price_source`.
        cached_basis: ``included`` or ``separate``; see `price_source`.
        model: See `price_source`.
        conflicts: How many refused events said otherwise.
    """

    attempt_id: str
    first_us: int
    price_source: str | None
    cost_microusd: int | None
    input_tokens: int | None
    output_tokens: int | None
    cached_input_tokens: int | None
    cached_basis: str | None
    model: str | None
    conflicts: int = 0

    @property
    def day(self) -> int:
        """The UTC day that it counts on."""
        return day_of(self.first_us)

    @property
    def state(self) -> CostState:
        """What is known of its cost."""
        if self.conflicts:
            return CostState.CONFLICTING
        return CostState.UNKNOWN if self.cost_microusd is None else CostState.REPORTED


def observe_attempt(known: Attempt | None, event: Event) -> Attempt | None:
    """Return the attempt as it is known after `event`; None when the event puts it into another place."""
    at_us = time_us(event)
    outcome = _STRENGTH.get(event.event, Outcome.OPEN)
    said = Attempt(
        event.workflow_id, event.operation_id, event.run_id, bool(event.retry), bool(event.recovery), outcome,
        first_us=at_us, last_us=at_us,
    )  # fmt: skip
    if known is None:
        return said
    if (known.workflow_id, known.operation_id, known.run_id) != (said.workflow_id, said.operation_id, said.run_id):
        return None
    return replace(
        known,
        is_retry=known.is_retry or said.is_retry,
        is_recovery=known.is_recovery or said.is_recovery,
        outcome=max(known.outcome, outcome),
        first_us=min(known.first_us, at_us),
        last_us=max(known.last_us, at_us),
    )


def observe_charge(known: Charge | None, event: Event) -> Charge | None:
    """Return the charge as it is known after `event`, which names it; None when the event contradicts it."""
    at_us = time_us(event)
    if known is None:
        return Charge(event.attempt_id, at_us, *(getattr(event, name) for name in FACTS))
    if known.attempt_id != event.attempt_id:
        return None
    filled: dict[str, object] = {}
    for name in FACTS:
        was, said = getattr(known, name), getattr(event, name)
        if was is None:
            filled[name] = said
        elif said is not None and said != was:
            return None
    return replace(known, first_us=min(known.first_us, at_us), **filled)  # type: ignore[arg-type]


def contribution(charge: Charge | None) -> Vector:
    """Return what a charge adds to every sum that it is in, in columns of `TALLY`; nothing for None."""
    if charge is None:
        return {}
    made = {"charges": 1, "conflicting": int(charge.conflicts > 0)}
    for known, stem, value in (
        ("priced", "cost", charge.cost_microusd),
        ("with_input", "input", charge.input_tokens),
        ("with_output", "output", charge.output_tokens),
    ):
        if value is not None:
            made |= {known: 1, f"{stem}_hi": value >> LIMB_BITS, f"{stem}_lo": value & _LIMB_MASK}
    return made


def charge_pair(charge: Charge | None, charge_source: str) -> dict[tuple[int, str, str], Vector]:
    """Return what a charge adds by (day, charge source, price source); a price source that is not known is ``""``."""
    if charge is None:
        return {}
    return {(charge.day, charge_source, charge.price_source or ""): contribution(charge)}


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one attempt with its charges adds to the totals.

    Attributes:
        days: By (day, cause, outcome), in columns of `ATTEMPT_COUNTS` and `TALLY`.
        workflow: To its workflow's row, in columns of `WORKFLOW_COUNTS` and `TALLY`.
    """

    days: dict[tuple[int, Cause, Outcome], Vector]
    workflow: Vector


def footprint(attempt: Attempt | None, days: Mapping[int, Vector]) -> Footprint:
    """Say what an attempt adds, given the sums of its charges by day; nothing for None."""
    if attempt is None:
        return Footprint({}, {})
    tally = added(days.values())
    is_unpriced = int(not tally.get("priced"))
    key = (attempt.cause, attempt.outcome)
    by_day: dict[tuple[int, Cause, Outcome], Vector] = {(day, *key): dict(vector) for day, vector in days.items()}
    home = by_day.setdefault((day_of(attempt.first_us), *key), {})
    home |= {"attempts": 1, "unpriced_attempts": is_unpriced}
    workflow = tally | {
        "attempts": 1,
        "unpriced_attempts": is_unpriced,
        "retries": int(attempt.is_retry),
        "recoveries": int(attempt.is_recovery),
        attempt.outcome.word: 1,
    }
    if attempt.cause is not Cause.FIRST:
        repeated = {"repeated_hi": "cost_hi", "repeated_lo": "cost_lo", "repeated_charges": "charges",
                    "repeated_priced": "priced"}  # fmt: skip
        workflow |= {name: tally.get(of, 0) for name, of in repeated.items()}
    return Footprint(by_day, workflow)


def added(vectors: Iterable[Mapping[str, int]]) -> Vector:
    """Return the sum of vectors."""
    total: Vector = {}
    for vector in vectors:
        for name, value in vector.items():
            total[name] = total.get(name, 0) + value
    return total


def difference(after: Mapping[str, int], before: Mapping[str, int]) -> Vector:
    """Return `after` less `before`, only what is not 0."""
    names = after.keys() | before.keys()
    return {name: change for name in names if (change := after.get(name, 0) - before.get(name, 0))}


def pair_rank(charge_source: str, price_source: str) -> bytes:
    """Return the 16 bytes that decide which pairs of a day are named: the smallest. They do not depend on arrival."""
    text = charge_source.encode() + b"\0" + price_source.encode()
    return hashlib.sha256(text).digest()[:16]
