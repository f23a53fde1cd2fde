"""Exports of evidence as files of a person: written whole and private, read back and proved. Needs no instance."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from continuity.errors import ContinuityError
from continuity.services import exporting


def lines(stream: BinaryIO, passphrase: str) -> Iterator[bytes]:
    """Give the lines of an encrypted export; see `exporting.opened_lines`."""
    return exporting.opened_lines(stream, passphrase)


def write(target: Path, body: bytes, *, may_replace: bool) -> None:
    """Write a file that its owner alone can read, under another name until it is whole.

    Raises:
        ContinuityError: There is such a file and it may not be replaced, or the disk does not take it. What was there
            is there.
    """
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        if may_replace:
            partial.replace(target)
        else:
            # Unlike a rename, a link never takes the place of a file.
            os.link(partial, target)
    except FileExistsError:
        raise ContinuityError(f"{target} is there already; --overwrite replaces it.", code="file_exists") from None
    except OSError as error:
        raise ContinuityError(f"{target} cannot be written: {error.strerror}.", code="file_unwritable") from None
    finally:
        with suppress(OSError):
            partial.unlink()
