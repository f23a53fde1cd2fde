"""The frame around every page of a signed-in person: who they are and where they may go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flask import Flask, Response, current_app, g, request

from app.auth import admission, identity
from app.auth.csrf import token_for
from app.auth.sessions import SignedIn
from continuity.errors import UnauthenticatedError
from continuity.services.callers import Role


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the navigation; all pages of the blueprint named in `endpoint` belong to it."""

    title: str
    endpoint: str
    icon: str
    is_here: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Shell:
    """What the layout shows beside the page. `is_plain_http`: this installation is for trying out."""

    username: str
    role: str
    groups: tuple[Group, ...]
    is_account: bool
    is_plain_http: bool


_ALL_GROUPS: Final = (
    Group("Decisions", (Place("Resume work", "resume_work.index", "hand-raised"),)),
    Group("Activity", (Place("Resume work", "activity.index", "chart-bar"),)),
    Group("Threads", (Place("Threads", "threads.index", "chat-bubble-left-right"),)),
    Group("Records", (Place("Evidence", "evidence_pages.index", "document-magnifying-glass"),)),
    Group("Administration", (Place("Settings", "settings.index", "cog-6-tooth"),)),
)
"""Every place there may be. One is shown when its page exists and admits the person's role."""
_PART_OF: Final = {"audit_pages": "settings"}
"""Blueprints that have no place of their own: their pages stand inside those of another one."""
_SESSION: Final = "session_that_goes_on"


def install(app: Flask) -> None:
    """Let the layouts of `app` ask for the frame and forms for their token."""
    app.context_processor(lambda: {"csrf_token": csrf_token, "may_open": may_open, "shell": shell})
    app.after_request(_keep_session)


def csrf_token() -> str:
    """Return the token for forms of the person who is signed in."""
    return token_for(g.get(_SESSION) or _person().session_id)


def go_on_as(session_id: str) -> None:
    """Let this session take the place of the one that the request came with: in the browser, and in forms."""
    setattr(g, _SESSION, session_id)


def _keep_session(answer: Response) -> Response:
    if (session_id := g.get(_SESSION)) is not None:
        identity.auth().cookie.set(answer, session_id)
    return answer


def shell() -> Shell:
    """Describe the frame for the person who is signed in."""
    person = _person()
    return Shell(
        username=person.username,
        role=person.role.value,
        groups=() if person.is_held else _groups(person.role),
        is_account=request.blueprint in {"account", "password", "second_factor"},
        is_plain_http=not identity.auth().cookie.is_secure,
    )


def may_open(endpoint: str) -> bool:
    """Say whether there is a page that admits the person who is signed in."""
    return _is_open(endpoint, _person().role)


def _groups(role: Role) -> tuple[Group, ...]:
    groups = (
        Group(group.title, tuple(_shown(place) for place in group.places if _is_open(place.endpoint, role)))
        for group in _ALL_GROUPS
    )
    return tuple(group for group in groups if group.places)


def _is_open(endpoint: str, role: Role) -> bool:
    if endpoint not in current_app.view_functions:
        return False
    mark = admission.admission_of(current_app, endpoint)
    return mark is not None and role in mark.roles


def _shown(place: Place) -> Place:
    own = place.endpoint.partition(".")[0]
    return Place(
        place.title, place.endpoint, place.icon, is_here=_PART_OF.get(request.blueprint or "", request.blueprint) == own
    )


def _person() -> SignedIn:
    person = identity.person_or_none()
    if person is None:
        raise UnauthenticatedError("Sign in first.")
    return person
