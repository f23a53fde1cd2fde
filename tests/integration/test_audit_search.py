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


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_finds_its_entries_newest_first_page_by_page(reading, name):
    question, wanted = QUESTIONS[name]
    found, before = [], None
    while page := reading.page(question, count=7, before=before):
        found += [each.seq - 1 for each in page]
        before = page[-1].seq

    assert found == sorted(wanted, reverse=True)


@pytest.mark.parametrize("name", ["action", "noun", "actor", "object", "refused", "code", "days"])
def test_a_question_is_answered_from_an_index(sqlite_store, log, name):
    statement = (
        sa.select(audit.c.seq)
        .where(*audit_search._conditions(QUESTIONS[name][0]))
        .order_by(audit.c.seq.desc())
        .limit(51)
    )
    text = str(statement.compile(sqlite_store.engine, compile_kwargs={"literal_binds": True}))
    plan = sqlite_store.read(lambda connection: connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all())

    assert "USING COVERING INDEX ix_continuity_audit" in str(plan) or "USING INDEX ix_continuity_audit" in str(plan), (
        plan
    )


def test_details_stay_sealed_until_one_is_opened(reading, log):
    [found] = reading.page(AuditQuestion(object_id="wf_7"), count=5)
    assert (found.detail_state, found.entry.detail) == ("sealed", None)

    opened = reading.open(found.seq, reader=READER)

    assert (opened.detail_state, opened.entry.detail) == ("open", {"why": "x"})
    [look] = reading.page(AuditQuestion(action="audit.viewed"), count=5)
    assert (look.entry.actor, look.entry.object_id, look.entry.request_id) == (
        READER.actor,
        str(found.seq),
        "req_reader",
    )
    assert reading.store.read(log.verify).fault is None


def test_a_closed_vault_opens_nothing_and_writes_nothing(filled):
    closed = AuditReading(filled, AuditLog(None), lambda: NOW_US)

    assert closed.open(8, reader=READER).detail_state == "sealed"
    assert closed.page(AuditQuestion(action="audit."), count=5) == []


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
    [entry] = reading.page(AuditQuestion(action="audit.exported"), count=5)
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
