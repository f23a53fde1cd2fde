"""`atmem vault close-recovery`: work may be created enabled again after a restore."""

from __future__ import annotations

from typing import Final

import click

from app.cli.terminal import InstanceCommand, json_option, print_json, settings
from app.cli.vault_backup import time

_SECOND_US: Final = 1_000_000


@click.command(cls=InstanceCommand)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Close the recovery window after a restore: work is created enabled again where that is asked for.

    Work that waits for a person goes on waiting. Close it once you know what was done after the backup was made.
    """
    from app import vault_life, wiring

    with wiring.built(settings(), overrides=ctx.find_object(wiring.Overrides)) as wired:
        is_closed_now = wired.recovery.close(vault_life.LOCAL)
        status = wired.recovery.status()
    if as_json:
        restored_us = status.restored_us
        print_json({
            "recovery_open": status.is_open, "changed": is_closed_now,
            "restored": None if restored_us is None else restored_us / _SECOND_US,
        })  # fmt: skip
    elif is_closed_now and status.restored_us is not None:
        click.echo(f"The recovery window of the restore of {time(status.restored_us)} is closed.")
    else:
        click.echo("No recovery window is open. Nothing was changed.")
