"""`atmem db`: bring the database to this version's tables, or check it."""

from __future__ import annotations

import click

from app.cli.terminal import InstanceGroup, json_option, print_json, settings


@click.group(cls=InstanceGroup)
def command() -> None:
    """Bring the database to this version's form, or check it."""


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
