"""Statements of the hot path: built by SQLAlchemy, compiled once, run on the driver's own cursor.

A decision is six or seven small statements. What SQLAlchemy does around each of them (events, contexts,
result objects) costs more than SQLite needs to run it, so create, begin, outcome and the look-up of a
credential leave that out. Everything else keeps to ``connection.execute``.

Rules:

* Only inside the units of `Store`: the transaction has been begun there, or begins here by the same rules.
  Where ``info[BEGIN]`` is empty there is nothing to begin, and SQLAlchemy is not asked to keep track of it.
* Values go to the driver as they are: integers, strings, bytes, booleans, None. Booleans of SQLite come
  back as 0 and 1.
* An error of the driver leaves as SQLAlchemy's error for it, so that `Store` judges it like any other.
* Where somebody listens to SQLAlchemy's cursor events, the statement goes through SQLAlchemy and is heard.
* In a unit on PostgreSQL they go by the connection's pipeline (`continuity.store.pipeline`), prepared, and one that
  was only sent (`Compiled.send`) goes with the next whose answer is needed, or with COMMIT.
"""

from __future__ import annotations

import itertools
from collections import namedtuple
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import exc

from continuity.store.sqlite import BEGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.sql.dml import ReturningInsert

    from continuity.store.pipeline import Pipeline

PIPELINE: Final = "continuity.pipeline"
"""Where ``connection.info`` keeps the pipeline of a connection to PostgreSQL."""
_STATEMENT_NAME: Final = "Row"
_PIPELINED: Final = "pipeline"
_numbers = itertools.count(1)


