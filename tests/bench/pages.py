"""What the pages of Resume work cost over HTTP beside an empty route, with few workflows and with many.

One keep-alive connection with a session's cookie. Every round measures an empty route and, on each of several
servers whose databases retain different numbers of workflows, the list and a workflow as page, as fragment and as
a poll that finds nothing new; the list also by every phase, searched, and its second page. Every answer shows as
many rows with few workflows as with many: most are ready, ten are in each other phase, half of them the oldest of
all, and what was deleted stands at the newest end.

    python -m tests.bench.pages --rounds 200 --sizes 100 1000000
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import requests

from continuity.decisions.phases import Phase
from tests.bench.asking import Timings
from tests.bench.decisions import WARM_UP
from tests.bench.filling import PASSWORD, Filled, fill
from tests.servers import RunningServer, start, stop

MOST_RATIO = 1.5
MOST_FRAGMENT_MS = 30.0
FRAGMENT = "HX-Request: true\r\n"
NEXT = re.compile(rb'id="to-older" rel="next" href="([^"]*)"')
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
class Taken:
    """Milliseconds by what was measured: that passed, and of the server's processor, which others do not stretch."""

    passed: Timings = field(default_factory=Timings)
    worked: Timings = field(default_factory=Timings)

    def measure(self, seat: Seat, name: str, path: str, extra: str = "", status: int = 200) -> None:
        before = seat.worked_ms()
        self.passed.measure(name, lambda: seat.reader.get(path, extra, status=status))
        self.worked.values.setdefault(name, []).append(seat.worked_ms() - before)

    def ratios(self, name: str, smallest: int, largest: int) -> tuple[float, float]:
        """Return how many times as long the largest took, in both."""
        few, many = f"{name} {smallest}", f"{name} {largest}"
        return self.passed.p50(many) / self.passed.p50(few), self.worked.p50(many) / self.worked.p50(few)

    def report(self, sizes: Sequence[int]) -> list[str]:
        """Print everything; return what takes longer with many than it may."""
        print(f"{'milliseconds':32} {'p50':>8} {'p95':>8} {'processor p50':>14}")
        for name in self.passed.values:
            print(f"{name:32} {self.passed.p50(name):8.3f} {self.passed.p95(name):8.3f} {self.worked.p50(name):14.3f}")
        smallest, largest = min(sizes), max(sizes)
        broken = []
        print(f"{f'at {largest} / at {smallest}':32} {'passed':>8} {'processor':>10}")
        for name in self.names(smallest):
            passed, worked = self.ratios(name, smallest, largest)
            print(f"{name:32} {passed:8.2f} {worked:10.2f}")
            if passed >= MOST_RATIO:
                broken.append(f"{name}: {passed:.2f} times")
        return broken

    def names(self, size: int) -> list[str]:
        return [name.removesuffix(f" {size}") for name in self.passed.values if name.endswith(f" {size}")]


@dataclass
class Seat:
    """A server whose database retains a number of workflows, and somebody who reads its pages."""

    filled: Filled
    server: RunningServer
    reader: Reader

    @classmethod
    def all_started(cls, made: dict[int, Filled], end: contextlib.ExitStack) -> dict[int, Seat]:
        """Start all servers, and sign in only then: one with many rows takes minutes to start."""
        servers = {}
        for size, filled in made.items():
            servers[size] = start(filled.instance)
            end.callback(stop, servers[size])
        seats = {}
        for size, filled in made.items():
            reader = Reader(servers[size], filled.instance.username)
            end.callback(reader.close)
            seats[size] = cls(filled, servers[size], reader)
        return seats

    def poll_of(self, path: str) -> str:
        """Return the address that the page at `path` asks again and again."""
        found = POLL.search(self.reader.get(path))
        if found is None:
            raise RuntimeError(f"{path} does not poll")
        return found[1].decode().replace("&amp;", "&")

    def worked_ms(self) -> float:
        """Return for how long the server has had a processor so far (Linux counts nanoseconds a thread)."""
        tasks = Path(f"/proc/{self.server.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def asked(seat: Seat, choose: random.Random) -> Iterator[tuple[str, str, str, int]]:
    """Return name, path, further headers and status of everything that is measured."""
    number = choose.randrange(len(seat.filled.workflow_ids))
    workflow = f"/resume-work/{seat.filled.workflow_ids[number]}"
    older = NEXT.search(seat.reader.get("/resume-work"))
    if older is None:
        raise RuntimeError("the list has one page")
    live = "/resume-work/live"
    yield "list page", "/resume-work", "", 200
    yield "list's next page", older[1].decode().replace("&amp;", "&"), "", 200
    yield "list fragment", live, FRAGMENT, 200
    yield "list poll", seat.poll_of("/resume-work"), FRAGMENT, 204
    for phase in Phase:
        yield f"list {phase}", f"{live}?state={phase}", FRAGMENT, 200
    yield "list of a workspace", f"{live}?workspace=default", FRAGMENT, 200
    yield "list of a workspace, done", f"{live}?workspace=default&state=done", FRAGMENT, 200
    yield "search one of all", f"{live}?q=bench+{number}", FRAGMENT, 200
    yield "search by id", f"{live}?q={seat.filled.workflow_ids[number]}", FRAGMENT, 200
    yield "search a common word", f"{live}?q=bench", FRAGMENT, 200
    yield "search two common words", f"{live}?q=publish+bench&state=ready", FRAGMENT, 200
    yield "search a rare phase", f"{live}?q=publish&state=decision", FRAGMENT, 200
    yield "workflow page", workflow, "", 200
    yield "workflow fragment", f"{workflow}/live", FRAGMENT, 200
    yield "workflow poll", seat.poll_of(workflow), FRAGMENT, 204


def main() -> None:
    parser = argparse.ArgumentParser(description="the pages of Resume work beside an empty route")
    parser.add_argument("--rounds", type=int, default=200, help="measured rounds, after ten unmeasured ones")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 10_000], help="workflows, one server each")
    parser.add_argument("--folder", type=Path, default=None, help="where the databases are made: a real disk")
    parser.add_argument("--seed", type=int, default=1, help="which workflows are looked at")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atmem-bench-", dir=options.folder) as folder:
        taken = measure(Path(folder), options.sizes, rounds=options.rounds, seed=options.seed)
    report(taken, options.sizes)


def measure(folder: Path, sizes: Sequence[int], *, rounds: int, seed: int) -> Taken:
    """Ask every page of servers with so many workflows, interleaved."""
    sizes, choose = sorted(sizes), random.Random(seed)
    with contextlib.ExitStack() as end:
        # All of them first: a server ends a connection on which nothing was asked for minutes.
        made = {size: fill(folder / str(size) / "instance", size, mixed=True) for size in sizes}
        seats = Seat.all_started(made, end)
        taken = Taken()
        for number in range(-WARM_UP, rounds):
            if number == 0:
                taken = Taken()
            taken.measure(seats[sizes[0]], "empty route", "/healthz")
            for size, seat in seats.items():
                for name, path, extra, status in asked(seat, choose):
                    taken.measure(seat, f"{name} {size}", path, extra, status)
    return taken


def report(taken: Taken, sizes: Sequence[int]) -> None:
    """Print everything; end with status 1 where a page breaks its promise."""
    broken, largest = taken.report(sizes), max(sizes)
    for name in taken.names(largest):
        passed = taken.passed.p50(f"{name} {largest}")
        if "page" not in name and passed >= MOST_FRAGMENT_MS:
            broken.append(f"{name}: {passed:.1f} ms")
    if broken:
        raise SystemExit("; ".join(broken))


if __name__ == "__main__":
    main()
