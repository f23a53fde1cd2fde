"""Waiting for records of threads: places for those who wait, signals between threads of a process, the wait itself.

Rules:

* A stream and a long poll each hold a thread of the server, so only a quarter of them may wait at once. Whoever finds
  no place is told to ask again, and nothing else suffers.
* A signal wakes those who wait in this process. What other processes wrote is found by looking, twice a second.
* Whoever waits is asked for rights again every ten seconds, with the credential or session of the beginning.
* A stream ends by itself after `STREAM_S`, and at once when the server stops; the client comes back with its position.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

LOOK_S: Final = 0.5
"""How long the records of another process may go unnoticed."""
RIGHTS_S: Final = 10.0
HEARTBEAT_S: Final = 10.0
LONG_POLL_S: Final = 25
STREAM_S: Final = 300.0
STOPPING: Final = "atmem.is_stopping"
"""Key of the WSGI environment: says whether the server has begun to stop."""


class Signals:
    """Wakes whoever waits in this process when something was written about a thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        """How often something was written; read before looking, so that nothing between is missed."""
        return self._count

    def give(self) -> None:
        """Say that something was written."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Wait until something was written since `seen`, or the time is over."""
        with self._changed:
            if self._count == seen:
                self._changed.wait(timeout_s)


@dataclass(slots=True)
class Places:
    """How many may wait at once in this process."""

    most: int
    _taken: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> bool:
        """Take a place; False when there is none. Give it back with `leave`."""
        with self._lock:
            if self._taken >= self.most:
                return False
            self._taken += 1
            return True

    def leave(self) -> None:
        """Give a place back."""
        with self._lock:
            self._taken -= 1

    @contextmanager
    def taken(self) -> Iterator[bool]:
        """Hold a place for the block, if there is one."""
        is_taken = self.take()
        try:
            yield is_taken
        finally:
            if is_taken:
                self.leave()


class Streams:
    """What a serving process keeps for those who wait."""

    def __init__(self, threads: int) -> None:
        """Make places for a quarter of the server's threads, one at least."""
        self.signals = Signals()
        self.places = Places(max(1, threads // 4))

    def turns(self, until_s: float, is_stopping: Callable[[], bool]) -> Iterator[None]:
        """Give turns to look when something may be new, until `until_s` of `time.monotonic` or the server's stop."""
        while not is_stopping():
            # Read before the look, so that nothing written between the look and the wait is slept over.
            seen = self.signals.count
            yield
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            self.signals.wait(seen, min(LOOK_S, left_s))


def is_stopping(environ: dict[str, object]) -> Callable[[], bool]:
    """Return what says that the server of a request stops; never, where the server does not say."""
    found = environ.get(STOPPING)
    return found if callable(found) else _never


def _never() -> bool:
    return False
