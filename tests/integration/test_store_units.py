"""Units of work: all or nothing, durable settings, and what comes out when something goes wrong inside."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from continuity.errors import ConflictError, UnavailableError
from continuity.store import sqlite
from continuity.store.engine import describe, make_engine
from continuity.store.schema import workspaces
from continuity.store.store import Store
from tests.conftest import POOL_SIZE
from tests.patience import PATIENCE_S


def insert(name: str):
    return lambda connection: connection.execute(sa.insert(workspaces).values(name=name))


def names(connection: sa.Connection) -> list[str]:
    return list(connection.execute(sa.select(workspaces.c.name).order_by(workspaces.c.name)).scalars())


def test_what_was_written_is_there_for_others_when_write_returns(store: Store, database: str):
    store.write(insert("north"))

    other = make_engine(database, pool_size=1)
    assert Store(other).read(names) == ["north"]
    other.dispose()


def test_write_gives_what_the_work_returned(store: Store):
    assert store.write(lambda _: 42) == 42


def test_an_error_in_the_work_undoes_all_its_statements_and_comes_out_unchanged(store: Store):
    refusal = ConflictError("no", code="stale_revision")

    def work(connection: sa.Connection) -> None:
        insert("north")(connection)
        raise refusal

    with pytest.raises(ConflictError) as caught:
        store.write(work)

    assert caught.value is refusal
    assert store.read(names) == []


@pytest.mark.parametrize("leave", [KeyboardInterrupt, SystemExit])
def test_even_the_end_of_the_process_undoes_a_unit_and_lets_the_next_one_in(store: Store, leave):
    def work(connection: sa.Connection) -> None:
        insert("north")(connection)
        raise leave

    with pytest.raises(leave):
        store.write(work)

    store.write(insert("south"))
    assert store.read(names) == ["south"]


def test_a_violated_constraint_comes_out_as_such_and_undoes_the_unit(store: Store):
    store.write(insert("north"))

    def work(connection: sa.Connection) -> None:
        insert("south")(connection)
        insert("north")(connection)

    with pytest.raises(sa.exc.IntegrityError):
        store.write(work)

    assert store.read(names) == ["north"]
    store.write(insert("west"))
    assert store.read(names) == ["north", "west"]


def test_a_mistake_in_a_statement_is_not_taken_for_a_broken_storage(store: Store):
    with pytest.raises((sa.exc.OperationalError, sa.exc.ProgrammingError)):
        store.write(lambda connection: connection.execute(sa.text("SELECT * FROM no_such_table")))


def test_an_error_message_shows_no_parameter(store: Store):
    store.write(insert("secret-c0ffee"))

    with pytest.raises(sa.exc.IntegrityError) as caught:
        store.write(lambda connection: connection.execute(sa.insert(workspaces), {"name": "x", "workspace_pk": 1}))

    assert "parameters hidden" in str(caught.value)


def test_a_write_inside_a_write_is_refused_instead_of_waiting_for_itself(store: Store):
    with pytest.raises(RuntimeError, match="inside"):
        store.write(lambda _: store.write(lambda _: None))

    store.write(insert("north"))
    assert store.read(names) == ["north"]


def test_a_read_sees_one_state_whatever_is_written_meanwhile(store: Store):
    store.write(insert("north"))

    def work(connection: sa.Connection) -> tuple[list[str], list[str]]:
        before = names(connection)
        writer = threading.Thread(target=store.write, args=(insert("south"),))
        writer.start()
        writer.join()
        return before, names(connection)

    assert store.read(work) == (["north"], ["north"])
    assert store.read(names) == ["north", "south"]


def test_a_single_statement_read_sees_the_newest_commit_and_begins_nothing(store: Store):
    store.write(insert("north"))

    assert store.autocommit(names) == ["north"]
    with store.engine.connect() as connection:
        driver_connection = connection.connection.dbapi_connection
        if store.is_postgresql:
            assert driver_connection.info.transaction_status == 0
        else:
            assert not driver_connection.in_transaction


def test_an_engine_used_without_the_store_has_real_transactions_too(engine: sa.Engine):
    def unit() -> None:
        with engine.begin() as connection:
            insert("north")(connection)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unit()

    with engine.connect() as connection:
        assert names(connection) == []


def test_the_store_can_be_used_after_close(store: Store):
    store.write(insert("north"))
    store.close()
    store.write(insert("south"))

    assert store.read(names) == ["north", "south"]


def test_a_reader_sees_what_was_committed_since_it_last_read(store: Store):
    assert store.autocommit(names) == []
    store.write(insert("north"))
    assert store.autocommit(names) == ["north"]
    store.write(insert("south"))

    assert store.autocommit(names) == store.read(names) == ["north", "south"]


def test_a_reader_that_failed_is_followed_by_one_that_reads(store: Store):
    def fail(connection: sa.Connection) -> None:
        connection.exec_driver_sql("SELECT nothing FROM nowhere")

    for _ in range(2 * POOL_SIZE):
        with pytest.raises(sa.exc.DBAPIError):
            store.read(fail)

    assert store.read(names) == []


class TestSQLite:
    def test_reading_leaves_connections_to_others(self, sqlite_store: Store):
        barrier = threading.Barrier(POOL_SIZE)

        def read(connection: sa.Connection) -> list[str]:
            barrier.wait(timeout=PATIENCE_S)
            return names(connection)

        readers = [threading.Thread(target=sqlite_store.read, args=(read,)) for _ in range(POOL_SIZE)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        sqlite_store.write(insert("north"))

        with sqlite_store.engine.connect() as connection:
            assert names(connection) == ["north"]

    def test_a_look_up_does_not_wait_for_a_unit_that_is_being_written(self, sqlite_store: Store):
        sqlite_store.write(insert("north"))
        is_begun, may_end = threading.Event(), threading.Event()

        def work(connection: sa.Connection) -> None:
            insert("south")(connection)
            is_begun.set()
            assert may_end.wait(timeout=PATIENCE_S)

        writer = threading.Thread(target=sqlite_store.write, args=(work,))
        writer.start()
        assert is_begun.wait(timeout=PATIENCE_S)
        found = sqlite_store.autocommit(names)
        may_end.set()
        writer.join()

        assert found == ["north"]
        assert sqlite_store.autocommit(names) == ["north", "south"]

    def test_a_look_up_that_fails_leaves_nothing_behind(self, sqlite_store: Store):
        sqlite_store.write(insert("north"))

        def fail(connection: sa.Connection) -> None:
            names(connection)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sqlite_store.autocommit(fail)
        with pytest.raises(sa.exc.DBAPIError):
            sqlite_store.autocommit(lambda connection: connection.exec_driver_sql("SELECT nothing FROM nowhere"))
        sqlite_store.write(insert("south"))

        assert sqlite_store.autocommit(names) == ["north", "south"]

    def test_a_look_up_over_a_connection_that_broke_is_made_again(self, sqlite_store: Store):
        sqlite_store.write(insert("north"))
        tries = []

        def look(connection: sa.Connection) -> list[str]:
            tries.append(connection)
            if len(tries) == 1:
                raise sqlite.choose_driver()[0].OperationalError("disk I/O error")
            return names(connection)

        assert sqlite_store.autocommit(look) == ["north"]
        sqlite_store.write(insert("south"))
        assert sqlite_store.autocommit(names) == ["north", "south"]
        assert len(set(tries)) == 2

    def test_closing_gives_every_connection_back(self, sqlite_store: Store):
        sqlite_store.read(names)
        sqlite_store.write(insert("north"))

        sqlite_store.close()

        assert sqlite_store.engine.pool.checkedout() == 0

    def test_every_connection_is_durable_and_careful(self, sqlite_store: Store):
        wanted = {
            "synchronous": 2,
            "journal_mode": "wal",
            "foreign_keys": 1,
            "secure_delete": 1,
            "trusted_schema": 0,
            "cell_size_check": 1,
            "busy_timeout": 5000,
        }

        def settings(connection: sa.Connection) -> dict[str, object]:
            return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in wanted}

        assert sqlite_store.read(settings) == wanted
        assert sqlite_store.write(settings) == wanted | {"busy_timeout": 1}

    def test_the_library_in_use_does_not_lose_commits(self, sqlite_store: Store):
        facts = describe(sqlite_store.engine)

        version = tuple(int(part) for part in facts.version.split("."))
        assert sqlite.keeps_wal_commits(version) or facts.journal_mode == "truncate"
        assert (facts.kind, facts.synchronous) == ("sqlite", "full")

    @pytest.mark.parametrize(
        ("version", "is_safe"),
        [
            ((3, 40, 1), False),
            ((3, 44, 5), False),
            ((3, 44, 6), True),
            ((3, 45, 0), False),
            ((3, 50, 6), False),
            ((3, 50, 7), True),
            ((3, 51, 0), False),
            ((3, 51, 2), False),
            ((3, 51, 3), True),
            ((3, 53, 4), True),
            ((4, 0, 0), True),
        ],
    )
    def test_versions_with_the_defect_are_known(self, version, is_safe):
        assert sqlite.keeps_wal_commits(version) is is_safe

    def test_without_a_safe_library_a_rollback_journal_is_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        driver, _ = sqlite.choose_driver()
        monkeypatch.setattr(sqlite, "choose_driver", lambda: (driver, False))
        path = tmp_path / "fallback.db"
        sqlite.create_file(path)
        engine = make_engine(f"sqlite:///{path}", pool_size=4)
        with engine.begin() as connection:
            workspaces.create(connection)
        store = Store(engine)

        store.write(insert("north"))

        assert describe(engine).journal_mode == "truncate"
        assert store.read(names) == ["north"]
        store.close()
        engine.dispose()

    def test_the_files_are_readable_by_their_owner_alone(self, sqlite_store: Store, tmp_path: Path):
        sqlite_store.write(insert("north"))

        files = sorted(path for path in tmp_path.iterdir() if path.name.startswith("atmem.db"))
        assert [path.name for path in files] == ["atmem.db", "atmem.db-shm", "atmem.db-wal"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}

    def test_a_file_that_exists_is_left_alone(self, tmp_path: Path):
        path = tmp_path / "atmem.db"
        path.write_bytes(b"content")

        sqlite.create_file(path)

        assert path.read_bytes() == b"content"

    @pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?.db", "#1.db", "ü.db"])
    def test_a_path_may_hold_any_character(self, tmp_path: Path, name: str):
        sqlite.create_file(tmp_path / name)
        engine = make_engine(sa.URL.create("sqlite", database=str(tmp_path / name)), pool_size=1)

        with engine.begin() as connection:
            workspaces.create(connection)

        assert (tmp_path / name).stat().st_size > 0
        engine.dispose()


class TestPostgreSQL:
    @pytest.mark.postgresql
    def test_commits_are_durable_and_nothing_waits_without_end(self, postgresql_store: Store):
        wanted = {
            "synchronous_commit": "on",
            "statement_timeout": "15s",
            "lock_timeout": "5s",
            "idle_in_transaction_session_timeout": "30s",
            "TimeZone": "UTC",
        }

        found = postgresql_store.write(
            lambda connection: {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in wanted}
        )

        assert found == wanted

    @pytest.mark.postgresql
    def test_a_read_cannot_write(self, postgresql_store: Store):
        with pytest.raises(UnavailableError):
            postgresql_store.read(insert("north"))

        assert postgresql_store.read(names) == []

    @pytest.mark.parametrize(
        ("url", "wanted"),
        [
            ("postgresql://u@db.example/x", {"sslmode": "verify-full", "sslrootcert": "system"}),
            ("postgresql://u@10.0.0.7/x", {"sslmode": "verify-full", "sslrootcert": "system"}),
            ("postgresql://u@db.example/x?sslrootcert=/ca.pem", {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}),
            ("postgresql://u@db.example/x?sslmode=require", {"sslmode": "require"}),
            ("postgresql://u@localhost/x", {}),
            ("postgresql://u@/x?host=/run/postgresql", {}),
        ],
    )
    def test_the_certificate_of_another_machine_is_checked(self, url, wanted):
        engine = make_engine(url, pool_size=1)

        _, options = engine.dialect.create_connect_args(engine.url)

        assert {name: value for name, value in options.items() if name.startswith("ssl")} == wanted


@pytest.mark.parametrize("url", ["mysql://u@h/x", "sqlite://", "sqlite:///:memory:"])
def test_another_database_is_refused_with_what_it_must_be(url):
    with pytest.raises(ValueError, match="must b"):
        make_engine(url, pool_size=1)
