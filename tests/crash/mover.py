"""Moves an instance to PostgreSQL and dies at a step: ``python -m tests.crash.mover URL STEP``, -1 for not at all.

A step is the moment before a commit. Prints how many there were.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys

import sqlalchemy as sa

from app import moving
from app.config import load_settings
from continuity.store import moving as rows


def main() -> None:
    target, last = sys.argv[1], int(sys.argv[2])
    # So that a few rows are many pages.
    rows.ROWS = 3
    steps = itertools.count()
    taken = 0

    @sa.event.listens_for(sa.Engine, "commit")
    def _step(_connection: sa.Connection) -> None:
        nonlocal taken
        taken = next(steps)
        if taken == last:
            os.kill(os.getpid(), signal.SIGKILL)

    moved = moving.move(load_settings(os.environ), target, tell=lambda *_step: None)
    print(taken + 1, moved.rows, moved.written)


if __name__ == "__main__":
    main()
