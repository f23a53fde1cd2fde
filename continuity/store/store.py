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
  the commit took effect: the caller asks again with the same request, nobody here repeats it.
* SQLite has one writer at a time: threads that write at once commit together (`continuity.store.writer`). So `work`
  may run in the thread of a neighbour, with the context variables of its own.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy import exc

from continuity.store import failures
from continuity.store.sqlite import BEGIN
from continuity.store.watching import UNWATCHED
from continuity.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine

    from continuity.store.watching import WriteWatch

T = TypeVar("T")

WRITE_WAIT_S: Final = 5.0
"""How long a writer waits for its turn, once among threads and once among processes."""
CONFLICT_PAUSES_S: Final = (0.002, 0.01, 0.05)
"""Pauses before the tries after the first, when PostgreSQL undid a transaction because of others."""
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


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
        self._watch: WriteWatch = UNWATCHED
        driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._storage_errors = (exc.DBAPIError, exc.TimeoutError, driver_error)
        self._writer = Writer(engine, wait_s=write_wait_s, storage_errors=self._storage_errors)

    def watch(self, watch: WriteWatch) -> None:
        """Tell `watch` from now on how long units wait and commits take."""
        self._watch = self._writer.watch = watch

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
        run = self._write_postgresql if self.is_postgresql else self._writer.write
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
            return self._reading(work, begin=_SNAPSHOT if self.is_postgresql else "BEGIN")

    def autocommit(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, one SELECT, outside of any transaction: the cheapest way to read a row.

        Raises:
            UnavailableError: Storage cannot answer.
            Exception: Whatever `work` raised.
        """
        with self._seam():
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
        """Give back the connections that are kept for SQLite. The store can be used again afterwards."""
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

    # ---- reading

    def _reading(self, work: Callable[[Connection], T], *, begin: str) -> T:
        try:
            return self._read_once(work, begin)
        except exc.DBAPIError as error:
            # A connection that died in the pool (the server was restarted) says so only when used. A read
            # has no effect, so it is run again; the pool has dropped every connection of that age.
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

    # ---- writing, PostgreSQL

    def _write_postgresql(self, work: Callable[[Connection], T]) -> T:
        for pause_s in CONFLICT_PAUSES_S:
            try:
                return self._write_once(work)
            except exc.DBAPIError as error:
                if not failures.is_conflict(error):
                    raise
            time.sleep(pause_s)
        return self._write_once(work)

    def _write_once(self, work: Callable[[Connection], T]) -> T:
        came_s = time.perf_counter()
        with self._begun() as connection:
            self._watch.waited(time.perf_counter() - came_s)
            result = work(connection)
            began_s = time.perf_counter()
            connection.commit()
            self._watch.committed(time.perf_counter() - began_s, 1)
            return result

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        connection = self._engine.connect()
        try:
            try:
                connection.begin()
            except exc.DBAPIError as error:
                # Dead in the pool, as above; nothing was sent but BEGIN.
                if not error.connection_invalidated:
                    raise
                connection.close()
                connection = self._engine.connect()
                connection.begin()
            yield connection
        finally:
            connection.close()


class _Readers:
    """Connections that have read from SQLite and are kept for the next who reads.

    A look-up of a credential is one statement; to take a connection from the pool and to give it back costs
    more. The one used last is the first to be used again, as what it has cached is freshest. One of the pool
    is always left to others. On PostgreSQL none is kept: what has died there must be the pool's to notice.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        size: int = engine.pool.size() if engine.dialect.name == "sqlite" else 0  # type: ignore[attr-defined]
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
