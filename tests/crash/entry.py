"""The server for crash tests: a clock that a test moves, and points at which the process kills itself.

Both are given as arguments to `serve` by a test. They reach the product through `Overrides`, as tests/entry.py does;
nothing in the environment can (test_release.py).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from flask import has_request_context, request

from app.auth.settings import CHEAP_HASHING, AuthSettings
from app.cli import main
from app.wiring import Overrides, SystemClock
from continuity.store.store import Store

T = TypeVar("T")
UNITS = {
    "create": "Workflows.create.", "begin": "Attempts.begin.", "outcome": "Attempts.outcome.",
    "expire": "ThreadUpkeep.",
}  # fmt: skip
"""The units of work that can be killed, by where their functions are defined."""
THREADS = ("Threads.", "ThreadWork.", "ThreadClaims.")
"""Where one function serves several requests about threads: a unit is what the request's path ends with."""


class FileClock:
    """The machine's clock plus the seconds that a file holds; every process that has the file sees the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._system = SystemClock()

    def shift_s(self) -> float:
        return float(self._path.read_text())

    def advance(self, seconds: float) -> None:
        partial_path = self._path.with_suffix(".new")
        partial_path.write_text(str(self.shift_s() + seconds))
        partial_path.chmod(0o644)
        partial_path.replace(self._path)

    def now_us(self) -> int:
        return self._system.now_us() + int(self.shift_s() * 1_000_000)

    def monotonic_us(self) -> int:
        return self._system.monotonic_us() + int(self.shift_s() * 1_000_000)


class DyingStore(Store):
    """Kills its process before or after the commit of the unit of work that a file names."""

    def __init__(self, engine: sa.Engine, armed: Path) -> None:
        super().__init__(engine)
        self._armed = armed

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        def watched(connection: sa.Connection) -> T:
            value = work(connection)
            self._pass(work, "before_commit")
            return value

        value = super().write(watched)
        self._pass(work, "after_commit")
        return value

    def _pass(self, work: Callable[[sa.Connection], object], moment: str) -> None:
        try:
            wanted = self._armed.read_text()
        except FileNotFoundError:
            return
        unit, _, when = wanted.partition(".")
        if when == moment and _is(work, unit):
            # Of several processes one dies, and dies once.
            self._armed.rename(self._armed.with_suffix(".fired"))
            os.kill(os.getpid(), signal.SIGKILL)


def _is(work: Callable[..., object], unit: str) -> bool:
    if unit in UNITS:
        return _name(work).startswith(UNITS[unit])
    is_of_threads = _name(work).startswith(THREADS)
    return is_of_threads and has_request_context() and request.path.endswith(f"/{unit}")


def _name(work: Callable[..., object]) -> str:
    """Return what a unit is called in the code; a partial has no name of its own."""
    name: str = getattr(work, "func", work).__qualname__
    return name


class FailingStore(DyingStore):
    """Fails at the end of the unit that a file names, with a secret in hand and in the message."""

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        def failing(connection: sa.Connection) -> T:
            value = work(connection)
            unit, how, secret = self._told()
            if unit and _name(work).startswith(UNITS[unit]):
                self._armed.unlink()
                if how == "statement":
                    connection.execute(sa.text("SELECT :secret FROM nowhere"), {"secret": secret})
                if how == "storage":
                    broken = self.engine.dialect.loaded_dbapi.OperationalError(f"disk I/O error at {secret}")
                    raise sa.exc.OperationalError("INSERT", {"secret": secret}, broken)
                raise RuntimeError(f"nobody expected {secret}")
            return value

        return super().write(failing)

    def _told(self) -> tuple[str, str, str]:
        try:
            unit, how, secret = self._armed.read_text().split()
        except (FileNotFoundError, ValueError):
            return "", "", ""
        return unit, how, secret


def overrides(clock: Path, armed: Path, *, make_store: type[DyingStore] = DyingStore) -> Overrides:
    return Overrides(
        clock=FileClock(clock),
        auth=AuthSettings(hashing=CHEAP_HASHING),
        make_store=partial(make_store, armed=armed),
    )


def serve(
    *, environment: Mapping[str, str], options: list[str], clock: str, armed: str, is_failing: bool = False
) -> None:
    """Be `atmem serve` with these options and variables. Runs in a process of its own (tests/crash/forks.py)."""
    os.environ.clear()
    os.environ.update(environment)
    made = overrides(Path(clock), Path(armed), make_store=FailingStore if is_failing else DyingStore)
    main(["serve", *options], prog_name="atmem", obj=made)
