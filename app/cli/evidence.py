"""`atmem evidence`: what agents recorded of themselves. Each command but `open` is an HTTP client.

What a credential may do is done with the one in ATMEM_EVIDENCE_TOKEN (``--token-env``), or else as a person who
signs in. Deleting evidence and taking it in the clear is for administrators alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlencode

import click

from app.cli import workflow_text
from app.cli.passphrases import first_line, passphrase_option
from app.cli.remote import Server, as_anybody, as_person, connected, signed_in
from app.cli.terminal import Command, Failure, Group, ask, json_option, plain, print_facts, print_json, print_table
from continuity import limits
from continuity.errors import ContinuityError
from continuity.evidence import WORKFLOW_ID
from continuity.transport import VIEW_BYTES, Connection
from continuity.wire import IDENTIFIER

_ROOT: Final = "/v1/evidence"
_EXPORT_BYTES: Final = 256 * 1024 * 1024
"""Content of a run is at most 64 MiB as it is stored; as lines of JSON, and of a workflow, it may be more."""
_EXPORT_S: Final = 120.0
_SHOWN_CHARS: Final = 120


@click.group(cls=Group)
def command() -> None:
    """What agents recorded of themselves: find it, read it, take it away, delete it."""


def _checked_run(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not IDENTIFIER.fullmatch(value):
        raise click.BadParameter("a run is 1 to 128 characters of A-Z a-z 0-9 _ -.")
    return value


_run_argument = click.argument("run", metavar="RUN", callback=_checked_run)
_limit_option = click.option(
    "--limit", default=limits.PAGE_DEFAULT, show_default=True, type=click.IntRange(1, limits.PAGE_MAX)
)
_cursor_option = click.option("--cursor", help="Where to go on: next_cursor of the list before.")
_workspace_option = click.option("--workspace", help="Only this workspace.")


def _output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--output`` and ``--overwrite``."""
    for option in (
        click.option("--overwrite", is_flag=True, help="Replace a file that is there already."),
        click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write, for you alone."),
    ):
        function = option(function)
    return function


@command.command("list")
@_workspace_option
@_limit_option
@_cursor_option
@as_anybody
@json_option
def list_(*, server: Server, as_json: bool, **asked: Any) -> None:
    """List runs, newest first."""
    with connected(server) as connection:
        page = connection.call("GET", f"{_ROOT}/runs{_query(asked)}", most_bytes=VIEW_BYTES)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            run["evidence_id"], run["run_id"] or "(unreadable)", run["workspace_id"], run["records_total"],
            run["bytes"], workflow_text.moment(run["last_received"]),
        )
        for run in page["runs"]
    ]  # fmt: skip
    _tell_page(("Evidence", "Run", "Workspace", "Records", "Bytes", "Last received"), rows, page["next_cursor"])


@command.command("search")
@click.argument("words", nargs=-1)
@click.option("--run", callback=lambda ctx, param, value: value and _checked_run(ctx, param, value),
              help="Only this run: its own name, or its evidence_id.")  # fmt: skip
@click.option("--producer", help="Only this producer.")
@click.option("--kind", help="Only this kind.")
@click.option("--since", type=click.FloatRange(0), help="Received at or after, Unix seconds.")
@click.option("--until", type=click.FloatRange(0), help="Received before, Unix seconds.")
@_workspace_option
@_limit_option
@_cursor_option
@as_anybody
@json_option
def search(*, server: Server, words: tuple[str, ...], as_json: bool, **asked: Any) -> None:
    """List records with all of WORDS in their content, newest first. Parts of words are not found."""
    asked["q"] = " ".join(words) or None
    with connected(server) as connection:
        page = connection.call("GET", f"{_ROOT}{_query(asked)}", most_bytes=VIEW_BYTES)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            record["evidence_id"], record["seq"], record.get("kind", "(unreadable)"), record.get("producer", ""),
            workflow_text.moment(record["received"]), record.get("bytes", ""), record.get("type", ""),
        )
        for record in page["records"]
    ]  # fmt: skip
    _tell_page(("Evidence", "No.", "Kind", "Producer", "Received", "Bytes", "Type"), rows, page["next_cursor"])


