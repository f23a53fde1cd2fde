"""WARNING: this module alone hands out the bytes of master keys. Whatever it returns opens everything.

Who imports it seals at once what it got: the files of sealed keys, the hand-over to another process, a key service,
a backup. An import contract names them.
"""

from __future__ import annotations

from continuity.vault.keyring import Keyring


def export(keyring: Keyring) -> dict[int, bytes]:
    """Give the keys of a ring.

    Args:
        keyring: The ring.

    Returns:
        32 bytes each, by key id. Never to be logged, printed, kept or put into an error.
    """
    return dict(keyring._keys)  # noqa: SLF001 - the one marked exit
