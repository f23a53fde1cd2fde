"""Settings → Sessions: where everybody is signed in, and ending that.

Ending asks for no password: taking power away must be quick, and whoever was ended signs in again.

Source: security.md S07, S11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flask import Response, url_for

from app import htmx
from app.auth.admission import admits, admitted
from app.auth.identity import auth, signed_in
from app.auth.others_sessions import Present, Session
from app.pages import forms
from app.pages.notes import WORDS, leave_note
from app.pages.settings.area import ADMINISTRATORS, blueprint, by, page, seconds
from app.query import read_query
from continuity.errors import NotFoundError

__all__ = ["blueprint"]

WORDS.update({
    "other_session_ended": "That session has ended. Its next request is refused.",
    "others_sessions_ended": "Every session of this person has ended.",
    "own_others_ended": "Every other session of yours has ended. This one goes on.",
})  # fmt: skip
_NAME_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class SessionLine:
    """One session for templates. Times in Unix seconds; `ends` is when it ends if nothing more is asked."""

    handle: str
    created: float | None
    seen: float | None
    ends: float | None
    latest: float | None
    is_this: bool


@dataclass(frozen=True, slots=True)
class PersonLine:
    user_id: str
    username: str
    role: str
    sessions: tuple[SessionLine, ...]
    is_you: bool


@blueprint.get("/settings/sessions")
@admits(people=ADMINISTRATORS)
def sessions() -> Response:
    given = read_query("q", "after")
    q, after = given.get("q", "")[:_NAME_CHARS], given.get("after", "")
    person = signed_in()
    found = auth().others_sessions.page(after=after, q=q, session_id=person.session_id)
    return page(
        "sessions",
        people=[_person(each, own=person.user_id) for each in found.people],
        q=q,
        next_after=found.next_after,
        is_first=not after,
    )


@blueprint.get("/settings/sessions/end")
@blueprint.get("/settings/sessions/end-all")
@admits(people=ADMINISTRATORS)
def sessions_instead() -> Response:
    """Lead to the list: a refusal leaves the address of a control in the browser."""
    return htmx.see_other(url_for("settings.sessions"))


@blueprint.post("/settings/sessions/end")
@admits(people=ADMINISTRATORS)
def sessions_end() -> Response:
    given = forms.fields("person", "session", "q")
    answer = _back(given["q"])
    try:
        auth().others_sessions.end(given["person"], given["session"], by=by(admitted()))
    except NotFoundError:
        leave_note(answer, "session_gone")
    else:
        leave_note(answer, "other_session_ended")
    return answer


@blueprint.post("/settings/sessions/end-all")
@admits(people=ADMINISTRATORS)
def sessions_end_all() -> Response:
    """End all sessions of a person; one's own goes on where it is one's own."""
    given = forms.fields("person", "q")
    person = signed_in()
    is_own = given["person"] == person.user_id
    answer = _back(given["q"])
    auth().others_sessions.end_all(given["person"], by=by(admitted()), but=person.session_id if is_own else "")
    leave_note(answer, "own_others_ended" if is_own else "others_sessions_ended")
    return answer


def _back(q: str) -> Response:
    return htmx.see_other(url_for("settings.sessions", **({"q": q[:_NAME_CHARS]} if q else {})))


def _person(person: Present, *, own: str) -> PersonLine:
    lines = tuple(_line(session) for session in person.sessions)
    return PersonLine(person.user_id, person.username, person.role.value, lines, is_you=person.user_id == own)


def _line(session: Session) -> SessionLine:
    return SessionLine(
        session.handle, seconds(session.created_us), seconds(session.seen_us), seconds(session.idle_us),
        seconds(session.ends_us), session.is_this,
    )  # fmt: skip
