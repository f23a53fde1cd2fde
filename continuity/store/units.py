"""Units of work on PostgreSQL: transactions over connections that are kept, tried again, and read back.

Rules:

* BEGIN goes with the first statement, COMMIT with the last ones; a reading transaction does not wait for its end.
* What PostgreSQL undid because of others (40001, 40P01), and what was under way when the connection was lost before
  COMMIT was sent, has not happened: the whole unit is run again, a few times.
* When the connection is lost during COMMIT, the server is asked what became of the transaction (`_Fate`). Committed:
  the unit's result stands. Undone: as above. Anything else stays unknown, and `UnavailableError` says so.
* Committed means on the synchronous replica too, where there is one: PostgreSQL calls a transaction committed as soon
  as somebody has ended the wait for it. So before the result stands another one is committed behind it and waited for.
* It is asked of the same server only. A number of a transaction means nothing after a failover, a restore or a crash,
  which may give it to another one; so the server is known by its identifier, its timeline and the moment since which
  it counts its statistics, which a crash makes it begin anew.
* A connection found dead means that all which were opened before it was lost are suspected: none of them is used again.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
import sqlalchemy as sa
from sqlalchemy import exc

from continuity.errors import UnavailableError
from continuity.store import failures
from continuity.store.compiled import PIPELINE, translated
from continuity.store.pipeline import BEGIN, COMMIT, SNAPSHOT, TRANSACTION, Pipeline, Statement, rows_of
from continuity.store.sqlite import BEGIN as BEGIN_WORDS
from continuity.store.watching import UNWATCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from psycopg.pq.abc import PGresult
    from sqlalchemy import Connection, Engine

    from continuity.store.watching import WriteWatch

T = TypeVar("T")

PAUSES_S: Final = (0.002, 0.01, 0.05)
"""Pauses before the tries after the first."""
READ_BACK_S: Final = 5.0
"""How long a transaction whose COMMIT was not answered is asked after: it may still be running, or the server away."""
_READ_BACK_PAUSE_S: Final = 0.05
_SERVER: Final = Statement(
    b"SERVER",
    b"SELECT system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),"
    b" pg_stat_get_bgwriter_stat_reset_time()::text FROM pg_control_system()",
)
_FATE: Final = Statement(b"FATE", b"SELECT pg_xact_status($1::text::xid8)")
_BEHIND: Final = Statement(b"BEHIND", b"SELECT pg_logical_emit_message(true, 'continuity', ''::text)")
"""Writes to the log alone, so that its COMMIT waits for whatever an earlier one should have waited for."""
_STALE: Final = frozenset({"0A000", "26000"})
"""A prepared statement that no longer fits its table, or that somebody has dropped."""


class _Fate(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    UNDONE = "aborted"
    UNKNOWN = "unknown"


class _UndoneError(Exception):
    """The connection was lost and the transaction has not happened."""


@dataclass(slots=True)
class _Unit:
    """One try of a unit: its connection and, once the server has said it, its transaction's number."""

    connection: Connection
    line: _Line
    number: int | None = None

    def note(self, answer: PGresult) -> None:
        [[self.number]] = rows_of(answer)


@dataclass(slots=True)
class _Line:
    """A connection's pipeline, the server at its other end, and the age of the connection."""

    pipeline: Pipeline
    server: tuple[Any, ...] | None
    generation: int


