"""Deleting evidence: each step interrupted, done twice, done by two, forged; and what a restore brings back."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from continuity.errors import ConflictError, ForbiddenError, IntegrityError, NotFoundError, VaultError
from continuity.services.callers import CallerKind, Role
from continuity.store import evidence as statements
from continuity.store import schema
from tests.integration.recorded import Recorded, recorded
from tests.integration.test_services_creating import together

CONTENT = (schema.evidence, schema.evidence_contents, schema.evidence_terms)


class Crash(Exception):
    """The process died."""


@pytest.fixture
def at(store, tmp_path) -> Recorded:
    return recorded(store, tmp_path)


def crash(*_arguments, **_named):
    raise Crash


def assert_is_gone(at: Recorded, evidence_id: str, *, is_buried: bool = True) -> None:
    row = next(row for row in at.at.home.rows(schema.evidence_runs) if row.evidence_id == evidence_id)
    assert (row.sealed_head, row.record_count, row.retained_bytes, row.deleting_at) == (None, 0, 0, None)
    assert row.deleted_at is not None
    assert (row.sealed_tombstone is not None) == is_buried
    pks = {row.run_pk}
    assert not [each for each in at.at.home.rows(schema.evidence) if each.run_pk in pks]
    key = next(each for each in at.at.home.rows(schema.partitions) if each.partition_id == evidence_id)
    assert key.wrapped_key is None
    assert at.at.home.vault.has_shredded(evidence_id)
    vault = at.at.home.rows(schema.vault)[0]
    head = at.at.home.vault.shred_list.head
    assert (vault.shred_length, vault.shred_head) == (head.length, head.head)
    for call in (lambda: at.read(evidence_id), lambda: at.deletions.delete(at.administrator, evidence_id)):
        with pytest.raises(ConflictError) as caught:
            call()
        assert caught.value.code == "evidence_deleted"


def test_a_deletion_leaves_a_tombstone_and_the_name_is_never_free_again(at):
    at.several(3)
    at.several(1, run="other")
    evidence_id = at.read()["evidence_id"]

    counts = at.deletions.delete(at.administrator, "run-1")

    assert counts == {"runs": 1, "records": 3, "contents": 3}
    assert_is_gone(at, evidence_id)
    with pytest.raises(ConflictError) as caught:
        at.record(event_id="late")
    assert caught.value.code == "evidence_deleted"
    assert at.found(search="common") == ["other-0"]
    assert [run["run_id"] for run in at.listed_runs()] == ["other"]
    assert at.read("other")["is_whole"]
    pks = {row.evidence_pk for row in at.at.home.rows(schema.evidence)}
    assert {row.evidence_pk for row in at.at.home.rows(schema.evidence_terms)} == pks
    assert [action for action, _ in at.at.home.actions()] == ["evidence.deletion_begun", "evidence.deleted"]


def test_administrators_alone_delete_evidence(at):
    at.several(1)

    for caller in (at.operator, at.investigator, at.at.person):
        with pytest.raises(ForbiddenError):
            at.deletions.delete(caller, "run-1")
    for caller in (at.elsewhere(), at.elsewhere(CallerKind.PERSON, Role.ADMINISTRATOR)):
        with pytest.raises(NotFoundError):
            at.deletions.delete(caller, "run-1")
    assert at.read()["is_whole"]


@pytest.mark.parametrize("step", ["before the list", "after the list", "between two batches", "inside the last"])
def test_an_interrupted_deletion_is_finished(at, monkeypatch, step):
    monkeypatch.setattr(statements, "DESTROYED_AT_ONCE", 2)
    at.several(5)
    evidence_id = at.read()["evidence_id"]
    vault = type(at.at.home.vault)
    shred, destroy_some, batches = vault.shred, statements.destroy_some, []

    def shred_and_crash(*arguments, **named):
        shred(*arguments, **named)
        raise Crash

    def destroy_once(*arguments):
        if batches:
            raise Crash
        batches.append(1)
        return destroy_some(*arguments)

    where = {
        "before the list": (vault, "shred", crash),
        "after the list": (vault, "shred", shred_and_crash),
        "between two batches": (statements, "destroy_some", destroy_once),
        "inside the last": (statements, "entomb", crash),
    }[step]
    with monkeypatch.context() as patch:
        patch.setattr(*where)
        with pytest.raises(Crash):
            at.deletions.delete(at.administrator, "run-1")
    for call in (lambda: at.read(evidence_id), lambda: at.record(event_id="late")):
        with pytest.raises(ConflictError):
            call()
    assert at.found() == []
    assert at.listed_runs() == []

    assert at.deletions.finish_all() == 1
    assert at.deletions.finish_all() == 0
    assert_is_gone(at, evidence_id)


def test_a_deletion_by_many_at_once_is_one(at):
    at.several(3)
    evidence_id = at.read()["evidence_id"]

    answers = together(*[lambda: at.deletions.delete(at.administrator, evidence_id)] * 4)

    assert all(isinstance(answer, dict | ConflictError) for answer in answers)
    assert any(isinstance(answer, dict) for answer in answers)
    assert_is_gone(at, evidence_id)
    assert [action for action, _ in at.at.home.actions()].count("evidence.deleted") == 1


def test_a_record_against_a_deletion_is_kept_whole_or_refused(at):
    at.several(1)
    evidence_id = at.read()["evidence_id"]

    together(
        lambda: at.deletions.delete(at.administrator, evidence_id),
        *[lambda number=number: at.record(event_id=f"late-{number}") for number in range(4)],
    )

    at.deletions.finish_all()
    assert_is_gone(at, evidence_id)
    assert not any(at.at.home.rows(table) for table in CONTENT)


def test_a_column_that_says_deleting_deletes_nothing(at):
    at.several(2)
    at.at.damage(schema.evidence_runs, deleting_at=1)

    with pytest.raises(IntegrityError):
        at.deletions.finish_all()

    assert not at.at.home.vault.has_shredded(at.at.home.rows(schema.evidence_runs)[0].evidence_id)
    at.at.damage(schema.evidence_runs, deleting_at=None)
    assert at.read()["is_whole"]


def test_a_damaged_deletion_does_not_keep_the_others(at, monkeypatch):
    at.several(1, run="one")
    at.several(1, run="two")
    with monkeypatch.context() as patch:
        patch.setattr(type(at.at.home.vault), "shred", crash)
        for run in ("one", "two"):
            with pytest.raises(Crash):
                at.deletions.delete(at.administrator, run)
    first = at.at.home.rows(schema.evidence_runs)[0].evidence_id
    at.at.damage(schema.evidence_runs, schema.evidence_runs.c.evidence_id == first, sealed_head=b"damaged")

    with pytest.raises(VaultError):
        at.deletions.finish_all()

    ends = {row.evidence_id: row.deleted_at is not None for row in at.at.home.rows(schema.evidence_runs)}
    assert list(ends.values()) == [False, True]


def test_what_a_restore_brings_back_is_destroyed_again(at):
    at.several(3)
    evidence_id = at.read()["evidence_id"]
    before = {table: at.at.home.rows(table) for table in (*CONTENT, schema.evidence_runs, schema.partitions)}
    at.deletions.delete(at.administrator, evidence_id)

    def restore(connection: sa.Connection) -> None:
        for table, rows in before.items():
            connection.execute(sa.delete(table))
            connection.execute(sa.insert(table), [row._asdict() for row in rows])

    at.at.store.write(restore)
    with pytest.raises(ConflictError):
        at.read(evidence_id)

    at.deletions.reapply(evidence_id)

    assert_is_gone(at, evidence_id, is_buried=False)


def test_nothing_that_was_not_deleted_is_destroyed_again(at):
    at.several(1)

    with pytest.raises(IntegrityError):
        at.deletions.reapply(at.read()["evidence_id"])
    assert at.read()["is_whole"]
