"""Take guards away one at a time and see that a test notices: ``python -m tests.mutation [row …]``.

Works on a copy of the tree and touches nothing of it. Prints one line a guard; ends with status 1 if one survived.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.mutation.guards import GUARDS, Guard
from tests.servers import ROOT

COPIED = ("app", "continuity", "observations", "migrations", "examples", "tests", "docs", "requirements")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "images")
PATIENCE_S = 300
TESTS_FAILED = 1
"""What pytest ends with when a test has failed, and not because it found none or could not begin."""


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        folder = Path(name)
        for each in COPIED:
            shutil.copytree(ROOT / each, folder / each, ignore=LEFT_OUT)
        for path in ROOT.glob("*.*"):
            if path.is_file():
                shutil.copy(path, folder / path.name)
        yield folder


def is_killed(guard: Guard, folder: Path) -> bool:
    """Say whether the test of a guard fails without it."""
    path = folder / guard.file
    good = path.read_text()
    assert good.count(guard.line) == 1, f"{guard.file} has not once: {guard.line}"
    assert run(guard.test, folder) == 0, f"with the guard as well it does not pass: {guard.test}"
    path.write_text(good.replace(guard.line, guard.without or "# nothing"))
    try:
        return run(guard.test, folder) == TESTS_FAILED
    finally:
        path.write_text(good)


def run(test: str, folder: Path) -> int:
    command = [
        sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly",
        "-m", "not postgresql and not soak", test,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE_S, check=False).returncode


def main(rows: Sequence[str]) -> int:
    survived = 0
    with copy_of_the_tree() as folder:
        for guard in GUARDS:
            if rows and guard.row not in rows:
                continue
            began = time.monotonic()
            killed = is_killed(guard, folder)
            survived += not killed
            said = "killed" if killed else "SURVIVED"
            print(
                f"{guard.row:4} {said:9}{time.monotonic() - began:5.1f} s  {guard.file}: {guard.line}  <- {guard.test}"
            )
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
