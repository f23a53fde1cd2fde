"""Cursors of lists: where to go on, for one person and one question, for fifteen minutes.

base64url over ``position | MAC (16)``; the position is canonical JSON of whole numbers and ids. Any change,
another person, another question and an old one answer the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any, Final

from continuity import jsontext
from continuity.errors import MalformedError

LIFETIME_US: Final = 900 * 1_000_000
_MAC_BYTES: Final = 16
_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Cursors:
    """Makes and reads the cursors of an installation.

    Attributes:
        key: Secret of the installation, for nothing else.
        older: Secrets before it: cursors made under them are still read, and none is made.
    """

    key: bytes = field(repr=False)
    older: tuple[bytes, ...] = field(default=(), repr=False)

    def write(self, position: list[Any], *, asked: list[Any], now_us: int) -> str:
        """Return the cursor that goes on after `position`.

        Args:
            position: Whole numbers and text.
            asked: Who asks, and everything that the list depends on but its position.
            now_us: The server's time.
        """
        plain = jsontext.canonical_bytes([now_us + LIFETIME_US, *position])
        return base64.urlsafe_b64encode(plain + _mac(self.key, plain, asked)).rstrip(b"=").decode()

    def read(self, cursor: str, *, asked: list[Any], now_us: int) -> list[Any]:
        """Return the position of a cursor.

        Raises:
            MalformedError: It is not one of ours for this person and question, or it is too old.
        """
        refusal = MalformedError("cursor must be one that this list returned within the last 15 minutes.")
        try:
            raw = base64.b64decode(cursor[:_CHARS] + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise refusal from None
        plain, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        # Base64 leaves bits of the last character unused: only the one spelling that we write is ours.
        is_spelled = base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == cursor
        is_ours = [hmac.compare_digest(mac, _mac(key, plain, asked)) for key in (self.key, *self.older)]
        if not is_spelled or not any(is_ours):
            raise refusal
        value = jsontext.loads_strict(b'{"position":' + plain + b"}")
        expires_us, *position = value["position"]
        if expires_us < now_us:
            raise refusal
        return list(position)


def _mac(key: bytes, plain: bytes, asked: list[Any]) -> bytes:
    question = jsontext.canonical_bytes(asked)
    text = len(question).to_bytes(4, "big") + question + plain
    return hmac.digest(key, b"observations cursor\0" + text, hashlib.sha256)[:_MAC_BYTES]
