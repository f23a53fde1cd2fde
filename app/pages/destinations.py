"""Where to go on after signing in: a few named places, never an address that came with a request.

``next`` holds a code: ``account``, or ``workflow.`` and a workflow's id. Whatever is none of these leads to the
first page, and no code is made from what a place is called in the address bar.

Source: security.md W12.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from flask import current_app, request, url_for

from app.paths import WORKFLOW_ID

HOME: Final = "home.index"
NEXT: Final = "next"


@dataclass(frozen=True, slots=True)
class _Place:
    """A page with at most one id in its path."""

    endpoint: str
    parameter: str | None = None
    pattern: re.Pattern[str] = re.compile("")


_PLACES: Final = {
    "account": _Place("account.index"),
    "resume-work": _Place("resume_work.index"),
    "workflow": _Place("resume_work.show", "workflow_id", re.compile(WORKFLOW_ID)),
}


def code_here() -> str | None:
    """Return the code of the page that the current request is about; None for the first page and for others."""
    endpoint, arguments = request.endpoint or "", request.view_args or {}
    area = endpoint.partition(".")[0]
    found = None
    for name, place in _PLACES.items():
        if place.parameter in arguments and place.endpoint.startswith(f"{area}."):
            # A control or a fragment of a thing leads back to the thing.
            return f"{name}.{arguments[place.parameter]}"
        if place.endpoint == endpoint and place.parameter is None:
            found = name
    return found


def address(code: str | None) -> str:
    """Return the path for a code that came with a request."""
    name, _, value = (code or "").partition(".")
    place = _PLACES.get(name)
    if place is None or place.endpoint not in current_app.view_functions or not place.pattern.fullmatch(value):
        return url_for(HOME)
    arguments: dict[str, Any] = {place.parameter: value} if place.parameter else {}
    return url_for(place.endpoint, **arguments)


def given() -> str | None:
    """Return the code that the current request brings, if it is one."""
    code = request.args.get(NEXT)
    return code if code is not None and address(code) != url_for(HOME) else None
