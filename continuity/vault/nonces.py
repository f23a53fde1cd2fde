"""Nonces of one key: random, never twice, not too many.

Rules:

* A nonce is twelve random bytes. A repeat under one key would give away both plaintexts and the
  authentication key, so a generator that repeats itself stops the write.
* Random nonces bound the number of seals a key may make: NIST SP 800-38D allows 2^32, we stop at half.
* Both guards see one object's life in one process. What bounds a key over all processes is the design
  around it: a workflow's partition ends with its revisions, and the master key seals once a partition.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from continuity.errors import VaultError
from continuity.vault.envelope import NONCE_BYTES

SEALS_PER_KEY_MAX: Final = 2**31

REMEMBERED_MAX: Final = 4_096
"""Nonces kept for comparison, 300 KB at most: a broken generator repeats itself at once or not at all."""


class NonceSource:
    """Draws the nonces of one key and refuses a repeat. Safe to share between threads."""

    __slots__ = ("_drawn", "_entropy", "_seen")

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        """Draw from `entropy`, which answers so many random bytes as it is asked for."""
        self._entropy = entropy
        self._seen: set[bytes] = set()
        self._drawn = count(1)

    def draw(self) -> bytes:
        """Take a fresh nonce.

        Returns:
            12 bytes that this object has neither drawn nor noted lately.

        Raises:
            VaultError: The generator repeated itself, or the key has sealed as often as it may.
                Nothing was sealed.
        """
        if next(self._drawn) > SEALS_PER_KEY_MAX:
            raise VaultError("This key has sealed as often as it may; rotate it.")
        nonce = self._entropy(NONCE_BYTES)
        if nonce in self._seen:
            raise VaultError("The random generator of this machine repeats itself; nothing was written.")
        self.note(nonce)
        return nonce

    def note(self, nonce: bytes) -> None:
        """Remember a nonce that is in use under this key, as seen in a value that opened."""
        if len(self._seen) >= REMEMBERED_MAX:
            self._seen.clear()
        self._seen.add(nonce)
