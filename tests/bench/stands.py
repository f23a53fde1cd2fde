"""A server with a database that retains a number of workflows, and everybody who asks it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import requests

from app import moving
from app.config import load_settings
from tests.bench.asking import DEFINITION, Line, receipt_of
from tests.bench.filling import PASSWORD, RARE, RARE_EACH, Filled, fill
from tests.bench.load import Job
from tests.bench.slow_disk import SlowDisk
from tests.bench.works import WORKFLOWS, Client, create
from tests.databases import DURABLE, PostgreSQLServer
from tests.servers import RunningServer, start, stop

CREDENTIAL = "operator (evidence_collector); events: observer (continuity_observer); pages: an administrator's session"
COMPLETED = 50
"""Workflows whose receipts are asked for again."""
NO_LIMIT = {"ATMEM_REQUESTS_PER_SECOND": "1000000", "ATMEM_EVENTS_PER_SECOND": "1000000"}
"""One credential stands for all clients: its budget is not what is measured."""
MIB = 1024 * 1024


@dataclass(frozen=True)
class Place:
    """What a server stands on."""

    database: str
    processes: int
    retained: int

    def __str__(self) -> str:
        return f"{self.database}/{self.processes} proc/{self.retained:,}"


class Databases:
    """Where databases are made: a folder, and a server of PostgreSQL that syncs, when one is needed."""

    def __init__(self, folder: Path, slow: SlowDisk) -> None:
        self.folder, self.slow = folder, slow
        self._postgresql: PostgreSQLServer | None = None

    @property
    def postgresql(self) -> PostgreSQLServer:
        if self._postgresql is None:
            with _variables(self.slow.environment):
                self._postgresql = PostgreSQLServer(DURABLE, run=f"bench-{os.getpid()}")
            self.slow.hold(self._postgresql.pid)
        return self._postgresql

    def new_url(self) -> str:
        """Return the address of a new, empty database of PostgreSQL."""
        server = self.postgresql
        return server.url(server.create())

    def floor(self, database: str) -> dict[str, Any]:
        """Return where a raw commit of this database goes."""
        if database == "postgresql":
            return {"url": self.new_url()}
        folder = self.folder / "floor"
        folder.mkdir(exist_ok=True)
        return {"folder": str(folder)}

    def close(self) -> None:
        if self._postgresql is not None:
            self._postgresql.stop()


@contextlib.contextmanager
def _variables(extra: Mapping[str, str]) -> Any:
    before = dict(os.environ)
    os.environ.update(extra)
    try:
        yield
    finally:
        for name in extra:
            os.environ.pop(name)
        os.environ.update(before)


@dataclass
class Stand:
    """A server that is up, with a credential for each kind of work."""

    place: Place
    filled: Filled
    server: RunningServer
    headers: dict[str, str] = field(repr=False)
    completed: list[str] = field(repr=False)
    peak_mib: float = 0.0

    @classmethod
    def started(cls, place: Place, databases: Databases, *, name: str = "", entry: str = "tests.entry") -> Stand:
        folder = databases.folder / f"{place.database}-{place.processes}-{place.retained}{name}"
        folder.mkdir()
        filled = fill(folder / "instance", place.retained, mixed=place.retained > len(RARE) * RARE_EACH)
        extra = {**NO_LIMIT, **databases.slow.environment}
        if place.database == "postgresql":
            extra["ATMEM_DATABASE_URL"] = _moved(filled, databases.new_url())
        options = ["--workers", str(place.processes)] if place.processes > 1 else []
        server = start(filled.instance, *options, extra=extra, entry=entry)
        try:
            databases.slow.hold(server.process.pid)
            headers = _headers(server, filled)
            completed = _completed(server, headers["operation"])
        except BaseException:
            stop(server)
            raise
        return cls(place, filled, server, headers, completed)

    def job(self, work: str, clients: int, seconds: float, *, ready: list[str] | None = None) -> Job:
        """Return what clients do here."""
        given = {"ready": ready} if work == "begin" else {"completed": self.completed} if work == "reuse" else {}
        return Job(work, clients, seconds, self.server.address, self.headers[work], given)

    def memory_mib(self) -> float:
        """Return what the largest process of the server holds now, and remember the most."""
        first = psutil.Process(self.server.process.pid)
        held = max(process.memory_info().rss for process in (first, *first.children(recursive=True)))
        self.peak_mib = max(self.peak_mib, held / MIB)
        return held / MIB

    def close(self) -> None:
        try:
            self.server.terminate()
        finally:
            stop(self.server)


def _moved(filled: Filled, url: str) -> str:
    before = os.umask(0o077)
    try:
        moving.move(load_settings({"ATMEM_INSTANCE": str(filled.instance.folder)}), url, tell=lambda *_: None)
    finally:
        os.umask(before)
    return url


def _headers(server: RunningServer, filled: Filled) -> dict[str, str]:
    """Return the lines that say who asks, by work."""
    grant = {"principal_id": "bench-observer", "role": "continuity_observer", "observation_scope": "bench"}
    with requests.Session() as person:
        person.trust_env = False
        proof = {"username": filled.instance.username, "password": PASSWORD}
        signed_in = _posted(person, f"{server.url}/api/auth/login", proof)
        observer = _posted(person, f"{server.url}/v1/evidence/grants", grant, csrf=signed_in["csrf_token"])["token"]
        cookies = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
    operator = f"Authorization: Bearer {filled.token}\r\n"
    own = dict.fromkeys(("operation", "begin", "reuse", "create", "empty"), operator)
    page = f"Cookie: {cookies}\r\nAccept: text/html\r\n"
    return {**own, "ingest": f"Authorization: Bearer {observer}\r\n", "page": page}


def _posted(person: requests.Session, url: str, body: dict[str, Any], *, csrf: str = "") -> dict[str, Any]:
    answer = person.post(url, json=body, headers={"X-CSRF-Token": csrf}, timeout=Line.TIMEOUT_S)
    answer.raise_for_status()
    reply: dict[str, Any] = answer.json()
    return reply


def _completed(server: RunningServer, headers: str) -> list[str]:
    client = Client(Line(server.address, headers), {})
    try:
        return [_complete(client) for _ in range(COMPLETED)]
    finally:
        client.close()


def _complete(client: Client) -> str:
    workflow_id = create(client)
    path = f"{WORKFLOWS}/{workflow_id}"
    grant = client.line.post(f"{path}/begin", {"name": DEFINITION["name"], "run_id": "run_load", "attempt_id": "at_1"})
    client.line.post(f"{path}/outcome", receipt_of(grant))
    return workflow_id
