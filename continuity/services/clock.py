"""The seam for time. The one real clock is built in ``app/wiring.py``; tests pass their own."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time, in whole microseconds."""

    def now_us(self) -> int:
        """Return microseconds since the Unix epoch, UTC."""

    def monotonic_us(self) -> int:
        """Return microseconds of a clock that never steps and counts suspension."""
