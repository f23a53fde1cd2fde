"""Instances with many workflows in them, which the product opens like any other.

``BENCH_CACHE=/some/folder`` keeps what was filled, for the next run. It holds keys and a token: of nothing but
benchmarks, and good for these databases alone.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import sqlalchemy as sa

from app import wiring
from app.auth import principals
from app.auth.requests import GrantRequest
from app.auth.signin import Visit
from app.config import load_settings
from continuity.services.callers import Caller
from continuity.store import schema
from continuity.wire import AbandonRequest, BeginRequest, ConfigureRequest, CreateWorkflow, OutcomeRequest
from tests.bench.asking import DEFINITION, receipt_of
from tests.bench.bulk import Rows, insert
from tests.bench.sealing import Sealer
from tests.entry import OVERRIDES
from tests.servers import ROOT, Instance, initialised

FIRST_PERSON = "administrator"
PASSWORD = "benchmarks want no surprises"
QUERIED = {**DEFINITION, "capability": "query"}
RARE = ("review", "paused", "resumable", "decision", "done", "ended")
RARE_EACH = 10
"""Workflows in each other phase, half of them older and half newer than all that are ready."""
DELETED_SHARE = 200
"""One tombstone for so many workflows, all of them at the newest end."""


@dataclass
class Filled:
    """An instance with an operator's credential; `workflow_ids` are enabled and pending, in order of their keys."""

    instance: Instance
    token: str = field(repr=False)
    workflow_ids: list[str] = field(repr=False)


@contextmanager
def opened(instance: Instance) -> Iterator[wiring.Wiring]:
    """Build the product on an instance, in this process."""
    before = os.umask(0o077)
    try:
        settings = load_settings({"ATMEM_INSTANCE": str(instance.folder)})
        with wiring.built(settings, overrides=OVERRIDES) as built:
            yield built
    finally:
        os.umask(before)


def fill(folder: Path, count: int, *, mixed: bool = False) -> Filled:
    """Make an instance in `folder` with `count` workflows, all ready unless `mixed`."""
    name = f"{count}-workflows{'-mixed' if mixed else ''}"
    return kept(folder, name, lambda place: _filled(place, count, mixed=mixed))


def kept(folder: Path, name: str, make: Callable[[Path], Filled]) -> Filled:
    """Make an instance in `folder`, or copy the one of this name that was made before."""
    cache = os.environ.get("BENCH_CACHE")
    if not cache:
        return make(folder)
    # What another version's migrations made would not open.
    newest = max(path.stem[:4] for path in (ROOT / "migrations" / "versions").glob("0*.py"))
    place = Path(cache) / f"{newest}-{name}"
    if not place.exists():
        making = place.with_name(f"{place.name}.part")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True, mode=0o700)
        (making / "token").write_text(make(making / "instance").token)
        making.rename(place)
    instance = Instance(place / "instance", FIRST_PERSON, PASSWORD).copy_to(folder)
    return Filled(instance, (place / "token").read_text(), _ready(instance))


def _filled(folder: Path, count: int, *, mixed: bool) -> Filled:
    started = time.monotonic()
    instance = initialised(folder)
    with opened(instance) as built:
        caller, token = _operator(built, instance)
        rare = len(RARE) * RARE_EACH if mixed else 0
        maker = _Maker(built, caller, first=_create(built, caller, "bench-0"))
        maker.rare(range(0, rare, 2))
        maker.ready(range(1, count - rare))
        maker.rare(range(1, rare, 2))
        if mixed:
            maker.deleted(count // DELETED_SHARE)
    print(f"{count} workflows made in {time.monotonic() - started:.0f} s", flush=True)
    return Filled(instance, token, _ready(instance))


def _operator(built: wiring.Wiring, instance: Instance) -> tuple[Caller, str]:
    built.auth.sign_in.change_password_locally(instance.username, current=instance.password, new=PASSWORD)
    visit = Visit(address="127.0.0.1", request_id="req_bench")
    welcome = built.auth.sign_in.sign_in(instance.username, PASSWORD, visit=visit, replaced=None)
    found = built.auth.sessions.find(welcome.session.session_id)
    if found is None:
        raise RuntimeError("the session is gone")
    person = principals.person(found, request_id="req_bench")
    body = {"principal_id": "bench-operator", "role": "evidence_collector", "workspace_id": "default"}
    token = built.auth.credentials.issue(person, GrantRequest.from_json(body)).token
    return built.auth.principals.bearer(f"Bearer {token}", request_id="req_bench"), token


def _request(key: str, definition: object = None, *, activate: bool = True) -> CreateWorkflow:
    body = {"workflow_key": key, "operations": [definition or DEFINITION], "activate": activate}
    return CreateWorkflow.from_json(body)


def _create(built: wiring.Wiring, caller: Caller, key: str) -> str:
    return str(built.services.workflows.create(caller, _request(key))["workflow_id"])


def _ready(instance: Instance) -> list[str]:
    workflows = schema.workflows
    statement = sa.select(workflows.c.workflow_id).where(workflows.c.phase == "ready").order_by(workflows.c.workflow_pk)
    with opened(instance) as built, built.store.engine.connect() as connection:
        return list(connection.execute(statement).scalars())


@dataclass
class _Maker:
    """Makes workflows on one instance."""

    built: wiring.Wiring
    caller: Caller
    first: str

    def ready(self, numbers: range) -> None:
        sealer = Sealer(self.built, self.caller, self.first)
        # Checked once: they differ in their keys alone.
        request = _request("bench")
        self._write(sealer.rows(replace(request, workflow_key=f"bench-{number}")) for number in numbers)

    def deleted(self, count: int) -> None:
        sealer = Sealer(self.built, self.caller, self.first)
        keys = [f"gone-{number}" for number in range(count)]
        rows = self.built.store.write(lambda connection: sealer.tombstones(connection, keys))
        self._write(rows)

    def _write(self, rows: Iterable[Rows]) -> None:
        insert(self.built.store, rows)

    def rare(self, numbers: range) -> None:
        """Make these through the services, one in each phase after the other."""
        for number in numbers:
            self._one(f"other-{number}", RARE[number // 2 % len(RARE)])

    def _one(self, key: str, phase: str) -> None:
        services, caller = self.built.services, self.caller
        request = _request(key, QUERIED if phase == "resumable" else DEFINITION, activate=phase != "review")
        workflow_id = services.workflows.create(caller, request)["workflow_id"]
        if phase == "paused":
            services.controls.configure(caller, workflow_id, ConfigureRequest(enabled=False))
        elif phase == "ended":
            services.controls.abandon(caller, workflow_id, AbandonRequest(name="publish", reason="not wanted"))
        elif phase != "review":
            grant = services.attempts.begin(caller, workflow_id, BeginRequest("publish", "run_bench", "at_bench"))
            receipt = receipt_of(grant)
            if phase != "done":
                receipt["receipt"] = {"outcome": "unknown"}
            services.attempts.outcome(caller, workflow_id, OutcomeRequest.from_json(receipt))
