"""The goals that the figures are held against, each with what was measured of it, if anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.results import Key, Record
from tests.bench.stands import Place

MEMORY_MIB = 200
MANY = 64
MILLION = 1_000_000


@dataclass(frozen=True)
class Goal:
    """One goal. `measured` None: this run has nothing to say about it, and `needs` what it would take."""

    text: str
    measured: float | None
    bound: float
    is_at_most: bool
    needs: str
    remark: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured <= self.bound if self.is_at_most else self.measured >= self.bound

    def told(self) -> dict[str, Any]:
        return {
            "goal": self.text, "measured": self.measured, "bound": self.bound,
            "bound_is": "at most" if self.is_at_most else "at least", "met": self.is_met, "needs": self.needs,
            "remark": self.remark,
        }  # fmt: skip

    def __str__(self) -> str:
        sign = "≤" if self.is_at_most else "≥"
        if self.measured is None:
            return f"{'–':3} {self.text} {sign} {self.bound:g}: not measured, needs {self.needs}"
        remark = f" ({self.remark})" if self.remark else ""
        return f"{'yes' if self.is_met else 'NO':3} {self.text} {sign} {self.bound:g}: {self.measured:.3g}{remark}"


@dataclass(frozen=True)
class Measured:
    """What a run has: its samples, the rounds of one client (`tests.bench.decisions`), and what it was asked for."""

    record: Record
    one_client: Mapping[str, float]
    places: Sequence[Place]
    delay_ms: float

    def smallest(self, database: str) -> str:
        """Return the server of one process with the fewest workflows, or a name that nothing has."""
        own = [place for place in self.places if place.database == database and place.processes == 1]
        return str(min(own, key=lambda place: place.retained)) if own else "none"


def goals_of(measured: Measured) -> list[Goal]:
    return [
        *_one_client(measured), *_sixteen(measured), *_peers(measured), *_sizes(measured), _memory(measured),
        Goal("errors", float(sum(measured.record.errors.values())), 0, True, ""),
    ]  # fmt: skip


def _one_client(measured: Measured) -> list[Goal]:
    needs = "begin, 1 client, sqlite, no delay"
    seen = measured.one_client
    return [
        Goal("begin, one client, SQLite / raw commit", seen.get("commit"), 4, True, needs),
        Goal("begin, one client, SQLite / (empty route + raw statements)", seen.get("floor"), 1.4, True, needs),
    ]


def _sixteen(measured: Measured) -> list[Goal]:
    record, subject = measured.record, measured.smallest("sqlite")
    own, needs = Key(subject, "begin", 16), "begin, 16 clients, sqlite"
    p50, p99 = record.ms(own, 0.5), record.ms(own, 0.99)
    tail = p99 / p50 if p50 and p99 else None
    alone = record.ratio(own, Key(f"{subject} alone", "begin", 16))
    is_slow, is_fast = measured.delay_ms > 0, measured.delay_ms == 0
    beside_empty = record.ratio(own, Key(subject, "empty", 16))
    return [
        Goal("16 clients, begin / empty route's rate", beside_empty if is_fast else None, 0.25, False,
             f"{needs}, no delay"),
        Goal("16 clients, begin, p99 / p50", tail if is_fast else None, 5, True, f"{needs}, no delay"),
        Goal("16 clients, begin, slow disk / without leader commit", alone if is_slow else None, 3, False,
             f"{needs}, --fsync-delay-ms 4"),
    ]  # fmt: skip


def _peers(measured: Measured) -> list[Goal]:
    record, sqlite, postgresql = measured.record, measured.smallest("sqlite"), measured.smallest("postgresql")
    is_slow = measured.delay_ms > 0
    on_sqlite = record.ratio(Key(sqlite, "operation", 16), Key("DBOS on sqlite", "operation", 16))
    on_postgresql = record.ratio(Key(postgresql, "operation", 16), Key("DBOS on postgresql", "operation", 16))
    needs = "operation, 16 clients, --peers"
    goals = [
        Goal("16 clients, operation / DBOS on SQLite", None if is_slow else on_sqlite, 2, False,
             f"{needs}, sqlite, no delay"),
        Goal("16 clients, operation, slow disk / DBOS on SQLite", on_sqlite if is_slow else None, 5, False,
             f"{needs}, sqlite, --fsync-delay-ms 4"),
        Goal("16 clients, operation / DBOS on PostgreSQL", None if is_slow else on_postgresql, 1.2, False,
             f"{needs}, postgresql, no delay"),
    ]  # fmt: skip
    for retained, times in ((300, 100), (2_000, 500)):
        seen = record.ratio(Key(sqlite, "operation", 1), Key(f"AtMem 2.3.8, {retained}", "operation", 1))
        goals.append(
            Goal(f"one client, operation / AtMem 2.3.8 with {retained} workflows", None if is_slow else seen, times,
                 False, f"operation, 1 client, sqlite, --peers, --atmem-retained {retained}, no delay")
        )  # fmt: skip
    return goals


def _sizes(measured: Measured) -> list[Goal]:
    own = [place for place in measured.places if place.database == "sqlite" and place.processes == 1]
    few, many = (str(choose(own, key=lambda place: place.retained)) if own else "none" for choose in (min, max))
    largest = max((place.retained for place in own), default=0)
    remark = "" if largest >= MILLION else f"at {largest:,}, not at a million"
    pages = None
    for clients in (1, 16, 64):
        before, after = (measured.record.ms(Key(subject, "page", clients), 0.5) for subject in (few, many))
        if pages is None and few != many and before and after:
            pages = after / before
    return [
        Goal("begin with most workflows / with fewest", measured.one_client.get("size"), 1.2, True,
             "begin, 1 client, sqlite, --retained 100 1000000", remark),
        Goal("the page of Resume work with most workflows / with fewest", pages, 1.5, True,
             "page, --retained 1000 1000000 (filters, search: tests.bench.pages; Activity: tests.bench.activity)",
             remark),
    ]  # fmt: skip


def _memory(measured: Measured) -> Goal:
    seen = [held for (_, clients), held in measured.record.memory_mib.items() if clients >= MANY]
    return Goal(
        "memory of a server process with 64 clients, MiB", max(seen, default=None), MEMORY_MIB, True,
        "64 clients; that it stays there, --soak 30",
    )  # fmt: skip
