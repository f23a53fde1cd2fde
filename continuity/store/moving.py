"""Makes the tables of one database hold exactly the rows of another, and proves that they do.

Rules:

* Rows are known by their primary key. What is missing is inserted, what differs is replaced, what is too much is
  deleted: run again after it was killed anywhere, it goes on with what is left.
* The order of keys is asked of one database at a time: two databases may sort text differently.
* Values are compared as Python reads them, every column of every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.store.copies import without_triggers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

ROWS: Final = 1_000
"""Rows that are read, compared and written at once: a few megabytes where each holds its share of a record."""

Key = tuple[Any, ...]
Values = dict[str, Any]


def count(connection: Connection, table: sa.Table) -> int:
    """Return how many rows a table has."""
    return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def pages(connection: Connection, table: sa.Table) -> Iterator[dict[Key, Values]]:
    """Walk all rows of a table with a primary key, `ROWS` at a time, each page by its keys."""
    key = list(table.primary_key.columns)
    last: Key | None = None
    while True:
        statement = sa.select(table).order_by(*key).limit(ROWS)
        if last is not None:
            statement = statement.where(sa.tuple_(*key) > sa.tuple_(*_bound(table, last)))
        rows = {_key_of(table, row): row for row in _read(connection, statement)}
        if not rows:
            return
        yield rows
        last = next(reversed(rows))


def wrong(connection: Connection, table: sa.Table, rows: Mapping[Key, Values]) -> tuple[list[Key], list[Key]]:
    """Return the keys of `rows` that a database does not have, and those under which it has something else."""
    there = _found(connection, table, list(rows))
    return [key for key in rows if key not in there], [key for key in rows if key in there and there[key] != rows[key]]


def put(connection: Connection, table: sa.Table, rows: Mapping[Key, Values]) -> int:
    """Make a table of PostgreSQL hold these rows; return how many had to be written."""
    missing, different = wrong(connection, table, rows)
    values = [rows[key] for key in (*missing, *different)]
    if values:
        with without_triggers(connection, table):
            _delete(connection, table, different)
            connection.execute(sa.insert(table), values)
    return len(values)


def drop_others(connection: Connection, table: sa.Table, source: Connection) -> None:
    """Delete from a table of PostgreSQL what `source` does not have."""
    with without_triggers(connection, table):
        for rows in pages(connection, table):
            there = _found(source, table, list(rows))
            _delete(connection, table, [key for key in rows if key not in there])


def numbers_given(connection: Connection, tables: Sequence[sa.Table]) -> dict[str, int]:
    """Read from SQLite how far numbers of rows went, by ``table.column``: a number is never given twice."""
    given = dict[str, int]()
    counted = sa.select(_SEQUENCE.c.seq).where(_SEQUENCE.c.name == sa.bindparam("name"))
    for table in tables:
        (column, *more) = table.primary_key.columns
        if more or not isinstance(column.type, sa.Integer) or column.autoincrement is False:
            continue
        largest = connection.execute(sa.select(sa.func.max(column))).scalar_one() or 0
        last = connection.execute(counted, {"name": table.name}).scalar_one_or_none() or 0
        given[f"{table.name}.{column.name}"] = max(largest, last)
    return given


_SEQUENCE: Final = sa.table("sqlite_sequence", sa.column("name", sa.String), sa.column("seq", sa.Integer))


def _found(connection: Connection, table: sa.Table, keys: Sequence[Key]) -> dict[Key, Values]:
    statement = sa.select(table).where(_is_one_of(table, keys))
    return {_key_of(table, row): row for row in _read(connection, statement)}


def _delete(connection: Connection, table: sa.Table, keys: Sequence[Key]) -> None:
    if keys:
        connection.execute(sa.delete(table).where(_is_one_of(table, keys)))


def _read(connection: Connection, statement: sa.Select[Any]) -> list[Values]:
    return [dict(row) for row in connection.execute(statement).mappings()]


def _is_one_of(table: sa.Table, keys: Sequence[Key]) -> sa.ColumnElement[bool]:
    key = list(table.primary_key.columns)
    if len(key) == 1:
        return key[0].in_([each[0] for each in keys])
    return sa.tuple_(*key).in_(list(keys))


def _bound(table: sa.Table, key: Key) -> list[sa.BindParameter[Any]]:
    return [
        sa.bindparam(None, value, type_=column.type, unique=True)
        for column, value in zip(table.primary_key.columns, key, strict=True)
    ]


def _key_of(table: sa.Table, row: Values) -> Key:
    return tuple(row[column.name] for column in table.primary_key.columns)
