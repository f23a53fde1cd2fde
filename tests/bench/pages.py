"""What the pages of Resume work cost over HTTP beside an empty route, with few workflows and with many.

One keep-alive connection with a session's cookie. Every round measures an empty route and, on each of several
servers whose databases retain different numbers of workflows, the list and a workflow as page, as fragment and as
a poll that finds nothing new.

    python -m tests.bench.pages --rounds 200 --sizes 100 100000
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.bench.decisions import WARM_UP, Timings
from tests.bench.filling import PASSWORD, Filled, fill
from tests.servers import RunningServer, start, stop

MOST_RATIO = 1.5
MOST_FRAGMENT_MS = 30.0
FRAGMENT = "HX-Request: true\r\n"
POLL = re.compile(rb'hx-get="([^"]*)"')


class Reader:
    """HTTP/1.1 on one socket that stays open, signed in: as little browser as possible."""

    def __init__(self, server: RunningServer, username: str) -> None:
        self._server = server
        self._connect()
        body = {"username": username, "password": PASSWORD}
        answer = requests.post(f"{server.url}/api/auth/login", json=body, timeout=10)
        answer.raise_for_status()
        cookies = "; ".join(f"{name}={value}" for name, value in answer.cookies.items())
        host, port = server.address
        self._head = f"Host: {host}:{port}\r\nCookie: {cookies}\r\nAccept: text/html\r\n"

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._server.address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _receive(self) -> bytes:
        received = self._socket.recv(65536)
        if not received:
            raise RuntimeError("the server closed the connection")
        return received

    def get(self, path: str, extra: str = "", *, status: int = 200) -> bytes:
        self._socket.sendall(f"GET {path} HTTP/1.1\r\n{self._head}{extra}\r\n".encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, body = received.partition(b"\r\n\r\n")
        if not head.startswith(f"HTTP/1.1 {status} ".encode()):
            raise RuntimeError(f"{path}: the server answered {head.splitlines()[0]!r}")
        found = re.search(rb"content-length: (\d+)", head, flags=re.IGNORECASE)
        while len(body) < (int(found[1]) if found else 0):
            body += self._receive()
        if b"connection: close" in head.lower():
            # As after a 204: a browser connects again for the next request, too.
            self._socket.close()
            self._connect()
        return body

    def close(self) -> None:
        self._socket.close()


@dataclass
class Seat:
    """A server whose database retains a number of workflows, and somebody who reads its pages."""

    filled: Filled
    server: RunningServer
    reader: Reader

    @classmethod
    def made(cls, folder: Path, size: int) -> Seat:
        filled = fill(folder / "instance", size)
        server = start(filled.instance)
        return cls(filled, server, Reader(server, filled.instance.username))

    def poll_of(self, path: str) -> str:
        """Return the address that the page at `path` asks again and again."""
        found = POLL.search(self.reader.get(path))
        if found is None:
            raise RuntimeError(f"{path} does not poll")
        return found[1].decode().replace("&amp;", "&")

    def close(self) -> None:
        self.reader.close()
        stop(self.server)


def measure(seat: Seat, size: int, timings: Timings, choose: random.Random) -> None:
    """Take every measurement once on one server."""
    number = choose.randrange(len(seat.filled.workflow_ids))
    workflow = f"/resume-work/{seat.filled.workflow_ids[number]}"
    reader = seat.reader
    list_poll, workflow_poll = seat.poll_of("/resume-work"), seat.poll_of(workflow)
    for name, path, extra, status in (
        ("list page", "/resume-work", "", 200),
        ("list fragment", "/resume-work/live", FRAGMENT, 200),
        ("list poll", list_poll, FRAGMENT, 204),
        ("list by phase", "/resume-work/live?state=ready", FRAGMENT, 200),
        ("list by search", f"/resume-work/live?q=bench+{number}", FRAGMENT, 200),
        ("workflow page", workflow, "", 200),
        ("workflow fragment", f"{workflow}/live", FRAGMENT, 200),
        ("workflow poll", workflow_poll, FRAGMENT, 204),
    ):
        timings.measure(f"{name} {size}", lambda p=path, e=extra, s=status: reader.get(p, e, status=s))


NAMES = ("list page", "list fragment", "list poll", "list by phase", "list by search", "workflow page",
         "workflow fragment", "workflow poll")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="the pages of Resume work beside an empty route")
    parser.add_argument("--rounds", type=int, default=200, help="measured rounds, after ten unmeasured ones")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 10_000], help="workflows, one server each")
    parser.add_argument("--folder", type=Path, default=None, help="where the databases are made: a real disk")
    parser.add_argument("--seed", type=int, default=1, help="which workflows are looked at")
    options = parser.parse_args()
    sizes, choose = sorted(options.sizes), random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="atmem-bench-", dir=options.folder) as made, contextlib.ExitStack() as end:
        seats = {size: Seat.made(Path(made) / str(size), size) for size in sizes}
        for seat in seats.values():
            end.callback(seat.close)
        timings = Timings()
        for number in range(-WARM_UP, options.rounds):
            if number == 0:
                timings = Timings()
            timings.measure("empty route", lambda: seats[sizes[0]].reader.get("/healthz"))
            for size, seat in seats.items():
                measure(seat, size, timings, choose)
    report(timings, sizes)


def report(timings: Timings, sizes: Sequence[int]) -> None:
    """Print everything; end with status 1 where a page breaks its promise."""
    print(f"{'milliseconds':28} {'p50':>8} {'p95':>8}")
    for name in timings.values:
        print(f"{name:28} {timings.p50(name):8.3f} {timings.p95(name):8.3f}")
    smallest, largest = min(sizes), max(sizes)
    broken = []
    for name in NAMES:
        ratio = timings.p50(f"{name} {largest}") / timings.p50(f"{name} {smallest}")
        print(f"{name} at {largest} / at {smallest} = {ratio:.2f}")
        if ratio >= MOST_RATIO:
            broken.append(f"{name}: {ratio:.2f} times")
        if "page" not in name and timings.p50(f"{name} {largest}") >= MOST_FRAGMENT_MS:
            broken.append(f"{name}: {timings.p50(f'{name} {largest}'):.1f} ms")
    if broken:
        raise SystemExit("; ".join(broken))


if __name__ == "__main__":
    main()
