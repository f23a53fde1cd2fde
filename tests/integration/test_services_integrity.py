"""What somebody with the database and without the key can change is found before anything is decided."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from continuity.errors import DecryptionError, IntegrityError
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
