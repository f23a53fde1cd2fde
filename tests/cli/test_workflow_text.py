"""What commands print about workflows, where a server cannot easily be brought to say it."""

from __future__ import annotations

import re

import pytest

from app.cli import workflow_advice, workflow_text
from continuity.decisions.phases import Phase

DAMAGED = {
    "workflow_id": "wf_" + "0" * 32, "scope": {"workspace_id": "default"}, "enabled": True, "phase": "ready",
    "created": 1_750_000_000.25, "revision": 3, "unreadable": True, "key_id": 2, "workflow_key": "", "operations": [],
}  # fmt: skip


def test_a_workflow_whose_content_is_damaged_still_has_its_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    workflow_text.print_page([DAMAGED])

    printed = capsys.readouterr().out
    assert DAMAGED["workflow_id"] in printed
    assert "(unreadable, key 2)" in printed
    # What does not open is not counted: "0 of 0" beside the state reads as if there were nothing in it.
    assert "0 of 0" not in printed


def test_an_id_is_never_folded_however_narrow_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")

    workflow_text.print_page([DAMAGED])

    assert DAMAGED["workflow_id"] in capsys.readouterr().out


OPERATION = {
    "name": "publish", "tool": "files", "capability": "none", "status": "pending", "arguments": {}, "receipt": None,
    "late_receipts": 0, "late": [], "attempts": [],
}  # fmt: skip


def test_a_long_argument_is_cut_and_stands_behind_the_short_ones(capsys):
    arguments = {"content": "x" * 5_000, "document": "README.md", "sha256": "ab" * 32}

    workflow_text.print_operation({**OPERATION, "arguments": arguments})
    cut = capsys.readouterr().out
    workflow_text.print_operation({**OPERATION, "arguments": arguments}, is_full=True)
    full = capsys.readouterr().out

    assert max(map(len, cut.splitlines())) < 250
    assert cut.index("README.md") < cut.index("sha256") < cut.index("xxx")
    assert "5,002 characters" in cut
    assert "--full" in cut
    assert "x" * 5_000 in full


def test_what_is_defined_in_seconds_is_shown_and_the_size_is_that_of_the_page(capsys):
    times = {"timeout_seconds": 30.0, "retention_seconds": 86_400, "absence_final_after_seconds": 1.5}

    workflow_text.print_operation({**OPERATION, **times, "arguments": {"text": "ü" * 300}})

    shown = capsys.readouterr().out
    for name, value in (("Timeout", "30 s"), ("Key is kept", "86400 s"), ("Absence final", "1.5 s")):
        assert re.search(rf"{name} +{value}\n", shown)
    assert "611 bytes" in shown


def test_a_long_late_receipt_is_cut_too(capsys):
    late = {**LATE, "receipt": {"returned": "x" * 5_000}}

    workflow_text.print_operation({**OPERATION, "late": [late]})
    assert "x" * 200 not in capsys.readouterr().out
    workflow_text.print_operation({**OPERATION, "late": [late]}, is_full=True)
    assert "x" * 5_000 in capsys.readouterr().out


def test_what_people_decided_is_shown_with_who_and_why(capsys):
    attempts = [
        {"attempt_id": "at_1", "mode": "execute", "started": 10, "outcome": "not_dispatched",
         "receipt": {"reason": "No route."}},
        {"attempt_id": "at_2", "mode": "execute", "started": 20, "outcome": "unknown",
         "receipt": {"detail": "The tool raised TimeoutError."}},
        {"attempt_id": "at_3", "mode": "execute", "started": 30},
        {"attempt_id": "at_4", "mode": "execute", "started": 50},
    ]  # fmt: skip
    history = [
        {"event": "outcome_confirmed", "name": "publish", "time": 40, "actor": "user:usr_1", "happened": False,
         "reason": "I looked."},
        {"event": "abandoned", "name": "publish", "time": 60, "actor": "user:usr_2", "reason": "Not wanted."},
        {"event": "abandoned", "name": "other", "time": 70, "actor": "user:usr_3", "reason": "Another one."},
    ]  # fmt: skip

    workflow_text.print_operation({**OPERATION, "status": "abandoned", "attempts": attempts}, history)

    printed = capsys.readouterr().out
    for text in ("it did not happen, by user:usr_1", "I looked.", "stopped for good, by user:usr_2", "Not wanted."):
        assert text in printed
    assert "Another one." not in printed
    lines = {number: line for line in printed.splitlines() for number in "1234" if f"at_{number}" in line}
    assert "No route." in lines["1"]
    assert "TimeoutError" in lines["2"]
    assert "attested: did not happen" in lines["3"]
    assert "not ended" in lines["4"]


LATE = {"proved": True, "received": 1, "receipt": {"outcome": "confirmed_succeeded"}}
DECISIONS = [
    ({"status": "uncertain"}, "neither be asked nor"),
    ({"status": "uncertain", "capability": "idempotent"}, "no longer honours its key"),
    ({"status": "uncertain", "late": [LATE]}, "late receipt"),
    ({"status": "uncertain", "attempts": [{}] * 100}, "all attempts"),
    ({"status": "pending"}, "backup"),
    ({"status": "uncertain", "capability": ["idempotent", "query"]}, "honours its key"),
]


@pytest.mark.parametrize(("operation", "why"), DECISIONS, ids=range(len(DECISIONS)))
def test_work_that_waits_for_a_person_says_why_and_with_which_commands(operation, why):
    view = {"workflow_id": "wf_1", "phase": "decision", "revision": 9, "operations": [{**OPERATION, **operation}]}

    advice = workflow_advice.advise(view)

    assert why in advice.why
    assert "publish" in advice.why or "attempts" in advice.why
    assert any(command.startswith("atmem continuity confirm wf_1 --operation publish") for command in advice.commands)


@pytest.mark.parametrize("phase", list(Phase))
def test_every_state_has_its_reason_and_what_is_next(phase):
    view = {"workflow_id": "wf_1", "phase": phase.value, "revision": 1, "operations": [OPERATION]}

    advice = workflow_advice.advise(view)

    assert advice.why
    assert advice.commands
    assert "{" not in advice.why + "".join(advice.commands)


def test_times_are_shown_in_utc():
    assert workflow_text.moment(1_750_000_000.25) == "2025-06-15 15:06:40 UTC"
    assert workflow_text.moment(None) == ""
