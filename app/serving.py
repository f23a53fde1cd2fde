"""The production server: waitress, with the rules that it lacks.

Rules:

* What two readers could frame differently is refused and the connection closed: see `app.framing`.
* Nobody holds a connection by being slow: see `app.connections`. When all places are taken, the one that has been
  without a request for longest makes room for a new one.
* SIGTERM and SIGINT stop listening, let what was begun finish for `DRAIN_S`, then leave.
* Whoever forks builds its engine after the fork: a database connection must never be in two processes.
"""

from __future__ import annotations

import gc
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
from typing import TYPE_CHECKING, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer

from app import logs
from app.config import Settings
from app.connections import DRAIN_S, Patience, PatientChannel
from app.dispatching import Dispatcher
from app.framing import BODY_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

BuildApplication = Callable[[], "AbstractContextManager[WSGIApplication]"]
"""Makes the application with everything behind it; leaving the context stops its threads and closes its engine."""

CONNECTIONS: Final = 500
_SWEEP_S: Final = 1.0
_BACKLOG: Final = 512
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_WATCH_S: Final = 0.1
_RESPAWN_S: Final = 1.0
_GRACE_S: Final = 5.0
"""After which a worker that does not end by itself is ended."""


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
        # What was loaded stays until the end: whoever collects garbage between requests need not look at it.
        gc.freeze()
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
