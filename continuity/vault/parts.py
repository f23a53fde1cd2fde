"""Several files in one sealed file, with a manifest at its end. Layout: ``FORMAT.md``.

Writing::

    parts = PartWriter(SealedWriter(...))
    parts.add("head.json", [b"{}"])
    parts.finish()

Reading, in the order of writing::

    for name, blocks in PartReader(SealedReader(...)):
        for block in blocks:
            ...

Rules:

* The size of a part need not be known before: it goes in blocks.
* The manifest names every part with its length and SHA-256. It is compared when everything has been read: what was
  written down of a part before that may be wrong, and counts for nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final

from continuity.errors import SealedFileError
from continuity.vault.sealed_file import SealedReader, SealedWriter

PARTS_MAX: Final = 256
BLOCK_BYTES_MAX: Final = 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")
_MANIFEST: Final = "manifest"


class PartWriter:
    """Writes parts, one after another."""

    def __init__(self, writer: SealedWriter) -> None:
        """Take over `writer`, which nothing was written to."""
        self._writer = writer
        self._manifest: list[tuple[str, int, bytes]] = []

    def add(self, name: str, blocks: Iterable[bytes]) -> int:
        """Write one part.

        Args:
            name: A name that no part has yet: 1 to 120 of ``a-z 0-9 . _ -``.
            blocks: Its content; whatever raises there comes out, and the file must be thrown away.

        Returns:
            Its length in bytes.

        Raises:
            RuntimeError: A name that cannot be, or one too many.
            OSError: As `SealedWriter.write`.
        """
        is_known = any(name == known for known, _, _ in self._manifest)
        if not _NAME.fullmatch(name) or name == _MANIFEST or is_known or len(self._manifest) == PARTS_MAX:
            raise RuntimeError("a part has a name of its own, and there are not many")
        size, digest = self._write(name, blocks)
        self._manifest.append((name, size, digest))
        return size

    def finish(self) -> None:
        """Write the manifest and the last chunk. Raises as `SealedWriter.finish`."""
        self._write(_MANIFEST, [_manifest(self._manifest)])
        self._writer.finish()

    def _write(self, name: str, blocks: Iterable[bytes]) -> tuple[int, bytes]:
        spelled, size, digest = name.encode(), 0, hashlib.sha256()
        self._writer.write(bytes((len(spelled),)) + spelled)
        for block in blocks:
            for start in range(0, len(block), BLOCK_BYTES_MAX):
                piece = block[start : start + BLOCK_BYTES_MAX]
                self._writer.write(len(piece).to_bytes(4, "big"))
                self._writer.write(piece)
                digest.update(piece)
                size += len(piece)
        self._writer.write(bytes(4))
        return size, digest.digest()


class PartReader:
    """Reads parts, each of which must be read to its end before the next."""

    def __init__(self, reader: SealedReader) -> None:
        """Take over `reader`, which nothing was read from."""
        self._reader = reader
        self._found: list[tuple[str, int, bytes]] = []

    def __iter__(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Give name and content of each part.

        Raises:
            SealedFileError: As `SealedReader`; also ``sealed_file_damaged`` when the parts are not those of the
                manifest. Nothing that came out before may be used then.
            OSError: As `SealedReader.read`.
        """
        while True:
            name = self._reader.read_exactly(self._reader.read_exactly(1)[0]).decode("ascii", "replace")
            if name == _MANIFEST:
                break
            if not _NAME.fullmatch(name) or len(self._found) == PARTS_MAX:
                raise _damaged()
            read = len(self._found)
            yield name, self._blocks(name)
            if len(self._found) == read:
                raise RuntimeError("a part is read to its end before the next one")
        if b"".join(self._blocks(name)) != _manifest(self._found) or self._reader.read(1):
            raise _damaged()

    def _blocks(self, name: str) -> Iterator[bytes]:
        size, digest = 0, hashlib.sha256()
        while length := int.from_bytes(self._reader.read_exactly(4), "big"):
            if length > BLOCK_BYTES_MAX:
                raise _damaged()
            block = self._reader.read_exactly(length)
            digest.update(block)
            size += length
            yield block
        if name != _MANIFEST:
            self._found.append((name, size, digest.digest()))


def _manifest(parts: list[tuple[str, int, bytes]]) -> bytes:
    """Spell what there is: a line a part, in their order."""
    return b"".join(b"%s %d %s\n" % (name.encode(), size, digest.hex().encode()) for name, size, digest in parts)


def _damaged() -> SealedFileError:
    return SealedFileError("The file is damaged or was changed.")
