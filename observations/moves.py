"""Where things stood in a list before their first time moved, so that who is reading the list meets each once.

Lists are in the order of first times, and an event may come that is earlier than all before it. A cursor pins the
last move that had happened when its first page was read, and whatever has moved since stands where it stood then.
Moves are kept as long as a cursor is good, and until the next move of the same workflow.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity.errors import MalformedError
from observations import schema
from observations.cursors import LIFETIME_US

MOVED_MOST: Final = 1_000
"""Places that may move while a list is being read; after more of them the reader begins again."""


def note(connection: Connection, workflow_pk: int, attempt_id: str, *, was_us: int, now_us: int) -> None:
    """Keep where something stood; `attempt_id` is empty for the workflow."""
    moves = schema.moves
    stale = sa.delete(moves).where(moves.c.workflow_pk == workflow_pk, moves.c.moved_us < now_us - LIFETIME_US)
    connection.execute(stale)
    row = {"workflow_pk": workflow_pk, "attempt_id": attempt_id, "was_us": was_us, "moved_us": now_us}
    connection.execute(sa.insert(moves), row)


def newest(connection: Connection) -> int:
    """Return the last move, for a cursor to pin."""
    return int(connection.execute(sa.select(sa.func.max(schema.moves.c.move_pk))).scalar_one() or 0)


def moved_workflows(connection: Connection, pin: int) -> dict[int, int]:
    """Return where workflows of any scope stood that have moved since `pin`, by their number.

    Raises:
        MalformedError: Too many have; the cursor is no longer good.
    """
    found: dict[int, int] = _moved(connection, schema.moves.c.workflow_pk, schema.moves.c.attempt_id == "", pin=pin)
    return found


def moved_attempts(connection: Connection, workflow_pk: int, pin: int) -> dict[str, int]:
    """Return where attempts of a workflow stood that have moved since `pin`, by their id; see `moved_workflows`."""
    moves = schema.moves
    is_of = sa.and_(moves.c.workflow_pk == workflow_pk, moves.c.attempt_id != "")
    found: dict[str, int] = _moved(connection, moves.c.attempt_id, is_of, pin=pin)
    return found


def _moved(connection: Connection, name: sa.ColumnElement[Any], is_of: sa.ColumnElement[bool], *, pin: int) -> Any:
    moves = schema.moves
    statement = (
        sa.select(name.label("name"), sa.func.max(moves.c.was_us).label("was_us"))
        .where(is_of, moves.c.move_pk > pin)
        .group_by(name)
        .limit(MOVED_MOST + 1)
    )
    found = {row.name: row.was_us for row in connection.execute(statement)}
    if len(found) > MOVED_MOST:
        raise MalformedError("cursor is of a list that has changed too much since.")
    return found
