"""What one connection of PostgreSQL is sent: prepared statements, several of them in one round trip.

A round trip costs a sleep, two switches of processes and a fight for the interpreter, more than most statements do.
So a statement whose answer nobody waits for stays here until one is asked whose answer is needed, and goes with it:
BEGIN with the first one, the last ones with COMMIT. It is libpq's pipeline, over the connection that psycopg opened;
between two exchanges psycopg and SQLAlchemy use the same connection as ever.

Rules:

* What is queued runs in its order. Whatever fails in an exchange skips all that follows in it, COMMIT included.
* A statement is prepared once a connection, by a name of its own; no type is named, so the server takes the column's.
* Strings and bytes travel as they are with their length (a NUL is refused by the server, not cut off there), numbers
  and booleans as text; answers in binary.
* COMMIT that is not answered with COMMIT has not committed. One that is answered with a warning has committed on this
  server alone: somebody has ended its wait for a synchronous replica.
* COMMIT is waited for no longer than `COMMIT_S`, as PostgreSQL's own limit of a statement does not hold for it.
* Whatever leaves an exchange half done (an interrupt included) ends the connection.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import psycopg
from psycopg import errors
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    Take = Callable[[PGresult], None]
    _Queued = tuple["Named", Sequence[Any], Take | None]
    _Owed = Take | None

COMMIT_S: Final = 10.0
"""How long COMMIT may take; a synchronous replica that is away would let it wait without end."""
_TEXT, _BINARY = 0, 1


class Named(Protocol):
    """A statement as the server gets it: parameters are ``$1``, ``$2``…; one name stands for one text for ever."""

    @property
    def name(self) -> bytes:
        """By which the server knows it once it is prepared."""

    @property
    def sql(self) -> bytes:
        """Its text."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One that is written here or in `continuity.store.units`; all others are compiled."""

    name: bytes
    sql: bytes


