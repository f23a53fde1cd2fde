"""The text of a bearer token: ``atm_<letter>_<43 base64url characters>_<6 base62 characters>``.

Pure: no database, no clock. A token is cut by position and never at ``_``, which base64url may hold.

====== ======= =====================================================================
from   length  what
====== ======= =====================================================================
0      4       ``atm_``
4      1       kind: ``o`` operator, ``w`` worker, ``c`` coordinator, ``b`` observer,
              ``t`` thread worker, ``a`` application
5      1       ``_``
6      43      256 random bits, base64url without padding
49     1       ``_``
50     6       CRC-32 (zlib's) of the ASCII bytes 0–48, base62 (``0-9A-Za-z``), big end first
====== ======= =====================================================================

The checksum is no protection: it tells a mistyped or invented token without a database look-up, and lets a
secret scanner be sure of what it found. `PATTERN` is the expression for scanners.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import zlib
from typing import Final

from continuity.services.callers import CallerKind

PATTERN: Final = re.compile(r"atm_[a-z]_[A-Za-z0-9_-]{43}_[0-9A-Za-z]{6}")
LENGTH: Final = 56
LETTERS: Final = {
    CallerKind.OPERATOR: "o",
    CallerKind.WORKER: "w",
    CallerKind.COORDINATOR: "c",
    CallerKind.OBSERVER: "b",
    CallerKind.THREAD_WORKER: "t",
    CallerKind.APPLICATION: "a",
}

_RANDOM_BYTES: Final = 32
_BODY: Final = 49
_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHECK_CHARS: Final = 6


def new_token(kind: CallerKind) -> str:
    """Make a token of `kind` from 256 bits of the system's randomness."""
    return token_of(kind, secrets.token_bytes(_RANDOM_BYTES))


def token_of(kind: CallerKind, random: bytes) -> str:
    """Write the token of `kind` that carries these 32 bytes."""
    if len(random) != _RANDOM_BYTES:
        raise ValueError("A token carries exactly 32 bytes.")
    body = f"atm_{LETTERS[kind]}_{base64.urlsafe_b64encode(random).rstrip(b'=').decode('ascii')}"
    return f"{body}_{_checksum(body)}"


def is_well_formed(token: str) -> bool:
    """Say whether form and checksum are right. No look-up is worth making when they are not."""
    if len(token) != LENGTH or not PATTERN.fullmatch(token):
        return False
    return token[_BODY + 1 :] == _checksum(token[:_BODY])


def letter_of(token: str) -> str:
    """Return the letter of a well-formed token's kind."""
    return token[4]


def hash_of(token: str) -> bytes:
    """Return what is stored of a well-formed token: the SHA-256 of its ASCII bytes."""
    return hashlib.sha256(token.encode("ascii")).digest()


def _checksum(body: str) -> str:
    rest = zlib.crc32(body.encode("ascii"))
    digits = []
    for _ in range(_CHECK_CHARS):
        rest, digit = divmod(rest, len(_BASE62))
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))
