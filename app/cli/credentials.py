"""`atmem continuity credential` and `revoke`: who may do what, for how long. People alone issue and revoke."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import click

from app.cli import workflow_text
from app.cli.remote import Server, as_person, signed_in
from app.cli.terminal import checked_scope, json_option, print_facts, print_json
from continuity.errors import ContinuityError, error_from_code

_WORKFLOW_ID: Final = re.compile(r"wf_[0-9a-f]{32}")
_EXPIRY: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_OPTION_OF: Final = {
    "principal_id": "--principal", "workspace_id": "--workspace", "run_id": "WORKFLOW_ID",
    "expires_in_seconds": "--expires in seconds", "observation_scope": "--scope", "agents": "--agents",
}  # fmt: skip
_LONGEST_S: Final = 365 * 86_400
"""The server's own bound; it refuses more in any case."""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def checked_id(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Take a workflow_id, or nothing."""
    if value is not None and not _WORKFLOW_ID.fullmatch(value):
        raise click.BadParameter("a workflow_id is wf_ and 32 hexadecimal digits.")
    return value


@click.command("credential")
@click.argument("workflow_id", required=False, callback=checked_id)
@click.option("--principal", "principal_id", required=True, help="Name of who gets it; the same name, the same kind.")
@click.option("--coordinator", "is_coordinator", is_flag=True, help="For dynamically chosen work in one workspace.")
@click.option("--observer", "is_observer", is_flag=True, help="For producers of observations; needs --scope.")
@click.option("--scope", callback=checked_scope, help="Observation scope into which an observer's events go.")
@click.option("--thread-worker", "is_thread_worker", is_flag=True, help="For running agents; needs --agents.")
@click.option("--agents", help="Names of the agents whose runs a thread worker may claim: one,two.")
@click.option("--application", "is_application", is_flag=True, help="For a program that talks for its own subjects.")
@click.option("--workspace", help="Workspace it is for; without one an operator's reaches all of the issuer's.")
@click.option("--expires", default="90d", show_default=True, help="How long it lives: 30m, 12h, 90d.")
@click.option("--token-only", is_flag=True, help="Print just the secret, for $(…).")
@as_person
@json_option
def credential(
    *, server: Server, workflow_id: str | None, principal_id: str, scope: str | None, agents: str | None,
    workspace: str | None, expires: str, token_only: bool, as_json: bool, **kinds: bool,
) -> None:  # fmt: skip
    """Issue a credential: a worker's for WORKFLOW_ID, an operator's without one. It is shown this once."""
    role = _role(workflow_id, kinds)
    _require_together("--observer", kinds["is_observer"], "--scope", scope)
    _require_together("--thread-worker", kinds["is_thread_worker"], "--agents", agents)
    body = {
        "principal_id": principal_id,
        "role": role,
        "run_id": workflow_id,
        "observation_scope": scope,
        "agents": None if agents is None else agents.split(","),
        "workspace_id": workspace,
        "expires_in_seconds": _seconds(expires),
    }
    with signed_in(server) as person, _named_as_options():
        issued = person.call("POST", "/v1/evidence/grants", {name: value for name, value in body.items() if value})
    if token_only:
        click.echo(issued["token"])
    elif as_json:
        print_json(issued)
    else:
        print_facts({
            "Principal": issued["principal_id"],
            "Role": issued["role"],
            "Expires": workflow_text.moment(issued["expires_at"]),
            "Token": issued["token"],
        })  # fmt: skip
        click.echo(f"The token is shown this once. {_HOLDERS[role]}.", err=True)


_HOLDERS: Final = {
    "evidence_collector": (
        "It is a person's power, for whoever prepares and enables work, not for the agent: ATMEM_EVIDENCE_TOKEN"
    ),
    "continuity_host": "Put it where the worker reads ATMEM_EVIDENCE_TOKEN",
    "continuity_coordinator": "Put it where the agent reads ATMEM_EVIDENCE_TOKEN",
    "continuity_observer": "Put it where the producer reads ATFLOWS_CONTINUITY_TOKEN",
    "thread_worker": "Put it where the program that runs the agents reads it",
    "thread_application": "Put it where your program reads it; it says in Atmem-Subject for whom it acts",
}
_KINDS: Final = {
    "is_coordinator": ("--coordinator", "continuity_coordinator", "A coordinator makes its own workflows"),
    "is_observer": ("--observer", "continuity_observer", "An observer belongs to no workflow"),
    "is_thread_worker": ("--thread-worker", "thread_worker", "A thread worker runs agents"),
    "is_application": ("--application", "thread_application", "An application talks for its subjects"),
}
"""Option, role on the wire, and why WORKFLOW_ID is left out."""


def _role(workflow_id: str | None, kinds: Mapping[str, bool]) -> str:
    wanted = [_KINDS[name] for name, is_wanted in kinds.items() if is_wanted]
    if len(wanted) > 1:
        raise click.UsageError(f"A credential is of one kind: {' or '.join(option for option, _, _ in wanted)}.")
    if not wanted:
        return "evidence_collector" if workflow_id is None else "continuity_host"
    _, role, why = wanted[0]
    if workflow_id is not None:
        raise click.UsageError(f"{why}: leave WORKFLOW_ID out.")
    return role


def _require_together(option: str, is_wanted: bool, needed: str, given: str | None) -> None:  # noqa: FBT001
    if is_wanted != (given is not None):
        raise click.UsageError(f"{option} and {needed} need each other.")


@click.command("revoke")
@click.argument("principal_id")
@click.option("--workspace", help="Only its credentials for this workspace.")
@as_person
@json_option
def revoke(*, server: Server, principal_id: str, workspace: str | None, as_json: bool) -> None:
    """End the credentials of PRINCIPAL_ID, from the next request on."""
    body = {"principal_id": principal_id} | ({"workspace_id": workspace} if workspace else {})
    with signed_in(server) as person, _named_as_options():
        done = person.call("POST", "/v1/evidence/revoke", body)
    if as_json:
        print_json(done)
    else:
        click.echo(f"Revoked: {done['revoked']}.")


@contextmanager
def _named_as_options() -> Iterator[None]:
    """Turn the names of request fields in a refusal into those of the options that fill them."""
    try:
        yield
    except ContinuityError as error:
        message = error.message
        for field, option in _OPTION_OF.items():
            message = re.sub(rf"\b{field}\b", option, message)
        raise error_from_code(error.code, message) from None


def _seconds(text: str) -> int:
    found = _EXPIRY.fullmatch(text)
    if found is None:
        raise click.UsageError("--expires must be a number and one of s, m, h, d: 30m, 12h, 90d.")
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > _LONGEST_S:
        raise click.UsageError("--expires must be 365d at most.")
    return seconds
