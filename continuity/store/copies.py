"""Copies of a whole database while others write to it: SQLite as a file, PostgreSQL table by table.

Rules:

* A copy is one state of the database, that of one read transaction.
* On SQLite in WAL mode nobody waits for it. With a rollback journal writers wait while it lasts.
* On PostgreSQL rows travel as ``COPY … (FORMAT binary)`` with their columns named, and nothing else of the database
  does: tables, indexes and triggers are made by the migrations.
* Names of tables and columns are quoted by SQLAlchemy; a name that was read from a file is compared with the tables
  that are there before it is used.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.store import sqlite
from continuity.store.compiled import PIPELINE
from continuity.store.failures import is_busy
from continuity.store.sqlite import BEGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Engine

_PAGES_A_STEP: Final = 2_000
_BLOCK_BYTES: Final = 256 * 1024
_UNHURRIED: Final = (
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
)
_OTHERS: Final = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend' AND application_name = 'atmem'"
)


def copy_sqlite(engine: Engine, target: Path, *, progress: Callable[[int, int], None]) -> None:
    """Copy a SQLite database into a file.

    Args:
        engine: Of the database.
        target: An empty file of ours (`sqlite.create_file`).
        progress: Called now and then with the pages that are copied and those that there are.

    Raises:
        sqlalchemy.exc.DBAPIError, sqlite3.Error: It cannot be read or written; throw `target` away.
    """
    driver: Any = sqlite.choose_driver()[0]
    with engine.connect() as connection:
        connection.connection.info[BEGIN] = "BEGIN"
        try:
            # From its first statement on this transaction sees one state, and so does the copy that goes over it.
            connection.execute(sa.text("SELECT count(*) FROM sqlite_master"))
            source: Any = connection.connection.dbapi_connection
            copy = driver.connect(str(target), isolation_level=None)
            try:
                source.backup(
                    copy, pages=_PAGES_A_STEP, progress=lambda _status, left, total: progress(total - left, total)
                )
                # The copy is a file by itself: no -wal file belongs to it.
                copy.execute("PRAGMA journal_mode=DELETE").close()
            finally:
                copy.close()
        finally:
            connection.rollback()
            connection.connection.info.pop(BEGIN, None)


@contextmanager
def exclusive(database: Path) -> Iterator[bool]:
    """Keep every other connection off a SQLite file.

    Yields:
        Whether nobody else has it open, which lasts until the end; True also for what is no database.
    """
    driver: Any = sqlite.choose_driver()[0]
    try:
        connection = driver.connect(f"{database.resolve().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)
    except driver.Error:
        yield True
        return
    try:
        is_ours = True
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").close()
            connection.execute("BEGIN EXCLUSIVE").close()
        except driver.Error as error:
            is_ours = not is_busy(error)
        yield is_ours
    finally:
        connection.close()


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Open a reading transaction of PostgreSQL that may take its time.

    Yields:
        A connection that sees one state.
    """
    with engine.connect() as connection:
        info = connection.connection.info
        info[BEGIN] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        try:
            hurry_not(connection)
            yield connection
        finally:
            connection.rollback()
            info.pop(BEGIN, None)


@contextmanager
def held_still(engine: Engine) -> Iterator[Connection]:
    """Read one state of SQLite while nobody else may write, and write nothing.

    Yields:
        A connection that holds the write lock.
    """
    with engine.connect() as connection:
        info = connection.connection.info
        info[BEGIN] = "BEGIN IMMEDIATE"
        try:
            yield connection
        finally:
            connection.rollback()
            info.pop(BEGIN, None)


@contextmanager
def without_triggers(connection: Connection, table: sa.Table) -> Iterator[None]:
    """Let a table of PostgreSQL be written whatever its triggers say, in this transaction of its owner."""
    name = _name(connection, table)
    connection.exec_driver_sql(f"ALTER TABLE {name} DISABLE TRIGGER USER")
    yield
    connection.exec_driver_sql(f"ALTER TABLE {name} ENABLE TRIGGER USER")


