"""What statements cost on any machine: the steps that SQLite takes for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

STEPS = 100


def steps(engine: sa.Engine, action: Callable[[], Any]) -> int:
    """Return how many hundred steps SQLite takes for everything that `action` asks of an engine's connections."""
    taken = []

    def watch(_connection: Any, cursor: Any, *_: Any) -> None:
        cursor.connection.set_progress_handler(lambda: taken.append(1), STEPS)

    def leave(_connection: Any, cursor: Any, *_: Any) -> None:
        cursor.connection.set_progress_handler(None, 0)

    listeners = (("before_cursor_execute", watch), ("after_cursor_execute", leave))
    for name, listener in listeners:
        sa.event.listen(engine, name, listener)
    try:
        action()
    finally:
        for name, listener in listeners:
            sa.event.remove(engine, name, listener)
    return len(taken)
