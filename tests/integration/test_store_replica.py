"""A synchronous replica that is away: nothing is called done that it may not have, and nobody waits without end.

The server is one of its own, since whom it waits for holds for all of its databases. Nobody of the name it waits for
ever comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest
import sqlalchemy as sa

from continuity.errors import UnavailableError
from continuity.store import pipeline, units
from continuity.store.engine import make_engine
from continuity.store.schema import workspaces
from continuity.store.store import Store
from tests import databases
from tests.databases import PostgreSQLServer
from tests.patience import PATIENCE_S, wait_for

pytestmark = pytest.mark.postgresql


@dataclass
class Primary:
    """A store on a server, and the server's administrator."""

    store: Store
    admin: psycopg.Connection

    def waits_for(self, names: str) -> None:
        self.admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.admin.execute("SELECT pg_reload_conf()")
        wait_for(lambda: self.admin.execute("SHOW synchronous_standby_names").fetchone()[0] == names)

    @property
    def waiting(self) -> list[int]:
        """Backends whose COMMIT waits for a replica."""
        asked = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
        return [pid for (pid,) in self.admin.execute(asked)]

    def insert(self, name: str) -> str:
        def work(connection: sa.Connection) -> str:
            connection.execute(sa.insert(workspaces).values(name=name))
            return f"wrote {name}"

        return self.store.write(work)

    def insert_in_doubt(self, name: str) -> None:
        """Insert, and be told that nobody knows whether it took effect."""
        with pytest.raises(UnavailableError) as caught:
            self.insert(name)
        assert "Nothing" not in caught.value.message

    def meanwhile(self, act: Callable[[list[int]], None]) -> threading.Thread:
        """Do something about the backends that wait, as soon as one does."""

        def acting() -> None:
            wait_for(lambda: self.waiting)
            act(self.waiting)

        thread = threading.Thread(target=acting)
        thread.start()
        return thread


@pytest.fixture(scope="module")
def lonely_server() -> Iterator[PostgreSQLServer]:
    server = PostgreSQLServer(run=f"{databases._RUN}-replica-{databases._WORKER}")
    yield server
    server.stop()


@pytest.fixture
def primary(lonely_server: PostgreSQLServer) -> Iterator[Primary]:
    url = lonely_server.migrated()
    with psycopg.connect(url, autocommit=True, options="-c synchronous_commit=local") as admin:
        engine = make_engine(url, pool_size=4)
        primary = Primary(Store(engine), admin)
        primary.waits_for("nobody")
        yield primary
        primary.waits_for("")
        primary.store.close()
        engine.dispose()


@pytest.fixture(autouse=True)
def is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "READ_BACK_S", 0.5)


@pytest.mark.parametrize("ends", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_commit_whose_wait_somebody_ends_is_not_called_done(primary, ends):
    ender = primary.meanwhile(lambda pids: primary.admin.execute(f"SELECT {ends}(%s)", pids))

    primary.insert_in_doubt("north")

    ender.join(PATIENCE_S)


def test_a_commit_whose_backend_is_ended_stands_once_a_replica_can_have_it(primary, monkeypatch):
    monkeypatch.setattr(units, "READ_BACK_S", PATIENCE_S)

    def end_and_come_back(pids: list[int]) -> None:
        primary.admin.execute("SELECT pg_terminate_backend(%s)", pids)
        # The store asks, and what it commits behind the first transaction waits as well.
        wait_for(lambda: primary.waiting not in ([], pids))
        primary.waits_for("")

    ender = primary.meanwhile(end_and_come_back)

    assert primary.insert("north") == "wrote north"

    ender.join(PATIENCE_S)
    names = primary.admin.execute(f"SELECT name FROM {workspaces.name}").fetchall()
    assert names == [("north",)]


def test_a_commit_that_no_replica_takes_ends_with_unknown_and_the_store_goes_on_when_one_does(primary, monkeypatch):
    monkeypatch.setattr(pipeline, "COMMIT_S", 0.5)
    came_s = time.monotonic()

    primary.insert_in_doubt("north")

    assert time.monotonic() - came_s < PATIENCE_S
    primary.waits_for("")
    assert primary.insert("south") == "wrote south"
