"""JSON text in and out: the one strict loader and the one canonical form.

`loads_strict` gives the same answer whatever database or server stands behind it; `canonical_bytes`
gives the same bytes in a client and in the server, so that a digest means the same on both sides.

Rules of the loader: UTF-8 without a byte order mark, one object at the top, no key twice, no NaN or
Infinity, integers within ±(2^53-1), at most 32 levels, 2,000 keys an object and 10,000 values, no NUL
and no lone surrogate in any string. Numbers are kept by value: ``30.0`` loads as ``30``.

Source: security.md 3.6, rows J05 to J11.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from continuity import limits
from continuity.errors import MalformedError

# A string (possessive, so that an unterminated one is crossed once) or one bracket.
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_UNSAFE: Final = re.compile("[\x00\ud800-\udfff]")
_INTEGER_CHARS: Final = 17


def loads_strict(body: bytes) -> dict[str, Any]:
    """Parse one JSON object by the rules at the head of this module.

    Args:
        body: The raw bytes of a request or reply; its size has been checked by the caller.

    Returns:
        The object, numbers normalised by value.

    Raises:
        MalformedError: The text breaks a rule. The message holds no part of the text.
    """
    try:
        text = body.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise MalformedError("The body must be UTF-8.") from None
    if text.startswith("\ufeff"):
        raise MalformedError("The body must be UTF-8 without a byte order mark.")
    _check_depth(body)
    value = _parse(text)
    if not isinstance(value, dict):
        raise MalformedError("The body must be a JSON object.")
    if "\\u" in text or _may_exceed_values(text):
        check_value(value)
    return value


def canonical_bytes(value: Any) -> bytes:
    """Write `value` in the canonical form: keys sorted, no spaces, UTF-8, numbers by value.

    Args:
        value: Anything JSON can say: objects with string keys, lists, strings, numbers, booleans, None.

    Returns:
        UTF-8 bytes; equal values give equal bytes, and ``canonical_bytes(loads_strict(b)) == b`` for
        bytes that came from here.

    Raises:
        MalformedError: `value` holds NaN, Infinity, an integer outside ±(2^53-1), a non-string key, a
            string that is not text, or something JSON has no word for.
    """
    try:
        text = _ENCODER.encode(_by_value(value))
        body = text.encode("utf-8", "strict")
    except (TypeError, ValueError, RecursionError):
        raise MalformedError("The value cannot be written as JSON.") from None
    if "\\u0000" in text:
        # NUL, or a backslash and the same letters, which is fine.
        check_value(value)
    return body


def digest(value: Any) -> bytes:
    """Return the SHA-256 (32 bytes) of `canonical_bytes(value)`."""
    return hashlib.sha256(canonical_bytes(value)).digest()


def check_value(value: Any) -> None:
    """Refuse strings that are not text, and more levels, keys or values than the loader allows.

    Raises:
        MalformedError: The value breaks a rule. The message holds no part of it.
    """
    remaining = limits.JSON_VALUES
    stack: list[tuple[Any, int]] = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        remaining -= 1
        if remaining < 0:
            raise MalformedError(f"The JSON holds more than {limits.JSON_VALUES} values.")
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, Mapping):
            _check_level(depth)
            if len(item) > limits.JSON_KEYS_PER_OBJECT:
                raise MalformedError(f"An object has more than {limits.JSON_KEYS_PER_OBJECT} keys.")
            for key, child in item.items():
                _check_text(key)
                stack.append((child, depth + 1))
        elif isinstance(item, Sequence):
            _check_level(depth)
            stack.extend((child, depth + 1) for child in item)


def _check_level(depth: int) -> None:
    if depth > limits.JSON_DEPTH:
        raise MalformedError(f"The JSON is nested deeper than {limits.JSON_DEPTH} levels.")


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise MalformedError("A key of an object must be a string.")
    if _UNSAFE.search(text):
        raise MalformedError("A string holds NUL or a lone surrogate.")


def _check_depth(body: bytes) -> None:
    """Refuse deep nesting by a linear scan, before any parser sees the text."""
    if body.count(b"[") + body.count(b"{") <= limits.JSON_DEPTH:
        return
    depth = opened = 0
    for match in _STRUCTURE.finditer(body):
        first = match[0][0]
        if first in b"[{":
            depth += 1
            opened += 1
            _check_level(depth)
            if opened > limits.JSON_VALUES:
                raise MalformedError(f"The JSON holds more than {limits.JSON_VALUES} values.")
        elif first in b"]}":
            depth -= 1


def _may_exceed_values(text: str) -> bool:
    return text.count(",") + text.count("[") + text.count("{") >= limits.JSON_VALUES


def _parse(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise MalformedError(f"The body is not JSON: it breaks at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise MalformedError(f"The JSON is nested deeper than {limits.JSON_DEPTH} levels.") from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > limits.JSON_KEYS_PER_OBJECT:
        raise MalformedError(f"An object has more than {limits.JSON_KEYS_PER_OBJECT} keys.")
    result = dict(pairs)
    if len(result) != len(pairs):
        raise MalformedError("An object has the same key twice.")
    return result


def _constant(_text: str) -> Any:
    raise MalformedError("NaN and Infinity are not JSON numbers.")


def _float(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise MalformedError("A number is too large.")
    return _number_by_value(number)


def _int(text: str) -> int:
    if len(text) <= _INTEGER_CHARS:
        number = int(text)
        if -limits.INTEGER_MAX <= number <= limits.INTEGER_MAX:
            return number
    raise MalformedError("An integer is outside ±(2^53-1).")


def _number_by_value(number: float) -> int | float:
    if number.is_integer() and -limits.INTEGER_MAX <= number <= limits.INTEGER_MAX:
        return int(number)
    return number


def _by_value(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        return _number_by_value(value)
    if isinstance(value, int):
        # Beyond it an integer and the equal float would have different bytes, and the loader refuses it.
        if not -limits.INTEGER_MAX <= value <= limits.INTEGER_MAX:
            raise ValueError
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError
        return {key: _by_value(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_by_value(child) for child in value]
    return value


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float, parse_int=_int
)
