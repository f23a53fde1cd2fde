"""What a million workflows and ten million events cost, beside few, held against the goals. CI runs it at night.

    python -m tests.bench.scale

Begin at a million retained workflows beside a hundred, old rows chosen at random; the pages of Resume work at a
million beside a thousand; those of Activity at ten million events beside a thousand. Small and large are asked in
turns. It ends with status 1 only if something fails: figures are printed, and make nothing fail.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench import activity, decisions, pages
from tests.bench.goals import Goal

MOST_BEGIN_RATIO = 1.2


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--begins", type=int, nargs=2, default=[100, 1_000_000], help="workflows at which begins are measured")
    add("--workflows", type=int, nargs=2, default=[1_000, 1_000_000], help="workflows at which pages are")
    add("--events", type=int, nargs=2, default=[1_000, 10_000_000], help="events at which pages of Activity are")
    add("--rounds", type=int, default=100, help="measured rounds of each, after ten unmeasured ones")
    add("--folder", type=Path, default=None, help="where the databases are made: a real disk with 30 GB free")
    add("--seed", type=int, default=1, help="which workflows are chosen")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="atmem-bench-", dir=options.folder) as made:
        # Begins and pages ask the same million.
        os.environ.setdefault("BENCH_CACHE", str(Path(made) / "kept"))
        goals = list(measure(Path(made), options))
    print(f"load average: {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
    for goal in goals:
        print(goal)


def measure(folder: Path, options: argparse.Namespace) -> Iterator[Goal]:
    """Measure everything, one after the other; return it as goals."""
    asked = argparse.Namespace(rounds=options.rounds, sizes=options.begins, seed=options.seed)
    (folder / "begins").mkdir()
    timings, _ = decisions.measure(folder / "begins", asked)
    few, many = (timings.p50(f"begin {size}") for size in sorted(options.begins))
    yield Goal(_named("begin", options.begins), many / few, MOST_BEGIN_RATIO, True, "")
    for subject, sizes, taken in (
        ("Resume work", options.workflows,
         pages.measure(folder / "pages", options.workflows, rounds=options.rounds, seed=options.seed)),
        ("Activity", options.events,
         activity.measure(folder / "activity", options.events, rounds=options.rounds, seed=options.seed)),
    ):  # fmt: skip
        taken.report(sizes)
        for name in taken.names(min(sizes)):
            passed, worked = taken.ratios(name, min(sizes), max(sizes))
            remark = f"of the processor alone {worked:.2f}"
            yield Goal(_named(f"{subject}: {name}", sizes), passed, pages.MOST_RATIO, True, "", remark)


def _named(what: str, sizes: Sequence[int]) -> str:
    return f"{what}, at {max(sizes):,} / at {min(sizes):,}"


if __name__ == "__main__":
    main()
