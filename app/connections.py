"""One connection of the server: how long it may take, and how it answers and closes.

Rules:

* Nobody holds a connection by being slow: see `Patience`.
* A reply that was granted arrives: a connection closes only behind it.
* A connection says since when it could be done without; whether it must make room is `app.serving`'s to say.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from waitress.channel import HTTPChannel
from waitress.task import WSGITask

from app.framing import StrictParser
from app.streaming import STOPPING

HURRY_S: Final = 2.0
"""When all places are taken, whoever needs longer than this to send a request may lose its place."""
DRAIN_S: Final = 10.0
LINGER_S: Final = 2.0
LINGER_BYTES: Final = 1_000_000
"""After a refusal this much more is read and dropped: closing on unread bytes would reset the reply away."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a connection may take, in seconds. With the sweep once a second all slow ones are gone after 30.

    Attributes:
        idle_s: Without a request.
        request_s: From the first byte of a request to its last.
        reply_s: In which a reply must be taken at `reply_bytes_per_s` on average, again and again. Who stops at the
            beginning of one such time is dropped at the end of the next.
        reply_bytes_per_s: See there.
        drain_s: For what was begun, once the server is stopping.
    """

    idle_s: float = 29.0
    request_s: float = 29.0
    reply_s: float = 14.0
    reply_bytes_per_s: int = 4_096
    drain_s: float = DRAIN_S


class Task(WSGITask):
    """Serves one request.

    Sends a whole reply at once, where waitress would send headers and body apart. Says ``Connection: close`` once
    the server is stopping, so that a client opens its next connection elsewhere, and does not say it only because a
    reply has no body: 204 and 304 end with their headers, and a page that polls goes on with one connection.
    """

    _is_open_ended = True

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        # What streams must ask: they would keep a server that stops, and a place for somebody who has left.
        environ[STOPPING] = lambda: self.channel.server.is_stopping or self.channel.is_left()
        return environ

    def write(self, data: bytes) -> None:
        if self.wrote_header or not data or self.content_length != len(data) or not self.has_body:
            super().write(data)
            return
        header = self.build_response_header()
        self.wrote_header = True
        self.content_bytes_written = len(data)
        self.channel.write_soon(header + data)

    def build_response_header(self) -> bytes:
        if self.channel.server.is_stopping:
            self.set_close_on_finish()
        wants_close = self.request.headers.get("CONNECTION", "").lower() == "close"
        self._is_open_ended = self.has_body or self.version != "1.1" or wants_close
        header: bytes = super().build_response_header()
        self._is_open_ended = True
        return header

    def set_close_on_finish(self) -> None:
        # While the headers are built waitress closes whatever has no Content-Length, which 204 must not have.
        if self._is_open_ended:
            super().set_close_on_finish()


class PatientChannel(HTTPChannel):
    """A connection that knows since when it waits for what, and that closes without losing its last reply."""

    parser_class = StrictParser
    task_class = Task

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._quiet_since = time.monotonic()
        self._has_asked = False
        self._receiving_since: float | None = None
        self._sending_since: float | None = None
        self._sent_bytes = 0
        self._was_refused = False
        self._lingers_until: float | None = None
        self._linger_bytes = LINGER_BYTES
        super().__init__(*args, **kwargs)

    def received(self, data: bytes) -> bool:
        is_received: bool = super().received(data)
        if self.request is None:
            self._receiving_since = None
        elif self._receiving_since is None:
            self._receiving_since = time.monotonic()
        return is_received

    def service(self) -> None:
        self._was_refused = self.requests[0].error is not None
        self._has_asked = True
        super().service()
        self._quiet_since = time.monotonic()

    def send(self, data: bytes, do_close: bool = True) -> int:  # noqa: FBT001, FBT002 - waitress calls it so
        sent: int = super().send(data, do_close)
        self._sent_bytes += sent
        return sent

    def is_overdue(self, now: float, patience: Patience) -> bool:
        """Say whether the other side has been too slow."""
        if self._lingers_until is not None:
            return now > self._lingers_until
        if self.total_outbufs_len:
            return self._is_taken_too_slowly(now, patience)
        self._sending_since = None
        if self.requests:
            return False
        if self._receiving_since is not None:
            return now - self._receiving_since > patience.request_s
        return now - self._quiet_since > patience.idle_s

    def is_idle(self) -> bool:
        """Say whether nothing is being received, served or sent."""
        return not (self.requests or self.total_outbufs_len or self.request is not None)

    def spare_since(self, now: float) -> float | None:
        """Say since when a connection could have been done without; None while it cannot be."""
        if self.requests or self.total_outbufs_len:
            return None
        if self._receiving_since is None and self._has_asked:
            return self._quiet_since
        since = self._quiet_since if self._receiving_since is None else self._receiving_since
        return since if now - since > HURRY_S else None

    def is_left(self) -> bool:
        """Say whether the other side has closed its connection; nothing of it is read while a request is served."""
        if not self.connected:
            return True
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _is_taken_too_slowly(self, now: float, patience: Patience) -> bool:
        if self._sending_since is not None and now - self._sending_since <= patience.reply_s:
            return False
        is_slow = self._sending_since is not None and self._sent_bytes < patience.reply_s * patience.reply_bytes_per_s
        self._sending_since, self._sent_bytes = now, 0
        return is_slow

    def readable(self) -> bool:
        return self._lingers_until is not None or bool(super().readable())

    def handle_read(self) -> None:
        if self._lingers_until is None:
            super().handle_read()
            return
        try:
            self._linger_bytes -= len(self.recv(self.adj.recv_bytes))
        except OSError:
            self.will_close = True
        if self._linger_bytes <= 0:
            self.will_close = True

    def handle_write(self) -> None:
        if self.will_close or not (self.close_when_flushed and self._was_refused):
            super().handle_write()
            return
        self._flush_exception(self._flush_some)
        if not self.total_outbufs_len:
            self._linger()

    def _linger(self) -> None:
        self.close_when_flushed = False
        self._lingers_until = time.monotonic() + LINGER_S
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.will_close = True
