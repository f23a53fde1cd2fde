"""The production server: waitress, with the rules that it lacks.

Rules:

* What two readers could frame differently is refused and the connection closed: see `app.framing`.
* Nobody holds a connection by being slow: see `Patience`. When all places are taken, the one that has been without a
  request for longest makes room for a new one.
* SIGTERM and SIGINT stop listening, let what was begun finish for `DRAIN_S`, then leave.
* Whoever forks builds its engine after the fork: a database connection must never be in two processes.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

from app import logs
from app.config import Settings
from app.dispatching import Dispatcher
from app.framing import BODY_BYTES, HEADER_BYTES, StrictParser
from app.streaming import STOPPING

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

BuildApplication = Callable[[], "AbstractContextManager[WSGIApplication]"]
"""Makes the application with everything behind it; leaving the context stops its threads and closes its engine."""

CONNECTIONS: Final = 500
HURRY_S: Final = 2.0
"""When all places are taken, whoever needs longer than this to send a request may lose its place."""
DRAIN_S: Final = 10.0
LINGER_S: Final = 2.0
LINGER_BYTES: Final = 1_000_000
"""After a refusal this much more is read and dropped: closing on unread bytes would reset the reply away."""
_SWEEP_S: Final = 1.0
_BACKLOG: Final = 512
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_WATCH_S: Final = 0.1
_RESPAWN_S: Final = 1.0
_GRACE_S: Final = 5.0
"""After which a worker that does not end by itself is ended."""


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


class Server(TcpWSGIServer):
    """One process's server on a socket that already listens."""

    channel_class = PatientChannel

    def __init__(
        self,
        application: WSGIApplication,
        listener: socket.socket,
        settings: Settings,
        *,
        patience: Patience | None = None,
    ) -> None:
        self.is_stopping = False
        self._is_closed = False
        # Reentrant, since a signal may arrive while this thread closes.
        self._closing = threading.RLock()
        self._patience = patience or Patience()
        adjustments = _adjustments(listener, settings)
        dispatcher = Dispatcher()
        dispatcher.set_thread_count(settings.threads)
        self._use_poll = hasattr(select, "poll")
        super().__init__(
            application,
            map={},
            _sock=listener,
            dispatcher=dispatcher,
            adj=adjustments,
            sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
            bind_socket=False,
        )

    def maintenance(self, _now: float) -> None:
        """Do nothing: waitress would only mark slow connections, and one whose reply nobody takes stays open."""

    def _make_room(self) -> None:
        # Whoever keeps all places with connections that ask nothing would keep everybody else out. Between two turns of
        # the loop: what comes within one would get the number of what was closed, and be taken for it.
        if len(self._map) < self.adj.connection_limit:
            return
        now = time.monotonic()
        channels = list(self.active_channels.values())
        spare = [(since, channel) for channel in channels if (since := channel.spare_since(now)) is not None]
        if spare:
            min(spare, key=lambda each: each[0])[1].handle_close()

    def stop(self) -> None:
        """Begin to stop; safe in a signal handler and in any thread."""
        self.is_stopping = True
        with self._closing:
            if not self._is_closed:
                self.pull_trigger()

    def serve(self, *, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Serve until `stop` was called or `should_stop` (asked once a second) says so, then drain."""
        swept = time.monotonic()
        while not self.is_stopping:
            self._make_room()
            self._turn(_SWEEP_S)
            if (now := time.monotonic()) - swept >= _SWEEP_S:
                swept = now
                self._close_where(lambda channel: channel.is_overdue(now, self._patience))
                self.is_stopping = self.is_stopping or should_stop()
        self._drain()

    def _close_where(self, is_wanted: Callable[[PatientChannel], bool]) -> None:
        # Between two turns of the loop, which would not look at a connection that cannot be written to.
        for channel in list(self.active_channels.values()):
            if is_wanted(channel):
                channel.handle_close()

    def _turn(self, timeout_s: float) -> None:
        wasyncore.loop(timeout=timeout_s, use_poll=self._use_poll, map=self._map, count=1)

    def _drain(self) -> None:
        self.accepting = False
        self.del_channel()
        self.socket.close()
        until = time.monotonic() + self._patience.drain_s
        while self.active_channels and time.monotonic() < until:
            self._close_where(PatientChannel.is_idle)
            self._turn(0.05)
        with self._closing:
            self._is_closed = True
        self.task_dispatcher.shutdown(timeout=1)
        wasyncore.close_all(self._map, ignore_all=True)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)  # noqa: FBT003 - the standard library's own
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Stopper:
    """Turns SIGTERM and SIGINT into a stop, from before the first request can come until the last one is answered."""

    def __init__(self) -> None:
        self.is_stopping = False
        self.server: Server | None = None
        for number in _STOPPING:
            signal.signal(number, self._stop)
        _hold_signals(is_held=False)

    def _stop(self, _number: int, _frame: object) -> None:
        self.is_stopping = True
        if self.server is not None:
            self.server.stop()


def serve_here(
    build: BuildApplication, listener: socket.socket, settings: Settings, *, announce: Callable[[], None]
) -> None:
    """Serve in this process until a signal stops it, or the parent that forked it has gone."""
    parent = os.getppid()
    is_forked = settings.workers > 1
    stopper = _Stopper()
    with build() as application:
        stopper.server = Server(application, listener, settings)
        announce()
        # A signal may have come before there was a server to stop.
        stopper.server.serve(should_stop=lambda: stopper.is_stopping or (is_forked and os.getppid() != parent))


def serve_forked(
    build: BuildApplication, listener: socket.socket, settings: Settings, *, announce: Callable[[], None]
) -> None:
    """Keep ``settings.workers`` processes on one socket until a signal stops them all."""
    stopper = _Stopper()
    children = {_fork(build, listener, settings) for _ in range(settings.workers)}
    announce()
    while not stopper.is_stopping:
        time.sleep(_WATCH_S)
        for child in _ended(children):
            logs.event(logging.ERROR, "worker_ended", process=child)
            children.discard(child)
            time.sleep(_RESPAWN_S)
            if not stopper.is_stopping:
                children.add(_fork(build, listener, settings))
    _end(children)


def _end(children: set[int]) -> None:
    for child in children:
        os.kill(child, signal.SIGTERM)
    until = time.monotonic() + DRAIN_S + _GRACE_S
    while children and time.monotonic() < until:
        children.difference_update(_ended(children))
        time.sleep(_WATCH_S)
    for child in children:
        os.kill(child, signal.SIGKILL)


def _fork(build: BuildApplication, listener: socket.socket, settings: Settings) -> int:
    # A signal that came between the fork and the child's own handlers would be lost in the parent's.
    _hold_signals(is_held=True)
    child = os.fork()
    if child:
        _hold_signals(is_held=False)
        return child
    status = 1
    try:
        serve_here(build, listener, settings, announce=lambda: None)
        status = 0
    except Exception as error:  # noqa: BLE001 - the child ends here; the parent starts another one
        logs.failure(error, process=os.getpid())
    finally:
        os._exit(status)


def _hold_signals(*, is_held: bool) -> None:
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK if is_held else signal.SIG_UNBLOCK, _STOPPING)


def _ended(children: set[int]) -> set[int]:
    return {child for child in children if os.waitpid(child, os.WNOHANG)[0]}


def _adjustments(listener: socket.socket, settings: Settings) -> Adjustments:
    return Adjustments(
        sockets=[listener],
        threads=settings.threads,
        connection_limit=CONNECTIONS,
        channel_timeout=30,
        max_request_header_size=HEADER_BYTES,
        max_request_body_size=BODY_BYTES,
        # Never into a temporary file, where waitress puts what is long: it is what the vault keeps off the disk.
        inbuf_overflow=sys.maxsize,
        outbuf_overflow=sys.maxsize,
        ident=None,
        expose_tracebacks=False,
        log_socket_errors=False,
        # The edge reads forwarded headers from configured proxies and removes them from everybody else.
        clear_untrusted_proxy_headers=False,
    )
