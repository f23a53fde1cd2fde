"""`atmem demo`: the story that the product exists for, with real processes and a real document.

A worker is killed between the effect and its receipt; a second one resumes; one document is published; what it all
reportedly cost is in Activity, as made-up data of the scope ``demo``. The
demo runs the same commands that a person would type and believes only what it finds afterwards: the files on
the disk and what the server says. It ends with status 0 only if all of it was true, or if whoever watches ends it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from app.cli.terminal import Command

DOCUMENT: Final = """\
# Release notes

Published by a worker that was killed right after it had written this file, and by nobody else.
"""
WORKFLOW_KEY: Final = "publish-release-notes"
ADMINISTRATOR: Final = "administrator"
STEP_TIMEOUT_S: Final = 60.0
LEASE_MARGIN_S: Final = 1.0
STOPPED_SAFELY: Final = 2
_INTERRUPTED: Final = 130
SCOPE: Final = "demo"
"""Observation scope of made-up data."""
COST_MICROUSD: Final = 2_345
_BAR_TICK_S: Final = 0.25
_PASSWORD_BYTES: Final = 15
_TOKEN_BYTES: Final = 32
_LOG_LINES: Final = 10
# The worker of the example, which ends itself as `kill -9` would once the effect is on the disk.
_KILLED_WORKER: Final = """
import os, signal, sys
from continuity.example import main
def trace(point):
    if point == "effect.after":
        os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(trace=trace))
"""


class StoryError(click.ClickException):
    """Something of the story was not true. Status 1."""


@click.command(cls=Command)
@click.option("--exit", "ends", is_flag=True, help="End after the story instead of serving on.")
@click.option(
    "--instance", type=click.Path(path_type=Path, file_okay=False), envvar="INSTANCE", show_envvar=True,
    help="Folder to make and keep; without it a temporary one that goes when the demo ends.",
)  # fmt: skip
@click.option("--document", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A file to publish.")
def command(*, ends: bool, instance: Path | None, document: Path | None) -> None:
    """Publish a document, lose the worker, resume: one publication."""
    try:
        _tell(document, instance, ends=ends)
    except KeyboardInterrupt:
        click.echo("\nStopped. The story was not told to its end.")
        raise click.exceptions.Exit(_INTERRUPTED if ends else 0) from None


def _tell(document: Path | None, instance: Path | None, *, ends: bool) -> None:
    with _folder(instance) as folder, _Demo.started(folder) as demo:
        demo.is_watched = not ends
        demo.open_dashboard()
        demo.tell(document, is_kept=instance is not None or not ends)
        if ends:
            return
        click.echo(
            f"\nThe dashboard stays at {demo.url}: one payment there waits for your decision.\nServing until Ctrl-C."
        )
        demo.wait()
    click.echo("Stopped.")


@contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    if wanted is not None:
        if wanted.exists() and any(wanted.iterdir()):
            raise click.ClickException(f"{wanted} is not empty: the demo makes a new instance. Nothing was changed.")
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield wanted.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="atmem-demo-") as made:
        yield Path(made).resolve()


@dataclass(frozen=True)
class _Work:
    """The work of the story, and the credentials of those who do it."""

    workflow_id: str
    published: Path
    url: str
    operator: str = field(repr=False)
    worker: str = field(repr=False)

    @property
    def run(self) -> tuple[str, ...]:
        """The worker's command, the same at every attempt."""
        words = ("run", "--workflow-id", self.workflow_id, "--output", str(self.published))
        return (*words, "--atflows-url", self.url)


