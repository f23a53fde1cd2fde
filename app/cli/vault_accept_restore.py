"""`atmem vault accept-restore`: says that an older database was put back on purpose."""

from __future__ import annotations

from typing import Any

import click

from app.cli.terminal import InstanceCommand, ask, json_option, print_json, settings
from app.cli.vault_restore import renewed_json, show_renewed, who_restores


@click.command(cls=InstanceCommand)
@click.option("--as", "username", help="Administrator of that database, whose password you know.")
@click.option("--password-file", type=click.File("rb"), help="File whose first line is that password; - for stdin.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(ctx: click.Context, *, username: str | None, password_file: Any, is_sure: bool, as_json: bool) -> None:
    """Accept a database that is older than the instance remembers. The server must be stopped.

    The same rules hold as after `atmem vault restore`.
    """
    from app import renewals, wiring

    wanted, overrides = settings(), wiring.overridden(ctx.find_object(wiring.Overrides))
    keys = wiring.key_provider(wanted)
    ask("Go on with the older database? What was done after it is lost.", is_sure=is_sure)
    renewed = renewals.accept(
        wanted, who=who_restores(username, password_file), keys=keys, now_us=wiring.SystemClock().now_us(),
        auth=overrides.auth,
    )  # fmt: skip
    problem = wiring.follow_restore(wanted, keys=keys, overrides=overrides)
    if as_json:
        print_json({"accepted": True, "left": problem, **renewed_json(renewed)})
        return
    show_renewed(renewed)
    if problem is not None:
        click.echo(f"The next start of the server does the rest: {problem}", err=True)
