"""Storage that cannot answer: one error, nothing half done, and service again without a restart."""

from __future__ import annotations

import resource
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from continuity.errors import UnavailableError
from continuity.store import engine as engines
from continuity.store import writer
from continuity.store.engine import make_engine
from continuity.store.schema import workspaces
from continuity.store.store import Store
from tests.patience import PATIENCE_S


def insert(name: str):
    return lambda connection: connection.execute(sa.insert(workspaces).values(name=name))


def names(connection: sa.Connection) -> list[str]:
    return list(connection.execute(sa.select(workspaces.c.name).order_by(workspaces.c.name)).scalars())


def run_together(*works) -> list[BaseException]:
    errors: list[BaseException] = []

    def catching(work) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the test judges
            errors.append(error)

    threads = [threading.Thread(target=catching, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_when_all_connections_are_in_use_a_caller_is_told_soon(database: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engines, "POOL_WAIT_S", 0.1)
    engine = make_engine(database, pool_size=1)
    store = Store(engine)
    with engine.connect(), engine.connect(), pytest.raises(UnavailableError, match="in use"):
        store.read(names)

    assert store.read(names) == []
    engine.dispose()


class TestSQLite:
    def test_a_lock_that_another_process_keeps_makes_writers_give_up_in_time(
        self, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
    ):
        # Time goes on while the writer sleeps and at no other moment, whatever it does between.
        slept_s: list[float] = []
        clock = {name: lambda: sum(slept_s) for name in ("monotonic", "perf_counter")}
        monkeypatch.setattr(writer, "time", SimpleNamespace(sleep=slept_s.append, **clock))
        holder, engine = make_engine(sqlite_database, pool_size=1), make_engine(sqlite_database, pool_size=1)
        store = Store(engine, write_wait_s=0.2)
        with holder.connect() as connection:
            connection.connection.info["continuity.begin"] = "BEGIN IMMEDIATE"
            insert("held")(connection)

            with pytest.raises(UnavailableError, match="busy") as caught:
                store.write(insert("north"))
            readable = store.read(names)

        assert caught.value.retry_after_s == 1
        assert 0.2 <= sum(slept_s) < 0.3
        assert readable == []
        store.write(insert("north"))
        assert store.read(names) == ["north"]
        store.close()
        for each in (holder, engine):
            each.dispose()

    def test_a_queue_of_threads_that_is_too_long_makes_the_last_give_up(self, sqlite_database: str):
        engine = make_engine(sqlite_database, pool_size=1)
        store = Store(engine, write_wait_s=0.1)
        is_inside, may_leave = threading.Event(), threading.Event()

        def slow(connection: sa.Connection) -> None:
            is_inside.set()
            may_leave.wait(PATIENCE_S)

        def impatient() -> None:
            is_inside.wait(PATIENCE_S)
            try:
                store.write(insert("north"))
            finally:
                may_leave.set()

        errors = run_together(lambda: store.write(slow), impatient)

        assert [type(error) for error in errors] == [UnavailableError]
        assert store.read(names) == []
        store.close()
        engine.dispose()

    def test_a_full_disk_undoes_the_unit_and_service_returns_with_the_space(self, sqlite_store: Store):
        def fill_up(connection: sa.Connection) -> None:
            insert("north")(connection)
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
            insert("n" * 100_000)(connection)

        with pytest.raises(UnavailableError) as caught:
            sqlite_store.write(fill_up)

        assert caught.value.__cause__.orig.sqlite_errorname == "SQLITE_FULL"
        assert sqlite_store.read(names) == []
        # The limit belongs to the connection that met it; the store must not use that one again.
        sqlite_store.write(insert("s" * 100_000))
        assert sqlite_store.read(names) == ["s" * 100_000]

    def test_a_failed_write_of_the_file_undoes_the_unit_and_service_returns(self, sqlite_store: Store, tmp_path: Path):
        sqlite_store.write(insert("north"))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        written_bytes = (tmp_path / "atmem.db-wal").stat().st_size

        resource.setrlimit(resource.RLIMIT_FSIZE, (written_bytes + 5_000, hard))
        try:
            with pytest.raises(UnavailableError) as caught:
                sqlite_store.write(insert("s" * 20_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        assert caught.value.__cause__.orig.sqlite_errorname.startswith("SQLITE_IOERR")
        assert sqlite_store.read(names) == ["north"]
        sqlite_store.write(insert("west"))
        assert sqlite_store.read(names) == ["north", "west"]

    def test_a_database_that_may_only_be_read_is_unavailable_for_writing(self, sqlite_store: Store):
        def work(connection: sa.Connection) -> None:
            connection.exec_driver_sql("PRAGMA query_only=ON")
            insert("north")(connection)

        with pytest.raises(UnavailableError) as caught:
            sqlite_store.write(work)

        assert caught.value.__cause__.orig.sqlite_errorname == "SQLITE_READONLY"

    def test_a_file_that_is_gone_is_unavailable_and_not_made_anew(self, tmp_path: Path):
        path = tmp_path / "gone.db"
        engine = make_engine(f"sqlite:///{path}", pool_size=1)

        for call in (Store(engine).write, Store(engine).read, Store(engine).autocommit):
            with pytest.raises(UnavailableError):
                call(names)

        assert not path.exists()

    @pytest.mark.parametrize("content", [b"", b"not a database" * 500], ids=["empty", "foreign"])
    def test_a_file_of_something_else_is_never_overwritten(self, tmp_path: Path, content: bytes):
        path = tmp_path / "atmem.db"
        path.write_bytes(content)
        engine = make_engine(f"sqlite:///{path}", pool_size=1)

        with pytest.raises((UnavailableError, sa.exc.OperationalError)):
            Store(engine).write(insert("north"))

        assert content == b"" or path.read_bytes() == content
        engine.dispose()

    def test_damaged_pages_are_unavailable(self, sqlite_database: str, tmp_path: Path):
        path = tmp_path / "atmem.db"
        content = bytearray(path.read_bytes())
        content[4096:] = b"\xa5" * (len(content) - 4096)
        path.write_bytes(content)
        engine = make_engine(sqlite_database, pool_size=1)

        with pytest.raises(UnavailableError):
            Store(engine).read(names)

        engine.dispose()

    def test_the_message_does_not_repeat_what_the_database_said(self, tmp_path: Path):
        engine = make_engine(f"sqlite:///{tmp_path / 'sentinel-5ec2e7.db'}", pool_size=1)

        with pytest.raises(UnavailableError) as caught:
            Store(engine).read(names)

        assert str(caught.value) == "The database cannot answer now."


class TestPostgreSQL:
    @pytest.fixture(autouse=True)
    def _only_postgresql(self, postgresql_server):
        self.url = postgresql_server.migrated()
        self.engine = make_engine(self.url, pool_size=4)
        self.store = Store(self.engine)
        self.killer = make_engine(self.url, pool_size=1)
        yield
        self.engine.dispose()
        self.killer.dispose()

    pytestmark = pytest.mark.postgresql

    def kill_others(self) -> None:
        with self.killer.begin() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'atmem' AND pid <> pg_backend_pid()"
            )

    @pytest.mark.parametrize("use", ["write", "read", "autocommit"])
    def test_connections_that_died_while_idle_are_not_noticed(self, use):
        self.store.read(names)
        self.kill_others()

        assert getattr(self.store, use)(names) == []

    def test_a_connection_lost_in_the_work_undoes_it(self):
        def work(connection: sa.Connection) -> None:
            insert("north")(connection)
            self.kill_others()
            insert("south")(connection)

        with pytest.raises(UnavailableError):
            self.store.write(work)

        assert self.store.read(names) == []

    def test_a_connection_lost_before_the_commit_is_never_reported_as_success(self):
        def work(connection: sa.Connection) -> None:
            insert("north")(connection)
            self.kill_others()

        with pytest.raises(UnavailableError):
            self.store.write(work)

        assert self.store.read(names) == []

    def test_a_deadlock_is_resolved_by_running_the_loser_again(self):
        for name in ("north", "south"):
            self.store.write(insert(name))
        both_hold_one = threading.Barrier(2)
        runs: list[str] = []

        def lock(connection: sa.Connection, name: str) -> None:
            wanted = sa.select(workspaces).where(workspaces.c.name == name).with_for_update()
            connection.execute(wanted).all()

        def unit(first: str, second: str):
            def work(connection: sa.Connection) -> None:
                connection.exec_driver_sql("SET LOCAL deadlock_timeout = '20ms'")
                lock(connection, first)
                if first not in runs:
                    runs.append(first)
                    both_hold_one.wait(PATIENCE_S)
                else:
                    runs.append(first)
                lock(connection, second)

            return lambda: self.store.write(work)

        errors = run_together(unit("north", "south"), unit("south", "north"))

        assert errors == []
        assert sorted(runs) in (["north", "north", "south"], ["north", "south", "south"])

    def test_conflicts_without_end_become_unavailable(self):
        runs = []

        def work(connection: sa.Connection) -> None:
            runs.append(1)
            connection.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$")

        with pytest.raises(UnavailableError):
            self.store.write(work)

        assert len(runs) == 4

    @pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
    def test_a_row_that_stays_locked_becomes_unavailable(self, setting):
        self.store.write(insert("north"))

        def work(connection: sa.Connection) -> None:
            connection.exec_driver_sql(f"SET LOCAL {setting} = '50ms'")
            connection.execute(sa.update(workspaces).values(name="south"))

        with self.killer.begin() as holder:
            holder.execute(sa.update(workspaces).values(name="held"))
            with pytest.raises(UnavailableError):
                self.store.write(work)

    def test_a_server_that_is_not_there_is_unavailable(self, tmp_path: Path):
        engine = make_engine(f"postgresql://u@/x?host={tmp_path}", pool_size=1)

        for call in (Store(engine).write, Store(engine).read, Store(engine).autocommit):
            with pytest.raises(UnavailableError):
                call(names)
