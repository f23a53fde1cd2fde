"""`atmem openapi`: the HTTP contract, without a server."""

from __future__ import annotations

import click

from app.cli.terminal import Command, json_option, print_json, settings


@click.command(cls=Command)
@json_option
def command(*, as_json: bool) -> None:
    """Print the HTTP contract as OpenAPI 3.1. Needs no instance."""
    from app import application
    from app.api.documentation import document

    # It has one form, and that is JSON, with the option or without.
    del as_json
    print_json(document(application.make(settings(), None)))
