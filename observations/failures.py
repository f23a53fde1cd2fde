"""What went wrong with reporting, counted and bounded. A few counters under a lock; nothing is sent from here."""

from __future__ import annotations

import threading
from typing import Final

from continuity.errors import ContinuityError

KEPT: Final = 100


class Failures:
    """Counts failures and keeps what the first `KEPT` were. Threads may share it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._count = 0
        self._errors: list[str] = []
        self._codes: list[str] = []
        self._said: set[str] = set()

    @property
    def count(self) -> int:
        """How many there were."""
        return self._count

    @property
    def errors(self) -> list[str]:
        """The type names of the first `KEPT`, oldest first; a copy."""
        with self._lock:
            return list(self._errors)

    @property
    def codes(self) -> list[str]:
        """The codes of the same failures in the same order, the type name where one has none; a copy."""
        with self._lock:
            return list(self._codes)

    def add(self, error: Exception) -> None:
        """Count one failure."""
        with self._lock:
            self._count += 1
            if len(self._errors) < KEPT:
                name = type(error).__name__
                self._errors.append(name)
                self._codes.append(error.code if isinstance(error, ContinuityError) else name)

    def is_first(self, reason: str) -> bool:
        """Say whether a reason is new, and remember it; after `KEPT` reasons none is."""
        with self._lock:
            if reason in self._said or len(self._said) >= KEPT:
                return False
            self._said.add(reason)
            return True
