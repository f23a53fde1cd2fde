"""Deleting workflows: each step interrupted, done twice, done by two, done to what is damaged."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from continuity.errors import ConflictError, NotFoundError, VaultError
from continuity.services import deletion
from continuity.services.callers import CallerKind
from continuity.store import deletion as statements
from continuity.store import schema
from tests.integration.governed import Governed, govern, process_of
from tests.people import Role

CONTENT = (schema.operations, schema.definitions, schema.receipts, schema.events, schema.terms)


class Crash(Exception):
    """The process died."""


@pytest.fixture
def at(store, tmp_path) -> Governed:
    return govern(store, tmp_path)


def crash(*_arguments, **_named):
    raise Crash


def assert_is_gone(at: Governed, workflow_id: str, key: str) -> None:
    row = at.row(workflow_id)
    assert (row.phase, row.sealed_head, row.retained_bytes, row.reserved_bytes) == ("deleted", None, 0, 0)
    assert row.deleted_at is not None
    assert row.sealed_tombstone is not None
    assert not any(at.home.rows(table) for table in CONTENT)
    assert [each.wrapped_key for each in at.home.rows(schema.partitions) if each.partition_id == workflow_id] == [None]
    vault = at.home.rows(schema.vault)[0]
    assert (vault.shred_length, vault.shred_head) == (
        at.home.vault.shred_list.head.length,
        at.home.vault.shred_list.head.head,
    )
    for call in (lambda: at.create(key), lambda: at.view(workflow_id), lambda: at.begin(workflow_id)):
        with pytest.raises(ConflictError) as refused:
            call()
        assert refused.value.code == "workflow_deleted"
    assert at.listed() == []
    assert at.checker.check() == []


def test_a_deletion_leaves_a_tombstone_and_its_key_is_never_free_again(at):
    workflow_id = at.finished("one")

    counts = at.deletions.delete(at.operator, workflow_id)

    assert counts["workflows"] == counts["operations"] == counts["definitions"] == counts["receipts"] == 1
    assert at.revoked == [at.row(workflow_id).workflow_pk]
    assert_is_gone(at, workflow_id, "one")
    with pytest.raises(NotFoundError):
        at.view(workflow_id, by=at.coordinator("stranger"))


@pytest.mark.parametrize("step", ["before the list", "after the list", "inside the last"])
def test_an_interrupted_deletion_is_finished(at, monkeypatch, step):
    workflow_id = at.finished("one")
    shred = at.home.vault.shred

    def shred_and_crash(*arguments, **named):
        shred(*arguments, **named)
        raise Crash

    where = {
        "before the list": (type(at.home.vault), "shred", crash),
        "after the list": (type(at.home.vault), "shred", shred_and_crash),
        "inside the last": (statements, "entomb", crash),
    }[step]
    with monkeypatch.context() as patch:
        patch.setattr(
            *where[:2], where[2] if step != "after the list" else lambda _self, *a, **n: shred_and_crash(*a, **n)
        )
        with pytest.raises(Crash):
            at.deletions.delete(at.person, workflow_id)
    assert at.listed() == []

    assert process_of(at.home).deletions.finish_all() == 1
    assert process_of(at.home).deletions.finish_all() == 0
    assert_is_gone(at, workflow_id, "one")
    assert [action for action, _ in at.home.actions() if action.startswith("workflow.delet")] == [
        "workflow.deletion_begun", "workflow.deleted",
    ]  # fmt: skip
    begun = next(row for row in at.home.rows(schema.audit) if row.action == "workflow.deletion_begun")
    assert (begun.actor, begun.object_id) == (at.person.actor, workflow_id)


def test_who_deletes_is_answered_though_housekeeping_was_quicker(at, monkeypatch):
    workflow_id = at.finished("one")
    other = process_of(at.home)
    finish = type(at.deletions)._finish

    def quicker(self, *arguments, **named):
        if self is at.deletions:
            other.deletions.finish_all()
        return finish(self, *arguments, **named)

    monkeypatch.setattr(type(at.deletions), "_finish", quicker)

    assert at.deletions.delete(at.operator, workflow_id) == {"workflows": 1}
    assert_is_gone(at, workflow_id, "one")


def overtake(at: Governed, monkeypatch, other) -> None:
    """Let `other` happen once, when the list beside the key is asked next: after the row was read."""
    shred_list, todo = type(at.home.vault.shred_list), [other]
    contains = shred_list.contains

    def asked(self, index):
        found = contains(self, index)
        if todo:
            todo.pop()()
            # Who is asked before the row is opened and again when it is, is told what is true then.
            return found if other.is_between_looks else contains(self, index)
        return found

    monkeypatch.setattr(shred_list, "contains", asked)


class Deleting:
    """Another process that deletes, or finishes a deletion that has begun."""

    def __init__(self, at: Governed, workflow_id: str, *, is_between_looks: bool = False) -> None:
        self.process, self.workflow_id, self.is_between_looks = process_of(at.home), workflow_id, is_between_looks

    def __call__(self) -> None:
        if self.is_between_looks:
            assert self.process.deletions.finish_all() == 1
        else:
            self.process.deletions.delete(self.process.operator, self.workflow_id)


def test_whoever_is_overtaken_by_another_who_destroys_the_key_finds_it_deleted(at, monkeypatch):
    workflow_id = at.finished("one")
    with monkeypatch.context() as patch:
        patch.setattr(type(at.home.vault), "shred", crash)
        with pytest.raises(Crash):
            at.deletions.delete(at.operator, workflow_id)

    with monkeypatch.context() as patch:
        overtake(at, patch, Deleting(at, workflow_id, is_between_looks=True))
        assert at.deletions.finish_all() == 0

    assert_is_gone(at, workflow_id, "one")


def test_a_view_of_what_is_deleted_meanwhile_says_so(at, monkeypatch):
    workflow_id = at.finished("one")
    overtake(at, monkeypatch, Deleting(at, workflow_id))

    with pytest.raises(ConflictError) as refused:
        at.view(workflow_id)

    assert refused.value.code == "workflow_deleted"


def test_a_list_leaves_out_what_is_deleted_meanwhile(at, monkeypatch):
    kept = [at.finished("one"), at.finished("three")]
    workflow_id = at.finished("two")
    overtake(at, monkeypatch, Deleting(at, workflow_id))

    assert at.page()["workflows"] == [view for view in at.page()["workflows"] if view["workflow_id"] in kept]


def test_a_check_finds_nothing_wrong_with_what_is_deleted_meanwhile(at, monkeypatch):
    workflow_id = at.finished("one")
    overtake(at, monkeypatch, Deleting(at, workflow_id))

    assert at.checker.check() == []


def test_a_row_of_a_deleted_workflow_that_was_put_back_stays_deleted_and_is_found(at):
    workflow_id = at.finished("one")
    old = {table: at.home.rows(table) for table in (schema.workflows, schema.partitions)}
    at.deletions.delete(at.operator, workflow_id)
    for table, rows in old.items():
        row = next(each for each in rows if workflow_id in each)
        at.damage(table, *[c == row._mapping[c.name] for c in table.primary_key.columns], **row._mapping)

    for call in (lambda: at.begin(workflow_id, "a2"), lambda: at.view(workflow_id)):
        with pytest.raises(ConflictError) as refused:
            call()
        assert refused.value.code == "workflow_deleted"
    (finding,) = at.checker.check()
    assert "older database" in finding.problem


def test_two_who_delete_at_once_delete_once(at):
    workflow_id = at.finished("one")
    both = [process_of(at.home), process_of(at.home)]
    barrier, answers = threading.Barrier(2), []

    def delete(one: Governed) -> None:
        barrier.wait()
        try:
            answers.append(one.deletions.delete(one.operator, workflow_id)["workflows"])
        except ConflictError as error:
            answers.append(error.code)

    threads = [threading.Thread(target=delete, args=(one,)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 in answers
    assert set(answers) <= {1, "workflow_deleted"}
    assert_is_gone(at, workflow_id, "one")
    assert [action for action, _ in at.home.actions()].count("workflow.deleted") == 1


def test_one_that_is_damaged_does_not_keep_others_from_being_finished(at, monkeypatch):
    ids = [at.finished() for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(type(at.home.vault), "shred", crash)
        for workflow_id in ids:
            with pytest.raises(Crash):
                at.deletions.delete(at.operator, workflow_id)
    at.damage(schema.workflows, schema.workflows.c.workflow_id == ids[0], sealed_head=b"damaged")

    with pytest.raises(VaultError):
        at.deletions.finish_all()

    assert [at.row(workflow_id).deleted_at is None for workflow_id in ids] == [True, False, False]


def test_what_an_earlier_version_began_to_delete_is_finished(at, monkeypatch):
    # Its tombstones say nothing of whose the content is and how much.
    known = ("workflow_key", "workspace", "creator", "creator_role", "created")
    seal = deletion.seal_json
    mine = at.coordinator("mine")
    ids = [at.finished("one", by=mine), at.finished("two")]
    with monkeypatch.context() as patch:
        patch.setattr(type(at.home.vault), "shred", crash)
        patch.setattr(deletion, "seal_json", lambda key, value, place: seal(key, {n: value[n] for n in known}, place))
        for workflow_id in ids:
            with pytest.raises(Crash):
                at.deletions.delete(at.operator, workflow_id)

    assert at.deletions.finish_all() == 2

    assert all(at.row(workflow_id).deleted_at is not None for workflow_id in ids)
    [owner] = [row for row in at.home.rows(schema.owners) if row.owner_pk == mine.owner_pk]
    assert (owner.unfinished, owner.retained_bytes, owner.reserved_bytes) == (0, 0, 0)
    assert at.checker.check() == []


def test_a_grant_and_a_deletion_do_not_wait_for_each_other(postgresql_store, tmp_path):
    # vault, then workflow: whoever takes them the other way round waits for who took them in order.
    at = govern(postgresql_store, tmp_path)
    workflow_id = at.finished("one")
    engine = postgresql_store.engine
    outcome = []
    with engine.connect() as granting, engine.connect() as looking:
        granting.begin()
        granting.execute(sa.text("SELECT 1 FROM continuity_vault FOR SHARE"))
        thread = threading.Thread(target=lambda: outcome.append(at.deletions.delete(at.operator, workflow_id)))
        thread.start()
        thread.join(0.7)
        looking.begin()
        looking.execute(sa.text("SELECT 1 FROM continuity_workflows FOR UPDATE NOWAIT"))
        looking.rollback()
        granting.rollback()
    thread.join()
    assert outcome[0]["workflows"] == 1


def test_a_worker_of_a_deleted_workflow_is_nobody(at):
    at.home.person("ada", Role.ADMINISTRATOR)
    ada = at.home.caller("ada")
    workflow_id = at.finished("one")
    token = at.home.grant(ada, "w", role=CallerKind.WORKER.value, run_id=workflow_id)
    assert at.home.resolve(token).workflow_id == workflow_id

    at.deletions.delete(at.operator, workflow_id)

    with pytest.raises(Exception, match="valid credential"):
        at.home.resolve(token)


def test_only_what_is_finished_is_deleted(at):
    pending = at.create()["workflow_id"]
    uncertain = at.create()["workflow_id"]
    at.begin(uncertain)
    before = at.everything()

    for workflow_id in (pending, uncertain):
        with pytest.raises(ConflictError) as refused:
            at.deletions.delete(at.operator, workflow_id)
        assert refused.value.code == "workflow_unfinished"
    assert at.everything() == before

    at.abandon(pending)
    assert at.deletions.delete(at.operator, pending)["workflows"] == 1


def test_what_a_coordinator_held_is_given_back(at):
    agent = at.coordinator()
    workflow_id = at.finished("one", by=agent)
    stopped = at.create("two", by=agent)["workflow_id"]
    at.begin(stopped, by=agent)
    at.clock.advance(500)
    at.abandon(stopped)
    for each in (workflow_id, stopped):
        at.deletions.delete(at.operator, each)

    owner = next(row for row in at.home.rows(schema.owners) if row.owner_pk == agent.owner_pk)
    assert (owner.unfinished, owner.retained_bytes, owner.reserved_bytes) == (0, 0, 0)
    assert at.checker.check() == []
