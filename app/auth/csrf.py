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
_PURPOSE: Final = b"atmem csrf v1"
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def token_for(session_id: str) -> str:
    """Return the token that belongs to the session with this cookie value."""
    mac = hmac.digest(session_id.encode("ascii"), _PURPOSE, hashlib.sha256)
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode("ascii")


def check_token(session_id: str, given: str | None) -> None:
    """Refuse a token that is missing or belongs to another session."""
    # Compared as bytes: `compare_digest` raises on text that is not ASCII.
    expected = token_for(session_id).encode("ascii")
    if given is None or not hmac.compare_digest(expected, given.encode("utf-8", "surrogatepass")):
        raise ForbiddenError(f"{HEADER} must be the token that signing in returned.", code="csrf_failed")


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
