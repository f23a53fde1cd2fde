"""A parent that has imported everything once and forks a real process for each job: a start costs milliseconds.

The parent has no threads and opens nothing of the product, so that a child begins as a fresh interpreter would, with
its modules loaded. ``python -m tests.crash.forks`` speaks one JSON line a request on standard input and output.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.crash import entry, host, racer
from tests.patience import PATIENCE_S
from tests.servers import ROOT

Jobs = Mapping[str, Callable[..., None]]
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


class Forks:
    """The tests' side: starts, awaits and ends children, all of them by their id."""

    def __init__(self, module: str = "tests.crash.forks") -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", module],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def start(self, job: str, *, log: Path, **arguments: Any) -> int:
        """Start a job in a process group of its own; its output goes to `log` and ``<log>.out``."""
        return int(self._ask({"job": job, "log": str(log), "arguments": arguments}))

    def wait(self, process: int) -> int:
        """Wait until a child has ended; return its exit code, negative for a signal."""
        return int(self._ask({"wait": process}))

    def kill(self, process: int) -> None:
        """Kill a child and whatever it has started, and wait for it."""
        os.killpg(process, signal.SIGKILL)
        self.wait(process)

    def close(self) -> None:
        self._parent.stdin.close()
        self._parent.wait(timeout=PATIENCE_S)
        self._parent.stdout.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        self._parent.stdin.write(json.dumps(request).encode() + b"\n")
        self._parent.stdin.flush()
        ready, _, _ = select.select([self._parent.stdout], [], [], PATIENCE_S)
        if not ready:
            os.kill(self._parent.pid, signal.SIGTERM)
            raise AssertionError(f"nothing has come of {request}")
        return json.loads(self._parent.stdout.readline())


def _run(request: dict[str, Any], jobs: Jobs) -> None:
    """Be the child: its own group, its own output, then the job."""
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, request["log"] + ".out"), (2, request["log"])):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    if sys.platform == "linux":
        # strace is no parent of ours: where only those may look, let it.
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    jobs[request["job"]](**request["arguments"])


def _fork(request: dict[str, Any], jobs: Jobs) -> int:
    child = os.fork()
    if child:
        os.setpgid(child, child)
        return child
    status = 1
    try:
        _run(request, jobs)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main(jobs: Jobs) -> None:
    def end(*_: object) -> None:
        raise SystemExit(1)

    signal.signal(signal.SIGTERM, end)
    children: set[int] = set()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if "job" in request:
                answer = _fork(request, jobs)
                children.add(answer)
            else:
                _, status = os.waitpid(request["wait"], 0)
                children.discard(request["wait"])
                answer = os.waitstatus_to_exitcode(status)
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()
    finally:
        for child in children:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    main({"serve": entry.serve, "work": host.work, "race": racer.race})
