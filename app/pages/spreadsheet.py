"""CSV (RFC 4180) that a spreadsheet reads as values and never as formulas. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Final

Value = str | int | None
"""None is an empty cell: not known, and never 0."""

_FORMULA: Final = re.compile(r"[\s\"'\0\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n\0]")
"""What a spreadsheet may run: also after spaces or quotes, and in full width."""


def cell(value: Value) -> Value:
    """Return a value as it may stand in a cell: text that could be a formula behind an apostrophe."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> bytes:
    """Write a table in UTF-8, its first line the names of the columns."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue().encode()