@command.command("show")
@_run_argument
@click.option("--full", "is_full", is_flag=True, help="Do not cut long content.")
@as_anybody
@json_option
def show(*, server: Server, run: str, is_full: bool, as_json: bool) -> None:
    """Show RUN (its own name, or its evidence_id) in its order, with content. Status 1 when it is not whole."""
    with connected(server) as connection:
        view = _whole(connection, run)
    if as_json:
        print_json(view)
    else:
        _print_run(view, is_full=is_full)
    for fault in view["faults"]:
        click.echo(f"Record {fault['seq']}: {fault['problem']}.", err=True)
    if view["faults"]:
        raise click.exceptions.Exit(1)


@command.command("manifest")
@_run_argument
@as_anybody
@json_option
def manifest(*, server: Server, run: str, as_json: bool) -> None:
    """Show what would be needed to run RUN again, without content."""
    with connected(server) as connection:
        found = connection.call("POST", f"{_ROOT}/replay-manifest", {"run_id": run}, most_bytes=VIEW_BYTES)
    if as_json:
        print_json(found)
        return
    print_facts({"Run": found["run_id"], "Evidence": found["evidence_id"], "Whole": _yes(found["is_whole"])})
    rows = [
        (each["tool"], each["records"], each["operations"], each.get("capability", "(not governed)"))
        for each in found["tools"]
    ]
    print_table(("Tool", "Records", "Operations", "Destination can"), rows, title="Tools")
    print_table(("No.", "Kind", "Bytes", "SHA-256"), [
        (each["seq"], each.get("kind", "(unreadable)"), each.get("bytes", ""), each.get("sha256", ""))
        for each in found["records"]
    ], title="Records")  # fmt: skip


@command.command("export")
@_run_argument
@click.option("--plaintext", "is_plain", is_flag=True, help="Readable by whoever has the file; administrators alone.")
@passphrase_option
@_output_options
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@as_anybody
@json_option
def export(
    *, server: Server, run: str, is_plain: bool, passphrase_file: IO[bytes] | None, output: Path | None,
    overwrite: bool, is_sure: bool, as_json: bool,
) -> None:  # fmt: skip
    """Take RUN, or a workflow by its id, away in a file that only a passphrase opens. `open` reads it back."""
    from app import exports

    if is_plain:
        ask(f"Write {run} so that anybody who has the file can read it?", is_sure=is_sure)
        body, suffix = {"run_id": run, "confirmation": run}, "jsonl"
    else:
        body, suffix = {"run_id": run, "passphrase": _new_passphrase(passphrase_file)}, "atmem"
    target = output or Path(f"{run}.{suffix}")
    if target.exists() and not overwrite:
        # Before anything is asked for: what leaves is written into the audit log.
        raise ContinuityError(f"{target} is there already; --overwrite replaces it.", code="file_exists")
    path = f"{_ROOT}/export/{'plaintext' if is_plain else 'encrypted'}"
    with connected(server) as connection:
        content = connection.fetch(path, body, most_bytes=_EXPORT_BYTES, reply_timeout_s=_EXPORT_S)
    exports.write(target, content, may_replace=overwrite)
    if as_json:
        print_json({"file": str(target), "bytes": len(content), "encrypted": not is_plain})
    else:
        click.echo(f"Wrote {target}, {len(content)} bytes.")


