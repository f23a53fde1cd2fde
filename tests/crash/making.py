"""Commands that make or change an instance, in a process that kills itself at the n-th thing that it does."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app import wiring
from app.cli import main as atmem
from app.config import load_settings
from continuity.services.callers import Caller, CallerKind, Role
from continuity.store import evidence
from tests.crash import forks
from tests.entry import OVERRIDES

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_FILES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.truncate", "os.chmod"})


class Steps:
    """Counts files that are opened for writing, made, renamed or removed, statements and commits."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last

    def step(self, *_: Any) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_open = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        if event in _FILES or is_open:
            self.step()


def command(*, arguments: list[str], environment: dict[str, str], report: str, last: int = 0) -> None:
    """Run one command of `atmem`; die before its step number `last`. Writes down how many steps there were."""
    os.environ.clear()
    os.environ.update(environment)
    steps = Steps(last)
    sa.event.listen(sa.Engine, "before_cursor_execute", steps.step)
    sa.event.listen(sa.Engine, "commit", steps.step)
    sys.addaudithook(steps.audit)
    try:
        atmem(arguments, prog_name="atmem", obj=OVERRIDES)
    finally:
        count = steps.count
        Path(report).write_text(str(count))


def deletion(*, workflow_id: str, environment: dict[str, str], report: str, last: int = 0) -> None:
    """Delete a workflow as a server does; die before step number `last`. Writes down how many steps there were."""
    settings = load_settings(environment)
    steps = Steps(last)
    caller = Caller(CallerKind.OPERATOR, "cred:1", "req_1", workspaces=None, home_workspace=1, principal="op")
    with wiring.built(settings, overrides=OVERRIDES) as built:
        sa.event.listen(sa.Engine, "before_cursor_execute", steps.step)
        sa.event.listen(sa.Engine, "commit", steps.step)
        sys.addaudithook(steps.audit)
        built.services.deletions.delete(caller, workflow_id)
    count = steps.count
    Path(report).write_text(str(count))


def evidence_deletion(*, evidence_id: str, environment: dict[str, str], report: str, last: int = 0) -> None:
    """Delete a run of evidence in several batches; die before step number `last`. Writes down how many there were."""
    settings = load_settings(environment)
    steps = Steps(last)
    caller = Caller(CallerKind.PERSON, "user:1", "req_1", workspaces=None, home_workspace=1, role=Role.ADMINISTRATOR)
    evidence.DESTROYED_AT_ONCE = 2
    with wiring.built(settings, overrides=OVERRIDES) as built:
        sa.event.listen(sa.Engine, "before_cursor_execute", steps.step)
        sa.event.listen(sa.Engine, "commit", steps.step)
        sys.addaudithook(steps.audit)
        built.services.evidence_deletions.delete(caller, evidence_id)
    count = steps.count
    Path(report).write_text(str(count))


if __name__ == "__main__":
    # Once, and not in each child.
    for name in ("cli.init", "cli.db", "cli.users", "cli.vault_keys", "cli.vault_check", "vault_checks", "wiring"):
        importlib.import_module(f"app.{name}")
    forks.main({"command": command, "deletion": deletion, "evidence_deletion": evidence_deletion})
