"""The bytes of a sealed value. The same in words and with an example: ``FORMAT.md``.

    version (1) = 1 | key_id (4, big endian) | nonce (12) | ciphertext (as long as the plaintext) | tag (16)

Rules:

* AES-256-GCM is the only cipher and there is no plaintext form: bytes that are not an envelope fail.
* The associated data is the first five bytes of the envelope followed by the place, so version and
  key id are authenticated as well.
* The key is chosen by whoever calls, never searched for: an envelope that names another key fails
  without a try.
* Whatever is wrong, the error is the same `DecryptionError` and says nothing of the cause.
* Bounds are checked before anything is sliced.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from continuity.errors import DecryptionError
from continuity.vault.place import Place

VERSION: Final = 1
KEY_ID_MAX: Final = 2**32 - 1
HEADER_BYTES: Final = 5
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32

OVERHEAD_BYTES: Final = HEADER_BYTES + NONCE_BYTES + TAG_BYTES
"""How much longer an envelope is than its plaintext; also the size of the smallest one."""

PLAINTEXT_BYTES_MAX: Final = 16 * 1024 * 1024
"""64 times the largest definition; a stored value above it was not written by this package."""

WRAPPED_KEY_BYTES: Final = OVERHEAD_BYTES + KEY_BYTES
"""Exact size of an envelope that holds a key."""

_NONCE_END: Final = HEADER_BYTES + NONCE_BYTES


def header(key_id: int) -> bytes:
    """Spell the first five bytes of an envelope.

    Args:
        key_id: Number of the sealing key, 0 to 2^32 - 1.

    Returns:
        ``version (1) | key_id (4, big endian)``.
    """
    return bytes((VERSION,)) + key_id.to_bytes(4, "big")


def pack(*, key_id: int, nonce: bytes, sealed: bytes) -> bytes:
    """Put an envelope together. Does no cryptography.

    Args:
        key_id: Number of the sealing key, 0 to 2^32 - 1.
        nonce: 12 bytes, never used before under this key.
        sealed: Ciphertext and tag, as AES-GCM gives them.

    Returns:
        The envelope, ``len(sealed) + 17`` bytes.
    """
    return header(key_id) + nonce + sealed


def unpack(envelope: object) -> tuple[int, bytes, bytes]:
    """Take an envelope apart. Does no cryptography, so nothing in the result is proven yet.

    Args:
        envelope: What a column held; anything but well-formed bytes is refused.

    Returns:
        Key id, nonce (12 bytes), ciphertext with tag (16 bytes or more).

    Raises:
        DecryptionError: Not bytes, too short, absurdly long, or of an unknown version.
    """
    if not isinstance(envelope, bytes):
        raise DecryptionError
    if not OVERHEAD_BYTES <= len(envelope) <= OVERHEAD_BYTES + PLAINTEXT_BYTES_MAX:
        raise DecryptionError
    if envelope[0] != VERSION:
        raise DecryptionError
    key_id = int.from_bytes(envelope[1:HEADER_BYTES], "big")
    return key_id, envelope[HEADER_BYTES:_NONCE_END], envelope[_NONCE_END:]


def named_key_id(envelope: object) -> int:
    """Read which key an envelope claims to be sealed under, to choose the one key to try.

    Args:
        envelope: What a column held.

    Returns:
        The key id, not yet proven.

    Raises:
        DecryptionError: As `unpack`.
    """
    return unpack(envelope)[0]


def seal(cipher: AESGCM, plaintext: bytes, *, key_id: int, nonce: bytes, place: Place) -> bytes:
    """Encrypt a value for one place.

    Args:
        cipher: The key of number `key_id`.
        plaintext: Any bytes, at most `PLAINTEXT_BYTES_MAX`.
        key_id: Written into the envelope and authenticated.
        nonce: 12 bytes, never used before under this key.
        place: Where alone the value will open.

    Returns:
        An envelope, 33 bytes longer than `plaintext`.

    Raises:
        RuntimeError: `plaintext` is too long to be read back. Nothing was sealed.
    """
    if len(plaintext) > PLAINTEXT_BYTES_MAX:
        raise RuntimeError("a value above the size of one envelope must be split by its owner")
    sealed = cipher.encrypt(nonce, plaintext, header(key_id) + place.associated_data())
    return pack(key_id=key_id, nonce=nonce, sealed=sealed)


def unseal(cipher: AESGCM, envelope: object, *, key_id: int, place: Place) -> tuple[bytes, bytes]:
    """Decrypt a value at its place.

    Args:
        cipher: The key of number `key_id`.
        envelope: What the column held.
        key_id: The only key number that is acceptable.
        place: Where the value was found.

    Returns:
        The plaintext, and the nonce (12 bytes) that it was sealed with.

    Raises:
        DecryptionError: Not an envelope, of another key, changed, or sealed for another place.
    """
    named_key_id, nonce, sealed = unpack(envelope)
    if named_key_id != key_id:
        raise DecryptionError
    try:
        return cipher.decrypt(nonce, sealed, header(key_id) + place.associated_data()), nonce
    except InvalidTag:
        raise DecryptionError from None
