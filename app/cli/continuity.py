"""`atmem continuity`: credentials, and the work that they are for. Each command is an HTTP client.

What a credential may do is done with the one in ATMEM_EVIDENCE_TOKEN (``--token-env``), or else as a person who
signs in. Issuing and revoking credentials and confirming an outcome is for people alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, Final
from urllib.parse import urlencode

import click

from app.cli import credentials, refusals, workflow_advice, workflow_text
from app.cli.remote import PersonConnection, Server, as_anybody, as_person, connected, signed_in
from app.cli.terminal import Failure, Group, ask, json_option, print_json
from continuity import limits
from continuity.decisions.phases import Phase
from continuity.errors import ContinuityError, MalformedError
from continuity.jsontext import loads_strict
from continuity.transport import VIEW_BYTES, Connection

_ROOT: Final = "/v1/continuity"


@click.group(cls=Group)
def command() -> None:
    """Credentials, and the work that they are for."""


command.add_command(credentials.credential)
command.add_command(credentials.revoke)

_workflow_argument = click.argument("workflow_id", callback=credentials.checked_id)
_operation_option = click.option("--operation", "name", required=True, help="Name of the operation.")
_reason_option = click.option("--reason", required=True, help="Why; kept with the work and in the audit log.")
_full_option = click.option("--full", "is_full", is_flag=True, help="Do not cut long values.")
_yes_option = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")


# --- Work ---


@command.command("create")
@click.option(
    "--file", "stream", type=click.File("rb"), required=True,
    help="JSON with workflow_key, operations and, if it shall start enabled, activate; - for standard input.",
)  # fmt: skip
@as_anybody
@json_option
def create(*, server: Server, stream: IO[bytes], as_json: bool) -> None:
    """Create a workflow, or find the one of the same key and definition. Needs a credential."""
    try:
        definition = loads_strict(stream.read(limits.DEFINITION_BYTES + limits.ENVELOPE_BYTES + 1))
    except MalformedError as error:
        raise click.ClickException(f"{stream.name}: {error.message} {refusals.NOTHING_CHANGED}") from None
    with connected(server) as connection:
        known = _ids_of_key(connection, definition.get("workflow_key"))
        try:
            view = connection.call("POST", _ROOT, definition, most_bytes=VIEW_BYTES)
        except MalformedError as error:
            raise Failure(f"{stream.name}: {error.message}", code=error.code, as_json=as_json) from None
    if not as_json:
        was_there = view["workflow_id"] in known
        click.echo("It was there already; nothing was changed." if was_there else "Created.", err=True)
    _show(view, as_json=as_json)


@command.command("list")
@click.option("--state", type=click.Choice([phase.value for phase in Phase]), help="Only workflows in this state.")
@click.option("--workspace", help="Only this workspace.")
@click.option("--key", help="Only this workflow key, exactly.")
@click.option("--search", "q", help="A workflow_id, or whole words of keys and operation names.")
@click.option("--limit", default=limits.PAGE_DEFAULT, show_default=True, type=click.IntRange(1, limits.PAGE_MAX))
@click.option("--cursor", help="Where to go on: next_cursor of the list before.")
@as_anybody
@json_option
def list_(*, server: Server, as_json: bool, **filters: Any) -> None:
    """List workflows, newest first."""
    query = urlencode({name: value for name, value in filters.items() if value is not None})
    with connected(server) as connection:
        page = connection.call("GET", f"{_ROOT}?{query}", most_bytes=VIEW_BYTES)
    if as_json:
        print_json(page)
        return
    if not page["workflows"]:
        is_filtered = any(filters[name] for name in ("state", "workspace", "key", "q", "cursor"))
        click.echo("No workflows match." if is_filtered else "No workflows.")
        if not is_filtered:
            click.echo("An agent makes them, or: atmem continuity create --file FILE", err=True)
        return
    workflow_text.print_page(page["workflows"])
    if page["next_cursor"]:
        click.echo(f"There are more: --cursor {page['next_cursor']}", err=True)


@command.command("show")
@_workflow_argument
@_full_option
@as_anybody
@json_option
def show(*, server: Server, workflow_id: str, is_full: bool, as_json: bool) -> None:
    """Show a workflow: what it wants to do, what was attempted, what was reported."""
    with connected(server) as connection:
        view = _view(connection, workflow_id)
    _show(view, is_full=is_full, as_json=as_json)


@command.command("enable")
@_workflow_argument
@as_anybody
@json_option
def enable(*, server: Server, workflow_id: str, as_json: bool) -> None:
    """Enable recovery: workers may begin, and go on after an interruption."""
    _configure(server, workflow_id, is_enabled=True, as_json=as_json)


@command.command("disable")
@_workflow_argument
@as_anybody
@json_option
def disable(*, server: Server, workflow_id: str, as_json: bool) -> None:
    """Pause new attempts. The receipt of an attempt already granted is still taken."""
    _configure(server, workflow_id, is_enabled=False, as_json=as_json)


@command.command("abandon")
@_workflow_argument
@_operation_option
@_reason_option
@_yes_option
@as_anybody
@json_option
def abandon(*, server: Server, workflow_id: str, name: str, reason: str, is_sure: bool, as_json: bool) -> None:
    """Stop one operation for good. It is not called completed, and what depends on it stays blocked."""
    with connected(server) as connection:
        seen = _view(connection, workflow_id)
        operation = _operation(seen, name)
        ask(f"Stop {name} ({operation['status']}) for good?", is_sure=is_sure)
        body = {"name": name, "reason": reason, "revision": seen["revision"]}
        view = connection.call("POST", f"{_ROOT}/{workflow_id}/abandon", body, most_bytes=VIEW_BYTES)
    _report(view, f"Stopped {name} of {workflow_advice.named(view)}.", as_json=as_json)


@command.command("confirm")
@_workflow_argument
@_operation_option
@click.option("--happened/--did-not-happen", "happened", default=None, help="What you found at the destination.")
@click.option("--effect-id", help="With --happened: what identifies the effect at the destination.")
@click.option("--result", help="With --happened: the result, as JSON.  [default: null]")
@_reason_option
@_yes_option
@_full_option
@as_person
@json_option
def confirm(
    *, server: Server, workflow_id: str, name: str, happened: bool | None, effect_id: str | None, result: str | None,
    reason: str, is_sure: bool, is_full: bool, as_json: bool,
) -> None:  # fmt: skip
    """Say as a person whether an effect happened, after looking at the destination.

    With --happened the operation is completed on your word. With --did-not-happen it may be performed once more.
    """
    if happened is None:
        raise click.UsageError("Say --happened or --did-not-happen.")
    receipt = _attested(effect_id, result) if happened else _not_attested(effect_id, result)
    with signed_in(server) as person:
        seen = _view(person, workflow_id)
        operation = _operation(seen, name)
        if not as_json:
            workflow_text.print_operation(operation, seen["history"], is_full=is_full)
        ask(_consequence(name, effect_id), is_sure=is_sure)
        body = {
            "name": name, "happened": happened, "revision": seen["revision"],
            "late_receipts": operation["late_receipts"], "reason": reason, **receipt,
        }  # fmt: skip
        view = person.call("POST", f"{_ROOT}/{workflow_id}/confirm", body, most_bytes=VIEW_BYTES)
    said = "happened" if happened else "did not happen"
    _report(view, f"Confirmed: {name} {said}. {workflow_advice.named(view)} is {view['phase']} now.", as_json=as_json)


@command.command("delete")
@_workflow_argument
@_yes_option
@as_anybody
@json_option
def delete(*, server: Server, workflow_id: str, is_sure: bool, as_json: bool) -> None:
    """Destroy a finished workflow with its attempts and receipts. Its key can never be used again.

    No backup brings it back. What AtFlows observed of it stays. A credential that may delete does so without a
    password; a person gives theirs.
    """
    ask(f"Destroy {workflow_id}, its attempts and receipts? What AtFlows observed stays.", is_sure=is_sure)
    with connected(server) as connection:
        done = connection.call("POST", "/v1/evidence/delete", {"run_id": workflow_id, "confirmation": workflow_id})
    if as_json:
        print_json(done)
    else:
        click.echo(f"Deleted {workflow_id}.")


def _configure(server: Server, workflow_id: str, *, is_enabled: bool, as_json: bool) -> None:
    with connected(server) as connection:
        body: dict[str, Any] = {"enabled": is_enabled}
        before = _view(connection, workflow_id)
        if isinstance(connection, PersonConnection):
            body["revision"] = before["revision"]
        view = connection.call("POST", f"{_ROOT}/{workflow_id}/configure", body, most_bytes=VIEW_BYTES)
    _report(
        view,
        f"{workflow_advice.configured(before, view, is_enabled=is_enabled)} "
        f"{workflow_advice.named(view)} is {view['phase']}.",
        as_json=as_json,
    )


def _ids_of_key(connection: Connection, workflow_key: object) -> set[str]:
    """Return the workflows that have this key before anything is created; none where it cannot be looked up."""
    if not isinstance(workflow_key, str):
        return set()
    with suppress(ContinuityError):
        page = connection.call("GET", f"{_ROOT}?{urlencode({'key': workflow_key})}", most_bytes=VIEW_BYTES)
        return {summary["workflow_id"] for summary in page["workflows"]}
    return set()


def _view(connection: Connection, workflow_id: str) -> dict[str, Any]:
    return connection.call("GET", f"{_ROOT}/{workflow_id}", most_bytes=VIEW_BYTES)


def _operation(view: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for operation in view["operations"]:
        if operation["name"] == name:
            found: Mapping[str, Any] = operation
            return found
    names = ", ".join(operation["name"] for operation in view["operations"])
    raise click.ClickException(f"The workflow has no operation {name!r}. It has: {names}.")


def _attested(effect_id: str | None, result: str | None) -> dict[str, Any]:
    """Return the receipt that goes with what a person says, as a member of the request."""
    if effect_id is None:
        raise click.UsageError("--happened needs --effect-id.")
    try:
        value = loads_strict(f'{{"result":{"null" if result is None else result}}}'.encode())
    except MalformedError:
        value = {}
    if value.keys() != {"result"}:
        raise click.UsageError("--result must be JSON.")
    return {"receipt": {"effect_id": effect_id, **value}}


def _not_attested(effect_id: str | None, result: str | None) -> dict[str, Any]:
    if effect_id is not None or result is not None:
        raise click.UsageError("--effect-id and --result go with --happened.")
    return {}


def _consequence(name: str, effect_id: str | None) -> str:
    if effect_id is not None:
        return f"Complete {name} on your word, with the effect {json.dumps(effect_id)}?"
    return f"Let {name} be performed once more, on your word that it did not happen?"


def _show(view: Mapping[str, Any], *, as_json: bool, is_full: bool = False) -> None:
    if as_json:
        print_json(view)
    else:
        workflow_text.print_view(view, is_full=is_full)


def _report(view: Mapping[str, Any], said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        click.echo(said)
