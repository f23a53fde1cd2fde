"""What every command shares: how errors end, how results are printed, where settings come from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import IO, Any, Final

import click

from app.config import InstanceError, Settings, SettingsError, is_scope, load_settings
from continuity.errors import ContinuityError, KeySourceError, MalformedError, ThrottledError

INSTANCE: Final = "The instance is the folder that ATMEM_INSTANCE names, ./instance without it."
_OURS: Final = frozenset({"app", "continuity", "migrations", "observations"})
_FAILED: Final = "failed"
_UNCHANGED: Final = "Nothing was changed."
_WRONG_USAGE: Final = 2
_WIDEST: Final = 100_000
"""Columns of a terminal that never breaks a line."""


class Failure(click.ClickException):
    """An expected error. With ``--json`` it is one JSON object on standard error, as in a reply of the server."""

    def __init__(self, message: str, *, code: str = _FAILED, as_json: bool = False, status: int = 1) -> None:
        super().__init__(message)
        self.exit_code = status
        self.code = code
        self.as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        if self.as_json:
            click.echo(json.dumps({"error": {"code": self.code, "message": self.message}}), err=True)
        else:
            super().show(file)


class Polite:
    """Mixed into click's classes: an expected error ends the command with its one line and the status of `_status`."""

    def invoke(self, ctx: click.Context) -> Any:
        as_json = bool(ctx.params.get("as_json"))
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except click.Abort:
            # Of a question alone, all of which come before anything is done; click's own word does not say so.
            raise Failure(_UNCHANGED, code="not_answered", as_json=as_json) from None
        except ContinuityError as error:
            raise Failure(_told(error), code=error.code, as_json=as_json, status=_status(error)) from None
        except SettingsError as error:
            raise Failure(str(error), code="settings", as_json=as_json, status=_status(error)) from None
        except ModuleNotFoundError as error:
            raise Failure(_missing(error), code="not_installed", as_json=as_json) from None
        except click.ClickException as error:
            if not as_json or isinstance(error, click.UsageError | Failure):
                raise
            raise Failure(error.message, as_json=True) from None


def _status(error: ContinuityError | SettingsError) -> int:
    """Return 2 for a variable, option or argument that cannot be what it is; 1 for what is refused or amiss.

    What a file or a hidden prompt holds is neither: a command that sends it on says so by a `Failure` of its own.
    """
    is_wrong_usage = isinstance(error, MalformedError | SettingsError) and not isinstance(error, InstanceError)
    return _WRONG_USAGE if is_wrong_usage else 1


def ask(question: str, *, is_sure: bool) -> None:
    """Ask before something that cannot be taken back; a no ends the command. ``--yes`` is `is_sure`."""
    if is_sure:
        return
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        # The question's line has no end where nobody has typed one.
        click.echo(err=True)
        hint = "" if sys.stdin.isatty() else " Where there is no terminal to answer at, --yes answers."
        raise click.ClickException(f"{_UNCHANGED}{hint}") from None


def _told(error: ContinuityError) -> str:
    """Return what the error says; of a key's file also the variable, of too many tries when the next one may be."""
    if isinstance(error, KeySourceError):
        from app import instance

        return instance.of_key(settings(), error, environ=os.environ)
    if not isinstance(error, ThrottledError):
        return error.message
    return f"{error.message.removesuffix(' Try again later.')} Try again in {error.retry_after_s} s."


def _missing(error: ModuleNotFoundError) -> str:
    """Say what to install; a module of ours that is not there is no such matter."""
    library = (error.name or "").partition(".")[0]
    if library in _OURS:
        raise error
    is_postgresql = library.startswith("psycopg")
    wanted = "ATMEM_DATABASE_URL names PostgreSQL, and " if is_postgresql else ""
    extra = "server,postgres" if is_postgresql else "server,kms" if library == "hvac" else "server"
    return f"{wanted}{library} is not installed. In the checkout: python -m pip install '.[{extra}]'"


class Command(Polite, click.Command):
    """A command that ends as `Polite` says."""


class Group(Polite, click.Group):
    """A noun with verbs that are `Command`."""

    command_class = Command


def _forbid_core_dumps() -> None:
    """Whoever works on an instance may hold its keys: a crash must not leave them in a file."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class InstanceCommand(Command):
    """A command that works on an instance of this host, and says in its help which one that is."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("epilog", INSTANCE)
        super().__init__(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        _forbid_core_dumps()
        return super().invoke(ctx)


class InstanceGroup(Group):
    """A noun with verbs that are `InstanceCommand`."""

    command_class = InstanceCommand


def version() -> str:
    """Return the installed version of the product."""
    try:
        return installed_version("atmem-continuity")
    except PackageNotFoundError:
        return "0+source"


def settings() -> Settings:
    """Read the settings of this process's environment."""
    return load_settings(os.environ)


def checked_scope(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse text that no observation scope can have as its name, before anything is asked or sent."""
    if value is not None and not is_scope(value):
        raise click.BadParameter("must be 1 to 128 of A-Z a-z 0-9 _ -.")
    return value


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``, given to the function as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")(command)


def print_json(value: Any) -> None:
    """Print the result for a script."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print rows for a person. A line is as long as it must be: nothing is folded, so that ids can be copied."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    Console(width=_WIDEST).print(table)


def print_facts(facts: dict[str, object]) -> None:
    """Print names and values for a person, one pair a line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        click.echo(f"{name.ljust(width)}  {plain(value)}")


def plain(value: object) -> str:
    """Return `value` as text that cannot speak to the terminal: control and direction characters are spelled out."""
    text = "" if value is None else str(value)
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)
