"""Which tables a database has: the revision that it stands at, and whether that is this program's.

What moves a database from one revision to the next is `app.migrating`; only who needs that loads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sqlalchemy as sa

MIGRATIONS: Final = Path(__file__).resolve().parent.parent / "migrations"
_MOVING: Final = "moving-"
_MARK_CHARS: Final = 24
_VERSION: Final = sa.table("alembic_version", sa.column("version_num", sa.String))


class SchemaError(Exception):
    """The tables of the database are not those of this program. The message says what to do."""


class SchemaTooOldError(SchemaError):
    """Revisions are missing, or everything is: ``atmem db upgrade`` brings them."""


class SchemaTooNewError(SchemaError):
    """The database was made by a newer program. Nothing has happened."""


class SchemaMovingError(SchemaError):
    """A vault is being moved into the database, and not all of it is there."""


def newest() -> str:
    """Return the newest revision that this program knows, by the names of its migrations.

    Raises:
        SchemaError: They are not there.
    """
    names = [path.name for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py")]
    if not names:
        raise SchemaError("The program was installed without its migrations.")
    return max(names).partition("_")[0]


def revision_of(connection: sa.Connection) -> str | None:
    """Return the revision of the database, or the mark of a move; None when there is neither."""
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None
    return connection.execute(sa.select(_VERSION.c.version_num)).scalar_one_or_none()


def held_revision(connection: sa.Connection) -> str | None:
    """Return the revision or mark, which nobody else changes until the transaction of `connection` ends."""
    return connection.execute(sa.select(_VERSION.c.version_num).with_for_update()).scalar_one_or_none()


def set_revision(connection: sa.Connection, revision: str) -> None:
    """Put a revision, or the mark of a move, in place of what is there."""
    connection.execute(sa.update(_VERSION).values(version_num=revision))


def moving_mark(vault: str) -> str:
    """Return what stands in place of a revision while a vault, known by `vault`, is being moved into a database."""
    return f"{_MOVING}{vault[:_MARK_CHARS]}"


def is_moving(revision: str) -> bool:
    """Say whether a revision is the mark of an unfinished move."""
    return revision.startswith(_MOVING)
