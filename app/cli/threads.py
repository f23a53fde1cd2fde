"""`atmem threads`: see conversations with agents, and run agents. Commands are HTTP clients."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import click

from app.auth import tokens
from app.cli import refusals, workflow_text
from app.cli.remote import Server, as_person, signed_in, url_option
from app.cli.terminal import Command, Group, json_option, plain, print_facts, print_json, print_table
from continuity.decisions.threads.states import ThreadState
from continuity.errors import ContinuityError, ForbiddenError, TransportError, UnauthenticatedError
from continuity.services.callers import CallerKind

if TYPE_CHECKING:
    from continuity.threads import Agent

WORKER_VARIABLE: Final = "ATMEM_THREADS_TOKEN"
COORDINATOR_VARIABLE: Final = "ATMEM_EVIDENCE_TOKEN"
_THREAD_ID: Final = re.compile(r"th_[0-9a-f]{32}")
_NAMED: Final = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*(?:,[A-Za-z_]\w*)*)")
_TEXT_CHARS: Final = 200
_KINDS: Final = {letter: kind for kind, letter in tokens.LETTERS.items()}
_NONE: Final = "No threads of your own. Begin one at Threads in the dashboard; --all lists those of your workspaces."
_NONE_OF_ALL: Final = "No threads. They begin at Threads in the dashboard, once a worker runs: atmem threads worker"


@click.group("threads", cls=Group)
def command() -> None:
    """Conversations with agents: see them, and run the agents."""


@command.command("list", cls=Command)
@click.option(
    "--state", type=click.Choice([state.value for state in ThreadState]), help="Only threads in this state; with --all."
)
@click.option("--all", "is_all", is_flag=True, help="All of your workspaces, and not only your own.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="At most so many.")
@click.option("--cursor", help="Where to go on: next_cursor of the list before.")
@as_person
@json_option
def list_threads(
    *, server: Server, state: str | None, is_all: bool, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List threads, newest first: your own, or with --all those of your workspaces."""
    if state and not is_all:
        raise click.UsageError("--state chooses among the threads of your workspaces: give --all as well.")
    asked = {"limit": limit, "scope": "workspace" if is_all else "own", "state": state, "cursor": cursor}
    with signed_in(server) as person:
        page = person.call("GET", f"/v1/threads?{urlencode({name: value for name, value in asked.items() if value})}")
    if as_json:
        print_json(page)
        return
    if not page["threads"]:
        click.echo("No threads match." if state or cursor else _NONE_OF_ALL if is_all else _NONE)
    else:
        print_table(("Thread", "Name", "Agent", "Owner", "State", "Changed"), [_row(each) for each in page["threads"]])
    if page["next_cursor"]:
        click.echo(f"There are more: --cursor {page['next_cursor']}", err=True)


def _row(thread: Mapping[str, Any]) -> tuple[str, ...]:
    state = str(thread["state"]).replace("_", " ")
    if thread.get("unreadable"):
        return thread["thread_id"], "(unreadable)", "", "", state, ""
    changed = workflow_text.moment(thread["changed"])
    return thread["thread_id"], thread["name"], thread["agent"], thread["owner"], state, changed


@command.command("show", cls=Command)
@click.argument("thread_id")
@as_person
@json_option
def show(*, server: Server, thread_id: str, as_json: bool) -> None:
    """Show a thread: where it stands, what it waits for, and the newest of what was said."""
    if not _THREAD_ID.fullmatch(thread_id):
        raise click.BadParameter("a thread id is th_ and 32 hexadecimal digits.", param_hint="THREAD_ID")
    with signed_in(server) as person:
        snapshot = person.call("GET", f"/v1/threads/{thread_id}", most_bytes=64 * 1024 * 1024)
    if as_json:
        print_json(snapshot)
        return
    thread, runs = snapshot["thread"], snapshot["runs"]
    last = runs[-1] if runs else {}
    open_questions = [each for each in snapshot["waiting"] if each["state"] == "open"]
    print_facts({
        "Thread": thread_id, "Name": thread["name"], "Agent": thread["agent"],
        "State": str(thread["state"]).replace("_", " "),
        "Last run": " · ".join(_cut(last[name]) for name in ("state", "reason", "message") if last.get(name)) or "–",
        "Questions": "; ".join(_cut(each["shown"]) for each in open_questions) or "none",
        "Follow-ups": str(len(snapshot["queue"])),
    })  # fmt: skip
    if snapshot["messages"]:
        click.echo()
    for item in snapshot["messages"]:
        click.echo(plain(line_of(item)))
    for line in _next(thread["state"], last, page=f"{server.url}/threads/{thread_id}"):
        click.echo(f"\n{line}", err=True)


def _next(state: str, last: Mapping[str, Any], *, page: str) -> Iterator[str]:
    """Say where a person goes on."""
    if state == ThreadState.WAITING:
        yield f"Its owner answers the question at {page}"
    if state == ThreadState.NEEDS_ATTENTION:
        if last.get("workflow_id"):
            yield f"Look at what it did: atmem continuity show {last['workflow_id']}"
        yield f"Nothing begins again by itself: resume or stop it at {page}"


