"""What a snapshot and an append cost in a short thread and in a long one, through the services, without HTTP.

Every round measures each of them on each thread, one after the other, so that the machine's drift is in all alike. A
client without the audit log's entry is measured (an application); a person's look adds one commit.

    python -m tests.bench.threads --rounds 300 --records 100 100000 [--postgresql]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from continuity.store.engine import make_engine
from continuity.store.store import Store
from continuity.thread_requests import Position
from tests.databases import PostgreSQLServer, SQLiteTemplate
from tests.integration.conversing import Conversing, converse
from tests.people import FakeClock

WARM_UP = 20
BATCH = 100
"""Records an append while a thread is filled."""


def main() -> None:
    given = arguments()
    with tempfile.TemporaryDirectory() as folder:
        server = PostgreSQLServer() if given.postgresql else None
        url = (
            SQLiteTemplate(make_folder(folder, "template")).copy_to(Path(folder) / "atmem.db")
            if server is None
            else (server.migrated())
        )
        engine = make_engine(url, pool_size=4)
        store = Store(engine)
        try:
            measure(converse(store, make_folder(folder, "keys")), given)
        finally:
            store.close()
            engine.dispose()
            if server is not None:
                server.stop()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--records", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--postgresql", action="store_true")
    return parser.parse_args()


def make_folder(folder: str, name: str) -> Path:
    path = Path(folder) / name
    path.mkdir(mode=0o700)
    return path


class Filled:
    """One thread with so many records behind it, and the claim under which more are written."""

    def __init__(self, at: Conversing, records: int) -> None:
        self._at, self.records = at, records
        self.client = at.application("bench")
        self.thread_id = at.create(by=self.client)
        at.say(self.thread_id, "begin", by=self.client)
        self._held = at.claim()
        begun = time.perf_counter()
        while (left := records - self._seq()) > 0:
            at.append(self._held, *content(min(left, BATCH) // 5 or 1))
        self.filled_s = time.perf_counter() - begun

    def _seq(self) -> int:
        return int(self._at.row(self.thread_id).last_seq)

    def snapshot(self) -> Any:
        return self._at.snapshot(self.thread_id, by=self.client)

    def append(self) -> Any:
        return self._at.append(self._held, {"kind": "progress", "data": "x" * 100})

    def tail(self) -> Any:
        after = Position(1, self._seq() - 10)
        return self._at.reading.journal(self.client, self.thread_id, after)


def content(messages: int) -> list[dict[str, Any]]:
    """Five records a message: a short conversation with a tool."""
    records: list[dict[str, Any]] = []
    for _ in range(messages):
        number = str(time.perf_counter_ns())
        records += [
            {"kind": "message_started", "message_id": f"m{number}"},
            {"kind": "message_part", "message_id": f"m{number}", "text": "some words of an answer " * 4},
            {"kind": "message_ended", "message_id": f"m{number}"},
            {"kind": "tool_started", "call_id": f"c{number}", "tool": "lookup_order"},
            {"kind": "tool_ended", "call_id": f"c{number}", "outcome": "ok", "result": {"status": "sent"}},
        ]
    return records


def measure(at: Conversing, given: argparse.Namespace) -> None:
    assert isinstance(at.clock, FakeClock)
    threads = [Filled(at, records) for records in given.records]
    for thread in threads:
        print(f"filled {thread.records:>7} records in {thread.filled_s:.1f} s")
    timings: dict[tuple[str, int], list[float]] = {}
    for round_number in range(given.rounds + WARM_UP):
        for what in ("snapshot", "append", "tail"):
            for thread in threads:
                took = timed(getattr(thread, what))
                if round_number >= WARM_UP:
                    timings.setdefault((what, thread.records), []).append(took)
    show(timings, given.records)


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def show(timings: dict[tuple[str, int], list[float]], records: list[int]) -> None:
    print(f"{'':>10}" + "".join(f"{count:>12} p50{count:>12} p95" for count in records) + "     ratio p50")
    for what in ("snapshot", "append", "tail"):
        shown, medians = f"{what:>10}", []
        for count in records:
            values = timings[what, count]
            medians.append(statistics.median(values))
            shown += f"{medians[-1]:>13.2f} ms{statistics.quantiles(values, n=20)[-1]:>13.2f} ms"
        print(f"{shown}{medians[-1] / medians[0]:>12.2f}")


if __name__ == "__main__":
    main()
