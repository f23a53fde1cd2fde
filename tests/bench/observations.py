"""What taking in an event costs, and whether the answers of the Activity page grow with what is stored.

Two databases, one small and one large, of events spread over the same days; every query runs on one and then the
other, round by round. Taking in is measured on both: single events as they come over HTTP, and batches as imported.

    python -m tests.bench.observations --rounds 50 --sizes 2000 2000000
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from continuity.store.engine import make_engine
from continuity.store.store import Store
from observations import acceptance, derivation, recount, schema
from observations.answers import Range, WorkflowFilter
from observations.costs import Outcome, Vector, added
from observations.cursors import Cursors
from observations.events import Event, EventName
from observations.ingest import Ingest
from observations.queries import Queries
from tests.bench import bulk
from tests.databases import upgrade

SCOPE = "bench"
FIRST_DAY, DAYS = 20_000, 90
EVENTS_A_WORKFLOW = 5
SOURCES = [f"account-{n}" for n in range(12)]
PRICES = ["list-2026-01", "list-2026-04", "contract-7"]
WHOLE = Range((SCOPE,), FIRST_DAY, FIRST_DAY + DAYS - 1)
MONTH = Range((SCOPE,), FIRST_DAY + 30, FIRST_DAY + 59)
BATCH = 500
TOLD = 3_600
"""Workflows whose events are told one by one: a multiple of everything that stories go round by."""


def id_of(number: int) -> str:
    """Return the part of every id that tells one workflow from the others: its block, and its place in it."""
    return f"{_block(number // TOLD)}{number % TOLD:06x}"


def _block(number: int) -> str:
    return f"b10c{number:06x}"


def workflow_id_of(number: int) -> str:
    """Return the id of a workflow that `fill` made."""
    return f"wf_{id_of(number):0>32}"


def story(number: int, chance: random.Random) -> list[Event]:
    """Return the events of one workflow: an attempt whose outcome stays open, a recovery, two charges, one priced."""
    at, own = (FIRST_DAY + number % DAYS) * 86_400 + chance.randrange(80_000), id_of(number)
    ids = {"workflow_id": workflow_id_of(number), "operation_id": f"op_{own}"}
    first = {**ids, "run_id": f"r_{own}_1", "attempt_id": f"at_{own}_1"}
    second = {**ids, "run_id": f"r_{own}_2", "attempt_id": f"at_{own}_2", "recovery": True}
    charge = {"charge_id": f"c_{own}", "charge_source": SOURCES[number % len(SOURCES)], "input_tokens": 1_000}
    end = EventName.COMPLETED if number % 10 else EventName.BLOCKED
    told = (
        (first, EventName.EXECUTE, {}),
        (first, EventName.USAGE, charge),
        (second, EventName.EXECUTE, {}),
        (second, EventName.USAGE, {
            **charge, "charge_id": f"d_{own}", "cost_microusd": chance.randrange(50_000),
            "price_source": PRICES[number % len(PRICES)], "output_tokens": 200,
        }),
        (second, end, {}),
    )  # fmt: skip
    return [
        Event(event_id=f"ev_{own}_{n}", event=name, time=at + n, **place, **more)
        for n, (place, name, more) in enumerate(told)
    ]


def fill(store: Store, count: int) -> None:
    """Write `count` events and everything derived from them, as if each had been taken in.

    The first `TOLD` workflows are derived event by event. Each later block of as many is told the same under ids of
    its own, so the database copies the rows with other ids in them, and each sum counts once more. Ids count up:
    what is taken in afterwards meets warmer pages than ids by chance would.
    """
    chance, sums, workflows = random.Random(7), derivation.Sums(), count // EVENTS_A_WORKFLOW
    made = sa.insert(schema.scopes).values(scope=SCOPE).returning(schema.scopes.c.scope_pk)
    scope_pk = store.write(lambda connection: int(connection.execute(made).scalar_one()))
    for start in range(0, min(TOLD, workflows), BATCH):
        numbers = range(start, min(start + BATCH, TOLD, workflows))
        times = {number: len(range(number, workflows, TOLD)) for number in numbers}
        store.write(lambda connection, times=times: _write(connection, scope_pk, times, chance, sums))
    store.write(lambda connection: recount.insert_sums(connection, sums))
    bulk.run(store, _copies(scope_pk, workflows))


def _write(
    connection: sa.Connection, scope_pk: int, times: dict[int, int], chance: random.Random, sums: derivation.Sums
) -> None:
    """Write the workflows of these numbers; each counts in the sums so many times."""
    events, rows = [], []
    for number, copies in times.items():
        one = derivation.Recounted()
        for event in story(number, chance):
            one.observe(event)
            events.append({
                "scope_pk": scope_pk, "event_id": event.event_id, "workflow_pk": number + 1,
                "received_us": round(event.time * 1e6), "body": acceptance.body_of(event),
            })  # fmt: skip
        rows += derivation.rows_of(one, number + 1, scope_pk).items()
        own = derivation.Sums()
        one.add_to(own, scope_pk)
        _add(sums.days, own.days, copies)
        _add(sums.pairs, own.pairs, copies)
    connection.execute(sa.insert(schema.events), events)
    recount.insert_rows(connection, rows)


def _add(whole: dict[Any, Vector], part: dict[Any, Vector], times: int) -> None:
    for key, vector in part.items():
        whole[key] = added((whole.get(key, {}), {name: value * times for name, value in vector.items()}))


def _copies(scope_pk: int, workflows: int) -> Iterator[sa.Insert]:
    """Return the statements that copy the first block until there are so many workflows."""
    for start in range(TOLD, workflows, TOLD):
        count = min(TOLD, workflows - start)
        for table in (schema.events, schema.workflows, schema.attempts, schema.charges, schema.attempt_days):
            columns = [column for column in table.c if column.name != "event_pk"]
            copied = [_copied(column, start).label(column.name) for column in columns]
            # By what each is found of one block, which is no walk along all that was copied so far.
            if "attempt_id" in table.c:
                by, is_told = table.c.attempt_id, table.c.attempt_id < f"at_{_block(0)}{count:06x}"
                is_told = sa.and_(is_told, table.c.scope_pk == scope_pk)
            else:
                by, is_told = table.c.workflow_pk, table.c.workflow_pk <= count
            statement = sa.select(*copied).where(is_told).order_by(by)
            yield sa.insert(table).from_select(columns, statement)


def _copied(column: sa.Column[Any], start: int) -> sa.ColumnElement[Any]:
    before, own = _block(0), _block(start // TOLD)
    if column.name == "workflow_pk":
        return column + start
    if column is schema.events.c.body:
        return bulk.octets_replaced(column, before, own)
    if isinstance(column.type, sa.String) and column.name.endswith("_id"):
        return sa.func.replace(column, before, own)
    return column


Taken = dict[tuple[str, int], list[tuple[float, float]]]
"""Seconds, passed and of the processor, by question and size."""


@dataclass
class Seat:
    """One database of the comparison."""

    size: int
    store: Store

    @property
    def queries(self) -> Queries:
        return Queries(self.store, Cursors(bytes(32)), lambda: 0)

    def questions(self, chance: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
        queries, workflow = self.queries, workflow_id_of(chance.randrange(self.size // EVENTS_A_WORKFLOW))
        yield "totals", lambda: queries.totals(WHOLE)
        yield "over time", lambda: queries.over_time(WHOLE)
        yield "by source", lambda: queries.by_source(WHOLE)
        yield "by price source", lambda: queries.by_price_source(MONTH)
        yield "workflows", lambda: queries.workflows(WorkflowFilter(WHOLE), actor="bench")
        yield "workflows blocked", lambda: queries.workflows(WorkflowFilter(WHOLE, Outcome.BLOCKED), actor="bench")
        yield "workflows of a month", lambda: queries.workflows(WorkflowFilter(MONTH), actor="bench")
        yield "search", lambda: queries.workflows(WorkflowFilter(WHOLE, search=workflow), actor="bench")
        yield "one workflow", lambda: queries.attempts(SCOPE, workflow, actor="bench")

    def page(self) -> None:
        """Everything that the page shows at once."""
        queries = self.queries
        queries.totals(WHOLE)
        queries.over_time(WHOLE)
        queries.by_source(WHOLE)
        queries.by_price_source(WHOLE)
        queries.workflows(WorkflowFilter(WHOLE), actor="bench")


def measure(seats: list[Seat], rounds: int) -> Taken:
    """Ask every question of every database, interleaved; seconds by (question, size)."""
    chance, taken = random.Random(11), {}
    for _ in range(rounds):
        asked = [[*seat.questions(chance), ("page", seat.page)] for seat in seats]
        for of_one_kind in zip(*asked, strict=True):
            for seat, (name, ask) in zip(seats, of_one_kind, strict=True):
                taken.setdefault((name, seat.size), []).append(timed(ask))
        for seat in seats:
            taking = Ingest(seat.store, now_us=lambda: 0, pause_s=0)
            number = 10**9 + chance.randrange(10**12)
            events = story(number, chance)
            for event in events:
                one = [event]
                taken.setdefault(("event taken in", seat.size), []).append(
                    timed(lambda taking=taking, one=one: taking.accept_all(SCOPE, one))
                )
            many = [event for n in range(20) for event in story(number + n + 1, chance)]
            taken.setdefault(("100 events at once", seat.size), []).append(
                timed(lambda taking=taking, many=many: taking.accept_all(SCOPE, many))
            )
    return taken


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return seconds that passed, and seconds of the processor, which a busy machine does not stretch."""
    started, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - worked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--sizes", type=int, nargs=2, default=[2_000, 2_000_000])
    parser.add_argument("--check", action="store_true", help="recount both databases first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seats = []
        for size in sorted(options.sizes):
            url = f"sqlite:///{Path(folder) / f'{size}.db'}"
            upgrade(url)
            store = Store(make_engine(url, pool_size=2))
            took, _ = timed(lambda store=store, size=size: fill(store, size))
            print(f"{size} events made in {took:.0f} s", flush=True)
            if options.check:
                print("sound:", recount.check(store).is_sound, flush=True)
            seats.append(Seat(size, store))
        report(measure(seats, options.rounds), [seat.size for seat in seats])
        for seat in seats:
            seat.store.close()
            seat.store.engine.dispose()


def report(taken: Taken, sizes: list[int]) -> None:
    small, large = sizes
    print(f"{'milliseconds, p50':24} {small:>10} {large:>10} {'ratio':>7} {'p95':>10} {'processor':>10} {'ratio':>7}")
    for name in dict.fromkeys(name for name, _ in taken):
        walls = [statistics.median(wall for wall, _ in taken[name, size]) * 1e3 for size in sizes]
        works = [statistics.median(work for _, work in taken[name, size]) * 1e3 for size in sizes]
        p95 = statistics.quantiles((wall for wall, _ in taken[name, large]), n=20)[-1] * 1e3
        print(
            f"{name:24} {walls[0]:10.3f} {walls[1]:10.3f} {walls[1] / walls[0]:7.2f} {p95:10.3f} "
            f"{works[1]:10.3f} {works[1] / works[0]:7.2f}"
        )
    single = statistics.median(wall for wall, _ in taken["event taken in", large])
    many = statistics.median(wall for wall, _ in taken["100 events at once", large])
    print(f"taken in at {large}: {1 / single:.0f} events/s one by one, {100 / many:.0f} events/s in batches")


if __name__ == "__main__":
    main()
