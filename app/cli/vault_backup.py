"""`atmem vault backup`: everything of an instance in one sealed file, while its server runs; or a proof of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli.passphrases import known_passphrase, new_passphrase, passphrase_option
from app.cli.terminal import InstanceCommand, json_option, print_facts, print_json, settings

if TYPE_CHECKING:
    from app.backups import Made

_SECOND_US: Final = 1_000_000
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=InstanceCommand)
@click.argument("file", type=_FILE)
@click.option("--check", "is_check", is_flag=True, help="Make none: prove that FILE is whole, opens and has its keys.")
@passphrase_option
@json_option
@click.pass_context
def command(ctx: click.Context, *, file: Path, is_check: bool, passphrase_file: Any, as_json: bool) -> None:
    """Write everything of the instance into FILE, sealed under a passphrase: database, keys, accounts.

    The server may run meanwhile. FILE is new, and readable by you alone.
    """
    from app import backups, wiring

    if is_check:
        with progress(is_quiet=as_json) as tell:
            made = backups.check(file, known_passphrase(passphrase_file), tell=tell)
        _show(made, "proved", as_json=as_json)
        return
    if file.exists():
        # Before anything is asked.
        raise click.ClickException(f"{file} is there already, and is not written over. Nothing was changed.")
    overrides = ctx.find_object(wiring.Overrides)
    with wiring.built(settings(), overrides=overrides) as wired:
        text = new_passphrase(passphrase_file)
        with progress(is_quiet=as_json) as tell:
            made = backups.make(wired, wired.vault_life.keyring, file, text, tell=tell, cost=wired.passphrase_cost)
    _show(made, "made", as_json=as_json)


def _show(made: Made, what: str, *, as_json: bool) -> None:
    head = made.head
    if as_json:
        print_json({
            "file": str(made.path), what: True, "bytes": made.size_bytes, "data_of": head.made_us / _SECOND_US,
            "database": head.kind, "revision": head.revision, "workflows": head.workflows, "epoch": head.epoch,
        })  # fmt: skip
        return
    print_facts({
        "File": made.path,
        "Size": f"{made.size_bytes:,} bytes",
        "Data of": time(head.made_us),
        "Database": {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[head.kind],
        "Workflows": f"{head.workflows:,}",
    })  # fmt: skip
    if what == "made":
        click.echo("Keep the passphrase elsewhere: without it nobody opens the file.", err=True)
    else:
        click.echo("The file is whole, and its keys open its vault.", err=True)


def time(at_us: int) -> str:
    """Spell a time for a person."""
    return f"{datetime.fromtimestamp(at_us // _SECOND_US, UTC):%Y-%m-%d %H:%M:%S} UTC"


@contextmanager
def progress(*, is_quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Say how far long work is, on one line a step."""
    told: list[tuple[str, int]] = []

    def tell(step: str, done: int, whole: int) -> None:
        percent = 100 * done // whole if whole else 100
        if is_quiet or told[-1:] == [(step, percent)]:
            return
        if told and told[-1][0] != step:
            click.echo(err=True)
        told[:] = [(step, percent)]
        click.echo(f"\r{step} {percent} %", nl=False, err=True)

    try:
        yield tell
    finally:
        if told:
            click.echo(err=True)
