"""A small server that speaks wire.md's framing and does exactly what a test tells it to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes
    connection: int

    @property
    def call(self) -> str:
        """The last part of the path: begin, outcome, renew …"""
        return self.path.partition("?")[0].rsplit("/", 1)[-1]


Answer = Callable[["Handler", Seen], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: StubServer

    def handle_any(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        raw = self.rfile.read(size)
        seen = Seen(
            self.command, self.path, {k.lower(): v for k, v in self.headers.items()},
            json.loads(raw) if raw else None, raw, self.client_address[1],
        )  # fmt: skip
        with self.server.lock:
            self.server.seen.append(seen)
        try:
            self.server.answer(self, seen)
        except OSError:
            self.close_connection = True

    def do_GET(self) -> None:
        self.handle_any()

    def do_POST(self) -> None:
        self.handle_any()

    def reply(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.reply_bytes(json.dumps(value).encode(), status, headers)

    def reply_bytes(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        self.reply({"error": {"code": code, "message": f"{code} it is."}, "request_id": "req_1"}, status, headers)

    def hang_up(self) -> None:
        """Close without a word: the reply is lost on the way."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class StubServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.seen: list[Seen] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def calls(self, name: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.call == name]


@contextmanager
def serving(answer: Answer) -> Iterator[StubServer]:
    server = StubServer(answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
