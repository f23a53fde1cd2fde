"""Who of the threads that write at once leads, and whom it takes along: pure waiting, no database.

Rules:

* One leads. Whoever comes while somebody leads waits in the order of arrival.
* A leader takes all that wait, at most `MOST_TOGETHER`, itself first. When it is done the one that waits longest
  leads next, so nobody leads for others without end and there is no thread for it.
* At most `MOST_WAITING` wait; who comes then is told at once.
* While another process holds the database, the leader alone waits for it: whoever waits is told, and whoever comes is
  told at once. A server whose threads all wait for one lock would serve no readers either.
* Whoever has waited too long leaves, unless a leader has taken it: then it learns what became of it.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from continuity.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

MOST_TOGETHER: Final = 64
"""Units in one transaction: what comes meanwhile waits for all of them."""
MOST_WAITING: Final = 256
"""At some 300 units a second and one unit a commit the last of them waits for less than a second."""


_HELD: Final = "The database is busy with another writer."


class Ticket:
    """One unit of work on its way. Whoever made it waits; whoever leads fills it."""

    __slots__ = ("_context", "_gate", "came_s", "error", "leads", "result", "waited_s", "work")

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        """Keep the unit, and what its thread knows by context variables: another thread may run it."""
        self.work = work
        self.leads = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.came_s = time.perf_counter()
        self.waited_s: float | None = None
        self._context = contextvars.copy_context()
        self._gate = threading.Lock()
        self._gate.acquire()

    def run(self, connection: Connection) -> None:
        """Run the unit as its own thread would; what it raises is for the caller to judge."""
        self.error = None
        if self.waited_s is None:
            self.waited_s = time.perf_counter() - self.came_s
        self.result = self._context.run(self.work, connection)

    def wait(self, timeout_s: float = -1) -> bool:
        """Wait until somebody wakes the ticket; False when the time is over."""
        return self._gate.acquire(timeout=timeout_s)

    def wake(self) -> None:
        """Let whoever waits go on. Once."""
        self._gate.release()


class Turns:
    """The queue of one database. Safe to share between threads."""

    def __init__(self) -> None:
        """Start with nobody waiting and nobody leading."""
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._is_led = False
        self._is_held = False

    def enter(self, ticket: Ticket) -> None:
        """Join the queue; ``ticket.leads`` says whether there is nobody to wait for.

        Raises:
            UnavailableError: Too many wait, or another process holds the database. The ticket is not in the queue.
        """
        with self._lock:
            if self._is_held and self._is_led:
                raise UnavailableError(_HELD)
            if len(self._waiting) >= MOST_WAITING:
                raise UnavailableError("Too many writers wait for the database.")
            self._waiting.append(ticket)
            if not self._is_led:
                self._is_led = ticket.leads = True

    def leave(self, ticket: Ticket) -> bool:
        """Give up; False when a leader has taken the ticket already."""
        with self._lock:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            if ticket.leads:
                self._appoint()
            return True

    def take(self) -> list[Ticket]:
        """Take those that go together now, in the order of arrival. For the leader alone."""
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_TOGETHER))]

    def hold(self) -> None:
        """Send everybody away who waits: another process holds the database. For the leader alone."""
        with self._lock:
            self._is_held = True
            while self._waiting:
                ticket = self._waiting.popleft()
                ticket.error = UnavailableError(_HELD)
                ticket.wake()

    def release(self) -> None:
        """Let others wait again: the leader got in."""
        self._is_held = False

    def pass_on(self) -> None:
        """Stop leading: the one that waits longest goes on, if there is one."""
        with self._lock:
            self._appoint()

    def _appoint(self) -> None:
        self._is_led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].leads = True
            self._waiting[0].wake()
