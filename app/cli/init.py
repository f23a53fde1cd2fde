"""`atmem init`: make an instance."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from app.cli import vault_passphrases as passphrases
from app.cli.passphrases import passphrase_option
from app.cli.terminal import InstanceCommand, json_option, print_json, settings

if TYPE_CHECKING:
    from app.config import Settings


@click.command(cls=InstanceCommand)
@passphrase_option
@json_option
@click.pass_context
def command(ctx: click.Context, *, passphrase_file: Any, as_json: bool) -> None:
    """Make folder, keys, database and the first administrator. Safe to repeat: what is there stays.

    The administrator's temporary password is shown this once; it must be changed at the first sign-in.
    Where the key source is a passphrase (docs/keys.md), the new vault's passphrase is asked for.
    """
    from app import commanding, wiring

    wanted = settings()
    passphrase = _passphrase(wanted, passphrase_file)
    bootstrap = commanding.initialise(wanted, overrides=ctx.find_object(wiring.Overrides), passphrase=passphrase)
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
    serve = "atmem serve --port PORT" if _is_taken(wanted) else "atmem serve"
    click.echo(f"Next        {serve}, and in another shell: atmem users change-password {bootstrap.username}")


def _passphrase(wanted: Settings, passphrase_file: Any) -> str | None:
    """Return the passphrase of the vault's keys, a new one twice; None where another source keeps them."""
    if wanted.vault_key_source != "passphrase":
        return None
    if wanted.vault_key_file.exists():
        return passphrases.known(passphrase_file, "The vault's passphrase")
    return passphrases.new(passphrase_file, "New passphrase of the vault")


def _dashboard(wanted: Settings) -> str:
    """Return where the pages will be; with the default address somebody else's server may answer there already."""
    from app import instance

    if os.environ.get("ATMEM_URL"):
        return wanted.url
    if _is_taken(wanted):
        return f"where `atmem serve --port PORT` says: another server answers at {wanted.url}"
    return (
        f"{instance.served_at(wanted.instance) or wanted.url}   (once `atmem serve` runs; --port makes it another one)"
    )


def _is_taken(wanted: Settings) -> bool:
    """Say whether the server of another instance answers at the default address."""
    from app import instance, overview

    is_default = not os.environ.get("ATMEM_URL")
    return is_default and instance.served_at(wanted.instance) is None and overview.answers(wanted.url)
