"""`atmem status`: where the instance stands and what needs a person."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from app.cli.terminal import InstanceCommand, json_option, print_facts, print_json, print_table, settings, version

if TYPE_CHECKING:
    from app.overview import Overview

_MOST = 1_000
_PHASES = {
    "review": "waits for somebody to review and enable it",
    "decision": "only a person can say how it goes on",
}
_STATES = {
    "needs_attention": "nothing goes on until somebody resumes or stops it",
    "waiting": "its owner is asked something",
}


@click.command(cls=InstanceCommand)
@json_option
def command(*, as_json: bool) -> None:
    """Show address, versions, database, vault, audit log and what needs a person.

    Exit status 1 if a start would fail or the audit log is not whole.
    """
    from app import overview

    found = overview.look(settings())
    if as_json:
        print_json({"version": version(), "atflows_url": found.url, **asdict(found)})
    else:
        _show(found)
    if found.problems:
        raise click.exceptions.Exit(1)


def _show(found: Overview) -> None:
    database, vault = found.database, found.vault
    print_facts({
        "Dashboard": f"{found.url}   ({'running' if found.is_running else 'not running'})",
        "AtFlows": found.url,
        "Version": version(),
        "Instance": found.instance,
        "Database": f"{database['kind']} {database['version']} ({database['driver']}), "
        f"journal {database['journal_mode']}, synchronous {database['synchronous']}",
        "Vault": f"format {vault['format']}, capture {vault['capture_mode']}, "
        f"{vault['state'] if vault['opens'] else 'cannot be opened'}, key {vault['key_id']} from {vault['key_source']}",
        "Workflows": ", ".join(f"{_count(n)} {phase}" for phase, n in found.workflows.items() if n) or "none",
        "Threads": ", ".join(f"{_count(n)} {state.replace('_', ' ')}" for state, n in found.threads.items() if n)
        or "none that is not idle",
    })  # fmt: skip
    click.echo(_log(found.audit))
    if found.clock_stepped_us is not None:
        click.echo("Clock      stepped forward: for a while nothing counts as absent because of the time alone.")
    if vault["recovery_open"]:
        click.echo(_recovery(vault))
    waiting = [(_count(count), phase, _PHASES[phase]) for phase, count in found.needs_a_person.items() if count]
    click.echo()
    if waiting:
        print_table(("workflows", "state", "why"), waiting, title="Needs a person")
        for _, phase, _ in waiting:
            click.echo(f"They are listed by: atmem continuity list --state {phase}")
    talks = [
        (_count(count), state, _STATES[state]) for state, count in found.threads.items() if count and state in _STATES
    ]
    if talks:
        print_table(("threads", "state", "why"), talks, title=None if waiting else "Needs a person")
        for _, state, _ in talks:
            click.echo(f"They are listed by: atmem threads list --all --state {state}")
    for reason in (standing := _of_vault(vault)):
        click.echo(reason)
    if not (waiting or talks or standing or found.problems):
        click.echo("Nothing needs a person.")
    for problem in found.problems:
        click.echo(f"Problem: {problem}", err=True)


def _of_vault(vault: dict[str, Any]) -> list[str]:
    """Say what the vault itself waits for: nothing else that is listed says it."""
    told = []
    if vault["locked"]:
        told.append("The vault is locked, and all work stands still until: atmem vault unlock")
    if vault["recovery_open"]:
        told.append("The recovery window is open until: atmem vault close-recovery")
    return told


def _log(audit: dict[str, Any] | None) -> str:
    if audit is None:
        return "Audit log  not verified yet: a server does it when it starts."
    when = f"{datetime.fromtimestamp(audit['checked_us'] // 1_000_000, UTC):%Y-%m-%d %H:%M} UTC"
    return f"Audit log  {'not whole' if audit['faults'] else 'whole'}, verified {when}"


def _recovery(vault: dict[str, Any]) -> str:
    restored, data = (_time(vault[name]) for name in ("restored_us", "restored_from_us"))
    return (
        f"Recovery   a backup was restored {restored}, with the data of {data}. What was done between is not known "
        "here.\n           Open work waits for a person, and new work is created disabled until: atmem vault "
        "close-recovery"
    )


def _time(at_us: int | None) -> str:
    return "never" if at_us is None else f"{datetime.fromtimestamp(at_us // 1_000_000, UTC):%Y-%m-%d %H:%M} UTC"


def _count(count: int) -> str:
    return f"{_MOST:,}+" if count > _MOST else f"{count:,}"
