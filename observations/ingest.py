"""Takes events in: who may use the database when, and how much of it at a time.

Rules:

* All of a call is one transaction; what becomes of each event in it says `observations.acceptance`.
* One writer a scope: its row is locked first. With SQLite it also pauses between transactions, so that whoever
  begins or ends an attempt meanwhile finds the database free.
* `PLACES` callers at a time use the database, and as many wait for them, `PLACE_WAIT_S` at most; the others are told
  to come again. Nothing here shares a connection, a lock or a thread's time without end with governed operations.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity.errors import ConflictError, ThrottledError
from observations import store
from observations.acceptance import Result, observe
from observations.events import Event

T = TypeVar("T")

PLACES: Final = 4
"""Callers that use the database at a time. As many more may wait: an agent sends an event once, so whoever comes
in the same moment as others must not be sent away, and half of the server's threads stay free of events."""
PLACE_WAIT_S: Final = 1.0
"""How long a caller waits for a place: half of what a producer gives an event."""
BATCH: Final = 100
"""Most events of one transaction."""
PAUSE_S: Final = 0.002
"""Between transactions on SQLite; writers of other connections ask every millisecond."""
_TRIES: Final = 3


class Ingest:
    """Takes in events. Safe to share between threads."""

    def __init__(self, units: store.Units, *, now_us: Callable[[], int], pause_s: float = PAUSE_S) -> None:
        """Keep the seam to the database, whose connections nobody else should use.

        Args:
            units: Runs the transactions.
            now_us: The server's time, for when an event was received.
            pause_s: Seconds without a transaction after each, on SQLite.
        """
        self._units = units
        self._now_us = now_us
        self._pause_s = 0.0 if units.is_postgresql else pause_s
        self._inside = threading.BoundedSemaphore(2 * PLACES)
        self._places = threading.BoundedSemaphore(PLACES)
        self._turn = threading.Lock()
        self._free_at = 0.0

    def accept(self, scope: str, event: Event) -> bool:
        """Take in one event for somebody who waits.

        Returns:
            True if the same event is known already.

        Raises:
            ConflictError: Refused, code ``event_conflict``, whether it contradicts what is known, which is counted,
                or is of a time that was pruned; nothing else has changed.
            ThrottledError: Too many wait; nothing has happened.
            UnavailableError: Storage cannot answer; the event may be sent again.
        """
        with self._place():
            (result,) = self.accept_all(scope, [event])
        if result in {Result.REFUSED, Result.PRUNED}:
            raise ConflictError(
                "The event contradicts what is known, or is of a time that is no longer kept.", code="event_conflict"
            )
        return result is Result.REPLAYED

    def accept_all(self, scope: str, events: Sequence[Event]) -> list[Result]:
        """Take in at most `BATCH` events in one transaction.

        Returns:
            What became of each, in their order. All of it is on disk.

        Raises:
            UnavailableError: Storage cannot answer; all of them may be sent again.
        """
        if len(events) > BATCH:
            raise ValueError(f"At most {BATCH} events at once.")
        now_us = self._now_us()

        def work(connection: Connection) -> list[Result]:
            held = store.lock_scope(connection, scope)
            return [observe(connection, held, event, now_us=now_us) for event in events]

        with self._in_turn():
            return _repeated(lambda: self._units.write(work))

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._inside.acquire(blocking=False):
            raise ThrottledError("Too many events at once.")
        try:
            if not self._places.acquire(timeout=PLACE_WAIT_S):
                raise ThrottledError("Too many events at once.")
            try:
                yield
            finally:
                self._places.release()
        finally:
            self._inside.release()

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        if not self._pause_s:
            yield
            return
        with self._turn:
            time.sleep(max(0.0, self._free_at - time.monotonic()))
            try:
                yield
            finally:
                self._free_at = time.monotonic() + self._pause_s


def _repeated(write: Callable[[], T]) -> T:
    """Write again when two made the same row at once: the scope's, before there was one to lock."""
    for _ in range(_TRIES - 1):
        try:
            return write()
        except sa.exc.IntegrityError:
            continue
    return write()
