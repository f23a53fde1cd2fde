"""Master keys as a backup keeps them: the content of a key file, inside what a passphrase seals.

WARNING: `content` hands out key bytes, as `continuity.vault.cleartext` does. A backup alone asks for it, and seals at
once what it got.
"""

from __future__ import annotations

import os
from typing import Final

from continuity.errors import KeySourceError, SealedFileError
from continuity.vault import cleartext
from continuity.vault.keyring import KEYS_MAX, Keyring
from continuity.vault.keys import _file_content, _file_entries, _keyring
from continuity.vault.nonces import NonceSource
from continuity.vault.openkeys import OpenKeys

CONTENT_BYTES_MAX: Final = 4_096
"""More than any key file has."""


def content(keyring: Keyring) -> bytes:
    """Spell a ring as the key file of ``FORMAT.md``. Never to be logged, printed, kept or put into an error."""
    keys = cleartext.export(keyring)
    return _file_content([(key_id, key_id == keyring.primary_id, keys[key_id]) for key_id in sorted(keys)])


def opened(kept: bytes) -> Keyring:
    """Read what `content` gave.

    Raises:
        SealedFileError: It is no such content.
    """
    keyring = _keyring(_file_entries(kept))
    del kept  # an error carries this frame
    if keyring is None:
        raise SealedFileError("The file holds no complete master keys.")
    return keyring


def prove(keyring: Keyring, *, canary: bytes, wrapped_index_key: bytes) -> None:
    """Prove a ring to be that of a vault. Raises `KeySourceError`; `DecryptionError` for a changed index key."""
    OpenKeys(keyring, canary=canary, wrapped_index_key=wrapped_index_key, nonces=NonceSource(os.urandom))


def union(before: Keyring, after: Keyring, *, primary_id: int) -> Keyring:
    """Put two rings of one vault together, as they were before and after a copy that a rotation may have crossed.

    Args:
        before: The one.
        after: The other.
        primary_id: The key that wraps, as the copy says.

    Raises:
        KeySourceError: The key that wraps is in neither, or the same number means two keys.
    """
    keys = cleartext.export(after)
    problem = None
    for key_id, key in cleartext.export(before).items():
        if keys.setdefault(key_id, key) != key:
            problem = "The master keys were replaced while the backup was made. Make it again."
    if primary_id not in keys or len(keys) > KEYS_MAX:
        problem = "The master keys changed while the backup was made. Make it again."
    if problem is not None:
        del keys, key  # an error carries this frame
        raise KeySourceError(problem)
    return Keyring(keys, primary_id=primary_id)


def are_all_in(kept: Keyring, other: Keyring) -> bool:
    """Say whether another ring has every key of this one, under the same numbers."""
    there = cleartext.export(other)
    return all(there.get(key_id) == key for key_id, key in cleartext.export(kept).items())
