"""The sweeper and the checker: what moves by itself, and what is found when something was changed."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from continuity.decisions.phases import Phase
from continuity.services.sweeping import BATCH
from continuity.store import schema
from tests.integration.governed import TWO, Governed, govern

FLOWS = schema.workflows


@pytest.fixture
def at(store, tmp_path) -> Governed:
    return govern(store, tmp_path)


def test_a_lease_that_ran_out_moves_the_stored_phase(at):
    workflow_id = at.create()["workflow_id"]
    at.begin(workflow_id)
    assert at.sweeper.sweep() == 0
    at.clock.advance(121)

    assert at.listed(phase=Phase.RUNNING) == [workflow_id]
    assert at.sweeper.sweep() == 1
    assert at.sweeper.sweep() == 0
    assert (at.row(workflow_id).phase, at.row(workflow_id).phase_due_at) == ("decision", None)


def test_a_renewed_lease_is_not_moved(at):
    workflow_id = at.create()["workflow_id"]
    granted = at.begin(workflow_id)
    at.clock.advance(100)
    at.renew(workflow_id, granted)
    at.clock.advance(60)

    at.sweeper.sweep()
    assert at.row(workflow_id).phase == "running"
    at.clock.advance(61)
    at.sweeper.sweep()
    assert at.row(workflow_id).phase == "decision"


def test_damaged_workflows_do_not_stop_the_sweeper(at):
    ids = [at.create()["workflow_id"] for _ in range(3)]
    for workflow_id in ids:
        at.begin(workflow_id)
        at.clock.advance(1)
    at.damage(FLOWS, FLOWS.c.workflow_id == ids[0], sealed_head=b"damaged")
    at.clock.advance(200)

    assert at.sweeper.sweep() == 3
    assert at.sweeper.sweep() == 0
    assert {at.row(workflow_id).phase for workflow_id in ids} == {"decision"}
    assert BATCH > 3


def test_a_locked_vault_is_swept_when_it_opens(at):
    workflow_id = at.create()["workflow_id"]
    at.begin(workflow_id)
    at.clock.advance(200)
    at.home.set_vault(state="locked")
    assert at.sweeper.sweep() == 0
    at.home.set_vault(state="open")
    assert at.sweeper.sweep() == 1


@pytest.mark.parametrize(("table", "values"), [
    (schema.events, {"sealed_event": b"x" * 60}),
    (schema.events, {"at": 7}),
    (schema.receipts, {"sealed_receipt": None}),
    (schema.definitions, {"sealed_definition": None}),
    (schema.operations, {"status": "refused"}),
    (schema.operations, {"name_ix": b"x" * 32}),
    (FLOWS, {"key_ix": b"x" * 32}),
    (FLOWS, {"definition_ix": b"x" * 32}),
    (FLOWS, {"retained_bytes": 7}),
    (FLOWS, {"reserved_bytes": 7}),
    (FLOWS, {"sealed_head": b"x" * 60}),
    (FLOWS, {"enabled": False}),
    (schema.partitions, {"wrapped_key": None}),
    (schema.owners, {"unfinished": 7}),
    (schema.owners, {"retained_bytes": 7}),
    (schema.owners, {"reserved_bytes": 7}),
], ids=str)  # fmt: skip
def test_each_kind_of_damage_is_found(at, table, values):
    agent = at.coordinator()
    at.finished(by=agent)
    assert at.checker.check() == []

    for name, value in values.items():
        # Of the same length: only opening it can tell.
        stored = getattr(at.home.rows(table)[0], name)
        values = {name: bytes(reversed(stored)) if value is None and name != "wrapped_key" else value}
    at.damage(table, **values)

    assert at.checker.check()


@pytest.mark.parametrize("table", [schema.events, schema.receipts, schema.definitions, schema.operations])
def test_a_row_that_is_gone_is_found(at, table):
    at.finished()
    at.create(operations=TWO)
    at.store.write(lambda c: c.execute(sa.delete(table)).rowcount)

    assert at.checker.check()


def test_late_and_unfinished_work_is_counted_right(at):
    agent = at.coordinator()
    workflow_id = at.create(by=agent)["workflow_id"]
    first = at.begin(workflow_id, by=agent)
    at.clock.advance(300)
    at.confirm(workflow_id, happened=False)
    second = at.begin(workflow_id, "a2", by=agent)
    at.report(workflow_id, first, by=agent)
    at.report(workflow_id, first, "unknown", by=agent)
    assert at.checker.check() == []

    at.clock.advance(300)
    at.confirm(workflow_id, happened=True)
    at.report(workflow_id, second, by=agent)
    assert at.checker.check() == []
