"""The server beside a database that somebody else holds."""

from __future__ import annotations

import http.client
import json
import sqlite3
import time
from contextlib import closing

from tests.patience import PATIENCE_S
from tests.servers import RunningServer

LOGIN = json.dumps({"username": "administrator", "password": "not this one"})


def ask(
    server: RunningServer, method: str, path: str, body: str | None = None
) -> tuple[http.client.HTTPResponse, float]:
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE_S)
    started = time.monotonic()
    connection.request(method, path, body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.text = reply.read().decode()
    connection.close()
    return reply, time.monotonic() - started


def test_while_another_process_writes_for_long_writers_are_told_to_come_back_and_readers_go_on(running_server):
    database = running_server.instance.folder / "continuity.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        written, write_s = ask(running_server, "POST", "/api/auth/login", LOGIN)
        read, read_s = ask(running_server, "GET", "/readyz")
        other.execute("ROLLBACK")
    after, _ = ask(running_server, "POST", "/api/auth/login", LOGIN)

    assert written.status == 503
    assert int(written.headers["Retry-After"]) >= 1
    assert json.loads(written.text)["error"]["code"] == "storage_unavailable"
    # Both while the other process held it.
    assert write_s < PATIENCE_S
    assert (read.status, read_s < PATIENCE_S) == (200, True)
    assert after.status == 401
