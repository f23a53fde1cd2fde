"""Turns of the calls of one message, which LangChain starts at the same time.

Rules:

* A call goes when every governed call before it has its result: in this run, or stored by an earlier one.
* Once a call has raised, those that wait behind it are blocked, and so is whoever comes later; only a call
  that raised in an *earlier* run may come again, and is waited for `RETURN_S` long.
* A call before it that never comes, because somebody else has answered or refused it, is waited for
  `ARRIVAL_S` long. Waiting too briefly costs one more resume, and never an effect.

Source: docs/adr/0013.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

ARRIVAL_S: Final = 5.0
RETURN_S: Final = 0.5
POLL_S: Final = 0.2
"""How often the store is asked whether a call that does not come was answered."""

LINES_MOST: Final = 256
"""Messages whose turns are remembered; those in use stay beyond it."""


class Turn(Enum):
    """What a waiting call may do."""

    GO = "go"
    WAIT = "wait"
    BLOCKED = "blocked"


class _Place(Enum):
    WAITING = "waiting"
    DONE = "done"
    RAISED = "raised"


class Line:
    """The calls of one message in the run that goes on. Threads and tasks of any loop may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._blocked: set[str] = set()
        self._order: Sequence[str] = ()
        self._wakes: set[Callable[[], object]] = set()
        self._reading: Future[Any] | None = None
        self.cause: BaseException | None = None
        """What the last call that failed has raised."""

    @property
    def is_in_use(self) -> bool:
        """Some call is between its arrival and its end."""
        return _Place.WAITING in self._places.values()

    def arrive(self, call_id: str) -> None:
        """Take a place. A call that had ended comes again in a new run, where what had ended counts no more."""
        with self._lock:
            if self._places.get(call_id, _Place.WAITING) is not _Place.WAITING:
                self._places = {known: place for known, place in self._places.items() if place is _Place.WAITING}
                self._reading = self.cause = None
            self._blocked.discard(call_id)
            self._places[call_id] = _Place.WAITING

    def reading(self) -> tuple[Future[Any], bool]:
        """Return what will hold the stored message, and whether the caller is the one to read it."""
        with self._lock:
            if self._reading is not None:
                return self._reading, False
            self._reading = Future()
            # Running, so that a task that stops waiting for it cancels nothing for the others.
            self._reading.set_running_or_notify_cancel()
            return self._reading, True

    def arrange(self, order: Sequence[str]) -> None:
        """Say in which order the calls go."""
        with self._lock:
            self._order = order

    def answer(self, call_ids: Collection[str]) -> None:
        """Say which calls have their result stored."""
        with self._lock:
            for call_id in call_ids:
                if self._places.get(call_id) is not _Place.WAITING:
                    self._places[call_id] = _Place.DONE

    def turn(self, call_id: str, *, waited_s: float) -> Turn:
        """Say what a call that has waited so many seconds may do."""
        with self._lock:
            if call_id in self._blocked:
                return Turn.BLOCKED
            for earlier in self._order[: self._order.index(call_id)]:
                place = self._places.get(earlier)
                if place is _Place.DONE:
                    continue
                patience_s = {None: ARRIVAL_S, _Place.RAISED: RETURN_S}.get(place)
                return Turn.WAIT if patience_s is None or waited_s < patience_s else Turn.BLOCKED
            return Turn.GO

    def is_missing(self, call_id: str) -> bool:
        """Say whether a call before this one has not come."""
        with self._lock:
            return any(earlier not in self._places for earlier in self._order[: self._order.index(call_id)])

    def leave(self, call_id: str, cause: BaseException | None = None) -> None:
        """End a call: with its result, or with what it has raised."""
        with self._lock:
            self._places[call_id] = _Place.DONE if cause is None else _Place.RAISED
            if cause is not None and call_id in self._order:
                later = self._order[self._order.index(call_id) + 1 :]
                self._blocked |= {other for other in later if self._places.get(other) is _Place.WAITING}
                self.cause = cause if call_id not in self._blocked else self.cause
            wakes = tuple(self._wakes)
        for wake in wakes:
            wake()

    @contextmanager
    def watched(self, wake: Callable[[], object]) -> Iterator[None]:
        """Have `wake` called whenever a call ends."""
        with self._lock:
            self._wakes.add(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wakes.discard(wake)


class Lines:
    """The lines of the messages of late."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: OrderedDict[Hashable, Line] = OrderedDict()

    def join(self, key: Hashable, call_id: str) -> Line:
        """Return the line of a message, in which the call has taken its place."""
        with self._lock:
            line = self._lines.setdefault(key, Line())
            self._lines.move_to_end(key)
            line.arrive(call_id)
            for old in list(self._lines)[: max(0, len(self._lines) - LINES_MOST)]:
                if not self._lines[old].is_in_use:
                    del self._lines[old]
            return line
