"""Geometry of the picture of an operation's attempts. Pure: times in, coordinates out.

The axis is true to scale where something happens; a long time in which nothing did is cut out and marked, so that
attempts of seconds, hours apart, are both seen. Labels count from the first attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.pages.wording import span

WIDTH: Final = 720
_LEFT: Final = 128
_RIGHT: Final = 112
_TOP: Final = 30
_ROW: Final = 30
_BAR: Final = 14
_PLOT: Final = WIDTH - _LEFT - _RIGHT
_CUT: Final = 34.0
_CUTS_SHARE: Final = 0.4
_LEAST_BAR: Final = 6.0
_LEAST_CUT_S: Final = 30.0
_LEAST_SPAN_S: Final = 1.0
_LABEL: Final = 62.0
_GAP: Final = 8.0
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400, 604_800)
"""Seconds between ticks that people read easily."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt to draw. Times in Unix seconds.

    `lease_until` is drawn as an outline, for an attempt without a receipt. `is_open`: no receipt ended it.
    `late` are the times at which late receipts of it came. `words` stand beside the bar.
    """

    label: str
    words: str
    tone: str
    started: float
    ended: float
    lease_until: float | None = None
    is_open: bool = False
    late: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A bar in coordinates of the picture."""

    label: str
    words: str
    tone: str
    is_open: bool
    y: float
    text_y: float
    x: float
    width: float
    lease_width: float | None
    words_x: float
    late: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the axis; without text where there is no room for it."""

    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that the template writes down."""

    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    cuts: tuple[float, ...]
    height: int
    width: int = WIDTH
    bar: int = _BAR
    axis_y: int = _TOP - 8


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of time that is drawn to scale from `x` on."""

    start: float
    end: float
    x: float
    per_second: float

    def place(self, at: float) -> float:
        return self.x + (min(max(at, self.start), self.end) - self.start) * self.per_second


def draw(bars: Sequence[Bar]) -> Timeline | None:
    """Return the picture of `bars`, oldest first; None without any."""
    if not bars:
        return None
    pieces = _pieces(bars)
    return Timeline(
        rows=tuple(_row(bar, index, pieces) for index, bar in enumerate(bars)),
        ticks=tuple(_ticks(pieces)),
        cuts=tuple(_short(piece.x - _cut(len(pieces) - 1) / 2) for piece in pieces[1:]),
        height=_TOP + _ROW * len(bars) + 6,
    )


def _stretches(bars: Iterable[Bar]) -> list[tuple[float, float]]:
    """Return when something happened, merged, in order."""
    found: list[tuple[float, float]] = []
    for bar in bars:
        found.append((bar.started, max(bar.ended, bar.lease_until or bar.ended, bar.started)))
        found += [(at, at) for at in bar.late]
    found.sort()
    merged = [found[0]]
    for start, end in found[1:]:
        if start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _pieces(bars: Sequence[Bar]) -> list[_Piece]:
    stretches = _stretches(bars)
    busy = sum(end - start for start, end in stretches)
    longest_gap = max(_LEAST_CUT_S, busy)
    kept = [stretches[0]]
    for start, end in stretches[1:]:
        if start - kept[-1][1] > longest_gap:
            kept.append((start, end))
        else:
            kept[-1] = (kept[-1][0], end)
    # An instant has a length of its own, or several of them would divide by nothing.
    lengths = [max(end - start, _LEAST_SPAN_S) for start, end in kept]
    cut = _cut(len(kept) - 1)
    per_second = (_PLOT - cut * (len(kept) - 1)) / sum(lengths)
    pieces, x = [], float(_LEFT)
    for (start, _), length in zip(kept, lengths, strict=True):
        pieces.append(_Piece(start, start + length, x, per_second))
        x += length * per_second + cut
    return pieces


def _cut(count: int) -> float:
    return min(_CUT, _PLOT * _CUTS_SHARE / count) if count else 0.0


def _place(pieces: Sequence[_Piece], at: float) -> float:
    chosen = pieces[0]
    for piece in pieces:
        if piece.start <= at:
            chosen = piece
    return chosen.place(at)


def _row(bar: Bar, index: int, pieces: Sequence[_Piece]) -> Row:
    x = _place(pieces, bar.started)
    width = max(_place(pieces, bar.ended) - x, _LEAST_BAR)
    lease = None if bar.lease_until is None else max(_place(pieces, bar.lease_until) - x, width)
    late = tuple(_short(_place(pieces, at)) for at in bar.late)
    right = max(x + max(width, lease or 0), *(place + _BAR / 2 for place in late), x)
    y = _TOP + _ROW * index + (_ROW - _BAR) / 2
    return Row(
        label=bar.label, words=bar.words, tone=bar.tone, is_open=bar.is_open, y=y, text_y=y + _BAR - 3,
        x=_short(x), width=_short(width), lease_width=None if lease is None else _short(lease),
        words_x=_short(right + _GAP), late=late,
    )  # fmt: skip


def _ticks(pieces: Sequence[_Piece]) -> Iterable[Tick]:
    """Yield the lines of the axis. The start of a piece has its label before all others."""
    origin, free_from = pieces[0].start, 0.0
    starts = [*(piece.x for piece in pieces[1:]), float(WIDTH)]
    for piece, next_start in zip(pieces, starts, strict=True):
        step = _step(piece.per_second)
        at = piece.start
        while at <= piece.end:
            x, since = piece.place(at), at - piece.start
            has_room = x >= free_from and (since == 0 or x + _LABEL <= next_start)
            text = span(at - origin) if since == 0 else f"+{span(since)}"
            yield Tick(_short(x), text if has_room else "")
            free_from = x + _LABEL if has_room else free_from
            at += step


def _step(per_second: float) -> float:
    """Return the shortest step that leaves room for the labels; whole weeks beyond the list."""
    for step in _STEPS:
        if step * per_second >= _LABEL:
            return float(step)
    week = _STEPS[-1]
    return float(week * -(-_LABEL // (week * per_second)))


def _short(value: float) -> float:
    return round(value, 1)
