"""`atmem demo`: the story that the product exists for, with real processes and a real document.

A worker is killed between the effect and its receipt; a second one resumes; one document is published; what it all
reportedly cost is in Activity, as made-up data of the scope ``demo``. While the killed worker's lease lives, the same
happens to the worker of an agent that people talk to (`app.cli.demo_conversation`), and the story ends with that one.
The demo runs the same commands that a person would type and believes only what it finds afterwards: the files on
the disk and what the server says. It ends with status 0 only if all of it was true, or if whoever watches ends it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from app.cli.demo_conversation import Conversation
from app.cli.demo_stage import (
    ADMINISTRATOR,
    SCOPE,
    STEP_TIMEOUT_S,
    Stage,
    StoryError,
    atmem,
    environment,
    run,
    wait_until,
)
from app.cli.terminal import Command

DOCUMENT: Final = """\
# Release notes

Published by a worker that was killed right after it had written this file, and by nobody else.
"""
WORKFLOW_KEY: Final = "publish-release-notes"
LEASE_MARGIN_S: Final = 1.0
STOPPED_SAFELY: Final = 2
_INTERRUPTED: Final = 130
COST_MICROUSD: Final = 2_345
# The worker of the example, which ends itself as `kill -9` would once the effect is on the disk.
_KILLED_WORKER: Final = """
import os, signal, sys
from continuity.example import main
def trace(point):
    if point == "effect.after":
        os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(trace=trace))
