"""What lists and searches of evidence cost as the records grow. Prints ratios, asserts none.

Usage: ``python -m tests.bench.evidence [RECORDS]``; a small installation and one of RECORDS (300,000) on SQLite, asked
in turns.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from continuity.evidence import ListRuns, RecordEvidence, SearchEvidence
from continuity.store.engine import make_engine
from continuity.store.store import Store
from tests.databases import SQLiteTemplate
from tests.integration.recorded import EVENT, Recorded, recorded

SMALL = 1_000
AT_ONCE = 500
RUN_OF = 1_000
TURNS = 40


def filled(folder: Path, template: SQLiteTemplate, count: int) -> Recorded:
    """Return an installation with `count` records in runs of `RUN_OF`; many of them in one transaction."""
    folder.mkdir()
    at = recorded(Store(make_engine(template.copy_to(folder / "atmem.db"), pool_size=4)), folder)
    for start in range(0, count, AT_ONCE):
        requests = [
            RecordEvidence.from_json({
                **EVENT, "run_id": f"run-{number // RUN_OF}", "event_id": f"e-{number}",
                "kind": "text" if number % 2 else "tool_call",
                "content": f"common half{number % 2} tenth{number % 10} rare{number // 100} step {number}",
            })
            for number in range(start, min(start + AT_ONCE, count))
        ]  # fmt: skip
        at.at.store.write(lambda c, asked=requests: [at.evidence._record(c, at.operator, each) for each in asked])
    return at


def questions(count: int):
    """Return what is asked, by name."""
    middle = count // 2
    return {
        "newest": lambda at: at.page(),
        "kind": lambda at: at.page(kind="text"),
        "word that all have": lambda at: at.page(search="common"),
        "rare word": lambda at: at.page(search=f"rare{middle // 100}"),
        "two common words that exclude": lambda at: at.page(search="half0 half1"),
        "run": lambda at: at.page(run=f"run-{middle // RUN_OF}"),
        "runs": lambda at: at.search.runs_page(at.operator, ListRuns()),
        "a page of a run": lambda at: at.read(f"run-{middle // RUN_OF}", after=300, limit=50),
        "record": lambda at: at.record(run_id="new", event_id=f"n-{time.perf_counter_ns()}", content="common word"),
        "deep": lambda at: at.search.page(at.operator, SearchEvidence(search="tenth3", limit=50)),
    }


def main() -> None:
    large = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        template = SQLiteTemplate(folder)
        begun = time.perf_counter()
        both = {count: filled(folder / str(count), template, count) for count in (SMALL, large)}
        print(f"filled in {time.perf_counter() - begun:.0f} s")
        asked = {count: questions(count) for count in both}
        for question in asked[SMALL]:
            took = {count: [] for count in both}
            for _ in range(TURNS):
                for count, at in both.items():
                    begun = time.perf_counter()
                    asked[count][question](at)
                    took[count].append(time.perf_counter() - begun)
            few, many = (statistics.median(took[count]) * 1_000 for count in both)
            print(f"{question:32} {few:8.2f} ms {many:8.2f} ms   ratio {many / few:5.2f}")
        for at in both.values():
            at.at.store.close()


if __name__ == "__main__":
    main()
