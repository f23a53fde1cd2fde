"""SIGKILL at steps of a backup and of a restore; then again, to a good end with every row readable.

Every run of the tests takes a few steps from the first to the last; a soak takes all of them at both ends, and some
between.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from app import vaults
from app.vault_life import LOCAL
from continuity.errors import ConflictError
from tests.restoring import Place, begin, create, every_row_opens, finished, operator, place, view
from tests.servers import ROOT, environment

__all__ = ["place"]


def run(place: Place, what: str, file, step: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.crash.restorer", what, str(file), str(step)], cwd=ROOT,
        env=environment(place.folder, place.extra), text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip


def steps(place: Place, what: str, file) -> int:
    done = run(place, what, file, -1)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def both_ends(count: int) -> list[int]:
    """Every step where there are few; the first and last ones and some between where there are many."""
    return sorted({*range(min(6, count)), *range(0, count, max(1, count // 8)), *range(max(0, count - 12), count)})


def few(count: int) -> list[int]:
    """The first, the last, and a few between: most of them at the end, where a restore happens."""
    return sorted({0, count // 2, *(max(0, count - back) for back in (9, 5, 2, 1))})


chosen = pytest.mark.parametrize(
    "choose", [pytest.param(few, id="spread"), pytest.param(both_ends, id="closer", marks=pytest.mark.soak)]
)


@chosen
def test_a_backup_that_is_killed_at_any_step_leaves_no_file_and_is_made_the_next_time(place, choose):
    with place.wired() as built:
        finished(built, "done")
    file = place.folder.parent / "killed.backup"
    count = steps(place, "backup", place.folder.parent / "whole.backup")

    for step in choose(count):
        killed = run(place, "backup", file, step)
        assert killed.returncode == -signal.SIGKILL, (step, killed.stderr)
        assert not file.exists()

    assert run(place, "backup", file, -1).returncode == 0
    assert not list(place.folder.glob("*copy*"))
    assert not list(file.parent.glob("*.partial"))
    place.restore(file)
    assert place.follow() is None
    with place.wired() as built:
        assert every_row_opens(built) == 1


@chosen
def test_a_restore_that_is_killed_at_any_step_has_happened_or_not_and_then_ends_well(place, choose):
    with place.wired() as built:
        gone, kept, open_ = finished(built, "gone"), finished(built, "kept"), create(built, "open")["workflow_id"]
    file = place.backup()
    with place.wired() as built:
        built.services.deletions.delete(operator(built), gone)
    count = steps(place, "restore", file)
    with place.wired() as built:
        epoch = _epoch(built)
        lately = finished_in_window(built, "lately-0")
    happened = 0

    for step in choose(count):
        killed = run(place, "restore", file, step)
        assert killed.returncode == -signal.SIGKILL, (step, killed.stderr)
        with place.wired() as built:
            # Whoever comes next finds the one state or the other, whole.
            has_happened = _epoch(built) > epoch
            built.reapplying.run()
            assert built.store.read(built.audit.verify).fault is None
            assert view(built, kept)["operations"][0]["status"] == "completed"
            with pytest.raises(ConflictError):
                view(built, gone)
            every_row_opens(built)
            if has_happened:
                happened += 1
                assert begin(built, open_, f"a{step}")["action"] == "blocked"
                lately = finished_in_window(built, f"lately-{step}")
            else:
                view(built, lately)
            epoch = _epoch(built)

    assert 0 < happened < len(choose(count))
    assert run(place, "restore", file, -1).returncode == 0
    assert place.follow() is None
    with place.wired() as built:
        assert every_row_opens(built) == 2
    assert not [path.name for path in place.folder.iterdir() if "restoring" in path.name]


def finished_in_window(built, key: str) -> str:
    built.recovery.close(LOCAL)
    return finished(built, key)


def _epoch(built) -> int:
    return vaults.epoch(built.store)