COMMIT: Final = Statement(b"COMMIT", b"COMMIT")
BEGIN: Final = Statement(b"BEGIN", b"BEGIN")
SNAPSHOT: Final = Statement(b"SNAPSHOT", b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
TRANSACTION: Final = Statement(b"TRANSACTION", b"SELECT pg_current_xact_id()::text::bigint")
"""Gives a transaction its number, by which its end can be asked for when the answer to COMMIT was lost."""


class Pipeline:
    """The statements of one connection. For one thread at a time."""

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        """Take a connection that is idle."""
        self._driver = driver
        self._prepared: set[bytes] = set()
        self._queue: list[_Queued] = []
        self._owed: list[_Owed] = []
        self._waiting = select.poll()
        self._until_s: float | None = None
        self._is_warned = False
        driver.add_notice_handler(self._note_warning)

    def add(self, statement: Named, values: Sequence[Any] = (), *, take: Take | None = None) -> None:
        """Queue a statement: it goes with the next one whose answer is waited for. `take` gets its own answer."""
        self._queue.append((statement, values, take))

    def drop(self) -> None:
        """Forget what was queued and not sent."""
        self._queue.clear()

    def flush(self) -> None:
        """Send what is queued, if anything is, and wait until it is done. Raises as `exchange`."""
        if self._queue or self._owed:
            self.exchange()

    def exchange(self) -> list[PGresult]:
        """Send what is queued in one round trip; returns the answers in its order, the last one last.

        Raises:
            psycopg.Error: Of the first statement that failed; those behind it were not run.
        """
        self._send()
        return self._receive()

    def rows(self) -> list[list[Any]]:
        """Send what is queued and return the rows of the last one. Raises as `exchange`."""
        return rows_of(self.exchange()[-1])

    def count(self) -> int:
        """Send what is queued and return how many rows the last one met. Raises as `exchange`."""
        return int(self.exchange()[-1].command_tuples or 0)

    def leave(self, statement: Named) -> None:
        """Send one last statement and do not wait: its answer is taken with the next exchange, and must be no error."""
        self.add(statement)
        self._send()

    def commit(self, *, within_s: float | None = None) -> None:
        """Send what is queued with COMMIT behind it, and wait: for `within_s` seconds, or `COMMIT_S`, then it is lost.

        Raises:
            psycopg.Error: It failed; where the connection is lost, whether it took effect is unknown.
            psycopg.OperationalError: It took effect, and a synchronous replica may not have it.
        """
        self.add(COMMIT)
        self._is_warned, self._until_s = False, time.monotonic() + (COMMIT_S if within_s is None else within_s)
        try:
            answer = self.exchange()[-1]
        finally:
            self._until_s = None
        if self._is_warned:
            raise errors.OperationalError("committed here, and perhaps on no replica")
        if answer.command_status != b"COMMIT":
            # PostgreSQL answers so to COMMIT in a transaction that has failed before.
            raise errors.InFailedSqlTransaction("the transaction had failed and was rolled back")

    def roll_back(self) -> None:
        """Drop what is queued and end the transaction that is open, if one is.

        Raises:
            psycopg.Error: It cannot be; the connection must not be used again.
        """
        self.drop()
        if self._owed:
            self._receive()
        if self._driver.pgconn.transaction_status != TransactionStatus.IDLE:
            self.add(_ROLLBACK)
            self.exchange()

    @property
    def is_queued(self) -> bool:
        """Whether something is queued that was not sent."""
        return bool(self._queue)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or about to be."""
        return bool(self._queue) or self._driver.pgconn.transaction_status != TransactionStatus.IDLE

    @property
    def is_lost(self) -> bool:
        """Whether the connection is of no use any more."""
        return self._driver.closed

    # ---- the wire

    def _send(self) -> None:
        queue, self._queue = self._queue, []
        pgconn = self._driver.pgconn
        self._require_open(pgconn)
        try:
            if not self._owed:
                pgconn.enter_pipeline_mode()
            is_new: set[bytes] = set()
            for statement, values, take in queue:
                if statement.name not in self._prepared and statement.name not in is_new:
                    is_new.add(statement.name)
                    pgconn.send_prepare(statement.name, statement.sql)
                    self._owed.append(partial(self._note_prepared, statement.name))
                written, formats = _written(values)
                pgconn.send_query_prepared(statement.name, written, formats, result_format=_BINARY)
                self._owed.append(take)
            pgconn.pipeline_sync()
            self._owed.append(None)
            while pgconn.flush():
                self._wait(pgconn, select.POLLOUT | select.POLLIN)
                pgconn.consume_input()
        except BaseException:
            self._end()
            raise

    def _receive(self) -> list[PGresult]:
        pgconn = self._driver.pgconn
        owed, self._owed = self._owed, []
        answers: list[PGresult] = []
        failed: PGresult | None = None
        try:
            for take in owed:
                answer = self._answer(pgconn)
                if answer.status == ExecStatus.FATAL_ERROR:
                    failed = failed or answer
                elif answer.status in _DONE:
                    answers.append(answer)
                    if take is not None:
                        take(answer)
            pgconn.exit_pipeline_mode()
        except BaseException as error:
            self._end()
            if failed is not None and isinstance(error, psycopg.Error):
                raise _lost(failed) from error
            raise
        if failed is not None:
            raise errors.error_from_result(failed)
        return answers

    def _answer(self, pgconn: PGconn) -> PGresult:
        """Return the next result; a command's is followed by an empty one, a sync's is not."""
        result = self._result(pgconn)
        if result is None:
            raise errors.OperationalError("the connection has no answer")
        if result.status != ExecStatus.PIPELINE_SYNC:
            while self._result(pgconn) is not None:
                pass
        if pgconn.status == ConnStatus.BAD:
            raise _lost(result)
        return result

    def _result(self, pgconn: PGconn) -> PGresult | None:
        while pgconn.is_busy():
            self._wait(pgconn, select.POLLIN)
            pgconn.consume_input()
        return pgconn.get_result()

    def _wait(self, pgconn: PGconn, events: int) -> None:
        # The server ends what takes too long, and TCP a server that is gone: `continuity.store.postgresql`.
        self._waiting.register(pgconn.socket, events)
        left_ms = None if self._until_s is None else max(0.0, self._until_s - time.monotonic()) * 1000
        if not self._waiting.poll(left_ms):
            raise errors.OperationalError("COMMIT was not answered in time")

    def _note_warning(self, said: errors.Diagnostic) -> None:
        self._is_warned = self._is_warned or said.severity_nonlocalized == "WARNING"

    def _note_prepared(self, name: bytes, _answer: PGresult) -> None:
        self._prepared.add(name)

    def _require_open(self, pgconn: PGconn) -> None:
        if pgconn.status != ConnStatus.OK:
            self._owed.clear()
            raise errors.OperationalError("the connection is closed")

    def _end(self) -> None:
        self._owed.clear()
        self._driver.close()


_ROLLBACK: Final = Statement(b"ROLLBACK", b"ROLLBACK")
_DONE: Final = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK})


def _lost(result: PGresult) -> psycopg.Error:
    """Return the error of a connection that is lost, with what the server last said if it said anything."""
    said = errors.error_from_result(result) if result.status == ExecStatus.FATAL_ERROR else None
    return said if isinstance(said, errors.OperationalError) else errors.OperationalError("the connection was lost")


# ---- values


def _written(values: Sequence[Any]) -> tuple[list[bytes | None], list[int]]:
    written: list[bytes | None] = []
    formats: list[int] = []
    for value in values:
        kind = type(value)
        if value is None:
            written.append(None)
            formats.append(_TEXT)
        elif kind is int:
            written.append(b"%d" % value)
            formats.append(_TEXT)
        elif kind is bytes:
            written.append(value)
            formats.append(_BINARY)
        elif isinstance(value, str):
            written.append(value.encode())
            formats.append(_BINARY)
        elif kind is bool:
            written.append(b"t" if value else b"f")
            formats.append(_TEXT)
        else:
            raise TypeError(f"a compiled statement takes no {kind.__name__}")
    return written, formats


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


_READ: Final = {
    16: lambda value: value != b"\0",  # bool
    17: bytes,  # bytea
    20: _integer,  # int8
    21: _integer,  # int2
    23: _integer,  # int4
    25: bytes.decode,  # text
    1043: bytes.decode,  # varchar
}
"""How a value of each type is read that a compiled statement may select, by its number in PostgreSQL's catalogue."""


def rows_of(result: PGresult) -> list[list[Any]]:
    """Return the rows of an answer.

    Raises:
        TypeError: A column has a type of which no value is read here.
    """
    columns = range(result.nfields)
    try:
        readers = [_READ[result.ftype(column)] for column in columns]
    except KeyError as unknown:
        raise TypeError(f"a compiled statement selects no type {unknown}") from None
    return [[_cell(result, row, column, readers[column]) for column in columns] for row in range(result.ntuples)]


def _cell(result: PGresult, row: int, column: int, read: Any) -> Any:
    value = result.get_value(row, column)
    return None if value is None else read(value)
