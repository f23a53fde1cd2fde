"""htmx on the server: who wants a fragment, and the one way to answer both doors.

Flask's request knows htmx through htmx-flask. Two of its answers are corrected here: a boosted request and
the restoring of a page from history want the whole page, though they say ``HX-Request: true``.
"""

from __future__ import annotations

from typing import Any, Final

from flask import Flask, Response, redirect, render_template, request
from htmx_flask import Htmx

ENDED: Final = "/login?ended=yes"
"""Where a page goes whose session has ended: the sign-in page, which says so."""
_SEE_OTHER: Final = 303


def install(app: Flask) -> None:
    """Let requests of `app` know htmx."""
    Htmx().init_app(app)


def is_htmx() -> bool:
    """Say whether htmx sent the request."""
    return request.headers.get("HX-Request") == "true"


def wants_fragment() -> bool:
    """Say whether the answer replaces a part of a page, and not the page."""
    headers = request.headers
    return is_htmx() and "HX-Boosted" not in headers and headers.get("HX-History-Restore-Request") != "true"


def render(*, page: str, fragment: str, status: int = 200, **context: Any) -> Response:
    """Answer with the fragment where that is wanted, else with the page that includes it; one context for both."""
    body = render_template(fragment if wants_fragment() else page, **context)
    return Response(body, status, content_type="text/html; charset=utf-8")


def sign_in_again(address: str) -> Response:
    """Send a browser whose session has ended to the sign-in page, the whole of it.

    `address` is built by `url_for`; htmx gets the constant path, since its header moves the browser.
    """
    if is_htmx():
        return Response(status=401, headers={"HX-Redirect": ENDED})
    return see_other(address)


def see_other(address: str) -> Response:
    """Go on with a GET at `address`, which is built by `url_for`."""
    answer: Response = redirect(address, _SEE_OTHER)  # type: ignore[assignment]
    return answer
