"""`atmem db`: bring the database to this version's tables, check it, or move it to PostgreSQL."""

from __future__ import annotations

from dataclasses import asdict

import click

from app.cli.terminal import InstanceGroup, json_option, print_json, settings
from app.cli.vault_backup import progress


@click.group(cls=InstanceGroup)
def command() -> None:
    """Bring the database to this version's form, check it, or move it to PostgreSQL."""


@command.command()
@json_option
def upgrade(*, as_json: bool) -> None:
    """Run the migrations that are missing, one transaction each. Safe to repeat."""
    from app import commanding

    done = commanding.upgrade(settings())
    if as_json:
        print_json({"upgraded": done})
    elif done:
        click.echo(f"Upgraded: {', '.join(done)}.")
    else:
        click.echo("Nothing to do.")


@command.command()
@json_option
def check(*, as_json: bool) -> None:
    """Say whether the database is sound: revision, tables, integrity."""
    from app import commanding

    problems = commanding.check_database(settings())
    if as_json:
        print_json({"sound": not problems, "problems": problems})
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise click.exceptions.Exit(1)
    if not as_json:
        click.echo("The database is sound.")


@command.command(name="migrate-to")
@click.argument("url", callback=lambda _ctx, _parameter, value: _address(value))
@json_option
def migrate_to(*, url: str, as_json: bool) -> None:
    """Move the vault from SQLite into the empty PostgreSQL database at URL. The server must be stopped.

    Every row is copied and then compared. It can be killed anywhere: the same command goes on. The SQLite file stays
    as it is. Give the password by PGPASSWORD or a .pgpass file: a command line is seen by others.
    """
    from app import moving

    with progress(is_quiet=as_json) as tell:
        moved = moving.move(settings(), url, tell=tell)
    if as_json:
        print_json({"moved": True, **asdict(moved)})
        return
    if moved.was_done:
        click.echo("The vault is there already: the move has ended before.")
    else:
        click.echo(f"Moved: {moved.rows:,} rows of {moved.tables} tables, each compared.")
    click.echo(f"Set ATMEM_DATABASE_URL={url} (with its password, if it has one) and start the server.", err=True)
    click.echo("Keep the SQLite file as a copy of today: nothing is served from it any more.", err=True)


def _address(value: str) -> str:
    from app import moving

    try:
        moving.check_address(value)
    except moving.MovingError as error:
        raise click.BadParameter(error.message, param_hint="URL") from None
    return value
