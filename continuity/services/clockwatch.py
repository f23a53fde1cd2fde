"""Reads the controller clock and notices when it steps forward.

A step is what wall time gained over a monotonic clock that counts suspension since this process's last
reading, when it is more than two seconds. It is told to decisions and shown in status.
"""

from __future__ import annotations

import threading

from continuity.decisions.clocks import Reading
from continuity.limits import CLOCK_TOLERANCE_S, SECOND_US
from continuity.services.clock import Clock


class ClockWatch:
    """Wall time for decisions, with the last forward step. Safe to share between threads."""

    def __init__(self, clock: Clock) -> None:
        """Keep the clock and take the first reading."""
        self._clock = clock
        self._lock = threading.Lock()
        # One for each clock, the host's (False) and the database's (True): a difference between the two is no step.
        self._offsets_us = {False: clock.now_us() - clock.monotonic_us()}
        self._stepped_us: int | None = None
        self._latest_us = 0

    def read(self, database_us: int | None = None) -> Reading:
        """Read the time.

        Args:
            database_us: The database's time where that decides (PostgreSQL), read after the row lock.

        Returns:
            The time and when the clock last stepped forward, if this process has seen it.
        """
        with self._lock:
            monotonic_us = self._clock.monotonic_us()
            now_us = self._clock.now_us() if database_us is None else database_us
            is_database = database_us is not None
            offset_us = now_us - monotonic_us
            if offset_us - self._offsets_us.get(is_database, offset_us) > CLOCK_TOLERANCE_S * SECOND_US:
                self._stepped_us = now_us
            self._offsets_us[is_database] = offset_us
            return Reading(now_us, self._stepped_us)

    @property
    def stepped_us(self) -> int | None:
        """Wall time just after the last forward step this process noticed."""
        return self._stepped_us

    def note_change(self, at_us: int) -> None:
        """Remember when a workflow changed.

        A reading alone raises no mark: a clock that was wrong for a minute while nothing was decided must not pause
        dispatch for as long as it was ahead.

        Args:
            at_us: The time that was recorded with the change.
        """
        with self._lock:
            self._latest_us = max(self._latest_us, at_us)

    @property
    def latest_us(self) -> int:
        """The latest time at which this process changed a workflow: what the vault's mark is raised to."""
        return self._latest_us
