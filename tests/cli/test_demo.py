"""The demo as somebody runs it first. It takes as long as a lease: two minutes of waiting, little work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", "demo", *options], cwd=ROOT, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def test_the_demo_publishes_one_document_and_ends_with_status_0(tmp_path: Path) -> None:
    document = tmp_path / "notes.txt"
    document.write_text("What the demo publishes.\n")

    told = _demo("--exit", "--instance", str(tmp_path / "demo"), "--document", str(document))

    assert told.returncode == 0, told.stderr
    published = list((tmp_path / "demo" / "published").iterdir())
    assert [path.read_text() for path in published] == ["What the demo publishes.\n"]
    assert re.findall(r"^ +(\d+)\. ", told.stdout, re.MULTILINE) == [str(n) for n in range(1, 12)]
    assert "killed (SIGKILL)" in told.stdout


def test_the_demo_leaves_a_folder_alone_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")

    told = _demo("--exit", "--instance", str(tmp_path))

    assert told.returncode == 1
    assert "Nothing was changed" in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
