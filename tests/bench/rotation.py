"""How long the rotation of a vault with many data keys takes, with what memory, and what a begin costs beside it.

One server, one keep-alive client on a bare socket that begins operation after operation without a pause; the rotation
is a process of its own beside it, as an operator runs it. The same run measures begins before, during and after.

    python -m tests.bench.rotation --partitions 100000
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.bench.asking import DEFINITION, Wire
from tests.bench.filling import Filled, fill
from tests.servers import ROOT, environment, start, stop

WITHOUT_S = 15.0
"""How long begins are measured without a rotation, once before and once after."""
LOOK_S = 0.05


class Beginner:
    """Begins one workflow after the other, in an order drawn at random."""

    def __init__(self, wire: Wire, filled: Filled) -> None:
        self._wire = wire
        ids = list(filled.workflow_ids)
        random.Random(1).shuffle(ids)
        self._ids = iter(ids)
        self._number = itertools.count()

    def begin(self) -> float:
        """Begin the next one; return how many milliseconds it took."""
        workflow_id, number = next(self._ids), next(self._number)
        body = {"name": DEFINITION["name"], "run_id": f"run-{number}", "attempt_id": f"at-{number}"}
        began = time.perf_counter()
        reply = self._wire.post(f"/v1/continuity/{workflow_id}/begin", body)
        took = time.perf_counter() - began
        if reply.get("action") != "execute":
            raise SystemExit(f"not granted: {reply}")
        return took * 1_000


def measured(beginner: Beginner, goes_on: Callable[[], bool]) -> list[float]:
    found = []
    while goes_on():
        found.append(beginner.begin())
    return found


def for_seconds(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def rotating(folder: Path) -> Iterator[Any]:
    """Run `atmem vault rotate`; give its peak memory so far until it ends, then what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.entry", "vault", "rotate", "--json"],
        cwd=ROOT, env=environment(folder), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    watched, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.Error:
            break
        yield peak
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the rotation failed: {out}")
    yield json.loads(out)


def told(name: str, times: list[float]) -> str:
    ordered = sorted(times)
    at = {part: ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.95, 0.99)}
    return f"{name:<22}{len(times):>8}  " + "  ".join(f"{value:>8.2f}" for value in at.values())


def run(partitions: int) -> None:
    with tempfile.TemporaryDirectory() as base:
        filled = fill(Path(base) / "instance", partitions)
        server = start(filled.instance)
        try:
            memory_before = psutil.Process(server.process.pid).memory_info().rss
            beginner = Beginner(Wire(server.address, filled.token), filled)
            measured(beginner, for_seconds(2))
            before = measured(beginner, for_seconds(WITHOUT_S))
            began = time.monotonic()
            steps, peak = rotating(filled.instance.folder), 0
            during: list[float] = []
            result: Any = next(steps)
            while isinstance(result, int):
                peak = max(peak, result)
                during += measured(beginner, for_seconds(LOOK_S))
                result = next(steps)
            took = time.monotonic() - began
            after = measured(beginner, for_seconds(WITHOUT_S))
            memory_after = psutil.Process(server.process.pid).memory_info().rss
        finally:
            stop(server)
    print(f"{result['total']} data keys, {result['done']} rewrapped, state {result['state']}")
    print(f"rotation              {took / 60:.2f} minutes, {result['done'] / took:.0f} data keys a second")
    print(f"memory of the command {peak / 2**20:.0f} MiB at most")
    print(f"memory of the server  {memory_before / 2**20:.0f} MiB before, {memory_after / 2**20:.0f} MiB after")
    print(f"{'begin, ms':<22}{'count':>8}  {'p50':>8}  {'p95':>8}  {'p99':>8}")
    for name, times in (("without, before", before), ("while rotating", during), ("without, after", after)):
        print(told(name, times))
    without = statistics.median(before + after)
    print(f"ratio of the medians  {statistics.median(during) / without:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    run(parser.parse_args().partitions)


if __name__ == "__main__":
    main()
