"""Commands that are killed: how they are run, where, and what is looked at afterwards."""

from __future__ import annotations

import pytest

from app import commanding, wiring
from app.config import load_settings
from continuity.services.callers import Caller, CallerKind
from continuity.services.checking import Checker
from continuity.wire import ListRequest
from tests.servers import environment

POINTS = 8
"""So many of a command's steps are tried, the first and the last among them; each on a fresh copy."""


class Commands:
    """Runs commands on an instance; each is a process of its own."""

    def __init__(self, forks, folder, extra=None) -> None:
        self.forks, self.folder = forks, folder
        self.settings = load_settings({"ATMEM_INSTANCE": str(folder), **(extra or {})})
        self.environment = environment(folder, extra)
        self.report = folder.with_name(f"{folder.name}.report")

    def run(self, *arguments, last=0):
        """Return how it ended and what it printed."""
        log = self.folder.with_name(f"{self.folder.name}.log")
        out = log.with_name(f"{log.name}.out")
        for path in (log, out):
            path.unlink(missing_ok=True)
        process = self.forks.start(
            "command", log=log, arguments=list(arguments), environment=self.environment, report=str(self.report),
            last=last,
        )  # fmt: skip
        status = self.forks.wait(process)
        assert "Traceback" not in log.read_text(), log.read_text()
        return status, out.read_text() + log.read_text()

    def count(self, *arguments):
        """Run to the end; return how many steps it took."""
        assert self.run(*arguments)[0] == 0
        return int(self.report.read_text())

    def problems(self):
        with wiring.built(self.settings) as built:
            found = Checker(built.store, built.services.attempts.ledger).check()
            assert built.services.listing.page(operator(), ListRequest())["workflows"] is not None
        return [*commanding.check_database(self.settings), *found]


def operator(**fields):
    return Caller(**{
        "kind": CallerKind.OPERATOR, "actor": "cred:1", "request_id": "req_1", "workspaces": None,
        "home_workspace": 1, "principal": "op", **fields,
    })  # fmt: skip


def spread(every_run, soak):
    """So many steps in every run of the tests, and so many in a soak."""
    return pytest.mark.parametrize(
        "most", [pytest.param(every_run, id="spread"), pytest.param(soak, id="closer", marks=pytest.mark.soak)]
    )


def points(steps, most=POINTS):
    return sorted({1 + round(number * (steps - 1) / (most - 1)) for number in range(most)})