@dataclass
class _Demo:
    """One running demo: its folder, its server, its administrator."""

    folder: Path
    server: subprocess.Popen[str]
    url: str
    password: str = field(repr=False)
    producer: str = field(default="", repr=False)
    is_watched: bool = False
    steps: int = 0

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[_Demo]:
        """Make the instance, start its server, replace the temporary password."""
        # Whoever ends the demo ends its server as well.
        signal.signal(signal.SIGTERM, _interrupt)
        click.echo(f"A fresh instance in {folder}")
        made = json.loads(_run(_atmem("init", "--json"), folder))
        password, producer = secrets.token_urlsafe(_PASSWORD_BYTES), secrets.token_urlsafe(_TOKEN_BYTES)
        passwords = f"{made['bootstrap']['password']}\n{password}\n"
        change = _atmem("users", "change-password", ADMINISTRATOR, "--password-file", "-", "--json")
        _run(change, folder, given=passwords)
        with (folder / "server.log").open("w") as log:
            server = subprocess.Popen(
                _atmem("serve", "--port", "0", "--json"), env=_environment(folder, producer=producer),
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
            try:
                yield cls(folder, server, _address(server, folder), password, producer)
            finally:
                _end(server)

    # ---- the dashboard

    def open_dashboard(self) -> None:
        """Fill the dashboard, and say where it is to whoever may want to watch."""
        self._set_scenes()
        if self.is_watched:
            click.echo(f"\nThe dashboard: {self.url}")
            click.echo(f"Sign in as {ADMINISTRATOR} with the password {self.password}")
            click.echo("What follows can be watched there, in Decisions and in Activity.\n")

    def _set_scenes(self) -> None:
        from app.cli import demo_scenes
        from continuity.client import ContinuityClient

        with ContinuityClient(self.url, self._credential("--principal", "example-agent")) as client:
            count = demo_scenes.set_up(client)
            phases = {each["phase"] for each in client.list_workflows(limit=count)["workflows"]}
        self._check("The dashboard has work in every phase to look at", phases == demo_scenes.PHASES)

    def _enable(self, work: _Work) -> None:
        """Enable the work: where somebody watches, they may do it in the browser first."""
        if self.is_watched and sys.stdin.isatty() and os.name != "nt":
            click.echo(f"     Review it: {self.url}/resume-work/{work.workflow_id}")
            click.echo("     Enable recovery there, or press Enter to enable it from here.")
            while not select.select([sys.stdin], [], [], 1.0)[0]:
                if self._view(work)["enabled"]:
                    return
            sys.stdin.readline()
        enable = _atmem("continuity", "enable", work.workflow_id, "--url", self.url, "--json")
        _run(enable, self.folder, token=work.operator)

    # ---- the story

    def tell(self, document: Path | None, *, is_kept: bool) -> None:
        source = self._document(document)
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        work = self._prepare(source)
        self._lose_a_worker(work)
        result = self._resume(work)
        observed = self._charge(work)
        self._check("Running it once more returns the saved result", self._result(work) == result)
        self._check("The saved result adds nothing to what it cost", self._observed() == observed)
        files = [path for path in work.published.iterdir() if path.is_file()]
        self._check("One file is in the folder, and it is the document", _digests(files) == [digest])
        self._check("The receipt says the same", result.get("sha256") == digest)
        place = files[0] if is_kept else f"{files[0].name} (in a temporary folder, gone with the demo)"
        click.echo(f"\n  {place}\n  {files[0].stat().st_size} bytes, SHA-256 {digest}")

    def _document(self, document: Path | None) -> Path:
        if document is not None:
            return document
        source = self.folder / "release-notes.md"
        source.write_text(DOCUMENT)
        return source

    def _prepare(self, source: Path) -> _Work:
        published = self.folder / "published"
        operator = self._credential("--principal", "document-operator")
        prepare = ("prepare", "--workflow-key", WORKFLOW_KEY, "--document", str(source), "--output", str(published))
        prepared = json.loads(_run(_example(*prepare), self.folder, token=operator, url=self.url))
        self._check("An agent has prepared the work; it waits for review", prepared["enabled"] is False)
        workflow_id = prepared["workflow_id"]
        worker = self._credential(workflow_id, "--principal", "document-worker")
        work = _Work(workflow_id, published, self.url, operator, worker)
        self._enable(work)
        self._check("An operator has reviewed and enabled it", self._view(work)["enabled"] is True)
        return work

    def _lose_a_worker(self, work: _Work) -> None:
        killed = subprocess.run(
            [sys.executable, "-c", _KILLED_WORKER, *work.run],
            env=_environment(self.folder, token=work.worker, url=self.url, producer=self.producer), capture_output=True,
            timeout=STEP_TIMEOUT_S, check=False,
        )  # fmt: skip
        self._check("A worker was killed (SIGKILL) after the effect, before its receipt", killed.returncode < 0)
        self._check("The document is published, and nobody has said so", len(list(work.published.iterdir())) == 1)
        is_uncertain = self._view(work)["operations"][0]["status"] == "uncertain"
        self._check("The server knows that it may have happened", is_uncertain)

    def _resume(self, work: _Work) -> dict[str, Any]:
        stopped = self._stopped(work)
        is_held = stopped.get("stopped_safely") == "attempt_in_progress"
        self._check("A second worker is held back while the first one's lease lives", is_held)
        _wait_until(float(stopped["lease_until"]) + LEASE_MARGIN_S)
        result = self._result(work)
        operation = self._view(work)["operations"][0]
        modes = [attempt["mode"] for attempt in operation["attempts"]]
        self._check("Then it asked the destination instead of publishing again", modes == ["execute", "query"])
        self._check("The work is completed, its receipt saved", operation["status"] == "completed")
        return result

    def _charge(self, work: _Work) -> list[dict[str, Any]]:
        """Report a made-up charge for either attempt, the second without a price; return all that was observed."""
        from continuity.client import AtFlowsObserver
        from observations.events import Event, EventName

        operation = self._view(work)["operations"][0]
        observer = AtFlowsObserver(self.url, self.producer)
        prices = ({"cost_microusd": COST_MICROUSD, "price_source": "demo-price-list-1"}, {})
        for number, (attempt, price) in enumerate(zip(operation["attempts"], prices, strict=True), start=1):
            observer.deliver(Event(
                event_id=f"demo-{number}-{work.workflow_id}", workflow_id=work.workflow_id,
                operation_id=operation["operation_id"], run_id=attempt["run_id"], attempt_id=attempt["attempt_id"],
                event=EventName.USAGE, time=time.time(), charge_id=f"demo-response-{number}",
                charge_source="demo-account", input_tokens=1_200, output_tokens=80, **price,
            ))  # fmt: skip
        observer.close()
        observed = self._observed()
        attempts = {event["attempt_id"] for event in observed}
        recoveries = {event["attempt_id"] for event in observed if event.get("recovery")}
        self._check("AtFlows has seen two attempts, one of them a recovery", (len(attempts), len(recoveries)) == (2, 1))
        costs = [event.get("cost_microusd") for event in observed if "charge_id" in event]
        self._check("It knows of two charges, one priced and one not", costs == [COST_MICROUSD, None])
        click.echo(f"     Reported: at least ${COST_MICROUSD / 1e6:.6f}, 1 charge of unknown cost (made-up data).")
        return observed

    def _observed(self) -> list[dict[str, Any]]:
        lines = _run(_atmem("observations", "export", "--scope", SCOPE), self.folder).splitlines()
        return [json.loads(line) for line in lines]

    def _result(self, work: _Work) -> dict[str, Any]:
        printed = _run(_example(*work.run), self.folder, token=work.worker, url=self.url, producer=self.producer)
        result: dict[str, Any] = json.loads(printed)["result"]
        return result

    def _stopped(self, work: _Work) -> dict[str, Any]:
        done = subprocess.run(
            _example(*work.run),
            env=_environment(self.folder, token=work.worker, url=self.url, producer=self.producer),
            capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != STOPPED_SAFELY:
            raise StoryError(f"The second worker was not held back (status {done.returncode}). {done.stderr.strip()}")
        stopped: dict[str, Any] = json.loads(done.stdout)
        return stopped

    def _credential(self, *options: str) -> str:
        issue = _atmem("continuity", "credential", *options, "--url", self.url, "--password-file", "-", "--token-only")
        return _run(issue, self.folder, given=f"{self.password}\n").strip()

    def _view(self, work: _Work) -> dict[str, Any]:
        show = _atmem("continuity", "show", work.workflow_id, "--url", self.url, "--json")
        view: dict[str, Any] = json.loads(_run(show, self.folder, token=work.operator))
        return view

    def _check(self, claim: str, is_true: bool) -> None:  # noqa: FBT001 - what is claimed, and whether it holds
        self.steps += 1
        if not is_true:
            raise StoryError(f"{self.steps}. {claim}: this was not so. {_log_tail(self.folder)}")
        click.echo(f"  {self.steps}. {claim}.")

    def wait(self) -> None:
        """Serve until Ctrl-C, which ends the server first where this process does not hear it, or until it fails."""
        try:
            status = self.server.wait()
        except KeyboardInterrupt:
            click.echo()
            return
        if status != 0:
            raise StoryError(f"The server has ended (status {status}). {_log_tail(self.folder)}")


def _digests(files: Sequence[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]


def _wait_until(at_s: float) -> None:
    """Wait for a lease to run out, showing how long it still takes."""
    left_s = at_s - time.time()
    click.echo(f"     Its lease protects whatever it may still be doing: {left_s:.0f} s to wait.")
    if not sys.stderr.isatty():
        time.sleep(max(left_s, 0))
        return
    stderr, ticks = click.get_text_stream("stderr"), int(left_s / _BAR_TICK_S) + 1
    with click.progressbar(length=ticks, label="     lease", file=stderr) as bar:
        while time.time() < at_s:
            time.sleep(_BAR_TICK_S)
            bar.update(1)


def _atmem(*words: str) -> list[str]:
    return [sys.executable, "-m", "app.cli", *words]


def _example(*words: str) -> list[str]:
    return [sys.executable, "-m", "continuity.example", *words]


def _environment(folder: Path, *, token: str = "", url: str = "", producer: str = "") -> dict[str, str]:
    """Return the environment of a step: nothing of another instance, secrets only where they are used."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ATMEM_", "ATFLOWS_"))}
    kept["ATMEM_INSTANCE"] = str(folder / "instance")
    if token:
        kept["ATMEM_EVIDENCE_TOKEN"] = token
    if url:
        kept["ATMEM_URL"] = url
    if producer:
        kept |= {"ATFLOWS_CONTINUITY_TOKEN": producer, "ATFLOWS_CONTINUITY_SCOPE": SCOPE}
    return kept


def _run(
    command_line: Sequence[str], folder: Path, *, token: str = "", url: str = "", given: str = "", producer: str = ""
) -> str:
    done = subprocess.run(
        command_line, env=_environment(folder, token=token, url=url, producer=producer), input=given,
        capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise StoryError(f"{' '.join(command_line[2:5])} … failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _address(server: subprocess.Popen[str], folder: Path) -> str:
    """Read the address that the server announces."""
    printed = ""
    for line in server.stdout or ():
        printed += line
        if line.startswith("}"):
            return str(json.loads(printed)["url"])
    raise StoryError(f"The server did not start. {_log_tail(folder)}")


def _log_tail(folder: Path) -> str:
    """Return the end of the server's log: the folder may be gone when somebody reads this."""
    lines = (folder / "server.log").read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return "The server's log ends with:\n" + "\n".join(lines) if lines else "The server's log is empty."


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _end(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=STEP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if server.stdout is not None:
        server.stdout.close()
