"""Workflows as text for a terminal. What hosts wrote is shown so that it cannot speak to the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from app.cli.terminal import plain, print_facts, print_table


def moment(at_s: float | None) -> str:
    """Return Unix seconds as a time that a person reads, UTC."""
    return "" if at_s is None else f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def print_page(summaries: Sequence[Mapping[str, Any]]) -> None:
    """Print a page of a list. A workflow whose stored content is damaged has neither key nor operations."""
    rows = [
        (
            summary["workflow_id"],
            summary.get("workflow_key", "(damaged)"),
            summary["phase"],
            summary["scope"]["workspace_id"],
            _progress(summary["operations"]) if "operations" in summary else "",
            moment(summary["created"]),
        )
        for summary in summaries
    ]
    print_table(("workflow_id", "key", "state", "workspace", "completed", "created"), rows)


def print_view(view: Mapping[str, Any]) -> None:
    print_facts({
        "Workflow": view["workflow_id"],
        "Key": view["workflow_key"],
        "Workspace": view["scope"]["workspace_id"],
        "State": view["phase"],
        "Recovery": "enabled" if view["enabled"] else "not enabled",
        "Created": f"{moment(view['created'])} by {view['creator_id']}",
        "Revision": view["revision"],
    })  # fmt: skip
    for operation in view["operations"]:
        click.echo()
        print_operation(operation)


def print_operation(operation: Mapping[str, Any]) -> None:
    """Print what an operation wants to do and everything that was reported about it."""
    facts: dict[str, object] = {
        "Operation": operation["name"],
        "Tool": operation["tool"],
        "Arguments": _json(operation["arguments"]),
        "Capability": _capability(operation["capability"]),
        "Status": operation["status"],
    }
    if operation["receipt"] is not None:
        facts["Receipt"] = _json(operation["receipt"])
        facts["Assurance"] = operation.get("assurance")
    if "lease_until" in operation:
        facts["Lease until"] = moment(operation["lease_until"])
    facts["Late receipts"] = operation["late_receipts"]
    print_facts(facts)
    for late in operation["late"]:
        proof = "proved" if late["proved"] else "not proved"
        click.echo(f"  late, {proof}, {moment(late['received'])}: {plain(_json(late['receipt']))}")
    if operation["attempts"]:
        rows = [
            (attempt["attempt_id"], attempt["mode"], moment(attempt["started"]), attempt.get("outcome", "not ended"))
            for attempt in operation["attempts"]
        ]
        print_table(("attempt", "mode", "started", "outcome"), rows)


def _progress(operations: Sequence[Mapping[str, Any]]) -> str:
    completed = sum(operation["status"] == "completed" for operation in operations)
    return f"{completed} of {len(operations)}"


def _capability(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
