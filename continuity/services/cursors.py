"""Cursors of lists: where to go on, for one caller and one question, for fifteen minutes.

A cursor is base64url over ``position (8) | expires (8) | mac (16)``; the MAC is keyed by the vault and
covers the caller, the question and the vault's epoch. Any change, another caller, another filter and an
old one answer the same.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.errors import MalformedError
from continuity.limits import SECOND_US

if TYPE_CHECKING:
    from continuity.vault.vault import Vault

LIFETIME_S: Final = 900
_PLAIN_BYTES: Final = 16
_MAC_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Cursors:
    """Makes and reads cursors for one caller and question.

    Attributes:
        vault: Its index key makes the MAC.
        actor: Whose cursor it is.
        question: Everything that the list depends on but its position.
        epoch: The vault's epoch; a restore voids all cursors.
    """

    vault: Vault
    actor: str
    question: str
    epoch: int

    def write(self, position: int, *, now_us: int) -> str:
        """Return the cursor that goes on after `position`."""
        plain = position.to_bytes(8, "big") + (now_us + LIFETIME_S * SECOND_US).to_bytes(8, "big")
        return base64.urlsafe_b64encode(plain + self._mac(plain)).rstrip(b"=").decode()

    def read(self, cursor: str, *, now_us: int) -> int:
        """Return the position of a cursor.

        Raises:
            MalformedError: It is not one of ours for this caller and question, or it is too old.
        """
        refusal = MalformedError("cursor must be one that this list returned within the last 15 minutes.")
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise refusal from None
        plain, mac = raw[:_PLAIN_BYTES], raw[_PLAIN_BYTES:]
        is_ours = len(raw) == _PLAIN_BYTES + _MAC_BYTES and hmac.compare_digest(mac, self._mac(plain))
        # Base64 leaves bits of the last character unused: only the one spelling that we write is ours.
        is_spelled = base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == cursor
        if not is_ours or not is_spelled or int.from_bytes(plain[8:], "big") < now_us:
            raise refusal
        return int.from_bytes(plain[:8], "big")

    def _mac(self, plain: bytes) -> bytes:
        return self.vault.index("cursor", self.actor, self.question, self.epoch, plain)[:_MAC_BYTES]
