"""What a request with a cookie must prove before it may change anything.

Two proofs, both needed: a token bound to the session (``X-CSRF-Token``, or a hidden field of a form), and an
origin that is ours as far as the browser tells. Without Origin and without Sec-Fetch-Site there is no browser,
and the token decides alone.

The token is an HMAC under the session id, which only the browser holds (the database has its hash): nothing is
stored, a new session has a new token, and whoever reads the database cannot make one.

Source: security.md W01 to W05; wire.md, Credentials.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from werkzeug.datastructures import Headers

from continuity.errors import ForbiddenError

HEADER: Final = "X-CSRF-Token"
FIELD: Final = "csrf_token"
"""Name of the hidden field that brings the token in a form."""
_PURPOSE: Final = b"atmem csrf v1"
_VISITOR_PURPOSE: Final = b"atmem visitor csrf v1"
_CHALLENGE_PURPOSE: Final = b"atmem challenge csrf v1"
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def token_for(session_id: str) -> str:
    """Return the token that belongs to the session with this cookie value."""
    return _token(session_id, _PURPOSE)


def visitor_token_for(visitor_id: str) -> str:
    """Return the token for the sign-in form of the browser with this visitor cookie. It is good for nothing else."""
    return _token(visitor_id, _VISITOR_PURPOSE)


def challenge_token_for(challenge_id: str) -> str:
    """Return the token for the form that takes the code after this password. It is good for nothing else."""
    return _token(challenge_id, _CHALLENGE_PURPOSE)


def check_token(session_id: str, given: str | None) -> None:
    """Refuse a token that is missing or belongs to another session."""
    if not _is_same(token_for(session_id), given):
        raise ForbiddenError(f"{HEADER} must be the token that signing in returned.", code="csrf_failed")


def is_visitor_token(visitor_id: str | None, given: str | None) -> bool:
    """Say whether the sign-in form was given to this browser."""
    return visitor_id is not None and _is_same(visitor_token_for(visitor_id), given)


def is_challenge_token(challenge_id: str, given: str | None) -> bool:
    """Say whether the form for the code was given to whoever gave the password."""
    return _is_same(challenge_token_for(challenge_id), given)


def _token(identifier: str, purpose: bytes) -> str:
    mac = hmac.digest(identifier.encode("ascii"), purpose, hashlib.sha256)
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode("ascii")


def _is_same(expected: str, given: str | None) -> bool:
    # Compared as bytes: `compare_digest` raises on text that is not ASCII.
    return given is not None and hmac.compare_digest(expected.encode("ascii"), given.encode("utf-8", "surrogatepass"))


def check_origin(headers: Headers, *, own_origins: frozenset[str]) -> None:
    """Refuse a request that a browser sends on behalf of another site.

    `own_origins` are the addresses of this server as ``scheme://host[:port]``.
    """
    site = headers.get("Sec-Fetch-Site")
    origin = headers.get("Origin")
    is_own = origin is None or origin in own_origins
    # What the browser says of the site counts for more: a proxy may change scheme and port of our address.
    if not (is_own if site is None else site in _OWN_SITES):
        raise ForbiddenError("This request comes from another site.", code="csrf_failed")
