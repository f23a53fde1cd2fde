"""Two other systems that do the same work, each in an environment of its own and used as its documentation says.

DBOS is a library: `tests/bench/peer_dbos.py` runs a workflow with one step in it, with DBOS's own settings: on SQLite
a rollback journal, on PostgreSQL a pool of twenty connections. AtMem 2.3.8 is a server with the
requests of this product: the load asks it as it asks us. It takes minutes to hold some hundreds of workflows, so what
was filled is kept in the folder of the peers, and each run starts from a copy of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import requests

from tests.bench.asking import Line
from tests.bench.load import Job, Sample
from tests.bench.slow_disk import SlowDisk
from tests.bench.works import Client, create

PACKAGES = {"dbos": "dbos==3.4.0", "atmem": "atmem==2.3.8"}
PASSWORD = "benchmarks want no surprises 1A"
START_S, FILL_TELL = 60, 50
HERE = Path(__file__).resolve().parent
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/")


def python_of(folder: Path, peer: str) -> Path:
    """Return the interpreter of the environment that has a peer; make it first where it is not there."""
    package, _, version = PACKAGES[peer].partition("==")
    python = folder / peer / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / peer)], check=True)
    asked = [str(python), "-c", f"from importlib.metadata import version; print(version({package!r}))"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if found != version:
        print(f"installing {PACKAGES[peer]} into {folder / peer}", flush=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PACKAGES[peer]], check=True)
    return python


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep the folder of the peers from other runs of the lab."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environment(home: Path, slow: SlowDisk) -> dict[str, str]:
    """Return variables of a process that finds nothing of ours, no other program, and no network to fetch one from."""
    return {
        "PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "ATMEM_NONINTERACTIVE": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost",
        **slow.environment,
    }  # fmt: skip


class Dbos:
    """A process with DBOS in it."""

    def __init__(self, python: Path, url: str, folder: Path, *, slow: SlowDisk, most_threads: int) -> None:
        folder.mkdir(exist_ok=True)
        self._log = (folder / "dbos.log").open("w")
        self._process = subprocess.Popen(
            [str(python), "-P", str(HERE / "peer_dbos.py"), url, str(most_threads)],
            cwd=folder, env=environment(folder, slow), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True,
        )  # fmt: skip
        try:
            self._read()
            slow.hold(self._process.pid)
        except BaseException:
            self.close()
            raise

    def run(self, clients: int, seconds: float) -> Sample:
        self._process.stdin.write(json.dumps({"threads": clients, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        return Sample("operation", **self._read())

    def _read(self) -> dict[str, Any]:
        for line in self._process.stdout:
            if line.startswith("{"):
                read: dict[str, Any] = json.loads(line)
                return read
        raise RuntimeError(f"DBOS has ended: {Path(self._log.name).read_text()[-2000:]}")

    def close(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class AtMem:
    """A server of AtMem 2.3.8 that retains a number of workflows."""

    def __init__(self, python: Path, folder: Path, retained: int, *, slow: SlowDisk) -> None:
        """Start it from what was filled before; fill it first, without the slow disk, where there is nothing."""
        self._program = python.parent / "atmem"
        # One place for all runs: the server's files hold the paths of others.
        self._home = folder / f"atmem-home-{retained}"
        kept = folder / f"atmem-kept-{retained}"
        self.retained = retained
        if not kept.exists():
            self._fill(kept)
        shutil.rmtree(self._home, ignore_errors=True)
        shutil.copytree(kept, self._home)
        self._start(slow)
        try:
            slow.hold(self._process.pid)
        except BaseException:
            self.close()
            raise

    def job(self, clients: int, seconds: float) -> Job:
        return Job("operation", clients, seconds, self._address, self._headers, {"warm_up": "/v1/health"})

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def _headers(self) -> str:
        return f"Authorization: Bearer {(self._home / 'bench-token').read_text()}\r\n"

    def _fill(self, kept: Path) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir()
        fast = SlowDisk(0)
        password = self._initialise(fast)
        self._start(fast)
        try:
            (self._home / "bench-token").write_text(_granted(self._url, password))
            client = Client(Line(self._address, self._headers), {})
            for number in range(self.retained):
                if number % FILL_TELL == 0:
                    print(f"AtMem 2.3.8: {number} of {self.retained} workflows made", flush=True)
                create(client)
        finally:
            self._process.terminate()
            self._process.wait(timeout=START_S)
        self._home.rename(kept)

    def _initialise(self, fast: SlowDisk) -> str:
        """Make its home; return the first password. It starts a server of its own, which is stopped again."""
        env = environment(self._home, fast)
        command = [str(self._program), "init", "--no-open", "--json", "--port", str(_free_port())]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        try:
            made = json.loads(done.stdout[done.stdout.index("{\n") :])
        except ValueError:
            raise RuntimeError(f"AtMem 2.3.8 was not initialised: {done.stdout}{done.stderr}") from None
        subprocess.run(
            [str(self._program), "dashboard", "daemon", "stop"], env=env, check=True, stdout=subprocess.DEVNULL
        )
        return str(made["bootstrap"]["password"])

    def _start(self, slow: SlowDisk) -> None:
        log = self._home / "bench.log"
        with log.open("w") as stream:
            self._process = subprocess.Popen(
                [str(self._program), "dashboard", "--no-open", "--port", str(_free_port())],
                env={**environment(self._home, slow), "PYTHONUNBUFFERED": "1"}, stdin=subprocess.DEVNULL,
                stdout=stream, stderr=stream,
            )  # fmt: skip
        give_up = time.monotonic() + START_S
        while (found := _ADDRESS.search(log.read_text())) is None:
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"AtMem 2.3.8 does not start: {log.read_text()}")
            time.sleep(0.05)
        self._url, self._address = found[0].rstrip("/"), ("127.0.0.1", int(found[1]))


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _granted(url: str, password: str) -> str:
    """Sign in, choose a password as it wants, and return the token of an operator."""
    with requests.Session() as person:
        person.trust_env = False

        def call(path: str, body: Mapping[str, Any], csrf: str = "") -> dict[str, Any]:
            answer = person.post(url + path, json=body, headers={"X-CSRF-Token": csrf}, timeout=START_S)
            answer.raise_for_status()
            reply: dict[str, Any] = answer.json()
            return reply

        first = call("/api/auth/login", {"username": "administrator", "password": password})
        passwords = {"current_password": password, "new_password": PASSWORD}
        changed = call("/api/auth/change-password", passwords, first["csrf_token"])
        grant = {
            "principal_id": "bench-operator",
            "role": "evidence_collector",
            "run_id": None,
            "workspace_id": "default",
        }
        return str(call("/v1/evidence/grants", grant, changed["csrf_token"])["token"])
