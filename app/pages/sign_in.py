"""Signing in and out.

Whoever has no session yet proves with a cookie of another kind that the form was given to this browser, so that
no other site can sign somebody in under a stranger's name. That cookie never becomes a session, and neither does the
one of the step between password and code, for accounts that have a second factor.

Source: security.md A08, S02, S06, W01, W03, W12; ASVS 6.3.3.
"""

from __future__ import annotations

import secrets
from typing import Final

from flask import Blueprint, Response, render_template, request, url_for

from app import htmx
from app.auth import csrf
from app.auth.admission import sessions
from app.auth.challenges import Challenge
from app.auth.identity import auth, check_origin, person_or_none, presented_session, presented_token, signed_in, visit
from app.auth.second_factor import FAILED
from app.auth.signin import OVER, WRONG, Welcome
from app.body import SMALL_BODY_BYTES, read_form
from app.pages import destinations
from app.pages.problems import HTML_TYPE, too_often
from continuity.errors import ForbiddenError, MalformedError, ThrottledError, UnauthenticatedError

blueprint = Blueprint("sign_in", __name__)

_ID_BYTES: Final = 32
_STALE: Final = "This sign-in page was open for too long, or your browser keeps no cookies. Try again now."
_WRONG_CODE: Final = "The code is wrong, or was used already."


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
        begun = auth().sign_in.begin(username, fields.get("password", ""), visit=visit(), replaced=presented_session())
    except (UnauthenticatedError, MalformedError):
        return _form(422, username=username, problem=WRONG)
    except ThrottledError as error:
        answer = _form(429, username=username, problem=too_often(error))
        answer.headers["Retry-After"] = str(error.retry_after_s)
        return answer
    if isinstance(begun, Challenge):
        answer = htmx.see_other(url_for("sign_in.show_code", next=destinations.given()))
        auth().challenge_cookie.set(answer, begun.challenge_id)
        return answer
    return _welcome(begun)


@blueprint.get("/login/code")
@sessions
def show_code() -> Response:
    challenge_id = auth().challenge_cookie.read(request)
    if challenge_id is not None and auth().sign_in.is_under_way(challenge_id):
        return _code_form(200, challenge_id)
    person = person_or_none()
    if person is not None:
        return htmx.see_other(_onward(must_change=person.must_change))
    return htmx.sign_in_again(_again(is_over=challenge_id is not None))


@blueprint.post("/login/code")
@sessions
def give_code() -> Response:
    """Take the code after the password: this begins the session."""
    check_origin()
    challenge_id = auth().challenge_cookie.read(request)
    if challenge_id is None or not csrf.is_challenge_token(challenge_id, presented_token()):
        raise ForbiddenError("This form was not given to this browser.", code="csrf_failed")
    try:
        welcome = auth().sign_in.finish(
            challenge_id,
            read_form(limit_bytes=SMALL_BODY_BYTES).get("code", ""),
            visit=visit(),
            replaced=presented_session(),
        )
    except UnauthenticatedError as error:
        if error.code == FAILED:
            return _code_form(422, challenge_id, problem=_WRONG_CODE)
        answer = htmx.see_other(_again(is_over=error.code == OVER))
        auth().challenge_cookie.remove(answer)
        return answer
    except ThrottledError as error:
        answer = _code_form(
            429, challenge_id, problem=f"Too many attempts. Try again in {error.retry_after_s} seconds."
        )
        answer.headers["Retry-After"] = str(error.retry_after_s)
        return answer
    return _welcome(welcome)


@blueprint.post("/logout")
@sessions
def sign_out() -> Response:
    person = signed_in()
    auth().sign_in.sign_out(person, visit=visit())
    answer = htmx.see_other(url_for("sign_in.show"))
    auth().cookie.remove(answer)
    answer.headers["Clear-Site-Data"] = '"cache", "storage"'
    return answer


def _welcome(welcome: Welcome) -> Response:
    answer = htmx.see_other(_onward(must_change=welcome.must_change))
    auth().visitor_cookie.remove(answer)
    if auth().challenge_cookie.name in request.cookies:
        auth().challenge_cookie.remove(answer)
    auth().cookie.set(answer, welcome.session.session_id)
    return answer


def _again(*, is_over: bool) -> str:
    """Return where somebody whose step to the code is over begins again."""
    return url_for("sign_in.show", next=destinations.given(), over="yes" if is_over else None)


def _code_form(status: int, challenge_id: str, *, problem: str = "") -> Response:
    code = destinations.given()
    body = render_template(
        "pages/sign_in/code.html",
        token=csrf.challenge_token_for(challenge_id),
        action=url_for("sign_in.give_code", next=code),
        back=url_for("sign_in.show", next=code),
        problem=problem,
    )
    return Response(body, status, content_type=HTML_TYPE)


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
        is_over=request.args.get("over") == "yes",
        is_going_on=destinations.given() is not None,
        is_plain_http=not cookie.is_secure,
    )
    answer = Response(body, status, content_type=HTML_TYPE)
    cookie.set(answer, visitor)
    return answer
