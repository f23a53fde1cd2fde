"""What statements cost on any machine: the steps that SQLite takes for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

STEPS = 100


def steps(engine: sa.Engine, action: Callable[[], Any]) -> int:
    """Return how many hundred steps SQLite takes for everything that `action` asks of an engine's connections.

    Those of fetching too: SQLite makes a row when it is fetched.
    """
    taken: list[int] = []
    watched: dict[int, Any] = {}

    def watch(_connection: Any, cursor: Any, *_: Any) -> None:
        watched[id(cursor.connection)] = cursor.connection
        cursor.connection.set_progress_handler(lambda: taken.append(1), STEPS)

    sa.event.listen(engine, "before_cursor_execute", watch)
    try:
        action()
    finally:
        sa.event.remove(engine, "before_cursor_execute", watch)
        for connection in watched.values():
            connection.set_progress_handler(None, 0)
    return len(taken)
