"""Who may call a view at all, said where the view stands and checked before it runs.

Rules:

* Every view carries exactly one mark: `public`, `sessions` (signing in and out, which look for the person
  themselves) or `admits`. An endpoint without a mark is refused: nobody forgets to decide.
* `admits` looks at kind, role and freshness of the caller and at nothing that the request names, so a refusal
  tells nothing about any object. What exists, and for whom, is the services' to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from flask import Flask, current_app, g, request

from app.auth import identity
from continuity.errors import ContinuityError, ForbiddenError
from continuity.services.callers import Caller, CallerKind, Role

View = TypeVar("View", bound=Callable[..., Any])

_MARK: Final = "admission"
STATIC: Final = "static"
"""Flask's own view of the front-end files, which cannot carry a mark: everybody may have them."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may call a view.

    `kinds` are kinds of credentials, `roles` those of signed-in people, who must have given their password within
    ten minutes where `is_fresh`. `is_open` views ask nobody, or ask by themselves.
    """

    kinds: frozenset[CallerKind] = frozenset()
    roles: frozenset[Role] = frozenset()
    is_fresh: bool = False
    is_open: bool = False

    def require(self, caller: Caller) -> None:
        """Raise ForbiddenError for a caller of another kind or role, or with a password given too long ago."""
        if caller.kind is CallerKind.PERSON:
            self._require_person(caller)
        elif caller.kind not in self.kinds:
            raise ForbiddenError("A credential of this kind may not do this.")

    def _require_person(self, caller: Caller) -> None:
        if caller.role not in self.roles:
            raise ForbiddenError("Your role does not allow this." if self.roles else "People do not do this.")
        if self.is_fresh and not caller.is_fresh:
            raise ForbiddenError("Give your password again first.", code="reauthentication_required")


OPEN: Final = Admission(is_open=True)


def public(view: View) -> View:
    """Mark a view that everybody may call."""
    return _marked(view, OPEN)


def sessions(view: View) -> View:
    """Mark a view that begins or ends a session, or works on the caller's own: it asks who that is by itself."""
    return _marked(view, OPEN)


def admits(*kinds: CallerKind, people: tuple[Role, ...] = (), fresh: bool = False) -> Callable[[View], View]:
    """Mark a view for credentials of `kinds` and for signed-in people of these roles."""
    admission = Admission(frozenset(kinds), frozenset(people), is_fresh=fresh)
    return lambda view: _marked(view, admission)


def admission_of(app: Flask, endpoint: str) -> Admission | None:
    """Return the mark of an endpoint; None when it has none."""
    if endpoint == STATIC:
        return OPEN
    return getattr(app.view_functions[endpoint], _MARK, None)


def install(app: Flask) -> None:
    """Let no view of `app` run for whom it does not admit."""
    app.before_request(_check)


def admitted() -> Caller:
    """Return who asks, as the check before the view has found out."""
    caller: Caller = g.admitted
    return caller


def actor_or_nobody() -> str:
    """Return the actor of whoever asks, admitted or not; ``nobody`` for who is nobody here."""
    asking: Caller | None = g.get("asking")
    if asking is not None:
        return asking.actor
    try:
        person = identity.person_or_none()
    except ContinuityError:
        # Finding out may fail as what was asked for did.
        return "nobody"
    return "nobody" if person is None else person.actor


def _check() -> None:
    if request.endpoint is None:
        return
    admission = admission_of(current_app, request.endpoint)  # type: ignore[arg-type]
    if admission is None:
        raise ForbiddenError("This is not allowed.")
    if not admission.is_open:
        caller = identity.caller()
        g.asking = caller
        admission.require(caller)
        g.admitted = caller


def _marked(view: View, admission: Admission) -> View:
    setattr(view, _MARK, admission)
    return view
