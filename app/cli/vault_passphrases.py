"""The passphrases of the vault's keys: typed without echo, or the first line of a file or of standard input."""

from __future__ import annotations

from typing import Any

import click

from app.cli.passphrases import first_line

_OPTION = "--passphrase-file"


def known(passphrase_file: Any, question: str = "The vault's passphrase") -> str:
    """Return a passphrase that exists: of the file, else asked for once."""
    if passphrase_file is not None:
        return _of_file(passphrase_file)
    return str(click.prompt(question, hide_input=True, err=True))


def new(passphrase_file: Any, question: str) -> str:
    """Return a passphrase that is given now: of the file, else asked for twice."""
    if passphrase_file is not None:
        return _of_file(passphrase_file)
    return str(click.prompt(question, hide_input=True, confirmation_prompt=True, err=True))


def _of_file(stream: Any) -> str:
    text = first_line(stream, _OPTION)
    if not text:
        raise click.ClickException(f"The first line of the file of {_OPTION} is empty.")
    return text