class Compiled:
    """One statement. Safe to share between threads and engines."""

    def __init__(
        self, statement: sa.Select[*tuple[Any, ...]] | ReturningInsert[*tuple[Any, ...]] | sa.Update | sa.Insert
    ) -> None:
        """Keep the statement; it is compiled when a dialect needs it first."""
        self._statement = statement
        self._texts: dict[str, _Text] = {}
        columns = [str(name) for name in statement.exported_columns.keys()]  # noqa: SIM118 - of columns, not a dict
        row: Any = namedtuple(_STATEMENT_NAME, columns)  # type: ignore[misc]  # noqa: PYI024 - columns are data
        self._make = row._make

    def all(self, connection: Connection, parameters: Mapping[str, Any]) -> list[Any]:
        """Run a SELECT, or what returns rows as one does; returns all of them, whose columns are read by name."""
        pipeline = _pipeline(connection)
        if pipeline is not None:
            return [self._make(row) for row in self._asked(connection, pipeline, parameters, pipeline.rows)]
        cursor = self._execute(connection, parameters)
        rows = [self._make(row) for row in cursor.fetchall()]
        cursor.close()
        return rows

    def one_or_none(self, connection: Connection, parameters: Mapping[str, Any]) -> Any | None:
        """Run a SELECT that finds at most one row; returns it, or None."""
        rows = self.all(connection, parameters)
        return rows[0] if rows else None

    def run(self, connection: Connection, parameters: Mapping[str, Any]) -> int:
        """Run an INSERT or UPDATE; returns how many rows it met."""
        pipeline = _pipeline(connection)
        if pipeline is not None:
            count: int = self._asked(connection, pipeline, parameters, pipeline.count)
            return count
        cursor = self._execute(connection, parameters)
        count = int(cursor.rowcount)
        cursor.close()
        return count

    def run_each(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run an INSERT or UPDATE once for each of some rows, at least one, as `send` does."""
        pipeline = _pipeline(connection)
        if pipeline is not None:
            for row in rows:
                self._queue(connection, pipeline, row)
            return
        if connection.dispatch.before_cursor_execute:
            connection.execute(self._statement, [dict(row) for row in rows])
            return
        text = self._text(connection)
        cursor = execute_each(connection, text.sql, [text.values(row) for row in rows])
        cursor.close()

    def send(self, connection: Connection, parameters: Mapping[str, Any]) -> None:
        """Run an INSERT or UPDATE whose answer nobody needs: what it refuses may come out later, from the unit."""
        pipeline = _pipeline(connection)
        if pipeline is None:
            self._execute(connection, parameters).close()
        else:
            self._queue(connection, pipeline, parameters)

    def _queue(self, connection: Connection, pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
        text = self._texts.get(_PIPELINED) or self._compile_for_pipeline(connection)
        pipeline.add(text, text.values(parameters))

    def _asked(
        self, connection: Connection, pipeline: Pipeline, parameters: Mapping[str, Any], ask: Callable[[], Any]
    ) -> Any:
        self._queue(connection, pipeline, parameters)
        try:
            return ask()
        except connection.dialect.loaded_dbapi.Error as error:
            raise translated(connection, "", error) from error

    def _compile_for_pipeline(self, connection: Connection) -> _Text:
        dialect = type(connection.dialect)(paramstyle="numeric_dollar")  # type: ignore[call-arg]
        compiled = self._statement.compile(dialect=dialect)
        text = _Text(str(compiled).encode(), tuple(compiled.positiontup or ()), dict(compiled.params))
        self._texts[_PIPELINED] = text
        return text

    def _execute(self, connection: Connection, parameters: Mapping[str, Any]) -> Any:
        if connection.dispatch.before_cursor_execute:
            return connection.execute(self._statement, dict(parameters))
        text = self._text(connection)
        return execute(connection, text.sql, text.values(parameters))

    def _text(self, connection: Connection) -> _Text:
        """Return the statement as this connection's database reads it, the transaction begun."""
        if connection.connection.info.get(BEGIN) != "" and not connection.in_transaction():
            connection.begin()
        return self._texts.get(connection.dialect.name) or self._compile(connection)

    def _compile(self, connection: Connection) -> _Text:
        compiled = self._statement.compile(dialect=connection.dialect)
        names = None if compiled.positiontup is None else tuple(compiled.positiontup)
        text = _Text(str(compiled), names, dict(compiled.params))
        self._texts[connection.dialect.name] = text
        return text


class _Text:
    """A compiled statement: its text and how its parameters are handed over."""

    __slots__ = ("_defaults", "_in_order", "name", "sql")

    def __init__(self, sql: Any, names: tuple[str, ...] | None, defaults: dict[str, Any]) -> None:
        self.sql = sql
        self.name = b"continuity_%d" % next(_numbers)
        # With one name alone `itemgetter` would give no tuple.
        self._in_order = itemgetter(*names, *names[:1]) if names else None
        self._defaults = defaults

    def values(self, parameters: Mapping[str, Any]) -> Any:
        """Return the values as the driver takes them."""
        merged = {**self._defaults, **parameters}
        return merged if self._in_order is None else self._in_order(merged)[:-1]


def execute(connection: Connection, sql: str, values: Any) -> Any:
    """Run one statement on the driver's cursor and return the cursor.

    Raises:
        sqlalchemy.exc.DBAPIError: What the driver raised, as SQLAlchemy would have raised it.
    """
    driver_connection = connection.connection.dbapi_connection
    try:
        return driver_connection.execute(sql, values)  # type: ignore[union-attr]
    except connection.dialect.loaded_dbapi.Error as error:
        raise translated(connection, sql, error) from error


def execute_each(connection: Connection, sql: str, rows: Sequence[Any]) -> Any:
    """Run one statement on the driver's cursor with the values of each row. Returns and raises as `execute`."""
    cursor = connection.connection.dbapi_connection.cursor()  # type: ignore[union-attr]
    try:
        cursor.executemany(sql, rows)
    except connection.dialect.loaded_dbapi.Error as error:
        raise translated(connection, sql, error) from error
    return cursor


def _pipeline(connection: Connection) -> Pipeline | None:
    """Return the pipeline of a unit on PostgreSQL, unless somebody wants to hear what is run."""
    info = connection.connection.info
    if info.get(BEGIN) != "" or connection.dispatch.before_cursor_execute:
        return None
    return info.get(PIPELINE)


def translated(connection: Connection, sql: str, error: Exception) -> BaseException:
    """Return SQLAlchemy's error for one of the driver; a lost connection is told so."""
    dialect = connection.dialect
    driver_connection = connection.connection.dbapi_connection
    is_lost = dialect.is_disconnect(error, driver_connection, None)  # type: ignore[arg-type]
    if is_lost:
        connection.invalidate(error)
    return exc.DBAPIError.instance(
        sql, None, error, dialect.loaded_dbapi.Error, hide_parameters=True, connection_invalidated=is_lost,
        dialect=dialect,
    )  # fmt: skip
