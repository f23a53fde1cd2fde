"""What the pages of activity cost over HTTP, with few events and with many: page, fragment, poll, filters, drill-down.

python -m tests.bench.activity --rounds 50 --sizes 2000 2000000
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.config import load_settings
from app.pages.asking import date_of
from app.wiring import open_observations
from tests.bench import filling, observations
from tests.bench.decisions import WARM_UP, Timings
from tests.bench.pages import FRAGMENT, MOST_RATIO, Reader, Seat
from tests.servers import start

RANGE = f"from={date_of(observations.FIRST_DAY)}&to={date_of(observations.FIRST_DAY + observations.DAYS - 1)}"


def made(folder: Path, events: int) -> filling.Filled:
    """Make an instance with so many events."""
    filled = filling.fill(folder / "instance", 1)
    store = open_observations(load_settings({"ATMEM_INSTANCE": str(filled.instance.folder)}))
    try:
        observations.fill(store, events)
    finally:
        store.close()
        store.engine.dispose()
    return filled


def seated(filled: filling.Filled) -> Seat:
    """Start a server on the instance and sign in."""
    server = start(filled.instance)
    return Seat(filled, server, Reader(server, filled.instance.username))


def requests(seat: Seat, events: int, choose: random.Random) -> Iterator[tuple[str, str, str, int]]:
    """Return name, path, further headers and status of everything that is measured."""
    workflow = f"wf_{choose.randrange(events // observations.EVENTS_A_WORKFLOW):032x}"
    yield "page", f"/activity?{RANGE}", "", 200
    yield "fragment", f"/activity/live.html?{RANGE}", FRAGMENT, 200
    yield "poll", seat.poll_of(f"/activity?{RANGE}"), FRAGMENT, 204
    yield "by outcome", f"/activity?{RANGE}&outcome=blocked", "", 200
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
    sizes, choose = sorted(options.sizes), random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="atmem-bench-", dir=options.folder) as place, contextlib.ExitStack() as end:
        # All of them first: a server ends a connection on which nothing was asked for minutes.
        instances = {size: made(Path(place) / str(size), size) for size in sizes}
        seats = {}
        for size, filled in instances.items():
            seats[size] = seated(filled)
            end.callback(seats[size].close)
        timings = Timings()
        for number in range(-WARM_UP, options.rounds):
            if number == 0:
                timings = Timings()
            for size, seat in seats.items():
                for name, path, extra, status in requests(seat, size, choose):
                    timings.measure(
                        f"{name} {size}", lambda r=seat.reader, p=path, e=extra, s=status: r.get(p, e, status=s)
                    )
    report(timings, sizes)


def report(timings: Timings, sizes: Sequence[int]) -> None:
    """Print everything; end with status 1 where a page breaks its promise."""
    smallest, largest = str(min(sizes)), str(max(sizes))
    print(f"{'milliseconds':32} {'p50':>8} {'p95':>8}")
    for name in timings.values:
        print(f"{name:32} {timings.p50(name):8.3f} {timings.p95(name):8.3f}")
    broken = []
    for name in [name.removesuffix(f" {smallest}") for name in timings.values if name.endswith(f" {smallest}")]:
        ratio = timings.p50(f"{name} {largest}") / timings.p50(f"{name} {smallest}")
        print(f"{name} at {largest} / at {smallest} = {ratio:.2f}")
        if ratio >= MOST_RATIO:
            broken.append(f"{name}: {ratio:.2f} times")
    if broken:
        raise SystemExit("; ".join(broken))


if __name__ == "__main__":
    main()
