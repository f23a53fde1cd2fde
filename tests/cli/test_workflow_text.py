"""What commands print about workflows, where a server cannot easily be brought to say it."""

from __future__ import annotations

from app.cli import workflow_text

DAMAGED = {
    "workflow_id": "wf_" + "0" * 32, "scope": {"workspace_id": "default"}, "enabled": True, "phase": "ready",
    "created": 1_750_000_000.25, "revision": 3, "unreadable": True,
}  # fmt: skip


def test_a_workflow_whose_content_is_damaged_still_has_its_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    workflow_text.print_page([DAMAGED])

    printed = capsys.readouterr().out
    assert DAMAGED["workflow_id"] in printed
    assert "(damaged)" in printed


def test_times_are_shown_in_utc():
    assert workflow_text.moment(1_750_000_000.25) == "2025-06-15 15:06:40 UTC"
    assert workflow_text.moment(None) == ""
