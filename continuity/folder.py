"""One directory held open, and the few things a publisher may do in it.

Rules:

* The directory is opened once, component by component, following no symbolic link. Every later name is a
  single component looked up in what was opened, wherever its path leads by then.
* Nothing is ever replaced: a new file is written under a name of its own, made durable, and then given
  its real name only if that is free.
* Only regular files of one name count. A symbolic link, FIFO, device, folder or hard link is foreign.

Where the platform cannot look names up in an open directory (Windows), names are joined to the resolved
path, which `Folder.is_in_place` compares with the directory that was opened.
"""

# pathlib cannot look a name up in an open directory.
# ruff: noqa: PTH100, PTH104, PTH116, PTH118, PTH206, PTH208

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from continuity.errors import ContinuityError

CAN_HOLD_OPEN: Final = (
    hasattr(os, "O_NOFOLLOW")
    and hasattr(os, "O_DIRECTORY")
    and {os.open, os.stat, os.unlink, os.link} <= os.supports_dir_fd
    and os.listdir in os.supports_fd
)
"""Whether names can be looked up in an open directory."""

_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY: Final = getattr(os, "O_DIRECTORY", 0)
_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
_PASSING: Final = getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY | _NOFOLLOW | _CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC | getattr(os, "O_BINARY", 0)
_READ: Final = os.O_RDONLY | _NOFOLLOW | _CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

Identity = tuple[int, int]
"""Device and inode."""


class ForeignFileError(ContinuityError):
    """A name leads to something that no publisher of ours has made. It was not changed."""

    code = "foreign_file"


class Folder:
    """A directory held open. Close it, or use it in a ``with`` block.

    Attributes:
        path: Its absolute path, in which nothing is a symbolic link.
    """

    def __init__(self, path: str | os.PathLike[str], *, hold_open: bool = CAN_HOLD_OPEN) -> None:
        """Open an existing directory.

        Args:
            path: Its absolute path as `os.path.realpath` gave it when it was reviewed. It is not
                resolved again: a link that has been put into it since then is not followed.
            hold_open: False to work by path, as where nothing else can be done.

        Raises:
            OSError: Not there, not a directory, not readable, or with a symbolic link in its path.
        """
        self.path = os.path.abspath(path)
        if not hold_open and os.path.realpath(self.path, strict=True) != self.path:
            raise NotADirectoryError("The output's path holds a symbolic link.")
        self._fd = _open_directory(self.path) if hold_open else None
        found = os.stat(self.path, follow_symlinks=False) if self._fd is None else os.fstat(self._fd)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError("The output must be a directory.")
        self._identity = _identity(found)

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the directory; nothing else can be done with it afterwards."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def is_in_place(self) -> bool:
        """Say whether the path still leads, without symbolic links, to the directory that was opened."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
            return os.path.realpath(self.path, strict=True) == self.path and _identity(found) == self._identity
        except OSError:
            return False

    def names(self) -> list[str]:
        """Return all names in the directory, in no order."""
        return os.listdir(self.path if self._fd is None else self._fd)

    def read(self, name: str, *, most_bytes: int) -> bytes | None:
        """Read a regular file that has this one name.

        Args:
            name: One component.
            most_bytes: The longest a file of ours is.

        Returns:
            All of its bytes; None if there is no such name.

        Raises:
            ForeignFileError: A symbolic link, FIFO, device or folder; a file with another name as well,
                or a longer one.
            OSError: The file cannot be read.
        """
        try:
            # Looked at before it is opened: opening a device can already be an effect.
            if not stat.S_ISREG(os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False).st_mode):
                raise ForeignFileError("The name is taken by something that is not a regular file.")
            fd = os.open(self._at(name), _READ, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > most_bytes:
                raise ForeignFileError("The name is taken by a file that is not of this publisher.")
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise ForeignFileError("The name is taken by a file that is growing.")
        return content

    def write_new(self, name: str, content: bytes) -> Identity:
        """Write a file that did not exist, mode 0600, and make its content durable.

        Args:
            name: One component.
            content: All of it.

        Returns:
            What identifies the file, whatever name it gets.

        Raises:
            FileExistsError: The name is taken.
            OSError: Not all of it could be written; the name is free again as far as that was possible.
        """
        fd = os.open(self._at(name), _NEW, 0o600, dir_fd=self._fd)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(fd)
                return _identity(os.fstat(fd))
        except BaseException:
            self.remove(name)
            raise

    def give_name(self, written: str, name: str) -> None:
        """Give a written file its real name if that is free; nothing is replaced.

        Where a file can have two names it keeps `written` too, for `remove`.

        Raises:
            FileExistsError: The name is taken. Nothing has changed.
            OSError: The file system's refusal.
        """
        if os.name == "nt":
            # Renaming never replaces there, and works where a second name is not possible.
            os.rename(self._at(written), self._at(name))
        else:
            os.link(self._at(written), self._at(name), src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def is_file(self, name: str, identity: Identity) -> bool:
        """Say whether `name` is the regular file of that identity."""
        try:
            found = os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and _identity(found) == identity

    def remove(self, name: str) -> None:
        """Remove a name if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._fd)

    def sync(self) -> None:
        """Make the names durable, where the platform can."""
        if self._fd is not None:
            os.fsync(self._fd)

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name) if self._fd is None else name


@contextmanager
def folder_made(path: str | os.PathLike[str]) -> Iterator[None]:
    """Make a directory, mode 0700, with those above it that are missing, for a block that relies on it.

    When the block fails, or not all of the path can be made, what was made is removed again, unless
    something lies in it by then.

    Raises:
        OSError: It cannot be made. The block was not entered and nothing is left behind.
    """
    folder = Path(path)
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except BaseException:
        for each in missing:
            # Not made, or in use already: what went wrong is the thing to tell.
            with suppress(OSError):
                each.rmdir()
        raise


def why_unusable(path: str, error: OSError) -> str:
    """Return one sentence on why an output directory cannot be opened, and what to do about it."""
    if isinstance(error, FileNotFoundError):
        return f"The output directory is not there: make {path} and run again."
    return f"The output directory {path} cannot be opened: {reason(error)}."


def reason(error: OSError) -> str:
    """Return what the system says of an error, for the end of a sentence."""
    return (error.strerror or str(error) or type(error).__name__).removesuffix(".")


def _open_directory(path: str) -> int:
    """Open an absolute path component by component, so that no link can be put in its way."""
    parts = [part for part in path.split(os.sep) if part]
    fd = os.open(os.sep, _PASSING)
    try:
        for part in parts:
            deeper = os.open(part, _PASSING, dir_fd=fd)
            os.close(fd)
            fd = deeper
        return os.open(".", os.O_RDONLY | _DIRECTORY | _NOFOLLOW | _CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
