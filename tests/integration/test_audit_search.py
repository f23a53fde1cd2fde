"""Entries are found by what stands in the clear, from indexes, the same on both databases."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import sqlalchemy as sa

from continuity.errors import MalformedError, NotFoundError
from continuity.services import audit_search
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.audit_reading import AuditReading, Reader
from continuity.services.audit_search import AuditQuestion
from continuity.store.schema import audit
from continuity.store.store import Store
from continuity.vault import Vault
from tests import stepping
from tests.patience import PATIENCE_S

NOW_US = 1_800_000_000_000_000
DAY_US = 86_400 * 1_000_000
READER = Reader("user:usr_reader", "req_reader")
QUESTIONS = {
    "all": (AuditQuestion(), range(60)),
    "action": (AuditQuestion(action="user.sign_in"), range(0, 60, 3)),
    "noun": (AuditQuestion(action="user."), [n for n in range(60) if n % 3 != 2]),
    "actor": (AuditQuestion(actor="user:usr_1"), range(1, 60, 4)),
    "object": (AuditQuestion(object_id="wf_7"), [7]),
    "done": (AuditQuestion(result="done"), [n for n in range(60) if n % 10]),
    "refused": (AuditQuestion(result="refused"), range(0, 60, 10)),
    "code": (AuditQuestion(result="forbidden"), range(0, 60, 20)),
    "days": (AuditQuestion(since_us=NOW_US + DAY_US, until_us=NOW_US + 2 * DAY_US), range(24, 48)),
    "actor and days": (
        AuditQuestion(actor="user:usr_1", since_us=NOW_US + DAY_US, until_us=NOW_US + 2 * DAY_US), range(25, 48, 4),
    ),
    "noun and days": (
        AuditQuestion(action="user.", until_us=NOW_US + DAY_US), [n for n in range(24) if n % 3 != 2],
    ),
    "done since": (AuditQuestion(result="done", since_us=NOW_US + DAY_US), [n for n in range(24, 60) if n % 10]),
    "several": (
        AuditQuestion(action="user.", actor="user:usr_1", result="done"),
        [n for n in range(1, 60, 4) if n % 3 != 2],
    ),
    "none": (AuditQuestion(action="user", actor="user:usr_1"), []),
}  # fmt: skip


@pytest.fixture
def log(vault: Vault) -> AuditLog:
    return AuditLog(vault)


@pytest.fixture
def filled(store: Store, log: AuditLog) -> Store:
    return filled_with(store, log)


def filled_with(store: Store, log: AuditLog) -> Store:
    def work(connection: sa.Connection) -> None:
        for n in range(60):
            entry = AuditEntry(
                action=("user.sign_in", "user.sign_out", "users.other")[n % 3], actor=f"user:usr_{n % 4}",
                object_id=f"wf_{n}", result="done" if n % 10 else ("forbidden", "throttled")[n % 20 // 10],
                detail={"why": "x"} if n == 7 else None,
            )  # fmt: skip
            log.append(connection, entry, now_us=NOW_US + n * DAY_US // 24)

    store.write(work)
    return store


@pytest.fixture
def reading(filled: Store, log: AuditLog) -> AuditReading:
    return AuditReading(filled, log, lambda: NOW_US)


@pytest.mark.parametrize("looked_at", [1, 3, 2_000])
@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_finds_its_entries_newest_first_page_by_page(reading, monkeypatch, name, looked_at):
    monkeypatch.setattr(audit_search, "LOOKED_AT_MOST", looked_at)
    question, wanted = QUESTIONS[name]
    page, before = reading.page(question, count=7)
    found = [each.seq - 1 for each in page]
    while before is not None:
        page, before = reading.page(question, count=7, before=before)
        found += [each.seq - 1 for each in page]

    assert found == sorted(wanted, reverse=True)


def many(store: Store, count: int) -> None:
    """Add entries of the kinds that the questions ask for, of the days behind those that are there."""
    rows = [
        {
            "seq": number, "at": NOW_US + number * DAY_US // 24, "actor": f"user:usr_{number % 4}",
            "action": ("user.sign_in", "user.sign_out")[number % 2], "object_id": f"wf_{number}",
            "result": "done" if number % 10 else "throttled", "request_id": None, "hash": b"", "sealed_detail": None,
        }
        for number in range(61, 61 + count)
    ]  # fmt: skip

    def work(connection: sa.Connection) -> None:
        connection.exec_driver_sql("DROP TRIGGER continuity_audit_insert")
        connection.execute(sa.insert(audit), rows)

    store.write(work)


RARE = {
    "a code that is rare among the refused": AuditQuestion(result="forbidden"),
    "an action and an actor that never come together": AuditQuestion(action="user.sign_in", actor="user:usr_1"),
    "a noun and an actor of other nouns": AuditQuestion(action="user.", actor="user:usr_2", result="refused"),
    "a kind of entry long ago": AuditQuestion(action="user.sign_out", until_us=NOW_US + DAY_US),
    "an actor long ago": AuditQuestion(actor="user:usr_1", until_us=NOW_US + DAY_US),
}


@pytest.mark.parametrize("name", [*QUESTIONS, *RARE])
def test_a_page_of_a_long_log_costs_what_one_of_a_short_log_does(sqlite_store, log, monkeypatch, name):
    monkeypatch.setattr(audit_search, "LOOKED_AT_MOST", 60)
    question = QUESTIONS[name][0] if name in QUESTIONS else RARE[name]
    store = filled_with(sqlite_store, log)

    def look():
        store.read(lambda connection: audit_search.search(connection, question, count=51))

    few = stepping.steps(store.engine, look)
    many(store, 10_000)

    # A question in several ways looks at more where there is more, up to its bound; the log has 160 times as many.
    assert stepping.steps(store.engine, look) <= few + 60


@pytest.mark.parametrize("looked_at", [1, 3, 2_000])
@pytest.mark.parametrize("actor", [None, "cli"])
def test_a_search_by_days_misses_nothing_where_a_clock_was_set_back(store, log, monkeypatch, actor, looked_at):
    monkeypatch.setattr(audit_search, "LOOKED_AT_MOST", looked_at)
    hour_us = 3_600 * 1_000_000
    at = [0, 9_000, 5, 12, 12, 7, 20, 3, 40, 19]

    def work(connection: sa.Connection) -> None:
        for hours in at:
            log.append(connection, AuditEntry(action="a.b", actor="cli", result="done"), now_us=hours * hour_us)

    store.write(work)
    reading = AuditReading(store, log, lambda: NOW_US)
    question = AuditQuestion(actor=actor, since_us=5 * hour_us, until_us=20 * hour_us)
    page, before = reading.page(question, count=2)
    found = [(each.at_us // hour_us, each.seq) for each in page]
    while before is not None:
        page, before = reading.page(question, count=2, before=before)
        found += [(each.at_us // hour_us, each.seq) for each in page]

    assert found == [(19, 10), (12, 5), (12, 4), (7, 6), (5, 3)]


def test_details_stay_sealed_until_one_is_opened(reading, log):
    [found], _ = reading.page(AuditQuestion(object_id="wf_7"), count=5)
    assert (found.detail_state, found.entry.detail) == ("sealed", None)

    opened = reading.open(found.seq, reader=READER)

    assert (opened.detail_state, opened.entry.detail) == ("open", {"why": "x"})
    [look], _ = reading.page(AuditQuestion(action="audit.viewed"), count=5)
    assert (look.entry.actor, look.entry.object_id, look.entry.request_id) == (
        READER.actor,
        str(found.seq),
        "req_reader",
    )
    assert reading.store.read(log.verify).fault is None


def test_a_closed_vault_opens_nothing_and_writes_nothing(filled):
    closed = AuditReading(filled, AuditLog(None), lambda: NOW_US)

    assert closed.open(8, reader=READER).detail_state == "sealed"
    assert closed.page(AuditQuestion(action="audit."), count=5) == ([], None)


def test_an_entry_that_is_not_there_is_not_found(reading):
    with pytest.raises(NotFoundError):
        reading.open(999, reader=READER)


@pytest.mark.parametrize("wrong", [{"action": ""}, {"actor": "é"}, {"object_id": "x" * 161}, {"result": "a\n"}])
def test_what_no_column_holds_is_refused(wrong):
    with pytest.raises(MalformedError):
        AuditQuestion(**wrong)


def test_an_export_is_written_down_with_what_it_holds(reading):
    taken = reading.export(AuditQuestion(action="users."), form="csv", reader=READER)

    assert [each.seq for each in taken] == sorted(range(3, 61, 3), reverse=True)
    [entry], _ = reading.page(AuditQuestion(action="audit.exported"), count=5)
    assert entry.entry.object_id == "3-60"
    assert reading.open(entry.seq, reader=READER).entry.detail == {"form": "csv", "entries": 20}


@pytest.mark.postgresql
def test_a_noun_is_found_whatever_language_the_database_sorts_by(postgresql_store):
    """Bytes, and no language: where a dot counts for nothing ``user.sign_in`` comes behind ``user/``."""
    [collation] = postgresql_store.read(lambda connection: connection.execute(sa.text(
        "SELECT collation_name FROM information_schema.columns"
        " WHERE table_name = 'continuity_audit' AND column_name = 'action'"
    )).scalars().all())  # fmt: skip

    assert collation == "C"


def test_others_write_while_an_export_searches_the_log(reading, filled):
    finished = []
    with ThreadPoolExecutor(1) as pool:

        def write_beside(_connection, _cursor, statement, *_):
            if "ORDER BY" in statement and not finished:
                beside = pool.submit(reading.record, "audit.verified", reader=READER)
                wait([beside], timeout=PATIENCE_S)
                finished.append(beside.done() and beside.exception() is None)

        sa.event.listen(filled.engine, "before_cursor_execute", write_beside)
        taken = reading.export(AuditQuestion(action="users."), form="csv", reader=READER)

    assert finished == [True]
    assert len(taken) == 20


def test_twenty_writers_and_readers_keep_one_chain(reading, log):
    def write(number: int) -> None:
        for _ in range(3):
            reading.record("audit.verified", reader=Reader(f"user:usr_{number}", f"req_{number}"))
            reading.open(8, reader=READER)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    report = reading.store.read(log.verify)
    assert (report.entries, report.fault) == (60 + 120, None)