"""


@click.command(cls=Command)
@click.option("--exit", "ends", is_flag=True, help="End after the story instead of serving on.")
@click.option(
    "--instance", type=click.Path(path_type=Path, file_okay=False), envvar="INSTANCE", show_envvar=True,
    help="Folder to make and keep; without it a temporary one that goes when the demo ends.",
)  # fmt: skip
@click.option("--document", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A file to publish.")
def command(*, ends: bool, instance: Path | None, document: Path | None) -> None:
    """Publish a document and cancel an order, lose both workers, resume: each happens once."""
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
        click.echo(f"\nThe dashboard stays at {demo.url}: one payment there waits for your decision.")
        if demo.others:
            click.echo(
                f"So does a cancellation at {demo.url}/threads; its agent runs on, and answers whoever talks to it."
            )
        click.echo("Serving until Ctrl-C.")
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
class _Demo(Stage):
    """The story, on its stage."""

    # ---- the dashboard

    def open_dashboard(self) -> None:
        """Fill the dashboard, and say where it is to whoever may want to watch."""
        self._set_scenes()
        if self.is_watched:
            click.echo(f"\nThe dashboard: {self.url}")
            click.echo(f"Sign in as {ADMINISTRATOR} with the password {self.password}")
            click.echo("What follows can be watched there, in Decisions, Activity and Threads.\n")

    def _set_scenes(self) -> None:
        from app.cli import demo_scenes
        from continuity.client import ContinuityClient

        with ContinuityClient(self.url, self.credential("--principal", "example-agent")) as client:
            count = demo_scenes.set_up(client)
            phases = {each["phase"] for each in client.list_workflows(limit=count)["workflows"]}
        self.check("The dashboard has work in every phase to look at", phases == demo_scenes.PHASES)

    def _enable(self, work: _Work) -> None:
        """Enable the work: where somebody watches, they may do it in the browser first."""
        told = (
            f"Review it: {self.url}/resume-work/{work.workflow_id}",
            "Enable recovery there, or press Enter to enable it from here.",
        )
        if not self.leaves(told, is_done=lambda: bool(self._view(work)["enabled"])):
            enable = atmem("continuity", "enable", work.workflow_id, "--url", self.url, "--json")
            run(enable, self.folder, token=work.operator)

    # ---- the story

    def tell(self, document: Path | None, *, is_kept: bool) -> None:
        source = self._document(document)
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        work = self._prepare(source)
        self._lose_a_worker(work)
        held = self._held_back(work)
        talk = Conversation.of(self)
        if talk is not None:
            talk.lose_a_worker()
            click.echo("\nThe document again:")
        result = self._resume(work, held)
        observed = self._charge(work)
        self.check("Running it once more returns the saved result", self._result(work) == result)
        self.check("The saved result adds nothing to what it cost", self._observed() == observed)
        files = [path for path in work.published.iterdir() if path.is_file()]
        self.check("One file is in the folder, and it is the document", _digests(files) == [digest])
        self.check("The receipt says the same", result.get("sha256") == digest)
        place = files[0] if is_kept else f"{files[0].name} (in a temporary folder, gone with the demo)"
        click.echo(f"\n  {place}\n  {files[0].stat().st_size} bytes, SHA-256 {digest}")
        if talk is not None:
            talk.go_on()

    def _document(self, document: Path | None) -> Path:
        if document is not None:
            return document
        source = self.folder / "release-notes.md"
        source.write_text(DOCUMENT)
        return source

    def _prepare(self, source: Path) -> _Work:
        published = self.folder / "published"
        operator = self.credential("--principal", "document-operator")
        prepare = ("prepare", "--workflow-key", WORKFLOW_KEY, "--document", str(source), "--output", str(published))
        prepared = json.loads(run(_example(*prepare), self.folder, token=operator, url=self.url))
        self.check("An agent has prepared the work; it waits for review", prepared["enabled"] is False)
        workflow_id = prepared["workflow_id"]
        worker = self.credential(workflow_id, "--principal", "document-worker")
        work = _Work(workflow_id, published, self.url, operator, worker)
        self._enable(work)
        self.check("An operator has reviewed and enabled it", self._view(work)["enabled"] is True)
        return work

    def _lose_a_worker(self, work: _Work) -> None:
        killed = subprocess.run(
            [sys.executable, "-c", _KILLED_WORKER, *work.run],
            env=environment(self.folder, token=work.worker, url=self.url, producer=self.producer), capture_output=True,
            timeout=STEP_TIMEOUT_S, check=False,
        )  # fmt: skip
        self.check("A worker was killed (SIGKILL) after the effect, before its receipt", killed.returncode < 0)
        self.check("The document is published, and nobody has said so", len(list(work.published.iterdir())) == 1)
        is_uncertain = self._view(work)["operations"][0]["status"] == "uncertain"
        self.check("The server knows that it may have happened", is_uncertain)

    def _held_back(self, work: _Work) -> dict[str, Any]:
        stopped = self._stopped(work)
        is_held = stopped.get("stopped_safely") == "attempt_in_progress"
        self.check("A second worker is held back while the first one's lease lives", is_held)
        return stopped

    def _resume(self, work: _Work, held: dict[str, Any]) -> dict[str, Any]:
        lease_until = float(held["lease_until"])
        wait_until(lease_until + LEASE_MARGIN_S, told="Its lease protects whatever it may still be doing")
        result = self._result(work)
        operation = self._view(work)["operations"][0]
        modes = [attempt["mode"] for attempt in operation["attempts"]]
        self.check("Then it asked the destination instead of publishing again", modes == ["execute", "query"])
        self.check("The work is completed, its receipt saved", operation["status"] == "completed")
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
        self.check("AtFlows has seen two attempts, one of them a recovery", (len(attempts), len(recoveries)) == (2, 1))
        costs = [event.get("cost_microusd") for event in observed if "charge_id" in event]
        self.check("It knows of two charges, one priced and one not", costs == [COST_MICROUSD, None])
        click.echo(f"     Reported: at least ${COST_MICROUSD / 1e6:.6f}, 1 charge of unknown cost (made-up data).")
        return observed

    def _observed(self) -> list[dict[str, Any]]:
        lines = run(atmem("observations", "export", "--scope", SCOPE), self.folder).splitlines()
        return [json.loads(line) for line in lines]

    def _result(self, work: _Work) -> dict[str, Any]:
        printed = run(_example(*work.run), self.folder, token=work.worker, url=self.url, producer=self.producer)
        result: dict[str, Any] = json.loads(printed)["result"]
        return result

    def _stopped(self, work: _Work) -> dict[str, Any]:
        done = subprocess.run(
            _example(*work.run),
            env=environment(self.folder, token=work.worker, url=self.url, producer=self.producer),
            capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != STOPPED_SAFELY:
            raise StoryError(f"The second worker was not held back (status {done.returncode}). {done.stderr.strip()}")
        stopped: dict[str, Any] = json.loads(done.stdout)
        return stopped

    def _view(self, work: _Work) -> dict[str, Any]:
        show = atmem("continuity", "show", work.workflow_id, "--url", self.url, "--json")
        view: dict[str, Any] = json.loads(run(show, self.folder, token=work.operator))
        return view


def _digests(files: Sequence[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]


def _example(*words: str) -> list[str]:
    return [sys.executable, "-m", "continuity.example", *words]
