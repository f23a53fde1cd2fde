"""`atmem observations`: move what was observed in and out, and count it again. On the host, beside a running server."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, Final

import click

from app.cli.remote import checked_address
from app.cli.terminal import Group, json_option, print_json, settings
from app.config import SettingsError
from continuity.errors import TransportError

if TYPE_CHECKING:
    from observations.pruning import Pruned
    from observations.telemetry import SpanSender
    from observations.transfer import Imported, Observed

_BEFORE: Final = re.compile(r"(?P<date>\d{4}-\d{2}-\d{2})|(?P<days>[1-9]\d{0,4})d", re.ASCII)
_LEAST: Final = timedelta(days=1)
"""Younger than this nothing is pruned: agents may still be at it, and events of it under way."""
_scope_option = click.option("--scope", help="Observation scope.  [default: ATFLOWS_CONTINUITY_SCOPE, or local]")


@click.group(cls=Group)
def command() -> None:
    """What was attempted and what it reportedly cost: move it in and out, count it again."""


def _scope(given: str | None) -> str:
    from app.config import is_scope

    scope = given or settings().observation_scope
    if not is_scope(scope):
        raise SettingsError("--scope: must be 1 to 128 of A-Z a-z 0-9 _ -.")
    return scope


@command.command("import")
@click.argument("stream", metavar="FILE", type=click.File("rb"))
@_scope_option
@click.option("--start-line", default=1, show_default=True, type=click.IntRange(1), help="First line to take in.")
@json_option
def import_(*, stream: IO[bytes], scope: str | None, start_line: int, as_json: bool) -> None:
    """Take in the events of FILE, one JSON object a line; - for standard input. Safe to run again."""
    from app import commanding
    from observations.transfer import import_lines, lines_of

    last: list[Imported] = []
    is_whole = False

    def progress(done: Imported) -> None:
        last[:] = [done]
        if not as_json:
            click.echo(f"\rLine {done.line}: {done.accepted} new, {done.replayed} known", nl=False, err=True)

    name, into = getattr(stream, "name", "-"), _scope(scope)
    with commanding.observing(settings()) as observed:
        try:
            done = import_lines(
                commanding.ingest_on(observed), into, lines_of(stream), start_line=start_line, progress=progress
            )
            is_whole = True
        finally:
            if not as_json:
                click.echo("", err=True)
            if last and last[0].line and not is_whole:
                click.echo(
                    f"Up to line {last[0].line} everything is kept; go on with --start-line {last[0].line + 1}.",
                    err=True,
                )
    if done.lines < start_line and start_line > 1:
        raise click.ClickException(
            f"{name} has {done.lines} lines, and so none to take in from --start-line {start_line}. "
            "Nothing was taken in."
        )
    _tell_imported(done, str(name), as_json=as_json)
    if done.malformed or done.refused:
        raise click.exceptions.Exit(1)


def _tell_imported(done: Imported, name: str, *, as_json: bool) -> None:
    for message in done.messages:
        click.echo(f"{name}: {message}", err=True)
    if as_json:
        print_json({
            "lines": done.line, "accepted": done.accepted, "replayed": done.replayed, "refused": done.refused,
            "pruned": done.pruned, "malformed": done.malformed,
        })  # fmt: skip
        return
    pruned = f"{done.pruned} of a time that was pruned, " if done.pruned else ""
    click.echo(
        f"Done: {done.accepted} new, {done.replayed} known, {done.refused} refused as contradicting, {pruned}"
        f"{done.malformed} malformed."
    )


@command.command("export")
@_scope_option
@click.option("--output", type=click.File("wb"), default="-", help="File to write; standard output without it.")
@click.option(
    "--otlp", "otlp_url", callback=checked_address,
    help="Send attempts and charges as spans to this OTLP address instead.",
)  # fmt: skip
def export(*, scope: str | None, output: IO[bytes], otlp_url: str | None) -> None:
    """Write the accepted events as JSON lines, or send attempts and charges as OpenTelemetry spans."""
    from app import commanding
    from continuity.jsontext import canonical_bytes
    from observations.transfer import export_attempts, export_events, has_scope

    wanted = _scope(scope)
    with commanding.observing(settings()) as observed:
        if not has_scope(observed, wanted):
            raise click.ClickException(
                f"--scope: no event was ever accepted for the scope {wanted}. Nothing was written. Scopes are named by "
                "ATFLOWS_CONTINUITY_SCOPE and by the credentials of observers."
            )
        if otlp_url is None:
            for event in export_events(observed, wanted):
                output.write(canonical_bytes(event) + b"\n")
            return
        sent = _send(export_attempts(observed, wanted), otlp_url, scope=wanted)
    click.echo(f"{sent} spans sent.", err=True)


def _send(found: Iterable[Observed], url: str, *, scope: str) -> int:
    try:
        from observations.telemetry import BATCH, SpanSender
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    sender, sent = SpanSender(url), 0
    library = logging.getLogger("opentelemetry")
    # In its own words it says before the error below what that says.
    level = library.level
    library.setLevel(logging.CRITICAL + 1)
    try:
        for batch in _batches(_spans(found, scope=scope), BATCH):
            sent += _send_batch(sender, batch)
    except TransportError:
        raise click.ClickException(
            f"--otlp: {url} did not take the spans; {sent} were sent before. Look whether a collector takes OTLP over "
            "HTTP there (the path is mostly /v1/traces), and run it again: what was sent already stays one span."
        ) from None
    finally:
        library.setLevel(level)
        sender.close()
    return sent


def _send_batch(sender: SpanSender, batch: Sequence[Any]) -> int:
    sender.send(batch)
    return len(batch)


def _spans(found: Iterable[Observed], *, scope: str) -> Iterator[Any]:
    from observations.telemetry import attempt_span, charge_span

    for each in found:
        yield attempt_span(each.attempt_id, each.attempt, scope=scope)
        for names, charge in each.charges:
            yield charge_span(names, charge, each.attempt, scope=scope)


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


@command.command()
@click.option("--check", "is_check", is_flag=True, help="Compare only, change nothing; status 1 when they differ.")
@json_option
def rebuild(*, is_check: bool, as_json: bool) -> None:
    """Make all totals again from the events. The server may go on meanwhile."""
    from app import commanding
    from observations import recount

    def progress(events: int) -> None:
        if not as_json:
            click.echo(f"\r{events} events", nl=False, err=True)

    with commanding.observing(settings()) as observed:
        found = (recount.check if is_check else recount.rebuild)(observed, progress)
    if not as_json:
        click.echo("", err=True)
    problems = found.describe()
    if as_json:
        print_json({"events": found.events, "sound": found.is_sound, "problems": problems, "rebuilt": not is_check})
    else:
        for problem in problems:
            click.echo(problem, err=True)
        click.echo("All totals equal a recount." if found.is_sound or not is_check else "Run without --check.")
    if is_check and not found.is_sound:
        raise click.exceptions.Exit(1)


@command.command()
@click.option("--before", required=True, help="Day (2026-01-31, UTC) or age (90d) before which runs ended that go.")
@_scope_option
@click.option("--yes", "is_meant", is_flag=True, help="Do it; without, only say what would go.")
@json_option
def prune(*, before: str, scope: str | None, is_meant: bool, as_json: bool) -> None:
    """Let go of runs that ended long ago, of their events, attempts and charges. Totals keep what they came to.

    Nothing of that time is taken in afterwards. The server may go on meanwhile; what was interrupted is run again.
    """
    from app import commanding, wiring
    from observations import pruning

    def progress(done: Pruned) -> None:
        if not as_json:
            click.echo(f"\r{done.attempts} attempts, {done.events} events", nl=False, err=True)

    now = datetime.fromtimestamp(wiring.SystemClock().now_us() // 1_000_000, UTC)
    until, wanted = _before(before, now=now), _scope(scope)
    do = pruning.prune if is_meant else pruning.count
    with commanding.observing(settings()) as observed:
        gone = do(observed, wanted, before_us=int(until.timestamp()) * 1_000_000, progress=progress)
    _tell_pruned(gone, f"{until:%Y-%m-%dT%H:%M:%SZ}", is_done=is_meant, as_json=as_json)


def _before(text: str, *, now: datetime) -> datetime:
    """Return the time that was meant, in whole seconds."""
    found = _BEFORE.fullmatch(text)
    try:
        if found is None:
            until = None
        elif found["days"]:
            until = now.replace(microsecond=0) - timedelta(days=int(found["days"]))
        else:
            until = datetime.fromisoformat(found["date"]).replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        until = None
    if until is None:
        raise click.BadParameter("must be a day like 2026-01-31 or an age like 90d.", param_hint="--before")
    if until > now - _LEAST or until.timestamp() <= 0:
        raise click.BadParameter("must be at least a day ago, and after 1970-01-01.", param_hint="--before")
    return until


def _tell_pruned(gone: Pruned, before: str, *, is_done: bool, as_json: bool) -> None:
    if as_json:
        print_json({"before": before, "pruned": is_done, **asdict(gone)})
        return
    click.echo("", err=True)
    click.echo(
        f"{gone.runs} runs with {gone.attempts} attempts, {gone.events} events, {gone.charges} charges and "
        f"{gone.refusals} refused events from before {before} {'are gone' if is_done else 'would go'}."
    )
    if not is_done:
        click.echo("Nothing was changed. Run it again with --yes.")
