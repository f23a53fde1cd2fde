"""What somebody wrote survives when the form it was sent with is no longer good.

A form grows old while people write: the session ends by itself, or goes on under a new id in another tab. Nothing is
done then, and the text is shown again where it can be sent once more. It travels in the reply to its own request:
no address, cookie, log or storage ever holds it.

Only what a browser says to come from this site is shown again. Another site can have a form sent in somebody's name,
and its words must not stand on a page of ours.

Source: security.md W01.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flask import Response, current_app, render_template, request, url_for

from app import htmx
from app.auth import csrf, identity, principals
from app.auth.admission import admission_of
from app.body import read_form
from app.pages import destinations
from app.pages.forms import PASSWORD, texts_of
from app.replies import request_id
from continuity.errors import ContinuityError, ForbiddenError, UnauthenticatedError
from continuity.services.callers import Caller

FORMS: Final[dict[str, Callable[..., Response]]] = {}
"""By endpoint: shows the page of a form again with all that the current request wrote into it.

Called with the caller and the arguments of the endpoint; whoever has such forms adds them.
"""
_CSRF_FAILED: Final = "csrf_failed"
_SAME_SITE: Final = "same-origin"
_UNAUTHENTICATED: Final = 401


def shown_again(error: ContinuityError) -> Response | None:
    """Return the reply that keeps what the current request brought; None where nothing is to be kept."""
    show = FORMS.get(request.endpoint or "")
    if show is None or htmx.is_htmx() or not _is_from_here():
        return None
    try:
        if isinstance(error, UnauthenticatedError):
            return _signed_out()
        if isinstance(error, ForbiddenError) and error.code == _CSRF_FAILED:
            return _outdated(show)
    except ContinuityError:
        # The form cannot be read, or its page not be shown: then the first error is the one to tell.
        return None
    return None


def _is_from_here() -> bool:
    """Say whether a browser states that a page of ours sent this. `Authorization` is never a person's."""
    if "HTTP_AUTHORIZATION" in request.environ:
        return False
    site = request.headers.get("Sec-Fetch-Site")
    own = {identity.auth().url, request.host_url.rstrip("/")}
    return site == _SAME_SITE or (site is None and request.headers.get("Origin") in own)


def _signed_out() -> Response | None:
    given = read_form()
    if not (texts := texts_of(given)):
        return None
    body = render_template(
        "pages/sign_in/kept.html",
        texts=texts,
        token=given.get(csrf.FIELD, ""),
        fields={name: value for name, value in given.items() if name not in {csrf.FIELD, PASSWORD}},
        action=request.path,
        back=url_for("sign_in.show", next=destinations.code_here()),
    )
    return Response(body, _UNAUTHENTICATED, content_type="text/html; charset=utf-8")


def _outdated(show: Callable[..., Response]) -> Response | None:
    person = identity.person_or_none()
    admission = admission_of(current_app, request.endpoint or "")
    if person is None or person.is_held or admission is None or person.role not in admission.roles:
        return None
    caller: Caller = principals.person(person, request_id=request_id())
    arguments: dict[str, Any] = request.view_args or {}
    return show(caller, **arguments)
