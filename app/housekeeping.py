"""What the server does by itself, beside serving: one thread a process, a list of small tasks.

A task that fails is logged and asked again at its next turn; it never ends the thread. Tasks run one after
another, so each must be short: bounded batches, one transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from app import logs

_LONGEST_WAIT_S = 60.0


@dataclass(slots=True)
class _Task:
    name: str
    interval_s: float
    work: Callable[[], object]
    due_s: float


class Housekeeping:
    """Runs tasks at their intervals until it is stopped."""

    def __init__(self) -> None:
        self._tasks: list[_Task] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, name: str, work: Callable[[], object], *, interval_s: float) -> None:
        """Let `work` be called every `interval_s` seconds, the first time as soon as the thread runs."""
        self._tasks.append(_Task(name, interval_s, work, time.monotonic()))

    def start(self) -> None:
        """Start the thread: after any fork, once."""
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)
        self._thread.start()

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """Stop after the task that is running. Safe to call when nothing was started."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def run_due(self) -> float:
        """Run every task that is due; return the seconds until the next one is."""
        for task in self._tasks:
            if self._stopping.is_set():
                break
            if task.due_s <= time.monotonic():
                self._run_one(task)
        next_s = min((task.due_s for task in self._tasks), default=float("inf")) - time.monotonic()
        return min(max(next_s, 0.0), _LONGEST_WAIT_S)

    def _run_one(self, task: _Task) -> None:
        try:
            task.work()
        except Exception as error:  # noqa: BLE001 - one task must not end the others
            logs.failure(error, task=task.name)
        # From now, not from when it was due: after a long sleep nothing is made up for.
        task.due_s = time.monotonic() + task.interval_s

    def _run(self) -> None:
        while not self._stopping.wait(self.run_due()):
            pass
