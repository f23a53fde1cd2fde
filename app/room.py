"""Room on the disk of an SQLite database: below a floor nothing new is begun, so that what was granted can still end.

A full disk is met by the store as well, which then records nothing at all. The floor keeps that from happening while
attempts are out whose receipts must be kept.

Source: security.md F04, L12, P05.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from continuity.errors import StorageLowError

LOOK_S: Final = 0.25
"""How long one look at the disk is good for: some hundred decisions, each of a few kilobytes."""
_MEBIBYTE: Final = 1 << 20


def require_room(path: Path, floor_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """Return what raises `StorageLowError` while less than `floor_bytes` are free where `path` lies."""
    looked_s, free_bytes = float("-inf"), 0

    def require() -> None:
        nonlocal looked_s, free_bytes
        now_s = clock()
        if now_s - looked_s >= LOOK_S or free_bytes < floor_bytes:
            looked_s, free_bytes = now_s, shutil.disk_usage(path).free
        if free_bytes < floor_bytes:
            raise StorageLowError(
                f"The disk of the database has {free_bytes // _MEBIBYTE} MiB left, and nothing new is begun below "
                f"{floor_bytes // _MEBIBYTE} MiB. Nothing was done; receipts are still taken.", retry_after_s=5,
            )  # fmt: skip

    return require


def require_for(database_url: str, floor_bytes: int) -> Callable[[], None]:
    """Return the same for a database; on PostgreSQL, whose disk is another machine's, it never raises."""
    url = sa.make_url(database_url)
    if url.get_backend_name() != "sqlite" or not url.database or not floor_bytes:
        return _nothing
    return require_room(Path(url.database).parent, floor_bytes)


def _nothing() -> None:
    """Let everything pass."""
