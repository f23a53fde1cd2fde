"""The connection is lost around COMMIT: what the store says is what PostgreSQL did, or that it is not known."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
import sqlalchemy as sa

from continuity.errors import UnavailableError
from continuity.store import units
from continuity.store.engine import make_engine
from continuity.store.schema import workspaces
from continuity.store.store import Store
from tests.integration.wire import Ends, Wire, after, before
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.postgresql


@dataclass
class Bench:
    """A store behind a wire, and what its units did."""

    store: Store
    wire: Wire
    admin: psycopg.Connection
    runs: list[str] = field(default_factory=list)

    def insert(self, name: str) -> str:
        def work(connection: sa.Connection) -> str:
            self.runs.append(name)
            connection.execute(sa.insert(workspaces).values(name=name))
            return f"wrote {name}"

        return self.store.write(work)

    def insert_in_doubt(self, name: str) -> None:
        """Insert, and be told that nobody knows whether it took effect."""
        with pytest.raises(UnavailableError) as caught:
            self.insert(name)
        assert "Nothing" not in caught.value.message

    @property
    def names(self) -> list[str]:
        return [row[0] for row in self.admin.execute(f"SELECT name FROM {workspaces.name} ORDER BY name")]


@pytest.fixture
def bench(postgresql_server) -> Iterator[Bench]:
    url = postgresql_server.migrated()
    with Wire(url) as wire, psycopg.connect(url, autocommit=True) as admin:
        engine = make_engine(wire.here, pool_size=4)
        bench = Bench(Store(engine), wire, admin)
        bench.store.read(lambda connection: connection.execute(sa.select(workspaces)).all())
        yield bench
        bench.store.close()
        engine.dispose()


def test_a_commit_whose_answer_was_lost_stands_and_is_not_repeated(bench):
    bench.wire.faults = [after]

    assert bench.insert("north") == "wrote north"

    assert bench.names == ["north"]
    assert bench.runs == ["north"]


def test_a_commit_that_did_not_arrive_is_made_again(bench):
    bench.wire.faults = [before]

    assert bench.insert("north") == "wrote north"

    assert bench.names == ["north"]
    assert bench.runs == ["north", "north"]


def test_commits_that_never_arrive_end_with_the_word_that_nothing_has_happened(bench):
    bench.wire.faults = [before] * 10

    with pytest.raises(UnavailableError, match="Nothing has happened"):
        bench.insert("north")

    assert bench.names == []
    assert len(bench.runs) == 4


def test_a_commit_that_is_still_on_its_way_is_waited_for(bench, monkeypatch):
    monkeypatch.setattr(units, "READ_BACK_S", PATIENCE_S)

    def late(ends: Ends) -> None:
        ends.cut_store()
        time.sleep(0.5)
        ends.server.sendall(ends.sent)

    bench.wire.faults = [late]

    assert bench.insert("north") == "wrote north"

    assert bench.names == ["north"]
    assert bench.runs == ["north"]


def test_a_commit_that_stays_on_its_way_is_unknown_and_not_repeated(bench, monkeypatch):
    monkeypatch.setattr(units, "READ_BACK_S", 0.3)
    may_go = threading.Event()

    def late(ends: Ends) -> None:
        ends.cut_store()
        assert may_go.wait(PATIENCE_S)
        ends.server.sendall(ends.sent)

    bench.wire.faults = [late]

    bench.insert_in_doubt("north")
    may_go.set()

    assert bench.runs == ["north"]


def test_when_the_server_cannot_be_asked_it_stays_unknown(bench, monkeypatch):
    monkeypatch.setattr(units, "READ_BACK_S", 0.3)

    def after_and_down(ends: Ends) -> None:
        bench.wire.is_down = True
        after(ends)

    bench.wire.faults = [after_and_down]

    bench.insert_in_doubt("north")

    assert bench.runs == ["north"]
    bench.wire.is_down = False
    assert bench.insert("south") == "wrote south"


def test_a_server_that_may_be_another_one_is_not_believed(bench):
    """What a crash does to the statistics: after it, the number of the transaction may be another one's."""

    def after_and_anew(ends: Ends) -> None:
        bench.admin.execute("SELECT pg_stat_reset_shared('bgwriter')")
        after(ends)

    bench.wire.faults = [after_and_anew]

    bench.insert_in_doubt("north")

    assert bench.names == ["north"]
    assert bench.runs == ["north"]


