"""Many clients of all kinds of work on one server for a long time: is there an error, and does its memory stay flat?"""

from __future__ import annotations

import collections
import contextlib
import os
import statistics
from collections.abc import Sequence

from tests.bench.goals import MEMORY_MIB
from tests.bench.load import Generators, Sample
from tests.bench.stands import Databases, Place, Stand

KINDS = ("operation", "reuse", "ingest", "page")
MINUTE_S = 60.0
GROWTH_MIB = 8.0
"""What a heap may be larger in the last third than in the one before: an allocator's steps, and no leak of half an
hour. A leak of a kilobyte an operation would be a hundred times that."""


def run(databases: Databases, place: Place, *, minutes: float, clients: int) -> int:
    """Run it; return 0 if nothing failed, memory stayed under its bound, and it did not grow at the end."""
    errors: collections.Counter[str] = collections.Counter()
    held: list[float] = []
    with contextlib.ExitStack() as end:
        stand = Stand.started(place, databases)
        end.callback(stand.close)
        generators = Generators(1, {}, os.environ)
        end.callback(generators.close)
        print(
            f"{clients} clients on {place}, {minutes:g} minutes; added to each sync: {databases.slow.means}", flush=True
        )
        for number, seconds in enumerate(_lengths(minutes), start=1):
            samples = generators.run(*(stand.job(kind, share, seconds) for kind, share in shares(clients).items()))
            held.append(stand.memory_mib())
            for sample in samples:
                errors.update(sample.errors)
            print(_line(number, samples, held[-1]), flush=True)
    return verdict(held, errors)


def shares(clients: int) -> dict[str, int]:
    """Share clients out among the kinds of work, each of which has one at least."""
    each, more = divmod(max(clients, len(KINDS)), len(KINDS))
    return {kind: each + (number < more) for number, kind in enumerate(KINDS)}


def _lengths(minutes: float) -> list[float]:
    """Return whole minutes, and what is left of one."""
    whole, left_s = int(minutes), (minutes - int(minutes)) * MINUTE_S
    return [MINUTE_S] * whole + ([left_s] if left_s > 0 else [])


def _line(number: int, samples: Sequence[Sample], held_mib: float) -> str:
    done = ", ".join(f"{sample.rate:.0f} {sample.work}" for sample in samples)
    errors, throttled = sum(sum(sample.errors.values()) for sample in samples), sum(each.throttled for each in samples)
    return f"minute {number:4d}: {held_mib:6.1f} MiB, a second: {done}; told to come again {throttled}, errors {errors}"


def verdict(held_mib: Sequence[float], errors: collections.Counter[str]) -> int:
    """Say what it comes to; return the exit status. A third of the minutes warms up."""
    third = max(1, len(held_mib) // 3)
    before, after = statistics.median(held_mib[-2 * third : -third] or held_mib), statistics.median(held_mib[-third:])
    grown, most = after - before, max(held_mib)
    print(f"{'yes' if most <= MEMORY_MIB else 'NO':3} at most {MEMORY_MIB} MiB: {most:.1f}")
    print(
        f"{'yes' if grown <= GROWTH_MIB else 'NO':3} flat: the last third holds {grown:+.1f} MiB more than the second"
    )
    for text, count in errors.most_common(10):
        print(f"ERROR {count} × {text}")
    print(f"errors: {errors.total() or 'none'}")
    return 0 if most <= MEMORY_MIB and grown <= GROWTH_MIB and not errors else 1
