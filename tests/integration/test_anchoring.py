"""An older database put back is found by what is kept beside the key, and one that went on is not."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from continuity.services.anchoring import Anchoring
from continuity.services.audit import AuditEntry
from continuity.services.sweeping import Sweeper
from continuity.store import schema
from continuity.vault import AnchorFile
from tests.integration.governed import Governed, govern
from tests.integration.tampering import past_triggers, tamper


@pytest.fixture
def at(store, tmp_path) -> Governed:
    return govern(store, tmp_path)


@pytest.fixture
def anchoring(at, tmp_path) -> Anchoring:
    return Anchoring(at.store, AnchorFile(tmp_path / "shred.list.anchor"))


def append(at: Governed, actor: str = "user:u_1") -> None:
    entry = AuditEntry(action="user.sign_in", actor=actor, result="done")
    at.store.write(lambda connection: at.home.audit.append(connection, entry, now_us=at.clock.now_us()))


def everything(at: Governed) -> dict[sa.Table, list[dict]]:
    return {table: [dict(row._mapping) for row in at.home.rows(table)] for table in schema.metadata.sorted_tables}


def put_back(at: Governed, before: dict[sa.Table, list[dict]]) -> None:
    def work(connection: sa.Connection) -> None:
        for table, rows in before.items():
            connection.execute(sa.delete(table))
            if rows:
                connection.execute(sa.insert(table), rows)

    past_triggers(at.store, work)


def raise_mark(at: Governed) -> None:
    Sweeper(at.store, at.ledger).raise_mark(at.clock.now_us())


def test_a_database_without_an_anchor_is_taken_as_it_is_and_anchored(at, anchoring):
    append(at)

    assert anchoring.compare() is None
    assert anchoring.keep() is None
    assert anchoring.file.read().seq == at.store.read(at.home.audit.head).seq


def test_a_database_that_went_on_is_the_same_one(at, anchoring):
    append(at)
    anchoring.keep()
    kept = anchoring.file.read()
    append(at)
    at.finished()

    assert anchoring.compare() is None
    anchoring.keep()
    assert anchoring.file.read().seq > kept.seq


def test_nothing_is_written_while_nothing_happens(at, anchoring):
    append(at)
    anchoring.keep()
    before = anchoring.file.path.stat().st_mtime_ns, anchoring.file.path.read_bytes()

    anchoring.keep()

    assert (anchoring.file.path.stat().st_mtime_ns, anchoring.file.path.read_bytes()) == before


def test_an_older_database_is_found_by_its_log(at, anchoring):
    append(at)
    before = everything(at)
    append(at)
    anchoring.keep()

    put_back(at, before)

    assert anchoring.compare().kind == "older"
    kept = anchoring.file.read()
    assert "audit log ends with entry" in anchoring.keep().problem
    assert anchoring.file.read() == kept


def test_it_is_found_after_it_has_grown_past_the_anchor_again(at, anchoring):
    append(at)
    before = everything(at)
    append(at)
    anchoring.keep()
    put_back(at, before)

    append(at, actor="user:u_2")
    append(at, actor="user:u_2")

    assert anchoring.compare().kind == "rewritten"


def test_lost_begins_are_found_though_they_leave_no_entry(at, anchoring):
    workflow_id = at.finished()
    raise_mark(at)
    anchoring.keep()
    before = everything(at)
    at.clock.advance(90)
    seq = at.store.read(at.home.audit.head).seq
    other = at.create()["workflow_id"]
    at.begin(other)
    raise_mark(at)
    anchoring.keep()
    # Creating and beginning have written nothing into the log.
    assert at.store.read(at.home.audit.head).seq == seq

    put_back(at, before)

    fault = anchoring.compare()
    assert (fault.kind, "90 seconds older" in fault.problem) == ("older", True)
    assert at.view(workflow_id)["workflow_id"] == workflow_id


def test_a_restore_that_was_meant_is_anchored_anew(at, anchoring):
    append(at)
    before = everything(at)
    append(at)
    anchoring.keep()
    put_back(at, before)

    tamper(at.store, "UPDATE continuity_vault SET epoch = 2")

    assert anchoring.compare() is None
    anchoring.keep()
    assert anchoring.file.read().epoch == 2


def test_an_earlier_epoch_is_found(at, anchoring):
    append(at)
    before = everything(at)
    tamper(at.store, "UPDATE continuity_vault SET epoch = 2")
    anchoring.keep()
    append(at)

    put_back(at, before)

    assert anchoring.compare().kind == "older"


def test_a_database_that_lost_its_vault_is_found(at, anchoring):
    anchoring.keep()

    tamper(at.store, "DELETE FROM continuity_vault")

    assert anchoring.compare().kind == "older"


def test_a_head_that_somebody_removed_is_no_further_than_the_anchor(at, anchoring):
    append(at)
    anchoring.keep()

    tamper(at.store, "DELETE FROM continuity_audit_head")

    assert anchoring.compare().kind == "older"
