"""What the page of activity was asked for, as it stands in its address. Pure.

A range is the last days up to today (`days`), or from one date to another (`from`, `to`, both in UTC); dates win.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from continuity.errors import MalformedError
from observations.answers import DAYS_MOST, DEMO, Range, WorkflowFilter
from observations.costs import Outcome

FILTERS: Final = ("days", "from", "to", "scope", "demo", "outcome", "q")
DATES: Final = ("from", "to")
SPANS: Final = (7, 30, 90, 365)
_SPAN: Final = 30
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH: Final = date(1970, 1, 1)
_WITHOUT: Final = "no"
_OUTCOMES: Final = {outcome.word: outcome for outcome in Outcome}
_SEARCH_CHARS: Final = 128


@dataclass(frozen=True, slots=True)
class Question:
    """A range of days, which scopes, and which workflows. `days` is None between dates."""

    first_day: int
    last_day: int
    days: int | None
    given: tuple[tuple[str, str], ...]
    outcome: Outcome | None

    @property
    def scope(self) -> str | None:
        return dict(self.given).get("scope")

    @property
    def q(self) -> str:
        return dict(self.given).get("q", "")

    @property
    def is_without_demo(self) -> bool:
        return "demo" in dict(self.given)

    @property
    def is_list_filtered(self) -> bool:
        """Whether the list shows fewer workflows than the sums above it are of."""
        return bool(self.q) or self.outcome is not None

    @property
    def first(self) -> str:
        """The first date as it was given, empty when it was not; as is the next."""
        return dict(self.given).get("from", "")

    @property
    def last(self) -> str:
        return dict(self.given).get("to", "")

    @property
    def first_date(self) -> str:
        return date_of(self.first_day)

    @property
    def last_date(self) -> str:
        return date_of(self.last_day)

    def parameters(self, **other: str | None) -> dict[str, str]:
        """Return the query that asks the same, but for `other`; ``from_`` stands for ``from``."""
        changed = {name.rstrip("_"): value for name, value in other.items()}
        return {name: value for name, value in {**dict(self.given), **changed}.items() if value}

    def of_last(self, days: int) -> dict[str, str]:
        """Return the query that asks the same of the last `days`."""
        return self.parameters(days=str(days), from_=None, to=None)

    def range(self, scopes: Sequence[str]) -> Range:
        """Return what to sum up, given the scopes that there are."""
        wanted = [self.scope] if self.scope is not None else scopes
        shown = [scope for scope in wanted if scope in scopes and not (self.is_without_demo and scope == DEMO)]
        return Range(tuple(shown), self.first_day, self.last_day)

    def filter(self, scopes: Sequence[str]) -> WorkflowFilter:
        """Return which workflows to list."""
        return WorkflowFilter(self.range(scopes), outcome=self.outcome, search=self.q)


def read_question(given: Mapping[str, str], *, today: int) -> Question:
    """Read the parameters of `FILTERS`.

    Raises:
        MalformedError: One of them is not what it must be; the message begins with its name.
    """
    days, first_day, last_day = _days(given, today)
    if given.get("demo", _WITHOUT) != _WITHOUT:
        raise MalformedError("demo: must be no, or absent.")
    word = given.get("outcome")
    if word is not None and word not in _OUTCOMES:
        raise MalformedError(f"outcome: must be one of {', '.join(_OUTCOMES)}.")
    if len(given.get("q", "")) > _SEARCH_CHARS:
        raise MalformedError(f"q: must be at most {_SEARCH_CHARS} characters.")
    kept = tuple((name, given[name]) for name in FILTERS if name in given)
    return Question(first_day, last_day, days, kept, None if word is None else _OUTCOMES[word])


def date_of(day: int) -> str:
    """Write a day since 1970: ``2026-11-30``; far days as the last one that has a date."""
    return _date(day).isoformat()


def short_date(day: int, *, year: bool = False) -> str:
    """Write a day for an axis: ``30 Nov``, or ``Nov 2026``."""
    moment = _date(day)
    return f"{moment:%b %Y}" if year else f"{moment.day} {moment:%b}"


def _date(day: int) -> date:
    return _EPOCH + timedelta(days=min(max(day, 0), (date.max - _EPOCH).days))


def _days(given: Mapping[str, str], today: int) -> tuple[int | None, int, int]:
    if "from" in given or "to" in given:
        last = _day("to", given["to"]) if "to" in given else None
        first = _day("from", given["from"]) if "from" in given else None
        if last is None:
            last = max(today, first or 0)
        first = max(0, last - _SPAN + 1) if first is None else first
        if first > last:
            raise MalformedError("from: must not be after the last day.")
        if last - first >= DAYS_MOST:
            raise MalformedError(f"from: must be at most {DAYS_MOST:,} days before the last day.")
        return None, first, last
    text = given.get("days", str(_SPAN))
    if text not in {str(span) for span in SPANS}:
        raise MalformedError(f"days: must be one of {', '.join(map(str, SPANS))}.")
    return int(text), max(0, today - int(text) + 1), today


def _day(name: str, text: str) -> int:
    # Python reads more spellings than this one.
    found = _DATE.fullmatch(text)
    try:
        day = (date.fromisoformat(text) - _EPOCH).days if found else None
    except ValueError:
        day = None
    if day is None:
        raise MalformedError(f"{name}: must be a date like 2026-11-30.")
    if day < 0:
        raise MalformedError(f"{name}: must be 1970-01-01 or later.")
    return day
