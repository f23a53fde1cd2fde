"""What begin and outcome cost over HTTP, beside what they cannot be cheaper than.

One keep-alive client on a bare socket. Every round measures, one after the other: a raw WAL FULL commit of
a row of 200 bytes (i), an empty route (ii), the very statements of a begin and an outcome through the raw
driver on a copy of the database (iii), and begin and outcome on each of several servers whose databases
retain different numbers of workflows, old rows chosen at random.

    python -m tests.bench.decisions --rounds 300 --sizes 100 10000 100000
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from continuity.client import ContinuityClient
from continuity.wire import BeginRequest, OutcomeRequest
from tests.bench.asking import RawCommit, Timings, Wire, connect, receipt_of
from tests.bench.filling import Filled, fill, opened
from tests.servers import Instance, RunningServer, start, stop

Statement = tuple[str, Any]
WARM_UP = 10
MIXED_FROM = 1_000
"""So many workflows are those that `tests.bench.pages` reads too: to fill a million twice would be half of the time."""


class Replayer:
    """Runs the statements of a decision through the raw driver, on a twin of the database they came from.

    The decision itself is made by the services on one copy of the instance, unmeasured; its statements with
    their values are then run, measured, on another copy that is in the same state.
    """

    def __init__(self, filled: Filled, folder: Path, choose: random.Random) -> None:
        self._filled = filled
        self._folder = folder
        self._closing = contextlib.ExitStack()
        self._pool = Pool(filled, choose, self._renew)
        self._statements: list[Statement] = []

    def take(self) -> str:
        return self._pool.take(1)[0]

    def _renew(self) -> None:
        self.close()
        recorded = self._filled.instance.copy_to(self._folder / "recorded")
        shutil.copytree(recorded.folder, self._folder / "twin")
        self._twin = connect(self._folder / "twin" / "continuity.db")
        self._built = self._closing.enter_context(opened(recorded))
        self._closing.callback(shutil.rmtree, self._folder)
        self._closing.callback(self._twin.close)
        sa.event.listen(self._built.store.engine, "before_cursor_execute", self._keep)

    def _keep(self, _connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        self._statements.append((statement, parameters))

    def begin(self, workflow_id: str, attempt_id: str) -> tuple[dict[str, Any], list[Statement]]:
        """Decide a begin unmeasured; return its reply and its statements."""
        request = BeginRequest("publish", "run_bench", attempt_id)
        return self._record(lambda caller: self._built.services.attempts.begin(caller, workflow_id, request))

    def outcome(self, workflow_id: str, body: dict[str, Any]) -> tuple[dict[str, Any], list[Statement]]:
        """Decide an outcome unmeasured; return its reply and its statements."""
        request = OutcomeRequest.from_json(body)
        return self._record(lambda caller: self._built.services.attempts.outcome(caller, workflow_id, request))

    def _record(self, decide: Callable[[Any], dict[str, Any]]) -> tuple[dict[str, Any], list[Statement]]:
        self._statements = []
        caller = self._built.auth.principals.bearer(f"Bearer {self._filled.token}", request_id="req_bench")
        reply = decide(caller)
        return reply, [item for item in self._statements if not item[0].startswith(("PRAGMA", "BEGIN"))]

    def run(self, statements: Sequence[Statement]) -> None:
        """Run recorded statements on the twin: the first by itself, the others in one transaction."""
        first, *others = statements
        self._twin.execute(*first).fetchall()
        self._twin.execute("BEGIN IMMEDIATE")
        for statement, parameters in others:
            self._twin.execute(statement, parameters).fetchall()
        self._twin.execute("COMMIT")

    def close(self) -> None:
        self._closing.close()


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="atmem-bench-", dir=options.folder) as made:
        folder = Path(made)
        timings, counts = measure(folder, options)
    _print(timings, options.sizes, counts)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="begin and outcome over HTTP beside their baselines")
    parser.add_argument("--rounds", type=int, default=300, help="measured rounds, after ten unmeasured ones")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 10_000], help="workflows retained, one server each"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where the databases are made: a real disk")
    parser.add_argument("--seed", type=int, default=1, help="which old rows are chosen")
    return parser.parse_args()


def measure(folder: Path, options: argparse.Namespace) -> tuple[Timings, dict[str, int]]:
    """Run all rounds that the options ask for; return what was measured and how many statements a decision takes."""
    sizes = sorted(options.sizes)
    choose = random.Random(options.seed)
    seats = {size: Seat(folder / str(size), size, choose) for size in sizes}
    with contextlib.ExitStack() as closing:
        for seat in seats.values():
            closing.callback(seat.close)
        replayer = Replayer(seats[sizes[0]].filled, folder / "replayed", choose)
        closing.callback(replayer.close)
        bench = Round(seats, replayer, RawCommit(folder))
        for number in range(-WARM_UP, options.rounds):
            if number == 0:
                bench.timings = Timings()
            bench.run()
    return bench.timings, bench.statement_counts


class Pool:
    """Workflows that nobody has begun yet, in random order; a fresh copy of the instance when they are used up."""

    def __init__(self, filled: Filled, choose: random.Random, renew: Callable[[], None]) -> None:
        self._filled = filled
        self._choose = choose
        self._renew = renew
        self._left: list[str] = []

    def take(self, count: int) -> list[str]:
        if len(self._left) < count:
            self._renew()
            self._left = self._choose.sample(self._filled.workflow_ids, len(self._filled.workflow_ids))
        return [self._left.pop() for _ in range(count)]


class Seat:
    """A server whose database retains a number of workflows, and connections to it."""

    def __init__(self, folder: Path, size: int, choose: random.Random) -> None:
        self.filled = fill(folder / "instance", size, mixed=size >= MIXED_FROM)
        self._folder = folder
        self._copies = 0
        self._pool = Pool(self.filled, choose, self._renew)
        self._server: RunningServer | None = None
        # Before any server starts: copying a million rows outlasts its patience for a connection that says nothing.
        self._copy = self._copied()

    def take(self, count: int) -> list[str]:
        return self._pool.take(count)

    def _copied(self) -> Instance:
        self._copies += 1
        return self.filled.instance.copy_to(self._folder / f"copy-{self._copies}")

    def _renew(self) -> None:
        if self._server is not None:
            self.close()
            self._copy = self._copied()
        self._server = start(self._copy)
        self.wire = Wire(self._server.address, self.filled.token)
        self.client = ContinuityClient(self._server.url, self.filled.token)
        for _ in range(WARM_UP):
            self.wire.get("/healthz")
            self.client.get_workflow(self.filled.workflow_ids[0])

    def close(self) -> None:
        if self._server is None:
            return
        self.wire.close()
        self.client.close()
        stop(self._server)
        shutil.rmtree(self._folder / f"copy-{self._copies}")


@dataclass
class Round:
    """One round of everything, interleaved."""

    seats: dict[int, Seat]
    replayer: Replayer
    raw_commit: RawCommit
    timings: Timings = field(default_factory=Timings)
    statement_counts: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        smallest = self.seats[min(self.seats)]
        # The largest first: its server takes so long to start that another one would end a connection meanwhile.
        order = sorted(self.seats.items(), reverse=True)
        taken = {size: seat.take(2 if seat is smallest else 1) for size, seat in order}
        self.timings.measure("raw commit", self.raw_commit)
        self.timings.measure("empty route", lambda: smallest.wire.get("/healthz"))
        self._statements()
        for size, seat in self.seats.items():
            self._decide(size, seat, taken[size][0])
        spare = taken[min(self.seats)][1]
        self.timings.measure(
            "begin by SDK",
            lambda: smallest.client.begin(spare, "publish", run_id="run_bench", attempt_id="at_bench"),
        )

    def _decide(self, size: int, seat: Seat, workflow_id: str) -> None:
        path = f"/v1/continuity/{workflow_id}"
        body = {"name": "publish", "run_id": "run_bench", "attempt_id": "at_bench"}
        grant = self.timings.measure(f"begin {size}", lambda: seat.wire.post(f"{path}/begin", body))
        outcome = receipt_of(grant)
        self.timings.measure(f"outcome {size}", lambda: seat.wire.post(f"{path}/outcome", outcome))

    def _statements(self) -> None:
        workflow_id = self.replayer.take()
        grant, begin = self.replayer.begin(workflow_id, "at_bench")
        self.timings.measure("begin statements", lambda: self.replayer.run(begin))
        _, outcome = self.replayer.outcome(workflow_id, receipt_of(grant))
        self.timings.measure("outcome statements", lambda: self.replayer.run(outcome))
        self.statement_counts = {"begin": len(begin), "outcome": len(outcome)}


def _print(timings: Timings, sizes: Sequence[int], counts: dict[str, int]) -> None:
    print(f"{'milliseconds':24} {'p50':>8} {'p95':>8}")
    for name in timings.values:
        print(f"{name:24} {timings.p50(name):8.3f} {timings.p95(name):8.3f}")
    print(f"statements: begin {counts['begin']}, outcome {counts['outcome']} (without BEGIN and COMMIT)")
    smallest, largest = min(sizes), max(sizes)
    for verb in ("begin", "outcome"):
        p50 = timings.p50(f"{verb} {smallest}")
        floor = timings.p50("empty route") + timings.p50(f"{verb} statements")
        print(f"{verb} / (empty route + raw statements) = {p50 / floor:.2f}")
        print(f"{verb} / raw commit = {p50 / timings.p50('raw commit'):.2f}")
        print(f"{verb} at {largest} / at {smallest} = {timings.p50(f'{verb} {largest}') / p50:.2f}")
    share = timings.p50("begin by SDK") - timings.p50(f"begin {smallest}")
    print(f"the SDK's own share of a begin: {share:.3f} ms")


if __name__ == "__main__":
    main()
