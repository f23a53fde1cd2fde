r"""The shred list: which partitions were destroyed, kept beside the key and outside the database.

Deleting a data key from the database is undone by an old backup of that database. This list is not in
the backup: a partition on it never opens again. Layout: ``FORMAT.md``.

    atmem-shred-list 1 <id, 64 hex>\n
    <partition_ix, 64 hex> <hash, 64 hex>\n          one line a partition, oldest first

Rules:

* Lines are only ever added, and each is durable before `ShredList.append` returns.
* A line's hash is SHA-256 over the hash before, the line's number and its partition_ix; the first one
  follows the hash of the head line. So a length and a hash (`ShredHead`) stand for all lines before.
* The database holds such a head too. A list that is shorter than that, or other, is refused: somebody
  put an old one back, and what was destroyed since would open again.
* A kill or a power cut can leave a piece of a last line. It was never acknowledged, so it is ignored and
  the next append takes its room, unless the database counted it: then it is damage, and refused.
* Asking costs one `os.stat`; the file is read again only when that differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from continuity.errors import IntegrityError, KeySourceError
from continuity.vault import files

INDEX_BYTES: Final = 32
HASH_BYTES: Final = 32

_HEAD: Final = re.compile(rb"atmem-shred-list 1 [0-9a-f]{64}\n")
_HEAD_BYTES: Final = 19 + 64 + 1
_LINE: Final = re.compile(rb"([0-9a-f]{64}) ([0-9a-f]{64})\n")
_LINE_BYTES: Final = 64 + 1 + 64 + 1
_SIZE: Final = 2
"""Where the size stands in a signature; what is before it says which file it is."""


@dataclass(frozen=True, slots=True)
class ShredHead:
    """How far a shred list goes: what the database keeps of it.

    Attributes:
        length: Number of partitions on the list.
        head: Hash of its last line (32 bytes); of the head line when the list is empty.
    """

    length: int
    head: bytes


def line_hash(before: bytes, number: int, partition_ix: bytes) -> bytes:
    """Chain one line to those before it.

    Args:
        before: Hash of the line before (32 bytes), or of the head line.
        number: The line's number, the first is 1.
        partition_ix: Whose line it is, 32 bytes.

    Returns:
        SHA-256 of ``before (32) | number (8, big endian) | partition_ix (32)``.
    """
    return hashlib.sha256(before + number.to_bytes(8, "big") + partition_ix).digest()


class ShredList:
    """One shred list file, shared by threads and by processes.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        """Read and verify the list.

        Args:
            path: The file, as `create` made it.

        Raises:
            KeySourceError: The file is missing or not private.
            IntegrityError: It is not a shred list, or its chain is broken.
        """
        self.path = path
        self._lock = Lock()
        self._hashes: list[bytes] = []  # [n] is the hash after n lines
        self._members: set[bytes] = set()
        self._signature: tuple[int, ...] = ()
        self._refresh()

    @classmethod
    def create(cls, path: Path) -> ShredList:
        """Make an empty list, 0600, durable before this returns.

        Args:
            path: A name not in use, beside the key file or where `ATMEM_SHRED_LIST` says.

        Returns:
            The list, with an id of its own: no other empty list has the same head.

        Raises:
            KeySourceError: The file exists, or cannot be made safely. Nothing is left behind.
        """
        files.create(path, lambda: b"atmem-shred-list 1 %s\n" % secrets.token_hex(HASH_BYTES).encode())
        return cls(path)

    @property
    def head(self) -> ShredHead:
        """How far the list goes now, lines of other processes included.

        Raises:
            KeySourceError: The file is gone or no longer private.
            IntegrityError: It was damaged, shortened or replaced.
        """
        self._refresh()
        with self._lock:
            return self._head()

    @property
    def length(self) -> int:
        """Number of partitions on the list now; errors as `head`."""
        return self.head.length

    def contains(self, partition_ix: bytes) -> bool:
        """Say whether a partition was destroyed.

        Args:
            partition_ix: Blind index of the partition, 32 bytes.

        Returns:
            Whether it is on the list, by whichever process. Costs one `os.stat` while the file is the same.

        Raises:
            KeySourceError: The file is gone or no longer private. Nothing may be opened then.
            IntegrityError: It was damaged, shortened or replaced.
        """
        self._refresh()
        return partition_ix in self._members

    def members(self) -> frozenset[bytes]:
        """Return the indexes of all partitions that were destroyed; errors as `head`."""
        self._refresh()
        with self._lock:
            return frozenset(self._members)

    def holds(self, other: ShredHead) -> bool:
        """Say whether another list, known by how far it goes, is this one or its beginning; errors as `head`."""
        self._refresh()
        with self._lock:
            return other.length < len(self._hashes) and self._hashes[other.length] == other.head

    def verify(self, recorded: ShredHead) -> None:
        """Compare the list with what the database knows of it.

        Args:
            recorded: Length and head of the vault's row.

        Raises:
            IntegrityError: The list is shorter than that, or another one. The vault must not open.
            KeySourceError: The file is gone or no longer private.
        """
        self._refresh()
        with self._lock:
            self._compare(recorded)

    def append(self, partition_ix: bytes, *, recorded: ShredHead) -> ShredHead:
        """Put a partition on the list for ever. Safe to repeat: one that is there is not added again.

        Args:
            partition_ix: Blind index of the partition, 32 bytes.
            recorded: Length and head of the vault's row, read just before.

        Returns:
            How far the list goes, all of it durable. The database keeps it in the transaction that
            destroys the data key, unless it has a longer one already.

        Raises:
            RuntimeError: `partition_ix` has another size.
            IntegrityError: The list is not the one that the database knows. Nothing was written.
            KeySourceError: The file is not private or cannot be written. The partition may or may not
                be on the list; repeat the call.
        """
        if len(partition_ix) != INDEX_BYTES:
            raise RuntimeError("a partition index has 32 bytes")
        try:
            with files.opened(self.path, os.O_RDWR) as descriptor, files.exclusive(descriptor), self._lock:
                self._read(descriptor)
                self._compare(recorded)
                if partition_ix in self._members:
                    # Who wrote it may have been killed before it was durable.
                    files.sync(descriptor)
                else:
                    self._write(descriptor, partition_ix)
                    self._read(descriptor)
                # Locked and written was the file that stood here at first: is it the one that is asked next?
                if _signature(self.path.lstat())[:_SIZE] != self._signature[:_SIZE]:
                    raise KeySourceError(f"{self.path} was replaced meanwhile.")
                return self._head()
        except OSError as exc:
            raise KeySourceError(f"{self.path} cannot be written: {exc.strerror}.") from exc

    def _head(self) -> ShredHead:
        return ShredHead(len(self._hashes) - 1, self._hashes[-1])

    def _compare(self, recorded: ShredHead) -> None:
        if len(self._hashes) <= recorded.length:
            raise IntegrityError(f"{self.path} is shorter than the database says: an older list was put back.")
        if self._hashes[recorded.length] != recorded.head:
            raise IntegrityError(f"{self.path} is not the shred list of this database.")

    def _refresh(self) -> None:
        """Read what is new, if one `os.stat` says that anything is."""
        try:
            if _signature(self.path.lstat()) == self._signature:
                return
            with files.opened(self.path, os.O_RDONLY) as descriptor, self._lock:
                self._read(descriptor)
        except OSError as exc:
            raise KeySourceError(f"{self.path} cannot be read: {exc.strerror}.") from exc

    def _read(self, descriptor: int) -> None:
        """Take in the lines not seen yet; all of them if the file is another. Needs the lock."""
        # Before the content: a line that is added meanwhile makes the next signature differ.
        signature = _signature(os.fstat(descriptor))
        if signature[_SIZE] < _end(self._hashes):
            raise IntegrityError(f"{self.path} became shorter than it was.")
        known = self._hashes if signature[:_SIZE] == self._signature[:_SIZE] else []
        added = _parse(files.read_from(descriptor, _end(known)), known)
        if added is None:
            raise IntegrityError(f"{self.path} is not an unbroken shred list of format 1.")
        hashes, members = added
        if not known and self._hashes and hashes[len(self._hashes) - 1 :][:1] != self._hashes[-1:]:
            raise IntegrityError(f"{self.path} was replaced by another list.")
        known.extend(hashes)
        self._hashes = known
        self._members.update(members)
        self._signature = signature

    def _write(self, descriptor: int, partition_ix: bytes) -> None:
        """Add one line after the last whole one, durably. Needs the lock and the file's own."""
        end = _end(self._hashes)
        digest = line_hash(self._hashes[-1], len(self._hashes), partition_ix)
        os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
        try:
            files.write_all(descriptor, b"%s %s\n" % (partition_ix.hex().encode(), digest.hex().encode()))
            files.sync(descriptor)
        except OSError:
            # A second sync would report success for pages that the first one lost: write it anew next time.
            with suppress(OSError):
                os.ftruncate(descriptor, end)
            raise


