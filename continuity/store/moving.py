"""Makes the tables of one database hold exactly the rows of another, and proves that they do.

Rules:

* Rows are known by their primary key. What is missing is inserted, what differs is replaced, what is too much is
  deleted: run again after it was killed anywhere, it goes on with what is left.
* The order of keys is asked of one database at a time: two databases may sort text differently.
* Values are compared as Python reads them, every column of every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

ROWS: Final = 1_000
"""Rows that are read, compared and written at once: a few megabytes where each holds its share of a record."""

Key = tuple[Any, ...]
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of one table, beside those that the other database has under the same keys.

    Attributes:
        rows: As they must be, by key.
        missing: Keys that the other database does not have.
        different: Keys under which it has something else.
    """

    rows: dict[Key, Values]
    missing: list[Key]
    different: list[Key]


def count(connection: Connection, table: sa.Table) -> int:
    """Return how many rows a table has."""
    return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def compared(source: Connection, target: Connection, table: sa.Table) -> Iterator[Page]:
    """Walk all rows of a table in `source` and look each up in `target`.

    Args:
        source: Reads one state until the end.
        target: Looked into page by page; what a caller writes between two pages is seen.
        table: With a primary key.
    """
    for rows in _pages(source, table):
        there = _found(target, table, list(rows))
        yield Page(
            rows,
            missing=[key for key in rows if key not in there],
            different=[key for key in rows if key in there and there[key] != rows[key]],
        )


def superfluous(source: Connection, target: Connection, table: sa.Table) -> Iterator[list[Key]]:
    """Give the keys of rows in `target` that `source` does not have, page by page."""
    for rows in _pages(target, table):
        there = _found(source, table, list(rows))
        yield [key for key in rows if key not in there]


def put(connection: Connection, table: sa.Table, page: Page) -> None:
    """Write what a page says is missing or different."""
    delete(connection, table, page.different)
    values = [page.rows[key] for key in (*page.missing, *page.different)]
    if values:
        connection.execute(sa.insert(table), values)


def delete(connection: Connection, table: sa.Table, keys: Sequence[Key]) -> None:
    """Delete rows by their keys."""
    if keys:
        connection.execute(sa.delete(table).where(_is_one_of(table, keys)))


def without_triggers(connection: Connection, table: sa.Table) -> None:
    """Let this table of PostgreSQL be written whatever its triggers say, until `with_triggers`. For its owner."""
    _alter(connection, table, "DISABLE")


def with_triggers(connection: Connection, table: sa.Table) -> None:
    """Put the triggers in force again."""
    _alter(connection, table, "ENABLE")


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


def _pages(connection: Connection, table: sa.Table) -> Iterator[dict[Key, Values]]:
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


def _found(connection: Connection, table: sa.Table, keys: Sequence[Key]) -> dict[Key, Values]:
    statement = sa.select(table).where(_is_one_of(table, keys))
    return {_key_of(table, row): row for row in _read(connection, statement)}


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


def _alter(connection: Connection, table: sa.Table, how: str) -> None:
    name = connection.dialect.identifier_preparer.format_table(table)
    connection.exec_driver_sql(f"ALTER TABLE {name} {how} TRIGGER USER")
