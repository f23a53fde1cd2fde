"""Members of bodies and queries that several requests have: whole numbers, times, identifiers, each of them optional.

Pure, as everything in the core. What reads a member raises `MalformedError`, which names it and what it must be. What
counts as nothing in a text (`is_blank`) is said here once, for requests and for the forms of pages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from continuity import limits
from continuity.errors import MalformedError
from continuity.wire import IDENTIFIER, Fields

TIME_MAX_S: Final = 253_402_300_799
"""The last second of the year 9999."""
SHAPELESS: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks by their category that show as nothing or as a gap."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MOMENT: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")


def is_blank(text: str) -> bool:
    """Say whether nobody would see anything of a text: spaces, control and format characters, and what has no shape."""
    return all(_is_unseen(character) for character in text)


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character)[0] in "CZ" or SHAPELESS.match(character) is not None


def check_names(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse a query with any other parameter than the known ones."""
    if given.keys() - set(known):
        raise MalformedError(f"The query may hold only: {', '.join(known)}.")


def whole_in(given: Mapping[str, str], name: str, *, default: int, least: int, most: int) -> int:
    """Return a whole number of a query, `default` where it is absent."""
    found = given.get(name)
    if found is None:
        return default
    if not _NUMBER.fullmatch(found) or not least <= int(found) <= most:
        raise MalformedError(f"{name} must be a whole number from {least} to {most}.")
    return int(found)


def moment_in(given: Mapping[str, str], name: str) -> float | None:
    """Return a time of a query in Unix seconds, None where it is absent."""
    found = given.get(name)
    if found is None:
        return None
    if not _MOMENT.fullmatch(found) or float(found) > TIME_MAX_S:
        raise MalformedError(f"{name} must be Unix seconds, with six digits behind the point at most.")
    return float(found)


def identifier_in(given: Mapping[str, str], name: str) -> str | None:
    """Return an identifier of a query, None where it is absent."""
    found = given.get(name)
    if found is not None and not IDENTIFIER.fullmatch(found):
        raise MalformedError(f"{name} must be 1 to {limits.IDENTIFIER_CHARS} characters of A-Z a-z 0-9 _ -.")
    return found


def count(fields: Fields, name: str, *, default: int, least: int, most: int) -> int:
    """Return a whole number of a body, `default` where it is absent or null."""
    found = fields.optional_count(name)
    if found is None:
        return default
    if not least <= found <= most:
        raise fields.fail(name, f"a whole number from {least} to {most}")
    return found


def identifier(fields: Fields, name: str) -> str | None:
    """Return an identifier of a body, None where it is absent or null."""
    return None if fields.take(name) is None else fields.identifier(name)


def text(fields: Fields, name: str) -> str | None:
    """Return a string of a body, None where it is absent or null."""
    value = fields.take(name)
    if value is not None and not isinstance(value, str):
        raise fields.fail(name, "a string")
    return value


def seconds(fields: Fields, name: str) -> float | None:
    """Return a time of a body in Unix seconds, None where it is absent or null."""
    if fields.take(name) is None:
        return None
    return fields.seconds(
        name, default=0, must="Unix seconds, from 0 to the end of the year 9999",
        holds=lambda seconds: 0 <= seconds <= TIME_MAX_S,
    )  # fmt: skip
