"""`atmem init`: make an instance."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from app.cli.terminal import InstanceCommand, json_option, print_json, settings

if TYPE_CHECKING:
    from app.config import Settings


@click.command(cls=InstanceCommand)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Make folder, keys, database and the first administrator. Safe to repeat: what is there stays.

    The administrator's temporary password is shown this once; it must be changed at the first sign-in.
    """
    from app import wiring

    wanted = settings()
    bootstrap = wiring.initialise(wanted, overrides=ctx.find_object(wiring.Overrides))
    if as_json:
        shown = None
        if bootstrap is not None:
            shown = {
                "username": bootstrap.username,
                "password": bootstrap.password,
                "password_change_required": True,
            }
        print_json({"bootstrap": shown, "url": wanted.url})
        return
    click.echo(f"Instance    {wanted.instance}")
    click.echo(f"Dashboard   {_dashboard(wanted)}")
    if bootstrap is None:
        click.echo("Everything was there already; nothing was changed. `atmem serve` starts the server.")
        return
    click.echo(f"Username    {bootstrap.username}")
    click.echo(f"Password    {bootstrap.password}   (temporary: shown once, valid for 24 hours)")
    click.echo(f"Next        atmem serve, and in another shell: atmem users change-password {bootstrap.username}")


def _dashboard(wanted: Settings) -> str:
    """Return where the pages will be; with the default address somebody else's server may answer there already."""
    from app import instance, overview

    if os.environ.get("ATMEM_URL"):
        return wanted.url
    if instance.served_at(wanted.instance) is None and overview.answers(wanted.url):
        return f"where `atmem serve --port PORT` says: another server answers at {wanted.url}"
    return (
        f"{instance.served_at(wanted.instance) or wanted.url}   (once `atmem serve` runs; --port makes it another one)"
    )
