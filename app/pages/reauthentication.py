"""Giving the password again before something that cannot be taken back: on a page of its own, or inside a form.

A form that needs it asks for it itself (`proved`), so that nothing that somebody wrote is lost on a way round.

Source: security.md S02, S12.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from flask import Blueprint, Response, render_template, url_for

from app import htmx
from app.auth.admission import admits
from app.auth.identity import auth, signed_in, visit
from app.body import read_form
from app.pages import destinations, shell
from app.pages.forms import PASSWORD
from app.pages.problems import HTML_TYPE, too_often
from continuity.errors import MalformedError, ThrottledError, UnauthenticatedError
from continuity.services.callers import Caller, Role

blueprint = Blueprint("reauthentication", __name__)

_WRONG: Final = "The password is wrong."
_MISSING: Final = "More than ten minutes have passed since you gave it."


@dataclass(frozen=True, slots=True)
class Unproved:
    """Why a form is not taken yet. `retry_after_s` is set while no password is looked at."""

    problem: str
    status: int
    retry_after_s: int | None = None


@blueprint.get("/reauthenticate")
@admits(people=tuple(Role))
def show() -> Response:
    return _form(200)


@blueprint.post("/reauthenticate")
@admits(people=tuple(Role))
def confirm() -> Response:
    """Take the password; the session goes on under a new id, and for ten minutes may do what asks for this."""
    try:
        welcome = auth().sign_in.reauthenticate(signed_in(), password=read_form().get(PASSWORD, ""), visit=visit())
    except (UnauthenticatedError, MalformedError):
        return _form(422, _WRONG)
    except ThrottledError as error:
        answer = _form(429, too_often(error))
        answer.headers["Retry-After"] = str(error.retry_after_s)
        return answer
    answer = htmx.see_other(destinations.address(destinations.given()))
    auth().cookie.set(answer, welcome.session.session_id)
    return answer


def proved(caller: Caller, password: str) -> Caller | Unproved:
    """Return the caller as one who gave the password within ten minutes, or why a form must come again.

    A right password is taken at once: the session goes on under a new id, in this reply and in forms of its page.
    """
    if caller.is_fresh:
        return caller
    if not password:
        return Unproved(_MISSING, 403)
    try:
        welcome = auth().sign_in.reauthenticate(signed_in(), password=password, visit=visit())
    except (UnauthenticatedError, MalformedError):
        return Unproved(_WRONG, 422)
    except ThrottledError as error:
        return Unproved(too_often(error), 429, error.retry_after_s)
    shell.go_on_as(welcome.session.session_id)
    return replace(caller, is_fresh=True)


def _form(status: int, problem: str = "") -> Response:
    code = destinations.given()
    body = render_template(
        "pages/reauthentication/show.html",
        action=url_for("reauthentication.confirm", next=code),
        back=destinations.address(code),
        username=signed_in().username,
        problem=problem,
    )
    return Response(body, status, content_type=HTML_TYPE)
