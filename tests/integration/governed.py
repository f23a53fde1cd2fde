"""The services of governed operations on any store, with callers of every kind: what their tests begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from continuity import limits
from continuity.decisions.clocks import Reading
from continuity.services.attempts import Attempts
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.checking import Checker
from continuity.services.clockwatch import ClockWatch
from continuity.services.controls import Controls
from continuity.services.deletion import Deletions
from continuity.services.ledger import Ledger
from continuity.services.listing import Listing
from continuity.services.reviewing import Reviewing
from continuity.services.sweeping import Sweeper
from continuity.services.workflows import Workflows
from continuity.store import schema
from continuity.store.store import Store
from continuity.wire import (
    AbandonRequest,
    BeginRequest,
    ConfigureRequest,
    ConfirmRequest,
    CreateWorkflow,
    ListRequest,
    OutcomeRequest,
    RenewRequest,
)
from tests.people import FakeClock, Installation, install

ONE = ({"name": "publish", "tool": "directory_publish", "arguments": {"n": 1}},)
TWO = (*ONE, {"name": "announce", "tool": "post", "arguments": {"n": 2}})


class OwnTimeLedger(Ledger):
    """Reads the test's clock on PostgreSQL as well, where the database's would decide."""

    def read_clock(self, database_us: int | None = None) -> Reading:
        return super().read_clock()


@dataclass
class Governed:
    """One process of an installation: its services, and short ways to call them."""

    home: Installation
    ledger: Ledger
    watch: ClockWatch
    operator: Caller
    person: Caller
    keys: int = 0
    revoked: list[int] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.home.store

    @property
    def clock(self) -> FakeClock:
        return self.home.clock

    def __post_init__(self) -> None:
        store, audit = self.home.store, self.home.audit
        self.attempts = Attempts(store, self.ledger)
        self.workflows = Workflows(store, self.ledger, self.attempts, audit)
        self.controls = Controls(store, self.ledger, audit)
        self.listing = Listing(store, self.ledger)
        self.reviewing = Reviewing(store, self.ledger, audit)
        self.deletions = Deletions(store, self.ledger, audit, lambda _connection, pk: self.revoked.append(pk))
        self.sweeper = Sweeper(store, self.ledger)
        self.checker = Checker(store, self.ledger)

    def coordinator(self, principal: str = "agent", workspace: str = "default") -> Caller:
        workspace_pk = self.home.workspace(workspace)
        owner_pk = self.store.write(
            lambda c: self.home.owners.ensure(c, principal, kind=CallerKind.COORDINATOR, workspace_pk=workspace_pk)
        )
        return replace(
            self.operator, kind=CallerKind.COORDINATOR, actor=f"cred:{principal}", owner_pk=owner_pk,
            home_workspace=workspace_pk, workspaces=frozenset({workspace_pk}), principal=principal,
        )  # fmt: skip

    def worker(self, workflow_id: str) -> Caller:
        return replace(self.operator, kind=CallerKind.WORKER, actor="cred:worker", workflow_id=workflow_id)

    def create(
        self, key: str | None = None, operations: Any = ONE, *, by: Caller | None = None, activate: bool = True,
        begin: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        self.keys += 1
        body = {
            "workflow_key": key or f"key-{self.keys}", "operations": list(operations), "activate": activate,
            "begin": begin,
        }  # fmt: skip
        return self.workflows.create(by or self.operator, CreateWorkflow.from_json(body))

    def begin(
        self, workflow_id: str, attempt: str = "a1", *, name: str = "publish", by: Caller | None = None
    ) -> dict[str, Any]:
        asked = BeginRequest(name=name, run_id="r1", attempt_id=attempt)
        return self.attempts.begin(by or self.operator, workflow_id, asked)

    def report(
        self, workflow_id: str, granted: dict[str, Any], outcome: str = "confirmed_succeeded", *,
        name: str = "publish", by: Caller | None = None, **members: Any,
    ) -> dict[str, Any]:  # fmt: skip
        receipt: dict[str, Any] = {"outcome": outcome, "operation_id": granted["operation_id"], **members}
        if outcome == "confirmed_succeeded":
            receipt = {"effect_id": "e-1", "result": {"n": 1.0}, **receipt}
        asked = OutcomeRequest(
            name=name, run_id=granted["run_id"], attempt_id=granted["attempt_id"],
            lease_token=granted["lease_token"], receipt=receipt,
        )  # fmt: skip
        return self.attempts.outcome(by or self.operator, workflow_id, asked)

    def renew(self, workflow_id: str, granted: dict[str, Any], *, name: str = "publish") -> dict[str, Any]:
        asked = RenewRequest(
            name=name, run_id=granted["run_id"], attempt_id=granted["attempt_id"], lease_token=granted["lease_token"]
        )
        return self.attempts.renew(self.operator, workflow_id, asked)

    def finished(self, key: str | None = None, *, by: Caller | None = None) -> str:
        """Create a workflow and complete it."""
        workflow_id: str = self.create(key, by=by)["workflow_id"]
        self.report(workflow_id, self.begin(workflow_id, by=by), by=by)
        return workflow_id

    def view(self, workflow_id: str, *, by: Caller | None = None) -> dict[str, Any]:
        return self.workflows.view(by or self.operator, workflow_id)

    def configure(self, workflow_id: str, *, enabled: bool) -> dict[str, Any]:
        return self.controls.configure(self.operator, workflow_id, ConfigureRequest(enabled=enabled, revision=None))

    def abandon(self, workflow_id: str, name: str = "publish") -> dict[str, Any]:
        asked = AbandonRequest(name=name, reason="not wanted", revision=None)
        return self.controls.abandon(self.operator, workflow_id, asked)

    def confirm(self, workflow_id: str, *, happened: bool, **fields: Any) -> dict[str, Any]:
        shown = self.view(workflow_id)
        body = {
            "name": "publish", "happened": happened, "revision": shown["revision"], "reason": "seen",
            "late_receipts": shown["operations"][0]["late_receipts"],
            **({"receipt": {"effect_id": "e-9", "result": None}} if happened else {}), **fields,
        }  # fmt: skip
        return self.controls.confirm(self.person, workflow_id, ConfirmRequest.from_json(body))

    def page(self, *, by: Caller | None = None, **asked: Any) -> dict[str, Any]:
        return self.listing.page(by or self.operator, ListRequest(**asked))

    def listed(self, *, by: Caller | None = None, **asked: Any) -> list[str]:
        return [each["workflow_id"] for each in self.page(by=by, **asked)["workflows"]]

    def everything(self) -> dict[str, list[Any]]:
        return {table.name: self.home.rows(table) for table in schema.metadata.sorted_tables}

    def damage(self, table: sa.Table, *where: Any, **values: Any) -> int:
        """Change rows as somebody with access to the database and without the key could."""
        statement = sa.update(table).where(*where).values(values)
        return self.store.write(lambda connection: connection.execute(statement).rowcount)

    def row(self, workflow_id: str) -> Any:
        statement = sa.select(schema.workflows).where(schema.workflows.c.workflow_id == workflow_id)
        return self.store.read(lambda connection: connection.execute(statement).one())


def govern(
    store: Store, folder: Path, *, database_time: bool = False, history_bytes: int = limits.COORDINATOR_HISTORY_BYTES
) -> Governed:
    """Install on an empty, migrated store; time is the test's unless `database_time`."""
    return process_of(install(store, folder), database_time=database_time, history_bytes=history_bytes)


def process_of(
    home: Installation, *, database_time: bool = False, history_bytes: int = limits.COORDINATOR_HISTORY_BYTES
) -> Governed:
    """Build what one process builds on an installation that is there."""
    watch = ClockWatch(home.clock)
    make: Callable[..., Ledger] = Ledger if database_time else OwnTimeLedger
    common: dict[str, Any] = {
        "request_id": "req_1", "workspaces": None, "home_workspace": home.workspace("default"),
    }  # fmt: skip
    operator = Caller(CallerKind.OPERATOR, "cred:1", principal="op", **common)
    person = Caller(CallerKind.PERSON, "user:1", role=Role.OPERATOR, is_fresh=True, principal="ada", **common)
    return Governed(home, make(home.vault, watch, history_bytes=history_bytes), watch, operator, person)
