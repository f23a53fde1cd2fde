"""What the rounds of the load lab gave: figures, ratios to the baselines of the same rounds, and the goals."""

from __future__ import annotations

import collections
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from continuity.store.sqlite import choose_driver
from tests.bench.load import Sample, percentile

FORMAT = "atmem-bench-v1"
BUSY = 0.9
"""From this share of a processor on, the clients themselves may have been the limit."""


@dataclass(frozen=True)
class Key:
    """Who was asked, for what, and by how many clients at once."""

    subject: str
    work: str
    clients: int


@dataclass
class Record:
    """All samples, one a round for each key, and what was seen beside them."""

    samples: dict[Key, list[Sample]] = field(default_factory=dict)
    memory_mib: dict[tuple[str, int], float] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)
    other_errors: collections.Counter[str] = field(default_factory=collections.Counter)

    def add(self, key: Key, sample: Sample) -> None:
        self.samples.setdefault(key, []).append(sample)

    def prepare(self, sample: Sample) -> None:
        """Take note of a sample that was not measured: its errors count."""
        self.other_errors.update(sample.errors)

    def note_memory(self, subject: str, clients: int, held_mib: float) -> None:
        place = (subject, clients)
        self.memory_mib[place] = max(self.memory_mib.get(place, 0.0), held_mib)

    def note_load(self) -> None:
        """Take note of how busy the machine is with everything."""
        self.loads.append(round(os.getloadavg()[0], 2))

    @property
    def errors(self) -> dict[str, int]:
        found = collections.Counter(self.other_errors)
        for samples in self.samples.values():
            for sample in samples:
                found.update(sample.errors)
        return dict(found)

    def rate(self, key: Key) -> float | None:
        """Return the median of the rounds' rates, a second; None where it was not measured."""
        samples = self.samples.get(key)
        return statistics.median(sample.rate for sample in samples) if samples else None

    def ratio(self, key: Key, baseline: Key) -> float | None:
        """Return the median of the ratios of rates, each of two samples of one round."""
        pairs = zip(self.samples.get(key, ()), self.samples.get(baseline, ()), strict=False)
        ratios = [own.rate / other.rate for own, other in pairs if other.rate > 0]
        return statistics.median(ratios) if ratios else None

    def spans(self, key: Key, name: str | None = None) -> list[float]:
        """Return milliseconds of all rounds."""
        return [value for sample in self.samples.get(key, ()) for value in sample.spans.get(name or key.work, ())]

    def ms(self, key: Key, share: float, name: str | None = None) -> float | None:
        values = self.spans(key, name)
        return percentile(values, share) if values else None

    def busiest(self) -> float:
        """Return the greatest share of one processor that a process of clients has used in any sample."""
        # DBOS is both sides in one process.
        ours = [samples for key, samples in self.samples.items() if not key.subject.startswith("DBOS")]
        return max((sample.busy for samples in ours for sample in samples), default=0.0)

    def rows(self) -> Iterator[dict[str, Any]]:
        for key, samples in self.samples.items():
            yield {
                **asdict(key), "rate": self.rate(key), "count": sum(sample.count for sample in samples),
                "p50_ms": self.ms(key, 0.5), "p95_ms": self.ms(key, 0.95), "p99_ms": self.ms(key, 0.99),
                "errors": sum(sum(sample.errors.values()) for sample in samples),
                "throttled": sum(sample.throttled for sample in samples),
                "memory_mib": self.memory_mib.get((key.subject, key.clients)),
                "rates": [sample.rate for sample in samples],
                "parts_p50_ms": {
                    name: percentile(self.spans(key, name), 0.5)
                    for name in samples[0].spans if name != key.work
                },
                "client_process_busy": max(sample.busy for sample in samples),
                "ratios": self._ratios(key),
            }  # fmt: skip

    def _ratios(self, key: Key) -> dict[str, float]:
        """Return the rate beside each baseline that was asked by as many clients, and the raw commit."""
        if key.work in {"empty", "commit"} or "/" not in key.subject:
            return {}
        database = key.subject.partition("/")[0]
        others = {
            "empty route": Key(key.subject, "empty", key.clients),
            "raw commit": Key(f"raw {database}", "commit", 1),
            "without leader commit": Key(f"{key.subject} alone", key.work, key.clients),
            "DBOS": Key(f"DBOS on {database}", key.work, key.clients),
        }
        found = {name: self.ratio(key, other) for name, other in others.items()}
        for other in self.samples:
            if other.subject.startswith("AtMem") and (other.work, other.clients) == (key.work, key.clients):
                found[other.subject] = self.ratio(key, other)
        return {name: ratio for name, ratio in found.items() if ratio is not None}


def machine() -> dict[str, Any]:
    """Return what the figures depend on and a reader cannot see."""
    driver, version = choose_driver()
    return {
        "processors": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
        "sqlite": f"{driver.__name__} {version}",
    }  # fmt: skip


def print_table(record: Record, *, out: Any = print) -> None:
    """Print one line for each key, and beneath it what it is of its baselines."""
    out(
        f"{'subject':34} {'work':10} {'clients':>7} {'a second':>9} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8} "
        f"{'errors':>6} {'MiB':>5}"
    )
    for row in record.rows():
        times = " ".join(_number(row[f"{name}_ms"], 8, 2) for name in ("p50", "p95", "p99"))
        out(
            f"{row['subject']:34} {row['work']:10} {row['clients']:7d} {_number(row['rate'], 9, 1)} {times} "
            f"{row['errors']:6d} {_number(row['memory_mib'], 5, 0)}"
        )
        if row["throttled"]:
            out(f"    told to come again (429): {row['throttled']} times in {row['count']}")
        if row["ratios"]:
            out("    " + ", ".join(f"{ratio:.3g} × {name}" for name, ratio in row["ratios"].items()))


def _number(value: float | None, width: int, digits: int) -> str:
    return " " * (width - 1) + "–" if value is None else f"{value:{width}.{digits}f}"


def print_errors(record: Record, *, most: int = 10, out: Any = print) -> None:
    errors = record.errors
    for text, count in sorted(errors.items(), key=lambda item: -item[1])[:most]:
        out(f"ERROR {count} × {text}")
    out(f"errors: {sum(errors.values()) or 'none'}")


def print_client_limit(record: Record, *, out: Any = print) -> None:
    """Say what the clients themselves can do, and whether they may have been the limit."""
    best = max(
        ((record.rate(key) or 0.0, key) for key in record.samples if key.work == "empty"),
        default=None, key=lambda pair: pair[0],
    )  # fmt: skip
    if best is not None:
        out(f"the clients got {best[0]:.0f} answers a second from the empty route of {best[1].subject}")
    busiest = record.busiest()
    doubt = "  THE CLIENTS MAY HAVE BEEN THE LIMIT" if busiest > BUSY else ""
    out(f"a process of clients used at most {busiest:.2f} of one processor{doubt}")


def summary(record: Record, goals: Sequence[Any], notes: dict[str, Any]) -> dict[str, Any]:
    """Return everything for the file of results."""
    return {
        "format": FORMAT, "machine": machine(), **notes, "load_average_by_round": record.loads,
        "rows": list(record.rows()), "goals": [goal.told() for goal in goals], "errors": record.errors,
    }  # fmt: skip
