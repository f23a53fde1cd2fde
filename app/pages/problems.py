"""Errors as people see them: a page, or a notice inside the page that asked.

The table from error to status and its log stay those of `app.errors`, which answers everything that is no page.
A reply says what is unchanged and what to do next, and nothing of what went wrong inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flask import Flask, Response, render_template, request, url_for
from werkzeug.exceptions import HTTPException

from app import errors, htmx
from app.auth import identity
from app.headers import API_PATHS
from app.pages import destinations, keeping
from app.replies import request_id
from continuity.errors import ContinuityError, ForbiddenError, ThrottledError, UnauthenticatedError

HTML_TYPE: Final = "text/html; charset=utf-8"
CHANGE_FIRST: Final = "/password"
CONFIRM_FIRST: Final = "/reauthenticate"
ENROL_FIRST: Final = "/account/second-factor"
_SERVER_ERROR: Final = 500
_PASSING: Final = frozenset({423, 429, 503})
"""What may be over by the next time one asks."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a reply says. `icon` is a heroicon; `unchanged` says what became of what was asked for."""

    title: str
    what: str
    unchanged: str = "Nothing was changed."
    icon: str = "exclamation-triangle"


_DEFECT: Final = Problem(
    "Something went wrong here",
    "The server met a defect of its own. The request id below finds it in the server's log.",
    "What you asked for may not have been done: look before you ask again.",
    "bug-ant",
)
PROBLEMS: Final[dict[int, Problem]] = {
    400: Problem("This request cannot be read", "The address or the form is not one of this site's."),
    403: Problem(
        "You may not do this",
        "Your role, or the workspaces you belong to, do not allow it. An administrator can change both.",
        icon="no-symbol",
    ),
    404: Problem(
        "There is nothing here",
        "It may have been deleted, or it may belong to a workspace that you are not in.",
        icon="map",
    ),
    405: Problem("This address does not work that way", "It takes forms, or pages, but not what was sent."),
    409: Problem(
        "Somebody was faster",
        "What you saw has changed meanwhile. Open the page again and decide on what it says now.",
        icon="arrows-right-left",
    ),
    413: Problem("This is too long", "The form holds more text than the server takes.", icon="arrows-pointing-in"),
    415: Problem("This request cannot be read", "It is not a form as browsers send it."),
    423: Problem(
        "The vault is locked",
        "What is stored cannot be read until an administrator unlocks the vault: under Settings, Vault, or on the "
        "server with atmem vault unlock.",
        "Work that is under way is kept. Nothing was changed.",
        "lock-closed",
    ),
    429: Problem("Too many requests", "Wait a moment, then try again.", icon="clock"),
    500: _DEFECT,
    503: Problem(
        "The server cannot answer just now",
        "Its database or its key is out of reach for the moment. Try again in a few seconds.",
        "What you asked for may not have been done: look before you ask again.",
        "signal-slash",
    ),
}
"""What is said for each status; a status that is not here is told as its class, 400 or 500."""

_FORGED: Final = Problem(
    "This form is out of date",
    "It was not opened in this session: you signed in again since, or another site sent it. Open the page again.",
    icon="shield-exclamation",
)
_BY_CODE: Final = {"csrf_failed": _FORGED}


def install(app: Flask) -> None:
    """Answer the errors of pages as pages; those of everything else stay as `app.errors` has them."""
    app.register_error_handler(ContinuityError, _of_product)
    app.register_error_handler(HTTPException, _of_routing)
    app.register_error_handler(Exception, _unexpected)


def too_often(error: ThrottledError) -> str:
    """Say beside a form how long to wait before a password is looked at again."""
    return f"Too many attempts to give a password. Try again in {error.retry_after_s} seconds."


def _of_product(error: ContinuityError) -> Response:
    answer = errors.render(error)
    if not _is_page():
        return answer
    if (kept := keeping.shown_again(error)) is not None:
        return kept
    if isinstance(error, UnauthenticatedError):
        return htmx.sign_in_again(url_for("sign_in.show", next=destinations.code_here()))
    if isinstance(error, ForbiddenError) and error.code == "password_change_required":
        return _elsewhere(CHANGE_FIRST, url_for("password.show"))
    if isinstance(error, ForbiddenError) and error.code == "second_factor_enrolment_required":
        return _elsewhere(ENROL_FIRST, url_for("second_factor.show", next=destinations.code_here()))
    if isinstance(error, ForbiddenError) and error.code == "reauthentication_required":
        return _elsewhere(CONFIRM_FIRST, url_for("reauthentication.show", next=destinations.code_here()))
    return _page(answer, error.code)


def _of_routing(error: HTTPException) -> Response:
    answer = errors.render_http(error)
    is_redirect = answer.status_code < 400  # noqa: PLR2004
    return answer if is_redirect or not _is_page() else _page(answer)


def _unexpected(error: Exception) -> Response:
    answer = errors.render_unexpected(error)
    return _page(answer) if _is_page() else answer


def _is_page() -> bool:
    """Say whether a person looks at the answer: on every page, and where nothing is but a browser asks."""
    if request.blueprint is not None:
        return request.blueprint in PAGE_BLUEPRINTS
    return not API_PATHS.match(request.path) and "text/html" in request.headers.get("Accept", "")


PAGE_BLUEPRINTS: Final[set[str]] = set()
"""Names of the blueprints that have pages; `app.pages.install` fills it."""


def _elsewhere(constant: str, address: str) -> Response:
    """Send the browser to a page that must come first. htmx gets the constant path, which is all it may be sent."""
    if htmx.is_htmx():
        return Response(status=403, headers={"HX-Redirect": constant})
    return htmx.see_other(address)


def _page(answer: Response, code: str = "") -> Response:
    status = answer.status_code
    problem = _BY_CODE.get(code) or PROBLEMS.get(status) or PROBLEMS[500 if status >= _SERVER_ERROR else 400]
    context = {"problem": problem, "status": status, "request_id": request_id()}
    if htmx.wants_fragment():
        body = render_template("fragments/errors/problem.html", **context)
        # Whatever the element asked for, it stays as it is: the notice has a place of its own.
        answer.headers["HX-Retarget"] = "#trouble"
        answer.headers["HX-Reswap"] = "innerHTML"
    else:
        is_worth_a_retry = status in _PASSING and request.method in {"GET", "HEAD"}
        body = render_template(
            "errors/error.html", layout=_layout(status), is_worth_a_retry=is_worth_a_retry, **context
        )
    answer.set_data(body)
    answer.content_type = HTML_TYPE
    answer.headers.pop("WWW-Authenticate", None)
    return answer


def _layout(status: int) -> str:
    """Keep the frame for somebody who is signed in, unless finding that out may fail once more."""
    if status >= _SERVER_ERROR:
        return "layouts/plain.html"
    try:
        person = identity.person_or_none()
    except ContinuityError:
        return "layouts/plain.html"
    return "layouts/plain.html" if person is None or person.is_held else "layouts/signed_in.html"
