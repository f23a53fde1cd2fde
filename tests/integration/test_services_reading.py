"""Views and reviews while work goes on, and what phase they show."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from continuity.errors import DecryptionError, IntegrityError
from continuity.store import schema
from continuity.wire import ConfirmRequest
from tests.integration.governed import ONE, TWO, Governed, govern
from tests.patience import PATIENCE_S


@pytest.fixture
def at(store, tmp_path) -> Governed:
    return govern(store, tmp_path)


class Between:
    """Does something once, between two statements of somebody else's transaction."""

    def __init__(self, engine, table, action):
        self._table, self._action, self.done = table, action, False
        sa.event.listen(engine, "before_cursor_execute", self)

    def __call__(self, connection, cursor, statement, parameters, context, executemany):
        if not self.done and f"FROM {self._table} " in statement.replace("\n", " ") + " ":
            self.done = True
            self._action()


@pytest.mark.parametrize("look", ["view", "review"])
def test_a_person_sees_one_state_while_a_worker_goes_on(postgresql_store, tmp_path, look):
    # On SQLite nobody else writes meanwhile.
    at = govern(postgresql_store, tmp_path)
    workflow_id = at.create()["workflow_id"]
    granted = []

    def go_on():
        def begin():
            granted.append(at.begin(workflow_id))

        thread = threading.Thread(target=begin)
        thread.start()
        thread.join(PATIENCE_S)
        threads.append(thread)

    threads = []
    between = Between(postgresql_store.engine, "continuity_operations", go_on)
    service = at.workflows.view if look == "view" else at.reviewing.review

    shown = service(at.person, workflow_id)

    threads[0].join()
    assert between.done
    assert shown["operations"][0]["status"] == "pending"
    assert granted[0]["action"] == "execute"


def test_a_renewed_lease_is_shown_as_running(at):
    workflow_id = at.create()["workflow_id"]
    granted = at.begin(workflow_id)
    at.clock.advance(100)
    at.renew(workflow_id, granted)
    at.clock.advance(60)

    assert at.view(workflow_id)["phase"] == "running"
    assert at.page()["workflows"][0]["phase"] == "running"
    assert at.reviewing.review(at.person, workflow_id)["phase"] == "running"

    at.clock.advance(61)
    assert at.view(workflow_id)["phase"] == "decision"


def test_one_damaged_workflow_does_not_hide_the_others(at):
    ids = [at.create()["workflow_id"] for _ in range(3)]
    at.damage(schema.workflows, schema.workflows.c.workflow_id == ids[1], sealed_head=b"not sealed by us")

    found = at.page()["workflows"]

    assert [each["workflow_id"] for each in found] == ids[::-1]
    assert [each.get("unreadable", False) for each in found] == [False, True, False]
    assert found[1]["phase"] == "ready"


@pytest.mark.parametrize("table", [schema.operations, schema.definitions])
def test_a_row_that_was_taken_away_is_damage(at, table):
    workflow_id = at.create(operations=TWO)["workflow_id"]
    at.store.write(lambda c: c.execute(sa.delete(table).where(table.c.ordinal == 1)).rowcount)

    with pytest.raises(IntegrityError):
        at.view(workflow_id)


def test_a_definition_that_was_taken_away_stops_its_begin(at):
    workflow_id = at.create(operations=ONE)["workflow_id"]
    at.store.write(lambda c: c.execute(sa.delete(schema.definitions)).rowcount)

    with pytest.raises(IntegrityError):
        at.begin(workflow_id)


def test_a_key_that_was_taken_away_is_damage_not_deletion(at):
    workflow_id = at.create()["workflow_id"]
    at.damage(schema.partitions, schema.partitions.c.partition_id == workflow_id, wrapped_key=None)

    with pytest.raises(DecryptionError):
        at.begin(workflow_id)


CONFIRMED = ConfirmRequest.from_json({
    "name": "publish", "happened": True, "revision": 2, "late_receipts": 0, "reason": "seen",
    "receipt": {"effect_id": "e-9", "result": None},
})  # fmt: skip
LOOKS = {
    "configure": lambda at, workflow_id: at.configure(workflow_id, enabled=False),
    "abandon": lambda at, workflow_id: at.abandon(workflow_id),
    "confirm": lambda at, workflow_id: at.controls.confirm(at.person, workflow_id, CONFIRMED),
    "create again": lambda at, _workflow_id: at.create("one"),
    "view": lambda at, workflow_id: at.view(workflow_id, by=at.person),
    "review": lambda at, workflow_id: at.reviewing.review(at.person, workflow_id),
}


@pytest.mark.parametrize("look", LOOKS)
def test_nobody_who_writes_waits_for_a_view(sqlite_store, tmp_path, look):
    # A view opens all receipts and late ones: on SQLite nobody else could begin meanwhile.
    at = govern(sqlite_store, tmp_path)
    workflow_id, other = (at.create(key)["workflow_id"] for key in ("one", "two"))
    at.begin(workflow_id)
    at.clock.advance(300)
    threads, heard = [], []

    def begin_other():
        thread = threading.Thread(target=lambda: heard.append(at.begin(other)["action"]))
        thread.start()
        thread.join(PATIENCE_S)
        heard.append("the view was read")
        threads.append(thread)

    between = Between(sqlite_store.engine, "continuity_receipts", begin_other)
    shown = LOOKS[look](at, workflow_id)
    threads[0].join()

    assert between.done
    assert heard == ["execute", "the view was read"]
    assert shown["workflow_id"] == workflow_id
