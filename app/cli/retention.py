"""`atmem retention`: let go of what is old and over. An HTTP client, batch by batch; a dry run unless --apply."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import click

from app.cli import workflow_text
from app.cli.remote import Server, as_anybody, connected
from app.cli.terminal import Command, ask, json_option, print_json, print_table
from continuity import limits
from continuity.errors import ForbiddenError
from continuity.evidence import RETAINED_KINDS
from continuity.transport import Connection

_PATH: Final = "/v1/evidence/retention"
_BATCH: Final = 50
_WORDS: Final = {
    "workflows": "finished workflows", "evidence": "evidence", "threads": "records of threads at rest",
}  # fmt: skip
_DAYS: Final = re.compile(r"([1-9][0-9]{0,4})d")
_TIMEOUT_S: Final = 300.0
"""A batch of deletions: each is durable by itself."""


def _days(_ctx: click.Context, _parameter: click.Parameter, value: str) -> int:
    found = _DAYS.fullmatch(value)
    if found is None or int(found[1]) > limits.RETENTION_MOST_DAYS:
        raise click.BadParameter(f"must be a number of days from 1d to {limits.RETENTION_MOST_DAYS}d.")
    return int(found[1])


@click.command("retention", cls=Command)
@click.option("--older-than", "days", required=True, callback=_days, help="Untouched for so long: 90d.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(RETAINED_KINDS),
              help="Only these; evidence and threads by administrators; repeatable.  [default: all]")  # fmt: skip
@click.option("--apply", "is_apply", is_flag=True, help="Let go of it. Without this it is only said.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@as_anybody
@json_option
def command(*, server: Server, days: int, kinds: tuple[str, ...], is_apply: bool, is_sure: bool, as_json: bool) -> None:
    """Find finished workflows and runs of evidence that are old, and with --apply delete them for good.

    Of threads at rest the records of their journals that are old are let go of; messages, state and runs stay.
    Unfinished work stays, and so does what a destination may still honour or show. The audit log is never touched.
    Stopped in the middle, it goes on when it is run again.
    """
    if is_apply:
        what = " and ".join(_WORDS[kind] for kind in kinds or RETAINED_KINDS)
        ask(f"Destroy {what} of more than {days} days ago? It cannot be undone.", is_sure=is_sure)
    items: list[dict[str, Any]] = []
    with connected(server) as connection:
        for kind in kinds or RETAINED_KINDS:
            try:
                found = _found(connection, kind, days, is_apply=is_apply, is_quiet=as_json)
                items += [{"kind": kind, **item} for item in found]
            except ForbiddenError as error:
                if kinds or error.code != ForbiddenError.code:
                    raise
                click.echo(f"{kind}: {error.message}", err=True)
    outcomes = Counter(item["outcome"] for item in items)
    if as_json:
        print_json({"older_than_days": days, "applied": is_apply, "items": items, **outcomes})
        return
    _tell(items)
    if outcomes:
        click.echo(", ".join(f"{outcome.replace('_', ' ')}: {count}" for outcome, count in sorted(outcomes.items())))
    if outcomes["would_delete"] or outcomes["would_trim"]:
        click.echo("Nothing was let go of: --apply does it.", err=True)


def _found(connection: Connection, kind: str, days: int, *, is_apply: bool, is_quiet: bool) -> Iterator[dict[str, Any]]:
    """Yield what each batch has decided, and say on one line how far it is; what comes after begins a line."""
    looked_at = 0
    try:
        for batch in _batches(connection, kind, days, is_apply=is_apply):
            looked_at += len(batch["items"])
            if not is_quiet and looked_at:
                click.echo(f"\r{kind}: {looked_at:,} looked at", nl=False, err=True)
            yield from batch["items"]
    finally:
        if not is_quiet and looked_at:
            click.echo(err=True)


def _batches(connection: Connection, kind: str, days: int, *, is_apply: bool) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        body = {"older_than_days": days, "kind": kind, "apply": is_apply, "limit": _BATCH}
        if cursor is not None:
            body["cursor"] = cursor
        batch = connection.call("POST", _PATH, body, reply_timeout_s=_TIMEOUT_S)
        yield batch
        cursor = batch["next_cursor"]
        if cursor is None:
            return


def _tell(items: list[dict[str, Any]]) -> None:
    if not items:
        click.echo("Nothing is that old.")
        return
    rows = [
        (
            item["kind"], item["id"], item["name"] or "(unreadable)", workflow_text.moment(item["changed"]),
            item.get("records", ""), item["bytes"], item["outcome"].replace("_", " "),
            item.get("because", "").replace("_", " "),
        )
        for item in items
    ]  # fmt: skip
    print_table(("Kind", "Id", "Name", "Last changed", "Records", "Bytes", "Outcome", "Because"), rows)
