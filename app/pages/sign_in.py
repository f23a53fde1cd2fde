"""Signing in and out.

Whoever has no session yet proves with a cookie of another kind that the form was given to this browser, so that
no other site can sign somebody in under a stranger's name. That cookie never becomes a session.

Source: security.md A08, S02, S06, W01, W03, W12.
"""

from __future__ import annotations

import secrets
from typing import Final

from flask import Blueprint, Response, render_template, request, url_for

from app import htmx
from app.auth import csrf
from app.auth.admission import sessions
from app.auth.identity import auth, check_origin, person_or_none, presented_session, presented_token, signed_in, visit
from app.auth.signin import WRONG
from app.body import SMALL_BODY_BYTES, read_form
from app.pages import destinations
from app.pages.problems import HTML_TYPE, too_often
from continuity.errors import MalformedError, ThrottledError, UnauthenticatedError

blueprint = Blueprint("sign_in", __name__)

_ID_BYTES: Final = 32
_STALE: Final = "This sign-in page was open for too long, or your browser keeps no cookies. Try again now."


@blueprint.get("/login")
@sessions
def show() -> Response:
    person = person_or_none()
    if person is None:
        return _form(200)
    return htmx.see_other(_onward(must_change=person.must_change))


@blueprint.post("/login")
@sessions
def sign_in() -> Response:
    """Begin a session, and go on to the page that was wanted."""
    fields = read_form(limit_bytes=SMALL_BODY_BYTES)
    check_origin()
    username = fields.get("username", "")
    if not csrf.is_visitor_token(auth().visitor_cookie.read(request), presented_token()):
        return _form(403, username=username, problem=_STALE)
    try:
        welcome = auth().sign_in.sign_in(
            username, fields.get("password", ""), visit=visit(), replaced=presented_session()
        )
    except (UnauthenticatedError, MalformedError):
        return _form(422, username=username, problem=WRONG)
    except ThrottledError as error:
        answer = _form(429, username=username, problem=too_often(error))
        answer.headers["Retry-After"] = str(error.retry_after_s)
        return answer
    answer = htmx.see_other(_onward(must_change=welcome.must_change))
    auth().visitor_cookie.remove(answer)
    auth().cookie.set(answer, welcome.session.session_id)
    return answer


@blueprint.post("/logout")
@sessions
def sign_out() -> Response:
    person = signed_in()
    auth().sign_in.sign_out(person, visit=visit())
    answer = htmx.see_other(url_for("sign_in.show"))
    auth().cookie.remove(answer)
    answer.headers["Clear-Site-Data"] = '"cache", "storage"'
    return answer


def _onward(*, must_change: bool) -> str:
    """Return where whoever is signed in goes on: by way of a new password, which passes the place on."""
    code = destinations.given()
    return url_for("password.show", next=code) if must_change else destinations.address(code)


def _form(status: int, *, username: str = "", problem: str = "") -> Response:
    cookie = auth().visitor_cookie
    visitor = cookie.read(request) or secrets.token_urlsafe(_ID_BYTES)
    body = render_template(
        "pages/sign_in/show.html",
        token=csrf.visitor_token_for(visitor),
        action=url_for("sign_in.sign_in", next=destinations.given()),
        username=username,
        problem=problem,
        is_ended=request.args.get("ended") == "yes",
        is_going_on=destinations.given() is not None,
        is_plain_http=not cookie.is_secure,
    )
    answer = Response(body, status, content_type=HTML_TYPE)
    cookie.set(answer, visitor)
    return answer
