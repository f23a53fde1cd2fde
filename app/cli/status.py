"""`atmem status`: where the instance stands and what needs a person."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from app.cli.terminal import InstanceCommand, json_option, print_facts, print_json, print_table, settings, version

if TYPE_CHECKING:
    from app.overview import Overview

_MOST = 1_000
_PHASES = {
    "review": "waits for somebody to review and enable it",
    "decision": "only a person can say how it goes on",
}


@click.command(cls=InstanceCommand)
@json_option
def command(*, as_json: bool) -> None:
    """Show address, versions, database, vault and what needs a person. Exit status 1 if a start would fail."""
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
    })  # fmt: skip
    if found.clock_stepped_us is not None:
        click.echo("Clock       stepped forward: for a while nothing counts as absent because of the time alone.")
    waiting = [(_count(count), phase, _PHASES[phase]) for phase, count in found.needs_a_person.items() if count]
    click.echo()
    if waiting:
        print_table(("workflows", "state", "why"), waiting, title="Needs a person")
        for _, phase, _ in waiting:
            click.echo(f"They are listed by: atmem continuity list --state {phase}")
    elif not found.problems:
        click.echo("Nothing needs a person.")
    for problem in found.problems:
        click.echo(f"Problem: {problem}", err=True)


def _count(count: int) -> str:
    return f"{_MOST:,}+" if count > _MOST else f"{count:,}"
