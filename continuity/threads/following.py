"""Following a thread: a snapshot, then every record after it, once and in order, whatever breaks meanwhile.

Rules:

* A record is given when its ``seq`` is one more than that of the last one. One that was given already is passed over;
  one that is too far ahead means that something is missing, and the snapshot is loaded again.
* A stream that ends or breaks is opened again behind the last record. Where the server has no place for a stream,
  pages are waited for instead; where nothing came it asks again a second later, and never at once.
* ``cursor_gap`` (trimmed, restored from a backup) loads the snapshot again.
* What a reader may not see any more ends the following with the server's error; nothing else does.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Protocol

from continuity.decisions.threads.transcript import advance, bounded
from continuity.delivery import is_passing
from continuity.errors import ContinuityError, ThrottledError, UnavailableError, error_from_code
from continuity.replies import load_reply
from continuity.thread_requests import Position
from continuity.threads.events import Event, read_events

POLL_S: Final = 25
"""How long a page of the journal is waited for; the server's own bound."""
AGAIN_S: Final = 1.0
"""After a stream or a page that told nothing: without a place to wait the server answers a page at once."""
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 10.0
VIEW_MESSAGES: Final = 500
VIEW_RUNS: Final = 50
"""What a view keeps at least, however long somebody follows; twice as much at most, and all that has not ended."""
GAP: Final = "cursor_gap"
_ENDING: Final = "CUSTOM"
"""Type of the event, without an id, that says why a stream ends."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a follower holds now.

    Attributes:
        view: The snapshot with everything after it folded in, as `ThreadClient.snapshot` would give it: the newest
            500 messages at least, and all that have not ended.
        record: The record that has just come; None where the snapshot was loaded, at first and after a gap.
    """

    view: Mapping[str, Any] = field(repr=False)
    record: Mapping[str, Any] | None = field(default=None, repr=False)


class Source(Protocol):
    """What a follower asks of a client."""

    def snapshot(self, thread_id: str) -> dict[str, Any]:
        """Return the snapshot of a thread."""

    def journal(self, thread_id: str, after: str, *, wait_s: int = 0) -> dict[str, Any]:
        """Return a page of records."""

    def stream(self, thread_id: str, after: str) -> AbstractContextManager[Iterator[bytes]]:
        """Open the stream of records."""


class _GapError(Exception):
    """What follows the last record cannot be had."""


class Following(Iterator[Update]):
    """An endless iterator over a thread; leave it with ``break``, or with `stop` from another thread."""

    def __init__(self, source: Source, thread_id: str, *, pause: Callable[[threading.Event, float], object]) -> None:
        """Keep what is followed; nothing is asked yet.

        Args:
            source: Who is asked.
            thread_id: The thread.
            pause: Waits that many seconds or until the event is set.
        """
        reader = _Reader(source, thread_id, pause)
        self._stopped = reader.stopped
        # Nothing in it leads back here: whoever leaves with `break` closes the stream at once, not when a collection
        # comes by.
        self._updates = reader.follow()

    def __next__(self) -> Update:
        """Wait for what comes next.

        Raises:
            StopIteration: It was stopped.
            ContinuityError: The thread cannot be read any more: deleted, or not for this reader.
        """
        return next(self._updates)

    def stop(self) -> None:
        """End it at the next record, or within seconds where none comes. From whatever thread."""
        self._stopped.set()

    def close(self) -> None:
        """End it and close its stream at once. Only where it is not waiting in another thread."""
        self._stopped.set()
        self._updates.close()


class _Reader:
    """What a following does; `stopped` ends it."""

    def __init__(self, source: Source, thread_id: str, pause: Callable[[threading.Event, float], object]) -> None:
        self._source = source
        self._thread_id = thread_id
        self._pause = pause
        self.stopped = threading.Event()
        self._tries = 0

    def follow(self) -> Generator[Update, None, None]:
        view: Mapping[str, Any] | None = None
        while not self.stopped.is_set():
            try:
                if view is None:
                    view = self._source.snapshot(self._thread_id)
                    self._tries = 0
                    yield Update(view)
                for record in self._records(view["checkpoint"]):
                    advanced = _advanced(view, record)
                    if advanced is not view:
                        view, self._tries = advanced, 0
                        yield Update(view, record)
                    if self.stopped.is_set():
                        return
            except _GapError:
                view = None
            except ContinuityError as error:
                if error.code == GAP:
                    view = None
                elif not is_passing(error):
                    raise
                self._wait(error)

    def _records(self, after: str) -> Iterator[Mapping[str, Any]]:
        """Give records behind a position until the stream ends; a page where there is no stream."""
        is_told = False
        try:
            with self._source.stream(self._thread_id, after) as pieces:
                for event in read_events(takewhile(self._is_wanted, pieces)):
                    if (record := record_of(event)) is not None:
                        yield record
                        is_told = True
        except UnavailableError:
            page = self._source.journal(self._thread_id, after, wait_s=POLL_S)
            yield from page["records"]
            is_told = bool(page["records"])
        if not is_told:
            self._pause(self.stopped, AGAIN_S)

    def _is_wanted(self, _piece: bytes) -> bool:
        # Asked with each piece: a stream that has nothing to tell says so every ten seconds.
        return not self.stopped.is_set()

    def _wait(self, error: ContinuityError) -> None:
        """Wait longer from try to try, and no less than the server asks for."""
        longest_s = min(FIRST_WAIT_S * 2 ** min(self._tries, 10), LONGEST_WAIT_S)
        self._tries += 1
        wait_s = longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
        if isinstance(error, ThrottledError | UnavailableError):
            wait_s = max(wait_s, error.retry_after_s)
        self._pause(self.stopped, wait_s)


def record_of(event: Event) -> Mapping[str, Any] | None:
    """Return the record of an event, None for one that is for AG-UI alone; raises what ends a stream."""
    data = load_reply(event.data)
    if not event.id and data.get("type") != _ENDING:
        return None
    if not event.id:
        value = data.get("value") or {}
        error = error_from_code(event.name, str(value.get("message") or event.name))
        raise error
    record: Mapping[str, Any] = data["rawEvent"]
    return record


def _advanced(view: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fold a record in; one that is held already changes nothing. Raises `_GapError` where one is missing."""
    held, come = Position.parse(view["checkpoint"]), Position.parse(record["position"])
    if come.epoch != held.epoch or come.seq > held.seq + 1:
        raise _GapError
    if come.seq <= held.seq:
        return view
    return bounded(advance(view, record), messages=VIEW_MESSAGES, runs=VIEW_RUNS)
