"""The real server as a process of its own, on a free port, with a fresh instance.

Fixtures: `running_server` (a test's own), `shared_server` (a module's), `fresh_instance` (not started). For several
servers, or for one on another database, use `initialised`, `start` and `stop` directly.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Instance:
    """An instance folder that `atmem init` has made, with the first administrator's temporary password."""

    folder: Path
    username: str
    password: str = field(repr=False)

    def copy_to(self, folder: Path) -> Instance:
        shutil.copytree(self.folder, folder)
        folder.chmod(0o700)
        return Instance(folder, self.username, self.password)


@dataclass
class RunningServer:
    """One started server; `log` is the file of its standard error."""

    process: subprocess.Popen[str]
    url: str
    instance: Instance
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    def connect(self, *, timeout_s: float = PATIENCE_S) -> socket.socket:
        """Open a plain connection to it."""
        return socket.create_connection(self.address, timeout=timeout_s)

    def log_lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def terminate(self) -> int:
        """Stop it as an operator would; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        """End it without a chance to tidy up, and wait until it is gone."""
        self.process.kill()
        self.process.wait(timeout=PATIENCE_S)


def environment(folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a process that works on the instance in `folder`, free of settings of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ATMEM_", "ATFLOWS_"))}
    return {**kept, "ATMEM_INSTANCE": str(folder), **(extra or {})}


def initialised(folder: Path, extra: Mapping[str, str] | None = None) -> Instance:
    """Make a new instance in `folder`, in this process."""
    # Here and not above: every test imports this module, most of them without a server.
    from app.commanding import initialise  # noqa: PLC0415
    from app.config import load_settings  # noqa: PLC0415
    from tests.entry import OVERRIDES  # noqa: PLC0415

    umask = os.umask(0o077)
    # A key in a variable is taken out of this process's own environment.
    os.environ.update({name: value for name, value in (extra or {}).items() if name == "ATMEM_VAULT_KEY"})
    try:
        made = initialise(load_settings({"ATMEM_INSTANCE": str(folder), **(extra or {})}), overrides=OVERRIDES)
    finally:
        os.umask(umask)
    assert made is not None, "there was an instance already"
    return Instance(folder, made.username, made.password)


def start(
    instance: Instance, *options: str, extra: Mapping[str, str] | None = None, entry: str = "tests.entry"
) -> RunningServer:
    """Start the server on `instance` and wait until it listens; `entry` is the module of the command line."""
    log = instance.folder.with_name(instance.folder.name + ".log")
    with log.open("a") as stream:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", entry, "serve", "--port", "0", "--json", *options],
            cwd=ROOT,
            env=environment(instance.folder, extra),
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        )
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if line.startswith("}"):
            return RunningServer(process, json.loads(printed)["url"], instance, log)
    process.wait(timeout=PATIENCE_S)
    raise AssertionError(f"the server did not start: {log.read_text()}")


def stop(server: RunningServer) -> None:
    """End a server whatever state it is in."""
    server.process.kill()
    server.process.wait(timeout=PATIENCE_S)
    if server.process.stdout is not None:
        server.process.stdout.close()


@pytest.fixture(scope="session")
def instance_template(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """An instance on SQLite, made once and copied for each test."""
    return initialised(tmp_path_factory.mktemp("template") / "instance")


@pytest.fixture
def fresh_instance(instance_template: Instance, tmp_path: Path) -> Instance:
    return instance_template.copy_to(tmp_path / "instance")


@pytest.fixture
def running_server(fresh_instance: Instance) -> Iterator[RunningServer]:
    """The server of this test alone."""
    server = start(fresh_instance)
    yield server
    stop(server)


@pytest.fixture(scope="module")
def shared_server(instance_template: Instance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The server of a module whose tests do not disturb one another."""
    server = start(instance_template.copy_to(tmp_path_factory.mktemp("shared") / "instance"))
    yield server
    stop(server)