def hurry_not(connection: Connection) -> None:
    """Let this transaction of PostgreSQL last as long as it must."""
    for statement in _UNHURRIED:
        connection.exec_driver_sql(statement)


def rows_of(connection: Connection, table: sa.Table) -> Iterator[bytes]:
    """Give the rows of a table of PostgreSQL, in blocks.

    Args:
        connection: Of `snapshot`.
        table: With all of its columns.
    """
    with (
        _driver(connection).cursor() as cursor,
        cursor.copy(f"COPY {_spelled(connection, table)} TO STDOUT (FORMAT binary)") as copy,
    ):
        waiting = bytearray()
        for piece in copy:
            waiting += piece
            if len(waiting) >= _BLOCK_BYTES:
                yield bytes(waiting)
                waiting.clear()
        yield bytes(waiting)


def fill(connection: Connection, table: sa.Table, blocks: Iterable[bytes]) -> None:
    """Write rows that `rows_of` gave into a table of PostgreSQL, whatever its triggers say.

    Args:
        connection: A writing transaction of the tables' owner.
        table: With the columns that it had then, in their order.
        blocks: The rows.
    """
    name = _name(connection, table)
    with without_triggers(connection, table):
        # What a migration puts into a new table is in the copy as well.
        connection.exec_driver_sql(f"DELETE FROM {name}")  # noqa: S608 - quoted, and one of our tables
        _copy_in(connection, table, blocks)


def _copy_in(connection: Connection, table: sa.Table, blocks: Iterable[bytes]) -> None:
    with (
        _driver(connection).cursor() as cursor,
        cursor.copy(f"COPY {_spelled(connection, table)} FROM STDIN (FORMAT binary)") as copy,
    ):
        for block in blocks:
            copy.write(block)


def counters(connection: Connection, tables: Sequence[sa.Table]) -> dict[str, int]:
    """Read how far the numbers of rows went, by ``table.column``: a number is never given twice."""
    found = dict[str, int]()
    for table, column, sequence in _sequences(connection, tables):
        last, is_called = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}").one()  # noqa: S608
        found[f"{table}.{column}"] = last if is_called else 0
    return found


def set_counters(connection: Connection, tables: Sequence[sa.Table], wanted: dict[str, int]) -> None:
    """Let numbers of rows go on behind those that `counters` read."""
    for table, column, sequence in _sequences(connection, tables):
        last = wanted.get(f"{table}.{column}", 0)
        connection.execute(
            sa.text("SELECT setval(CAST(:sequence AS regclass), :value, :is_called)"),
            {"sequence": sequence, "value": max(1, last), "is_called": last > 0},
        )


def others(connection: Connection) -> int:
    """Count the connections that other programs of ours have to this database of PostgreSQL."""
    return int(connection.execute(_OTHERS).scalar_one())


def is_there(connection: Connection, table: sa.Table) -> bool:
    """Say whether a database has a table."""
    return sa.inspect(connection).has_table(table.name)


def _sequences(connection: Connection, tables: Sequence[sa.Table]) -> Iterator[tuple[str, str, str]]:
    for table in tables:
        for column in table.primary_key.columns:
            sequence = connection.execute(
                sa.select(sa.func.pg_get_serial_sequence(_name(connection, table), column.name))
            ).scalar_one()
            if sequence is not None:
                yield table.name, column.name, str(sequence)


def _driver(connection: Connection) -> Any:
    pipeline = connection.connection.info.get(PIPELINE)
    if pipeline is not None:
        # The driver is used past SQLAlchemy: what is queued comes first.
        pipeline.flush()
    return connection.connection.dbapi_connection


def _name(connection: Connection, table: sa.Table) -> str:
    return connection.dialect.identifier_preparer.format_table(table)


def _spelled(connection: Connection, table: sa.Table) -> str:
    quote = connection.dialect.identifier_preparer.quote
    return f"{_name(connection, table)} ({', '.join(quote(column.name) for column in table.columns)})"
