"""What every command shares: how errors end, how results are printed, where settings come from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any

import click

from app.config import Settings, SettingsError, load_settings
from continuity.errors import ContinuityError


class Polite:
    """Mixed into click's classes: an expected error ends the command with its one line and status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except ContinuityError as error:
            raise click.ClickException(error.message) from None
        except SettingsError as error:
            raise click.ClickException(str(error)) from None


class Command(Polite, click.Command):
    """A command that ends as `Polite` says."""


class Group(Polite, click.Group):
    """A noun with verbs that are `Command`."""

    command_class = Command


def version() -> str:
    """Return the installed version of the product."""
    try:
        return installed_version("atmem-continuity")
    except PackageNotFoundError:
        return "0+source"


def settings() -> Settings:
    """Read the settings of this process's environment."""
    return load_settings(os.environ)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``, given to the function as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)


def print_json(value: Any) -> None:
    """Print the result for a script."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print rows for a person."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    Console(soft_wrap=False).print(table)


def print_facts(facts: dict[str, object]) -> None:
    """Print names and values for a person, one pair a line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        click.echo(f"{name.ljust(width)}  {plain(value)}")


def plain(value: object) -> str:
    """Return `value` as text that cannot speak to the terminal: control and direction characters are spelled out."""
    text = "" if value is None else str(value)
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)
