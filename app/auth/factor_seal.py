"""How the secrets of second factors are kept: sealed, and recovery codes as keyed hashes.

Rules:

* The keys are derived (HKDF-SHA-256, a purpose each) from the instance's secret key and not from the vault's: people
  sign in while the vault is locked, and whoever unlocks it signs in first (docs/adr/0016).
* A sealed secret names the key that sealed it; that one is tried and no other. The place is part of what is
  authenticated: the secret of one person does not open as another's.
* The newest key seals. Older ones only open, so that the key can be changed without anybody enrolling again.

Layout of a sealed secret, in bytes::

    0      1   format, 1
    1      8   id of the key: the first bytes of a hash of it
    9      12  nonce, random
    21     n   AES-256-GCM, with its tag of 16 bytes at the end

Source: security.md A14, S09; ASVS 6.5.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from continuity.errors import DecryptionError

_FORMAT: Final = b"\x01"
_KEY_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_HEAD_BYTES: Final = len(_FORMAT) + _KEY_ID_BYTES + _NONCE_BYTES
_KEY_BYTES: Final = 32
_SEALING: Final = b"atmem second factor: sealing v1"
_HASHING: Final = b"atmem second factor: recovery codes v1"
_NAMING: Final = b"atmem second factor: key id v1"
_PLACE: Final = b"auth_second_factors.sealed_secret"


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The instance's secret key, and those before it. `older` only open and verify; the newest of them is first."""

    current: bytes = field(repr=False)
    older: tuple[bytes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        # A text is a sequence too, of keys of one character each.
        if not isinstance(self.older, tuple):
            raise TypeError("Older keys are a tuple of keys.")

    @property
    def all(self) -> tuple[bytes, ...]:
        return (self.current, *self.older)


class FactorSeal:
    """Seals and opens secrets, and hashes recovery codes, of the people of one installation."""

    def __init__(self, keys: SecretKeys) -> None:
        self._sealing = {_key_id(key): AESGCM(_derived(key, _SEALING)) for key in reversed(keys.all)}
        self._current_id = _key_id(keys.current)
        self._hashing = [_derived(key, _HASHING) for key in keys.all]

    def seal(self, secret: str, *, user_pk: int) -> bytes:
        """Seal a person's secret under the newest key."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        head = _FORMAT + self._current_id + nonce
        return head + self._sealing[self._current_id].encrypt(nonce, secret.encode("ascii"), _bound(head, user_pk))

    def open(self, sealed: bytes, *, user_pk: int) -> str:
        """Return the secret. DecryptionError when it is another person's, was changed, or its key is not here."""
        head, body = sealed[:_HEAD_BYTES], sealed[_HEAD_BYTES:]
        key = self._sealing.get(head[len(_FORMAT) : len(_FORMAT) + _KEY_ID_BYTES])
        if key is None or head[:1] != _FORMAT or len(head) != _HEAD_BYTES:
            raise DecryptionError
        try:
            return key.decrypt(head[-_NONCE_BYTES:], body, _bound(head, user_pk)).decode("ascii")
        except InvalidTag:
            raise DecryptionError from None

    def is_outdated(self, sealed: bytes) -> bool:
        """Say whether an older key sealed it."""
        return sealed[len(_FORMAT) : len(_FORMAT) + _KEY_ID_BYTES] != self._current_id

    def code_hash(self, code: str, *, user_pk: int) -> bytes:
        """Return what is stored of a new recovery code."""
        return _code_hash(self._hashing[0], code, user_pk)

    def code_hashes(self, code: str, *, user_pk: int) -> list[bytes]:
        """Return what may be stored of a recovery code that somebody gives: one hash a key."""
        return [_code_hash(key, code, user_pk) for key in self._hashing]


def _derived(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=purpose).derive(key)


def _key_id(key: bytes) -> bytes:
    return hmac.digest(key, _NAMING, hashlib.sha256)[:_KEY_ID_BYTES]


def _code_hash(key: bytes, code: str, user_pk: int) -> bytes:
    return hmac.digest(key, user_pk.to_bytes(8, "big") + code.encode("utf-8", "surrogatepass"), hashlib.sha256)


def _bound(head: bytes, user_pk: int) -> bytes:
    """Return what a secret is bound to, each part with its length before it."""
    parts = (_PLACE, user_pk.to_bytes(8, "big"), head)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