def test_a_backend_that_is_ended_while_it_commits_has_undone_the_unit_which_is_made_again(bench):
    bench.admin.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.name = 'slow' THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NULL; END $$"
    )
    # Its COMMIT stands still until it is ended; the unit that is made again goes on.
    bench.admin.execute("SELECT pg_advisory_lock(7)")
    bench.admin.execute(
        f"CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {workspaces.name} DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    ended: list[int] = []

    def end_it() -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not ended and time.monotonic() < give_up:
            found = bench.admin.execute(
                "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
            ).fetchall()
            ended.extend(pid for (pid,) in found)
            time.sleep(0.02)
        for pid in ended:
            bench.admin.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
        bench.admin.execute("SELECT pg_advisory_unlock(7)")

    ender = threading.Thread(target=end_it)
    ender.start()
    try:
        assert bench.insert("slow") == "wrote slow"
    finally:
        ender.join(PATIENCE_S)
        bench.admin.execute("DROP FUNCTION slow() CASCADE")

    assert len(ended) == 1
    assert bench.names == ["slow"]
    assert bench.runs == ["slow", "slow"]


def test_a_connection_that_is_lost_in_the_work_is_replaced_and_the_unit_made_again(bench):
    def work(connection: sa.Connection) -> str:
        bench.runs.append("north")
        connection.execute(sa.insert(workspaces).values(name="north"))
        if len(bench.runs) == 1:
            bench.admin.execute(
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'atmem'"
            )
        connection.execute(sa.insert(workspaces).values(name="south"))
        return "wrote both"

    assert bench.store.write(work) == "wrote both"

    assert bench.names == ["north", "south"]
    assert bench.runs == ["north", "north"]


def test_all_connections_that_died_at_once_cost_nobody_a_request(bench):
    gate = threading.Barrier(4)

    def look(connection: sa.Connection) -> list[str]:
        gate.wait(PATIENCE_S)
        return list(connection.execute(sa.select(workspaces.c.name)).scalars())

    def all_at_once() -> list[BaseException]:
        errors: list[BaseException] = []

        def one() -> None:
            try:
                bench.store.autocommit(look)
            except BaseException as error:  # noqa: BLE001 - the test judges
                errors.append(error)

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors

    assert all_at_once() == []
    bench.admin.execute(
        "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'atmem'"
    )
    assert [bench.insert(name) for name in ("a", "b", "c", "d", "e")] == [f"wrote {name}" for name in "abcde"]
    assert bench.names == list("abcde")


def test_who_may_not_ask_which_server_it_is_is_told_that_it_is_unknown(bench, monkeypatch):
    monkeypatch.setattr(units, "_SERVER", units.Statement(b"SERVER", b"SELECT 1 / 0"))
    bench.store.engine.dispose()
    bench.wire.faults = [after]

    bench.insert_in_doubt("north")

    assert bench.names == ["north"]


def test_a_role_without_rights_may_ask_all_that_is_asked(bench):
    bench.admin.execute("CREATE ROLE nobody_in_doubt LOGIN")
    try:
        bench.admin.execute("SET ROLE nobody_in_doubt")
        [server] = bench.admin.execute(units._SERVER.sql).fetchall()
        number = bench.admin.execute("SELECT pg_current_xact_id()::text").fetchone()[0]
        said = bench.admin.execute("SELECT pg_xact_status(%s::text::xid8)", [number]).fetchone()[0]
    finally:
        bench.admin.execute("RESET ROLE")
        bench.admin.execute("DROP ROLE nobody_in_doubt")

    assert None not in server
    assert said == "committed"