@command.command("open", cls=Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@passphrase_option
@click.option("--check", "is_check", is_flag=True, help="Only prove that the file is whole and opens.")
@_output_options
@json_option
def open_(
    *,
    file: Path,
    passphrase_file: IO[bytes] | None,
    is_check: bool,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Read an encrypted export back, as lines of JSON. Needs the passphrase and nothing else."""
    from app import exports

    passphrase = _passphrase(passphrase_file)
    with file.open("rb") as stream:
        # All of it before any of it is shown: a file that was cut off is no evidence.
        lines = list(exports.lines(stream, passphrase))
    if is_check or output is not None:
        if output is not None and not is_check:
            exports.write(output, b"".join(lines), may_replace=overwrite)
        if as_json:
            print_json({"whole": True, "lines": len(lines)})
        else:
            click.echo(f"{file} is whole: {len(lines)} lines." if output is None else f"Wrote {output}.")
        return
    sys.stdout.buffer.write(b"".join(lines))


@command.command("delete")
@_run_argument
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@as_person
@json_option
def delete(*, server: Server, run: str, is_sure: bool, as_json: bool) -> None:
    """Destroy RUN with its records. Its name can never be used again, and no backup brings it back."""
    if WORKFLOW_ID.fullmatch(run):
        raise click.UsageError("That is a workflow: atmem continuity delete")
    ask(f"Destroy {run} and all its records?", is_sure=is_sure)
    with signed_in(server) as person:
        done = person.call("POST", f"{_ROOT}/delete", {"run_id": run, "confirmation": run})
    if as_json:
        print_json(done)
    else:
        click.echo(f"Deleted {run}: {done['deleted']['records']} records.")


def _query(asked: Mapping[str, Any]) -> str:
    given = {name: value for name, value in asked.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _tell_page(columns: tuple[str, ...], rows: list[tuple[Any, ...]], cursor: str | None) -> None:
    if rows:
        print_table(columns, rows)
    else:
        click.echo("Nothing here matches.", err=True)
    if cursor:
        click.echo(f"There may be more: --cursor {cursor}", err=True)


def _whole(connection: Connection, run: str) -> dict[str, Any]:
    """Read every page of a run and put them together."""
    asked: dict[str, Any] = {"run_id": run}
    view = connection.call("POST", f"{_ROOT}/reconstruct", asked, most_bytes=VIEW_BYTES)
    after = view["next_after"]
    while after is not None:
        page = connection.call("POST", f"{_ROOT}/reconstruct", {**asked, "after": after}, most_bytes=VIEW_BYTES)
        view["records"] += page["records"]
        view["faults"] += page["faults"]
        after = page["next_after"]
    return {**view, "next_after": None, "is_whole": not view["faults"]}


def _print_run(view: Mapping[str, Any], *, is_full: bool) -> None:
    print_facts({
        "Run": view["run_id"], "Evidence": view["evidence_id"], "Workspace": view["workspace_id"],
        "Records": view["records_total"], "Bytes": view["bytes"], "Begun by": view["creator_id"],
        "First received": workflow_text.moment(view["created"]),
        "Last received": workflow_text.moment(view["last_received"]), "Whole": _yes(view["is_whole"]),
    })  # fmt: skip
    for each in view["workflows"]:
        click.echo(f"Workflow  {each['workflow_id']}  {plain(each['workflow_key'])}  {each['phase']}")
    for record in view["records"]:
        kind = record.get("kind", "(unreadable)")
        click.echo(f"\n{record['seq']}  {plain(kind)}  {workflow_text.moment(record['received'])}")
        click.echo(f"  {_content(record, is_full=is_full)}")


def _content(record: Mapping[str, Any], *, is_full: bool) -> str:
    if record.get("unreadable"):
        return "does not open"
    if "content" not in record:
        return f"{record['type']}, {record['bytes']} bytes, SHA-256 {record['sha256']}"
    content = record["content"]
    text = plain(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    return text if is_full or len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… (--full)"


def _yes(is_so: object) -> str:
    return "yes" if is_so else "no"


def _new_passphrase(given: IO[bytes] | None) -> str:
    if given is not None:
        return _first_line(given)
    _require_terminal()
    passphrase: str = click.prompt("Passphrase of the file", hide_input=True, confirmation_prompt=True, err=True)
    return passphrase


def _passphrase(given: IO[bytes] | None) -> str:
    if given is not None:
        return _first_line(given)
    _require_terminal()
    passphrase: str = click.prompt("Passphrase of the file", hide_input=True, err=True)
    return passphrase


def _require_terminal() -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at for the passphrase: give --passphrase-file.")


def _first_line(given: IO[bytes]) -> str:
    text = first_line(given, "--passphrase-file")
    if not text:
        raise Failure("The passphrase file is empty.", code="malformed")
    return text
