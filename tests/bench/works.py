"""What a client of the load lab does over and over, each as one function; it raises when the answer is not the one.

Every work notes how long it took under its own name, and its single requests under theirs.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.asking import DEFINITION, ROW_BYTES, Line, RawCommit, ThrottledError, Timings, receipt_of

WORKFLOWS = "/v1/continuity"
HEALTH = "/healthz"
LIST_PAGE = "/resume-work"
AGAIN_S, MOST_TRIES = 0.02, 500
"""A producer of the product gives up instead; here all events are to arrive, and the wait is in their time."""
EVENT_FORMAT = "atmem.continuity.v1"


class NothingLeftError(Exception):
    """What was prepared for this client is used up: it stops, and nothing is wrong."""


class Floor:
    """One row of 200 bytes and one commit on PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("CREATE TABLE IF NOT EXISTS bench_rows (id bigserial PRIMARY KEY, value bytea)")

    def __call__(self) -> None:
        self._connection.execute("INSERT INTO bench_rows (value) VALUES (%s)", (os.urandom(ROW_BYTES),))

    def close(self) -> None:
        self._connection.close()


class Client:
    """One client: its connection, what it was given, and what it has measured."""

    def __init__(self, line: Line, given: dict[str, Any]) -> None:
        self.line, self.given = line, given
        self.timings = Timings()
        self.made: list[str] = []
        self.throttled = 0
        self.choose = random.Random()
        self._floor: Floor | RawCommit | None = None

    def commit(self) -> None:
        """Commit one row to the database that was given, and nothing else."""
        if self._floor is None:
            self._floor = RawCommit(Path(self.given["folder"])) if "folder" in self.given else Floor(self.given["url"])
        self._floor()

    def close(self) -> None:
        self.line.close()
        if self._floor is not None:
            self._floor.close()


def create(client: Client) -> str:
    body = {"workflow_key": f"load-{secrets.token_hex(12)}", "operations": [DEFINITION], "activate": True}
    made = client.timings.measure("create", lambda: client.line.post(WORKFLOWS, body))
    _expect(made["enabled"] is True, made)
    client.made.append(made["workflow_id"])
    return str(made["workflow_id"])


def _begin(client: Client, workflow_id: str) -> dict[str, Any]:
    body = {"name": "publish", "run_id": "run_load", "attempt_id": f"at_{secrets.token_hex(6)}"}
    return client.timings.measure("begin", lambda: client.line.post(f"{WORKFLOWS}/{workflow_id}/begin", body))


def begin(client: Client) -> None:
    """Begin one of the workflows that were prepared."""
    if not client.given["ready"]:
        raise NothingLeftError
    grant = _begin(client, client.given["ready"].pop())
    _expect(grant["action"] == "execute", grant)


def operation(client: Client) -> None:
    """Create, begin and complete a workflow of one operation."""
    begun = time.perf_counter()
    workflow_id = create(client)
    grant = _begin(client, workflow_id)
    _expect(grant["action"] == "execute", grant)
    path = f"{WORKFLOWS}/{workflow_id}/outcome"
    done = client.timings.measure("outcome", lambda: client.line.post(path, receipt_of(grant)))
    _expect(done["accepted"] is True and done["status"] == "completed", done)
    client.timings.values.setdefault("operation", []).append((time.perf_counter() - begun) * 1e3)


def reuse(client: Client) -> None:
    """Begin what is completed, and get its receipt."""
    workflow_id = client.choose.choice(client.given["completed"])
    body = {"name": "publish", "run_id": "run_load", "attempt_id": "at_again"}
    reply = client.timings.measure("reuse", lambda: client.line.post(f"{WORKFLOWS}/{workflow_id}/begin", body))
    _expect(reply["action"] == "completed" and reply["receipt"]["result"]["bytes"], reply)


def ingest(client: Client) -> None:
    """Submit one event of an attempt of its own."""
    number = secrets.token_hex(12)
    event = {
        "format": EVENT_FORMAT, "event_id": f"ev_{number}", "workflow_id": f"wf_{number}",
        "operation_id": f"op_{number}", "run_id": f"run_{number}", "attempt_id": f"at_{number}", "event": "execute",
        "time": int(time.time()),
    }  # fmt: skip
    reply = client.timings.measure("ingest", lambda: _until_taken(client, event))
    _expect(reply == {"accepted": True, "replayed": False}, reply)


def _until_taken(client: Client, event: dict[str, Any]) -> dict[str, Any]:
    """Come again when told to: it takes in eight events at a time, whoever sends more at once learns that at once."""
    for _ in range(MOST_TRIES - 1):
        try:
            return client.line.post(f"{WORKFLOWS}/events", event)
        except ThrottledError:
            client.throttled += 1
            time.sleep(AGAIN_S)
    return client.line.post(f"{WORKFLOWS}/events", event)


def page(client: Client) -> None:
    """Read the list of Resume work."""
    content = client.timings.measure("page", lambda: client.line.get(LIST_PAGE))
    _expect(content.rstrip().endswith(b"</html>") and b'id="work"' in content, content[:200])


def empty(client: Client) -> None:
    client.timings.measure("empty", lambda: client.line.get(HEALTH))


def commit(client: Client) -> None:
    client.timings.measure("commit", client.commit)


WORKS: dict[str, Callable[[Client], object]] = {
    "operation": operation, "begin": begin, "reuse": reuse, "ingest": ingest, "page": page,
    "create": create, "empty": empty, "commit": commit,
}  # fmt: skip
MEASURED = ("operation", "begin", "reuse", "ingest", "page")
"""What the lab can be asked to measure; the others are baselines and preparation."""


def _expect(is_right: object, answer: object) -> None:
    if not is_right:
        raise ValueError(f"the answer is not what was asked for: {answer!r}")
