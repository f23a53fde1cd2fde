"""Geometry of the chart of cost over time. Pure: sums of days in, coordinates out.

A bar is of so many days that no more than `BARS_MOST` stand in a range; its lower part is what first attempts cost,
its upper part what retries and recoveries did. Days with charges of unknown cost carry a mark: their bar is "at
least". Amounts stay whole numbers up to the height of a bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.pages.asking import date_of, short_date
from app.pages.money import Cost, cost_of, dollars
from observations.answers import DaySums, Sums

WIDTH: Final = 760
HEIGHT: Final = 240
BARS_MOST: Final = 62
_SIZES: Final = (1, 7, 30, 90)
"""Days of a bar."""
_LEFT: Final = 84
_RIGHT: Final = 22
_TOP: Final = 24
_BOTTOM: Final = 26
_PLOT_WIDTH: Final = WIDTH - _LEFT - _RIGHT
_PLOT_HEIGHT: Final = HEIGHT - _TOP - _BOTTOM
_BASE: Final = HEIGHT - _BOTTOM
_TICKS: Final = 4
_LABELS: Final = 8
_FILLED: Final = 0.72
_WIDEST: Final = 44.0
_LEAST: Final = 1.5
"""Height of the smallest cost that is not 0."""
_YEAR: Final = 366
_NOTHING: Final = Sums(0, 0, 0, 0, None, None, 0, 0)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in coordinates, and what stands in the table for it. `dates` are those of its days."""

    dates: str
    first: Cost
    repeated: Cost
    whole: Cost
    x: float
    width: float
    first_y: float
    first_height: float
    repeated_y: float
    repeated_height: float
    mark_y: float
    middle: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of an axis, and where."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that the template writes down. `days` are the days of one bar."""

    bars: tuple[Bar, ...]
    amounts: tuple[Tick, ...]
    labels: tuple[Tick, ...]
    days: int
    has_unknown: bool
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    base: int = _BASE


def draw(days: Sequence[DaySums], *, first_day: int, last_day: int) -> Chart | None:
    """Return the chart of a range; None when it has no charges."""
    if not days:
        return None
    count = last_day - first_day + 1
    size = next(size for size in _SIZES if count <= size * BARS_MOST or size == _SIZES[-1])
    slots = -(-count // size)
    # Counted back from the last day, so that the newest bar is whole.
    start = last_day + 1 - slots * size
    found: dict[int, list[DaySums]] = {}
    for each in days:
        found.setdefault((each.day - start) // size, []).append(each)
    most = max(_cost(each) for each in found.values())
    step = _step(most)
    # One line above the highest bar is enough.
    ticks = max(1, -(-most // step))
    top = step * ticks
    bars = []
    for index, held in sorted(found.items()):
        begin = start + index * size
        span = (max(begin, first_day), begin + size - 1)
        bars.append(_bar(held, span, place=(index + 0.5) / slots, slot=_PLOT_WIDTH / slots, top=top))
    return Chart(
        bars=tuple(bars),
        amounts=tuple(Tick(_y(step * number, top), dollars(step * number)) for number in range(ticks + 1)),
        labels=tuple(_labels(start, size, slots)),
        days=size,
        has_unknown=any(bar.whole.unknown for bar in bars),
    )


def together(sums: Iterable[Sums]) -> Sums:
    """Return the sum of sums; tokens that nobody reported stay unknown."""
    whole = _NOTHING
    for each in sums:
        whole = Sums(
            charges=whole.charges + each.charges,
            priced=whole.priced + each.priced,
            conflicting=whole.conflicting + each.conflicting,
            cost_microusd=whole.cost_microusd + each.cost_microusd,
            input_tokens=_more(whole.input_tokens, each.input_tokens),
            output_tokens=_more(whole.output_tokens, each.output_tokens),
            without_input=whole.without_input + each.without_input,
            without_output=whole.without_output + each.without_output,
        )
    return whole


def _more(one: int | None, other: int | None) -> int | None:
    return (one or 0) + (other or 0) if one is not None or other is not None else None


def _cost(days: Iterable[DaySums]) -> int:
    return sum(each.first.cost_microusd + each.repeated.cost_microusd for each in days)


def _step(most: int) -> int:
    """Return the smallest 1, 2 or 5 with zeros of which at most `_TICKS` reach `most`."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power * _TICKS >= most:
                return digit * power
        power *= 10


def _y(amount: int, top: int) -> float:
    return round(_BASE - amount * _PLOT_HEIGHT / top, 1)


def _bar(days: Sequence[DaySums], span: tuple[int, int], *, place: float, slot: float, top: int) -> Bar:
    first, repeated = together(each.first for each in days), together(each.repeated for each in days)
    width = round(min(slot * _FILLED, _WIDEST), 1)
    middle = round(_LEFT + _PLOT_WIDTH * place, 1)
    heights = [_height(each.cost_microusd, top) for each in (first, repeated)]
    first_y = round(_BASE - heights[0], 1)
    repeated_y = round(first_y - heights[1], 1)
    dates = [date_of(day) for day in span]
    return Bar(
        dates=dates[0] if span[0] == span[1] else " to ".join(dates),
        first=cost_of(first), repeated=cost_of(repeated), whole=cost_of(together((first, repeated))),
        x=round(middle - width / 2, 1), width=width,
        first_y=first_y, first_height=heights[0], repeated_y=repeated_y, repeated_height=heights[1],
        mark_y=round(repeated_y - 6, 1), middle=middle,
    )  # fmt: skip


def _height(amount: int, top: int) -> float:
    return round(max(amount * _PLOT_HEIGHT / top, _LEAST), 1) if amount else 0.0


def _labels(start: int, size: int, slots: int) -> Iterable[Tick]:
    slot = _PLOT_WIDTH / slots
    every = -(-slots // _LABELS)
    has_years = slots * size > _YEAR
    for index in range((slots - 1) % every, slots, every):
        yield Tick(round(_LEFT + slot * (index + 0.5), 1), short_date(start + index * size, year=has_years))
