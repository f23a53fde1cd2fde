"""Talking to threads: what people's programs and applications ask of a server, with requests alone.

Example::

    client = ThreadClient(atmem_url, application_token, subject="ann")
    thread = client.create("order-17", "order_support")["thread_id"]
    client.message(thread, "Where is my order?")
    for update in client.follow(thread):
        if update.view["thread"]["state"] != "running":
            break

Every write carries a ``request_id``. Where its answer is lost the same request is sent again, and the server answers
with the receipt of the first time: it is done once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Self
from urllib.parse import urlencode

from continuity.delivery import Patience, deliver
from continuity.running import identifier, new_id
from continuity.threads.following import AGAIN_S, POLL_S, Following
from continuity.transport import REPLY_TIMEOUT_S, VIEW_BYTES, Adapter, Transport, elapsed_s

RESEND_FOR_S: Final = 30.0
"""How long a lost answer is asked for again; somebody waits for it."""
IDLE_S: Final = 30.0
"""A stream says something every ten seconds."""
SUBJECT_HEADER: Final = "Atmem-Subject"
_ROOT: Final = "/v1/threads"

Agents = list[dict[str, Any]]
"""What may be talked to. Named here: a method is called as the type."""


class _SubjectTransport(Transport):
    """A transport that says for whom an application acts."""

    subject: str | None = None

    def _proof(self) -> dict[str, str]:
        return super()._proof() | ({} if self.subject is None else {SUBJECT_HEADER: self.subject})


class ThreadClient:
    """A connection for those who talk, with one application credential. Threads may share it.

    Every method raises the error that the server names (`continuity.errors`); a `ConflictError` has in ``current`` what
    helps to go on. After a `TransportError` of a write it is unknown whether it was taken: `receipt` tells, and so does
    the same call with the same `request_id`.

    Attributes:
        url: Address of the server.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        subject: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        adapter: Adapter | None = None,
        resend_for_s: float = RESEND_FOR_S,
        clock: Callable[[], float] = elapsed_s,
        sleep: Callable[[float], None] = time.sleep,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        """Check address and token; nothing is sent yet.

        Args:
            url: ``https://…``, or ``http://`` to a loopback address.
            token: An application credential.
            subject: Whom it acts for: 1 to 128 of ``A-Z a-z 0-9 _ . : @ + -``.
            ca_file: Authorities to trust instead of the built-in ones.
            adapter: Carries requests in another way than over sockets.
            resend_for_s: How long a write whose answer was lost is sent again.
            clock: Seconds that never go back and count suspension.
            sleep: Waits that many seconds.
            pause: Waits that many seconds or until the event is set.

        Raises:
            MalformedError: The address or the token is not what it must be.
        """
        self._transport = _SubjectTransport(url, token, ca_file=ca_file, adapter=adapter)
        self._transport.subject = subject
        self.url = self._transport.url
        self._patience = Patience(clock, sleep, resend_for_s)
        self._pause = pause

    def __repr__(self) -> str:
        return f"ThreadClient({self.url!r})"

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes its connections."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections. The client stays usable."""
        self._transport.close()

    # --- Reading ---

    def agents(self) -> Agents:
        """Return the agents that may be talked to: ``name, controls, state_keys, public`` each."""
        agents: Agents = self._get(f"{_ROOT}/agents")["agents"]
        return agents

    def list(self, **filters: str | int) -> dict[str, Any]:
        """Return one page of ``threads``, newest first, and ``next_cursor``.

        Args:
            **filters: Any of ``limit`` (1 to 200), ``cursor``, ``state``, ``scope``.
        """
        return self._get(_ROOT, filters)

    def snapshot(self, thread_id: str) -> dict[str, Any]:
        """Return everything that a client needs at one position of the journal, its ``checkpoint``."""
        return self._get(_path(thread_id))

    def journal(self, thread_id: str, after: str, *, limit: int = 200, wait_s: int = 0) -> dict[str, Any]:
        """Return the ``records`` strictly after a position, at most `limit`, with ``checkpoint`` and ``has_more``.

        Args:
            thread_id: The thread.
            after: The checkpoint of a snapshot, or the position of a record.
            limit: At most so many, 1 to 200.
            wait_s: How long to wait for a first record, at most 25.

        Raises:
            ConflictError: ``cursor_gap``: load the snapshot again.
        """
        query: dict[str, str | int] = {"after": after, "limit": limit, "wait": wait_s}
        return self._get(_path(thread_id, "journal"), query, reply_timeout_s=REPLY_TIMEOUT_S + wait_s)

    def history(self, thread_id: str, cursor: str) -> dict[str, Any]:
        """Return older ``messages`` and the next ``history_cursor``, as they were at the snapshot of the cursor."""
        return self._get(_path(thread_id, "history"), {"cursor": cursor})

    def receipt(self, thread_id: str, request_id: str) -> dict[str, Any]:
        """Return the receipt of a request; raises `NotFoundError` when it was never taken."""
        return self._get(_path(thread_id, "receipts", identifier("request_id", request_id)))

    def stream(self, thread_id: str, after: str) -> AbstractContextManager[Iterator[bytes]]:
        """Open the stream of events behind a position; `follow` reads it for you."""
        path = f"{_path(thread_id, 'journal')}?{urlencode({'after': after})}"
        return self._transport.stream(path, headers={"Last-Event-ID": after}, idle_s=IDLE_S)

    def follow(self, thread_id: str) -> Following:
        """Follow a thread: the snapshot first, then every record after it, once and in order, without end.

        Whatever breaks is opened again behind the last record. Leave it with ``break``, or call ``stop`` on what is
        returned from another thread. See `continuity.threads.following.Update`.
        """
        return Following(self, _checked(thread_id), pause=self._pause)

    def wait(self, thread_id: str, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until nothing runs, and return the snapshot.

        Raises:
            TimeoutError: It still runs.
        """
        ends_at_s = self._patience.clock() + timeout_s
        while True:
            snapshot = self.snapshot(thread_id)
            left_s = ends_at_s - self._patience.clock()
            if snapshot["thread"]["state"] != "running":
                return snapshot
            if left_s <= 0:
                raise TimeoutError(f"The thread still runs after {timeout_s} s.")
            page = self.journal(thread_id, snapshot["checkpoint"], wait_s=max(1, min(POLL_S, int(left_s))))
            if not page["records"]:
                self._patience.sleep(min(AGAIN_S, left_s))

    # --- Writing ---

    def create(self, name: str, agent: str, *, request_id: str | None = None) -> dict[str, Any]:
        """Create a thread, or find the own one of this name and agent.

        Args:
            name: 1 to 128 of ``A-Z a-z 0-9 _ -``; unique for owner and agent in a workspace.
            agent: An agent that a worker has declared.
            request_id: Identifier of this request; a new one when left out.

        Returns:
            The receipt: ``thread_id``, ``position``, ``revision``, ``state`` and more.
        """
        return self._write(_ROOT, {"name": name, "agent": agent}, request_id)

    def message(
        self, thread_id: str, content: str | Mapping[str, Any], *, request_id: str | None = None
    ) -> dict[str, Any]:
        """Say something to an idle thread; return the receipt, with the ``run_id`` that is queued.

        Raises:
            ConflictError: ``thread_busy`` and others. Nothing has happened.
        """
        return self._write(_path(thread_id, "messages"), {"content": content}, request_id)

    def steer(
        self, thread_id: str, content: str | Mapping[str, Any], *, request_id: str | None = None
    ) -> dict[str, Any]:
        """Say something that the run going on reads before its next step; unread at its end it is a follow-up.

        Raises:
            ConflictError: ``control_not_declared, thread_not_running, thread_stopping, queue_full``.
        """
        return self._write(_path(thread_id, "steer"), {"content": content}, request_id)

    def follow_up(
        self, thread_id: str, content: str | Mapping[str, Any], *, request_id: str | None = None
    ) -> dict[str, Any]:
        """Say something that the next run begins with; raises as `steer`."""
        return self._write(_path(thread_id, "follow-ups"), {"content": content}, request_id)

    def stop(self, thread_id: str, *, revision: int | None = None, request_id: str | None = None) -> dict[str, Any]:
        """Stop what the thread does, once the effect that is in flight is settled.

        Args:
            thread_id: The thread.
            revision: That of the thread as it was seen; None stops whatever is there.
            request_id: As for `create`.
        """
        return self._write(_path(thread_id, "stop"), _seen(revision), request_id)

    def resume(self, thread_id: str, *, revision: int | None = None, request_id: str | None = None) -> dict[str, Any]:
        """Go on after an interruption or a failure; see `stop` for the arguments."""
        return self._write(_path(thread_id, "resume"), _seen(revision), request_id)

    def reply(
        self, thread_id: str, waiting_id: str, reply: Any, *, revision: int, request_id: str | None = None
    ) -> dict[str, Any]:
        """Answer a waiting request, once.

        Args:
            thread_id: The thread.
            waiting_id: The request, from the snapshot's ``waiting``.
            reply: A JSON value that its schema allows.
            revision: That of the request as it was seen.
            request_id: As for `create`.

        Raises:
            MalformedError: The reply is not what the schema allows. Nothing has happened.
            ConflictError: ``stale_waiting_revision``, or ``already_answered`` with the recorded decision.
        """
        path = _path(thread_id, "waiting", identifier("waiting_id", waiting_id), "reply")
        return self._write(path, {"revision": revision, "reply": reply}, request_id)

    def delete(self, thread_id: str) -> dict[str, Any]:
        """Destroy an idle thread's content; its name can never be used again."""
        return self._transport.call("DELETE", _path(thread_id))

    # --- What all share ---

    def _get(
        self, path: str, query: Mapping[str, str | int] | None = None, *, reply_timeout_s: float | None = None
    ) -> dict[str, Any]:
        asked = f"{path}?{urlencode(query)}" if query else path
        return self._transport.call("GET", asked, most_bytes=VIEW_BYTES, reply_timeout_s=reply_timeout_s)

    def _write(self, path: str, body: Mapping[str, Any], request_id: str | None) -> dict[str, Any]:
        sent = {**body, "request_id": request_id or new_id("req")}
        return deliver(lambda: self._transport.call("POST", path, sent), self._patience)


def _seen(revision: int | None) -> dict[str, Any]:
    return {} if revision is None else {"revision": revision}


def _checked(thread_id: str) -> str:
    return identifier("thread_id", thread_id)


def _path(thread_id: str, *parts: str) -> str:
    return "/".join((_ROOT, _checked(thread_id), *parts))
