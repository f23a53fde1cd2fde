"""What the store tells of its writing to whoever measures it: numbers, after the fact, and nothing waits for it."""

from __future__ import annotations

from typing import Final, Protocol


class WriteWatch(Protocol):
    """Takes the times of writing units. Called in the writing thread, so it must be quick and must not raise."""

    def waited(self, seconds: float) -> None:
        """Take how long one unit waited until it ran: for its turn, and for the database's own lock."""

    def committed(self, seconds: float, units: int) -> None:
        """Take how long one commit took, and how many units it made durable."""


class _Unwatched:
    def waited(self, seconds: float) -> None:
        pass

    def committed(self, seconds: float, units: int) -> None:
        pass


UNWATCHED: Final[WriteWatch] = _Unwatched()
