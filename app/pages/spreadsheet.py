"""CSV (RFC 4180) that a spreadsheet reads as values and never as formulas. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Final

Value = str | int | None
"""None is an empty cell: not known, and never 0."""

_BEFORE: Final = r"[\s\"'\0\u200b-\u200f\u2060\ufeff]*"
_SIGN: Final = r"[=+\-@\u2212\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20]"
_FORMULA: Final = re.compile(rf"{_BEFORE}{_SIGN}|[\t\r\n\0]")
"""What a spreadsheet may run: also after spaces, quotes and what has no width, and in other widths."""
_INNER: Final = re.compile(rf"([;|\t\r\n]{_BEFORE})(?={_SIGN})")
"""The same where a spreadsheet begins a cell that splits at something else than commas, as many do by country."""


def cell(value: Value) -> Value:
    """Return a value as it may stand in a cell: whatever could be a formula behind an apostrophe."""
    if not isinstance(value, str):
        return value
    text = _INNER.sub(r"\1'", value)
    return f"'{text}" if _FORMULA.match(text) else text


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> bytes:
    """Write a table in UTF-8, its first line the names of the columns."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue().encode()
