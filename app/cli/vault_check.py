"""`atmem vault check`: open everything that is sealed, and say what does not open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from app.cli import vault_passphrases as passphrases
from app.cli.passphrases import passphrase_option
from app.cli.terminal import InstanceCommand, json_option, print_json, settings


@click.command(cls=InstanceCommand)
@passphrase_option
@json_option
@click.pass_context
def check(ctx: click.Context, *, passphrase_file: Any, as_json: bool) -> None:
    """Open every data key and every sealed row once, beside a running server; changes nothing.

    The histories of workflows, runs of evidence and journals of threads are walked as well, and compared with what
    is shown of them.

    Exit status 1 when something does not open, or contradicts what is written beside it.
    """
    from app import vault_checks, wiring

    wanted = settings()
    passphrase = passphrases.known(passphrase_file) if wanted.vault_key_source == "passphrase" else None
    keys = wiring.key_provider(wanted, passphrase=passphrase)
    overrides = ctx.find_object(wiring.Overrides)
    with wiring.built(wanted, keys=keys, overrides=overrides) as built, _progress(is_quiet=as_json) as progress:
        walked, contradictions = vault_checks.check(built, progress)
    if as_json:
        print_json({
            "sound": not walked.unreadable and not contradictions,
            "data_keys": walked.data_keys, "rows": walked.rows, "unreadable": walked.unreadable,
            "findings": [asdict(each) for each in walked.findings],
            "contradictions": [asdict(each) for each in contradictions],
        })  # fmt: skip
    else:
        _tell(walked, contradictions)
    if walked.unreadable or contradictions:
        raise click.exceptions.Exit(1)


def _tell(walked: Any, contradictions: Any) -> None:
    click.echo(f"{walked.data_keys:,} data keys and {walked.rows:,} sealed rows were tried.")
    if not walked.unreadable and not contradictions:
        click.echo("All of them open, and nothing contradicts itself.")
        return
    for each in walked.findings:
        named = "no data key" if each.key_id is None else f"master key {each.key_id}"
        click.echo(f"Unreadable: {each.partition_id} ({named}), {each.where}", err=True)
    if walked.unreadable > len(walked.findings):
        click.echo(
            f"{walked.unreadable:,} do not open in all; those under an unreadable data key are counted.", err=True
        )
    for each in contradictions:
        click.echo(f"{each.object_id}: {each.problem}", err=True)


@contextmanager
def _progress(*, is_quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Say how far it is, on one line."""
    told = ""

    def tell(what: str, count: int) -> None:
        nonlocal told
        if is_quiet or count < 1_000:  # noqa: PLR2004 - who waits for less needs no progress
            return
        told = what
        click.echo(f"\r{count:,} {what}      ", nl=False, err=True)

    try:
        yield tell
    finally:
        if told:
            click.echo(err=True)
