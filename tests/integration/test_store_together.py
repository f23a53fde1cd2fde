"""Leader commit on SQLite: threads that write at once share one commit, and nothing else."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from continuity.errors import UnavailableError
from continuity.store import turns
from continuity.store.engine import make_engine
from continuity.store.schema import workspaces
from continuity.store.store import Store
from tests.patience import PATIENCE_S


def insert(name: str):
    return lambda connection: connection.execute(sa.insert(workspaces).values(name=name)).rowcount


def names(store: Store) -> list[str]:
    query = sa.select(workspaces.c.name).order_by(workspaces.c.workspace_pk)
    return list(store.read(lambda connection: connection.execute(query).scalars().all()))


@dataclass
class Crowd:
    """Threads that write while the first one is held up inside its unit, so that they wait together."""

    store: Store
    results: dict[str, object] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def write(
        self, name: str, work: Callable[[sa.Connection], object], context: contextvars.Context | None = None
    ) -> None:
        def run() -> None:
            try:
                self.results[name] = self.store.write(work)
            except BaseException as error:  # noqa: BLE001 - the test judges
                self.results[name] = error

        known = self.waiting()
        thread = threading.Thread(target=(context or contextvars.copy_context()).run, args=(run,))
        self.threads.append(thread)
        thread.start()
        until = time.monotonic() + PATIENCE_S
        # One after another, so that the order of arrival is known.
        while self.waiting() == known and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.001)

    def waiting(self) -> int:
        return len(self.store._writer._turns._waiting)


@contextmanager
def crowd(store: Store) -> Iterator[Crowd]:
    """Let threads come while a first unit is under way; at the end of the block it goes on, and all others after it."""
    inside, going_on = threading.Event(), threading.Event()

    def held(connection: sa.Connection) -> int:
        inside.set()
        assert going_on.wait(PATIENCE_S)
        return insert("first")(connection)

    first = threading.Thread(target=store.write, args=(held,))
    first.start()
    assert inside.wait(PATIENCE_S)
    come = Crowd(store)
    try:
        yield come
    finally:
        going_on.set()
        first.join(PATIENCE_S)
        for thread in come.threads:
            thread.join(PATIENCE_S)


@pytest.fixture
def commits(sqlite_store: Store) -> list[object]:
    seen: list[object] = []
    sa.event.listen(sqlite_store.engine, "commit", seen.append)
    return seen


def test_those_who_wait_share_one_commit_in_the_order_of_their_arrival(sqlite_store, commits):
    with crowd(sqlite_store) as come:
        for number in range(20):
            come.write(f"n{number}", insert(f"n{number}"))

    assert len(commits) == 2
    assert names(sqlite_store) == ["first", *(f"n{number}" for number in range(20))]
    assert come.results == {f"n{number}": 1 for number in range(20)}


def test_nobody_is_answered_before_the_commit_of_all(sqlite_store):
    answered: list[int] = []
    with crowd(sqlite_store) as come:
        for number in range(5):
            come.write(f"n{number}", insert(f"n{number}"))
        sa.event.listen(sqlite_store.engine, "commit", lambda _connection: answered.append(len(come.results)))

    assert answered == [0, 0]


def test_more_than_go_together_take_several_commits(sqlite_store, commits, monkeypatch):
    monkeypatch.setattr(turns, "MOST_TOGETHER", 4)
    with crowd(sqlite_store) as come:
        for number in range(9):
            come.write(f"n{number}", insert(f"n{number}"))

    assert len(commits) == 1 + 3
    assert len(names(sqlite_store)) == 10


def test_a_unit_that_raises_undoes_its_own_statements_alone(sqlite_store):
    def failing(connection: sa.Connection) -> None:
        insert("undone")(connection)
        raise LookupError("its own")

    with crowd(sqlite_store) as come:
        come.write("before", insert("before"))
        come.write("failing", failing)
        come.write("twice", insert("before"))
        come.write("after", insert("after"))

    assert names(sqlite_store) == ["first", "before", "after"]
    assert come.results["before"] == come.results["after"] == 1
    assert isinstance(come.results["failing"], LookupError)
    assert isinstance(come.results["twice"], sa.exc.IntegrityError)


def test_what_ends_a_thread_ends_that_of_its_unit(sqlite_store):
    def leaving(_connection: sa.Connection) -> None:
        raise SystemExit(3)

    with crowd(sqlite_store) as come:
        come.write("leads", insert("leads"))
        come.write("leaving", leaving)
        come.write("after", insert("after"))

    assert isinstance(come.results["leaving"], SystemExit)
    assert names(sqlite_store) == ["first", "leads", "after"]


def test_a_unit_sees_what_those_before_it_wrote(sqlite_store):
    def count(connection: sa.Connection) -> int:
        return connection.execute(sa.select(sa.func.count(workspaces.c.name))).scalar_one()

    with crowd(sqlite_store) as come:
        come.write("one", insert("one"))
        come.write("count", count)

    assert come.results["count"] == 2


def test_a_unit_runs_with_the_context_of_its_own_thread(sqlite_store):
    who = contextvars.ContextVar("who", default="nobody")

    def as_somebody(name: str) -> Callable[[sa.Connection], str]:
        def work(connection: sa.Connection) -> str:
            insert(f"{name} of {who.get()}")(connection)
            return who.get()

        return work

    with crowd(sqlite_store) as come:
        for name in ("ann", "ben", "cem"):
            context = contextvars.copy_context()
            context.run(who.set, name)
            come.write(name, as_somebody(name), context)

    assert come.results == {"ann": "ann", "ben": "ben", "cem": "cem"}


def test_a_write_inside_the_unit_of_a_neighbour_is_refused_to_that_neighbour(sqlite_store):
    with crowd(sqlite_store) as come:
        come.write("leads", insert("leads"))
        come.write("nested", lambda _connection: sqlite_store.write(insert("inner")))
        come.write("after", insert("after"))

    assert isinstance(come.results["nested"], RuntimeError)
    assert names(sqlite_store) == ["first", "leads", "after"]


def test_storage_that_fails_in_one_unit_takes_nobody_else_along(sqlite_store):
    def too_much(connection: sa.Connection) -> None:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 4}")
        try:
            for number in range(400):
                insert(f"{number}" * 30)(connection)
        finally:
            connection.exec_driver_sql("PRAGMA max_page_count=1073741823")

    with crowd(sqlite_store) as come:
        come.write("before", insert("before"))
        come.write("too much", too_much)
        come.write("after", insert("after"))

    assert isinstance(come.results["too much"], UnavailableError)
    assert come.results["before"] == come.results["after"] == 1
    assert names(sqlite_store) == ["first", "before", "after"]


def test_a_commit_that_fails_is_told_to_all_of_them_and_leaves_nothing(sqlite_store):
    driver_error = sqlite_store.engine.dialect.loaded_dbapi.OperationalError
    failing = threading.Event()

    @sa.event.listens_for(sqlite_store.engine, "commit")
    def fail(_connection: sa.Connection) -> None:
        if failing.is_set():
            failing.clear()
            raise driver_error("disk I/O error")

    def refused(_connection: sa.Connection) -> None:
        failing.set()
        raise LookupError("judged by what a neighbour wrote")

    with crowd(sqlite_store) as come:
        come.write("one", insert("one"))
        come.write("two", insert("two"))
        come.write("refused", refused)

    assert [type(come.results[name]) for name in ("one", "two", "refused")] == [UnavailableError] * 3
    assert names(sqlite_store) == ["first"]
    sqlite_store.write(insert("later"))
    assert names(sqlite_store) == ["first", "later"]


def test_whoever_finds_too_many_waiting_is_told_at_once(sqlite_store, monkeypatch):
    monkeypatch.setattr(turns, "MOST_WAITING", 3)
    with crowd(sqlite_store) as come:
        for number in range(3):
            come.write(f"n{number}", insert(f"n{number}"))
        with pytest.raises(UnavailableError, match="Too many writers"):
            sqlite_store.write(insert("one more"))
        # At once: those that came before it wait still, for one that goes on only behind this block.
        assert come.waiting() == 3
        assert come.results == {}

    assert names(sqlite_store) == ["first", "n0", "n1", "n2"]


def test_whoever_waited_too_long_is_told_so_and_its_unit_is_not_run(sqlite_database):
    engine = make_engine(sqlite_database, pool_size=2)
    store = Store(engine, write_wait_s=0.3)
    with crowd(store) as come:
        come.write("late", insert("late"))
        come.threads[0].join(PATIENCE_S)
        assert isinstance(come.results["late"], UnavailableError)
        come.write("next", insert("next"))

    assert names(store) == ["first", "next"]
    store.close()
    engine.dispose()


def test_many_threads_at_once_lose_nothing_and_get_their_own_results(sqlite_store):
    def work(number: int) -> Callable[[sa.Connection], int]:
        def run(connection: sa.Connection) -> int:
            insert(f"n{number}")(connection)
            if number % 7 == 0:
                raise ValueError(number)
            return number

        return run

    results: dict[int, object] = {}

    def write(number: int) -> None:
        try:
            results[number] = sqlite_store.write(work(number))
        except ValueError as error:
            results[number] = error.args[0]

    threads = [threading.Thread(target=lambda at=at: [write(n) for n in range(at, 400, 16)]) for at in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {number: number for number in range(400)}
    assert sorted(names(sqlite_store)) == sorted(f"n{number}" for number in range(400) if number % 7)
