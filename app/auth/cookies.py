"""The session cookie: how it is set, read and removed.

Over HTTPS its name begins with ``__Host-``, so that no other host and no plain connection can set it. On plain
HTTP, which `app.config` allows for this machine alone, browsers would drop such a cookie: there it has another
name and no ``Secure``, and the HTTPS name is not read.

Source: security.md S03, S08.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from flask import Request, Response

SECURE_NAME: Final = "__Host-atmem_session"
PLAIN_NAME: Final = "atmem_session"
SECURE_VISITOR_NAME: Final = "__Host-atmem_visitor"
PLAIN_VISITOR_NAME: Final = "atmem_visitor"
SECURE_CHALLENGE_NAME: Final = "__Host-atmem_step"
PLAIN_CHALLENGE_NAME: Final = "atmem_step"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """The cookie of an installation that is reached over HTTPS, or is not."""

    is_secure: bool
    secure_name: str = SECURE_NAME
    plain_name: str = PLAIN_NAME

    @property
    def name(self) -> str:
        return self.secure_name if self.is_secure else self.plain_name

    def read(self, request: Request) -> str | None:
        """Return the session id that the request brings; None for none, a damaged one, or more than one."""
        values = request.cookies.getlist(self.name)
        if len(values) != 1 or not _VALUE.fullmatch(values[0]):
            return None
        return values[0]

    def set(self, response: Response, session_id: str) -> None:
        """Give the browser a session id. It ends with the browser; the server ends it sooner."""
        response.set_cookie(self.name, session_id, secure=self.is_secure, httponly=True, samesite="Lax", path="/")

    def remove(self, response: Response) -> None:
        response.delete_cookie(self.name, secure=self.is_secure, httponly=True, samesite="Lax", path="/")


def cookie_for(url: str) -> SessionCookie:
    """Return the cookie for an installation that people reach at `url`: plain only for HTTP on this machine."""
    parts = urlsplit(url)
    is_plain = parts.scheme == "http" and (parts.hostname or "") in _LOOPBACK
    return SessionCookie(is_secure=not is_plain)


def visitor_cookie_for(url: str) -> SessionCookie:
    """Return the cookie of those who have yet to sign in. It carries the sign-in form's proof, and never a session."""
    return replace(cookie_for(url), secure_name=SECURE_VISITOR_NAME, plain_name=PLAIN_VISITOR_NAME)


def challenge_cookie_for(url: str) -> SessionCookie:
    """Return the cookie of those who have given the password and owe the code. It is never a session either."""
    return replace(cookie_for(url), secure_name=SECURE_CHALLENGE_NAME, plain_name=PLAIN_CHALLENGE_NAME)
