"""How much memory a backup and a restore take: ``python -m tests.bench.backups [MEGABYTES]``.

Prints sizes, seconds and the peak of each process; asserts none. Needs about four times as much room on the disk.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from app import wiring
from app.config import load_settings
from continuity.store import schema
from tests.entry import OVERRIDES
from tests.servers import ROOT, environment, initialised

ROW_BYTES = 60_000


def fill(folder: Path, megabytes: int) -> None:
    rows = megabytes * 1_000_000 // ROW_BYTES
    with wiring.built(load_settings({"ATMEM_INSTANCE": str(folder)}), overrides=OVERRIDES) as built:
        for start in range(0, rows, 200):
            values = [
                {
                    "workflow_pk": 1_000_000, "seq": number, "kind": "created", "at": 1, "hash": bytes(32),
                    "sealed_event": os.urandom(ROW_BYTES),
                }
                for number in range(start, min(rows, start + 200))
            ]  # fmt: skip
            built.store.write(lambda connection, values=values: connection.execute(sa.insert(schema.events), values))


def measured(folder: Path, what: str, file: Path) -> None:
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run(
        [sys.executable, "-m", "tests.crash.restorer", what, str(file), "-1"], cwd=ROOT, env=environment(folder),
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    told = f"{peak / 1024:.0f} MiB" if peak > before else f"at most {peak / 1024:.0f} MiB"
    print(f"{what}: {time.monotonic() - began:.1f} s, peak {told}")


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as scratch:
        for size in (1, megabytes):
            folder, file = Path(scratch) / f"instance-{size}", Path(scratch) / f"{size}.backup"
            initialised(folder)
            fill(folder, size)
            print(f"database: {(folder / 'continuity.db').stat().st_size / 1_000_000:.0f} MB")
            measured(folder, "backup", file)
            measured(folder, "restore", file)


if __name__ == "__main__":
    main()
