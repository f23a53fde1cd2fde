"""`atmem vault restore`: puts a backup in the place of the instance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli.passphrases import known_passphrase, passphrase_option, password_of
from app.cli.terminal import InstanceCommand, ask, json_option, print_facts, print_json, settings
from app.cli.vault_backup import progress, time

if TYPE_CHECKING:
    from app.config import Settings
    from app.renewals import Renewed, Who
    from app.restores import Outcome

_SECOND_US: Final = 1_000_000
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_LISTS: Final = {
    "kept": "What was deleted after the backup stays deleted: the shred list of this instance was kept.",
    "backup": "The shred list is that of the backup, the only one that is known here: what was deleted after the "
    "backup may be back. Delete it again, or restore beside the newest shred list.",
}


@click.command(cls=InstanceCommand)
@click.argument("file", type=_FILE)
@click.option("--as", "username", help="Administrator in the backup, whose password you know: it goes on counting.")
@click.option("--password-file", type=click.File("rb"), help="File whose first line is that password; - for stdin.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask before what is there is replaced.")
@passphrase_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, *, file: Path, username: str | None, password_file: Any, is_sure: bool, passphrase_file: Any,
    as_json: bool,
) -> None:  # fmt: skip
    """Replace the instance by the backup FILE. The server must be stopped.

    FILE is read and proved as a whole before anything is replaced. Afterwards all sessions and credentials are void,
    everybody but you needs a new password, open work waits for a person, and nothing is created enabled until
    `atmem vault close-recovery`. Without --as the first administrator gets a temporary password, shown once.
    """
    from app import restores, wiring

    wanted, overrides = settings(), wiring.overridden(ctx.find_object(wiring.Overrides))
    keys = wiring.key_provider(wanted)
    _ask(wanted, is_sure=is_sure)
    text = known_passphrase(passphrase_file)
    who = who_restores(username, password_file)
    with progress(is_quiet=as_json) as tell:
        outcome = restores.restore(
            wanted, file, text, who=who, keys=keys, now_us=wiring.SystemClock().now_us(), auth=overrides.auth,
            cost=wiring.passphrase_cost(overrides), tell=tell,
        )  # fmt: skip
    problem = wiring.follow_restore(wanted, keys=keys, overrides=overrides)
    _show(outcome, problem, as_json=as_json)


def who_restores(username: str | None, password_file: Any) -> Who:
    """Return whoever restores, his password asked for if he has named himself."""
    from app.renewals import Who

    if username is None:
        if password_file is not None:
            raise click.UsageError("--password-file needs --as.")
        return Who()
    return Who(username, password_of(username, password_file))


def _ask(wanted: Settings, *, is_sure: bool) -> None:
    if wanted.is_postgresql or (wanted.instance / "continuity.db").exists():
        where = "the database of ATMEM_DATABASE_URL" if wanted.is_postgresql else wanted.instance
        ask(f"Replace {where} by the backup? What was done since then is lost.", is_sure=is_sure)


def renewed_json(renewed: Renewed) -> dict[str, Any]:
    """Return for a script what a new epoch made of people."""
    made = renewed.temporary
    return {
        "epoch": renewed.epoch, "username": renewed.username, "password": None if made is None else made.password,
        "password_change_required": made is not None, "people_waiting": renewed.people_waiting,
    }  # fmt: skip


def show_renewed(renewed: Renewed) -> None:
    """Say what a new epoch made of people, and what to do now."""
    made = renewed.temporary
    facts: dict[str, object] = {"Sign in as": renewed.username}
    if made is not None:
        facts["Password"] = f"{made.password}   (temporary, shown once, valid for 24 hours)"
    print_facts(facts)
    click.echo("All sessions and credentials of before are void: issue the credentials of your agents anew.", err=True)
    if renewed.people_waiting:
        click.echo(
            f"{renewed.people_waiting} other accounts need a password: atmem users reset-password NAME", err=True
        )
    click.echo(
        "Work that was open waits for a person (atmem continuity list --state decision), and nothing is created "
        "enabled until: atmem vault close-recovery", err=True,
    )  # fmt: skip


def _show(outcome: Outcome, problem: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json({
            "restored": True, "data_of": outcome.head.made_us / _SECOND_US, "workflows": outcome.head.workflows,
            "deletions": outcome.deletions, "keys": outcome.key_place, "left": problem, **renewed_json(outcome.renewed),
        })  # fmt: skip
        return
    print_facts({"Restored": f"the data of {time(outcome.head.made_us)}", "Workflows": f"{outcome.head.workflows:,}"})
    show_renewed(outcome.renewed)
    click.echo(_LISTS[outcome.deletions], err=True)
    if problem is not None:
        click.echo(f"The next start of the server does the rest: {problem}", err=True)
