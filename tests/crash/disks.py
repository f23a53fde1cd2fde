"""A small disk that a test fills, empties and makes read-only.

As root it is a file system of its own. Without the right to mount one, a process is kept from writing instead:
no file of it may grow, which its database meets as a failed write, and a folder's mode takes the place of a
read-only mount.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = 4_096


class Disk:
    """A file system in memory. `folder` is where it is mounted."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        _mount("-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "none", str(folder))

    def fill(self, _process: int, *, but_bytes: int = 0) -> None:
        """Leave so many bytes free."""
        with (self.folder / "filling").open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(_BLOCK))
            except OSError:
                stream.truncate(stream.tell() - but_bytes)

    def empty(self, _process: int) -> None:
        (self.folder / "filling").unlink()

    def file_limit(self, _free_bytes: int) -> int:
        """Return how far a file of a new process may grow, when so much is free."""
        return resource.RLIM_INFINITY

    def make_read_only(self) -> None:
        """Needs that nobody has a file open for writing."""
        _mount("-o", "remount,ro", str(self.folder))

    def make_writable(self) -> None:
        _mount("-o", "remount,rw", str(self.folder))

    def remove(self) -> None:
        # Lazily: a process that a failed test left behind must not keep it.
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class LimitedDisk(Disk):
    """A folder, and a limit on the process that writes into it."""

    def __init__(self, folder: Path, _size_bytes: int) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)

    def fill(self, process: int, *, but_bytes: int = 0) -> None:
        """Limit a process that runs; a new one is started with `file_limit`."""
        if not process:
            return
        _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1 + but_bytes, most))

    def empty(self, process: int) -> None:
        if not process:
            return
        _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (most, most))

    def file_limit(self, free_bytes: int) -> int:
        return free_bytes

    def make_read_only(self) -> None:
        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(0o500 if path.is_dir() else 0o400)

    def make_writable(self) -> None:
        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)

    def remove(self) -> None:
        self.make_writable()


@contextmanager
def disk(folder: Path, size_bytes: int = 8 * 1024 * 1024) -> Iterator[Disk]:
    """Give a disk of that size for as long as the block lasts."""
    made = (Disk if can_mount(folder.with_name("probe")) else LimitedDisk)(folder, size_bytes)
    try:
        yield made
    finally:
        made.remove()


def can_mount(folder: Path) -> bool:
    """Say whether this process may mount."""
    if os.geteuid() != 0:
        return False
    folder.mkdir(exist_ok=True)
    try:
        _mount("-t", "tmpfs", "-o", "size=64k", "none", str(folder))
    except subprocess.CalledProcessError:
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
