"""What the demo plays on: a fresh instance with its server and administrator, other processes, and what was claimed.

Every command is started as a person would start it. Whoever ends the demo ends all of its processes.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NoReturn, Self

import click

ADMINISTRATOR: Final = "administrator"
STEP_TIMEOUT_S: Final = 60.0
SCOPE: Final = "demo"
"""Observation scope of made-up data."""
_PASSWORD_BYTES: Final = 15
_TOKEN_BYTES: Final = 32
_LOG_LINES: Final = 10
_BAR_TICK_S: Final = 0.25
_LOOK_S: Final = 1.0
_WORKER_PATIENCE_S: Final = 2.0
"""A worker whose server is gone asks for it a while; it may be killed at any moment."""


class StoryError(click.ClickException):
    """Something of the story was not true. Status 1."""


@dataclass
class Stage:
    """One running demo: its folder, its server, its administrator."""

    folder: Path
    server: subprocess.Popen[str]
    url: str
    password: str = field(repr=False)
    producer: str = field(default="", repr=False)
    is_watched: bool = False
    steps: int = 0
    others: list[subprocess.Popen[str]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Self]:
        """Make the instance, start its server, replace the temporary password."""
        # Whoever ends the demo ends its server as well.
        signal.signal(signal.SIGTERM, _interrupt)
        click.echo(f"A fresh instance in {folder}")
        made = json.loads(run(atmem("init", "--json"), folder))
        password, producer = secrets.token_urlsafe(_PASSWORD_BYTES), secrets.token_urlsafe(_TOKEN_BYTES)
        passwords = f"{made['bootstrap']['password']}\n{password}\n"
        change = atmem("users", "change-password", ADMINISTRATOR, "--password-file", "-", "--json")
        run(change, folder, given=passwords)
        others: list[subprocess.Popen[str]] = []
        with (folder / "server.log").open("w") as log:
            server = subprocess.Popen(
                atmem("serve", "--port", "0", "--json"), env=environment(folder, producer=producer),
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
            try:
                yield cls(folder, server, _address(server, folder), password, producer, others=others)
            finally:
                for process in others:
                    _end(process, patience_s=_WORKER_PATIENCE_S)
                _end(server, patience_s=STEP_TIMEOUT_S)

    def start(
        self, command_line: Sequence[str], log: IO[str], *, at: Path, variables: dict[str, str]
    ) -> subprocess.Popen[str]:
        """Start a process that goes on beside the story and ends with the demo; both its streams go to `log`."""
        process = subprocess.Popen(command_line, env=variables, cwd=at, stdout=log, stderr=log, text=True)
        self.others.append(process)
        return process

    def credential(self, *options: str) -> str:
        """Issue a credential, as the administrator."""
        issue = atmem("continuity", "credential", *options, "--url", self.url, "--password-file", "-", "--token-only")
        return run(issue, self.folder, given=f"{self.password}\n").strip()

    def check(self, claim: str, is_true: bool) -> None:  # noqa: FBT001 - what is claimed, and whether it holds
        """Say the next step of the story, or that it was not so."""
        self.steps += 1
        if not is_true:
            raise StoryError(f"{self.steps}. {claim}: this was not so. {log_tail(self.folder)}")
        click.echo(f"  {self.steps}. {claim}.")

    def leaves(self, told: Sequence[str], *, is_done: Callable[[], bool]) -> bool:
        """Leave a step to whoever watches, who may do it in the browser or press Enter; return whether they did it."""
        if not self.is_watched or not sys.stdin.isatty() or os.name == "nt":
            return False
        for line in told:
            click.echo(f"     {line}")
        while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
            if is_done():
                return True
        sys.stdin.readline()
        return False

    def wait(self) -> None:
        """Serve until Ctrl-C, which ends the server first where this process does not hear it, or until it fails."""
        try:
            status = self.server.wait()
        except KeyboardInterrupt:
            click.echo()
            return
        if status != 0:
            raise StoryError(f"The server has ended (status {status}). {log_tail(self.folder)}")


def wait_until(at_s: float, *, told: str) -> None:
    """Wait for a lease to run out, showing how long it still takes."""
    left_s = at_s - time.time()
    if left_s <= 0:
        return
    click.echo(f"     {told}: {math.ceil(left_s)} s to wait.")
    if not sys.stderr.isatty():
        time.sleep(left_s)
        return
    stderr, ticks = click.get_text_stream("stderr"), int(left_s / _BAR_TICK_S) + 1
    with click.progressbar(length=ticks, label="     lease", file=stderr) as bar:
        while time.time() < at_s:
            time.sleep(_BAR_TICK_S)
            bar.update(1)


def atmem(*words: str) -> list[str]:
    """Return the command line of one of our commands."""
    return [sys.executable, "-m", "app.cli", *words]


def environment(folder: Path, *, token: str = "", url: str = "", producer: str = "") -> dict[str, str]:
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


def run(
    command_line: Sequence[str], folder: Path, *, token: str = "", url: str = "", given: str = "", producer: str = ""
) -> str:
    """Run a command to its end; return what it printed."""
    done = subprocess.run(
        command_line, env=environment(folder, token=token, url=url, producer=producer), input=given,
        capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise StoryError(f"{' '.join(command_line[2:5])} … failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def log_tail(folder: Path, name: str = "server") -> str:
    """Return the end of a log: the folder may be gone when somebody reads this."""
    lines = (folder / f"{name}.log").read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return f"The {name}'s log ends with:\n" + "\n".join(lines) if lines else f"The {name}'s log is empty."


def _address(server: subprocess.Popen[str], folder: Path) -> str:
    """Read the address that the server announces."""
    printed = ""
    for line in server.stdout or ():
        printed += line
        if line.startswith("}"):
            return str(json.loads(printed)["url"])
    raise StoryError(f"The server did not start. {log_tail(folder)}")


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _end(process: subprocess.Popen[str], *, patience_s: float) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
