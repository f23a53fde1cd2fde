"""Makes the tables of one database hold exactly the rows of another, and proves that they do.

Rules:

* Rows are known by their primary key. What is too much or differs is deleted before anything is inserted, since a row
  of today may have what must be unique of one that is gone; then what is missing is inserted. Run again after it was
  killed anywhere, it goes on with what is left.
* The order of keys is asked of one database at a time: two databases may sort text differently.
* Values are compared as Python reads them, every column of every row. What SQLite holds and PostgreSQL would refuse
  or change is found before: see `misfit`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.store.copies import without_triggers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

ROWS: Final = 1_000
"""Rows that are read, compared and written at once, at most."""
PAGE_BYTES: Final = 16 * 1024 * 1024
"""Where they are large: so many bytes at once, and one row at least."""
_INTEGER_MAX: Final = 2**63 - 1
_SMALL_MAX: Final = 2**15 - 1
_REPLACED: Final = "\ufffd"
"""What the driver gives in place of bytes that are no UTF-8."""

Key = tuple[Any, ...]
Values = dict[str, Any]


def count(connection: Connection, table: sa.Table) -> int:
    """Return how many rows a table has."""
    return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def pages(connection: Connection, table: sa.Table) -> Iterator[dict[Key, Values]]:
    """Walk all rows of a table with a primary key, each page by its keys: at most `ROWS`, or `PAGE_BYTES`."""
    key = list(table.primary_key.columns)
    last: Key | None = None
    while True:
        after = () if last is None else (sa.tuple_(*key) > sa.tuple_(*_bound(table, last)),)
        sizes = (
            connection.execute(sa.select(_size(table)).select_from(table).where(*after).order_by(*key).limit(ROWS))
            .scalars()
            .all()
        )
        if not sizes:
            return
        statement = sa.select(table).where(*after).order_by(*key).limit(_how_many(sizes))
        rows = {_key_of(table, row): row for row in _read(connection, statement)}
        yield rows
        last = next(reversed(rows))


def misfit(connection: Connection, table: sa.Table, rows: Mapping[Key, Values]) -> str | None:
    """Return a column of SQLite in which a row holds what that kind of column never has, None where all is sound."""
    for column in table.columns:
        for key, row in rows.items():
            value = row[column.name]
            if value is not None and not (_fits(column, value) and _is_whole(connection, column, key, value)):
                return column.name
    return None


def wrong(connection: Connection, table: sa.Table, rows: Mapping[Key, Values]) -> tuple[list[Key], list[Key]]:
    """Return the keys of `rows` that a database does not have, and those under which it has something else."""
    there = _found(connection, table, list(rows))
    return [key for key in rows if key not in there], [key for key in rows if key in there and there[key] != rows[key]]


def put(connection: Connection, table: sa.Table, rows: Mapping[Key, Values]) -> int:
    """Insert those of `rows` that a table of PostgreSQL does not have; return how many they were."""
    missing, _ = wrong(connection, table, rows)
    if missing:
        with without_triggers(connection, table):
            connection.execute(sa.insert(table), [rows[key] for key in missing])
    return len(missing)


def drop_others(connection: Connection, table: sa.Table, source: Connection) -> None:
    """Delete from a table of PostgreSQL what `source` does not have, or has otherwise."""
    with without_triggers(connection, table):
        for rows in pages(connection, table):
            missing, different = wrong(source, table, rows)
            _delete(connection, table, [*missing, *different])


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


def _size(table: sa.Table) -> sa.ColumnElement[int]:
    long = [column for column in table.columns if isinstance(column.type, sa.LargeBinary)]
    return sum((sa.func.coalesce(sa.func.length(column), 0) for column in long), sa.literal(0))


def _how_many(sizes: Sequence[int]) -> int:
    return max(1, sum(total <= PAGE_BYTES for total in accumulate(sizes)))


def _fits(column: sa.Column[Any], value: object) -> bool:
    kind = column.type
    if isinstance(kind, sa.LargeBinary):
        return isinstance(value, bytes)
    if isinstance(kind, sa.String):
        return isinstance(value, str) and "\0" not in value and (kind.length is None or len(value) <= kind.length)
    if isinstance(kind, sa.Boolean):
        return isinstance(value, bool)
    largest = _SMALL_MAX if isinstance(kind, sa.SmallInteger) else _INTEGER_MAX
    return isinstance(value, int) and -largest <= value <= largest


def _is_whole(connection: Connection, column: sa.Column[Any], key: Key, value: object) -> bool:
    """Say whether a text is what stands in the file; only one that may have been replaced is read once more."""
    if not isinstance(value, str) or _REPLACED not in value:
        return True
    raw = sa.select(sa.cast(column, sa.LargeBinary)).where(_is_one_of(column.table, [key]))
    return bool(connection.execute(raw).scalar_one() == value.encode())


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
