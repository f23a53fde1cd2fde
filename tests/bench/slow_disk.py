"""A disk that takes longer to sync: milliseconds added to each fsync and fdatasync of the processes that it is for.

Either a library of a few lines that is loaded before the C library's own (`cc` compiles it), or strace, which is
attached to the processes and also slows down what it only watches. Without both nothing is measured.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

VARIABLE = "BENCH_SYNC_DELAY_US"
ATTACH_S = 10
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void wait_for_the_disk(void)
{
    const char *given = getenv("BENCH_SYNC_DELAY_US");
    long us = given ? atol(given) : 0;
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0) {}
}

static int synced(const char *name, int file)
{
    int (*real)(int) = (int (*)(int)) dlsym(RTLD_NEXT, name);
    wait_for_the_disk();
    return real(file);
}

int fsync(int file) { return synced("fsync", file); }
int fdatasync(int file) { return synced("fdatasync", file); }
"""


class NoSlowDiskError(Exception):
    """A disk cannot be slowed down here; the message says what is missing."""


class SlowDisk:
    """What slows the disk down. Without a delay it does nothing."""

    def __init__(self, delay_ms: float) -> None:
        self.delay_ms = delay_ms
        self._folder: Path | None = None
        self._library: Path | None = None
        self._tracers: list[subprocess.Popen[bytes]] = []
        self.means = "none"
        if delay_ms > 0:
            self._choose()

    def _choose(self) -> None:
        compiler = shutil.which("cc")
        if compiler is not None:
            self._library = self._compiled(compiler)
            self.means = f"{self.delay_ms:g} ms by a preloaded library"
        elif shutil.which("strace"):
            self.means = f"{self.delay_ms:g} ms by strace, which slows every call of the traced processes"
        else:
            raise NoSlowDiskError("--fsync-delay-ms needs a C compiler (cc) or strace; there is neither.")

    def _compiled(self, compiler: str) -> Path:
        # Readable for everybody: PostgreSQL runs as a user of its own.
        self._folder = Path(tempfile.mkdtemp(prefix="atmem-slow-disk-"))
        self._folder.chmod(0o755)
        source, library = self._folder / "slow.c", self._folder / "slow.so"
        source.write_text(SOURCE)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoSlowDiskError(f"--fsync-delay-ms: {compiler} could not compile: {done.stderr.strip()}")
        library.chmod(0o755)
        return library

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process that is to be slow from its start."""
        if self._library is None:
            return {}
        return {"LD_PRELOAD": str(self._library), VARIABLE: str(round(self.delay_ms * 1e3))}

    def hold(self, pid: int) -> None:
        """See to it that a process and all that it has started are slow."""
        if self.delay_ms <= 0:
            return
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            if self._library is None:
                self._attach(each.pid)
            elif str(self._library) not in Path(f"/proc/{each.pid}/maps").read_text():
                raise NoSlowDiskError(f"process {each.pid} ({each.name()}) has not loaded {self._library}")

    def _attach(self, pid: int) -> None:
        said = tempfile.TemporaryFile()  # noqa: SIM115 - it is the tracer's as well
        delay = f"inject=fsync,fdatasync:delay_enter={round(self.delay_ms * 1e3)}"
        command = ["strace", "-f", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", delay, "-p", str(pid)]
        tracer = subprocess.Popen(command, stderr=said)
        self._tracers.append(tracer)
        give_up = time.monotonic() + ATTACH_S
        with said:
            while b"attached" not in os.pread(said.fileno(), 65_536, 0):
                if tracer.poll() is not None or time.monotonic() > give_up:
                    raise NoSlowDiskError(f"strace cannot follow process {pid}")
                time.sleep(0.01)

    def close(self) -> None:
        for tracer in self._tracers:
            tracer.send_signal(signal.SIGTERM)
            tracer.wait(timeout=ATTACH_S)
        if self._folder is not None:
            shutil.rmtree(self._folder)
