"""What a million workflows and ten million events cost, beside few, held against the goals. CI runs it at night.

    python -m tests.bench.scale --json scale.json

Begin at a million retained workflows beside a hundred, old rows chosen at random; the pages of Resume work at a
million beside a thousand; those of Activity at ten million events beside a thousand. Small and large are asked in
turns. It ends with status 1 only if something fails: figures are printed, and make nothing fail.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import activity, decisions, pages, results
from tests.bench.asking import Timings
from tests.bench.goals import Goal

FORMAT = "atmem-scale-v1"
MOST_BEGIN_RATIO = 1.2


@dataclass
class Part:
    """What was measured of one subject with few and with many of something."""

    subject: str
    sizes: Sequence[int]
    passed: Timings
    goals: list[Goal]
    worked: Timings | None = None
    loads: list[float] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        return {
            "subject": self.subject, "sizes": sorted(self.sizes), "load_average_before_and_after": self.loads,
            "rows": [self._row(name) for name in self.passed.values],
        }  # fmt: skip

    def _row(self, name: str) -> dict[str, Any]:
        return {
            "name": name, "count": len(self.passed.values[name]),
            "p50_ms": self.passed.p50(name), "p95_ms": self.passed.p95(name),
            "processor_p50_ms": None if self.worked is None else self.worked.p50(name),
        }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--begins", type=int, nargs=2, default=[100, 1_000_000], help="workflows at which begins are measured")
    add("--workflows", type=int, nargs=2, default=[1_000, 1_000_000], help="workflows at which pages are")
    add("--events", type=int, nargs=2, default=[1_000, 10_000_000], help="events at which pages of Activity are")
    add("--rounds", type=int, default=100, help="measured rounds of each, after ten unmeasured ones")
    add("--folder", type=Path, default=None, help="where the databases are made: a real disk with 30 GB free")
    add("--seed", type=int, default=1, help="which workflows are chosen")
    add("--json", type=Path, help="file for everything that was measured")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="atmem-bench-", dir=options.folder) as made:
        # Begins and pages ask the same million.
        os.environ.setdefault("BENCH_CACHE", str(Path(made) / "kept"))
        parts = list(measure(Path(made), options))
    goals = [goal for part in parts for goal in part.goals]
    for part in parts:
        print(f"{part.subject}: load average {part.loads[0]:.2f} before, {part.loads[1]:.2f} after")
    print(f"on {os.cpu_count()} processors")
    for goal in goals:
        print(goal)
    if options.json:
        told = {
            "format": FORMAT, "machine": results.machine(), "rounds": options.rounds, "seed": options.seed,
            "parts": [part.told() for part in parts], "goals": [goal.told() for goal in goals],
        }  # fmt: skip
        options.json.write_text(json.dumps(told, indent=1) + "\n")


def measure(folder: Path, options: argparse.Namespace) -> Iterator[Part]:
    """Measure everything, one after the other; what the databases take of the disk is given back in between."""
    for work in (_begins, _resume_work, _activity):
        place = folder / work.__name__
        place.mkdir()
        before = _load()
        part = work(place, options)
        part.loads = [before, _load()]
        shutil.rmtree(place)
        yield part


def _begins(folder: Path, options: argparse.Namespace) -> Part:
    sizes = sorted(options.begins)
    asked = argparse.Namespace(rounds=options.rounds, sizes=sizes, seed=options.seed)
    timings, _ = decisions.measure(folder, asked)
    print(f"{'milliseconds':32} {'p50':>8} {'p95':>8}")
    for name in timings.values:
        print(f"{name:32} {timings.p50(name):8.3f} {timings.p95(name):8.3f}")
    few, many = (timings.p50(f"begin {size}") for size in sizes)
    goal = Goal(_named("begin", sizes), many / few, MOST_BEGIN_RATIO, True, "")
    return Part("begin and outcome", sizes, timings, [goal])


def _resume_work(folder: Path, options: argparse.Namespace) -> Part:
    return _pages("Resume work", folder, options.workflows, pages.measure, options)


def _activity(folder: Path, options: argparse.Namespace) -> Part:
    return _pages("Activity", folder, options.events, activity.measure, options)


def _pages(
    subject: str, folder: Path, sizes: Sequence[int], work: Callable[..., pages.Taken], options: argparse.Namespace
) -> Part:
    taken = work(folder, sizes, rounds=options.rounds, seed=options.seed)
    taken.report(sizes)
    goals = []
    for name in taken.names(min(sizes)):
        passed, worked = taken.ratios(name, min(sizes), max(sizes))
        remark = f"of the processor alone {worked:.2f}"
        goals.append(Goal(_named(f"{subject}: {name}", sizes), passed, pages.MOST_RATIO, True, "", remark))
    return Part(subject, sizes, taken.passed, goals, taken.worked)


def _named(what: str, sizes: Sequence[int]) -> str:
    return f"{what}, at {max(sizes):,} / at {min(sizes):,}"


def _load() -> float:
    return round(os.getloadavg()[0], 2)


if __name__ == "__main__":
    main()
