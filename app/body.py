"""The one way to read the body of a request: strict JSON or a form, within the limit of its route.

What it refuses, and in this order: a body that is encoded (415), one that is not exactly ``application/json``
(415), one without ``Content-Length`` (411), one that is too large (413), one that is shorter than it said
(400), and text that breaks a rule of `continuity.jsontext` (400). Nothing is parsed before its size is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from flask import g, request

from continuity import limits
from continuity.errors import LengthRequiredError, MalformedError, TooLargeError, UnsupportedMediaError
from continuity.jsontext import loads_strict

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

DEFINITION_BODY_BYTES: Final = limits.DEFINITION_BYTES + limits.ENVELOPE_BYTES
"""Largest body of a request that brings definitions."""
RECEIPT_BODY_BYTES: Final = limits.RECEIPT_BYTES + limits.ENVELOPE_BYTES
"""Largest body of a request that brings a receipt."""
SMALL_BODY_BYTES: Final = 16 * 1024
"""Largest body of every other request: names, ids and a reason of 1,000 characters, each up to 6 bytes escaped."""
FORM_BODY_BYTES: Final = 3 * limits.RECEIPT_BYTES + limits.ENVELOPE_BYTES
"""Largest form: a receipt in it, every byte written as three."""
_JSON_TYPES: Final = frozenset({
    "application/json", "application/json;charset=utf-8", "application/json; charset=utf-8",
})  # fmt: skip
FORM_TYPE: Final = "application/x-www-form-urlencoded"
_LENGTH_DIGITS: Final = 12
_FIELDS: Final = 50
_FORM: Final = "form_fields"


def read_json(*, limit_bytes: int) -> dict[str, Any]:
    """Return the JSON object that the current request brings.

    Raises:
        UnsupportedMediaError: It is encoded or not ``application/json``.
        LengthRequiredError: It does not say how long it is.
        TooLargeError: It says it is longer than `limit_bytes`. Nothing of it was parsed.
        MalformedError: It is not what it says, or breaks a rule of the loader.
    """
    return json_of(request.environ, limit_bytes=limit_bytes)


def json_of(environ: WSGIEnvironment, *, limit_bytes: int) -> dict[str, Any]:
    """Return the JSON object that a request brings, whether it is Flask's current one or not. Raises as `read_json`."""
    return loads_strict(_json_text(environ, limit_bytes=limit_bytes))


def read_json_text(*, limit_bytes: int) -> bytes:
    """Return the body of the current request as it came, for a reader that must see how numbers are written.

    Raises:
        ContinuityError: As `read_json`, the rules of the loader aside.
    """
    return _json_text(request.environ, limit_bytes=limit_bytes)


def _json_text(environ: WSGIEnvironment, *, limit_bytes: int) -> bytes:
    if environ.get("HTTP_CONTENT_ENCODING"):
        raise UnsupportedMediaError("The body must not be encoded: send no Content-Encoding.")
    if environ.get("CONTENT_TYPE", "").lower() not in _JSON_TYPES:
        raise UnsupportedMediaError("The body must be application/json.")
    return _read_body(environ, limit_bytes=limit_bytes)


def read_form(*, limit_bytes: int = FORM_BODY_BYTES) -> dict[str, str]:
    """Return the fields of the HTML form that the current request brings, each once; lines end in LF.

    Read once and kept, as both the proof of the sender and the view look at it.

    Raises:
        UnsupportedMediaError: It is not a form as browsers send it without files.
        TooLargeError: It is longer than `limit_bytes`. Nothing of it was parsed.
        MalformedError: It is not UTF-8, or a field comes twice.
    """
    if _FORM not in g:
        setattr(g, _FORM, _parse_form(limit_bytes))
    fields: dict[str, str] = getattr(g, _FORM)
    return fields


def _parse_form(limit_bytes: int) -> dict[str, str]:
    if request.mimetype != FORM_TYPE or request.environ.get("HTTP_CONTENT_ENCODING"):
        raise UnsupportedMediaError(f"The body must be {FORM_TYPE}.")
    body = _read_body(request.environ, limit_bytes=limit_bytes)
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=_FIELDS
        )
    except ValueError:
        raise MalformedError("The form cannot be read.") from None
    fields = {name: value.replace("\r\n", "\n") for name, value in pairs}
    if len(fields) != len(pairs):
        raise MalformedError("A field of the form comes twice.")
    return fields


def _read_body(environ: WSGIEnvironment, *, limit_bytes: int) -> bytes:
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
    return body
