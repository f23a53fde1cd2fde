"""SQLite as the ledger needs it: a driver that loses nothing, durable settings, an honest BEGIN.

Rules:

* SQLite 3.7.0 to 3.51.2 can lose committed writes of a WAL database when two connections write or checkpoint
  at the same instant (fixed in 3.51.3, and in 3.50.7 and 3.44.6). The interpreter's own library is used
  where it is fixed, else the one inside the wheel ``pysqlite3``; with neither the journal is a rollback
  journal (TRUNCATE), which is slower and not affected.
* ``synchronous`` is FULL with either journal: WAL with NORMAL loses acknowledged commits at a power cut.
* The driver never begins a transaction by itself. `Dialect.do_begin` does, with the words that
  ``connection.info[BEGIN]`` holds (``""`` for none), so ``engine.begin()`` means what it says.
* A database that is not there is an error, never an empty one: `create_file` makes it, on purpose.
* Bytes of a text column that are no UTF-8 are read as text with U+FFFD in their place: such a value is damage, which
  the seals over it find, and must not keep anybody from reading the rows beside it.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from continuity.store.failures import is_busy

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL
    from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIConnection, DBAPIModule
    from sqlalchemy.pool import PoolProxiedConnection

BEGIN: Final = "continuity.begin"
"""Key of ``connection.info``: the statement that begins the next transaction; absent means ``BEGIN``."""

BUSY_TIMEOUT_MS: Final = 5_000
JOURNAL_SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""What a WAL file is cut back to after a reader held it open for long."""

_PRAGMAS: Final = (
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
    "PRAGMA foreign_keys=ON",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    f"PRAGMA journal_size_limit={JOURNAL_SIZE_LIMIT_BYTES}",
)


def keeps_wal_commits(version: tuple[int, ...]) -> bool:
    """Say whether SQLite `version` (three numbers) is free of the WAL defect named above."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0)


def choose_driver() -> tuple[Any, bool]:
    """Choose the DBAPI module.

    Returns:
        The module, and whether a WAL database is safe with it.
    """
    if keeps_wal_commits(sqlite3.sqlite_version_info):
        return sqlite3, True
    try:
        bundled = importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        return sqlite3, False
    if keeps_wal_commits(bundled.sqlite_version_info):
        return bundled, True
    return sqlite3, False


def create_file(path: pathlib.Path) -> None:
    """Create an empty database file, readable by its owner alone, if there is none.

    SQLite gives ``-wal`` and ``-shm`` files the permissions of the database, so this guards them too.

    Raises:
        OSError: The folder is missing or not writable. Nothing was made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        return
    os.close(descriptor)


def _journal_mode(connection: Any, wanted: str) -> str:
    """Set the journal mode and give the one in force.

    It is stored in the file, so this changes something only on the first connection ever. SQLite does not
    wait for others there, hence the loop: two processes may open a new database at once.
    """
    give_up = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            return str(connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()[0])
        except Exception as error:
            if not is_busy(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class Dialect(SQLiteDialect_pysqlite):
    """pysqlite with the rules at the head of this file. Registered as ``sqlite+continuity``."""

    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> DBAPIModule:
        """Give the driver that `choose_driver` chose."""
        module: DBAPIModule = choose_driver()[0]
        return module

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """Open the file of `url` if it exists; connections may change threads, one thread at a time."""
        path = pathlib.Path(url.database or "").resolve()
        options = {
            "uri": True,
            "isolation_level": None,
            "check_same_thread": False,
            "timeout": BUSY_TIMEOUT_MS / 1000,
            "cached_statements": 256,
        }
        return (f"{path.as_uri()}?mode=rw",), options

    def on_connect(self) -> Callable[[DBAPIConnection], None]:
        """Give the function that sets up a new connection."""
        journal_mode = "wal" if choose_driver()[1] else "truncate"

        def set_up(connection: Any) -> None:
            connection.text_factory = _text
            try:
                for pragma in _PRAGMAS:
                    connection.execute(pragma).close()
            except UnicodeDecodeError as error:
                # What SQLite says of a damaged description of the tables repeats it, and the driver cannot.
                damaged = self.loaded_dbapi.DatabaseError("malformed database schema")
                damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise damaged from error
            found = _journal_mode(connection, journal_mode)
            if found != journal_mode:
                raise self.loaded_dbapi.OperationalError(
                    f"The journal mode is {found} and cannot be made {journal_mode}: another program uses the database."
                )

        return set_up

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        """Begin with the words in ``info[BEGIN]``; SQLAlchemy turns what the driver raises into its own errors."""
        statement = dbapi_connection.info.get(BEGIN, "BEGIN")
        if statement:
            dbapi_connection.execute(statement)
