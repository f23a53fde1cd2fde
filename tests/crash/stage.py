"""One server, its database, and everything that a crash test does to it or asks of it."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app import commanding, wiring
from app.cli.remote import PersonConnection
from app.config import load_settings
from continuity.client import ContinuityClient
from continuity.services.checking import Checker
from tests.crash.entry import FileClock
from tests.crash.forks import Forks
from tests.crash.host import TOOL
from tests.crash.invariants import check_invariants
from tests.crash.sink import Effect, Sink
from tests.patience import PATIENCE_S
from tests.servers import Instance, environment

PASSWORD = "three calm herons wait"
LEASE_OVER_S = 130
"""Past any lease, and past the five seconds after which `final` calls absence final."""
NAME = "publish-it"

CAPABILITIES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "query": {"capability": "query"},
    "idempotent": {"capability": "idempotent", "retention_seconds": 3_600},
    "both": {"capability": ["idempotent", "query"], "retention_seconds": 3_600},
    # A window that closes before the lease does: then the key must not be used again.
    "idempotent-short": {"capability": "idempotent", "retention_seconds": 100},
    "both-short": {"capability": ["idempotent", "query"], "retention_seconds": 100},
    "query-final": {"capability": "query", "absence_final_after_seconds": 5},
}
_numbers = itertools.count()


def definition(capability: str) -> dict[str, Any]:
    return {"name": NAME, "tool": TOOL, "arguments": {"document": "a page"}, **CAPABILITIES[capability]}


@dataclass
class Case:
    """One workflow of one operation, the sink behind it, and what hosts were answered."""

    stage: Stage
    capability: str
    folder: Path
    workflow_id: str = ""
    creating: dict[str, Any] | None = None
    views: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[bool] = field(default_factory=list)

    def start(self, *, die_at: str = "", end: str = "kill", url: str = "") -> Run:
        """Start a worker in a process of its own."""
        report = self.folder / f"report-{next(_numbers)}"
        process = self.stage.forks.start(
            "work", log=report.with_suffix(".log"), url=url or self.stage.url, token=self.stage.token_for(self),
            name=NAME, folder=str(self.folder), clock=str(self.stage.clock_file), report=str(report),
            retention_s=CAPABILITIES[self.capability].get("retention_seconds", 0), workflow_id=self.workflow_id,
            creating=self.creating, die_at=die_at, end=end,
        )  # fmt: skip
        return Run(self.stage.forks, process, report)

    def run(self) -> dict[str, Any]:
        """Run a worker to its end and check everything."""
        found = self.start().report()
        self.check()
        return found

    @property
    def sink(self) -> list[Effect]:
        return Sink(self.folder / "sink").effects()

    @property
    def acks(self) -> list[dict[str, Any]]:
        path = self.folder / "acks"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def view(self) -> dict[str, Any]:
        return self.stage.operator.get_workflow(self.workflow_id)

    @property
    def operation(self) -> dict[str, Any]:
        (operation,) = self.view()["operations"]
        return operation

    def check(self, *, is_honest: bool = True) -> dict[str, Any]:
        """Let what the product says be compared with the truth; return the view."""
        if not self._is_there():
            assert self.sink == [], "an effect of a workflow that does not exist"
            return {}
        view = self.view()
        check_invariants(self.sink, view, self.acks, earlier=self.views, is_honest=is_honest)
        self.views.append(view)
        return view

    def _is_there(self) -> bool:
        if not self.workflow_id:
            found = self.stage.operator.list_workflows(key=self.creating["workflow_key"])["workflows"]
            self.workflow_id = found[0]["workflow_id"] if found else ""
        return bool(self.workflow_id)

    def decide(self) -> None:
        """Let a person look at the destination and say what is there."""
        view, (effect, *_) = self.view(), [*self.sink, None]
        body = {
            "name": NAME, "happened": effect is not None, "revision": view["revision"],
            "late_receipts": view["operations"][0]["late_receipts"], "reason": "Looked at the destination.",
        }  # fmt: skip
        if effect is not None:
            body["receipt"] = {"effect_id": effect.effect_id, "result": {"published": effect.effect_id}}
        self.decisions.append(effect is not None)
        self.stage.person().call("POST", f"/v1/continuity/{self.workflow_id}/confirm", body)
        self.check()


@dataclass
class Run:
    """A worker that has been started."""

    forks: Forks
    process: int
    path: Path

    def wait(self) -> int:
        return self.forks.wait(self.process)

    def report(self) -> dict[str, Any]:
        status = self.wait()
        assert status == 0, self.path.with_suffix(".log").read_text()
        return json.loads(self.path.read_text())


class Stage:
    """A server in a process of its own, killed and started again at one address, with a clock of the tests'."""

    def __init__(self, forks: Forks, instance: Instance, clock_file: Path, *, options: Sequence[str] = ()) -> None:
        self.forks = forks
        self.instance = instance
        self.clock_file = clock_file
        self.clock = FileClock(clock_file)
        self.armed = instance.folder.with_name("armed")
        self.log = instance.folder.with_name("server.log")
        self.extra: dict[str, str] = {}
        self.is_failing = False
        self._options = options
        self._port = 0
        self._tokens: dict[str, str] = {}
        self.process = 0
        self.url = ""

    # ---- the server

    def start(self) -> None:
        printed = self.log.with_name(self.log.name + ".out")
        printed.unlink(missing_ok=True)
        self.process = self.forks.start(
            "serve", log=self.log, environment=environment(self.instance.folder, self.extra),
            options=["--port", str(self._port), "--json", *self._options],
            clock=str(self.clock_file), armed=str(self.armed), is_failing=self.is_failing,
        )  # fmt: skip
        until(lambda: printed.exists() and printed.read_text().endswith("}\n"), self.log.read_text)
        self.url = json.loads(printed.read_text())["url"]
        self._port = urlsplit(self.url).port

    def stop(self) -> None:
        self.forks.kill(self.process)

    def arm(self, point: str) -> None:
        self.armed.write_text(point)

    @property
    def has_fired(self) -> bool:
        return self.armed.with_suffix(".fired").exists()

    def disarm(self) -> None:
        self.armed.unlink(missing_ok=True)
        self.armed.with_suffix(".fired").unlink(missing_ok=True)

    def advance(self, seconds: float = LEASE_OVER_S) -> None:
        self.clock.advance(seconds)

    # ---- who asks

    def prepare(self) -> None:
        """Choose the administrator's password and issue what the tests ask with."""
        first = PersonConnection(self.url)
        first.sign_in(self.instance.username, self.instance.password)
        passwords = {"current_password": self.instance.password, "new_password": PASSWORD}
        first.call("POST", "/api/auth/change-password", passwords)
        first.close()
        for principal, role in (("operator", "evidence_collector"), ("coordinator", "continuity_coordinator")):
            self._tokens[principal] = self.grant(principal, role)
        self.operator = ContinuityClient(self.url, self._tokens["operator"])

    def person(self) -> PersonConnection:
        """Return somebody who has just signed in."""
        connection = PersonConnection(self.url)
        connection.sign_in(self.instance.username, PASSWORD)
        return connection

    def grant(self, principal_id: str, role: str, **fields: str) -> str:
        with self.person() as person:
            body = {"principal_id": principal_id, "role": role, **fields}
            if role == "continuity_coordinator":
                body["workspace_id"] = "default"
            return str(person.call("POST", "/v1/evidence/grants", body)["token"])

    def token_for(self, case: Case) -> str:
        return self._tokens["operator" if case.creating is None else "coordinator"]

    @property
    def token(self) -> str:
        return self._tokens["operator"]

    # ---- what is done

    def case(self, capability: str, folder: Path) -> Case:
        """Make a workflow of one operation, enabled."""
        key = f"work-{secrets.token_hex(8)}"
        view = self.operator.create_workflow(key, [definition(capability)], activate=True)
        return Case(self, capability, folder, workflow_id=view["workflow_id"])

    def coordinated(self, capability: str, folder: Path) -> Case:
        """Name work that a coordinator is about to create and begin in one request."""
        creating = {"workflow_key": f"work-{secrets.token_hex(8)}", "operation": definition(capability)}
        return Case(self, capability, folder, creating=creating)

    def problems(self) -> list[str]:
        """Check the database itself: integrity, audit chain, every history replayed (I8)."""
        settings = load_settings({"ATMEM_INSTANCE": str(self.instance.folder), **self.extra})
        before = os.umask(0o077)
        try:
            with wiring.built(settings) as built:
                findings = Checker(built.store, built.services.attempts.ledger).check()
            return [*commanding.check_database(settings), *(f"{f.object_id}: {f.problem}" for f in findings)]
        finally:
            os.umask(before)

    def server_errors(self) -> list[str]:
        """Return what the log has of failures, and of requests that were answered 5xx."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line]
        return [
            json.dumps(line) for line in lines
            if (line["level"] == "error" and line["event"] != "worker_ended") or line.get("status", 0) >= 500
        ]  # fmt: skip


def until(holds: Callable[[], bool], say: Callable[[], str] = lambda: "it never came true") -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up, say()
        time.sleep(0.005)


@contextmanager
def staged(
    forks: Forks, instance: Instance, *, clock_file: Path, extra: Mapping[str, str] | None = None,
    options: Sequence[str] = (), refuses: bool = False,
) -> Iterator[Stage]:  # fmt: skip
    """Serve an instance for as long as the block lasts; at the end its database must be sound.

    With `refuses` the tests let storage fail, and what the log says of that is theirs to judge.
    """
    stage = Stage(forks, instance, clock_file, options=options)
    stage.extra = dict(extra or {})
    clock_file.write_text("0")
    clock_file.chmod(0o644)
    stage.start()
    try:
        stage.prepare()
        yield stage
    finally:
        stage.stop()
    assert stage.problems() == []
    assert refuses or stage.server_errors() == []
    assert "is locked" not in stage.log.read_text()
