"""Real processes with real threads write at once; nobody may lose a write or see that the database is locked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa

from continuity.store.schema import owners
from continuity.store.store import Store
from tests.patience import PATIENCE_S

PROCESSES = 4
THREADS = 50
WRITES = 6
"""By each thread, which has a connection of its own, as the threads of a server have."""
SCRIPT = Path(__file__).with_name("writers.py")
ROOT = SCRIPT.parent.parent.parent


def insert_counter(connection: sa.Connection) -> None:
    connection.execute(sa.insert(owners).values(owner_pk=1, kind="operators", principal_ix=bytes(32)))


def counted(connection: sa.Connection) -> int:
    return connection.execute(sa.select(owners.c.unfinished)).scalar_one()


def test_four_processes_of_fifty_threads_lose_no_write_and_see_no_lock(store: Store, database: str):
    store.write(insert_counter)
    arguments = [sys.executable, str(SCRIPT), database, str(THREADS), str(WRITES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(PROCESSES)
    ]

    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    reports = [json.loads(process.communicate(timeout=PATIENCE_S)[0]) for process in processes]

    assert [report["errors"] for report in reports] == [[]] * PROCESSES
    assert store.read(counted) == PROCESSES * THREADS * WRITES
