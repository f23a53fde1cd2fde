"""JSON as people read it: indented, with nothing hidden in it, and still JSON when it is copied."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from app.pages.wording import size
from continuity.jsontext import canonical_bytes

_LINES: Final = 24
_CHARS: Final = 1_600
_BMP: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class JSONView:
    """`text` is all of it. A long one has a `preview`, and the whole is folded away."""

    text: str
    size: str
    lines: int
    preview: str | None = None


def json_view(value: Any) -> JSONView:
    """Lay out a JSON value."""
    text = _visible(json.dumps(value, ensure_ascii=False, indent=2))
    lines = text.split("\n")
    preview = None
    if len(lines) > _LINES or len(text) > _CHARS:
        preview = "\n".join(lines[:_LINES])[:_CHARS].rstrip() + "\n…"
    return JSONView(text, size(len(canonical_bytes(value))), len(lines), preview)


def _visible(text: str) -> str:
    r"""Write what hides or turns text round as ``\u`` escapes. Outside of strings JSON has nothing but ASCII."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else _escape(character) for character in text
    )


def _escape(character: str) -> str:
    point = ord(character)
    if point <= _BMP:
        return f"\\u{point:04x}"
    point -= 0x10000
    return f"\\u{0xD800 + (point >> 10):04x}\\u{0xDC00 + (point & 0x3FF):04x}"
