"""A TCP proxy between a host and the server that does to whole requests what networks do to them."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from tests.patience import PATIENCE_S

_LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Exchange:
    """One request on its way: the client's connection and the way to the server."""

    client: socket.socket
    request: bytes
    connect: Callable[[], socket.socket]

    def forward(self) -> bytes:
        """Send the request and return the whole reply."""
        with self.connect() as server:
            server.sendall(self.request)
            return read_message(server)

    def reset(self) -> None:
        """Close the client's connection with a reset."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)


Fault = Callable[[Exchange], None]


def deliver(exchange: Exchange) -> None:
    exchange.client.sendall(exchange.forward())


def drop_request(_exchange: Exchange) -> None:
    """Nothing arrives, the client hears nothing."""


def drop_reply(exchange: Exchange) -> None:
    """The server does what was asked, the client hears nothing."""
    exchange.forward()


def reset_reply(exchange: Exchange) -> None:
    exchange.forward()
    exchange.reset()


def cut_reply(exchange: Exchange) -> None:
    """The reply ends in the middle."""
    reply = exchange.forward()
    exchange.client.sendall(reply[: len(reply) - 20])


def cut_request(exchange: Exchange) -> None:
    """The server gets all but the end of the request."""
    with exchange.connect() as server:
        server.sendall(exchange.request[:-5])
    time.sleep(0.05)


def duplicate(exchange: Exchange) -> None:
    """The server gets the request twice, the client hears the first reply."""
    reply = exchange.forward()
    exchange.forward()
    exchange.client.sendall(reply)


def duplicate_at_once(exchange: Exchange) -> None:
    """The server gets the request twice on two connections at the same time, the client hears one of the replies."""
    replies: list[bytes] = []
    threads = [threading.Thread(target=lambda: replies.append(exchange.forward())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    exchange.client.sendall(replies[0])


def half_close(exchange: Exchange) -> None:
    """The client's side says that nothing more comes, before the server has answered."""
    with exchange.connect() as server:
        server.sendall(exchange.request)
        server.shutdown(socket.SHUT_WR)
        exchange.client.sendall(read_message(server))


def crumble(exchange: Exchange) -> None:
    """Request and reply travel byte by byte."""
    with exchange.connect() as server:
        for number in range(len(exchange.request)):
            server.sendall(exchange.request[number : number + 1])
        reply = read_message(server)
    for number in range(len(reply)):
        exchange.client.sendall(reply[number : number + 1])


def delayed(seconds: float) -> Fault:
    def delay(exchange: Exchange) -> None:
        reply = exchange.forward()
        time.sleep(seconds)
        exchange.client.sendall(reply)

    return delay


@dataclass
class Proxy:
    """Listens on a port of its own; `plan` names the fault of the next request to a path, once each."""

    target: tuple[str, int]
    plan: dict[str, list[Fault]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=PATIENCE_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        """Carry one request and close; the host connects again for the next."""
        with client:
            client.settimeout(PATIENCE_S)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            request = read_message(client)
            if not request:
                return
            call = request.split(b" ", 2)[1].rpartition(b"/")[2].decode()
            self.seen.append(call)
            faults = self.plan.get(call)
            (faults.pop(0) if faults else deliver)(Exchange(client, request, self._connect))

    def _connect(self) -> socket.socket:
        server = socket.create_connection(self.target, timeout=PATIENCE_S)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server


def read_message(source: socket.socket) -> bytes:
    """Return one HTTP message framed by its Content-Length; empty when the other side says nothing."""
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = source.recv(65_536)
        if not chunk:
            return received
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        chunk = source.recv(65_536)
        if not chunk:
            break
        received += chunk
        missing -= len(chunk)
    return received
