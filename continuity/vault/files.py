"""Files that must be private: the key file and the shred list.

Rules (V09 of the security requirements):

* A file is opened once and judged by its descriptor, so that what was checked is what is read:
  regular, one link, owned by the user who runs the program, mode 0600 or 0400, not a symbolic link,
  in a folder that nobody else can write to.
* It is created with 0600 from the first instant, never over something that is there, and is durable
  (file and folder) before anybody is told of it. An empty file is what a killed creation leaves: it holds
  nothing, and the next creation takes its place.
* Where the system has no such owners and modes (Windows) only those two checks fall away.
* Every error is a `KeySourceError` that names the file and the rule.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import contextmanager, suppress
from typing import Final

from continuity.errors import KeySourceError

if sys.platform == "win32":  # pragma: no cover
    import msvcrt
else:
    import fcntl

from collections.abc import Callable, Iterator
from pathlib import Path

MODES: Final = frozenset({0o600, 0o400})
_CREATE_MODE: Final = 0o600
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_CHUNK_BYTES: Final = 1024 * 1024

# O_NONBLOCK keeps the opening of a FIFO from waiting for ever; on a regular file it means nothing.
_OPEN_FLAGS: Final = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


def effective_user_id() -> int | None:
    """Say who runs this program.

    Returns:
        The effective user id; None where files have no POSIX owner and mode.
    """
    return os.geteuid() if os.name == "posix" else None


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a private file and hold every check before handing it over.

    Args:
        path: The file.
        flags: ``os.O_RDONLY`` or ``os.O_RDWR``.

    Yields:
        A descriptor, closed at the end.

    Raises:
        KeySourceError: The file cannot be opened or breaks a rule of this module. Nothing was read.
    """
    if path.is_symlink():
        raise KeySourceError(f"{path} is a symbolic link; name the file itself.")
    try:
        descriptor = os.open(path, flags | _OPEN_FLAGS)
    except OSError as exc:
        raise KeySourceError(f"{path} cannot be opened: {exc.strerror}.") from exc
    try:
        problem = _problem(os.fstat(descriptor), path.parent.stat())
        if problem:
            raise KeySourceError(f"{path} {problem}.")
        yield descriptor
    finally:
        os.close(descriptor)


def _problem(file: os.stat_result, parent: os.stat_result) -> str | None:
    """Name the first rule that a file breaks."""
    if not stat.S_ISREG(file.st_mode):
        return "is not a regular file"
    if file.st_nlink != 1:
        return "has more than one name (hard link)"
    user_id = effective_user_id()
    if user_id is None:
        return None
    if file.st_uid != user_id:
        return "belongs to another user"
    if stat.S_IMODE(file.st_mode) not in MODES:
        return "must have mode 0600 or 0400"
    if parent.st_mode & _OTHERS_WRITE:
        return "lies in a folder that others can write to"
    return None