class Units:
    """Runs units of work on one engine. Safe to share between threads."""

    def __init__(self, engine: Engine, *, storage_errors: tuple[type[Exception], ...]) -> None:
        """Keep `engine`; nothing is opened yet."""
        self._engine = engine
        self._storage_errors = storage_errors
        self._away: tuple[type[Exception], ...] = (*storage_errors, _UndoneError)
        # One of the pool is always left to others.
        self._most = max(0, engine.pool.size() - 1)  # type: ignore[attr-defined]
        self._lock = threading.Lock()
        self._kept: list[Connection] = []
        self._generation = 0
        self.watch: WriteWatch = UNWATCHED
        sa.event.listen(engine, "engine_disposed", self._drop_kept)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` and commit it. Raises what `Store.write` raises, or the driver's own errors."""
        for pause_s in PAUSES_S:
            try:
                return self._write_once(work)
            except _UndoneError:
                pass
            except exc.DBAPIError as error:
                if not failures.is_conflict(error):
                    raise
            time.sleep(pause_s)
        try:
            return self._write_once(work)
        except _UndoneError as error:
            raise failures.undone() from error.__cause__

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one state of the database."""
        return self._reading(work, (SNAPSHOT,))

    def autocommit(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, one SELECT, outside of any transaction."""
        return self._reading(work, ())

    def close(self) -> None:
        """Give every kept connection back to the pool."""
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            self._hand_over(connection)

    # ---- reading

    def _reading(self, work: Callable[[Connection], T], begin: Sequence[Statement]) -> T:
        try:
            return self._read_once(work, begin)
        except _UndoneError:
            # It died while it was kept. A read has no effect, so it is run again, over a new connection.
            pass
        try:
            return self._read_once(work, begin)
        except _UndoneError as error:
            raise failures.undone() from error.__cause__

    def _read_once(self, work: Callable[[Connection], T], begin: Sequence[Statement]) -> T:
        with self._taken() as unit:
            pipeline = unit.line.pipeline
            for statement in begin:
                pipeline.add(statement)
            result = work(unit.connection)
            if not begin or pipeline.is_queued:
                # Nothing was begun that would have to end.
                pipeline.drop()
            elif unit.connection.in_transaction():
                pipeline.add(COMMIT)
                pipeline.exchange()
            else:
                pipeline.leave(COMMIT)
            return result

    # ---- writing

    def _write_once(self, work: Callable[[Connection], T]) -> T:
        came_s = time.perf_counter()
        try:
            with self._taken() as unit:
                self.watch.waited(time.perf_counter() - came_s)
                unit.line.pipeline.add(BEGIN)
                unit.line.pipeline.add(TRANSACTION, take=unit.note)
                result = work(unit.connection)
                began_s = time.perf_counter()
                self._commit(unit)
                self.watch.committed(time.perf_counter() - began_s, 1)
                return result
        except _DoubtfulError as doubt:
            self._suspect(doubt.unit.line.generation)
            fate = self._fate(doubt.unit)
            if fate is _Fate.UNDONE:
                raise _UndoneError from doubt.__cause__
            if fate is _Fate.UNKNOWN:
                raise UnavailableError("The database cannot answer now.", retry_after_s=5) from doubt.__cause__
            return result

    def _commit(self, unit: _Unit) -> None:
        pipeline = unit.line.pipeline
        if unit.number is None:
            # Nobody has asked anything yet, and without its number the transaction could not be asked after.
            pipeline.flush()
        try:
            if unit.connection.in_transaction():
                # By SQLAlchemy, which tells whoever listens; it comes back by `Dialect.do_commit`.
                unit.connection.commit()
            else:
                pipeline.commit()
        except (psycopg.Error, exc.DBAPIError) as error:
            if pipeline.is_lost:
                raise _DoubtfulError(unit) from error
            raise

    # ---- what became of it

    def _fate(self, unit: _Unit) -> _Fate:
        """Ask what became of a transaction whose COMMIT was not answered."""
        until = time.monotonic() + READ_BACK_S
        while unit.line.server is not None and unit.number is not None:
            try:
                found = self._asked(unit.line.server, unit.number)
            except self._away:
                # It is starting again, or somebody else takes over.
                found = None
            if found is not None:
                return found
            if time.monotonic() > until:
                break
            time.sleep(_READ_BACK_PAUSE_S)
        return _Fate.UNKNOWN

    def _asked(self, server: tuple[Any, ...], number: int) -> _Fate | None:
        """Return what the server says; None while the transaction runs."""
        with self._taken() as unit:
            if unit.line.server != server:
                return _Fate.UNKNOWN
            unit.line.pipeline.add(_FATE, (str(number),))
            [[said]] = unit.line.pipeline.rows()
            if said == "committed":
                unit.line.pipeline.add(BEGIN)
                unit.line.pipeline.add(_BEHIND)
                unit.line.pipeline.commit(within_s=READ_BACK_S)
        return {"committed": _Fate.COMMITTED, "aborted": _Fate.UNDONE, "in progress": None}.get(said, _Fate.UNKNOWN)

    # ---- connections

    @contextmanager
    def _taken(self) -> Iterator[_Unit]:
        """Lend a connection in which nothing is begun, and end whatever the block has left open.

        Raises:
            _UndoneError: The connection was lost in the block, or before.
            sqlalchemy.exc.DBAPIError: What psycopg raised, as SQLAlchemy would have raised it.
        """
        generation = self._generation
        connection = self._take()
        is_sound = False
        try:
            unit = _Unit(connection, self._line(connection, generation))
            yield unit
            if connection.in_transaction():
                # What SQLAlchemy believes; on the wire it has ended, so nothing is sent.
                connection.commit()
            is_sound = True
        except BaseException as error:
            is_sound = self._undo(connection, error)
            told = self._told(connection, error, generation)
            if told is error:
                raise
            raise told from error
        finally:
            self._give_back(connection, generation, is_sound=is_sound)

    def _take(self) -> Connection:
        with self._lock:
            if self._kept:
                # The one used last: what it has cached is freshest.
                return self._kept.pop()
        return self._engine.connect()

    def _line(self, connection: Connection, generation: int) -> _Line:
        info = connection.connection.info
        line: _Line | None = info.get(_LINE)
        if line is None:
            pipeline = Pipeline(connection.connection.dbapi_connection)  # type: ignore[arg-type]
            line = _Line(pipeline, _server_of(pipeline), generation)
            info[PIPELINE], info[_LINE] = pipeline, line
        info[BEGIN_WORDS] = ""
        return line

    def _undo(self, connection: Connection, error: BaseException) -> bool:
        """End what is open; returns whether the connection can be used again."""
        if _is_lost(connection):
            return False
        pipeline = connection.connection.info.get(PIPELINE)
        try:
            if pipeline is not None:
                pipeline.roll_back()
            if connection.in_transaction():
                connection.rollback()
        except self._storage_errors:
            return False
        return pipeline is not None and failures.sqlstate(error) not in _STALE

    def _told(self, connection: Connection, error: BaseException, generation: int) -> BaseException:
        """Return what to raise instead of an error of the driver, or where the connection is lost."""
        if not isinstance(error, self._storage_errors):
            return error
        if _is_lost(connection):
            self._suspect(generation)
            return _UndoneError()
        return translated(connection, "", error) if isinstance(error, psycopg.Error) else error

    def _suspect(self, generation: int) -> None:
        """Let no connection that was opened before be used again, unless that was done since."""
        with self._lock:
            if generation != self._generation:
                return
            self._generation += 1
        self._engine.dispose()

    def _drop_kept(self, _engine: Engine) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            _throw_away(connection)

    def _give_back(self, connection: Connection, generation: int, *, is_sound: bool) -> None:
        if not is_sound:
            _throw_away(connection)
            return
        with self._lock:
            if generation == self._generation and len(self._kept) < self._most:
                self._kept.append(connection)
                return
        self._hand_over(connection)

    def _hand_over(self, connection: Connection) -> None:
        """Give a connection to the pool, whose next user begins by other rules."""
        info = connection.connection.info
        try:
            info[PIPELINE].flush()
        except psycopg.Error:
            _throw_away(connection)
            return
        info.pop(BEGIN_WORDS, None)
        connection.close()


class _DoubtfulError(Exception):
    """The connection was lost after COMMIT was sent."""

    def __init__(self, unit: _Unit) -> None:
        super().__init__()
        self.unit = unit


_LINE: Final = "continuity.line"


def _server_of(pipeline: Pipeline) -> tuple[Any, ...] | None:
    """Ask which server this is; None where that may not be asked, or it only follows another."""
    pipeline.add(_SERVER)
    try:
        [row] = pipeline.rows()
    except psycopg.Error:
        if pipeline.is_lost:
            raise
        return None
    return None if None in row else tuple(row)


def _is_lost(connection: Connection) -> bool:
    if connection.closed or connection.invalidated:
        return True
    driver: Any = connection.connection.dbapi_connection
    return bool(driver.closed)


def _throw_away(connection: Connection) -> None:
    if not connection.closed and not connection.invalidated:
        connection.invalidate()
    connection.close()
