"""Retention and threads: old records of journals go, of threads at rest; what somebody sees stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from continuity.errors import ForbiddenError
from continuity.services.callers import Role
from continuity.services.threads_retention import OldJournals
from continuity.store import schema
from continuity.store import threads_schema as tables
from tests.integration.conversing import converse, question, said
from tests.integration.governed import process_of
from tests.integration.recorded import Recorded

DAY_S = 86_400


@pytest.fixture
def at(store, tmp_path):
    return converse(store, tmp_path)


@pytest.fixture
def retaining(at):
    made = Recorded(process_of(at.home))
    made.administrator = replace(at.person, actor="user:adm", role=Role.ADMINISTRATOR, workspaces=None)

    def retain(*, by=None, **asked):
        return made.retain(by=by or made.administrator, kind="threads", **asked)

    return retain


def talked(at, name, *texts):
    """A thread at rest in which so much was said."""
    thread_id = at.create(name)
    for text in texts or ("hello",):
        at.say(thread_id, text)
        held = at.claim()
        at.append(held, *said(text))
        at.settle(held)
    return thread_id


def outcomes(reply):
    return {item["name"]: item.get("because", item["outcome"]) for item in reply["items"]}


def journal_of(at, thread_id):
    row = at.row(thread_id)
    statement = sa.select(tables.journal.c.seq).where(tables.journal.c.thread_pk == row.thread_pk)
    return sorted(at.store.read(lambda connection: connection.execute(statement).scalars().all()))


def everything(at):
    return {
        table.name: at.store.read(lambda connection, table=table: sorted(map(repr, connection.execute(table.select()))))
        for table in schema.metadata.sorted_tables
    }


def test_it_says_first_and_lets_go_when_it_is_asked(at, retaining):
    old = talked(at, "old")
    at.clock.advance(40 * DAY_S)
    young = talked(at, "young")
    shown = at.snapshot(old)
    before = everything(at)
    many = len(journal_of(at, old))

    said_first = retaining()

    assert everything(at) == before
    assert outcomes(said_first) == {"old": "would_trim"}
    assert said_first["items"][0]["records"] == many
    assert said_first["items"][0]["bytes"] > 0

    done = retaining(apply=True)

    assert outcomes(done) == {"old": "trimmed"}
    assert (journal_of(at, old), len(journal_of(at, young))) == ([], many)
    assert at.snapshot(old) == shown
    assert outcomes(retaining(apply=True)) == {}
    assert at.home.actions().count(("thread.trimmed", "done")) == 1
    assert at.checker.check() == []


def test_of_a_long_conversation_the_old_part_goes(at, retaining):
    thread_id = talked(at, "long", "one", "two")
    old = len(journal_of(at, thread_id))
    at.clock.advance(40 * DAY_S)
    talked_again = at.say(thread_id, "three")
    held = at.claim()
    at.settle(held)

    assert outcomes(retaining(apply=True)) == {"long": "trimmed"}

    assert min(journal_of(at, thread_id)) == old + 1
    assert talked_again["position"] in {record["position"] for record in at.records(thread_id, f"1-{old}")}


def test_a_thread_that_is_not_at_rest_is_kept_however_old(at, retaining):
    for name in ("queued", "waiting", "failed", "interrupted"):
        at.create(name)
    named = {thread["name"]: thread["thread_id"] for thread in listed(at)}
    for name in ("waiting", "failed", "interrupted"):
        at.say(named[name])
        held = at.claim()
        if name == "waiting":
            at.wait(held, question())
        if name == "failed":
            at.fail(held)
    at.clock.advance(120)
    at.upkeep.expire_due()
    at.say(named["queued"])
    at.clock.advance(400 * DAY_S)
    before = {name: journal_of(at, thread_id) for name, thread_id in named.items()}

    assert outcomes(retaining(apply=True)) == dict.fromkeys(named, "thread_unfinished")
    assert {name: journal_of(at, thread_id) for name, thread_id in named.items()} == before


def listed(at):
    from continuity.thread_requests import ListThreads  # noqa: PLC0415

    return at.reading.page(at.person, ListThreads())["threads"]


def test_batches_are_bounded_by_threads_and_by_records(at, retaining, monkeypatch):
    names = [f"t{number}" for number in range(5)]
    for name in names:
        talked(at, name)
    at.clock.advance(40 * DAY_S)

    def walked(**asked):
        found, cursor, batches = [], None, 0
        while True:
            reply = retaining(cursor=cursor, **asked)
            found += list(outcomes(reply))
            batches, cursor = batches + 1, reply["next_cursor"]
            if cursor is None:
                return found, batches

    assert walked(limit=2) == (names, 3)
    monkeypatch.setattr("continuity.services.threads_retention.RECORDS_AT_MOST", 1)
    assert walked(limit=200) == (names, 5)
    assert walked(limit=2, apply=True)[0] == names


def test_a_thread_that_does_not_open_is_kept_and_keeps_no_other(at, retaining):
    damaged, sound = talked(at, "damaged"), talked(at, "sound")
    at.damage(tables.threads, tables.threads.c.thread_id == damaged, sealed_head=b"x" * 60)
    at.clock.advance(40 * DAY_S)

    reply = retaining(apply=True)

    assert [(item["id"], item.get("because", item["outcome"])) for item in reply["items"]] == [
        (damaged, "unreadable"), (sound, "trimmed"),
    ]  # fmt: skip
    assert journal_of(at, damaged)


def test_a_thread_that_begins_to_run_between_the_look_and_the_deed_is_kept(at, retaining, monkeypatch):
    thread_id = talked(at, "awakened")
    at.clock.advance(40 * DAY_S)
    trim = OldJournals.trim

    def late(journals, caller, candidate, *, before_us):
        at.say(thread_id, "wait")
        return trim(journals, caller, candidate, before_us=before_us)

    monkeypatch.setattr(OldJournals, "trim", late)

    assert outcomes(retaining(apply=True)) == {"awakened": "thread_busy"}
    assert min(journal_of(at, thread_id)) == 1


def test_a_deleted_thread_is_no_candidate(at, retaining):
    thread_id = talked(at, "gone")
    at.clock.advance(40 * DAY_S)
    at.deletions.delete(at.person, thread_id)

    assert retaining()["looked_at"] == 0


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.INVESTIGATOR])
def test_administrators_alone_let_go_of_records(at, retaining, role):
    talked(at, "old")
    at.clock.advance(40 * DAY_S)

    with pytest.raises(ForbiddenError):
        retaining(by=at.someone("op", role), apply=True)
