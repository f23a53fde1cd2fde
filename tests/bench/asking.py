"""As little client as possible, what it asks for, and for how long it waits: shared by all benchmarks over HTTP."""

from __future__ import annotations

import json
import os
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from continuity.store.sqlite import choose_driver

DEFINITION = {"name": "publish", "tool": "directory_publish", "arguments": {"document": "x" * 200}}
ROW_BYTES = 200


class ThrottledError(RuntimeError):
    """The server has said to come again later (429)."""


class Wire:
    """HTTP/1.1 on one socket that stays open."""

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = address
        self._head = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._is_ended = False

    def get(self, path: str) -> bytes:
        return self._exchange(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode())

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        reply: dict[str, Any] = json.loads(self._exchange(head.encode() + content))
        return reply

    def _exchange(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, body = received.partition(b"\r\n\r\n")
        lowered = head.lower()
        length = next(int(line.split(b":")[1]) for line in lowered.split(b"\r\n") if line.startswith(b"content-length"))
        while len(body) < length:
            body += self._receive()
        self._is_ended = lowered.startswith(b"http/1.0") or b"\r\nconnection: close" in lowered
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
            kind = ThrottledError if head[9:12] == b"429" else RuntimeError
            raise kind(f"the server answered {head.splitlines()[0]!r}: {body!r}")
        return body

    def _receive(self) -> bytes:
        received = self._socket.recv(65536)
        if not received:
            raise RuntimeError("the server has closed the connection")
        return received

    def close(self) -> None:
        self._socket.close()


class Line(Wire):
    """A wire that connects when it is asked, and anew after an error or where a server ends what it has answered."""

    TIMEOUT_S = 60

    def __init__(self, address: tuple[str, int], headers: str) -> None:
        """Keep where to, and whole lines of headers that say who asks."""
        self._address = address
        self._head = f"Host: {address[0]}:{address[1]}\r\n{headers}"
        self._is_ended = True

    def _exchange(self, request: bytes) -> bytes:
        if self._is_ended:
            self._connect()
        try:
            return super()._exchange(request)
        except ThrottledError:
            raise
        except BaseException:
            self.close()
            raise
        finally:
            if self._is_ended:
                self._socket.close()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, timeout=self.TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_ended = False

    def close(self) -> None:
        if not self._is_ended:
            self._socket.close()
            self._is_ended = True


@dataclass
class Timings:
    """Milliseconds by what was measured."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, name: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = work()
        self.values.setdefault(name, []).append((time.perf_counter() - begun) * 1e3)
        return result

    def p50(self, name: str) -> float:
        return statistics.median(self.values[name])

    def p95(self, name: str) -> float:
        return statistics.quantiles(self.values[name], n=20)[-1]


class RawCommit:
    """One row of 200 bytes and one commit, in a database of its own."""

    def __init__(self, folder: Path) -> None:
        self._connection = connect(folder / "raw.db")
        self._connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, value BLOB)")

    def __call__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO rows (value) VALUES (?)", (os.urandom(ROW_BYTES),))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def connect(path: Path) -> Any:
    """Open a database with the product's driver and durability and nothing else."""
    connection = choose_driver()[0].connect(str(path), isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def receipt_of(grant: dict[str, object]) -> dict[str, object]:
    """Return the body of the outcome that completes a grant."""
    receipt = {
        "outcome": "confirmed_succeeded", "operation_id": grant["operation_id"], "effect_id": "file",
        "result": {"sha256": "0" * 64, "bytes": 200},
    }  # fmt: skip
    return {
        "name": "publish", "run_id": grant["run_id"], "attempt_id": grant["attempt_id"],
        "lease_token": grant["lease_token"], "receipt": receipt,
    }  # fmt: skip
