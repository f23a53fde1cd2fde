"""`atmem vault capture`: what the vault keeps of what agents do. An HTTP client; administrators alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from app.cli.remote import Server, as_person, signed_in
from app.cli.terminal import Command, ask, json_option, print_facts, print_json
from continuity.evidence import CAPTURE_MODES

_PATH: Final = "/v1/evidence/settings/capture-mode"
_KEEPS: Final = {
    "full": "exact content is kept",
    "metadata": "size, SHA-256 and type are kept in place of content, and no work can begin",
    "off": "nothing is recorded, and no work can begin",
}


@click.command("capture", cls=Command)
@click.argument("mode", required=False, type=click.Choice(CAPTURE_MODES))
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@as_person
@json_option
def command(*, server: Server, mode: str | None, is_sure: bool, as_json: bool) -> None:
    """Show what is kept of what agents do, or change it to full, metadata or off.

    Leaving full is refused while an enabled workflow is unfinished or an operation is uncertain; without MODE you are
    told which.
    """
    if mode not in {None, "full"}:
        ask(f"From now on {_KEEPS[str(mode)]}. Change it?", is_sure=is_sure)
    with signed_in(server) as person:
        state = person.call("GET", _PATH) if mode is None else person.call("POST", _PATH, {"capture_mode": mode})
    if as_json:
        print_json(state)
        return
    print_facts({"Capture mode": state["capture_mode"], "Meaning": _KEEPS[state["capture_mode"]]})
    if state["capture_mode"] == "full":
        _tell_blocking(state["blocking"])


def _tell_blocking(blocking: Mapping[str, Any]) -> None:
    if not blocking["count"]:
        click.echo("Nothing stands in the way of another mode.")
        return
    count = f"more than {blocking['count']}" if blocking["is_more"] else blocking["count"]
    click.echo(f"Unfinished work needs it: {count}. Pause what is enabled, resolve what is uncertain:")
    for each in blocking["workflows"]:
        click.echo(f"  {each['workflow_id']}  {each['because']}")
