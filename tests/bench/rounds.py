"""The rounds of the load lab: who is asked, in which order, and beside what."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.bench import peers
from tests.bench.load import Generators, Job, Sample
from tests.bench.results import Key, Record
from tests.bench.stands import Databases, Place, Stand

T = TypeVar("T")

WARM_UP_S = 0.5
BASELINE_SHARE = 0.5
"""Of a scenario's seconds, for a baseline of it: they are steadier, and there are many."""
FEW_BEGINS = 100
SPARE = 1.5
"""As many workflows are prepared as the last round has begun, and half as many again."""


class Lab:
    """Everything that is asked, up and running."""

    def __init__(
        self, databases: Databases, places: Sequence[Place], options: argparse.Namespace, record: Record
    ) -> None:
        self._options, self._record, self._databases = options, record, databases
        self._closing = contextlib.ExitStack()
        self._seconds = WARM_UP_S
        with contextlib.ExitStack() as undoing:
            undoing.callback(self.close)
            self._start(places)
            undoing.pop_all()

    def _start(self, places: Sequence[Place]) -> None:
        count = self._options.generators or (2 if any(place.processes > 1 for place in places) else 1)
        slow = self._databases.slow
        self._generators = self._kept(Generators(count, {}, os.environ))
        # Raw commits need a slow disk, and clients none.
        self._floors = self._generators
        if slow.delay_ms > 0:
            self._floors = self._kept(Generators(1, slow.environment, os.environ))
            slow.hold(self._floors.pids[0])
        self._stands = [self._kept(Stand.started(place, self._databases)) for place in places]
        names = list(dict.fromkeys(place.database for place in places))
        self._commits = {name: self._databases.floor(name) for name in names}
        self._alone = self._without_leader(places)
        self._dbos: dict[str, peers.Dbos] = {}
        self._atmem: list[peers.AtMem] = []
        if self._options.peers and "operation" in self._options.work:
            self._start_peers(names)

    def _without_leader(self, places: Sequence[Place]) -> Stand | None:
        """Start what commits each begin by itself, on the smallest database of SQLite."""
        wanted = [place for place in places if place.database == "sqlite"]
        if "begin" not in self._options.work or max(self._options.clients) == 1 or not wanted:
            return None
        place = min(wanted, key=lambda each: each.retained)
        return self._kept(Stand.started(place, self._databases, name="-alone", entry="tests.bench.alone"))

    def _start_peers(self, names: Sequence[str]) -> None:
        folder, slow = self._options.peers_folder.absolute(), self._databases.slow
        self._closing.enter_context(peers.held(folder))
        python, place = peers.python_of(folder, "dbos"), self._databases.folder / "dbos"
        for name in names:
            url = self._databases.new_url() if name == "postgresql" else f"sqlite:///{place / 'dbos.db'}"
            self._dbos[name] = self._kept(
                peers.Dbos(python, url, place, slow=slow, most_threads=max(self._options.clients))
            )
        python = peers.python_of(folder, "atmem")
        for retained in self._options.atmem_retained:
            self._atmem.append(self._kept(peers.AtMem(python, folder, retained, slow=slow)))

    def _kept(self, started: T) -> T:
        self._closing.callback(started.close)
        return started

    def round(self, number: int) -> None:
        """Ask everybody once, in turned order each time; number -1 warms up and leaves nothing but its errors."""
        kept, self._seconds = self._record, self._options.seconds
        if number < 0:
            self._record, self._seconds = Record(), min(WARM_UP_S, self._seconds)
        for clients in self._turned(self._options.clients, number):
            for ask in self._turned([self._ask_stands, self._ask_floors], number):
                ask(clients, number)
            for work in self._turned(self._options.work, number):
                self._scenario(work, clients, number)
        if number < 0:
            kept.other_errors.update(self._record.errors)
            self._record = kept
        self._record.note_load()

    def _turned(self, of: Sequence[T], number: int) -> list[T]:
        return list(of) if number % 2 == 0 else list(reversed(of))

    # ---- baselines that all works share

    def _ask_stands(self, clients: int, number: int) -> None:
        for stand in self._turned(self._stands, number):
            self._ask(Key(str(stand.place), "empty", clients), stand.job("empty", clients, self._baseline_s))

    def _ask_floors(self, clients: int, _number: int) -> None:
        if clients != self._options.clients[0]:
            return
        for name, given in self._commits.items():
            job = Job("commit", 1, self._baseline_s, given=given)
            [sample] = self._floors.run(job)
            self._record.add(Key(f"raw {name}", "commit", 1), sample)

    @property
    def _baseline_s(self) -> float:
        return self._seconds * BASELINE_SHARE

    # ---- a scenario

    def _scenario(self, work: str, clients: int, number: int) -> None:
        asking: list[Callable[[], None]] = [
            lambda stand=stand: self._ask_one(stand, work, clients, str(stand.place)) for stand in self._stands
        ]
        if work == "begin" and self._alone is not None and clients > 1:
            asking.append(lambda: self._ask_one(self._alone, work, clients, f"{self._alone.place} alone"))
        if work == "operation":
            asking += [lambda name=name: self._ask_dbos(name, clients) for name in self._dbos]
            if clients == min(self._options.clients):
                asking += [lambda peer=peer: self._ask_atmem(peer, clients) for peer in self._atmem]
        for ask in self._turned(asking, number):
            ask()

    def _ask_one(self, stand: Stand, work: str, clients: int, subject: str) -> None:
        key = Key(subject, work, clients)
        ready = self._prepared(stand, key) if work == "begin" else None
        self._ask(key, stand.job(work, clients, self._seconds, ready=ready))
        self._record.note_memory(subject, clients, stand.memory_mib())

    def _prepared(self, stand: Stand, key: Key) -> list[str]:
        """Create what is begun next; nobody measures that."""
        last = self._record.samples.get(key, [])
        wanted = math.ceil(SPARE * last[-1].count) if last else FEW_BEGINS
        ready: list[str] = []
        while len(ready) < wanted:
            [sample] = self._generators.run(stand.job("create", key.clients, self._seconds))
            self._record.prepare(sample)
            if not sample.made:
                break
            ready += sample.made
        return ready

    def _ask_dbos(self, name: str, clients: int) -> None:
        self._record.add(Key(f"DBOS on {name}", "operation", clients), self._dbos[name].run(clients, self._seconds))

    def _ask_atmem(self, peer: peers.AtMem, clients: int) -> None:
        self._ask(Key(f"AtMem 2.3.8, {peer.retained}", "operation", clients), peer.job(clients, self._seconds))

    def _ask(self, key: Key, job: Job) -> Sample:
        [sample] = self._generators.run(job)
        self._record.add(key, sample)
        return sample

    def close(self) -> None:
        self._closing.close()
