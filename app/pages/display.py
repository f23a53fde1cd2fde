"""What templates can do beyond HTML: icons, moments in UTC, and text that hides nothing."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from flask import Flask
from heroicons.jinja import heroicon_outline

from app.replies import json_bytes
from continuity.members import SHAPELESS

_ICONS: Final = 128
_LAST_SECOND: Final = 253_402_300_799
"""Of the year 9999. A host may report any number as a time."""
_SHOWN_AS_IS: Final = frozenset("\n\t")
HTMX_CONFIG: Final = json_bytes(
    {
        "allowEval": False,
        "allowNestedOobSwaps": False,
        "allowScriptTags": False,
        "globalViewTransitions": False,
        "historyCacheSize": 0,
        "historyEnabled": True,
        "historyRestoreAsHxRequest": False,
        "includeIndicatorStyles": False,
        "inlineScriptNonce": "",
        "refreshOnHistoryMiss": True,
        # Invalid and stale answers bring the form again, others a notice for #trouble (problems.py): all are shown.
        "responseHandling": [
            {"code": "204", "swap": False},
            {"code": "[23]..|409|422", "swap": True},
            {"code": "[45]..", "error": True, "swap": True},
        ],
        "selfRequestsOnly": True,
        "timeout": 15_000,
        "withCredentials": False,
    }
).decode()
"""What htmx may do, for a ``<meta>`` (security.md W06)."""


def install(app: Flask) -> None:
    """Give the templates of `app` their filters and globals."""
    app.jinja_env.filters.update(visible=visible, utc_iso=utc_iso, utc_text=utc_text)
    app.jinja_env.globals.update(heroicon=heroicon, htmx_config=HTMX_CONFIG)
    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True


def visible(value: object) -> str:
    """Write `value` with every character seen that would hide, turn round or forge text, as its number in braces.

    Lines and tabs stay. Escaping for HTML is Jinja's, after this.
    """
    text = str(value)
    if text.isprintable() and not SHAPELESS.search(text):
        return text
    return "".join(_seen(character) for character in text)


def utc_iso(seconds: float) -> str:
    """Write Unix seconds for ``<time datetime>``: ``2026-11-30T10:36:36Z``."""
    return f"{_moment(seconds):%Y-%m-%dT%H:%M:%SZ}"


def utc_text(seconds: float) -> str:
    """Write Unix seconds for people: ``2026-11-30 10:36:36 UTC``."""
    return f"{_moment(seconds):%Y-%m-%d %H:%M:%S} UTC"


@lru_cache(maxsize=_ICONS)
def heroicon(name: str, classes: str) -> Any:
    """Return an icon as inline SVG that is not read out. Names and classes are written in templates."""
    return heroicon_outline(name, size=None, aria_hidden="true", focusable="false", **{"class": classes})


def _seen(character: str) -> str:
    if character in _SHOWN_AS_IS:
        return character
    # A space of another width is a space; what else is not printable hides, or has no shape.
    is_shown = character.isprintable() or unicodedata.category(character) == "Zs"
    return character if is_shown and not SHAPELESS.match(character) else _escape(character)


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):04X}}}"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0), _LAST_SECOND), UTC)