def _signature(found: os.stat_result) -> tuple[int, ...]:
    """What differs when the file was replaced (first two), grew (third) or was touched."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _end(hashes: list[bytes]) -> int:
    """Offset behind the lines whose hashes these are; the first hash is the head line's."""
    return _HEAD_BYTES + (len(hashes) - 1) * _LINE_BYTES if hashes else 0


def _parse(content: bytes, known: list[bytes]) -> tuple[list[bytes], list[bytes]] | None:
    """Read the lines that follow those of `known`; a torn last line is left out.

    Gives the new hashes (that of the head line first, if it is new) and the new indexes; None if
    `content` is not the rest of such a list.
    """
    hashes: list[bytes] = []
    members: list[bytes] = []
    if not known:
        head, content = content[:_HEAD_BYTES], content[_HEAD_BYTES:]
        if not _HEAD.fullmatch(head):
            return None
        hashes.append(hashlib.sha256(head).digest())
    before = (known or hashes)[-1]
    whole = len(content) - len(content) % _LINE_BYTES
    for offset in range(0, whole, _LINE_BYTES):
        line = content[offset : offset + _LINE_BYTES]
        # A power cut can leave the length of a last line without all of its bytes.
        if offset + _LINE_BYTES == len(content) and b"\0" in line:
            break
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        partition_ix, digest = (bytes.fromhex(part.decode()) for part in match.groups())
        if digest != line_hash(before, len(known) + len(hashes), partition_ix):
            return None
        hashes.append(digest)
        members.append(partition_ix)
        before = digest
    return hashes, members
