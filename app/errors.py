"""The one table from error to HTTP status, and the one renderer of errors as JSON.

Views do not catch the errors of `continuity`, and `continuity` knows no status codes. Whatever is not in the
table is a defect: it is logged with the request id and answered with a 500 that tells nothing else.
"""

from __future__ import annotations

from typing import Final

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from app import logs
from app.replies import json_bytes, json_response, request_id
from continuity.errors import (
    CaptureInUseError,
    ConflictError,
    ContinuityError,
    DecryptionError,
    ForbiddenError,
    IntegrityError,
    KeySourceError,
    LengthRequiredError,
    MalformedError,
    NotFoundError,
    SealedError,
    ThrottledError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedMediaError,
)

ERROR_FORMAT: Final = "atmem-api-error-v1"

STATUS: Final[dict[type[ContinuityError], int]] = {
    MalformedError: 400,
    UnauthenticatedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    LengthRequiredError: 411,
    TooLargeError: 413,
    UnsupportedMediaError: 415,
    SealedError: 423,
    ThrottledError: 429,
    IntegrityError: 500,
    DecryptionError: 500,
    KeySourceError: 503,
    UnavailableError: 503,
}
"""HTTP status of each class of error; a subclass has that of its nearest ancestor here."""

NOTED: Final = "atmem.noted"
"""Key of ``app.extensions``: what is called with every error of the product that a request is answered with."""
UNEXPECTED: Final = ("internal_error", "Something went wrong on the server. The request id finds it in the log.")
_HTTP: Final[dict[int, tuple[str, str]]] = {
    400: ("malformed", "The request cannot be read."),
    403: ("forbidden", "This is not allowed."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take this method."),
    411: ("length_required", "The request needs a Content-Length."),
    413: ("too_large", "The body is too large."),
    415: ("unsupported_media_type", "The body must be application/json."),
}
"""Code and message for what routing and parsing refuse by themselves."""


_VAULT: Final[dict[type[ContinuityError], str]] = {
    KeySourceError: "The vault's keys cannot be used now. Nothing was done; the server's log says why.",
    IntegrityError: "What is stored contradicts itself. Nothing was done; the server's log says what.",
}
"""What a caller is told of the vault's own trouble: its messages name files of the host, for the log alone."""


def error_bytes(code: str, message: str, identifier: str) -> bytes:
    """Return the body of an error reply (wire.md, Errors)."""
    body = {"error": {"code": code, "message": message}, "format": ERROR_FORMAT, "request_id": identifier}
    return json_bytes(body)


def status_of(error: ContinuityError) -> int:
    """Return the HTTP status for `error`; 500 for a class that is not in the table."""
    for cls in type(error).__mro__:
        if cls in STATUS:
            return STATUS[cls]
    return 500


def render(error: ContinuityError) -> Response:
    """Answer a request with `error`."""
    status = status_of(error)
    current_app.extensions.get(NOTED, _unnoted)(error)
    workflow_id = error.workflow_id if isinstance(error, ConflictError) else ""
    body = _body(error.code, _VAULT.get(type(error), error.message), workflow_id=workflow_id, **_more(error))
    response = json_response(body, status)
    if isinstance(error, ThrottledError | UnavailableError):
        response.headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, SealedError | KeySourceError):
        response.headers["Retry-After"] = "5"
    elif isinstance(error, UnauthenticatedError):
        response.headers["WWW-Authenticate"] = "Bearer"
    if status >= 500:  # noqa: PLR2004
        _log(error, code=error.code, message=error.message)
    return response


def _unnoted(_error: ContinuityError) -> None:
    """Stand in for what keeps a record of refusals, where nothing does."""


def install(app: Flask) -> None:
    """Make `app` answer every error by this module."""
    app.register_error_handler(ContinuityError, render)
    app.register_error_handler(HTTPException, render_http)
    app.register_error_handler(Exception, render_unexpected)


def _more(error: ContinuityError) -> dict[str, object]:
    """Return what a refusal tells beside code and message."""
    if isinstance(error, CaptureInUseError):
        return {"blocking": error.blocking}
    is_told = isinstance(error, ConflictError) and error.current is not None
    return {"current": error.current} if is_told else {}


def _body(code: str, message: str, *, workflow_id: str = "", **more: object) -> dict[str, object]:
    error = {"code": code, "message": message} | ({"workflow_id": workflow_id} if workflow_id else {}) | more
    return {"error": error, "format": ERROR_FORMAT, "request_id": request_id()}


def render_http(error: HTTPException) -> Response:
    """Answer what routing and parsing refuse by themselves."""
    status = error.code or 500
    if status < 400:  # noqa: PLR2004
        # A redirect that routing made; only pages have any.
        return Response(status=status, headers=dict(error.get_headers()))
    code, message = _HTTP.get(status, UNEXPECTED if status >= 500 else _HTTP[400])  # noqa: PLR2004
    response = json_response(_body(code, message), status)
    for name, value in error.get_headers():
        if name in {"Allow", "Retry-After"}:
            response.headers[name] = value
    return response


def render_unexpected(error: Exception) -> Response:
    """Answer a request that met a defect, and log where."""
    _log(error, code=UNEXPECTED[0])
    return json_response(_body(*UNEXPECTED), 500)


def _log(error: Exception, *, code: str, message: str | None = None) -> None:
    told = {} if message is None else {"message": message}
    logs.failure(error, request_id=request_id(), code=code, endpoint=request.endpoint or "", **told)
