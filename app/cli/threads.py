"""`atmem threads`: see conversations with agents, and run agents. Commands are HTTP clients."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli import workflow_text
from app.cli.remote import Server, as_person, checked_address, signed_in
from app.cli.terminal import Command, Group, json_option, plain, print_facts, print_json, print_table
from continuity.decisions.threads.states import ThreadState

if TYPE_CHECKING:
    from continuity.threads import Agent

WORKER_VARIABLE: Final = "ATMEM_THREADS_TOKEN"
COORDINATOR_VARIABLE: Final = "ATMEM_EVIDENCE_TOKEN"
_THREAD_ID: Final = re.compile(r"th_[0-9a-f]{32}")
_NAMED: Final = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*(?:,[A-Za-z_]\w*)*)")
_TEXT_CHARS: Final = 200


@click.group("threads", cls=Group)
def command() -> None:
    """Conversations with agents: see them, and run the agents."""


@command.command("list", cls=Command)
@click.option("--state", type=click.Choice([state.value for state in ThreadState]), help="Only threads in this state.")
@click.option("--all", "is_all", is_flag=True, help="All of your workspaces, and not only your own.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="At most so many.")
@as_person
@json_option
def list_threads(*, server: Server, state: str | None, is_all: bool, limit: int, as_json: bool) -> None:
    """List threads, newest first."""
    if state and not is_all:
        raise click.UsageError("--state needs --all: one's own are few.")
    asked = {"limit": str(limit), "scope": "workspace" if is_all else "own"} | ({"state": state} if state else {})
    with signed_in(server) as person:
        page = person.call("GET", f"/v1/threads?{'&'.join(f'{name}={value}' for name, value in asked.items())}")
    if as_json:
        print_json(page)
        return
    rows = [
        (
            each["thread_id"],
            each.get("name", ""),
            each.get("agent", ""),
            each["state"],
            workflow_text.moment(each.get("changed")),
        )
        for each in page["threads"]
    ]
    print_table(("Thread", "Name", "Agent", "State", "Changed"), rows)


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
    print_facts({
        "Thread": thread_id, "Name": thread.get("name", ""), "Agent": thread.get("agent", ""), "State": thread["state"],
        "Last run": " · ".join(str(last[name]) for name in ("state", "reason", "message") if last.get(name)) or "–",
        "Waits for": str(sum(each["state"] == "open" for each in snapshot["waiting"])),
        "Queued": str(len(snapshot["queue"])),
    })  # fmt: skip
    for item in snapshot["messages"]:
        click.echo(plain(line_of(item)))


@command.command("worker", cls=Command)
@click.argument("named", metavar="MODULE:AGENTS")
@click.option(
    "--url",
    envvar="ATMEM_URL",
    required=True,
    callback=checked_address,
    show_envvar=True,
    help="Address of the server.",
)
@click.option(
    "--token-env", default=WORKER_VARIABLE, show_default=True, help="Variable with a thread worker's credential."
)
@click.option(
    "--coordinator-env", default=COORDINATOR_VARIABLE, show_default=True,
    help="Variable with a coordinator's credential, for agents with governed tools.",
)  # fmt: skip
def worker(*, named: str, url: str, token_env: str, coordinator_env: str) -> None:
    """Run agents until SIGTERM or Ctrl+C: MODULE:AGENTS names them, for example shop.agents:support,billing.

    The module is found from the current folder. Credentials: atmem continuity credential --thread-worker, and
    --coordinator for governed tools.
    """
    agents = _agents(named)
    try:
        from continuity.threads import ThreadWorker, WorkerClient
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    token = os.environ.get(token_env, "").strip()
    if not token:
        raise click.UsageError(f"{token_env} holds no credential: atmem continuity credential --thread-worker …")
    client = WorkerClient(url, token, coordinator_token=os.environ.get(coordinator_env, "").strip() or None)
    try:
        running = ThreadWorker(client, agents, report=lambda text: click.echo(text, err=True))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: running.stop())
        names = ", ".join(agent.name for agent in agents)
        said = f"Running {names} for {client.url}. Ctrl+C ends it after the run in hand."
        running.run(ready=lambda: click.echo(said, err=True))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    finally:
        client.close()


def _agents(named: str) -> Sequence[Agent]:
    found = _NAMED.fullmatch(named)
    if found is None:
        raise click.BadParameter("must be a module and names in it: module:agent,other", param_hint="MODULE:AGENTS")
    sys.path.insert(0, str(Path.cwd()))
    try:
        from continuity.threads import Agent

        module = importlib.import_module(found[1])
    except ImportError as error:
        raise click.ClickException(f"{found[1]} cannot be imported: {error}") from error
    agents = [getattr(module, name, None) for name in found[2].split(",")]
    for name, agent in zip(found[2].split(","), agents, strict=True):
        if not isinstance(agent, Agent):
            raise click.ClickException(f"{found[1]} has no agent {name}: what define_agent gives.")
    return [agent for agent in agents if isinstance(agent, Agent)]


def line_of(item: Mapping[str, Any]) -> str:
    """Return one line for a message or a tool call of a snapshot."""
    if item["type"] == "tool_call":
        return f"[{item['tool']}] {item.get('outcome') or item['status']}"
    content = item["content"] if isinstance(item["content"], str) else str(item["content"])
    shown = content if len(content) <= _TEXT_CHARS else f"{content[:_TEXT_CHARS]}…"
    return f"{item['role']}: {shown}" + ("" if item["status"] == "done" else f" ({item['status']})")
