"""The controller clock: never below the marks it has left.

Rules:

* What dispatches (begin, renew, create, enable) is refused while the clock lies more than two seconds
  below a mark. What only records (outcome, pause, abandon, confirm) goes on, stamped with the mark.
* A shortfall of up to two seconds counts as equal to the mark.
* A step forward revives nothing by itself, but it could make absence look final too early: a query
  granted in the while after one proves no absence, and for so long nobody may attest that something did
  not happen.

Source: operations.md, "Clock".
"""

from __future__ import annotations

from dataclasses import dataclass

from continuity import limits
from continuity.errors import ConflictError
from continuity.limits import SECOND_US


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the clock, taken after the workflow's row was locked.

    Attributes:
        now_us: Wall time.
        stepped_us: Wall time just after the last step forward that this process noticed, or None.
    """

    now_us: int
    stepped_us: int | None = None

    def is_quiet(self, extra_us: int, at_us: int) -> bool:
        """Whether a forward step lies too close before `at_us` for absence to prove anything."""
        if self.stepped_us is None:
            return False
        return at_us < self.stepped_us + limits.FORWARD_STEP_QUIET_S * SECOND_US + extra_us


def dispatch_time_us(reading: Reading, *marks_us: int) -> int:
    """Return the time to decide a dispatch with.

    Raises:
        ConflictError: ``clock_moved_backwards``. Nothing has happened.
    """
    mark = max(marks_us, default=0)
    if reading.now_us + limits.CLOCK_TOLERANCE_S * SECOND_US < mark:
        raise ConflictError(
            "The controller clock lies below the latest saved time. Correct the clock; nothing was dispatched.",
            code="clock_moved_backwards",
        )
    return max(reading.now_us, mark)


def stamp_us(reading: Reading, *marks_us: int) -> int:
    """Return the time to record something with: never below a mark."""
    return max(reading.now_us, *marks_us)
