"""Asks for passphrases and for the one password of a restore: at the terminal without echo, or from a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

_BYTES_MAX: Final = 8_192


def passphrase_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--passphrase-file``, given to the function as `passphrase_file`."""
    return click.option(
        "--passphrase-file", type=click.File("rb"),
        help="File whose first line is the passphrase; - for standard input. Else it is asked for.",
    )(command)  # fmt: skip


def new_passphrase(passphrase_file: Any) -> str:
    """Return a passphrase that something is to be sealed under; at the terminal it is asked for twice."""
    if passphrase_file is not None:
        return first_line(passphrase_file, "--passphrase-file")
    _check_terminal("--passphrase-file")
    click.echo(
        "12 characters or more. Whoever has it and the file has everything; without it the file is lost.", err=True
    )
    return str(click.prompt("Passphrase of the backup", hide_input=True, confirmation_prompt=True, err=True))


def known_passphrase(passphrase_file: Any) -> str:
    """Return the passphrase of a file."""
    if passphrase_file is not None:
        return first_line(passphrase_file, "--passphrase-file")
    _check_terminal("--passphrase-file")
    return str(click.prompt("Passphrase of the backup", hide_input=True, err=True))


def password_of(username: str, password_file: Any) -> str:
    """Return the password of whoever restores."""
    if password_file is not None:
        return first_line(password_file, "--password-file")
    _check_terminal("--password-file")
    return str(click.prompt(f"Password of {username} in the backup", hide_input=True, err=True))


def lines_of(raw: bytes) -> list[str]:
    """Return lines of what was typed, without their ends and nothing else taken away; UnicodeDecodeError.

    A line ends with a line feed and nothing else: a passphrase may have any other character that is said to end one.
    """
    return [line.removesuffix("\r") for line in raw.decode("utf-8").removesuffix("\n").split("\n")] if raw else []


def first_line(stream: Any, option: str) -> str:
    """Return the first line of a file, without its end and nothing else taken away."""
    try:
        text = stream.readline(_BYTES_MAX).decode("utf-8")
    except UnicodeDecodeError:
        raise click.ClickException(f"The file of {option} must be UTF-8.") from None
    return str(text).removesuffix("\n").removesuffix("\r")


def _check_terminal(option: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"There is no terminal to ask at: give {option}.")
