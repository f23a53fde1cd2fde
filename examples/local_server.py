"""A small HTTP server that stands for somebody else's: it keeps what it did in one file, and may be restarted."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = tuple[int, Any]


class Records:
    """What was done, one JSON object a line, on the disk before anybody is told."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, record: dict[str, Any]) -> None:
        """Write one record."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def all(self) -> list[dict[str, Any]]:
        """Return all records, oldest first."""
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]


def serve(answer: Callable[..., Answer], parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> None:
    """Serve until it is stopped, one request at a time.

    Args:
        answer: ``(method, path, headers, body, *, records, options) -> (status, JSON)``.
        parser: Holds the options that are the server's own.
        argv: The arguments; those of the process when left out.
    """
    parser.add_argument("--records", type=Path, required=True, help="the file that keeps what was done")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one, which is printed")
    options = parser.parse_args(argv)
    records, lock = Records(options.records), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"null")
            with lock:
                status, value = answer(self.command, self.path, self.headers, body, records=records, options=options)
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _any  # noqa: N815 - the names that the standard library calls

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", options.port), Handler) as server:
        sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{server.server_address[1]}"}) + "\n")
        sys.stdout.flush()
        server.serve_forever()
