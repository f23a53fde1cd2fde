"""The delivery: HTTP and the command line. Knows Flask, roles and terminals, and decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from app.config import Settings
    from app.wiring import Wiring

__all__ = ["create_app"]


def create_app(settings: Settings | None = None, *, wiring: Wiring | None = None) -> Flask:
    """Make the Flask application, for `wiring` or else for what the environment says.

    Without `wiring` nothing is opened before the first request: ``flask --app app init`` needs an application
    before there is an instance.
    """
    from app import application, cli  # noqa: PLC0415 - importing a command must not load the server

    cli.check_command()
    made = application.make(settings, wiring)
    # The commands of `atmem`, as `flask --app app` finds them.
    made.cli = cli.LazyGroup(name="app")
    return made
