"""Engines for the two databases, and what to tell an operator about one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import registry

from continuity.store import sqlite

POOL_WAIT_S: Final = 5
"""How long a caller waits for a connection before it is told that storage is unavailable."""

registry.register("sqlite.continuity", "continuity.store.sqlite", "Dialect")
registry.register("postgresql.continuity", "continuity.store.postgresql", "Dialect")


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What `describe` found.

    Attributes:
        kind: ``sqlite`` or ``postgresql``.
        driver: Name of the Python module that talks to it.
        version: Of SQLite's library or of the PostgreSQL server.
        journal_mode: ``wal`` or ``truncate``; ``wal`` on PostgreSQL.
        synchronous: The durability setting in force, as the database calls it.
    """

    kind: str
    driver: str
    version: str
    journal_mode: str
    synchronous: str


def make_engine(url: str | sa.URL, *, pool_size: int) -> sa.Engine:
    """Make the engine for `url`. Connects to nothing yet.

    Args:
        url: ``sqlite:///path`` of a file that exists (`sqlite.create_file`), or ``postgresql://…``.
        pool_size: Connections kept; at least the number of threads that work at once. One more is allowed,
            for the writer of SQLite, and none beyond.

    Returns:
        An engine whose errors never show parameters. Services use it through `store.Store` only.

    Raises:
        ValueError: `url` is of another database, or of one in memory.
    """
    parsed = sa.make_url(url)
    kind = parsed.get_backend_name()
    if kind not in {"sqlite", "postgresql"}:
        raise ValueError("The database URL must begin with sqlite:/// or postgresql://.")
    if kind == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise ValueError("The SQLite database must be a file.")
    return sa.create_engine(
        parsed.set(drivername=f"{kind}+continuity"),
        hide_parameters=True,
        poolclass=sa.QueuePool,
        pool_size=pool_size,
        max_overflow=1,
        pool_timeout=POOL_WAIT_S,
        pool_use_lifo=True,
        # A connection comes back without a transaction: `Connection.close` rolls one back.
        pool_reset_on_return=None,
    )


def describe(engine: sa.Engine) -> DatabaseFacts:
    """Ask the database what it is, for ``atmem status``.

    Raises:
        sqlalchemy.exc.DBAPIError: It does not answer.
    """
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            version = str(connection.exec_driver_sql("SHOW server_version").scalar_one())
            synchronous = str(connection.exec_driver_sql("SHOW synchronous_commit").scalar_one())
            return DatabaseFacts("postgresql", "psycopg", version, "wal", synchronous)
        driver, _ = sqlite.choose_driver()
        level = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
        journal_mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    synchronous = ("off", "normal", "full", "extra")[level]
    name = driver.__name__.partition(".")[0]
    return DatabaseFacts("sqlite", name, driver.sqlite_version, journal_mode, synchronous)
