"""Who asks, as views see it.

`caller()` is all that an API view needs. A request with an ``Authorization`` header is a machine's: its cookies are
not looked at, whatever the header holds. Otherwise the session cookie decides; whatever is not a reading request
must then carry the session's CSRF token and come from this site, and a person who has a temporary password gets no
further than changing it; an administrator whom the policy asks for a second factor, no further than setting it up.

Flask-Login gives pages their `current_user`. Its own cookies play no part: the request loader below reads the
session's row, and neither the remember-me cookie nor the signed session of Flask can sign anybody in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from flask import Flask, Request, current_app, request
from flask_login import LoginManager, UserMixin, current_user

from app.auth import csrf, principals
from app.auth.services import Auth
from app.auth.sessions import SignedIn
from app.auth.signin import Visit
from app.body import brings_form, read_form
from app.replies import request_id
from continuity.errors import ForbiddenError, UnauthenticatedError
from continuity.services.callers import Caller

_KEY: Final = "atmem.auth"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_POLL: Final = "is_poll"
View = TypeVar("View", bound=Callable[..., Any])


class CurrentPerson(UserMixin):  # type: ignore[misc]  # Flask-Login has no types.
    """What templates know as ``current_user``."""

    def __init__(self, signed_in: SignedIn) -> None:
        self.signed_in = signed_in

    def get_id(self) -> str:
        return self.signed_in.user_id


def install(app: Flask, provide: Callable[[], Auth]) -> None:
    """Let the views of `app` know who asks. `provide` is called at the first request that asks."""
    app.extensions[_KEY] = provide
    manager = LoginManager()
    manager.session_protection = None
    manager.request_loader(_load_person)
    # No cookie can have this name, as ";" ends one: Flask-Login would read it before asking the loader.
    app.config["REMEMBER_COOKIE_NAME"] = ";"
    # Instead of `init_app`, whose hook after each request would open Flask's session on the hot path.
    app.login_manager = manager  # type: ignore[attr-defined]
    app.context_processor(lambda: {"current_user": current_user})


def auth() -> Auth:
    """Return the people and credentials of the current application."""
    provide: Callable[[], Auth] = current_app.extensions[_KEY]
    return provide()


def poll(view: View) -> View:
    """Mark a view that pages ask again and again by themselves: it does not keep a session alive."""
    setattr(view, _POLL, True)
    return view


def caller() -> Caller:
    """Return who asks. UnauthenticatedError for nobody, ForbiddenError for a cookie without its proofs."""
    header = request.environ.get("HTTP_AUTHORIZATION")
    if header is not None:
        return auth().principals.bearer(header, request_id=request_id())
    return _settled(signed_in(), request_id=request_id())


def _settled(person: SignedIn, *, request_id: str) -> Caller:
    """Return a person who has nothing to do first; ForbiddenError for one who has."""
    if person.must_change:
        raise ForbiddenError("Choose a password of your own first.", code="password_change_required")
    check_enrolled(person)
    return principals.person(person, request_id=request_id)


def asking_again(subject: str | None = None) -> Callable[[], Caller]:
    """Return what finds out anew who sent the current request, while its reply goes on: it needs no request then.

    What it returns is admitted as the caller of now is, and acts for `subject`. It raises UnauthenticatedError or
    ForbiddenError when that is over, and counts as no sign of life.
    """
    header, session_id = request.environ.get("HTTP_AUTHORIZATION"), presented_session()
    identifier, provided = request_id(), auth()

    def again() -> Caller:
        if header is not None:
            return replace(provided.principals.bearer(header, request_id=identifier), subject=subject)
        found = None if session_id is None else provided.sessions.peek(session_id)
        if found is None:
            raise UnauthenticatedError("Sign in first.")
        return _settled(found, request_id=identifier)

    return again


def signed_in() -> SignedIn:
    """Return the person of this request, one with a temporary password too. Bearer tokens are nobody here."""
    person = person_or_none()
    if person is None:
        raise UnauthenticatedError("Sign in first.")
    if request.method not in _SAFE_METHODS:
        check_origin()
        csrf.check_token(person.session_id, presented_token())
    return person


def check_enrolled(person: SignedIn) -> None:
    """Refuse an administrator who must set up a second factor before anything else."""
    if person.must_enrol:
        raise ForbiddenError(
            "Set up a second factor first: Account, Second factor.", code="second_factor_enrolment_required"
        )


def person_or_none() -> SignedIn | None:
    """Return the person of this request, None for a machine or nobody."""
    user = cast("CurrentPerson | None", current_user if current_user.is_authenticated else None)
    return None if user is None else user.signed_in


def presented_session() -> str | None:
    """Return the session id that the browser brings, valid or not: signing in again ends it."""
    return None if "HTTP_AUTHORIZATION" in request.environ else auth().cookie.read(request)


def presented_token() -> str | None:
    """Return the token against forgery that the request brings: in a header, or as the hidden field of a form."""
    header = request.headers.get(csrf.HEADER)
    if header is not None or not brings_form():
        return header
    return read_form().get(csrf.FIELD)


def check_origin() -> None:
    """Refuse what a browser sends for another site."""
    own = frozenset({auth().url, request.host_url.rstrip("/")})
    csrf.check_origin(request.headers, own_origins=own)


def visit() -> Visit:
    """Return where the request comes from. The address is the peer's, as `app.headers` has established it."""
    return Visit(address=request.remote_addr or "", request_id=request_id())


def _load_person(incoming: Request) -> CurrentPerson | None:
    if "HTTP_AUTHORIZATION" in incoming.environ:
        return None
    session_id = auth().cookie.read(incoming)
    if session_id is None:
        return None
    view = current_app.view_functions.get(incoming.endpoint or "")
    is_poll = bool(getattr(view, _POLL, False))
    found = auth().sessions.peek(session_id) if is_poll else auth().sessions.find(session_id)
    return None if found is None else CurrentPerson(found)
