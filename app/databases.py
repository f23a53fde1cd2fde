"""The database of an instance: its connections, and whether it answers with the tables of this program."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from app import revisions, vaults
from app.config import Settings
from continuity.errors import UnavailableError
from continuity.store import sqlite
from continuity.store.engine import DatabaseFacts, describe, make_engine
from continuity.store.store import Store
from continuity.vault import KeyProvider, files
from observations.ingest import PLACES

PROVING: Final = "0005"
"""The migration that makes room for the proofs of rows."""
_IDENTITIES: Final = (
    "continuity_workflows", "continuity_operations", "continuity_owners", "continuity_partitions", "auth_credentials",
    "auth_users",
)  # fmt: skip
"""Tables in which a row that an index does not find any more would be made a second time."""
_RESTORE: Final = "Nothing was changed. Restore it from the backup of the instance folder."
_SPARE_CONNECTIONS: Final = 4
"""Beside one a thread: housekeeping, the readiness check, and two for whoever comes between."""


def open_engine(settings: Settings) -> sa.Engine:
    """Return the engine of the settings' database. Connects to nothing yet."""
    return make_engine(settings.database_url, pool_size=settings.threads + _SPARE_CONNECTIONS)


def facts(store: Store) -> DatabaseFacts:
    """Ask the database of `store` what it is."""
    return describe(store.engine)


def close(store: Store) -> None:
    """Give back every connection of a store."""
    store.close()
    store.engine.dispose()


@contextmanager
def opened(settings: Settings) -> Iterator[Store]:
    """Open the store of the settings' database for a command that runs and ends. Connects to nothing yet."""
    store = Store(open_engine(settings))
    try:
        yield store
    finally:
        close(store)


def open_observations(settings: Settings) -> Store:
    """Return a store of connections that only observations use. Connects to nothing yet."""
    return Store(make_engine(settings.database_url, pool_size=PLACES + _SPARE_CONNECTIONS))


def check_whole(store: Store, tables: Iterable[sa.Table]) -> None:
    """Refuse a SQLite database with damaged pages before anything is served from it. Reads all of it once.

    Beside the structure of every page, the indexes of the tables that say what exists are compared with their rows: a
    key that its index does not find would be taken for a new one. PostgreSQL looks after its own pages.

    Raises:
        UnavailableError: It is damaged, or does not answer.
    """
    if store.is_postgresql:
        return
    try:
        found = store.read(lambda connection: next(_damage(connection, tables), None))
    except UnicodeDecodeError:
        # The driver reads the types of columns with the first row; of values it takes any bytes.
        found = "its description of the tables cannot be read"
    except sa.exc.OperationalError as error:
        # Of a table or a column that is not where the revision says that it is.
        found = str(error.orig)
    except UnavailableError as error:
        if isinstance(error.__cause__, sa.exc.DBAPIError):
            raise _cannot_open(store, error.__cause__) from error
        raise
    if found is not None:
        # SQLite's heading is a line of its own.
        what = found.splitlines()[-1].rstrip(".")
        raise UnavailableError(f"The database {store.engine.url.database} is damaged: {what}. {_RESTORE}")


def _damage(connection: sa.Connection, tables: Iterable[sa.Table]) -> Iterator[str]:
    for pragma in ("quick_check(1)", *(f"integrity_check({table})" for table in _IDENTITIES)):
        yield from (row[0] for row in connection.exec_driver_sql(f"PRAGMA {pragma}") if row[0] != "ok")
    for table in tables:
        connection.execute(sa.select(table).limit(1)).all()


def check_schema(store: Store) -> None:
    """Refuse a database that does not answer or whose tables are not those of this program."""
    try:
        if _revision(store) != revisions.newest():
            from app import migrating  # noqa: PLC0415 - it says what is missing, and takes long to load

            migrating.check(store.engine)
    except revisions.SchemaError as error:
        raise UnavailableError(str(error)) from error
    except sa.exc.DBAPIError as error:
        raise _cannot_open(store, error) from error


def upgrade_schema(store: Store, settings: Settings, keys: KeyProvider) -> list[str]:
    """Bring the database to the tables of this program; return the revisions that this call ran.

    A vault's shred list is made after its tables: where there is a list and no table, the database is lost, and an
    empty one in its place would grant again whatever had been done.

    Raises:
        UnavailableError: The database cannot be made or opened, or is of a newer program.
        KeySourceError, IntegrityError: A step needs the vault's key, and the vault cannot be opened.
            The step that failed has changed nothing.
    """
    from app import migrating  # noqa: PLC0415 - whoever is up to date does not need it

    has_vault = not files.is_unwritten(settings.shred_list)
    try:
        if has_vault and _is_empty(store):
            raise UnavailableError(
                f"{settings.shred_list} says that there was a vault, and its database is gone or empty. Nothing was "
                "changed. Restore it from its backup; to begin anew instead, move the instance folder away first."
            )
        return migrating.upgrade(store.engine, after={
            PROVING: lambda connection: vaults.prove_rows(connection, settings, keys),
        })  # fmt: skip
    except revisions.SchemaError as error:
        raise UnavailableError(str(error)) from error
    except OSError as error:
        raise UnavailableError(f"The database cannot be made: {error.strerror}.") from error
    except sa.exc.DBAPIError as error:
        raise _cannot_open(store, error) from error


def _is_empty(store: Store) -> bool:
    """Say whether the database holds none of our tables, or is not even there."""
    path = store.engine.url.database
    if not store.is_postgresql and not Path(str(path)).exists():
        return True
    return _revision(store) is None


def _revision(store: Store) -> str | None:
    with store.engine.begin() as connection:
        return revisions.revision_of(connection)


def _cannot_open(store: Store, error: sa.exc.DBAPIError) -> UnavailableError:
    """Say which database and why, for whoever starts the program; a driver repeats no password."""
    url = store.engine.url
    why = str(error.orig).strip().partition("\n")[0].rstrip(".") or type(error.orig).__name__
    if url.get_backend_name() != "sqlite":
        where = url.set(drivername="postgresql").render_as_string(hide_password=True)
        return UnavailableError(f"ATMEM_DATABASE_URL: the database {where} cannot be opened: {why}.")
    # The low byte is the primary code.
    is_damaged = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
    way_on = f" {_RESTORE}" if is_damaged else ""
    if not Path(str(url.database)).exists():
        way_on = " A new instance is made by atmem init; one that was in use must be restored from its backup."
    return UnavailableError(f"The database {url.database} cannot be opened: {why}.{way_on}")


def storage_errors() -> tuple[type[Exception], ...]:
    """Return what a database raises beside the store's seam: a copy goes over the driver."""
    driver_error: type[Exception] = sqlite.choose_driver()[0].Error
    return (sa.exc.DBAPIError, driver_error)


def problems(store: Store) -> list[str]:
    """Look for damage that the database itself shows: tables, and SQLite's own integrity check; one line each."""
    from app import migrating  # noqa: PLC0415 - it compares, and takes long to load

    found = [f"Table differs from this program: {each!r}" for each in migrating.differences(store.engine)]
    if not store.is_postgresql:
        found += store.read(_sqlite_problems)
    return found


def _sqlite_problems(connection: sa.Connection) -> list[str]:
    rows = [
        *connection.exec_driver_sql("PRAGMA integrity_check"),
        *connection.exec_driver_sql("PRAGMA foreign_key_check"),
    ]
    return [f"SQLite: {row[0]}" for row in rows if row[0] != "ok"]
