r"""The anchor: how far the database went, kept beside the key and outside the database.

Whoever puts an older database back puts back everything in it that could tell. This file is not in it.
Layout, two slots of the same length, of which the one that goes further counts::

    atmem-anchor 1 <epoch, 20 digits> <seq, 20 digits> <hash, 64 hex> <mark_us, 20 digits> <check, 64 hex>\n

Rules:

* A slot's check is SHA-256 over what stands before it in the line: it finds a torn write, and no forger. Who can
  write here can write the key.
* Written is the slot that does not count, in place, and durable before `AnchorFile.write` returns: a power cut in
  the middle leaves the other one.
* An anchor never goes back, whichever process writes it.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.errors import IntegrityError, KeySourceError
from continuity.vault import files

if TYPE_CHECKING:
    from pathlib import Path

HASH_BYTES: Final = 32
NUMBER_MAX: Final = 10**20 - 1
_SLOT: Final = re.compile(
    rb"(atmem-anchor 1 ([0-9]{20}) ([0-9]{20}) ([0-9a-f]{64}) ([0-9]{20}) )([0-9a-f]{64})\n", re.ASCII
)
_SLOT_BYTES: Final = 15 + 21 + 21 + 65 + 21 + 65
_SLOTS: Final = 2


@dataclass(frozen=True, slots=True)
class Anchor:
    """How far a database went.

    Attributes:
        epoch: The vault's epoch; a restore that was meant begins a new one.
        seq: Sequence of the last entry of the audit log; 0 before the first.
        hash: Hash of that entry, 32 bytes.
        mark_us: The vault's clock mark, microseconds since 1970: decisions raise it, and leave no audit entry.
    """

    epoch: int
    seq: int
    hash: bytes
    mark_us: int

    @property
    def order(self) -> tuple[int, int, int]:
        """What the further one of two is told by."""
        return self.epoch, self.seq, self.mark_us


@dataclass(frozen=True, slots=True)
class AnchorFile:
    """The file of one instance, shared by threads and by processes.

    Attributes:
        path: A name beside the shred list.
    """

    path: Path

    def read(self) -> Anchor | None:
        """Return the anchor that was written last; None while there is no file.

        Raises:
            KeySourceError: The file is not private or cannot be read.
            IntegrityError: It is no anchor: neither slot is whole.
        """
        if files.is_unwritten(self.path):
            return None
        try:
            with files.opened(self.path, os.O_RDONLY) as descriptor:
                return self._furthest(descriptor)[1]
        except OSError as exc:
            raise KeySourceError(f"{self.path} cannot be read: {exc.strerror}.") from exc

    def write(self, anchor: Anchor) -> bool:
        """Keep an anchor, durably.

        Args:
            anchor: How far the database goes, read from it after its commit.

        Returns:
            Whether the file holds it now; False when what stands there goes as far or further.

        Raises:
            KeySourceError: The file is not private or cannot be written. What stood there stands.
            IntegrityError: The file is no anchor.
            RuntimeError: `anchor` is none.
        """
        line = _line(anchor)
        if files.is_unwritten(self.path):
            files.create(self.path, lambda: line * _SLOTS)
            return True
        try:
            with files.opened(self.path, os.O_RDWR) as descriptor, files.exclusive(descriptor):
                slot, kept = self._furthest(descriptor)
                if anchor.order <= kept.order:
                    return False
                os.lseek(descriptor, (1 - slot) * _SLOT_BYTES, os.SEEK_SET)
                files.write_all(descriptor, line)
                files.sync(descriptor)
                return True
        except OSError as exc:
            raise KeySourceError(f"{self.path} cannot be written: {exc.strerror}.") from exc

    def _furthest(self, descriptor: int) -> tuple[int, Anchor]:
        """Return the slot that counts, by number, and what it holds."""
        content = files.read_from(descriptor, 0)
        slots = [_anchor(content[at * _SLOT_BYTES : (at + 1) * _SLOT_BYTES]) for at in range(_SLOTS)]
        whole = [(at, slot) for at, slot in enumerate(slots) if slot is not None]
        if not whole or len(content) > _SLOTS * _SLOT_BYTES:
            raise IntegrityError(f"{self.path} is not an anchor of format 1.")
        return max(whole, key=lambda each: each[1].order)


def _line(anchor: Anchor) -> bytes:
    numbers = (anchor.epoch, anchor.seq, anchor.mark_us)
    if len(anchor.hash) != HASH_BYTES or not all(0 <= number <= NUMBER_MAX for number in numbers):
        raise RuntimeError("this is no anchor")
    told = b"atmem-anchor 1 %020d %020d %s %020d " % (
        anchor.epoch, anchor.seq, anchor.hash.hex().encode(), anchor.mark_us,
    )  # fmt: skip
    return b"%s%s\n" % (told, hashlib.sha256(told).hexdigest().encode())


def _anchor(line: bytes) -> Anchor | None:
    """Read one slot; None when it is not whole."""
    match = _SLOT.fullmatch(line)
    if match is None or hashlib.sha256(match[1]).hexdigest().encode() != match[6]:
        return None
    return Anchor(int(match[2]), int(match[3]), bytes.fromhex(match[4].decode()), int(match[5]))
