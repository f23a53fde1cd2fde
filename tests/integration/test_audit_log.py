"""The audit log only grows, and its chain shows every change that somebody makes all the same."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import sqlalchemy as sa

from continuity.errors import DecryptionError, MalformedError, SealedError
from continuity.services import audit as audit_module
from continuity.services.audit import AuditEntry, AuditFault, AuditHead, AuditLog
from continuity.store.schema import audit, audit_head, partitions
from continuity.store.store import Store
from continuity.vault import Vault
from tests.integration.tampering import blob, tamper

NOW_US = 1_800_000_000_000_000
ENTRY = AuditEntry(
    action="workflow.enable", actor="user:u_1", object_id="wf_1", result="done", request_id="req_1", detail={"why": "x"}
)


@pytest.fixture
def log(vault: Vault) -> AuditLog:
    return AuditLog(vault)


def append(store: Store, log: AuditLog, entry: AuditEntry = ENTRY, *, times: int = 1) -> None:
    for number in range(times):
        store.write(lambda connection, at=NOW_US + number: log.append(connection, entry, now_us=at))


def rows(store: Store) -> list[sa.RowMapping]:
    return store.read(lambda connection: connection.execute(sa.select(audit).order_by(audit.c.seq)).mappings().all())


class TestAppending:
    def test_an_entry_says_who_did_what_to_what_when_and_with_what_result(self, store: Store, log: AuditLog):
        append(store, log)

        [row] = rows(store)
        assert {name: row[name] for name in ("seq", "at", "action", "actor", "object_id", "result", "request_id")} == {
            "seq": 1,
            "at": NOW_US,
            "action": "workflow.enable",
            "actor": "user:u_1",
            "object_id": "wf_1",
            "result": "done",
            "request_id": "req_1",
        }

    def test_entries_are_numbered_without_gaps_and_the_head_is_the_last(self, store: Store, log: AuditLog):
        append(store, log, times=3)

        assert [row["seq"] for row in rows(store)] == [1, 2, 3]
        assert store.read(log.head) == AuditHead(3, rows(store)[2]["hash"])

    def test_an_entry_goes_with_the_transaction_it_tells_of(self, store: Store, log: AuditLog):
        def work(connection: sa.Connection) -> None:
            log.append(connection, ENTRY, now_us=NOW_US)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.write(work)

        append(store, log)
        assert [row["seq"] for row in rows(store)] == [1]
        assert store.read(lambda connection: log.detail(connection, 1)) == {"why": "x"}

    def test_several_entries_may_be_written_in_one_transaction(self, store: Store, log: AuditLog):
        def work(connection: sa.Connection) -> list[int]:
            return [log.append(connection, ENTRY, now_us=NOW_US) for _ in range(3)]

        assert store.write(work) == [1, 2, 3]
        assert store.read(log.verify).fault is None

    def test_twenty_writers_make_one_chain(self, store: Store, log: AuditLog):
        threads = [threading.Thread(target=append, args=(store, log), kwargs={"times": 5}) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        report = store.read(log.verify)
        assert (report.entries, report.head.seq, report.fault) == (100, 100, None)

    def test_hostile_characters_and_lengths_do_not_stop_the_log(self, store: Store, log: AuditLog):
        append(store, log, replace(ENTRY, actor="a\0b\r\n\x1b[31m\u202eé\udcff", object_id="x" * 10_000))

        [row] = rows(store)
        assert row["actor"] == "a?b???[31m???"
        assert row["object_id"] == "x" * 160
        assert store.read(log.verify).fault is None

    def test_a_detail_that_is_not_json_is_refused_and_nothing_is_written(self, store: Store, log: AuditLog):
        with pytest.raises(MalformedError):
            append(store, log, replace(ENTRY, detail={"why": float("nan")}))

        assert rows(store) == []


class TestDetails:
    def test_what_people_typed_is_not_readable_in_the_database(self, store: Store, log: AuditLog):
        append(store, log, replace(ENTRY, detail={"reason": "sentinel-7d1f"}))

        [row] = rows(store)
        assert b"sentinel-7d1f" not in row["sealed_detail"]
        assert store.read(lambda connection: log.detail(connection, 1)) == {"reason": "sentinel-7d1f"}

    def test_all_details_are_sealed_under_one_partition(self, store: Store, log: AuditLog):
        append(store, log, times=2)

        kinds = store.read(lambda connection: connection.execute(sa.select(partitions.c.kind)).scalars().all())
        assert kinds == ["audit"]

    def test_a_locked_vault_drops_the_detail_and_keeps_the_entry(self, store: Store, log: AuditLog, vault: Vault):
        append(store, log)
        vault.lock()

        append(store, log)

        assert [row["sealed_detail"] is None for row in rows(store)] == [False, True]
        assert store.read(log.verify).fault is None
        with pytest.raises(SealedError):
            store.read(lambda connection: log.detail(connection, 1))

    def test_without_a_vault_the_entry_is_written_without_detail(self, store: Store):
        append(store, AuditLog(None))

        assert [row["sealed_detail"] for row in rows(store)] == [None]

    def test_an_entry_without_detail_needs_no_partition(self, store: Store, log: AuditLog):
        append(store, log, replace(ENTRY, detail=None))

        assert store.read(lambda connection: connection.execute(sa.select(partitions)).all()) == []
        assert store.read(lambda connection: log.detail(connection, 1)) is None

    def test_a_detail_moved_to_another_entry_does_not_open(self, store: Store, log: AuditLog):
        append(store, log, times=2)
        tamper(
            store,
            "UPDATE continuity_audit SET sealed_detail ="
            " (SELECT other.sealed_detail FROM continuity_audit AS other WHERE other.seq = 1) WHERE seq = 2",
        )

        with pytest.raises(DecryptionError):
            store.read(lambda connection: log.detail(connection, 2))
        assert store.read(log.verify).fault == AuditFault("changed", 2)


class TestTriggers:
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE continuity_audit SET result = 'refused' WHERE seq = 1",
            "DELETE FROM continuity_audit WHERE seq = 2",
            "DELETE FROM continuity_audit",
            "UPDATE continuity_audit_head SET seq = 1",
            "UPDATE continuity_audit_head SET seq = seq",
            "UPDATE continuity_audit_head SET seq = seq + 2",
            "DELETE FROM continuity_audit_head",
        ],
    )
    def test_the_database_refuses_to_change_the_log(self, store: Store, log: AuditLog, statement: str):
        append(store, log, times=2)

        with pytest.raises(sa.exc.IntegrityError, match="only grows"):
            store.write(lambda connection: connection.exec_driver_sql(statement))

        assert store.read(log.verify).fault is None

    @pytest.mark.parametrize(
        "statement",
        [
            (
                "INSERT OR REPLACE INTO continuity_audit SELECT seq, at, action, 'user:u_2', object_id, result,"
                " request_id, hash, sealed_detail FROM continuity_audit WHERE seq = 1"
            ),
            "INSERT OR REPLACE INTO continuity_audit_head VALUES (1, 0, zeroblob(32))",
            "UPDATE OR REPLACE continuity_audit SET seq = 2 WHERE seq = 1",
        ],
    )
    def test_sqlite_refuses_to_replace_entries(self, sqlite_store: Store, log: AuditLog, statement: str):
        append(sqlite_store, log, times=2)

        with pytest.raises(sa.exc.IntegrityError, match="only grows"):
            sqlite_store.write(lambda connection: connection.exec_driver_sql(statement))

        assert sqlite_store.read(log.verify).fault is None

    @pytest.mark.postgresql
    @pytest.mark.parametrize("table", ["continuity_audit", "continuity_audit_head"])
    def test_postgresql_refuses_to_truncate(self, postgresql_store: Store, log: AuditLog, table: str):
        append(postgresql_store, log)

        with pytest.raises(sa.exc.IntegrityError, match="only grows"):
            postgresql_store.write(lambda connection: connection.exec_driver_sql(f"TRUNCATE {table}"))


COLUMNS = "seq, at, action, actor, object_id, result, request_id, hash, sealed_detail"


class TestVerification:
    def test_an_empty_log_holds(self, store: Store, log: AuditLog):
        report = store.read(log.verify)

        assert (report.entries, report.head, report.fault) == (0, AuditHead(0, bytes(32)), None)

    def test_a_log_longer_than_a_page_holds(self, store: Store, log: AuditLog):
        plain = replace(ENTRY, detail=None)
        store.write(lambda connection: [log.append(connection, plain, now_us=NOW_US) for _ in range(1_001)])

        assert store.read(log.verify).entries == 1_001

    def test_it_needs_no_key(self, store: Store, log: AuditLog):
        append(store, log, times=2)

        assert store.read(AuditLog(None).verify).fault is None

    @pytest.mark.parametrize(
        "change",
        [
            "at = at + 1",
            "action = 'workflow.pause'",
            "actor = 'user:u_2'",
            "object_id = 'wf_2'",
            "object_id = NULL",
            "object_id = ''",
            "result = 'refused'",
            "request_id = NULL",
            "sealed_detail = NULL",
            "action = 'workflow.enableu', actor = 'ser:u_1'",
        ],
    )
    def test_an_edited_entry_is_found(self, store: Store, log: AuditLog, change: str):
        append(store, log, times=3)

        tamper(store, f"UPDATE continuity_audit SET {change} WHERE seq = 2")

        report = store.read(log.verify)
        assert (report.entries, report.fault) == (1, AuditFault("changed", 2))

    def test_an_edited_entry_with_a_hash_that_fits_it_breaks_the_next(self, store: Store, log: AuditLog):
        append(store, log, times=3)
        first = rows(store)[0]
        forged = {**rows(store)[1], "actor": "user:u_2"}
        forged["hash"] = audit_module._hash(forged, first["hash"])
        tamper(
            store, f"UPDATE continuity_audit SET actor = 'user:u_2', hash = {blob(store, forged['hash'])} WHERE seq = 2"
        )

        assert store.read(log.verify).fault == AuditFault("changed", 3)

    def test_the_same_done_to_the_last_entry_contradicts_the_head(self, store: Store, log: AuditLog):
        append(store, log, times=2)
        first, last = rows(store)
        forged = audit_module._hash({**last, "actor": "user:u_2"}, first["hash"])
        tamper(store, f"UPDATE continuity_audit SET actor = 'user:u_2', hash = {blob(store, forged)} WHERE seq = 2")

        assert store.read(log.verify).fault == AuditFault("head", 2)

    @pytest.mark.parametrize(("gone", "fault"), [(1, ("missing", 1)), (2, ("missing", 2)), (3, ("truncated", 3))])
    def test_a_deleted_entry_is_found(self, store: Store, log: AuditLog, gone: int, fault: tuple[str, int]):
        append(store, log, times=3)

        tamper(store, f"DELETE FROM continuity_audit WHERE seq = {gone}")

        assert store.read(log.verify).fault == AuditFault(*fault)

    def test_deleted_entries_with_the_rest_moved_up_are_found(self, store: Store, log: AuditLog):
        append(store, log, times=3)

        tamper(store, "DELETE FROM continuity_audit WHERE seq = 2", "UPDATE continuity_audit SET seq = 2 WHERE seq = 3")

        assert store.read(log.verify).fault == AuditFault("changed", 2)

    def test_an_inserted_entry_is_found(self, store: Store, log: AuditLog):
        append(store, log, times=2)

        tamper(
            store,
            "UPDATE continuity_audit SET seq = 3 WHERE seq = 2",
            f"INSERT INTO continuity_audit ({COLUMNS}) SELECT 2, at, action, actor, object_id, result, request_id,"
            " hash, sealed_detail FROM continuity_audit WHERE seq = 1",
        )

        assert store.read(log.verify).fault == AuditFault("changed", 2)

    @pytest.mark.parametrize(("seq", "kind"), [(0, "changed"), (-5, "changed"), (4, "surplus")])
    def test_an_entry_before_or_behind_the_chain_is_found(self, store: Store, log: AuditLog, seq: int, kind: str):
        append(store, log, times=3)
        head = store.read(log.head)

        append(store, log)
        tamper(
            store,
            f"UPDATE continuity_audit SET seq = {seq} WHERE seq = 4",
            f"UPDATE continuity_audit_head SET seq = 3, hash = {blob(store, head.hash)}",
        )

        assert store.read(log.verify).fault == AuditFault(kind, seq)

    def test_entries_that_changed_places_are_found(self, store: Store, log: AuditLog):
        append(store, log, times=3)

        tamper(
            store,
            *(f"UPDATE continuity_audit SET seq = {new} WHERE seq = {old}" for old, new in [(1, 9), (2, 1), (9, 2)]),
        )

        assert store.read(log.verify).fault == AuditFault("changed", 1)

    def test_a_missing_head_is_found(self, store: Store, log: AuditLog):
        append(store, log)

        tamper(store, "DELETE FROM continuity_audit_head")

        assert store.read(log.verify).fault == AuditFault("surplus", 1)

    def test_an_empty_log_without_head_is_found(self, store: Store, log: AuditLog):
        tamper(store, "DELETE FROM continuity_audit_head")

        assert store.read(log.verify).fault == AuditFault("head", 0)


class TestCheckpoint:
    def test_a_log_that_went_on_from_its_checkpoint_holds(self, store: Store, log: AuditLog):
        append(store, log, times=2)
        checkpoint = store.read(log.head)
        append(store, log, times=2)

        report = store.read(lambda connection: log.verify(connection, checkpoint=checkpoint))

        assert (report.entries, report.fault) == (4, None)

    def test_the_checkpoint_of_an_empty_log_holds(self, store: Store, log: AuditLog):
        checkpoint = store.read(log.head)
        append(store, log)

        assert store.read(lambda connection: log.verify(connection, checkpoint=checkpoint)).fault is None

    def test_truncation_with_a_forged_head_is_found(self, store: Store, log: AuditLog):
        append(store, log, times=3)
        checkpoint = store.read(log.head)
        second = rows(store)[1]
        tamper(
            store,
            "DELETE FROM continuity_audit WHERE seq = 3",
            f"UPDATE continuity_audit_head SET seq = 2, hash = {blob(store, second['hash'])}",
        )

        assert store.read(log.verify).fault is None
        report = store.read(lambda connection: log.verify(connection, checkpoint=checkpoint))
        assert report.fault == AuditFault("checkpoint", 3)

    def test_a_chain_written_anew_is_found(self, store: Store, log: AuditLog):
        append(store, log, times=3)
        checkpoint = store.read(log.head)
        tamper(
            store,
            "DELETE FROM continuity_audit",
            f"UPDATE continuity_audit_head SET seq = 0, hash = {blob(store, bytes(32))}",
        )
        append(store, log, replace(ENTRY, actor="user:u_2"), times=4)

        assert store.read(log.verify).fault is None
        report = store.read(lambda connection: log.verify(connection, checkpoint=checkpoint))
        assert report.fault == AuditFault("checkpoint", 3)


def test_the_head_row_is_the_only_one(store: Store):
    assert store.read(lambda connection: connection.execute(sa.select(audit_head)).all()) == [(1, 0, bytes(32))]