def is_unwritten(path: Path) -> bool:
    """Say whether `create` has yet to make a file: there is none, or an empty one."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def create(path: Path, make_content: Callable[[], bytes]) -> None:
    """Create a private file and make it durable.

    Args:
        path: A name that `is_unwritten`; its folder exists.
        make_content: Gives all of the file. Called only once the empty file is there, so that a secret
            does not even exist when that fails.

    Raises:
        KeySourceError: The name is in use, the folder is writable for others, or the file cannot be
            written. Nothing is left behind.
    """
    try:
        descriptor = _claimed(path)
    except OSError as exc:
        raise KeySourceError(f"{path} cannot be created: {exc.strerror}.") from exc
    problem = _fill(descriptor, path, make_content) or _synced(path.parent)
    if problem:
        with suppress(OSError):
            path.unlink()
        raise KeySourceError(f"{path} {problem}.")


def replace(path: Path, make_content: Callable[[], bytes]) -> None:
    """Put new content in place of a private file, whole or not at all, durable before this returns.

    Args:
        path: A private file, or a name not in use; its folder exists.
        make_content: Gives all of the file from now on; a function, so that no error carries a secret.

    Raises:
        KeySourceError: What is there breaks a rule of this module, or the folder cannot be written. What was there
            before stands.
    """
    if path.exists() or path.is_symlink():
        with opened(path, os.O_RDONLY):
            pass
    partial = partial_of(path)
    # Of a process that was killed at it: nobody was told of what it holds.
    destroy(partial)
    create(partial, make_content)
    try:
        partial.replace(path)
    except OSError as exc:
        destroy(partial)
        raise KeySourceError(f"{path} cannot be written: {exc.strerror}.") from exc
    problem = _synced(path.parent)
    if problem:
        raise KeySourceError(f"{path} {problem}.")


def partial_of(path: Path) -> Path:
    """Return the name under which `replace` writes first; a killed process leaves such a file."""
    return path.with_name(f"{path.name}.new")


def is_wiped(path: Path) -> bool:
    """Say whether a file of text is what a killed `destroy` has left: overwritten in part or whole.

    Raises:
        KeySourceError: It cannot be read, or is not private.
    """
    with opened(path, os.O_RDONLY) as descriptor:
        return b"\0" in read_from(descriptor, 0)


def destroy(path: Path) -> None:
    """Overwrite a file of ours and remove its name, durably. One that is not there is no error.

    A file system or disk that writes elsewhere keeps the old bytes until it uses their place again.

    Raises:
        KeySourceError: It cannot be removed, or is not a private file of ours. It is still there.
    """
    if not (path.exists() or path.is_symlink()):
        return
    try:
        with opened(path, os.O_RDWR) as descriptor:
            write_all(descriptor, bytes(os.fstat(descriptor).st_size))
            sync(descriptor)
        path.unlink()
    except OSError as exc:
        raise KeySourceError(f"{path} cannot be removed: {exc.strerror}.") from exc
    problem = _synced(path.parent)
    if problem:
        raise KeySourceError(f"{path} {problem}.")


def read(path: Path, *, most: int) -> bytes:
    """Read a private file of at most so many bytes.

    Raises:
        KeySourceError: It is missing, breaks a rule of this module, or is larger: then it is not ours.
    """
    with opened(path, os.O_RDONLY) as descriptor:
        # Above the limit it is not ours: do not read a huge file to say so.
        if os.fstat(descriptor).st_size > most:
            raise KeySourceError(f"{path} is too large to be what it should be.")
        return read_from(descriptor, 0)


def _claimed(path: Path) -> int:
    """Open an empty file of ours for writing, locked until it is closed; make it, or take the one that is there."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS, _CREATE_MODE)
        problem = None
    except FileExistsError:
        if not is_unwritten(path):
            raise
        descriptor = os.open(path, os.O_WRONLY | _OPEN_FLAGS)
        problem = _problem(os.fstat(descriptor), path.parent.stat())
    is_ours = False
    try:
        is_ours = problem is None and _is_still_empty(descriptor)
    finally:
        if not is_ours:
            os.close(descriptor)
    if not is_ours:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    return descriptor


def _is_still_empty(descriptor: int) -> bool:
    """Lock a file and say whether no other creation was faster between its opening and the lock."""
    _lock(descriptor)
    found = os.fstat(descriptor)
    return found.st_size == 0 and found.st_nlink > 0


def _fill(descriptor: int, path: Path, make_content: Callable[[], bytes]) -> str | None:
    """Check, write, sync and close a file that was just created; say what went wrong.

    It answers and does not raise, since an error would carry the frame that holds the content.
    """
    try:
        if effective_user_id() is not None:
            os.fchmod(descriptor, _CREATE_MODE)  # a umask can have taken away our own right to read
        problem = _problem(os.fstat(descriptor), path.parent.stat())
        if problem is None:
            write_all(descriptor, make_content())
            sync(descriptor)
    except OSError as exc:
        problem = f"cannot be written: {exc.strerror}"
    finally:
        os.close(descriptor)
    return problem


def _synced(folder: Path) -> str | None:
    """Make the names in a folder durable; say what went wrong. Windows does that by itself."""
    if effective_user_id() is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as exc:
        return f"cannot be made durable: {exc.strerror}"
    return None


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes at the descriptor's position.

    Args:
        descriptor: Open for writing.
        content: The bytes.

    Raises:
        OSError: As the system gives it; a part may have been written.
    """
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def sync(descriptor: int) -> None:
    """Make everything written to a file durable, by whichever process.

    Args:
        descriptor: An open file.

    Raises:
        OSError: As the system gives it; what was written may be lost, even if a second try succeeds.
    """
    os.fsync(descriptor)


def read_from(descriptor: int, offset: int) -> bytes:
    """Read from `offset` to the end of the file.

    Args:
        descriptor: Open for reading; its position moves.
        offset: Bytes to leave out at the start.

    Returns:
        The rest, empty if there is none.

    Raises:
        OSError: As the system gives it.
    """
    os.lseek(descriptor, offset, os.SEEK_SET)
    return b"".join(iter(lambda: os.read(descriptor, _CHUNK_BYTES), b""))


@contextmanager
def exclusive(descriptor: int) -> Iterator[None]:
    """Keep other processes out of the same block, by a lock that ends with the process.

    Args:
        descriptor: An open file; the lock belongs to this opening of it.

    Yields:
        Nothing, with the lock held.

    Raises:
        OSError: The file system has no locks.
    """
    if sys.platform == "win32":  # pragma: no cover
        # A byte far behind the end: locked bytes cannot be read by others there.
        os.lseek(descriptor, 2**30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        try:
            yield
        finally:
            os.lseek(descriptor, 2**30, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        _lock(descriptor)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _lock(descriptor: int) -> None:
    """Wait for a lock that lasts until the file is closed. On Windows `exclusive` alone locks."""
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX)
