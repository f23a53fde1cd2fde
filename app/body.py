"""The one way to read the body of a request: strict JSON or a form, within the limit of its route.

What it refuses, and in this order: a body that is encoded (415), one that is not exactly ``application/json``
(415), one without ``Content-Length`` (411), one that is too large (413), one that is shorter than it said
(400), and text that breaks a rule of `continuity.jsontext` (400). Nothing is parsed before its size is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl

from flask import current_app, g, request

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
FILE_FORM_TYPE: Final = "multipart/form-data"
UPLOAD_BYTES: Final = DEFINITION_BODY_BYTES
"""Largest form with a file: as large as any request of this server may be."""
_LENGTH_DIGITS: Final = 12
_FIELDS: Final = 50
_View = TypeVar("_View", bound=Callable[..., Any])
_FORM: Final = "form_fields"
_FILES: Final = "form_files"
_TAKES_FILE: Final = "takes_file"


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


def takes_file(view: _View) -> _View:
    """Mark a view whose form may bring a file; for every other one a form with files is no form."""
    setattr(view, _TAKES_FILE, True)
    return view


def brings_form() -> bool:
    """Say whether the current request is a form that its view takes."""
    return request.mimetype == FORM_TYPE or _brings_file()


def read_file(name: str) -> bytes | None:
    """Return the file that a field of the current form brings; None when nobody chose one. Raises as `read_form`."""
    read_form()
    found: bytes | None = g.get(_FILES, {}).get(name)
    return found


def _brings_file() -> bool:
    view = current_app.view_functions.get(request.endpoint or "")
    return request.mimetype == FILE_FORM_TYPE and getattr(view, _TAKES_FILE, False)


def _parse_file_form() -> dict[str, str]:
    """Read a form with files, through Flask's parser and within the bounds of the application's configuration."""
    if request.environ.get("HTTP_CONTENT_ENCODING"):
        raise UnsupportedMediaError("The body must not be encoded.")
    _check_length(request.environ, limit_bytes=UPLOAD_BYTES)
    fields, files = request.form.to_dict(flat=False), request.files.to_dict(flat=False)
    if any(len(values) != 1 for values in (*fields.values(), *files.values())) or fields.keys() & files.keys():
        raise MalformedError("A field of the form comes twice.")
    # A browser sends a file without a name where none was chosen.
    setattr(g, _FILES, {name: file.read() for name, [file] in files.items() if file.filename})
    return {name: value.replace("\r\n", "\n") for name, [value] in fields.items()}


def _parse_form(limit_bytes: int) -> dict[str, str]:
    if _brings_file():
        return _parse_file_form()
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
    length = _check_length(environ, limit_bytes=limit_bytes)
    body: bytes = environ["wsgi.input"].read(length)
    if len(body) != length:
        raise MalformedError("The body is shorter than its Content-Length.")
    return body


def _check_length(environ: WSGIEnvironment, *, limit_bytes: int) -> int:
    length = environ.get("CONTENT_LENGTH", "")
    if not length or environ.get("HTTP_TRANSFER_ENCODING"):
        raise LengthRequiredError("The request needs a Content-Length.")
    if not (length.isascii() and length.isdigit()) or len(length) > _LENGTH_DIGITS:
        raise MalformedError("Content-Length must be a whole number.")
    if int(length) > limit_bytes:
        raise TooLargeError(f"The body must be at most {limit_bytes} bytes.")
    return int(length)
