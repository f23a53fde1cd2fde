"""A file that only a passphrase opens: backups and exports. Layout: ``FORMAT.md``.

Writing; the file is nothing before `SealedWriter.finish`::

    writer = SealedWriter(stream, passphrase, purpose="backup")
    writer.write(b"...")
    writer.finish()

Reading; what comes out is proven, and all of it is there once `SealedReader.read` answered ``b""``::

    reader = SealedReader(stream, passphrase, purpose="backup")
    while content := reader.read(65_536):
        ...

Rules:

* One chunk is in memory at a time, written or read, however long the file is.
* A chunk opens at its own place in its own file alone: the key is the file's, the nonce is the chunk's number and
  whether it is the last one, the associated data is the head. None can be left out, doubled, moved or added.
* Sizes and the price of the passphrase are compared with bounds before memory is taken for them: a file may come
  from anybody.
* What is wrong with a file is said as far as it can be told: not ours, for another purpose, cut off, damaged, or
  another passphrase. None of these gives away more than the file itself does.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import struct
from collections.abc import Callable
from typing import BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from continuity.errors import SealedFileError
from continuity.vault import passphrase as passphrases
from continuity.vault.passphrase import DEFAULT_COST, Cost

MAGIC: Final = b"atmem-sealed-1\r\n"
"""A line end of two bytes: a transfer as text breaks the first line, and is told by it."""
CHUNK_BYTES: Final = 1024 * 1024
CHUNK_BYTES_MAX: Final = 4 * CHUNK_BYTES
_CHUNK_BYTES_MIN: Final = 1_024
_WORK_KIB_MAX: Final = 8 * 1024 * 1024
"""Memory times passes of the passphrase: half a minute of one processor."""
TAG_BYTES: Final = 16

_PLAIN: Final = struct.Struct(">16s16sIIII16s")
"""Magic, purpose, memory in KiB, passes, lanes, bytes of a chunk, salt."""
_HASH_BYTES: Final = 32
HEAD_BYTES: Final = _PLAIN.size + 2 * _HASH_BYTES
_PURPOSE: Final = re.compile(r"[a-z]{1,16}")
_LAST: Final = 1 << 31
_FRAME: Final = struct.Struct(">I")
_COUNT_BYTES: Final = 11


class SealedWriter:
    """Seals what it is given into a stream. One thread at a time.

    Attributes:
        size_bytes: How much content was written.
    """

    def __init__(
        self, stream: BinaryIO, passphrase: str, *, purpose: str, cost: Cost = DEFAULT_COST,
        entropy: Callable[[int], bytes] = os.urandom, chunk_bytes: int = CHUNK_BYTES,
    ) -> None:  # fmt: skip
        """Write the head; takes the time and memory of `cost`.

        Args:
            stream: Where the file goes, from its position on. It is neither flushed nor closed here.
            passphrase: As it was typed; `passphrase.check_new` is for the caller.
            purpose: What the file is for, 1 to 16 of a to z.
            cost: The price of one guess.
            entropy: Answers so many random bytes as it is asked for.
            chunk_bytes: Content of a chunk.

        Raises:
            RuntimeError: A purpose that cannot be.
            MalformedError: A passphrase that cannot be.
            OSError: The stream cannot be written.
        """
        if not _PURPOSE.fullmatch(purpose):
            raise RuntimeError("the purpose of a sealed file is 1 to 16 letters")
        salt = passphrases.new_salt(entropy)
        plain = _PLAIN.pack(
            MAGIC, purpose.encode(), cost.memory_kib, cost.time_cost, cost.parallelism, chunk_bytes, salt
        )
        self._keys = _Keys(passphrase, salt=salt, cost=cost)
        self._head = plain + hashlib.sha256(plain).digest() + self._keys.check(plain)
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self._waiting = bytearray()
        self._number = 0
        self._is_finished = False
        self.size_bytes = 0
        stream.write(self._head)

    def write(self, content: bytes | memoryview) -> None:
        """Add content.

        Raises:
            OSError: The stream cannot be written. What there is of the file opens as one that was cut off.
            RuntimeError: The file was finished.
        """
        if self._is_finished:
            raise RuntimeError("a finished file takes no more")
        self.size_bytes += len(content)
        view = memoryview(content)
        while view:
            # A whole chunk is kept until there is more: it may be the last one.
            if len(self._waiting) == self._chunk_bytes:
                self._seal(is_last=False)
            room = self._chunk_bytes - len(self._waiting)
            self._waiting += view[:room]
            view = view[room:]

    def finish(self) -> None:
        """Write the last chunk. Making the file durable is for whoever opened it.

        Raises:
            OSError: The stream cannot be written. What there is of the file opens as one that was cut off.
            RuntimeError: The file was finished.
        """
        if self._is_finished:
            raise RuntimeError("a finished file takes no more")
        self._seal(is_last=True)
        self._is_finished = True

    def _seal(self, *, is_last: bool) -> None:
        content = bytes(self._waiting)
        self._stream.write(_frame(len(content), is_last=is_last))
        self._stream.write(self._keys.cipher.encrypt(_nonce(self._number, is_last=is_last), content, self._head))
        self._number += 1
        self._waiting.clear()


class SealedReader:
    """Opens what `SealedWriter` wrote. One thread at a time."""

    def __init__(self, stream: BinaryIO, passphrase: str, *, purpose: str) -> None:
        """Read the head and try the passphrase.

        Args:
            stream: The file, at its beginning.
            passphrase: As it was typed.
            purpose: What the file must be for.

        Raises:
            SealedFileError: ``sealed_file_foreign, sealed_file_truncated, sealed_file_damaged, sealed_file_purpose,
                sealed_file_unbearable`` or ``wrong_passphrase``. Memory was taken for the last one alone.
            MalformedError: A passphrase that cannot be.
            OSError: The stream cannot be read.
        """
        self._stream = stream
        self._head = _read(stream, HEAD_BYTES)
        plain = self._head[: _PLAIN.size]
        cost, salt, self._chunk_bytes = _parsed(self._head, purpose)
        self._keys = _Keys(passphrase, salt=salt, cost=cost)
        if not hmac.compare_digest(self._keys.check(plain), self._head[-_HASH_BYTES:]):
            raise SealedFileError("The passphrase is not that of this file.", code="wrong_passphrase")
        self._open = memoryview(b"")
        self._number = 0
        self._is_at_end = False

    def read(self, size: int) -> bytes:
        """Give the next bytes, at most `size` and at least one unless this is the end.

        Returns:
            Proven content; empty once the whole file was read and proven.

        Raises:
            SealedFileError: ``sealed_file_truncated`` or ``sealed_file_damaged``: whatever was read before must be
                thrown away.
            OSError: The stream cannot be read.
        """
        while not self._open and not self._is_at_end:
            self._open = memoryview(self._next_chunk())
        part, self._open = self._open[:size], self._open[size:]
        return bytes(part)

    def read_exactly(self, size: int) -> bytes:
        """Give the next `size` bytes. The caller has compared `size` with a bound.

        Raises:
            SealedFileError: As `read`; ``sealed_file_damaged`` also when the content ends before.
            OSError: The stream cannot be read.
        """
        parts, missing = list[bytes](), size
        while missing:
            part = self.read(missing)
            if not part:
                raise _damaged()
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def drain(self) -> None:
        """Read and prove the rest. Raises as `read`."""
        while self.read(self._chunk_bytes):
            pass

    def _next_chunk(self) -> bytes:
        (frame,) = _FRAME.unpack(_read(self._stream, _FRAME.size))
        is_last, size = bool(frame & _LAST), frame & ~_LAST
        # Before it is read: the size is anybody's.
        if size > self._chunk_bytes or (size < self._chunk_bytes and not is_last):
            raise _damaged()
        sealed = _read(self._stream, size + TAG_BYTES)
        try:
            content = self._keys.cipher.decrypt(_nonce(self._number, is_last=is_last), sealed, self._head)
        except InvalidTag:
            raise _damaged() from None
        self._number += 1
        if is_last:
            if self._stream.read(1):
                raise _damaged()
            self._is_at_end = True
        return content


class _Keys:
    """What a passphrase stands for in one file."""

    __slots__ = ("_check_key", "cipher")

    def __init__(self, passphrase: str, *, salt: bytes, cost: Cost) -> None:
        stretched = passphrases.derive(passphrase, salt=salt, cost=cost)
        # Two keys for two purposes; the check also keeps one file from opening under two passphrases.
        self.cipher = AESGCM(hmac.digest(stretched, b"atmem-sealed-1 content", "sha256"))
        self._check_key = hmac.digest(stretched, b"atmem-sealed-1 check", "sha256")

    def check(self, plain: bytes) -> bytes:
        return hmac.digest(self._check_key, plain, "sha256")


def _parsed(head: bytes, purpose: str) -> tuple[Cost, bytes, int]:
    """Take a head apart and refuse whatever must not be acted upon."""
    magic, named, memory_kib, time_cost, parallelism, chunk_bytes, salt = _PLAIN.unpack(head[: _PLAIN.size])
    if magic != MAGIC:
        raise SealedFileError("This is no sealed file of format 1.", code="sealed_file_foreign")
    plain, digest = head[: _PLAIN.size], head[_PLAIN.size : -_HASH_BYTES]
    if hashlib.sha256(plain).digest() != digest:
        raise _damaged()
    found = named.rstrip(b"\0").decode("ascii", "replace")
    if found != purpose:
        told = found if _PURPOSE.fullmatch(found) else "unknown"
        raise SealedFileError(
            f"This sealed file is of another kind: {told}, not {purpose}.", code="sealed_file_purpose"
        )
    cost = Cost(memory_kib=memory_kib, time_cost=time_cost, parallelism=parallelism)
    is_bearable = cost.is_sound and memory_kib * time_cost <= _WORK_KIB_MAX
    if not is_bearable or not _CHUNK_BYTES_MIN <= chunk_bytes <= CHUNK_BYTES_MAX:
        raise SealedFileError(
            "The file asks for more memory or time than any that we write; it was not opened.",
            code="sealed_file_unbearable",
        )
    return cost, salt, chunk_bytes


def _read(stream: BinaryIO, size: int) -> bytes:
    """Read so many bytes; that there are fewer means that somebody cut the file off, or that it is none of ours."""
    parts, missing = list[bytes](), size
    while missing:
        part = stream.read(missing)
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    content = b"".join(parts)
    if not missing:
        return content
    if size == HEAD_BYTES and not content.startswith(MAGIC):
        raise SealedFileError("This is no sealed file of format 1.", code="sealed_file_foreign")
    raise SealedFileError("The file ends before it is complete: it was cut off.", code="sealed_file_truncated")


def _frame(size: int, *, is_last: bool) -> bytes:
    return _FRAME.pack(size | (_LAST if is_last else 0))


def _nonce(number: int, *, is_last: bool) -> bytes:
    """Spell the place of a chunk. The key is this file's alone, so none is ever used twice under it."""
    return number.to_bytes(_COUNT_BYTES, "big") + bytes((is_last,))


def _damaged() -> SealedFileError:
    return SealedFileError("The file is damaged or was changed.", code="sealed_file_damaged")
