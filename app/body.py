"""The one way to read the body of a request: strict JSON, within the limit of its route.

What it refuses, and in this order: a body that is encoded (415), one that is not exactly ``application/json``
(415), one without ``Content-Length`` (411), one that is too large (413), one that is shorter than it said
(400), and text that breaks a rule of `continuity.jsontext` (400). Nothing is parsed before its size is known.
"""

from __future__ import annotations

from typing import Any, Final

from flask import request

from continuity import limits
from continuity.errors import LengthRequiredError, MalformedError, TooLargeError, UnsupportedMediaError
from continuity.jsontext import loads_strict

DEFINITION_BODY_BYTES: Final = limits.DEFINITION_BYTES + limits.ENVELOPE_BYTES
"""Largest body of a request that brings definitions."""
RECEIPT_BODY_BYTES: Final = limits.RECEIPT_BYTES + limits.ENVELOPE_BYTES
"""Largest body of a request that brings a receipt."""
SMALL_BODY_BYTES: Final = 16 * 1024
"""Largest body of every other request: names, ids and a reason of 1,000 characters, each up to 6 bytes escaped."""
_JSON_TYPES: Final = frozenset({
    "application/json", "application/json;charset=utf-8", "application/json; charset=utf-8",
})  # fmt: skip
_LENGTH_DIGITS: Final = 12


def read_json(*, limit_bytes: int) -> dict[str, Any]:
    """Return the JSON object that the current request brings.

    Raises:
        UnsupportedMediaError: It is encoded or not ``application/json``.
        LengthRequiredError: It does not say how long it is.
        TooLargeError: It says it is longer than `limit_bytes`. Nothing of it was parsed.
        MalformedError: It is not what it says, or breaks a rule of the loader.
    """
    environ = request.environ
    if environ.get("HTTP_CONTENT_ENCODING"):
        raise UnsupportedMediaError("The body must not be encoded: send no Content-Encoding.")
    if environ.get("CONTENT_TYPE", "").lower() not in _JSON_TYPES:
        raise UnsupportedMediaError("The body must be application/json.")
    length = environ.get("CONTENT_LENGTH", "")
    if not length or environ.get("HTTP_TRANSFER_ENCODING"):
        raise LengthRequiredError("The request needs a Content-Length.")
    if not (length.isascii() and length.isdigit()) or len(length) > _LENGTH_DIGITS:
        raise MalformedError("Content-Length must be a whole number.")
    if int(length) > limit_bytes:
        raise TooLargeError(f"The body must be at most {limit_bytes} bytes.")
    body: bytes = environ["wsgi.input"].read(int(length))
    if len(body) != int(length):
        raise MalformedError("The body is shorter than its Content-Length.")
    return loads_strict(body)
