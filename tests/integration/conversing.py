"""The services of threads on any store, with callers of every kind: what their tests begin with."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app.wiring import Wiring
from continuity.decisions.threads import transcript
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.clockwatch import ClockWatch
from continuity.services.opening import Opener
from continuity.services.owners import Owners
from continuity.services.threads import Threads
from continuity.services.threads_checking import ThreadChecker
from continuity.services.threads_deletion import ThreadDeletions
from continuity.services.threads_ledger import ThreadLedger
from continuity.services.threads_reading import ThreadReading
from continuity.services.threads_trimming import ThreadTrimming
from continuity.services.threads_upkeep import ThreadUpkeep
from continuity.services.threads_work import ThreadWork
from continuity.store import threads_schema as tables
from continuity.store.store import Store
from continuity.thread_requests import (
    AppendRequest,
    ClaimRequest,
    ControlRequest,
    DeclareAgents,
    FailRequest,
    HeartbeatRequest,
    NewThread,
    Position,
    ReplyRequest,
    SayRequest,
    SettleRequest,
    WaitRequest,
)
from tests.integration.governed import OwnTimeLedger
from tests.people import FakeClock, Installation, install

ALL_CONTROLS = ["steer", "follow-up", "stop", "approve"]
CONTENT = (
    tables.runs, tables.journal, tables.messages, tables.inputs, tables.waiting, tables.requests, tables.thread_states,
)  # fmt: skip


def said(text: str) -> dict[str, Any]:
    """Records of one whole message."""
    message_id = f"m-{secrets.token_hex(4)}"
    return [
        {"kind": "message_started", "message_id": message_id},
        {"kind": "message_part", "message_id": message_id, "text": text},
        {"kind": "message_ended", "message_id": message_id},
    ]


@dataclass
class Held:
    """A claim, as its worker keeps it."""

    run: dict[str, Any]
    secret: str
    request_id: str
    steers_read: int = 0

    @property
    def run_id(self) -> str:
        return self.run["run_id"]

    @property
    def proof(self) -> dict[str, Any]:
        return {"generation": self.run["generation"], "secret": self.secret, "steers_read": self.steers_read}


@dataclass
class Conversing:
    """One process of an installation: its services of threads, and short ways to call them."""

    home: Installation
    ledger: ThreadLedger
    person: Caller
    worker: Caller
    watch: ClockWatch
    numbers: Any = field(default_factory=lambda: iter(range(10**9)))

    def __post_init__(self) -> None:
        store, audit = self.home.store, self.home.audit
        self.threads = Threads(store, self.ledger, audit)
        self.reading = ThreadReading(store, self.ledger, audit)
        self.work = ThreadWork(store, self.ledger)
        self.upkeep = ThreadUpkeep(store, self.ledger)
        self.deletions = ThreadDeletions(store, self.ledger, audit)
        self.trimming = ThreadTrimming(store, self.ledger, audit)
        self.checker = ThreadChecker(store, self.ledger)

    @property
    def store(self) -> Store:
        return self.home.store

    @property
    def clock(self) -> FakeClock:
        return self.home.clock

    def fresh(self) -> str:
        return f"q-{next(self.numbers)}-{secrets.token_hex(4)}"

    def someone(self, name: str, role: Role = Role.OPERATOR, *, workspaces: Any = "own") -> Caller:
        pks = frozenset({self.person.home_workspace}) if workspaces == "own" else workspaces
        return replace(self.person, actor=f"user:{name}", principal=name, role=role, workspaces=pks)

    def application(self, subject: str | None, principal: str = "shop") -> Caller:
        workspace_pk = self.person.home_workspace
        owner_pk = self.store.write(
            lambda c: self.home.owners.ensure(c, principal, kind=CallerKind.APPLICATION, workspace_pk=workspace_pk)
        )
        return replace(
            self.person, kind=CallerKind.APPLICATION, actor=f"cred:{principal}", principal=principal, role=None,
            owner_pk=owner_pk, subject=subject, workspaces=frozenset({workspace_pk}),
        )  # fmt: skip

    # ---- clients

    def declare(self, name: str = "helper", **fields: Any) -> None:
        agent = {"name": name, "controls": ALL_CONTROLS, "state_keys": ["todos"], "public": True, **fields}
        self.work.declare(self.worker, DeclareAgents.from_json({"agents": [agent]}))

    def create(self, name: str | None = None, *, by: Caller | None = None, agent: str = "helper") -> str:
        body = {"request_id": self.fresh(), "name": name or self.fresh(), "agent": agent}
        return self.threads.create(by or self.person, NewThread.from_json(body))["thread_id"]

    def say(
        self, thread_id: str, content: Any = "hello", *, how: str = "message", by: Caller | None = None,
        request_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        asked = SayRequest.from_json({"request_id": request_id or self.fresh(), "content": content})
        return getattr(self.threads, how)(by or self.person, thread_id, asked)

    def control(self, thread_id: str, how: str, *, by: Caller | None = None, **fields: Any) -> dict[str, Any]:
        asked = ControlRequest.from_json({"request_id": self.fresh(), **fields})
        return getattr(self.threads, how)(by or self.person, thread_id, asked)

    def reply(
        self, thread_id: str, waiting_id: str, reply: Any, *, revision: int = 1, by: Caller | None = None,
        request_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        body = {"request_id": request_id or self.fresh(), "revision": revision, "reply": reply}
        return self.threads.reply(by or self.person, thread_id, waiting_id, ReplyRequest.from_json(body))

    def snapshot(self, thread_id: str, *, by: Caller | None = None) -> dict[str, Any]:
        return self.reading.snapshot(by or self.person, thread_id)

    def records(self, thread_id: str, after: str | None = None, *, by: Caller | None = None) -> list[dict[str, Any]]:
        position = Position(1, 0) if after is None else Position.parse(after)
        found: list[dict[str, Any]] = []
        while True:
            page = self.reading.journal(by or self.person, thread_id, position)
            found += page["records"]
            position = Position.parse(page["checkpoint"])
            if not page["has_more"]:
                return found

    # ---- workers

    def claim(self, *, by: Caller | None = None, request_id: str | None = None, secret: str | None = None) -> Any:
        secret, request_id = secret or secrets.token_urlsafe(32), request_id or self.fresh()
        asked = ClaimRequest.from_json({"request_id": request_id, "secret": secret})
        run = self.work.claim(by or self.worker, asked)["run"]
        return None if run is None else Held(run, secret, request_id)

    def heartbeat(self, held: Held, *, by: Caller | None = None) -> dict[str, Any]:
        return self.work.heartbeat(by or self.worker, held.run_id, HeartbeatRequest.from_json(held.proof))

    def append(self, held: Held, *records: Any, request_id: str | None = None) -> dict[str, Any]:
        body = {"request_id": request_id or self.fresh(), **held.proof, "records": list(records)}
        return self.work.append(self.worker, held.run_id, AppendRequest.from_json(body))

    def wait(self, held: Held, *requests: Any, request_id: str | None = None, **fields: Any) -> dict[str, Any]:
        body = {"request_id": request_id or self.fresh(), **held.proof, "requests": list(requests), **fields}
        return self.work.wait(self.worker, held.run_id, WaitRequest.from_json(body))

    def settle(self, held: Held, output: Any = None, *, request_id: str | None = None, **fields: Any) -> dict[str, Any]:
        body = {"request_id": request_id or self.fresh(), **held.proof, "output": output, **fields}
        return self.work.settle(self.worker, held.run_id, SettleRequest.from_json(body))

    def fail(
        self, held: Held, reason: str = "failed", *, request_id: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        body = {
            "request_id": request_id or self.fresh(),
            **held.proof,
            "reason": reason,
            "message": "it broke",
            **fields,
        }
        return self.work.fail(self.worker, held.run_id, FailRequest.from_json(body))

    def running(self, content: Any = "hello", **fields: Any) -> tuple[str, Held]:
        """A thread whose first run is claimed."""
        thread_id = self.create(**fields)
        self.say(thread_id, content, by=fields.get("by"))
        held = self.claim()
        assert held.run["thread_id"] == thread_id
        return thread_id, held

    # ---- looking behind

    def row(self, thread_id: str) -> Any:
        statement = sa.select(tables.threads).where(tables.threads.c.thread_id == thread_id)
        return self.store.read(lambda connection: connection.execute(statement).one())

    def damage(self, table: sa.Table, *where: Any, **values: Any) -> int:
        """Change rows as somebody with access to the database and without the key could."""
        statement = sa.update(table).where(*where).values(values)
        return self.store.write(lambda connection: connection.execute(statement).rowcount)


def beside(built: Wiring, *, declares: bool = True) -> Conversing:
    """Talk beside the services of a whole program: on its store, with its keys and its clock."""
    owners = Owners(built.store, built.vault)
    home = Installation(built.store, built.vault, built.clock, built.auth, owners, built.audit)
    return process_of(home, database_time=True, declares=declares)


def question(task: str = "t1", ordinal: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "task": task, "ordinal": ordinal, "kind": "approval", "schema": {"type": "boolean"},
        "shown": {"order": "A-1"}, **fields,
    }  # fmt: skip


def advanced(snapshot: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a client holds that goes on from a snapshot; the journal must go on where the snapshot ends."""
    expected = int(snapshot["checkpoint"].partition("-")[2])
    for record in records:
        expected += 1
        assert record["seq"] == expected
        snapshot = transcript.advance(snapshot, record)
    return snapshot


def converse(store: Store, folder: Path) -> Conversing:
    """Install on an empty, migrated store, with one public agent declared; time is the test's."""
    return process_of(install(store, folder))


def process_of(home: Installation, *, database_time: bool = False, declares: bool = True) -> Conversing:
    """Build what one process builds on an installation that is there; its worker declares its agent."""
    watch = ClockWatch(home.clock)
    opener: Opener = Opener(home.vault, watch) if database_time else OwnTimeLedger(home.vault, watch)
    workspace_pk = home.workspace("default")
    person = Caller(
        CallerKind.PERSON, "user:ada", "req_1", frozenset({workspace_pk}), workspace_pk, role=Role.INVESTIGATOR,
        is_fresh=True, principal="ada",
    )  # fmt: skip
    worker = Caller(
        CallerKind.THREAD_WORKER, "cred:worker", "req_2", frozenset({workspace_pk}), workspace_pk, owner_pk=77,
        principal="worker", agents=frozenset({"helper", "other"}),
    )  # fmt: skip
    made = Conversing(home, ThreadLedger(opener), person, worker, watch)
    if declares:
        made.declare()
    return made
