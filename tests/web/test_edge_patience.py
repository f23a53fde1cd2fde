"""Slow clients, full servers and stopping ones: the server under a thread, with little patience, and as a process."""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from app import serving
from app.config import load_settings
from app.connections import DRAIN_S, HURRY_S, Patience
from tests.patience import PATIENCE_S, wait_for
from tests.servers import RunningServer

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
LITTLE = Patience(idle_s=1.5, request_s=1.5, reply_s=1.5, drain_s=1.5)
REPLY_BYTES = 8_000_000


def plain_application(environ, start_response):
    body = b"x" * (REPLY_BYTES if environ["PATH_INFO"] == "/large" else 2)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


class Threaded:
    """A server in a thread of this process."""

    def __init__(self, patience: Patience = LITTLE) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.listener = serving.listen("127.0.0.1", 0)
        self.address = self.listener.getsockname()
        self.server = serving.Server(self.application, self.listener, load_settings({}), patience=patience)
        self.thread = threading.Thread(target=self.server.serve)

    def application(self, environ, start_response):
        self.is_asked.set()
        if environ["PATH_INFO"] == "/slow":
            assert self.may_answer.wait(PATIENCE_S)
        return plain_application(environ, start_response)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE_S)


@contextmanager
def serving_with(patience: Patience) -> Iterator[Threaded]:
    threaded = Threaded(patience)
    threaded.thread.start()
    try:
        yield threaded
    finally:
        threaded.may_answer.set()
        threaded.server.stop()
        threaded.thread.join()


@pytest.fixture
def impatient() -> Iterator[Threaded]:
    with serving_with(LITTLE) as threaded:
        yield threaded


def seconds_until_closed(connection: socket.socket) -> float:
    started = time.monotonic()
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - started


def drip(connection: socket.socket, chunk: bytes) -> None:
    """Send a byte now and then until the other side has had enough."""
    try:
        while True:
            connection.sendall(chunk)
            time.sleep(0.1)
    except OSError:
        pass


SLOW = {
    "says nothing": (b"", b""),
    "stops in the headers": (b"GET / HT", b""),
    "drips headers": (GET, b"X: y\r\n"),
    "drips the body": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n", b"x"),
    "drips empty lines": (b"\r\n\r\n", b"\r\n\r\n"),
}


@pytest.mark.parametrize("case", SLOW)
def test_a_client_that_is_too_slow_with_its_request_is_dropped(impatient, case):
    first, further = SLOW[case]
    with impatient.connect() as connection:
        connection.sendall(first)
        if further:
            threading.Thread(target=drip, args=(connection, further), daemon=True).start()

        # Long before a server of everyday patience would do it.
        assert seconds_until_closed(connection) < Patience().idle_s


def test_a_client_that_does_not_take_its_reply_is_dropped(impatient):
    with socket.socket() as connection:
        # A small window, or the kernel would take the whole reply in the client's place.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.settimeout(PATIENCE_S)
        connection.connect(impatient.address)
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert impatient.is_asked.wait(PATIENCE_S)
        wait_for(lambda: not impatient.server.active_channels, what="it was not dropped")
        received = 0
        try:
            while chunk := connection.recv(65_536):
                received += len(chunk)
        except ConnectionError:
            pass

    assert received < REPLY_BYTES


def test_a_client_that_takes_a_large_reply_steadily_gets_all_of_it(impatient):
    def taken():
        with impatient.connect() as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            received, longest_s, last_s, started = 0, 0.0, time.monotonic(), time.monotonic()
            with suppress(ConnectionError):
                while chunk := connection.recv(65_536):
                    received += len(chunk)
                    # Steadily while the server judges it twice and more; what is left at once.
                    if time.monotonic() - started < 2 * LITTLE.reply_s:
                        time.sleep(0.1)
                    longest_s = max(longest_s, time.monotonic() - last_s)
                    last_s = time.monotonic()
        return received, longest_s

    # A machine on which a step took nearly as long as the server's patience has not taken it steadily.
    received, longest_s = taken()
    while received <= REPLY_BYTES and longest_s > LITTLE.reply_s / 2:
        received, longest_s = taken()

    assert received > REPLY_BYTES


def test_stopping_lets_a_request_finish_and_closes_idle_connections():
    everlasting = 10 * PATIENCE_S
    patience = Patience(idle_s=everlasting, request_s=everlasting, reply_s=everlasting, drain_s=everlasting)
    with serving_with(patience) as threaded, threaded.connect() as busy, threaded.connect() as idle:
        busy.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert threaded.is_asked.wait(PATIENCE_S)

        threaded.server.stop()
        # While the other one's answer is not even made.
        assert seconds_until_closed(idle) < PATIENCE_S
        threaded.may_answer.set()
        reply = b"".join(iter(lambda: busy.recv(65_536), b""))

    assert reply.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in reply
    with pytest.raises(ConnectionRefusedError):
        threaded.connect()


