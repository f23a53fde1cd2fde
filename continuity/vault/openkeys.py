"""The keys of an open vault: master keys by number, the index key, and the latch that a lock closes."""

from __future__ import annotations

import hmac
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from continuity.errors import DecryptionError, KeySourceError
from continuity.vault import envelope
from continuity.vault.keyring import Keyring
from continuity.vault.nonces import NonceSource
from continuity.vault.partition import Latch
from continuity.vault.place import Place, length_prefixed

CANARY: Final = b"atmem-vault-canary-1"
CANARY_PLACE: Final = Place("continuity_vault", "", "1", "sealed_canary")
INDEX_KEY_PLACE: Final = Place("continuity_vault", "", "1", "wrapped_index_key")


class OpenKeys:
    """What an open vault holds and a locked one has dropped. For `Vault` alone.

    Attributes:
        key_id: The master key that was primary.
        latch: Open until the vault is locked.
    """

    __slots__ = ("_ciphers", "_hmac", "_nonces", "key_id", "latch")

    def __init__(self, keyring: Keyring, *, canary: bytes, wrapped_index_key: bytes, nonces: NonceSource) -> None:
        self.key_id = keyring.primary_id
        self.latch = Latch()
        self._ciphers = {info.key_id: keyring.cipher(info.key_id) for info in keyring.info()}
        self._nonces = nonces
        self._check(canary)
        index_key = self._unwrap(
            wrapped_index_key, key_id=envelope.named_key_id(wrapped_index_key), place=INDEX_KEY_PLACE
        )
        self._hmac = hmac.new(index_key, digestmod="sha256")

    @property
    def key_ids(self) -> frozenset[int]:
        """Numbers of the master keys."""
        return frozenset(self._ciphers)

    def adopt(self, keyring: Keyring) -> None:
        """Take the master keys of a ring that are not here yet."""
        added = {key_id: keyring.cipher(key_id) for key_id in keyring.key_ids - self.key_ids}
        # Another one and not a changed one: other threads read it.
        self._ciphers = {**self._ciphers, **added}

    def index(self, purpose: str, values: tuple[str | bytes | int, ...]) -> bytes:
        """Make a blind index; see `Vault.index`."""
        digest = self._hmac.copy()
        digest.update(length_prefixed(purpose.encode()) + b"".join(map(_spelled, values)))
        return digest.digest()

    def wrap(self, key: bytes, *, key_id: int, place: Place) -> bytes:
        """Seal 32 bytes or the canary under a master key that is here."""
        return envelope.seal(self._ciphers[key_id], key, key_id=key_id, nonce=self._nonces.draw(), place=place)

    def rewrap(self, wrapped: bytes, *, key_id: int, new_key_id: int, place: Place) -> bytes:
        """Seal what one master key wraps under another, and prove that it opens; raises `DecryptionError`."""
        key = self._unwrap(wrapped, key_id=key_id, place=place)
        made = self.wrap(key, key_id=new_key_id, place=place)
        if not hmac.compare_digest(self._unwrap(made, key_id=new_key_id, place=place), key):
            raise DecryptionError
        return made

    def unwrap_key(self, wrapped: bytes, *, key_id: int, place: Place) -> AESGCM:
        """Open a data key; raises `DecryptionError`."""
        return AESGCM(self._unwrap(wrapped, key_id=key_id, place=place))

    def _unwrap(self, wrapped: bytes, *, key_id: int, place: Place) -> bytes:
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise DecryptionError
        plaintext, _ = envelope.unseal(cipher, wrapped, key_id=key_id, place=place)
        return plaintext

    def _check(self, canary: bytes) -> None:
        """Prove by the canary that the master key is this vault's."""
        try:
            self._unwrap(canary, key_id=envelope.named_key_id(canary), place=CANARY_PLACE)
        except DecryptionError:
            raise KeySourceError("The master key is not that of this vault, or the vault's row was changed.") from None


def key_place(partition_id: str) -> Place:
    """Where a wrapped data key stands. With the envelope's key id it binds partition and master key."""
    return Place("continuity_partitions", partition_id, partition_id, "wrapped_key")


def _spelled(value: str | bytes | int) -> bytes:
    """Spell an indexed value so that no other value, of whatever type, has the same bytes."""
    if isinstance(value, bytes):
        return b"b" + length_prefixed(value)
    if isinstance(value, str):
        return b"s" + length_prefixed(value.encode())
    return b"i" + length_prefixed(b"%d" % value)
