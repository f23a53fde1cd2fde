"""Which thread of the production server takes the next request."""

from __future__ import annotations

import threading

from waitress.task import ThreadedTaskDispatcher


class _NewestFirst:
    """A condition that wakes whoever came last. Its methods are called with `lock` held, as those of any condition."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._sleeping: list[threading.Lock] = []

    def wait(self) -> None:
        mine = threading.Lock()
        mine.acquire()
        self._sleeping.append(mine)
        self._lock.release()
        try:
            mine.acquire()
        finally:
            self._lock.acquire()

    def notify(self) -> None:
        if self._sleeping:
            self._sleeping.pop().release()

    def notify_all(self) -> None:
        while self._sleeping:
            self.notify()


class Dispatcher(ThreadedTaskDispatcher):
    """Gives a request to the thread that worked last, where waitress would take the one that has waited longest.

    What that thread uses is in the processor's caches still; threads that take turns are cold, each of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue_cv = _NewestFirst(self.lock)
