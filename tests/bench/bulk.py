"""Rows written in bulk, without what single statements and commits cost. For databases of benchmarks alone.

On SQLite by the bare driver, on a file that nobody else has open: it loses its journal meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles

from continuity.store.sqlite import choose_driver
from continuity.store.store import Store

AT_ONCE = 5_000
CACHE_KIB = 3_000_000
"""Room for every page of a million workflows: ids are random, so each of them touches its own pages."""

Row = dict[str, Any]
Rows = list[tuple[sa.Table, list[Row]]]


def insert(store: Store, made: Iterable[Rows]) -> None:
    """Insert rows into a store's database of SQLite, which nobody else may have open; the store is closed then."""
    with _alone(store) as connection:
        for table, rows in _in_batches(made):
            connection.executemany(_insert(table, rows[0]), rows)


def run(store: Store, statements: Iterable[sa.Insert]) -> None:
    """Run statements on a store's database; on SQLite as `insert` does."""
    if store.is_postgresql:
        for statement in statements:
            store.write(lambda connection, statement=statement: connection.execute(statement))
        return
    dialect = sqlite.dialect(paramstyle="named")
    with _alone(store) as connection:
        for statement in statements:
            connection.execute(str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})))


class octets_replaced(sa.sql.functions.GenericFunction[bytes]):  # noqa: N801
    """``replace`` in octets that are text."""

    type = sa.LargeBinary()
    inherit_cache = True


@compiles(octets_replaced, "sqlite")
def _replaced_on_sqlite(element: Any, compiler: Any, **how: Any) -> str:
    column, before, after = element.clauses
    replaced = sa.cast(sa.func.replace(sa.cast(column, sa.Text), before, after), sa.LargeBinary)
    return str(compiler.process(replaced, **how))


@compiles(octets_replaced, "postgresql")
def _replaced_on_postgresql(element: Any, compiler: Any, **how: Any) -> str:
    column, before, after = element.clauses
    replaced = sa.func.replace(sa.func.convert_from(column, "UTF8"), before, after)
    return str(compiler.process(sa.func.convert_to(replaced, "UTF8"), **how))


@contextmanager
def _alone(store: Store) -> Iterator[Any]:
    """Close a store and open its file for one who is alone with it; durable, and in WAL mode again, afterwards."""
    path = Path(str(store.engine.url.database))
    store.close()
    store.engine.dispose()
    connection = choose_driver()[0].connect(str(path), isolation_level=None)
    try:
        # Without a journal a kill here would ruin the file: it is a benchmark's own, and made again then.
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
        for pragma in ("synchronous=FULL", "locking_mode=NORMAL", "journal_mode=WAL"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    finally:
        connection.close()


def _in_batches(made: Iterable[Rows]) -> Iterator[tuple[sa.Table, list[Row]]]:
    left = iter(made)
    while batch := list(islice(left, AT_ONCE)):
        found: dict[sa.Table, list[Row]] = {}
        for table, rows in chain.from_iterable(batch):
            found.setdefault(table, []).extend(rows)
        yield from found.items()


def _insert(table: sa.Table, row: Row) -> str:
    return str(sa.insert(table).compile(dialect=sqlite.dialect(paramstyle="named"), column_keys=list(row)))
