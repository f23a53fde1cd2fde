"""What lists and counts of threads cost as the threads grow. Prints ratios, asserts none.

A small installation and a large one are asked in turns. Of the threads some at each end open, and are what pages show;
those between are rows like them that no page reads: half of the first owner, the rest of others, in two workspaces.

    python -m tests.bench.thread_lists --threads 1000 100000 [--postgresql]
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from continuity.decisions.threads.states import ThreadState
from continuity.services.callers import Caller, Role
from continuity.services.threads_standing import ThreadStanding
from continuity.store import threads_schema as tables
from continuity.store.engine import make_engine
from continuity.store.store import Store
from continuity.thread_requests import ListThreads
from tests.databases import PostgreSQLServer, SQLiteTemplate
from tests.integration.conversing import Conversing, converse, question

ENDS = 60
"""Threads at each end: a page of 50, and what says that there is another."""
AT_ONCE = 1_000
TURNS = 40
WARM_UP = 3
COUNTED = 1_000


@dataclass
class Filled:
    """An installation with so many threads; the oldest wait for an answer, the newest are idle."""

    at: Conversing
    count: int

    def __post_init__(self) -> None:
        self.other = self.at.home.workspace("other")
        self.operator = self.at.someone("ada", Role.OPERATOR)
        self.two = replace(self.operator, workspaces=frozenset({self.at.person.home_workspace, self.other}))
        self.administrator = replace(self.operator, role=Role.ADMINISTRATOR, workspaces=None)
        for _ in range(ENDS):
            _, held = self.at.running(by=self.operator)
            self.at.wait(held, question())
        self._rows(self.count - 2 * ENDS)
        for _ in range(ENDS):
            _, held = self.at.running(by=self.operator)
            self.at.settle(held)
        self.standing = ThreadStanding(self.at.store, self.at.ledger)

    def _rows(self, count: int) -> None:
        thread_id, held = self.at.running(by=self.operator)
        self.at.settle(held)
        like = dict(self.at.row(thread_id)._mapping)
        del like["thread_pk"]
        homes = (like["workspace_pk"], self.other)
        for start in range(0, count, AT_ONCE):
            made = [
                {
                    **like, "thread_id": f"th_{secrets.token_hex(16)}", "name_ix": secrets.token_bytes(32),
                    "workspace_pk": homes[number % 4 == 0],
                    "owner_ix": like["owner_ix"] if number % 2 else secrets.token_bytes(32),
                }
                for number in range(start, min(start + AT_ONCE, count))
            ]  # fmt: skip
            self.at.store.write(lambda connection, made=made: _insert(connection, made))

    def page(self, caller: Caller, scope: str = "workspace", state: ThreadState | None = None) -> Any:
        return self.at.reading.page(caller, ListThreads(state=state, scope=scope))


def _insert(connection: sa.Connection, rows: list[dict[str, Any]]) -> int:
    connection.execute(sa.insert(tables.threads), rows)
    return len(rows)


def questions() -> dict[str, Callable[[Filled], Any]]:
    """Return what is asked, by name."""
    waiting, idle, running = ThreadState.WAITING, ThreadState.IDLE, ThreadState.RUNNING
    asked: dict[str, Callable[[Filled], Any]] = {}
    for name, state in (("", None), (" waiting", waiting), (" idle", idle), (" running (none)", running)):
        asked[f"own{name}"] = lambda at, state=state: at.page(at.operator, "own", state)
        asked[f"one workspace{name}"] = lambda at, state=state: at.page(at.operator, state=state)
        asked[f"two workspaces{name}"] = lambda at, state=state: at.page(at.two, state=state)
        asked[f"all{name}"] = lambda at, state=state: at.page(at.administrator, state=state)
    asked["counts"] = lambda at: at.standing.counts(at.two.workspaces or (), most=COUNTED)
    asked["a claim that finds nothing"] = lambda at: at.at.claim()
    return asked


def measure(installations: list[Filled]) -> None:
    for name, question_ in questions().items():
        took: list[list[float]] = [[] for _ in installations]
        for turn in range(TURNS + WARM_UP):
            for installation, times in zip(installations, took, strict=True):
                begun = time.perf_counter()
                question_(installation)
                if turn >= WARM_UP:
                    times.append((time.perf_counter() - begun) * 1e3)
        medians = [statistics.median(times) for times in took]
        shown = "".join(f"{median:10.2f} ms" for median in medians)
        print(f"{name:32}{shown}   ratio {medians[-1] / medians[0]:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--postgresql", action="store_true")
    given = parser.parse_args()
    server = PostgreSQLServer() if given.postgresql else None
    with tempfile.TemporaryDirectory() as name:
        folder, stores, filled = Path(name), list[Store](), list[Filled]()
        template = SQLiteTemplate(folder)
        for count in given.threads:
            keys = folder / str(count)
            keys.mkdir(mode=0o700)
            url = template.copy_to(keys / "atmem.db") if server is None else _database(server)
            stores.append(Store(make_engine(url, pool_size=4)))
            begun = time.perf_counter()
            filled.append(Filled(converse(stores[-1], keys), count))
            print(f"{count:,} threads in {time.perf_counter() - begun:.0f} s", flush=True)
        measure(filled)
        for store in stores:
            store.close()
    if server is not None:
        server.stop()


def _database(server: PostgreSQLServer) -> str:
    from tests.databases import upgrade  # noqa: PLC0415

    url = server.url(server.create())
    upgrade(url)
    return url


if __name__ == "__main__":
    main()
