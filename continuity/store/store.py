"""`Store`: the one seam through which services read and write.

Usage::

    def work(connection: Connection) -> int:
        connection.execute(sa.update(workflows).where(...).values(...))
        return 1

    count = store.write(work)      # committed and on disk when it returns

Rules:

* `work` has no side effect but its statements: it may run again after a conflict, and nothing may be answered
  before `Store.write` returns.
* Whatever `work` raises rolls everything back and comes out unchanged, `sqlalchemy.exc.IntegrityError` of a
  constraint included: the service says what it means. Inside `work` nothing can be done after it (PostgreSQL
  refuses further statements), so let it leave `write` and read again.
* Whatever says that storage cannot answer becomes `UnavailableError`. Raised by `write` it leaves open whether
  the commit took effect, unless it says that nothing has happened: the caller asks again with the same request.
  On PostgreSQL what is known not to have happened was tried again before, and a lost answer to COMMIT was asked
  for (`continuity.store.units`).
* SQLite has one writer at a time: threads that write at once commit together (`continuity.store.writer`). So `work`
  may run in the thread of a neighbour, with the context variables of its own.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy import exc

from continuity.store import failures
from continuity.store.sqlite import BEGIN
from continuity.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine

    from continuity.store.units import Units
    from continuity.store.watching import WriteWatch

T = TypeVar("T")

WRITE_WAIT_S: Final = 5.0
"""How long a writer waits for its turn, once among threads and once among processes."""


class Store:
    """Runs units of work against one engine of `engine.make_engine`. Safe to share between threads."""

    def __init__(self, engine: Engine, *, write_wait_s: float = WRITE_WAIT_S) -> None:
        """Keep `engine`; nothing is opened yet.

        Args:
            engine: From `continuity.store.engine.make_engine`; the store does not dispose of it.
            write_wait_s: Seconds that a writer of SQLite waits for its turn before `UnavailableError`.
        """
        self._engine = engine
        self._inside = threading.local()
        self._readers = _Readers(engine)
        driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._storage_errors = (exc.DBAPIError, exc.TimeoutError, driver_error)
        self._writer = Writer(engine, wait_s=write_wait_s, storage_errors=self._storage_errors)
        self._units = _units(engine, self._storage_errors) if self.is_postgresql else None

    def watch(self, watch: WriteWatch) -> None:
        """Tell `watch` from now on how long units wait and commits take."""
        self._writer.watch = watch
        if self._units is not None:
            self._units.watch = watch

    @property
    def engine(self) -> Engine:
        """The engine, for migrations and status."""
        return self._engine

    @property
    def is_postgresql(self) -> bool:
        """True for PostgreSQL, False for SQLite."""
        return self._engine.dialect.name == "postgresql"

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one writing transaction and commit it durably.

        On SQLite the transaction is immediate, so nobody else writes meanwhile; on PostgreSQL it is
        READ COMMITTED and `work` locks the rows that it decides on.

        Returns:
            What `work` returned; its statements are on disk.

        Raises:
            UnavailableError: Storage cannot answer; unknown whether the commit took effect.
            sqlalchemy.exc.IntegrityError: A constraint refused; nothing has happened.
            Exception: Whatever `work` raised; nothing has happened.
            RuntimeError: Called from inside another `write` of the same thread; nothing has happened.
        """
        if getattr(self._inside, "is_writing", False):
            raise RuntimeError("Store.write was called from inside Store.write.")
        run = self._writer.write if self._units is None else self._units.write
        self._inside.is_writing = True
        try:
            with self._seam():
                return run(work)
        finally:
            self._inside.is_writing = False

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one unchanging state of the database. It must not write.

        Raises:
            UnavailableError: Storage cannot answer.
            Exception: Whatever `work` raised.
        """
        with self._seam():
            return self._reading(work, begin="BEGIN") if self._units is None else self._units.read(work)

    def autocommit(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, one SELECT, outside of any transaction: the cheapest way to read a row.

        Raises:
            UnavailableError: Storage cannot answer.
            Exception: Whatever `work` raised.
        """
        with self._seam():
            if self._units is not None:
                return self._units.autocommit(work)
            found = self._writer.read(work)
            return found[0] if found is not None else self._reading(work, begin="")

    def scrub(self) -> bool:
        """Let no file of SQLite keep what was deleted: write the -wal file back and empty it.

        Deleted rows are overwritten in the database itself (``secure_delete``), and their last versions
        stand in the -wal file until then. PostgreSQL's own vacuum does this.

        Returns:
            Whether it is done; False while somebody reads an older state. Ask again later.

        Raises:
            UnavailableError: Storage cannot answer.
        """
        if self.is_postgresql:
            return True
        with self._seam():
            return self._writer.scrub()

    def close(self) -> None:
        """Give back the connections that are kept. The store can be used again afterwards."""
        if self._units is not None:
            self._units.close()
        self._writer.close()
        self._readers.close()

    @contextmanager
    def _seam(self) -> Iterator[None]:
        try:
            yield
        except self._storage_errors as error:
            if failures.is_ours(error):
                raise
            raise failures.unavailable(error) from error

    # ---- reading, SQLite

    def _reading(self, work: Callable[[Connection], T], *, begin: str) -> T:
        try:
            return self._read_once(work, begin)
        except exc.DBAPIError as error:
            # A read has no effect, so it is run again.
            if not error.connection_invalidated:
                raise
        return self._read_once(work, begin)

    def _read_once(self, work: Callable[[Connection], T], begin: str) -> T:
        connection = self._readers.take()
        is_sound = False
        try:
            info = connection.connection.info
            info[BEGIN] = begin
            try:
                result = work(connection)
            finally:
                connection.rollback()
                info.pop(BEGIN, None)
            is_sound = True
            return result
        finally:
            self._readers.give_back(connection, is_sound=is_sound)


def _units(engine: Engine, storage_errors: tuple[type[Exception], ...]) -> Units:
    # psycopg is installed with the extra `postgres` alone.
    from continuity.store.units import Units  # noqa: PLC0415

    return Units(engine, storage_errors=storage_errors)


class _Readers:
    """Connections that have read from SQLite and are kept for the next who reads.

    A look-up of a credential is one statement; to take a connection from the pool and to give it back costs
    more. The one used last is the first to be used again, as what it has cached is freshest. One of the pool
    is always left to others. On PostgreSQL they are kept in `continuity.store.units`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        size: int = engine.pool.size()  # type: ignore[attr-defined]
        self._most = max(0, size - 1)
        self._lock = threading.Lock()
        self._kept: list[Connection] = []

    def take(self) -> Connection:
        with self._lock:
            if self._kept:
                return self._kept.pop()
        return self._engine.connect()

    def give_back(self, connection: Connection, *, is_sound: bool) -> None:
        with self._lock:
            if is_sound and len(self._kept) < self._most:
                self._kept.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()
