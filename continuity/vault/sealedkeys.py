r"""Master keys sealed under a passphrase, as text for a 0600 file. Layout: ``FORMAT.md``.

    atmem-sealed-keys 1\n
    argon2id <memory_kib> <time_cost> <parallelism> <salt: 24 base64>\n
    <key id> <envelope: 88 base64>\n                                    one line a key

Rules:

* Each key is an envelope of its own under the passphrase's key, at a place that names its id and the line of the
  cost: neither can be changed, and a key can be taken out without the passphrase.
* A wrong passphrase and damaged bytes are not told apart.
* Which key wraps stands in the vault's row, not here.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from continuity.errors import DecryptionError, ForbiddenError, KeySourceError
from continuity.vault import cleartext, envelope, passphrase
from continuity.vault.keyring import KEYS_MAX, Keyring
from continuity.vault.passphrase import Cost
from continuity.vault.place import Place

HEAD: Final = b"atmem-sealed-keys 1\n"
WRONG: Final = "wrong_passphrase"
FILE_BYTES_MAX: Final = 4_096
_COST: Final = re.compile(rb"argon2id ([1-9][0-9]{0,7}) ([1-9][0-9]?) ([1-9][0-9]?) ([A-Za-z0-9+/]{22}==)\n")
_LINE: Final = re.compile(rb"([1-9][0-9]{0,9}) ([A-Za-z0-9+/]{87}=)\n")


@dataclass(frozen=True, slots=True)
class SealedKeys:
    """What such a file says. Holds no key in the clear.

    Attributes:
        cost: Of the passphrase.
        salt: 16 bytes.
        keys: Envelopes of 65 bytes by key id.
    """

    cost: Cost
    salt: bytes
    keys: dict[int, bytes] = field(repr=False)

    @property
    def key_ids(self) -> tuple[int, ...]:
        """Which keys are in it, lowest id first."""
        return tuple(sorted(self.keys))

    def content(self) -> bytes:
        """Spell it as a file."""
        lines = (b"%d %s\n" % (key_id, base64.b64encode(self.keys[key_id])) for key_id in self.key_ids)
        return HEAD + self._cost_line() + b"".join(lines)

    def opened(self, text: str) -> dict[int, bytes]:
        """Open all keys. Takes what the cost says.

        Returns:
            32 bytes each, by key id: to be put into a `Keyring` at once.

        Raises:
            ForbiddenError: ``wrong_passphrase``: it is not the passphrase, or the file was changed.
            MalformedError: The text can be no passphrase.
        """
        cipher = self._cipher(text)
        try:
            return {
                key_id: envelope.unseal(cipher, sealed, key_id=key_id, place=self._place(key_id))[0]
                for key_id, sealed in self.keys.items()
            }
        except DecryptionError:
            raise ForbiddenError("This is not the passphrase. Nothing was changed.", code=WRONG) from None

    def with_keys(self, text: str, keyring: Keyring, *, entropy: Callable[[int], bytes] = os.urandom) -> SealedKeys:
        """Seal the keys of another ring under the same passphrase, which must open this one first.

        Raises:
            ForbiddenError, MalformedError: As `opened`.
        """
        self.opened(text)
        return self._sealing(text, keyring, entropy)

    def without_key(self, key_id: int) -> SealedKeys:
        """Take one key out; needs no passphrase."""
        return SealedKeys(self.cost, self.salt, {other: self.keys[other] for other in self.keys if other != key_id})

    def _sealing(self, text: str, keyring: Keyring, entropy: Callable[[int], bytes]) -> SealedKeys:
        cipher = self._cipher(text)
        sealed = {
            key_id: envelope.seal(
                cipher, key, key_id=key_id, nonce=entropy(envelope.NONCE_BYTES), place=self._place(key_id)
            )
            for key_id, key in cleartext.export(keyring).items()
        }
        return SealedKeys(self.cost, self.salt, sealed)

    def _cipher(self, text: str) -> AESGCM:
        return AESGCM(passphrase.derive(text, salt=self.salt, cost=self.cost))

    def _cost_line(self) -> bytes:
        numbers = (self.cost.memory_kib, self.cost.time_cost, self.cost.parallelism)
        return b"argon2id %d %d %d %s\n" % (*numbers, base64.b64encode(self.salt))

    def _place(self, key_id: int) -> Place:
        return Place("sealed_keys", "", str(key_id), self._cost_line().decode())


def seal(
    keyring: Keyring, text: str, *, cost: Cost = passphrase.DEFAULT_COST, entropy: Callable[[int], bytes] = os.urandom
) -> SealedKeys:
    """Seal all keys of a ring under a new passphrase.

    Args:
        keyring: The master keys.
        text: The passphrase; `passphrase.check_new` decides whether it may be one.
        cost: What a guess shall cost.
        entropy: Answers so many random bytes as it is asked for.

    Raises:
        MalformedError: The passphrase must not be one. Nothing was sealed.
    """
    passphrase.check_new(text)
    return SealedKeys(cost, passphrase.new_salt(entropy), {})._sealing(text, keyring, entropy)  # noqa: SLF001 - own


def parse(content: bytes, *, name: str) -> SealedKeys:
    """Read a file of sealed keys; opens nothing.

    Args:
        content: All of the file.
        name: What to call it in the error.

    Raises:
        KeySourceError: It is not exactly of the documented form, or its cost is out of bounds.
    """
    lines = content.splitlines(keepends=True)
    cost = _COST.fullmatch(lines[1]) if len(lines) > 2 and lines[0] == HEAD else None  # noqa: PLR2004 - head, cost, key
    matches = [_LINE.fullmatch(line) for line in lines[2:]]
    if cost is None or None in matches or not len(matches) <= KEYS_MAX:
        raise _not_sealed_keys(name)
    keys = {int(match[1]): base64.b64decode(match[2]) for match in matches if match is not None}
    salt = base64.b64decode(cost[4])
    found = SealedKeys(Cost(int(cost[1]), int(cost[2]), int(cost[3])), salt, keys)
    # Written again it must be the same bytes: stray bits, an order, or a key id given twice would differ.
    if len(keys) != len(matches) or not found.cost.is_sound or found.content() != content:
        raise _not_sealed_keys(name)
    return found


def _not_sealed_keys(name: str) -> KeySourceError:
    return KeySourceError(f"{name} is not a complete file of sealed keys of format 1.")
