"""A QR code as the numbers of an SVG picture, which a template draws without any style or address of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import segno

_QUIET: Final = 4
"""Modules of white around the code, as the standard asks for."""


@dataclass(frozen=True, slots=True)
class QrCode:
    """`side` is the width and height of the picture in modules; `path` draws the dark ones."""

    side: int
    path: str


def qr_code_of(text: str) -> QrCode:
    """Return the code that says `text`, with the error correction that survives a smudge."""
    rows = segno.make(text, error="m", micro=False).matrix
    runs = [run for y, row in enumerate(rows) for run in _runs(bytes(row), y=y + _QUIET)]
    return QrCode(side=len(rows) + 2 * _QUIET, path="".join(runs))


def _runs(row: bytes, *, y: int) -> list[str]:
    """Draw the dark modules of one row, each run of them as one rectangle."""
    found, start = [], None
    for x, is_dark in enumerate([*row, 0]):
        if is_dark and start is None:
            start = x
        elif not is_dark and start is not None:
            found.append(f"M{start + _QUIET} {y}h{x - start}v1h-{x - start}z")
            start = None
    return found