@command.command("worker", cls=Command)
@click.argument("named", metavar="MODULE:AGENTS")
@url_option
@click.option(
    "--token-env", default=WORKER_VARIABLE, show_default=True, help="Variable with a thread worker's credential."
)
@click.option(
    "--coordinator-env", default=COORDINATOR_VARIABLE, show_default=True,
    help="Variable with a coordinator's credential; only agents with governed tools need it.",
)  # fmt: skip
def worker(*, named: str, url: str, token_env: str, coordinator_env: str) -> None:
    """Run agents until SIGTERM or Ctrl+C: MODULE:AGENTS names them, for example shop.agents:support,billing.

    The module is found from the current folder; AGENTS are names in it of what define_agent gives. Credentials:
    atmem continuity credential --thread-worker, which names the agents, and --coordinator for governed tools.
    """
    agents = _agents(named)
    names = ",".join(agent.name for agent in agents)
    token = _credential(token_env, CallerKind.THREAD_WORKER, how=f"--thread-worker --agents {names}")
    is_governed = any(agent.needs_coordinator for agent in agents)
    coordinator = _credential(coordinator_env, CallerKind.COORDINATOR, how="--coordinator") if is_governed else None
    from continuity.threads import ThreadWorker, WorkerClient

    client = WorkerClient(url, token, coordinator_token=coordinator)
    try:
        running = ThreadWorker(client, agents, report=lambda text: click.echo(text, err=True))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: running.stop())
        said = f"Running {names.replace(',', ', ')} for {client.url}. Ctrl+C ends it after the run in hand."
        running.run(ready=lambda: click.echo(said, err=True))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    except ContinuityError as error:
        raise _refused(error, client.url, token_env, names) from error
    finally:
        client.close()


def _credential(variable: str, kind: CallerKind, *, how: str) -> str:
    """Return the credential in a variable; refuse what is none of this kind before anything runs."""
    token = os.environ.get(variable, "").strip()
    found = _KINDS[tokens.letter_of(token)] if tokens.is_well_formed(token) else None
    if found is kind:
        return token
    wanted = kind.name.lower().replace("_", " ")
    what = "is not set" if not token else "holds no credential: mistyped, or cut off"
    if found is not None:
        what = f"holds a credential of the kind {found.name.lower().replace('_', ' ')}"
    raise click.UsageError(
        f"{variable} {what}. It must hold one of the kind {wanted}: atmem continuity credential {how} "
        "--workspace WORKSPACE --principal NAME --token-only"
    )


def _refused(error: ContinuityError, url: str, variable: str, names: str) -> ContinuityError:
    """Return why a worker cannot run, or not any more, with the variable and the way on."""
    renewed = f"atmem continuity credential --thread-worker --agents {names} --workspace WORKSPACE --principal NAME"
    if isinstance(error, UnauthenticatedError):
        return UnauthenticatedError(
            f"The credential in {variable} is not valid here: expired or revoked, or of another server than {url}. "
            f"Make a new one: {renewed}"
        )
    if isinstance(error, ForbiddenError):
        return ForbiddenError(
            f"The credential in {variable} does not name all of these agents: {names}. Nothing runs. "
            f"Make one that does: {renewed}"
        )
    return refusals.of_a_look(error, url) if isinstance(error, TransportError) else error


def _agents(named: str) -> Sequence[Agent]:
    found = _NAMED.fullmatch(named)
    if found is None:
        raise click.BadParameter("must be a module and names in it: module:agent,other", param_hint="MODULE:AGENTS")
    try:
        from continuity.threads import Agent
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(found[1])
    except ImportError as error:
        raise click.ClickException(
            f"{found[1]} cannot be imported: {error}. It is looked for from {Path.cwd()}."
        ) from error
    agents = [getattr(module, name, None) for name in found[2].split(",")]
    for name, agent in zip(found[2].split(","), agents, strict=True):
        if not isinstance(agent, Agent):
            raise click.ClickException(f"{found[1]} has no agent {name}: what define_agent gives.")
    return [agent for agent in agents if isinstance(agent, Agent)]


def _cut(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}…"


def line_of(item: Mapping[str, Any]) -> str:
    """Return one line for a message or a tool call of a snapshot."""
    if item["type"] == "tool_call":
        return f"[{item['tool']}] {item.get('outcome') or item['status']}"
    if item["type"] == "answer":
        if item["kind"] == "approval" and isinstance(item["reply"], bool):
            what = item["shown"].get("tool") or item["shown"].get("question") or "what was asked"
            return f"{item['actor']} {'approved' if item['reply'] else 'denied'}: {_cut(what)}"
        return f"{item['actor']} answered: {_cut(item['reply'])}"
    return f"{item['role']}: {_cut(item['content'])}" + ("" if item["status"] == "done" else f" ({item['status']})")
