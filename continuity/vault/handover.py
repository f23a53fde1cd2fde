r"""Master keys on their way to a serving process that has dropped them. Layout: ``FORMAT.md``.

A serving process cannot be told a key through a file or a pipe of its own: whoever unlocks is another program, or
another worker. So each server makes a key pair in memory before it forks; the public half lies in the instance's
private folder, and what is left there for it opens with the private half alone, which no file ever holds.

    version (1) = 1 | ephemeral public key (32) | nonce (12) | ciphertext | tag (16)

The plaintext is one entry a key: id (4, big endian), key (32). The AES-256-GCM key is HKDF-SHA-256 over the X25519
secret, with both public keys as salt; the associated data is the version and both public keys.
"""

from __future__ import annotations

import os
from typing import Final, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from continuity.errors import DecryptionError
from continuity.vault import cleartext
from continuity.vault.keyring import KEYS_MAX, Keyring

PUBLIC_BYTES: Final = 32
_VERSION: Final = b"\x01"
_INFO: Final = b"atmem-handover-1"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_ID_BYTES: Final = 4
_ENTRY_BYTES: Final = _ID_BYTES + 32
_HEAD_BYTES: Final = 1 + PUBLIC_BYTES + _NONCE_BYTES


class Receiver:
    """The private half, for as long as its process lives; inherited by forked workers."""

    __slots__ = ("_private", "public")

    public: bytes
    """32 bytes for whoever has keys to hand over."""

    def __init__(self, private: X25519PrivateKey | None = None) -> None:
        """Draw a new pair; another private key is for tests."""
        self._private = private or X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def opened(self, sealed: bytes) -> dict[int, bytes]:
        """Open what was left for this process.

        Returns:
            32 bytes each, by key id: to be put into a `Keyring` at once.

        Raises:
            DecryptionError: It was left for another one, or changed.
        """
        content = len(sealed) - _HEAD_BYTES - _TAG_BYTES
        if sealed[:1] != _VERSION or content < _ENTRY_BYTES or content % _ENTRY_BYTES:
            raise DecryptionError
        if content > KEYS_MAX * _ENTRY_BYTES:
            raise DecryptionError
        ephemeral, nonce = sealed[1 : 1 + PUBLIC_BYTES], sealed[1 + PUBLIC_BYTES : _HEAD_BYTES]
        try:
            secret = self._private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
            plaintext = _cipher(secret, ephemeral, self.public).decrypt(
                nonce, sealed[_HEAD_BYTES:], _associated(ephemeral, self.public)
            )
        except (InvalidTag, ValueError):
            raise DecryptionError from None
        entries = [plaintext[offset : offset + _ENTRY_BYTES] for offset in range(0, content, _ENTRY_BYTES)]
        return {int.from_bytes(entry[:_ID_BYTES], "big"): entry[_ID_BYTES:] for entry in entries}

    def __repr__(self) -> str:
        """Say nothing of either half."""
        return "<Receiver>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling and copying."""
        raise TypeError("a private key cannot be pickled or copied")


def seal(
    keyring: Keyring, public: bytes, *, ephemeral: X25519PrivateKey | None = None, nonce: bytes | None = None
) -> bytes:
    """Seal the keys of a ring for one process.

    Args:
        keyring: The master keys.
        public: The public half of its `Receiver`, from the instance's private folder.
        ephemeral: Another private key than a fresh one is for tests, as is `nonce`.
        nonce: 12 bytes.

    Raises:
        DecryptionError: `public` is no such key.
    """
    ours = ephemeral or X25519PrivateKey.generate()
    drawn = os.urandom(_NONCE_BYTES) if nonce is None else nonce
    mine = ours.public_key().public_bytes_raw()
    try:
        secret = ours.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise DecryptionError from None
    keys = cleartext.export(keyring)
    plaintext = b"".join(key_id.to_bytes(_ID_BYTES, "big") + keys[key_id] for key_id in sorted(keys))
    return _VERSION + mine + drawn + _cipher(secret, mine, public).encrypt(drawn, plaintext, _associated(mine, public))


def _associated(ephemeral: bytes, public: bytes) -> bytes:
    return _VERSION + ephemeral + public


def _cipher(secret: bytes, ephemeral: bytes, public: bytes) -> AESGCM:
    return AESGCM(HKDF(algorithm=hashes.SHA256(), length=32, salt=ephemeral + public, info=_INFO).derive(secret))
