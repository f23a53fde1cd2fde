"""Lists of threads: the same threads whatever they are asked by, and never more rows than a page needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from continuity.decisions.threads.states import ThreadState
from continuity.services.callers import Role
from continuity.services.threads_standing import ThreadStanding
from continuity.thread_requests import ListThreads
from tests.integration.conversing import converse, question
from tests.integration.test_services_listing import plans


@pytest.fixture
def at(store, tmp_path):
    return converse(store, tmp_path)


def everybody(at):
    """Return callers who see one workspace, several, and all of them."""
    home = at.person.home_workspace
    one = at.someone("op", Role.OPERATOR)
    several = replace(one, workspaces=frozenset({home, home + 1, home + 2}))
    return one, several, replace(one, role=Role.ADMINISTRATOR, workspaces=None)


def walked(at, caller, **asked):
    found, cursor = [], None
    while True:
        page = at.reading.page(caller, ListThreads(cursor=cursor, **asked))
        found += [thread["name"] for thread in page["threads"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def test_pages_hold_every_thread_once_newest_first_for_whoever_may_see_it(at):
    ada, bob = at.someone("ada"), at.someone("bob")
    for number in range(7):
        name = f"t{number}"
        thread_id = at.create(name, by=bob if number % 3 == 0 else ada)
        if number % 2:
            at.say(thread_id, by=bob if number % 3 == 0 else ada)
            at.wait(at.claim(), question())
    at.deletions.delete(ada, next(
        thread["thread_id"] for thread in at.reading.page(ada, ListThreads())["threads"] if thread["name"] == "t4"
    ))  # fmt: skip

    for caller in everybody(at):
        for limit in (1, 2, 50):
            assert walked(at, caller, scope="workspace", limit=limit) == ["t6", "t5", "t3", "t2", "t1", "t0"]
            waiting = walked(at, caller, scope="workspace", limit=limit, state=ThreadState.WAITING)
            assert waiting == ["t5", "t3", "t1"]
    assert walked(at, ada, limit=2) == ["t5", "t2", "t1"]
    assert walked(at, bob, limit=1, state=ThreadState.IDLE) == ["t6", "t0"]
    # Out of the workspace, out of the list, also of one's own.
    elsewhere = replace(ada, workspaces=frozenset({ada.home_workspace + 7}))
    assert walked(at, elsewhere) == []


def test_no_list_of_threads_sorts_or_reads_a_whole_table(sqlite_store, tmp_path):
    at = converse(sqlite_store, tmp_path)
    at.create()
    standing = ThreadStanding(at.store, at.ledger)

    found = plans(at, lambda: standing.counts(frozenset({1, 2, 3}), most=1_000))
    for caller in everybody(at):
        for state in (None, ThreadState.WAITING):
            for scope in ("own", "workspace"):
                asked = ListThreads(scope=scope, state=state)
                found += plans(at, lambda caller=caller, asked=asked: at.reading.page(caller, asked))

    assert len(found) > 20
    # All threads of all workspaces are read in the order of their numbers, which are the table's own.
    told = [plan for plan in found if "TEMP B-TREE" in plan or plan.startswith("SCAN continuity_threads ")]
    numbered = [
        plan for plan in told if plan.startswith("SCAN continuity_threads  <- SELECT continuity_threads.thread")
    ]
    assert told == numbered
    assert len(numbered) == 1
