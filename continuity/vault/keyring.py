"""The master keys a process holds: usually one, two while a rotation is under way.

Rules:

* A keyring never changes; `with_key`, `with_primary` and `without_key` answer a new one.
* Exactly one key is primary: it alone wraps. The others only unwrap what rotation has not reached yet.
* The primary key cannot be dropped, and a key id cannot be given to a second key.
* What is printed are ids and which is primary. Keys are neither pickled nor copied, and no method
  hands them out: `cipher` gives what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NoReturn

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from continuity.errors import DecryptionError, KeySourceError
from continuity.vault.envelope import KEY_BYTES, KEY_ID_MAX

KEYS_MAX: Final = 16
"""Keys in one file, value or hand-over. A rotation needs two; more are what failed rotations leave behind."""


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """What may be told about a master key.

    Attributes:
        key_id: Its number.
        is_primary: Whether new data keys are wrapped under it.
    """

    key_id: int
    is_primary: bool


class Keyring:
    """Immutable set of master keys by number, one of them primary.

    Attributes:
        primary_id: Number of the key that wraps.
    """

    __slots__ = ("_keys", "primary_id")

    primary_id: int
    _keys: Mapping[int, bytes]

    def __init__(self, keys: Mapping[int, bytes], *, primary_id: int) -> None:
        """Take over `keys`.

        Args:
            keys: 32 bytes each, by key id (1 to 2^32 - 1).
            primary_id: The one that wraps.

        Raises:
            KeySourceError: A key of another size, an id out of range, or no key under `primary_id`.
        """
        object.__setattr__(self, "_keys", MappingProxyType(dict(keys)))
        object.__setattr__(self, "primary_id", primary_id)
        del keys  # an error carries this frame, and `self` does not show them
        problem = _problem(self._keys, primary_id)
        if problem:
            raise KeySourceError(problem)

    def cipher(self, key_id: int) -> AESGCM:
        """Give the cipher of one key.

        Args:
            key_id: Number of a master key.

        Returns:
            AES-256-GCM under that key; the key cannot be read out of it.

        Raises:
            DecryptionError: No such key here. No other is tried.
        """
        if key_id not in self._keys:
            raise DecryptionError
        return AESGCM(self._keys[key_id])

    def with_key(self, key_id: int, key: bytes) -> Keyring:
        """Add a key that only unwraps as yet.

        Args:
            key_id: A number not in use.
            key: 32 bytes.

        Returns:
            A new keyring with the same primary key.

        Raises:
            KeySourceError: As in the constructor.
            RuntimeError: The number is in use.
        """
        if key_id in self._keys:
            raise RuntimeError("a key id is never given to a second key")
        problem = _problem({key_id: key}, key_id)
        if problem:
            del key  # the error carries this frame
            raise KeySourceError(problem)
        return Keyring({**self._keys, key_id: key}, primary_id=self.primary_id)

    def with_primary(self, key_id: int) -> Keyring:
        """Let another key of the ring wrap from now on.

        Args:
            key_id: A key of this ring.

        Returns:
            A new keyring with the same keys.

        Raises:
            KeySourceError: No such key.
        """
        return Keyring(self._keys, primary_id=key_id)

    def without_key(self, key_id: int) -> Keyring:
        """Drop a key that nothing is wrapped under any more.

        Args:
            key_id: A key of this ring, not the primary one.

        Returns:
            A new keyring with the same primary key.

        Raises:
            RuntimeError: It is the primary key.
            KeySourceError: No such key.
        """
        if key_id == self.primary_id:
            raise RuntimeError("the primary key cannot be dropped")
        if key_id not in self._keys:
            raise KeySourceError("There is no master key of that id.")
        rest = {other: self._keys[other] for other in self._keys if other != key_id}
        return Keyring(rest, primary_id=self.primary_id)

    @property
    def key_ids(self) -> frozenset[int]:
        """Which keys there are."""
        return frozenset(self._keys)

    def info(self) -> tuple[KeyInfo, ...]:
        """Tell which keys there are.

        Returns:
            Id and status of each, lowest id first.
        """
        return tuple(KeyInfo(key_id, key_id == self.primary_id) for key_id in sorted(self._keys))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a keyring does not change."""
        raise AttributeError("a keyring is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: a keyring does not change."""
        raise AttributeError("a keyring is immutable")

    def __repr__(self) -> str:
        """Name the ids, the primary one first, and nothing else."""
        others = sorted(set(self._keys) - {self.primary_id})
        return f"<Keyring primary={self.primary_id} others={others}>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling and copying."""
        raise TypeError("a keyring cannot be pickled or copied")


def _problem(keys: Mapping[int, bytes], primary_id: int) -> str | None:
    """Say what is wrong with keys, without naming one."""
    if not all(1 <= key_id <= KEY_ID_MAX and len(key) == KEY_BYTES for key_id, key in keys.items()):
        return "A master key has 32 bytes and an id from 1 to 4294967295."
    if primary_id not in keys:
        return "The primary master key is not among the keys."
    return None
