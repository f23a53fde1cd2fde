"""The one way to read the query of a request: known names, each once, text only."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

from flask import request

from continuity.errors import MalformedError

QUERY_BYTES: Final = 4_096
"""Longest query that is looked at."""
_FIELDS: Final = 32
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f]")


def read_query(*names: str) -> dict[str, str]:
    """Return the parameters of the current request's query, empty values left out.

    Raises:
        MalformedError: A name is not among `names` or comes twice, or a value is not plain text.
    """
    query = request.environ.get("QUERY_STRING", "")
    if not query:
        return {}
    if len(query) > QUERY_BYTES:
        raise MalformedError(f"The query must be at most {QUERY_BYTES} bytes.")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_FIELDS)
    except ValueError:
        raise MalformedError("The query must be name=value pairs in UTF-8.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in names:
            raise MalformedError(f"The query may hold only: {', '.join(names) or 'nothing'}.")
        if name in found:
            raise MalformedError(f"{name}: must be given once.")
        if _UNSAFE.search(value):
            raise MalformedError(f"{name}: must be plain text.")
        found[name] = value
    return {name: value for name, value in found.items() if value}
