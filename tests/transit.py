"""A stand-in for HashiCorp Vault that speaks Transit's HTTP API for one key, and misbehaves when it is told to."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN = "hvs.made-up-for-the-tests"
JSON = {"Content-Type": "application/json"}


@dataclass
class Transit:
    """The engine ``transit`` with the key ``atmem``: its versions, what was asked, and how it answers."""

    versions: list[bytes] = field(default_factory=lambda: [os.urandom(32)])
    least: int = 1
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    trouble: str = ""
    may_answer: threading.Event = field(default_factory=threading.Event)
    """While its trouble is to be slow."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def rotate(self) -> None:
        self.versions.append(os.urandom(32))

    def answer(self, path: str, token: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.asked.append((path, token))
        if self.trouble in ANSWERS:
            return ANSWERS[self.trouble]
        if token not in self.tokens:
            return 403, {"errors": ["permission denied"]}
        verb, _, name = path.removeprefix("/v1/transit/").partition("/")
        if name != "atmem" or verb not in {"encrypt", "decrypt"}:
            return 404, {"errors": []}
        return self._encrypt(body) if verb == "encrypt" else self._decrypt(body)

    def _encrypt(self, body: dict[str, Any]) -> tuple[int, Any]:
        number, nonce = len(self.versions), os.urandom(12)
        sealed = nonce + AESGCM(self.versions[-1]).encrypt(nonce, base64.b64decode(body["plaintext"]), None)
        return 200, {"data": {"ciphertext": f"vault:v{number}:{base64.b64encode(sealed).decode()}"}}

    def _decrypt(self, body: dict[str, Any]) -> tuple[int, Any]:
        _, version, text = body["ciphertext"].split(":")
        number, sealed = int(version[1:]), base64.b64decode(text)
        if not self.least <= number <= len(self.versions):
            return 400, {"errors": ["ciphertext or signature version is disallowed by policy (too old)"]}
        try:
            plaintext = AESGCM(self.versions[number - 1]).decrypt(sealed[:12], sealed[12:], None)
        except InvalidTag:
            return 400, {"errors": ["cipher: message authentication failed"]}
        return 200, {"data": {"plaintext": base64.b64encode(plaintext).decode()}}


ANSWERS: dict[str, tuple[int, Any]] = {
    "sealed": (503, {"errors": ["Vault is sealed"]}),
    "no engine": (404, {"errors": []}),
    "busy": (429, {"errors": ["request path rate limit quota exceeded"]}),
    "broken": (500, {"errors": ["internal error"]}),
    "bad gateway": (502, b"<html>bad gateway</html>"),
    "no json": (200, b"\x00\xff<html>"),
    "a list": (200, [1, 2]),
    "no data": (200, {"data": None}),
    "empty data": (200, {"data": {}}),
    "numbers": (200, {"data": {"ciphertext": 7, "plaintext": 7}}),
    "another key": (200, {"data": {"ciphertext": "vault:v1:short", "plaintext": base64.b64encode(b"x" * 32).decode()}}),
    "elsewhere": (307, {"Location": "http://127.0.0.1:9/"}),
}
"""What it answers to everything, by the word that stands in `Transit.trouble`."""


class _Handler(BaseHTTPRequestHandler):
    transit: Transit

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        if self.transit.trouble == "slow":
            self.transit.may_answer.wait()
        status, value = self.transit.answer(self.path, self.headers.get("X-Vault-Token", ""), body)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        if status == 307:
            self.send_header("Location", value["Location"])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def running() -> Iterator[Transit]:
    """Serve the engine on a free port."""
    transit = Transit()
    handler = type("Handler", (_Handler,), {"transit": transit})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    transit.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield transit
    finally:
        transit.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()
