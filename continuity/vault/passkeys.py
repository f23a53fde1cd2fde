"""Master keys in a file that a passphrase opens (`continuity.vault.sealedkeys`): a source, and what a lock leaves.

Rules:

* The file is private like a key file, though it holds no key in the clear.
* A passphrase is used once and kept by nobody: without one `PassphraseKeyProvider.load` raises `SealedError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from continuity.errors import KeySourceError, SealedError
from continuity.vault import files, sealedkeys
from continuity.vault.envelope import KEY_BYTES
from continuity.vault.keyring import Keyring
from continuity.vault.keys import FIRST_KEY_ID, next_after, with_new_key
from continuity.vault.passphrase import DEFAULT_COST, Cost, check_new
from continuity.vault.sealedkeys import SealedKeys


class SealedKeyFile:
    """A private file of sealed keys."""

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read yet."""
        self.path = path

    def read(self) -> SealedKeys:
        """Read the file after every check of `continuity.vault.files`; opens no key. Raises `KeySourceError`."""
        return sealedkeys.parse(files.read(self.path, most=sealedkeys.FILE_BYTES_MAX), name=str(self.path))

    def write(self, sealed: SealedKeys) -> None:
        """Put it in place of what is there, durably. Raises `KeySourceError`."""
        files.replace(self.path, sealed.content)

    def opened(self, text: str, *, primary_id: int | None = None) -> Keyring:
        """Open all keys; the highest number is primary without another word.

        Raises:
            ForbiddenError: ``wrong_passphrase``.
            KeySourceError: The file is missing, not private or damaged, or lacks the primary key.
            MalformedError: The text can be no passphrase.
        """
        sealed = self.read()
        return Keyring(sealed.opened(text), primary_id=primary_id or max(sealed.keys))


class PassphraseKeyProvider:
    """Master keys that wait for a passphrase at every start: ``instance/vault.sealed``."""

    kind: Final = "passphrase"

    __slots__ = ("_passphrase", "cost", "file")

    def __init__(self, path: Path, *, passphrase: str | None = None, cost: Cost = DEFAULT_COST) -> None:
        """Name the file, and give the passphrase if somebody has typed it.

        Args:
            path: The file.
            passphrase: Dropped by `forget`.
            cost: Of the passphrase of a file that is made now.
        """
        self.file = SealedKeyFile(path)
        self.cost = cost
        self._passphrase = passphrase

    def create(self, *, entropy: Callable[[int], bytes] = os.urandom) -> Keyring:
        """Make a new random master key and its file, durable before this returns.

        Raises:
            MalformedError: The passphrase must not be one. Nothing was made.
            SealedError: There is no passphrase. Nothing was made.
            KeySourceError: The file exists, or cannot be made safely. Nothing was made.
        """
        text = self._given()
        check_new(text)
        ring = Keyring({FIRST_KEY_ID: entropy(KEY_BYTES)}, primary_id=FIRST_KEY_ID)
        files.create(self.file.path, lambda: sealedkeys.seal(ring, text, cost=self.cost, entropy=entropy).content())
        return self.load()

    def load(self) -> Keyring:
        """Open the file.

        Raises:
            SealedError: There is no passphrase.
            ForbiddenError, KeySourceError, MalformedError: As `SealedKeyFile.opened`.
        """
        return self.file.opened(self._given())

    def forget(self) -> None:
        """Drop the passphrase."""
        self._passphrase = None

    def next_key_id(self, current: int) -> int:
        """See `RotatingKeys`; needs no passphrase."""
        ids = self.file.read().key_ids
        return next_after(Keyring({key_id: bytes(KEY_BYTES) for key_id in ids}, primary_id=ids[0]), current)

    def add(self, key_id: int) -> Keyring:
        """See `RotatingKeys`.

        Raises:
            SealedError: There is no passphrase.
        """
        text, sealed = self._given(), self.file.read()
        ring = Keyring(sealed.opened(text), primary_id=max(sealed.keys))
        if key_id not in ring.key_ids:
            self.file.write(sealed.with_keys(text, with_new_key(ring, key_id)))
        return self.load()

    def settle(self, key_id: int, *, keep: frozenset[int]) -> None:
        """See `RotatingKeys`; needs no passphrase."""
        sealed = self.file.read()
        if key_id not in sealed.keys:
            raise KeySourceError(f"{self.file.path} does not hold key {key_id}.")
        for other in frozenset(sealed.keys) - keep - {key_id}:
            sealed = sealed.without_key(other)
            self.file.write(sealed)

    def _given(self) -> str:
        if self._passphrase is None:
            raise SealedError("The vault is locked: nobody has given its passphrase.")
        return self._passphrase

    def __repr__(self) -> str:
        """Name the file and nothing else."""
        return f"<PassphraseKeyProvider {self.file.path}>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling and copying."""
        raise TypeError("a key provider cannot be pickled or copied")
