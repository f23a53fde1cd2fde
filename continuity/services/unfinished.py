"""Deletions that were interrupted, of whatever kind: finished one after another, a damaged one in nobody's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from continuity.errors import ConflictError, DecryptionError, IntegrityError, VaultError

BATCH: Final = 50
"""How many ids are looked for at once, beside those that are known to be damaged."""


def finish_each(find: Callable[[int], Sequence[str]], finish: Callable[[str], object]) -> int:
    """Finish everything that was begun.

    Args:
        find: Answers at most so many ids of what is begun and not finished.
        finish: Finishes one; `ConflictError` says that another process has done it.

    Returns:
        How many were finished here.

    Raises:
        SealedError: The vault is locked; the rest is finished after it is unlocked.
        VaultError: One is damaged, or nobody began its deletion; the others are finished.
    """
    finished, damaged = 0, dict[str, VaultError]()
    while True:
        # Damaged ones may come first every time, and must not be all that is found.
        wanted = BATCH + len(damaged)
        ids = find(wanted)
        left = [each for each in ids if each not in damaged]
        for each in left:
            try:
                finished += finish_one(each, finish)
            except (DecryptionError, IntegrityError) as error:
                damaged[each] = error
        if len(ids) < wanted or not left:
            break
    for problem in damaged.values():
        raise problem
    return finished


def finish_one(identifier: str, finish: Callable[[str], object]) -> int:
    """Finish one; 0 when another process has finished it. Raises what `finish` raises."""
    try:
        finish(identifier)
    except ConflictError:
        return 0
    return 1
