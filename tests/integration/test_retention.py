"""Retention: what is old and over goes, batch by batch; what is not over stays, however old."""

from __future__ import annotations

import pytest

from continuity.errors import ForbiddenError, MalformedError
from continuity.store import schema
from tests.integration.recorded import Recorded, recorded

DAY_S = 86_400
IDEMPOTENT = (
    {"name": "publish", "tool": "t", "arguments": {}, "capability": "idempotent", "retention_seconds": 100 * DAY_S},
)
QUERIED = (
    {"name": "publish", "tool": "t", "arguments": {}, "capability": "query", "absence_final_after_seconds": 30 * DAY_S},
)


@pytest.fixture
def at(store, tmp_path) -> Recorded:
    return recorded(store, tmp_path)


def outcomes(reply: dict) -> dict[str, str]:
    return {item["name"]: item.get("because", item["outcome"]) for item in reply["items"]}


def finish(at: Recorded, key: str, operations) -> str:
    workflow_id = at.at.create(key, operations)["workflow_id"]
    at.at.report(workflow_id, at.at.begin(workflow_id))
    return workflow_id


def test_it_says_first_and_deletes_when_it_is_asked(at):
    old = at.at.finished("old")
    at.at.clock.advance(40 * DAY_S)
    young = at.at.finished("young")
    before = at.at.everything()

    reply = at.retain()
    assert outcomes(reply) == {"old": "would_delete"}
    assert (reply["applied"], reply["next_cursor"]) == (False, None)
    assert at.at.everything() == before

    assert outcomes(at.retain(apply=True)) == {"old": "deleted"}
    assert at.at.row(old).phase == "deleted"
    assert at.at.row(young).phase == "done"
    assert outcomes(at.retain(apply=True)) == {}
    assert [action for action, _ in at.at.home.actions()][-2:] == ["workflow.deletion_begun", "workflow.deleted"]


def test_work_that_is_not_over_stays_however_old(at):
    at.at.create("never-enabled", activate=False)
    at.at.create("ready")
    at.at.begin(at.at.create("uncertain")["workflow_id"])
    paused = at.at.create("paused")["workflow_id"]
    at.at.configure(paused, enabled=False)
    at.at.abandon(at.at.create("ended")["workflow_id"])
    at.at.clock.advance(400 * DAY_S)
    at.at.sweeper.sweep()

    assert outcomes(at.retain(apply=True)) == {"ended": "deleted"}
    assert len(at.at.listed()) == 4


def test_a_key_that_its_destination_still_honours_is_kept(at):
    finish(at, "keyed", IDEMPOTENT)
    finish(at, "asked", QUERIED)
    at.at.finished("plain")
    at.at.clock.advance(20 * DAY_S)
    assert outcomes(at.retain(older_than_days=7)) == {
        "keyed": "key_in_window", "asked": "absence_not_final", "plain": "would_delete",
    }  # fmt: skip

    at.at.clock.advance(20 * DAY_S)
    assert outcomes(at.retain()) == {"keyed": "key_in_window", "asked": "would_delete", "plain": "would_delete"}
    at.at.clock.advance(70 * DAY_S)
    assert set(outcomes(at.retain(apply=True)).values()) == {"deleted"}


def test_a_late_success_that_nobody_decided_about_keeps_its_workflow(at):
    workflow_id = at.at.create("late")["workflow_id"]
    first = at.at.begin(workflow_id)
    at.at.clock.advance(200)
    at.at.confirm(workflow_id, happened=True)
    at.at.report(workflow_id, first)
    at.at.clock.advance(40 * DAY_S)

    assert outcomes(at.retain(apply=True)) == {"late": "late_receipt_needs_decision"}


def test_batches_are_bounded_and_go_on_where_the_last_one_ended(at):
    for number in range(5):
        at.at.finished(f"w{number}")
    at.at.clock.advance(40 * DAY_S)

    names, cursor = [], None
    while True:
        reply = at.retain(limit=2, cursor=cursor, apply=True)
        assert len(reply["items"]) <= 2
        names += [item["name"] for item in reply["items"]]
        cursor = reply["next_cursor"]
        if cursor is None:
            break
    assert names == [f"w{number}" for number in range(5)]
    assert at.at.listed() == []


def test_what_was_touched_lately_is_young(at):
    workflow_id = at.at.create("long")["workflow_id"]
    at.at.clock.advance(40 * DAY_S)
    at.at.report(workflow_id, at.at.begin(workflow_id))

    reply = at.retain()
    assert (reply["items"], reply["younger"]) == ([], 1)


def test_what_does_not_open_is_kept_and_keeps_no_other(at):
    damaged = at.at.finished("damaged")
    at.at.finished("sound")
    at.at.clock.advance(40 * DAY_S)
    at.at.damage(schema.workflows, schema.workflows.c.workflow_id == damaged, sealed_head=b"damaged")

    assert outcomes(at.retain(apply=True)) == {"": "unreadable", "sound": "deleted"}


def test_operators_let_go_of_their_own_workspaces_workflows_and_of_no_evidence(at):
    at.at.finished("here")
    at.several(1)
    at.at.clock.advance(40 * DAY_S)
    stranger = at.elsewhere()

    assert at.retain(by=stranger, apply=True)["items"] == []
    for caller in (at.operator, at.at.person, stranger):
        with pytest.raises(ForbiddenError):
            at.retain(by=caller, kind="evidence")
    assert outcomes(at.retain(by=at.operator, apply=True)) == {"here": "deleted"}


def test_evidence_of_a_run_with_work_left_is_kept(at):
    at.several(2, run="r1")
    at.several(2, run="r2")
    at.several(2, run="r3")
    at.at.begin(at.at.create("open")["workflow_id"])
    at.at.clock.advance(40 * DAY_S)
    at.several(1, run="r3", start=2)

    reply = at.retain(kind="evidence")
    assert outcomes(reply) == {"r1": "workflow_unfinished", "r2": "would_delete"}
    assert reply["younger"] == 1
    assert outcomes(at.retain(kind="evidence", apply=True)) == {"r1": "workflow_unfinished", "r2": "deleted"}
    assert [run["run_id"] for run in at.listed_runs()] == ["r3", "r1"]


def test_a_cursor_of_another_question_is_refused(at):
    for number in range(3):
        at.at.finished(f"w{number}")
    at.at.clock.advance(40 * DAY_S)
    cursor = at.retain(limit=1)["next_cursor"]

    assert at.retain(limit=1, cursor=cursor, apply=True)["items"][0]["name"] == "w1"
    with pytest.raises(MalformedError):
        at.retain(limit=1, cursor=cursor, older_than_days=31)
