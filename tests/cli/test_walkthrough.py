"""The walk-through of the guide, "Try a real document", as a person types it: real processes, server and file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.commands import Terminal

TEXT = "# A document\n\nWritten by hand: ä, ☃.\n"


@pytest.fixture
def terminal(running_server, tmp_path):
    return Terminal(running_server, tmp_path)


@pytest.fixture
def document(tmp_path) -> Path:
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    return path


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def said(done) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def use(terminal, *arguments):
    """``export ATMEM_EVIDENCE_TOKEN="$(atmem continuity credential … --token-only)"``."""
    done = terminal.atmem("continuity", "credential", *arguments, "--token-only", *terminal.as_person())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("atm_")
    assert done.stdout.count("\n") == 1
    terminal.variables["ATMEM_EVIDENCE_TOKEN"] = done.stdout.strip()


def test_a_document_is_published_once_however_often_it_is_run(terminal, document, tmp_path):
    output = tmp_path / "published"
    work = ("--document", str(document), "--output", str(output))

    use(terminal, "--principal", "document-operator")
    prepared = said(terminal.example("prepare", "--workflow-key", "publish-my-document", *work))
    workflow_id = prepared["workflow_id"]
    assert prepared["enabled"] is False

    # Not enabled yet: stopped safely, nothing is published.
    early = terminal.example("run", "--workflow-id", workflow_id, "--output", str(output))
    assert early.returncode == 2
    assert json.loads(early.stdout)["stopped_safely"] == "workflow_disabled_or_capture_unavailable"
    assert files(output) == [] if output.exists() else True

    enabled = terminal.atmem("continuity", "enable", workflow_id)
    assert enabled.returncode == 0, enabled.stderr
    assert "enabled" in enabled.stdout

    use(terminal, workflow_id, "--principal", "document-worker")
    run = ("run", "--workflow-id", workflow_id, "--output", str(output))
    first = said(terminal.example(*run))
    (published,) = files(output)
    assert published.read_bytes() == document.read_bytes()
    assert first["result"]["sha256"] == hashlib.sha256(document.read_bytes()).hexdigest()
    assert first["result"]["bytes"] == len(document.read_bytes())
    before = published.stat()

    again = said(terminal.example(*run))
    assert again == first
    assert files(output) == [published]
    assert (published.stat().st_ino, published.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    # Its page shows the one attempt and the receipt.
    seen = terminal.json("continuity", "show", workflow_id)
    (operation,) = seen["operations"]
    assert operation["status"] == "completed"
    assert [attempt["outcome"] for attempt in operation["attempts"]] == ["confirmed_succeeded"]
    assert operation["receipt"]["result"] == first["result"]

    # A new key is new work; the same key with other arguments is refused.
    use(terminal, "--principal", "document-operator")
    other = said(terminal.example("prepare", "--workflow-key", "publish-it-again", *work))
    assert other["workflow_id"] != workflow_id
    repeated = said(terminal.example("prepare", "--workflow-key", "publish-my-document", *work))
    assert repeated["workflow_id"] == workflow_id
    document.write_text(TEXT + "Changed.\n")
    changed = terminal.example("prepare", "--workflow-key", "publish-my-document", *work)
    assert changed.returncode == 1
    assert "definition_conflict" in changed.stderr


def test_another_output_directory_than_the_reviewed_one_is_refused_before_the_effect(terminal, document, tmp_path):
    output, elsewhere = tmp_path / "published", tmp_path / "elsewhere"
    use(terminal, "--principal", "document-operator")
    work = ("--document", str(document), "--output", str(output))
    workflow_id = said(terminal.example("prepare", "--workflow-key", "publish-my-document", *work))["workflow_id"]
    assert terminal.atmem("continuity", "enable", workflow_id).returncode == 0
    use(terminal, workflow_id, "--principal", "document-worker")

    refused = terminal.example("run", "--workflow-id", workflow_id, "--output", str(elsewhere))

    assert refused.returncode == 2
    assert "stopped_safely" in json.loads(refused.stdout)
    assert not elsewhere.exists() or files(elsewhere) == []
    (operation,) = terminal.json("continuity", "show", workflow_id)["operations"]
    assert operation["status"] == "pending"
    assert [attempt["outcome"] for attempt in operation["attempts"]] == ["not_dispatched"]

    # It never reached the destination, so that the reviewed directory may still be used.
    assert said(terminal.example("run", "--workflow-id", workflow_id, "--output", str(output)))["result"]
    assert len(files(output)) == 1
