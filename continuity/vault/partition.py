"""The data key of one partition: a workflow, a thread, an evidence run, the audit log, the settings.

Rules:

* The key itself is inside the cipher object and cannot be read back; nothing here prints, copies or
  pickles it.
* A partition has one data key, number 1 in its envelopes. Only a partition's own places can be sealed.
* Locking the vault stops every data key opened under it, kept or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from continuity.errors import SealedError
from continuity.vault import envelope
from continuity.vault.nonces import NonceSource
from continuity.vault.place import Place

DATA_KEY_ID: Final = 1
"""The key id of envelopes under a data key. A partition never has a second one in format 1."""


class Latch:
    """Whether the vault is still open, shared by the keys that were opened under it."""

    __slots__ = ("is_open",)

    def __init__(self) -> None:
        """Start open; closing it is final."""
        self.is_open = True

    def check(self) -> None:
        """Let nothing through once the vault is locked.

        Raises:
            SealedError: The vault has been locked. Nothing has happened.
        """
        if not self.is_open:
            raise SealedError("The vault is locked.")


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as it is stored: sealed under a master key.

    Attributes:
        key_id: Number of the master key.
        wrapped: An envelope of 65 bytes.
    """

    key_id: int
    wrapped: bytes = field(repr=False)


class PartitionKey:
    """Seals and opens the values of one partition. Made by `Vault`, by nobody else.

    Attributes:
        partition_id: The partition whose data key this is.
    """

    __slots__ = ("_cipher", "_latch", "_nonces", "partition_id")

    def __init__(self, partition_id: str, *, cipher: AESGCM, latch: Latch, entropy: Callable[[int], bytes]) -> None:
        """Hold `cipher` as the data key of `partition_id` for as long as `latch` is open."""
        self.partition_id = partition_id
        self._cipher = cipher
        self._latch = latch
        self._nonces = NonceSource(entropy)

    def seal(self, plaintext: bytes, *, place: Place) -> bytes:
        """Encrypt a value for one place of this partition.

        Args:
            plaintext: Any bytes, at most 16 MiB.
            place: Where alone the value will open; its `partition_id` is this one's.

        Returns:
            An envelope (``FORMAT.md``), 33 bytes longer than `plaintext` and never the same twice.

        Raises:
            SealedError: The vault has been locked.
            VaultError: The random generator repeats itself, or the key is worn out.
            RuntimeError: The place is another partition's, or the value is too long.
                In no case was anything sealed.
        """
        self._latch.check()
        if place.partition_id != self.partition_id:
            raise RuntimeError("a value is sealed under the key of its own partition")
        return envelope.seal(self._cipher, plaintext, key_id=DATA_KEY_ID, nonce=self._nonces.draw(), place=place)

    def open(self, sealed: bytes, *, place: Place) -> bytes:
        """Decrypt a value of this partition.

        Args:
            sealed: What the column held. NULL or another type fails like any other damage.
            place: Where it was found.

        Returns:
            The bytes that were sealed for just this place.

        Raises:
            SealedError: The vault has been locked.
            DecryptionError: The value is not an envelope, was changed, or was sealed under another key
                or for another place. Which of these is never told.
        """
        self._latch.check()
        plaintext, nonce = envelope.unseal(self._cipher, sealed, key_id=DATA_KEY_ID, place=place)
        self._nonces.note(nonce)
        return plaintext

    def __repr__(self) -> str:
        """Name the partition and nothing else."""
        return f"<PartitionKey {self.partition_id}>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling and copying."""
        raise TypeError("a key cannot be pickled or copied")
