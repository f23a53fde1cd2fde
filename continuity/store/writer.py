"""The writing connection of SQLite, and leader commit over it.

A commit waits for the disk, and SQLite has one writer at a time. So a thread that finds nobody committing runs its
own unit and those of all threads that wait, each behind a savepoint, and commits them with one sync; each learns its
result after that commit. Somebody alone runs as without any of this.

Rules:

* A unit that raises undoes its own statements alone. What it raises reaches its own thread, after the commit: it may
  have judged by what a neighbour wrote.
* If storage fails in a unit, everything is undone and each unit runs once more in a transaction of its own.
* If the commit fails, nobody of them is told anything but that storage cannot answer.
* Units of processes are not put together: `BEGIN IMMEDIATE` is asked every millisecond, as SQLite's own waiting (up
  to 100 ms between tries) lets a busy neighbour starve the others. From `HELD_S` on one thread alone asks.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from continuity.errors import UnavailableError
from continuity.store import failures
from continuity.store.sqlite import BEGIN
from continuity.store.turns import Ticket, Turns
from continuity.store.watching import UNWATCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection, Engine

    from continuity.store.watching import WriteWatch

T = TypeVar("T")

SCRUB_WAIT_S: Final = 0.1
"""How long other writers wait at most while `Writer.scrub` waits for readers."""
HELD_S: Final = 2.0
"""After so long it is no neighbour that writes but one that holds the lock: a backup, a migration, a debugger."""
_SAVEPOINT: Final = "SAVEPOINT unit"
_RELEASE: Final = "RELEASE unit"
_UNDO: Final = "ROLLBACK TO unit"


class Writer:
    """Runs units on one connection, which is opened when it is needed first. Safe to share between threads."""

    def __init__(self, engine: Engine, *, wait_s: float, storage_errors: tuple[type[Exception], ...]) -> None:
        """Keep `engine`; a unit waits for at most `wait_s` seconds, once among threads and once among processes."""
        self._engine = engine
        self._wait_s = wait_s
        self._storage_errors = storage_errors
        self._turns = Turns()
        self._in_use = threading.Lock()
        self._connection: Connection | None = None
        self.watch: WriteWatch = UNWATCHED

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` and commit it, with those of others if any wait. Raises what `Store.write` raises."""
        ticket = Ticket(work)
        self._turns.enter(ticket)
        try:
            self._wait(ticket)
            if ticket.leads:
                self._lead()
        except BaseException:
            # Whoever was interrupted must not be the one that all others wait for.
            self._turns.leave(ticket)
            raise
        if ticket.waited_s is not None:
            self.watch.waited(ticket.waited_s)
        if ticket.error is not None:
            raise ticket.error
        result: T = ticket.result
        return result

    def read(self, work: Callable[[Connection], T]) -> tuple[T] | None:
        """Run one SELECT over this connection, while nobody writes; None if that cannot be.

        Every commit makes the caches of all other connections stale. What comes before a decision (whose token is
        this?) would read everything anew, and the decision then finds its own connection out of the processor's caches.
        """
        if self._connection is None or not self._in_use.acquire(blocking=False):
            return None
        try:
            return self._read_in_turn(work)
        finally:
            self._in_use.release()

    def scrub(self) -> bool:
        """Write the -wal file back and empty it; False while somebody reads an older state. See `Store.scrub`."""
        if not self._in_use.acquire(timeout=self._wait_s):
            return False
        try:
            return self._empty_wal()
        finally:
            self._in_use.release()

    def close(self) -> None:
        """Give the connection back; the next unit opens another one."""
        with self._in_use:
            self._drop()

    # ---- leading

    def _wait(self, ticket: Ticket) -> None:
        """Wait until the ticket leads or is done."""
        if ticket.leads or ticket.wait(self._wait_s):
            return
        if self._turns.leave(ticket):
            raise UnavailableError("Too many writers wait for the database.")
        ticket.wait()

    def _lead(self) -> None:
        """Run everything that waits, the leader's own unit first, and let the next one lead."""
        taken: list[Ticket] = []
        try:
            with self._using():
                taken = self._turns.take()
                self._run(taken)
        except BaseException:
            for other in taken:
                other.error = other.error or UnavailableError("The database cannot answer now.")
            raise
        finally:
            if taken:
                self._turns.pass_on()
            for other in taken[1:]:
                other.wake()

    @contextmanager
    def _using(self) -> Iterator[None]:
        if not self._in_use.acquire(timeout=self._wait_s):
            raise UnavailableError("Too many writers wait for the database.")
        try:
            yield
        finally:
            self._in_use.release()

    def _run(self, taken: Sequence[Ticket]) -> None:
        if len(taken) == 1:
            self._run_alone(taken[0])
            return
        until = time.monotonic() + self._wait_s
        try:
            self._run_together(taken)
        except _UndoneError as error:
            for ticket in taken:
                if time.monotonic() > until:
                    ticket.error = failures.unavailable(error)
                else:
                    self._run_alone(ticket)

    def _run_alone(self, ticket: Ticket) -> None:
        try:
            connection = self._begun()
            ticket.run(connection)
            self._commit(connection, units=1)
        except BaseException as error:  # noqa: BLE001 - it reaches the thread whose unit this is
            self._undo(error)
            ticket.error = error

    def _run_together(self, taken: Sequence[Ticket]) -> None:
        try:
            connection = self._begun()
            self._run_each(connection, taken)
            self._commit(connection, units=len(taken))
        except self._storage_errors as error:
            self._undo(error)
            for ticket in taken:
                ticket.error = failures.unavailable(error)

    def _run_each(self, connection: Connection, taken: Sequence[Ticket]) -> None:
        try:
            for ticket in taken:
                self._run_beside(connection, ticket)
        except self._storage_errors as error:
            self._undo(error)
            raise _UndoneError from error

    def _run_beside(self, connection: Connection, ticket: Ticket) -> None:
        execute: Callable[[str], Any] = connection.connection.dbapi_connection.execute  # type: ignore[union-attr]
        execute(_SAVEPOINT).close()
        try:
            ticket.run(connection)
        except BaseException as error:
            if self._is_doubtful(connection, error):
                raise
            execute(_UNDO).close()
            ticket.error = error
        execute(_RELEASE).close()

    def _commit(self, connection: Connection, *, units: int) -> None:
        began_s = time.perf_counter()
        _commit(connection)
        self.watch.committed(time.perf_counter() - began_s, units)

    def _undo(self, error: BaseException) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            _roll_back(connection)
        finally:
            # Or it could not be rolled back.
            if self._is_doubtful(connection, error) or _is_begun(connection):
                self._drop()

    def _is_doubtful(self, connection: Connection, error: BaseException) -> bool:
        """Say whether what the connection believes of the file is not to be trusted any more."""
        if isinstance(error, self._storage_errors) and not failures.is_ours(error):
            return True
        return connection.closed or connection.invalidated

    # ---- the connection

    def _begun(self) -> Connection:
        connection = self._connection if self._connection is not None else self._open()
        driver_connection = connection.connection.dbapi_connection
        began = time.monotonic()
        is_held = False
        while True:
            try:
                driver_connection.execute("BEGIN IMMEDIATE").close()  # type: ignore[union-attr]
            except self._storage_errors as error:
                waited_s = time.monotonic() - began
                if not failures.is_busy(error) or waited_s > self._wait_s:
                    raise
                if waited_s > HELD_S and not is_held:
                    is_held = True
                    self._turns.hold()
                time.sleep(0.001)
            else:
                self._turns.release()
                return connection

    def _open(self) -> Connection:
        connection = self._engine.connect()
        # `_begun` begins. SQLAlchemy believes that it does, at the first statement that goes through it.
        connection.connection.info[BEGIN] = ""
        if connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal":
            # Only BEGIN IMMEDIATE can find the lock taken, and that is asked again above. With a rollback
            # journal COMMIT waits for readers, so there the time-out of all connections stays.
            connection.exec_driver_sql("PRAGMA busy_timeout=1")
        connection.rollback()
        self._connection = connection
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _read_in_turn(self, work: Callable[[Connection], T]) -> tuple[T] | None:
        connection = self._connection
        if connection is None:
            return None
        try:
            return (work(connection),)
        except self._storage_errors as error:
            if failures.is_ours(error):
                raise
            # It waits for nobody, and may be broken. A read has no effect, so it is run again elsewhere.
            self._drop()
            return None
        finally:
            _roll_back(connection)
            if connection.invalidated:
                self._drop()

    def _empty_wal(self) -> bool:
        connection = self._connection if self._connection is not None else self._open()
        give_up = time.monotonic() + SCRUB_WAIT_S
        try:
            while connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
                if time.monotonic() > give_up:
                    return False
                time.sleep(0.001)
            return True
        except self._storage_errors:
            self._drop()
            raise
        finally:
            connection.rollback()


class _UndoneError(Exception):
    """Storage failed in one of several units; all of them are undone and nobody was told anything."""


def _is_begun(connection: Connection) -> bool:
    return bool(getattr(connection.connection.dbapi_connection, "in_transaction", False))


def _commit(connection: Connection) -> None:
    """Commit. SQLAlchemy knows of the transaction when a statement went through it, and only then."""
    if connection.in_transaction():
        connection.commit()
    else:
        connection.connection.commit()


def _roll_back(connection: Connection) -> None:
    if connection.closed or connection.invalidated:
        return
    if connection.in_transaction():
        connection.rollback()
    if _is_begun(connection):
        connection.connection.rollback()
