"""Where to go on after signing in: a few named places, never an address that came with a request.

``next`` holds a code: ``account``, ``workflow.`` and a workflow's id, or ``resume-work.`` and the filters that the page
had, as far as each is known and of its known form. Whatever is none of these leads to the first page, and no code is
made from what a place is called in the address bar.

Source: security.md W12.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from flask import current_app, request, url_for

from app.paths import EVIDENCE_ID, WORKFLOW_ID

HOME: Final = "home.index"
NEXT: Final = "next"


@dataclass(frozen=True, slots=True)
class _Place:
    """A page with at most one id in its path, and the filters in its query that are kept."""

    endpoint: str
    parameter: str | None = None
    pattern: re.Pattern[str] = re.compile("")
    filters: Mapping[str, re.Pattern[str]] = field(default_factory=dict)


_WORD: Final = re.compile(r"[a-z_]{1,32}")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ACTION: Final = re.compile(r"[a-z_.]{1,64}")
_ACTOR: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_CODE_CHARS: Final = 1_024
_FILTERS_MOST: Final = 8
_PLACES: Final = {
    "account": _Place("account.index"),
    "resume-work": _Place("resume_work.index", filters={"state": _WORD, "workspace": _NAME, "q": _NAME}),
    "workflow": _Place("resume_work.show", "workflow_id", re.compile(WORKFLOW_ID)),
    "activity": _Place(
        "activity.index",
        filters={
            "days": re.compile(r"[1-9][0-9]{0,3}"), "from": _DAY, "to": _DAY, "scope": _NAME,
            "demo": re.compile("no"), "outcome": _WORD, "q": _ID,
        },
    ),
    "audit": _Place(
        "audit_pages.index",
        filters={"action": _ACTION, "actor": _ACTOR, "object": _ID, "result": _WORD, "from": _DAY, "to": _DAY},
    ),
    "evidence": _Place("evidence_pages.index", filters={"workspace": _NAME}),
    "evidence-records": _Place(
        "evidence_pages.records",
        filters={"run": _ID, "producer": _ID, "kind": _ID, "workspace": _NAME, "from": _DAY, "to": _DAY},
    ),
    "run": _Place("evidence_pages.show", "evidence_id", re.compile(EVIDENCE_ID)),
    "audit-check": _Place("audit_pages.check"),
    "observed": _Place("activity.show", "workflow_id", _ID),
    "people": _Place("settings.people"),
    "person": _Place("settings.people_show", "user_id", re.compile("usr_[0-9a-f]{20}")),
    "sessions": _Place("settings.sessions"),
    "credentials": _Place("settings.credentials"),
    "credential": _Place("settings.credentials_show", "credential_id", re.compile("crd_[0-9a-f]{20}")),
    "vault": _Place("settings.vault"),
    "about": _Place("settings.about"),
}  # fmt: skip

_FILES: Final = {"audit_pages.entries_csv": "audit_pages.index", "audit_pages.entries_json": "audit_pages.index",
                 "audit_pages.check_live": "audit_pages.check", "audit_pages.check_begin": "audit_pages.check",
                 "audit_pages.checkpoint": "audit_pages.check"}  # fmt: skip
"""Files, fragments and forms that lead back to the page that they stand on."""


def code_here() -> str | None:
    """Return the code of the page that the current request is about; None for the first page and for others."""
    endpoint, arguments = request.endpoint or "", request.view_args or {}
    endpoint = _FILES.get(endpoint, endpoint)
    area = endpoint.partition(".")[0]
    found = None
    for name, place in _PLACES.items():
        if place.parameter in arguments and place.endpoint.startswith(f"{area}."):
            # A control or a fragment of a thing leads back to the thing.
            return f"{name}.{arguments[place.parameter]}"
        if place.endpoint == endpoint and place.parameter is None:
            kept = urlencode(_known(place, request.args.items()))
            found = f"{name}.{kept}" if kept else name
    return found


def address(code: str | None) -> str:
    """Return the path for a code that came with a request."""
    name, _, value = (code or "")[:_CODE_CHARS].partition(".")
    place = _PLACES.get(name)
    if place is None or place.endpoint not in current_app.view_functions:
        return url_for(HOME)
    arguments = _arguments(place, value)
    return url_for(HOME) if arguments is None else url_for(place.endpoint, **arguments)


def given() -> str | None:
    """Return the code that the current request brings, if it is one."""
    code = request.args.get(NEXT)
    return code if code is not None and address(code) != url_for(HOME) else None


def _arguments(place: _Place, value: str) -> dict[str, Any] | None:
    """Return what the address of a place is built from, None where the value is not wholly of a known form."""
    if place.parameter is not None:
        return {place.parameter: value} if place.pattern.fullmatch(value) else None
    if not value:
        return {}
    try:
        pairs = parse_qsl(value, keep_blank_values=True, strict_parsing=True, max_num_fields=_FILTERS_MOST)
    except ValueError:
        return None
    known = _known(place, pairs)
    return known if len(known) == len(pairs) else None


def _known(place: _Place, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in pairs if name in place.filters and place.filters[name].fullmatch(value)}
