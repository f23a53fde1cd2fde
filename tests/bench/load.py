"""The load: processes whose threads are clients, each with a connection of its own that is kept.

`Generators` starts the processes and shares clients out among them. ``python -m tests.bench.load`` is one of them: it
reads one JSON line a request and answers it with one. All begin at the same moment of the machine's monotonic clock.
"""

from __future__ import annotations

import collections
import json
import math
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench.asking import Line
from tests.bench.works import HEALTH, WORKS, Client, NothingLeftError
from tests.servers import ROOT

AHEAD_S, AHEAD_A_CLIENT_S = 0.1, 0.004
"""How long before the start everybody is told of it: clients connect meanwhile."""
PAUSE_S = 0.05
"""After an error, so that a server that is gone is not asked a million times."""
MOST_ERRORS = 20
"""In one client in a row; then it gives up, and the others go on."""
PATIENCE_S = 120
MOST_TEXT = 300
SWITCH_S = 0.000_5
"""How soon a thread that has an answer may take it, while another one writes its next request."""

_REQUEST_ID = re.compile(r"req_[0-9a-f]+")


@dataclass(frozen=True)
class Job:
    """So many clients that do one thing for some seconds. `headers` are whole lines that say who asks."""

    work: str
    clients: int
    seconds: float
    address: tuple[str, int] = ("", 0)
    headers: str = ""
    given: dict[str, Any] = field(default_factory=dict)


@dataclass
class Sample:
    """What came of a job: milliseconds by name, errors by text, how long it took, and how busy the clients were.

    `busy` is the share of one processor that a process of clients used; near 1, it was they who were the limit.
    """

    work: str
    spans: dict[str, list[float]]
    errors: dict[str, int]
    elapsed_s: float
    busy: float
    made: list[str] = field(default_factory=list)
    """Ids of the workflows that were created, where that was the work."""
    throttled: int = 0
    """How often a client was told to come again (429) and did: part of the contract, and no error."""

    @property
    def count(self) -> int:
        return len(self.spans.get(self.work, ()))

    @property
    def rate(self) -> float:
        """Return how many a second."""
        return self.count / self.elapsed_s if self.elapsed_s > 0 else 0.0


class Generators:
    """Some processes that make load."""

    def __init__(self, count: int, extra: Mapping[str, str], environ: Mapping[str, str]) -> None:
        """Start them, with further variables of environment, which is how a slow disk gets into them."""
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.bench.load"],
                cwd=ROOT, env={**environ, **extra}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for _ in range(count)
        ]  # fmt: skip
        for process in self._processes:
            _answer(process, PATIENCE_S)

    def run(self, *jobs: Job) -> list[Sample]:
        """Do all jobs at the same time; return what came of each."""
        clients = sum(job.clients for job in jobs)
        start_at = time.monotonic() + AHEAD_S + AHEAD_A_CLIENT_S * clients
        shares = [_share(job, len(self._processes)) for job in jobs]
        asked = [
            {"start_at": start_at, "parts": [asdict(share[number]) for share in shares]}
            for number in range(len(self._processes))
        ]
        for process, request in zip(self._processes, asked, strict=True):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        patience_s = max(job.seconds for job in jobs) + PATIENCE_S
        answers = [_answer(process, patience_s) for process in self._processes]
        return [_joined(job, [answer[number] for answer in answers]) for number, job in enumerate(jobs)]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def close(self) -> None:
        for process in self._processes:
            process.stdin.close()
            process.wait(timeout=PATIENCE_S)
            process.stdout.close()


def _share(job: Job, count: int) -> list[Job]:
    """Share clients, and what they begin, out among so many processes."""
    ready = job.given.get("ready")
    parts = []
    for number in range(count):
        given = job.given if ready is None else {**job.given, "ready": ready[number::count]}
        clients = job.clients // count + (number < job.clients % count)
        parts.append(Job(job.work, clients, job.seconds, job.address, job.headers, given))
    return parts


