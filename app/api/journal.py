"""The journal of a thread as it is followed: a page, a page that is waited for, a stream of events.

A position comes as ``after``, or as ``Last-Event-ID`` of a stream that goes on. Nothing between two looks is missed or
given twice: each look reads strictly behind the position of the last record that was given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flask import Response, request

from app.api import agui
from app.auth.identity import asking_again
from app.extensions import wiring
from app.replies import json_response
from app.streaming import HEARTBEAT_S, LONG_POLL_S, RIGHTS_S, STREAM_S, Streams, is_stopping
from app.thread_services import ThreadServices
from continuity.decisions.threads.bounds import JOURNAL_PAGE
from continuity.errors import ContinuityError, MalformedError, UnavailableError
from continuity.services.callers import Caller
from continuity.thread_requests import Position

STREAM_TYPE: Final = "text/event-stream; charset=utf-8"
_EVENTS: Final = "text/event-stream"
_GAP: Final = "cursor_gap"


@dataclass(slots=True)
class _Follower:
    """Somebody behind a position of one thread's journal."""

    threads: ThreadServices
    thread_id: str
    caller: Caller
    again: Callable[[], Caller]
    after: Position
    checked_s: float

    def page(self, limit: int = JOURNAL_PAGE) -> dict[str, Any]:
        """Read what is behind the position, and go on to its end."""
        page = self.threads.reading.journal(self.caller, self.thread_id, self.after, limit=limit)
        self.after = Position.parse(page["checkpoint"])
        return page

    def has_news(self) -> bool:
        """Say whether there are records behind the position, or none can be told of any more."""
        now_s = time.monotonic()
        if now_s - self.checked_s >= RIGHTS_S:
            self.caller, self.checked_s = self.again(), now_s
        return self.threads.reading.pulse(self.caller, self.thread_id).checkpoint != self.after


def answer_journal(caller: Caller, thread_id: str, query: Mapping[str, str]) -> Response:
    """Answer a request for a thread's journal.

    Raises:
        MalformedError: Something in the query is not what it must be.
        ContinuityError: What `ThreadReading.journal` raises.
    """
    is_stream = _EVENTS in request.headers.get("Accept", "")
    threads = wiring().threads
    follower = _Follower(
        threads, thread_id, caller, asking_again(caller.subject), _position(query, is_stream=is_stream),
        time.monotonic(),
    )  # fmt: skip
    stopping = is_stopping(request.environ)
    if is_stream:
        return _stream(follower, stopping)
    wait_s = _number(query, "wait", least=0, most=LONG_POLL_S, default=0)
    limit = _number(query, "limit", least=1, most=JOURNAL_PAGE, default=JOURNAL_PAGE)
    page = follower.page(limit)
    if wait_s and not page["records"]:
        with threads.streams.places.taken() as is_placed:
            if is_placed and _is_there_within(follower, threads.streams, wait_s, stopping):
                page = follower.page(limit)
    return json_response(page)


def _is_there_within(follower: _Follower, streams: Streams, wait_s: int, stopping: Callable[[], bool]) -> bool:
    turns = streams.turns(time.monotonic() + wait_s, stopping)
    return any(follower.has_news() for _ in turns)


def _stream(follower: _Follower, stopping: Callable[[], bool]) -> Response:
    places = follower.threads.streams.places
    if not places.take():
        raise UnavailableError("Too many streams are open; ask for pages of the journal.", retry_after_s=1)
    try:
        # Before the reply begins, so that whoever may not read gets a status and no stream.
        first = _first(follower)
    except BaseException:
        places.leave()
        raise
    response = Response(_events(follower, first, stopping), content_type=STREAM_TYPE)
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(places.leave)
    return response


def _first(follower: _Follower) -> bytes:
    """Return the frames of the first page, or the event that says that there can be none."""
    try:
        return _frames(follower)
    except ContinuityError as error:
        if error.code != _GAP:
            raise
        return _ending(error)


def _events(follower: _Follower, first: bytes, stopping: Callable[[], bool]) -> Iterator[bytes]:
    yield agui.RETRY + first
    if first.startswith(_GAP_EVENT):
        return
    written_s = time.monotonic()
    try:
        for _ in follower.threads.streams.turns(written_s + STREAM_S, stopping):
            while follower.has_news() and not stopping():
                yield _frames(follower)
                written_s = time.monotonic()
            if time.monotonic() - written_s >= HEARTBEAT_S:
                yield agui.HEARTBEAT
                written_s = time.monotonic()
    except ContinuityError as error:
        # The reply has begun: the only way to say what has happened is another event.
        yield _ending(error)


_GAP_EVENT: Final = b"event: " + _GAP.encode()


def _ending(error: ContinuityError) -> bytes:
    current = getattr(error, "current", None) or {}
    return agui.closing(error.code, {"message": error.message, **current})


def _frames(follower: _Follower) -> bytes:
    """Return the frames of everything behind the position, at most a page."""
    page = follower.page()
    return b"".join(agui.frame(record, follower.thread_id) for record in page["records"])


def _position(query: Mapping[str, str], *, is_stream: bool) -> Position:
    given = (request.headers.get("Last-Event-ID") if is_stream else None) or query.get("after")
    if given is None:
        raise MalformedError("after is required: the checkpoint of a snapshot, or the position of a record.")
    return Position.parse(given)


def _number(query: Mapping[str, str], name: str, *, least: int, most: int, default: int) -> int:
    """Read a whole number from `least` to `most`; what is left out is `default`."""
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise MalformedError(f"{name} must be a whole number from {least} to {most}.")
    return int(text)
