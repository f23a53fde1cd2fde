"""What the pages of activity cost over HTTP, with few events and with many: page, fragment, poll, filters, drill-down.

python -m tests.bench.activity --rounds 50 --sizes 2000 2000000
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.config import load_settings
from app.databases import open_observations
from app.pages.asking import date_of
from tests.bench import filling, observations
from tests.bench.decisions import WARM_UP
from tests.bench.pages import FRAGMENT, Seat, Taken

MONTH = f"from={date_of(observations.MONTH.first_day)}&to={date_of(observations.MONTH.last_day)}"
RANGE = f"from={date_of(observations.FIRST_DAY)}&to={date_of(observations.FIRST_DAY + observations.DAYS - 1)}"


def made(folder: Path, events: int) -> filling.Filled:
    """Make an instance with so many events."""
    return filling.kept(folder / "instance", f"{events}-events", lambda place: _made(place, events))


def _made(folder: Path, events: int) -> filling.Filled:
    filled = filling.fill(folder, 1)
    store = open_observations(load_settings({"ATMEM_INSTANCE": str(filled.instance.folder)}))
    started = time.monotonic()
    try:
        observations.fill(store, events)
    finally:
        store.close()
        store.engine.dispose()
    print(f"{events} events made in {time.monotonic() - started:.0f} s", flush=True)
    return filled


def requests(seat: Seat, events: int, choose: random.Random) -> Iterator[tuple[str, str, str, int]]:
    """Return name, path, further headers and status of everything that is measured."""
    workflow = observations.workflow_id_of(choose.randrange(events // observations.EVENTS_A_WORKFLOW))
    yield "page", f"/activity?{RANGE}", "", 200
    yield "fragment", f"/activity/live.html?{RANGE}", FRAGMENT, 200
    yield "poll", seat.poll_of(f"/activity?{RANGE}"), FRAGMENT, 204
    yield "by outcome", f"/activity?{RANGE}&outcome=blocked", "", 200
    yield "of a month", f"/activity?{MONTH}", "", 200
    yield "by the beginning of ids", f"/activity?{RANGE}&q=wf_", "", 200
    yield "by search", f"/activity?{RANGE}&q={workflow}", "", 200
    yield "one workflow", f"/activity/{workflow}", "", 200
    yield "one workflow's file", f"/activity/{workflow}/attempts.csv", "", 200


def main() -> None:
    parser = argparse.ArgumentParser(description="the pages of activity with few events and with many")
    parser.add_argument("--rounds", type=int, default=50, help="measured rounds, after ten unmeasured ones")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2_000, 2_000_000], help="events, one server each")
    parser.add_argument("--folder", type=Path, default=None, help="where the databases are made: a real disk")
    parser.add_argument("--seed", type=int, default=1, help="which workflows are looked at")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atmem-bench-", dir=options.folder) as folder:
        taken = measure(Path(folder), options.sizes, rounds=options.rounds, seed=options.seed)
    broken = taken.report(options.sizes)
    if broken:
        raise SystemExit("; ".join(broken))


def measure(folder: Path, sizes: Sequence[int], *, rounds: int, seed: int) -> Taken:
    """Ask every page of servers with so many events, interleaved."""
    sizes, choose = sorted(sizes), random.Random(seed)
    with contextlib.ExitStack() as end:
        # All of them first: a server ends a connection on which nothing was asked for minutes.
        instances = {size: made(folder / str(size), size) for size in sizes}
        seats = Seat.all_started(instances, end)
        taken = Taken()
        for number in range(-WARM_UP, rounds):
            if number == 0:
                taken = Taken()
            for size, seat in seats.items():
                for name, path, extra, status in requests(seat, size, choose):
                    taken.measure(seat, f"{name} {size}", path, extra, status)
    return taken


if __name__ == "__main__":
    main()
