"""How many requests one client may make: a bucket a credential, in this process's memory.

It stops a client that has run away from starving the others. It is no defence against guessing (see
app/auth) and no quota. Outcomes are never counted: a receipt that is refused is evidence that is lost.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

CLIENTS: Final = 10_000
"""Clients that are remembered; the one unseen for longest is forgotten, which only gives it a full bucket."""


class RateLimiter:
    """Token buckets: `per_second` sustained, twice as many at once."""

    def __init__(self, *, per_second: int) -> None:
        self._per_us = per_second / 1_000_000
        self._burst = 2.0 * per_second
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def admit(self, client: str, now_us: int) -> bool:
        """Say whether `client` may make one more request; `now_us` is a monotonic time."""
        with self._lock:
            level, at_us = self._buckets.get(client, (self._burst, now_us))
            level = min(self._burst, level + max(0, now_us - at_us) * self._per_us)
            is_admitted = level >= 1
            self._buckets[client] = (level - 1 if is_admitted else level, now_us)
            self._buckets.move_to_end(client)
            if len(self._buckets) > CLIENTS:
                self._buckets.popitem(last=False)
        return is_admitted
