"""`atmem audit`: who did what, and whether the log that says so is whole. On the host, beside a running server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli.terminal import Failure, InstanceGroup, json_option, print_json, print_table, settings
from continuity.errors import MalformedError

if TYPE_CHECKING:
    from app.commanding import Auditing

_LIMIT: Final = 50
_LIMIT_MOST: Final = 1_000
_LONG: Final = 1_000
"""Who waits for less needs no progress."""
_SECOND_US: Final = 1_000_000
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(cls=InstanceGroup)
def command() -> None:
    """Who did what, and whether the log that says so is whole."""


@command.command("list")
@click.option("--limit", default=_LIMIT, show_default=True, type=click.IntRange(1, _LIMIT_MOST))
@click.option("--before", type=click.IntRange(1), help="Go on below this entry.")
@json_option
def list_(*, limit: int, before: int | None, as_json: bool) -> None:
    """Show entries, newest first. Details are shown where the vault opens, and the log says that they were."""
    from app import commanding
    from app.auth.accounts import LOCAL

    with commanding.auditing(settings()) as (auditing, closed):
        entries = auditing.entries(actor=LOCAL.actor, count=limit, before=before)
    next_before = entries[-1].seq if len(entries) == limit and entries[-1].seq > 1 else None
    if as_json:
        print_json({"entries": [_entry(each) for each in entries], "next_before": next_before})
    else:
        names = ("entry", "time (UTC)", "action", "actor", "object", "result", "request", "detail")
        print_table(names, [_cells(each) for each in entries])
        if next_before is not None:
            click.echo(f"Older ones: --before {next_before}", err=True)
    if any(each.detail_state == "sealed" for each in entries):
        because = closed or "it could not be written down that they were read."
        click.echo(f"Details stay sealed: {because}", err=True)


def _entry(listed: Any) -> dict[str, Any]:
    entry = listed.entry
    return {
        "seq": listed.seq, "at": listed.at_us / _SECOND_US if isinstance(listed.at_us, int) else None,
        "action": entry.action, "actor": entry.actor, "object_id": entry.object_id, "result": entry.result,
        "request_id": entry.request_id, "detail": entry.detail, "detail_state": listed.detail_state,
    }  # fmt: skip


def _cells(listed: Any) -> tuple[object, ...]:
    entry = listed.entry
    shown = {"none": "", "open": json.dumps(entry.detail, ensure_ascii=False)}
    return (
        listed.seq, _time(listed.at_us), entry.action, entry.actor, entry.object_id, entry.result, entry.request_id,
        shown.get(listed.detail_state, f"({listed.detail_state})"),
    )  # fmt: skip


def _time(at_us: Any) -> str:
    # An edited row may hold anything; the log is shown all the same.
    with suppress(TypeError, ValueError, OverflowError, OSError):
        return f"{datetime.fromtimestamp(at_us // _SECOND_US, UTC):%Y-%m-%d %H:%M:%S}"
    return "(no time)"


@command.command()
@click.option("--against", type=_FILE, help="A checkpoint that was kept elsewhere.")
@json_option
def verify(*, against: Path | None, as_json: bool) -> None:
    """Prove that the audit log and the history of every workflow are what was written; status 1 when not."""
    from app import commanding

    with commanding.auditing(settings()) as (auditing, closed):
        verdict = _verified(auditing, against, as_json=as_json)
    if as_json:
        print_json({
            "sound": not verdict.findings, "entries": verdict.entries, "workflows": verdict.workflows,
            "compared": verdict.compared, "heads_compared": verdict.has_heads,
            "findings": [
                {"kind": each.kind, "workflow_id": each.workflow_id, "seq": each.seq, "problem": each.problem}
                for each in verdict.findings
            ],
        })  # fmt: skip
    for each in verdict.findings:
        click.echo(str(each), err=True)
    if not verdict.has_heads:
        because = f" {closed}" if closed else ""
        click.echo(
            f"The vault does not open here.{because} Histories were not compared with their sealed ends.", err=True
        )
    if verdict.findings:
        raise click.exceptions.Exit(1)
    if not as_json:
        _tell_sound(verdict)


def _tell_sound(verdict: Any) -> None:
    count = verdict.workflows
    histories = "is the history of 1 workflow" if count == 1 else f"are the histories of {count} workflows"
    click.echo(f"The audit log is whole: {verdict.entries} entries. So {histories}.")
    if verdict.kept is not None:
        click.echo(f"Nothing from before the checkpoint of {verdict.kept.time} was changed or removed.")


def _verified(auditing: Auditing, against: Path | None, *, as_json: bool) -> Any:
    with _progress(is_quiet=as_json) as progress:
        if against is None:
            return auditing.verify(progress)
        try:
            with against.open("rb") as stream:
                return auditing.verify(progress, against=stream)
        except OSError as error:
            raise click.ClickException(f"{against} cannot be read: {error.strerror or error}.") from None
        except MalformedError as error:
            # What the file holds: the option itself is what it must be.
            raise Failure(error.message, code=error.code, as_json=as_json) from None


@contextmanager
def _progress(*, is_quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Say how far long work is, on one line that ends with the work."""
    told: list[str] = []

    def tell(what: str, count: int) -> None:
        if is_quiet or count < _LONG:
            return
        if told and told[-1] != what:
            click.echo(err=True)
        told[:] = [what]
        click.echo(f"\r{count} {what}", nl=False, err=True)

    try:
        yield tell
    finally:
        if told:
            click.echo(err=True)


@command.command()
@click.option("--output", type=_NEW_FILE, help="A new file to write; standard output without it.")
def checkpoint(*, output: Path | None) -> None:
    """Print the ends of the audit log and of all histories, for keeping where nobody can rewrite them."""
    from app import commanding

    with commanding.auditing(settings()) as (auditing, _closed):
        lines = auditing.checkpoint()
        # Nothing is made for a log that has no true end.
        first = next(lines)
        if output is None:
            for line in chain([first], lines):
                click.echo(line, nl=False)
            return
        try:
            _write(output, chain([first], lines))
        except FileExistsError:
            raise click.ClickException(f"{output} is there already; a checkpoint is not written over.") from None
        except OSError as error:
            raise click.ClickException(f"{output} cannot be written: {error.strerror or error}.") from None


def _write(output: Path, lines: Iterable[bytes]) -> None:
    with output.open("xb") as stream:
        try:
            stream.writelines(lines)
            stream.flush()
        except BaseException:
            # What has no last line is no checkpoint, and would stand in the way of the next one.
            output.unlink()
            raise
