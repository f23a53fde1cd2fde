"""What people do to threads stands in the audit log (docs/audit.md)."""

from __future__ import annotations

import pytest

from continuity.store import schema
from tests.integration.conversing import Conversing, converse, question

WANTED = (
    "thread.created", "thread.viewed", "thread.steered", "thread.followed_up", "thread.replied", "thread.resumed",
    "thread.stopped", "thread.deletion_begun", "thread.deleted",
)  # fmt: skip


@pytest.fixture
def at(store, tmp_path) -> Conversing:
    return converse(store, tmp_path)


def test_every_control_and_look_of_a_person_is_an_entry(at):
    thread_id, held = at.running("hi")
    at.say(thread_id, "quick", how="steer")
    at.say(thread_id, "next", how="follow_up")
    held.steers_read = at.heartbeat(held)["steers"][0]["number"]
    [asked] = at.wait(held, question())["waiting"]
    at.reply(thread_id, asked["waiting_id"], False)
    at.fail(at.claim())
    at.control(thread_id, "resume")
    at.snapshot(thread_id)
    at.control(thread_id, "stop")
    at.deletions.delete(at.person, thread_id)

    told = [row for row in at.home.rows(schema.audit) if row.action.startswith("thread.")]
    assert {row.action for row in told} == set(WANTED)
    assert {(row.object_id, row.result) for row in told} == {(thread_id, "done")}
    assert {row.actor for row in told} == {at.person.actor}
