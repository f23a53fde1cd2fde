"""Giving the password again before something that cannot be taken back.

Source: security.md S02, S12.
"""

from __future__ import annotations

from flask import Blueprint, Response, render_template, url_for

from app import htmx
from app.auth.admission import admits
from app.auth.identity import auth, signed_in, visit
from app.body import read_form
from app.pages import destinations
from app.pages.problems import HTML_TYPE, too_often
from continuity.errors import MalformedError, ThrottledError, UnauthenticatedError
from continuity.services.callers import Role

blueprint = Blueprint("reauthentication", __name__)

_WRONG = "The password is wrong."


@blueprint.get("/reauthenticate")
@admits(people=tuple(Role))
def show() -> Response:
    return _form(200)


@blueprint.post("/reauthenticate")
@admits(people=tuple(Role))
def confirm() -> Response:
    """Take the password; the session goes on under a new id, and for ten minutes may do what asks for this."""
    try:
        welcome = auth().sign_in.reauthenticate(signed_in(), password=read_form().get("password", ""), visit=visit())
    except (UnauthenticatedError, MalformedError):
        return _form(422, _WRONG)
    except ThrottledError as error:
        answer = _form(429, too_often(error))
        answer.headers["Retry-After"] = str(error.retry_after_s)
        return answer
    answer = htmx.see_other(destinations.address(destinations.given()))
    auth().cookie.set(answer, welcome.session.session_id)
    return answer


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
