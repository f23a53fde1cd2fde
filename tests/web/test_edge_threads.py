"""Which of the server's threads serve: the warm one when one is enough, all of them when they are needed."""

from __future__ import annotations

import threading

import pytest

from app.dispatching import Dispatcher
from tests.patience import PATIENCE_S

THREADS = 4


class Task:
    """Notes the thread that serves it, and goes on when it may."""

    def __init__(self, may_end: threading.Event) -> None:
        self._may_end = may_end
        self.is_served = threading.Event()
        self.served_by = ""

    def service(self) -> None:
        self.served_by = threading.current_thread().name
        self.is_served.set()
        self._may_end.wait(PATIENCE_S)

    def cancel(self) -> None:
        self.is_served.set()


@pytest.fixture
def dispatcher():
    made = Dispatcher()
    made.set_thread_count(THREADS)
    yield made
    made.shutdown(timeout=PATIENCE_S)
    assert not made.threads


def open_gate():
    gate = threading.Event()
    gate.set()
    return gate


def settle(dispatcher):
    """Wait until every thread sleeps again."""
    until = threading.Event()
    for _ in range(1_000):
        with dispatcher.lock:
            if dispatcher.active_count == 0:
                return
        until.wait(0.01)
    raise AssertionError("a thread is still at work")


def test_one_request_after_the_other_is_served_by_one_thread(dispatcher):
    settle(dispatcher)
    served = []
    for _ in range(3 * THREADS):
        task = Task(open_gate())
        dispatcher.add_task(task)
        assert task.is_served.wait(PATIENCE_S)
        served.append(task.served_by)
        settle(dispatcher)

    assert len(set(served)) == 1


def test_requests_at_once_are_served_by_as_many_threads(dispatcher):
    settle(dispatcher)
    gate = threading.Event()
    tasks = [Task(gate) for _ in range(THREADS)]
    for task in tasks:
        dispatcher.add_task(task)

    assert all(task.is_served.wait(PATIENCE_S) for task in tasks)
    assert len({task.served_by for task in tasks}) == THREADS
    gate.set()


def test_requests_beyond_the_threads_are_served_as_soon_as_one_is_free(dispatcher):
    settle(dispatcher)
    gate = threading.Event()
    held = [Task(gate) for _ in range(THREADS)]
    waiting = [Task(open_gate()) for _ in range(5)]
    for task in (*held, *waiting):
        dispatcher.add_task(task)
    assert all(task.is_served.wait(PATIENCE_S) for task in held)
    assert not any(task.is_served.is_set() for task in waiting)

    gate.set()

    assert all(task.is_served.wait(PATIENCE_S) for task in waiting)
