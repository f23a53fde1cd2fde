"""An instance with work in it, backed up and restored: what the tests of backups begin with.

`instance_place` is a folder and a database of its own, once on SQLite and once on PostgreSQL.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app import backups, restores, wiring
from app.config import Settings, load_settings
from app.renewals import Who
from app.vault_life import LOCAL
from app.wiring import Wiring
from continuity.services.callers import Caller, CallerKind
from continuity.store.schema import workflows
from continuity.wire import BeginRequest, ConfirmRequest, CreateWorkflow, OutcomeRequest
from tests.databases import PostgreSQLServer
from tests.entry import OVERRIDES
from tests.servers import initialised

TEXT = "correct horse battery"
KINDS = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgresql)]
COST = wiring.passphrase_cost(OVERRIDES)


@dataclass
class Place:
    """An instance and ways to work on it, each as a process that begins and ends."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    keys: int = 0

    @property
    def settings(self) -> Settings:
        return load_settings({"ATMEM_INSTANCE": str(self.folder), **self.extra})

    @contextmanager
    def wired(self) -> Iterator[Wiring]:
        with wiring.built(self.settings, overrides=OVERRIDES) as built:
            yield built

    def backup(self, name: str = "one.backup", text: str = TEXT) -> Path:
        target = self.folder.parent / name
        with self.wired() as built:
            backups.make(built, built.vault_life.keyring, target, text, cost=COST)
        return target

    def restore(self, source: Path, text: str = TEXT, *, who: Who | None = None, **more: Any) -> restores.Outcome:
        settings = self.settings
        umask = os.umask(0o077)
        try:
            return restores.restore(
                settings, source, text, who=who or Who(), keys=wiring.key_provider(settings),
                now_us=time.time_ns() // 1_000, auth=OVERRIDES.auth, cost=COST, **more,
            )  # fmt: skip
        finally:
            os.umask(umask)

    def follow(self) -> str | None:
        settings = self.settings
        return wiring.follow_restore(settings, keys=wiring.key_provider(settings), overrides=OVERRIDES)


def operator(built: Wiring) -> Caller:
    """Return a caller that may create, begin and report in the workspace of everybody."""
    return Caller(
        kind=CallerKind.OPERATOR, actor="cred:test", request_id="req_test", workspaces=None, home_workspace=1,
        principal="tester",
    )  # fmt: skip


def create(built: Wiring, key: str, *, activate: bool = True) -> dict[str, Any]:
    body = {
        "workflow_key": key, "activate": activate,
        "operations": [{"name": "publish", "tool": "directory_publish", "arguments": {"secret": f"sentinel {key}"}}],
    }  # fmt: skip
    return built.services.workflows.create(operator(built), CreateWorkflow.from_json(body))


def begin(built: Wiring, workflow_id: str, attempt: str = "a1") -> dict[str, Any]:
    asked = BeginRequest(name="publish", run_id="r1", attempt_id=attempt)
    return built.services.attempts.begin(operator(built), workflow_id, asked)


def report(built: Wiring, workflow_id: str, granted: dict[str, Any]) -> dict[str, Any]:
    receipt = {
        "outcome": "confirmed_succeeded", "operation_id": granted["operation_id"], "effect_id": "e1", "result": None,
    }  # fmt: skip
    return built.services.attempts.outcome(operator(built), workflow_id, OutcomeRequest(
        name="publish", run_id=granted["run_id"], attempt_id=granted["attempt_id"],
        lease_token=granted["lease_token"], receipt=receipt,
    ))  # fmt: skip


def finished(built: Wiring, key: str) -> str:
    workflow_id: str = create(built, key)["workflow_id"]
    report(built, workflow_id, begin(built, workflow_id))
    return workflow_id


def view(built: Wiring, workflow_id: str) -> dict[str, Any]:
    return built.services.workflows.view(operator(built), workflow_id)


def confirm(built: Wiring, workflow_id: str) -> dict[str, Any]:
    shown = view(built, workflow_id)
    body = {
        "name": "publish", "happened": True, "revision": shown["revision"], "reason": "seen",
        "late_receipts": shown["operations"][0]["late_receipts"], "receipt": {"effect_id": "seen", "result": None},
    }  # fmt: skip
    return built.services.controls.confirm(LOCAL, workflow_id, ConfirmRequest.from_json(body))


def every_row_opens(built: Wiring) -> int:
    """Read all living workflows whole, and both chains; return how many there were."""
    ids = [row.workflow_id for row in built.store.read(_living)]
    for workflow_id in ids:
        view(built, workflow_id)
    assert built.store.read(built.audit.verify).fault is None
    return len(ids)


def _living(connection: Any) -> Any:
    return connection.execute(sa.select(workflows.c.workflow_id).where(workflows.c.deleted_at.is_(None))).all()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An instance of its own, once on each database."""
    folder = tmp_path / "instance"
    if request.param == "sqlite":
        initialised(folder)
        yield Place(folder)
        return
    server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
    name = server.create()
    extra = {"ATMEM_DATABASE_URL": server.url(name)}
    initialised(folder, extra)
    yield Place(folder, extra)
    server.drop(name)
