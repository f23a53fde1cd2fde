"""Emptying SQLite's -wal file after a deletion, beside others who read and write."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from continuity.store import writer as module
from continuity.store.schema import workspaces
from tests.patience import PATIENCE_S


def wal(store):
    return Path(f"{store.engine.url.database}-wal")


def add(store, name):
    store.write(lambda connection: connection.execute(sa.insert(workspaces).values(name=name)).rowcount)


def count(store):
    return store.read(lambda connection: connection.execute(sa.select(sa.func.count(workspaces.c.name))).scalar_one())


def test_the_wal_file_is_empty_and_the_rows_are_there(sqlite_store):
    add(sqlite_store, "one")
    before = count(sqlite_store)
    assert wal(sqlite_store).stat().st_size > 0

    assert sqlite_store.scrub() is True

    assert wal(sqlite_store).stat().st_size == 0
    assert count(sqlite_store) == before


def test_a_reader_of_an_older_state_is_not_disturbed_and_it_is_done_later(sqlite_store, monkeypatch):
    monkeypatch.setattr(module, "SCRUB_WAIT_S", 0.01)
    add(sqlite_store, "one")

    def read(connection):
        query = sa.select(sa.func.count(workspaces.c.name))
        before = connection.execute(query).scalar_one()
        add(sqlite_store, "two")
        assert sqlite_store.scrub() is False
        return connection.execute(query).scalar_one() - before

    assert sqlite_store.read(read) == 0
    assert sqlite_store.scrub() is True


def test_readers_and_writers_go_on_meanwhile(sqlite_store):
    stopping, failures = threading.Event(), []
    is_resting, meeting = threading.Event(), threading.Barrier(7, timeout=PATIENCE_S)
    is_resting.set()

    def repeat(work):
        number = 0
        try:
            while not stopping.is_set():
                if is_resting.is_set():
                    meeting.wait()
                    meeting.wait()
                work(f"{threading.get_ident()}-{number}")
                number += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must say it
            failures.append(error)

    works = [lambda name: add(sqlite_store, name), lambda _: count(sqlite_store)] * 3
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    # While nobody reads or writes it is done, before the race and after it; at any instant of it it may be or not.
    meeting.wait()
    done = [sqlite_store.scrub()]
    is_resting.clear()
    meeting.wait()
    for _ in range(100):
        sqlite_store.scrub()
    is_resting.set()
    meeting.wait()
    done.append(sqlite_store.scrub())
    stopping.set()
    meeting.wait()
    for thread in threads:
        thread.join()

    assert failures == []
    assert done == [True, True]


@pytest.mark.postgresql
def test_postgresql_needs_none_of_it(postgresql_store):
    assert postgresql_store.scrub() is True