def _answer(process: subprocess.Popen[bytes], patience_s: float) -> list[dict[str, Any]]:
    ready, _, _ = select.select([process.stdout], [], [], patience_s)
    line = process.stdout.readline() if ready else b""
    if not line:
        raise RuntimeError("a process that makes load has not answered")
    answer: list[dict[str, Any]] = json.loads(line)
    return answer


def _joined(job: Job, parts: Sequence[Mapping[str, Any]]) -> Sample:
    spans: dict[str, list[float]] = {}
    errors: collections.Counter[str] = collections.Counter()
    for part in parts:
        for name, values in part["spans"].items():
            spans.setdefault(name, []).extend(values)
        errors.update(part["errors"])
    elapsed_s = max(part["elapsed_s"] for part in parts)
    made = [workflow_id for part in parts for workflow_id in part["made"]]
    busy, throttled = max(part["busy"] for part in parts), sum(part["throttled"] for part in parts)
    return Sample(job.work, spans, dict(errors), elapsed_s, busy, made, throttled)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so many of all do not pass (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


# --- The process that makes load ---------------------------------------------------------------------


class _Thread(threading.Thread):
    """A client at work."""

    def __init__(self, part: Job, client: Client, start_at: float) -> None:
        super().__init__()
        self._part, self.client, self._start_at = part, client, start_at
        self.errors: collections.Counter[str] = collections.Counter()
        self.ended_at = start_at

    def run(self) -> None:
        work, in_a_row = WORKS[self._part.work], 0
        self._warm_up()
        time.sleep(max(0.0, self._start_at - time.monotonic()))
        until = self._start_at + self._part.seconds
        while time.monotonic() < until and in_a_row < MOST_ERRORS:
            try:
                work(self.client)
                in_a_row = 0
            except NothingLeftError:
                break
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and reported
                in_a_row += 1
                self._count(error)
            self.ended_at = time.monotonic()

    def _warm_up(self) -> None:
        if not self._part.headers:
            return
        try:
            self.client.line.get(self._part.given.get("warm_up", HEALTH))
        except Exception as error:  # noqa: BLE001 - as above
            self._count(error)

    def _count(self, error: Exception) -> None:
        text = _REQUEST_ID.sub("req_", f"{self._part.work}: {type(error).__name__}: {error}")
        self.errors[text[:MOST_TEXT]] += 1
        time.sleep(PAUSE_S)


def _work(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = [Job(**part) for part in request["parts"]]
    start_at = request["start_at"]
    teams: list[list[_Thread]] = []
    for part in parts:
        ready = part.given.get("ready")
        teams.append([])
        for number in range(part.clients):
            own = dict(part.given) if ready is None else {**part.given, "ready": ready[number :: part.clients]}
            client = Client(Line(tuple(part.address), part.headers), own)
            teams[-1].append(_Thread(part, client, start_at))
    everybody = [thread for team in teams for thread in team]
    for thread in everybody:
        thread.start()
    time.sleep(max(0.0, start_at - time.monotonic()))
    worked, began = time.process_time(), time.monotonic()
    for thread in everybody:
        thread.join()
    # Fewer clients than processes leave some of these without any, and no time has passed there.
    busy = (time.process_time() - worked) / (time.monotonic() - began) if everybody else 0.0
    return [_told(part, team, start_at, busy) for part, team in zip(parts, teams, strict=True)]


def _told(part: Job, team: Sequence[_Thread], start_at: float, busy: float) -> dict[str, Any]:
    spans: dict[str, list[float]] = {}
    errors: collections.Counter[str] = collections.Counter()
    for thread in team:
        thread.client.close()
        errors.update(thread.errors)
        for name, values in thread.client.timings.values.items():
            spans.setdefault(name, []).extend(values)
    ended_at = max((thread.ended_at for thread in team), default=start_at)
    made = [made for thread in team for made in thread.client.made] if part.work == "create" else []
    return {
        "spans": spans, "errors": dict(errors), "elapsed_s": ended_at - start_at, "busy": busy, "made": made,
        "throttled": sum(thread.client.throttled for thread in team),
    }  # fmt: skip


def main() -> None:
    sys.setswitchinterval(SWITCH_S)
    print("[]", flush=True)
    for line in sys.stdin:
        print(json.dumps(_work(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
