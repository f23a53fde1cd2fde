"""Another process holds the write lock for long: writers are told soon, readers are served, nothing is lost."""

from __future__ import annotations

import http.client
import json
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from continuity.client import ContinuityClient
from continuity.store.store import WRITE_WAIT_S
from tests.crash.stage import NAME, staged
from tests.patience import PATIENCE_S, wait_for

HELD_S = 4
WRITERS = 40
"""More than the server has threads."""


@pytest.fixture(scope="module")
def stage(forks, instance_template, tmp_path_factory):
    folder = tmp_path_factory.mktemp("busy")
    instance = instance_template.copy_to(folder / "instance")
    with staged(forks, instance, clock_file=folder / "clock", refuses=True) as stage:
        yield stage


@contextmanager
def write_lock(stage):
    with closing(sqlite3.connect(stage.instance.folder / "continuity.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def ask(stage, method, path, body=None):
    """Return status, headers and how long it took."""
    parts = urlsplit(stage.url)
    started = time.monotonic()
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)) as connection:
        headers = {"Authorization": f"Bearer {stage.token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        reply.read()
    return reply.status, reply.headers, time.monotonic() - started


def test_while_the_lock_is_held_for_long_one_thread_waits_and_everybody_else_is_answered(stage, tmp_path):
    workflows = [stage.case("none", tmp_path).workflow_id for _ in range(4)]
    held = stage.case("none", tmp_path)
    ids = {"run_id": "run-1", "attempt_id": "at-1"}
    grant = stage.operator.begin(held.workflow_id, NAME, **ids)
    receipt = {
        "outcome": "confirmed_succeeded", "operation_id": grant["operation_id"], "effect_id": "e-1", "result": None,
    }  # fmt: skip
    written, read, told = [], [], []
    stopping = threading.Event()
    told_often = [0] * WRITERS

    def write(number):
        while not stopping.wait(0.2):
            body = {"name": NAME, "run_id": f"r{number}", "attempt_id": f"a{number}-{time.monotonic_ns()}"}
            written.append(ask(stage, "POST", f"/v1/continuity/{workflows[number % 4]}/begin", body))
            told_often[number] += written[-1][0] == 503

    def look():
        while not stopping.wait(0.2):
            read.append(ask(stage, "GET", f"/v1/continuity/{workflows[0]}"))

    def report():
        with ContinuityClient(stage.url, stage.token) as client:
            sent = {**ids, "lease_token": grant["lease_token"], "receipt": receipt}
            told.append(client.outcome(held.workflow_id, NAME, **sent))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    threads += [threading.Thread(target=look), threading.Thread(target=report)]
    with write_lock(stage):
        for thread in threads:
            thread.start()
        time.sleep(HELD_S)
        # While the lock is held, whatever the machine's speed: everybody but one is told, again and again.
        wait_for(lambda: sum(times >= 3 for times in told_often) >= WRITERS - 1 and len(read) >= 3)
        stopping.set()
    for thread in threads:
        thread.join()

    refused = [headers for status, headers, _ in written if status == 503]
    assert len(refused) > 2 * WRITERS
    assert {headers["Retry-After"] for headers in refused} == {"1"}
    assert max(took_s for *_, took_s in written) < PATIENCE_S
    assert {status for status, *_ in read} == {200}
    # Sooner than one that waits for the lock learns that it waits in vain.
    assert sorted(took_s for *_, took_s in read)[len(read) // 2] < WRITE_WAIT_S
    # The receipt was sent again with the same body until it was taken, within its lease.
    assert [(reply["accepted"], reply.get("replayed")) for reply in told] == [(True, None)]
    last = stage.case("none", tmp_path).workflow_id
    assert stage.operator.begin(last, NAME, run_id="r", attempt_id="after")["action"] == "execute"