def test_stopping_does_not_wait_for_ever_for_the_other_half_of_a_request(impatient):
    with impatient.connect() as connection:
        connection.sendall(b"GET / HT")
        wait_for(lambda: any(not channel.is_idle() for channel in list(impatient.server.active_channels.values())))

        started = time.monotonic()
        impatient.server.stop()

        # Sooner than a server that had taken the clients' patience for its own.
        seconds_until_closed(connection)
        assert 1 < time.monotonic() - started < Patience().idle_s


class HeldUp(serving.Server):
    """A server whose stopper is held up just before it wakes the loop, which wakes by itself meanwhile."""

    def pull_trigger(self):
        with socket.create_connection(self.address, timeout=PATIENCE_S):
            time.sleep(1.5)
        super().pull_trigger()


def test_a_server_that_ends_while_its_stopper_is_held_up_ends_cleanly():
    listener = serving.listen("127.0.0.1", 0)
    server = HeldUp(plain_application, listener, load_settings({}), patience=LITTLE)
    server.address = listener.getsockname()
    thread = threading.Thread(target=server.serve)
    thread.start()

    server.stop()
    thread.join(timeout=PATIENCE_S)

    assert not thread.is_alive()


@contextmanager
def slow_connections(server: RunningServer, count: int) -> Iterator[list[socket.socket]]:
    """Hold connections open: a third says nothing, a third stops in the headers, a third in the body."""
    openings = (b"", b"POST /v1/conti", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{")
    held = [server.connect() for _ in range(count)]
    try:
        for index, connection in enumerate(held):
            connection.sendall(openings[index % 3])
        yield held
    finally:
        for connection in held:
            connection.close()


def test_an_honest_client_is_served_at_once_beside_a_hundred_and_ten_slow_ones(running_server):
    with slow_connections(running_server, 110) as slow:
        time.sleep(0.2)
        with running_server.connect() as connection:
            connection.sendall(GET + b"Connection: close\r\n\r\n")
            reply = connection.recv(65_536)
        # At once: none of the slow ones had to go for it, nor were they let go for their slowness.
        closed, _, _ = select.select(slow, [], [], 0)

        assert reply.startswith(b"HTTP/1.1 200 OK")
        assert closed == []


def ask(connection: socket.socket) -> bytes:
    connection.sendall(GET + b"\r\n")
    reply = b""
    while not reply.endswith(b"xx"):
        chunk = connection.recv(65_536)
        assert chunk, "closed without a reply"
        reply += chunk
    return reply


PATIENT = Patience(idle_s=10 * PATIENCE_S, request_s=10 * PATIENCE_S, drain_s=1.5)
"""Lets nobody go for being slow: whoever comes is served because room is made."""


@pytest.fixture
def patient() -> Iterator[Threaded]:
    with serving_with(PATIENT) as threaded:
        yield threaded


@contextmanager
def every_place(threaded: Threaded, further: bytes) -> Iterator[list[socket.socket]]:
    """Take as many connections as there are, each asked once; `further` is what each sends then."""
    with ExitStack() as held:
        connections = []
        # Two of the places are the server's own.
        for _ in range(serving.CONNECTIONS - 2):
            connections.append(held.enter_context(threaded.connect()))
            ask(connections[-1])
            connections[-1].sendall(further)
        yield connections


def test_who_holds_every_connection_and_asks_nothing_keeps_nobody_out(patient):
    with every_place(patient, b"") as held:
        started = time.monotonic()
        for _ in range(20):
            with patient.connect() as honest:
                assert ask(honest).startswith(b"HTTP/1.1 200 OK")

        assert time.monotonic() - started < PATIENCE_S
        # Who has asked last keeps its place, who has been quiet for longest has lost it.
        assert ask(held[-1]).startswith(b"HTTP/1.1 200 OK")
        assert held[0].recv(1) == b""


def test_who_holds_every_connection_in_the_midst_of_a_request_keeps_nobody_out(patient):
    with every_place(patient, b"GET / HT"):
        started = time.monotonic()
        for _ in range(20):
            with patient.connect() as honest:
                assert ask(honest).startswith(b"HTTP/1.1 200 OK")

        assert time.monotonic() - started < HURRY_S + PATIENCE_S


def test_who_comes_at_once_where_places_are_made_is_served_to_the_last(patient):
    """The place that is made has the number of the one that was lost, of which the loop may still hear something."""
    with every_place(patient, b""), ExitStack() as came:
        honest = [came.enter_context(patient.connect()) for _ in range(50)]

        for connection in honest:
            assert ask(connection).startswith(b"HTTP/1.1 200 OK")


def test_sigterm_ends_the_process_with_status_0_and_without_waiting_for_idle_connections(running_server):
    with running_server.connect() as connection:
        connection.sendall(GET + b"\r\n")
        reply = b""
        while not reply.endswith(b"}"):
            reply += connection.recv(65_536)
        started = time.monotonic()
        running_server.process.send_signal(signal.SIGTERM)

        assert connection.recv(65_536) == b""
        # Not at the end of the time that what was begun may have.
        assert time.monotonic() - started < DRAIN_S
        assert running_server.terminate() == 0
