"""What somebody with the database and without the key can change is found before anything is decided."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from continuity.errors import DecryptionError, IntegrityError
from continuity.services import recounting
from continuity.store import schema
from tests.integration.governed import ONE, TWO, Governed, govern

FLOWS, OPERATIONS = schema.workflows, schema.operations
HEAD_COLUMNS = [
    ("workspace_pk", 77), ("owner_pk", 77), ("enabled", False), ("ever_enabled", False), ("operation_count", 1),
    ("done_prefix", 1), ("revision", 7), ("clock_high_water", 7), ("epoch", 7), ("deleting_at", 7),
]  # fmt: skip
OPERATION_COLUMNS = [
    ("operation_id", "op_0"), ("status", "completed"), ("attempt_count", 0), ("lease_until", 7), ("change_seq", 7),
]  # fmt: skip
VAULT_COLUMNS = [
    ("epoch", 7), ("capture_mode", "metadata"), ("clock_high_water", 7), ("restored_at", 7), ("recovery_open", True),
    ("proof", bytes(32)), ("proof", None),
]  # fmt: skip
COUNTERS = [("unfinished", 0), ("retained_bytes", 0), ("reserved_bytes", 7), ("proof", bytes(32)), ("proof", None)]
DAMAGED = (DecryptionError, IntegrityError)


@pytest.fixture
def at(store, tmp_path) -> Governed:
    return govern(store, tmp_path)


def nothing_written(at: Governed, action) -> None:
    before = at.everything()
    with pytest.raises(DAMAGED):
        action()
    assert at.everything() == before


@pytest.mark.parametrize(("column", "value"), HEAD_COLUMNS)
def test_an_edited_column_of_a_workflow_stops_everything(at, column, value):
    workflow_id = at.create(operations=TWO)["workflow_id"]
    granted = at.begin(workflow_id)
    at.damage(FLOWS, FLOWS.c.workflow_id == workflow_id, **{column: value})

    if column == "deleting_at":
        with pytest.raises(DAMAGED):
            at.deletions.finish_all()
        with pytest.raises(DAMAGED):
            at.deletions.delete(at.operator, workflow_id)
        assert at.row(workflow_id).deleted_at is None
        assert at.home.vault.shred_list.length == 0
        return
    nothing_written(at, lambda: at.begin(workflow_id, "a2"))
    nothing_written(at, lambda: at.report(workflow_id, granted))
    nothing_written(at, lambda: at.renew(workflow_id, granted))
    nothing_written(at, lambda: at.abandon(workflow_id))
    nothing_written(at, lambda: at.configure(workflow_id, enabled=False))


@pytest.mark.parametrize(("column", "value"), OPERATION_COLUMNS)
def test_an_edited_column_of_an_operation_stops_everything(at, column, value):
    workflow_id = at.create()["workflow_id"]
    granted = at.begin(workflow_id)
    at.damage(OPERATIONS, **{column: value})

    nothing_written(at, lambda: at.begin(workflow_id, "a2"))
    nothing_written(at, lambda: at.report(workflow_id, granted))
    nothing_written(at, lambda: at.renew(workflow_id, granted))
    nothing_written(at, lambda: at.abandon(workflow_id))


def test_an_older_row_of_an_operation_put_back_is_found(at):
    workflow_id = at.create()["workflow_id"]
    old = at.home.rows(OPERATIONS)[0]._mapping
    at.report(workflow_id, at.begin(workflow_id))
    at.damage(OPERATIONS, **{name: old[name] for name in ("status", "attempt_count", "change_seq", "sealed_state")})

    nothing_written(at, lambda: at.begin(workflow_id, "a2"))


def test_an_older_head_put_back_is_found(at):
    workflow_id = at.create()["workflow_id"]
    old = at.row(workflow_id)._mapping
    at.report(workflow_id, at.begin(workflow_id))
    at.damage(FLOWS, **{name: old[name] for name in old if name not in {"workflow_pk", "workflow_id"}})

    nothing_written(at, lambda: at.begin(workflow_id, "a2"))


def test_names_of_operations_that_were_swapped_are_found(at):
    workflow_id = at.create(operations=TWO)["workflow_id"]
    names = [row.name_ix for row in at.home.rows(OPERATIONS)]
    for ordinal, value in [(0, b"x"), (1, names[0]), (0, names[1])]:
        at.damage(OPERATIONS, OPERATIONS.c.ordinal == ordinal, name_ix=value)

    nothing_written(at, lambda: at.begin(workflow_id, name="announce"))
    nothing_written(at, lambda: at.abandon(workflow_id, "publish"))


def test_keys_of_workflows_that_were_swapped_are_found(at):
    ids = [at.create(key)["workflow_id"] for key in ("first", "second")]
    keys = [at.row(workflow_id).key_ix for workflow_id in ids]
    for workflow_id, value in [(ids[0], b"x"), (ids[1], keys[0]), (ids[0], keys[1])]:
        at.damage(FLOWS, FLOWS.c.workflow_id == workflow_id, key_ix=value)

    nothing_written(at, lambda: at.create("first", begin={"name": "publish", "run_id": "r", "attempt_id": "a"}))


def test_the_mark_of_a_definition_that_was_changed_is_found(at):
    at.create("first")
    at.create("second", TWO)
    other = next(row.definition_ix for row in at.home.rows(FLOWS) if row.operation_count == 2)
    at.damage(FLOWS, definition_ix=other)

    nothing_written(at, lambda: at.create("first", TWO))
    nothing_written(at, lambda: at.create("first", ONE))


def test_sealed_values_that_were_swapped_do_not_open(at):
    ids = [at.create()["workflow_id"] for _ in range(2)]
    heads = [at.row(workflow_id).sealed_head for workflow_id in ids]
    for workflow_id, head in zip(ids, heads[::-1], strict=True):
        at.damage(FLOWS, FLOWS.c.workflow_id == workflow_id, sealed_head=head)

    nothing_written(at, lambda: at.begin(ids[0]))


def test_a_saved_receipt_that_was_taken_away_is_never_answered_as_null(at):
    workflow_id = at.finished()
    at.store.write(lambda c: c.execute(sa.delete(schema.receipts)).rowcount)

    nothing_written(at, lambda: at.begin(workflow_id, "a2"))


@pytest.mark.parametrize(("column", "value"), VAULT_COLUMNS)
def test_an_edited_column_of_the_vault_stops_everything(at, column, value):
    workflow_id = at.create()["workflow_id"]
    granted = at.begin(workflow_id)
    at.damage(schema.vault, **{column: value})

    nothing_written(at, lambda: at.begin(workflow_id, "a2"))
    nothing_written(at, lambda: at.report(workflow_id, granted))
    nothing_written(at, lambda: at.renew(workflow_id, granted))
    nothing_written(at, lambda: at.abandon(workflow_id))
    nothing_written(at, lambda: at.configure(workflow_id, enabled=False))
    nothing_written(at, at.create)
    nothing_written(at, lambda: at.view(workflow_id))
    nothing_written(at, lambda: at.deletions.delete(at.operator, workflow_id))
    nothing_written(at, lambda: at.sweeper.raise_mark(at.clock.now_us() + 1_000_000))


def test_a_vault_that_was_closed_by_an_edit_of_its_row_is_not_opened_by_another(at):
    workflow_id = at.create()["workflow_id"]
    at.home.set_vault(state="locked")
    at.damage(schema.vault, state="open")

    nothing_written(at, lambda: at.begin(workflow_id))


def test_the_proof_of_the_vault_follows_its_mark(at):
    workflow_id = at.create()["workflow_id"]
    for _ in range(3):
        at.clock.advance(10)
        at.sweeper.raise_mark(at.clock.now_us())
        assert at.home.rows(schema.vault)[0].clock_high_water == at.clock.now_us()
    at.sweeper.raise_mark(1)
    assert at.home.rows(schema.vault)[0].clock_high_water == at.clock.now_us()

    assert at.begin(workflow_id)["action"] == "execute"


@pytest.mark.parametrize(("column", "value"), COUNTERS)
def test_edited_counters_admit_no_work_of_their_coordinator_and_stop_no_others(at, column, value):
    agent, other = at.coordinator(), at.coordinator("other")
    workflow_id = at.create(by=agent)["workflow_id"]
    granted = at.begin(workflow_id, by=agent)
    mine = schema.owners.c.owner_pk == agent.owner_pk
    at.damage(schema.owners, mine, **{column: value})

    nothing_written(at, lambda: at.create(by=agent))
    nothing_written(at, lambda: at.begin(workflow_id, "a2", by=agent))
    nothing_written(at, lambda: at.report(workflow_id, granted, by=agent))
    assert [finding.object_id for finding in at.checker.check()][-1] == f"owner:{agent.owner_pk}"
    assert at.finished(by=other)
    assert at.finished()


def test_an_upgrade_proves_what_is_sealed_and_not_what_forged_counters_say(at):
    agent, other = at.coordinator(), at.coordinator("other")
    at.finished(by=agent)
    at.begin(at.create(by=agent)["workflow_id"], by=agent)
    at.finished(by=other)
    forgotten = at.finished(by=other)
    at.deletions.delete(at.operator, forgotten)
    true = at.home.rows(schema.owners)
    assert {row.unfinished for row in true if row.owner_pk == agent.owner_pk} == {1}
    at.damage(schema.owners, unfinished=0, retained_bytes=5, reserved_bytes=0, proof=None)
    at.damage(FLOWS, FLOWS.c.deleted_at.is_(None), retained_bytes=0, reserved_bytes=0, phase="done")

    at.home.store.write(lambda connection: recounting.prove_all(connection, at.home.vault))

    coordinators = {agent.owner_pk, other.owner_pk}
    assert [row for row in at.home.rows(schema.owners) if row.owner_pk in coordinators] == [
        row for row in true if row.owner_pk in coordinators
    ]
    assert at.create(by=agent)


def test_an_upgrade_counts_a_workflow_that_does_not_open_with_what_lies_there(at):
    agent = at.coordinator()
    workflow_id = at.finished(by=agent)
    (true,) = (row for row in at.home.rows(schema.owners) if row.owner_pk == agent.owner_pk)
    at.damage(FLOWS, FLOWS.c.workflow_id == workflow_id, revision=7, retained_bytes=0)
    at.damage(schema.owners, retained_bytes=0, proof=None)

    at.home.store.write(lambda connection: recounting.prove_all(connection, at.home.vault))

    (now,) = (row for row in at.home.rows(schema.owners) if row.owner_pk == agent.owner_pk)
    assert (now.retained_bytes, now.unfinished) == (true.retained_bytes, 1)


def test_counters_of_one_coordinator_are_not_those_of_another(at):
    agent, other = at.coordinator(), at.coordinator("other")
    at.create(by=agent)
    rows = {row.owner_pk: row._mapping for row in at.home.rows(schema.owners)}
    copied = {name: rows[other.owner_pk][name] for name in ("unfinished", "retained_bytes", "reserved_bytes", "proof")}
    at.damage(schema.owners, schema.owners.c.owner_pk == agent.owner_pk, **copied)

    nothing_written(at, lambda: at.create(by=agent))


@pytest.mark.parametrize("column", ["retained_bytes", "reserved_bytes"])
def test_a_deletion_gives_back_what_was_stored_whatever_the_row_says(at, column):
    agent = at.coordinator()
    kept = at.finished(by=agent)
    workflow_id = at.finished(by=agent)
    at.damage(FLOWS, FLOWS.c.workflow_id == workflow_id, **{column: 10_000_000})

    at.deletions.delete(at.operator, workflow_id)

    row, owner = at.row(kept), next(r for r in at.home.rows(schema.owners) if r.owner_pk == agent.owner_pk)
    assert (owner.retained_bytes, owner.reserved_bytes) == (row.retained_bytes, row.reserved_bytes)
    assert at.checker.check() == []


def test_a_deletion_that_has_begun_is_finished_though_counters_were_forged_since(at, monkeypatch):
    agent = at.coordinator()
    workflow_id = at.finished(by=agent)

    def forge_and_shred(_vault, *arguments, **named):
        at.damage(schema.owners, schema.owners.c.owner_pk == agent.owner_pk, retained_bytes=1)
        return shred(*arguments, **named)

    shred = at.home.vault.shred
    monkeypatch.setattr(type(at.home.vault), "shred", forge_and_shred)
    at.deletions.delete(at.operator, workflow_id)

    assert at.row(workflow_id).sealed_head is None
    assert [finding.object_id for finding in at.checker.check()] == [f"owner:{agent.owner_pk}"] * 2
    nothing_written(at, lambda: at.create(by=agent))
