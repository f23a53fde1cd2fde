"""Workflows as text for a terminal. What hosts wrote is shown so that it cannot speak to the terminal.

Values are cut to a line each: whoever reviews sees what it is first, and all of it with ``--full`` or ``--json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from app.cli import workflow_advice
from app.cli.terminal import plain, print_facts, print_table
from continuity.jsontext import canonical_bytes

_SHORT_CHARS: Final = 200
"""A value of up to so many characters is shown whole."""
_EXCERPT_CHARS: Final = 100

View = Mapping[str, Any]


def moment(at_s: float | None) -> str:
    """Return Unix seconds as a time that a person reads, UTC."""
    return "" if at_s is None else f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def print_page(summaries: Sequence[View]) -> None:
    """Print a page of a list. A workflow that does not open has a key and operations that are empty."""
    rows = [
        (
            summary["workflow_id"],
            _unreadable(summary) if summary.get("unreadable") else summary["workflow_key"],
            summary["phase"],
            summary["scope"]["workspace_id"],
            "" if summary.get("unreadable") else _progress(summary["operations"]),
            moment(summary["created"]),
        )
        for summary in summaries
    ]
    print_table(("workflow_id", "key", "state", "workspace", "completed", "created"), rows)


def _unreadable(summary: View) -> str:
    key_id = summary.get("key_id")
    return "(unreadable)" if key_id is None else f"(unreadable, key {key_id})"


def print_view(view: View, *, is_full: bool = False) -> None:
    advice = workflow_advice.advise(view)
    facts = {
        "Workflow": view["workflow_id"],
        "Key": view["workflow_key"],
        "Workspace": view["scope"]["workspace_id"],
        "State": view["phase"],
        "Why": advice.why,
        "Recovery": "enabled" if view["enabled"] else "not enabled",
        "Created": f"{moment(view['created'])} by {view['creator_id']}",
        "Revision": view["revision"],
        "Next": advice.commands[0],
    }
    print_facts(facts)
    for command in advice.commands[1:]:
        click.echo(f"{' ' * max(map(len, facts))}  {plain(command)}")
    for operation in view["operations"]:
        click.echo()
        print_operation(operation, view.get("history", ()), is_full=is_full)


def print_operation(operation: View, history: Sequence[View] = (), *, is_full: bool = False) -> None:
    """Print what an operation wants to do and everything that was reported or decided about it."""
    past = [event for event in history if event.get("name") == operation["name"]]
    print_facts({
        "Operation": operation["name"],
        "Tool": operation["tool"],
        **_value("Arguments", operation["arguments"], is_full=is_full),
        "Capability": _capability(operation["capability"]),
        **_times(operation),
        "Status": operation["status"],
        **_decisions(past),
        **_receipt(operation, is_full=is_full),
        **({"Lease until": moment(operation["lease_until"])} if "lease_until" in operation else {}),
        "Late receipts": operation["late_receipts"],
    })  # fmt: skip
    for late in operation["late"]:
        said = _json(late["receipt"])
        proof = "proved" if late["proved"] else "not proved"
        click.echo(f"  late, {proof}, {moment(late['received'])}: {plain(said if is_full else _cut(said))}")
    if operation["attempts"]:
        rows = [
            (
                attempt["attempt_id"],
                attempt["mode"],
                moment(attempt["started"]),
                _outcome(attempt, past),
                _said(attempt),
            )
            for attempt in operation["attempts"]
        ]
        print_table(("attempt", "mode", "started", "outcome", "said"), rows)


def _times(operation: View) -> dict[str, object]:
    """Return what the definition says in seconds, as far as it applies."""
    names = {
        "timeout_seconds": "Timeout",
        "retention_seconds": "Key is kept",
        "absence_final_after_seconds": "Absence final",
    }
    return {label: f"{operation[name]:g} s" for name, label in names.items() if operation.get(name)}


def _decisions(past: Sequence[View]) -> dict[str, object]:
    """Return what people decided about an operation, oldest first, as facts of their own."""
    facts: dict[str, object] = {}
    for event in past:
        words = {"abandoned": "stopped for good", "outcome_confirmed": "confirmed: it did not happen"}.get(
            event["event"]
        )
        if words is not None:
            if event.get("happened"):
                words = "confirmed: it happened"
            name = "Decided" + " " * len(facts)
            facts[name] = f"{words}, by {event['actor']}, {moment(event['time'])}: {event['reason']}"
    return facts


def _receipt(operation: View, *, is_full: bool) -> dict[str, object]:
    if operation["receipt"] is None:
        return {}
    words = {"operator_attested": "a person's word", "host_reported": "reported by the host"}
    assurance = str(operation.get("assurance"))
    return {
        **_value("Receipt", operation["receipt"], is_full=is_full),
        "Assurance": f"{assurance} ({words[assurance]})" if assurance in words else assurance,
    }


def _outcome(attempt: View, past: Sequence[View]) -> str:
    """Say how an attempt ended: by a receipt, by a person's word, or not yet."""
    if attempt.get("outcome") is not None:
        return str(attempt["outcome"])
    for event in past:
        if event["event"] == "outcome_confirmed" and event["time"] >= attempt["started"]:
            return f"attested: {'it happened' if event['happened'] else 'did not happen'}"
    return "not ended"


def _said(attempt: View) -> str:
    """Return the sentence of a receipt that is no success."""
    receipt = attempt.get("receipt") or {}
    said = receipt.get("reason", receipt.get("detail", ""))
    return _cut(said) if isinstance(said, str) else ""


def _value(name: str, value: Any, *, is_full: bool) -> dict[str, object]:
    """Return a value as one fact, or a long object as one a member, short ones first."""
    text = _json(value)
    if is_full or len(text) <= _SHORT_CHARS or not isinstance(value, dict):
        return {name: text if is_full else _cut(text)}
    members = sorted(value.items(), key=lambda member: len(_json(member[1])) > _SHORT_CHARS)
    shown = {f"  {plain(key)}": _cut(_json(child)) for key, child in members}
    size_bytes = len(canonical_bytes(value))
    return {name: f"{size_bytes:,} bytes, cut below; all of it with --full or --json", **shown}


def _cut(text: str) -> str:
    if len(text) <= _SHORT_CHARS:
        return text
    return f"{text[:_EXCERPT_CHARS]} … ({len(text):,} characters)"


def _progress(operations: Sequence[View]) -> str:
    completed = sum(operation["status"] == "completed" for operation in operations)
    return f"{completed} of {len(operations)}"


def _capability(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
