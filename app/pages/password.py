"""Choosing a new password: at the first sign-in, where nothing else is possible before, and whenever one likes.

Source: security.md A05 to A07.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flask import Blueprint, Response, render_template, url_for

from app import htmx
from app.auth.admission import sessions
from app.auth.identity import auth, check_enrolled, signed_in, visit
from app.auth.passwords import LONGEST, SHORTEST
from app.auth.sessions import SignedIn
from app.body import read_form
from app.pages import destinations
from app.pages.notes import leave_note
from app.pages.problems import HTML_TYPE, too_often
from continuity.errors import MalformedError, ThrottledError, UnauthenticatedError

blueprint = Blueprint("password", __name__)

_NO_PROBLEMS: Final[Mapping[str, str]] = {}


@blueprint.get("/password")
@sessions
def show() -> Response:
    person = signed_in()
    check_enrolled(person)
    return _form(person, 200)


@blueprint.post("/password")
@sessions
def change() -> Response:
    """Replace the password; all other sessions end and this one goes on under a new id."""
    person = signed_in()
    check_enrolled(person)
    fields = read_form()
    new = fields.get("new_password", "")
    if new != fields.get("again", ""):
        return _form(person, 422, {"again": "This is not the same as the new password above."})
    try:
        welcome = auth().sign_in.change_password(
            person, current=fields.get("current_password", ""), new=new, visit=visit()
        )
    except UnauthenticatedError as error:
        return _form(person, 422, {"current_password": error.message})
    except MalformedError as error:
        name, _, rest = error.message.partition(" ")
        field = name if name == "current_password" else "new_password"
        return _form(person, 422, {field: f"The password {rest}"})
    except ThrottledError as error:
        answer = _form(person, 429, {"current_password": too_often(error)})
        answer.headers["Retry-After"] = str(error.retry_after_s)
        return answer
    answer = htmx.see_other(
        destinations.address(destinations.given()) if person.must_change else url_for("account.index")
    )
    auth().cookie.set(answer, welcome.session.session_id)
    leave_note(answer, "password_changed")
    return answer


def _form(person: SignedIn, status: int, problems: Mapping[str, str] = _NO_PROBLEMS) -> Response:
    body = render_template(
        "pages/password/show.html",
        layout="layouts/plain.html" if person.must_change else "layouts/signed_in.html",
        action=url_for("password.change", next=destinations.given()),
        is_forced=person.must_change,
        username=person.username,
        problems=problems,
        shortest=SHORTEST,
        longest=LONGEST,
    )
    return Response(body, status, content_type=HTML_TYPE)
