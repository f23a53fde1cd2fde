"""A person's own account: who the server takes them for, where they are signed in, their password and second factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flask import Blueprint, Response, render_template, url_for

from app import htmx
from app.auth.admission import admits
from app.auth.identity import auth, signed_in, visit
from app.auth.own_sessions import OwnSession
from app.body import read_form
from app.pages.notes import leave_note
from app.pages.problems import HTML_TYPE
from continuity.errors import NotFoundError
from continuity.services.callers import Role

blueprint = Blueprint("account", __name__)

_SECOND_US: Final = 1_000_000
_MAY: Final = {
    Role.OPERATOR: "You review and control the work of your workspaces, and confirm outcomes.",
    Role.INVESTIGATOR: "You read the work of your workspaces. You change nothing.",
    Role.ADMINISTRATOR: (
        "You see all workspaces, decide everything that operators decide, and manage people, credentials and the "
        "vault in Settings."
    ),
}


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A line of the list. Times in Unix seconds."""

    handle: str
    created: float
    seen: float
    ends: float
    is_this: bool


@blueprint.get("/account")
@admits(people=tuple(Role))
def index() -> Response:
    person = signed_in()
    factor = auth().second_factors.state(person.user_pk)
    body = render_template(
        "pages/account/index.html",
        username=person.username,
        role=person.role.value,
        may=_MAY[person.role],
        factor_since=None if factor.since_us is None else factor.since_us / _SECOND_US,
        codes_left=factor.codes_left,
        sessions=[_line(session) for session in auth().own_sessions.all(person)],
    )
    return Response(body, content_type=HTML_TYPE)


@blueprint.post("/account/sessions/end")
@admits(people=tuple(Role))
def end_session() -> Response:
    answer = htmx.see_other(url_for("account.index"))
    try:
        auth().own_sessions.end(signed_in(), read_form().get("session", ""), request_id=visit().request_id)
    except NotFoundError:
        leave_note(answer, "session_gone")
    else:
        leave_note(answer, "session_ended")
    return answer


@blueprint.post("/account/sessions/end-others")
@admits(people=tuple(Role))
def end_other_sessions() -> Response:
    auth().own_sessions.end_others(signed_in(), request_id=visit().request_id)
    answer = htmx.see_other(url_for("account.index"))
    leave_note(answer, "sessions_ended")
    return answer


def _line(session: OwnSession) -> SessionLine:
    return SessionLine(
        handle=session.handle,
        created=session.created_us / _SECOND_US,
        seen=session.seen_us / _SECOND_US,
        ends=session.ends_us / _SECOND_US,
        is_this=session.is_this,
    )
