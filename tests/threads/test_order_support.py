"""The example: a whole conversation with an approval, against a real server."""

from __future__ import annotations

import pytest

pytest.importorskip("langchain")

from continuity.threads import ThreadWorker, WorkerClient
from examples.order_support import agent as order_support
from examples.order_support import shop
from tests.threads.town import Town


@pytest.fixture
def talk(town: Town, tmp_path, monkeypatch):
    """A worker of the example with a folder of its own, and a thread."""
    monkeypatch.setenv("ORDER_SUPPORT_FOLDER", str(tmp_path / "shop"))
    token = town.worker_token(order_support.NAME)
    client = WorkerClient(town.url, token, coordinator_token=town.token())
    reported = []
    with ThreadWorker(client, [order_support.agent], report=reported.append) as worker:
        ann = town.talker(f"ann-{tmp_path.name}"[:100])
        yield worker, ann, ann.create("orders", order_support.NAME)["thread_id"]
    assert reported == []


def said(snapshot):
    return [(m["role"], m["content"]) for m in snapshot["messages"] if m["type"] == "message"]


def calls(snapshot):
    return [(m["tool"], m["outcome"]) for m in snapshot["messages"] if m["type"] == "tool_call"]


def test_a_question_is_answered(talk):
    worker, ann, thread = talk
    ann.message(thread, "Where is order 17?")
    worker.run_one()
    snapshot = ann.snapshot(thread)
    assert said(snapshot)[-1] == ("assistant", "Order 17 (blue teapot) is packed.")
    assert snapshot["runs"][-1]["output"] == {"answer": "Order 17 (blue teapot) is packed."}
    assert calls(snapshot) == [("lookup_order", "ok")]


def test_an_order_is_cancelled_once_a_person_has_said_yes(town, talk):
    worker, ann, thread = talk
    ann.message(thread, {"message": "Please cancel order 17."})
    worker.run_one()
    snapshot = ann.snapshot(thread)
    assert snapshot["thread"]["state"] == "waiting"
    assert [todo["status"] for todo in snapshot["state"]["todos"]] == ["in_progress", "pending"]
    (waiting,) = snapshot["waiting"]
    assert waiting["shown"] == {"tool": "cancel_order", "arguments": {"order": "17"}}
    assert shop.cancellations().all() == []
    ann.reply(thread, waiting["waiting_id"], True, revision=waiting["revision"])
    worker.run_one()
    snapshot = ann.snapshot(thread)
    assert snapshot["thread"]["state"] == "idle"
    assert said(snapshot)[-1] == ("assistant", "Order 17 is cancelled.")
    assert [each["order"] for each in shop.cancellations().all()] == ["17"]
    assert calls(snapshot) == [(name, "ok") for name in ("write_todos", "lookup_order", "cancel_order", "write_todos")]
    assert [(todo["content"], todo["status"]) for todo in snapshot["state"]["todos"]] == [
        ("Look at the order", "completed"), ("Cancel it", "completed"),
    ]  # fmt: skip
    ended = [m for m in snapshot["messages"] if m["type"] == "tool_call"][-2]
    # Its attempts are of the run, so that the work's page leads to the thread.
    (operation,) = town.operator.get_workflow(ended["workflow_id"])["operations"]
    assert {attempt["run_id"] for attempt in operation["attempts"]} == {snapshot["runs"][-1]["run_id"]}


def test_what_a_person_denies_is_not_done(talk):
    worker, ann, thread = talk
    ann.message(thread, "Cancel order 18")
    worker.run_one()
    (waiting,) = ann.snapshot(thread)["waiting"]
    ann.reply(thread, waiting["waiting_id"], False, revision=waiting["revision"])
    worker.run_one()
    snapshot = ann.snapshot(thread)
    assert snapshot["thread"]["state"] == "idle"
    assert "was left as it is" in said(snapshot)[-1][1]
    assert shop.cancellations().all() == []
    assert calls(snapshot)[-2:] == [("cancel_order", "denied"), ("write_todos", "ok")]
    assert [(todo["content"], todo["status"]) for todo in snapshot["state"]["todos"]] == [
        ("Look at the order", "completed")
    ]
    (answer,) = [m for m in snapshot["messages"] if m["type"] == "answer"]
    assert (answer["reply"], answer["shown"]["tool"]) == (False, "cancel_order")
    # It stands behind the call that it is about and before what the agent made of it.
    places = [m.get("tool") or m["type"] for m in snapshot["messages"]]
    assert places[places.index("cancel_order") + 1] == "answer"


def test_the_native_tool_remembers_beyond_the_thread(talk):
    worker, ann, thread = talk
    for _ in range(2):
        ann.message(thread, "What is the status of order 19?")
        worker.run_one()
    results = [m["result"]["asked"] for m in ann.snapshot(thread)["messages"] if m["type"] == "tool_call"]
    assert results == [1, 2]


def test_what_is_no_question_fails_and_says_why(talk):
    worker, ann, thread = talk
    ann.message(thread, {"question": "Where?"})
    worker.run_one()
    snapshot = ann.snapshot(thread)
    assert snapshot["thread"]["state"] == "needs_attention"
    assert "message: Field required" in snapshot["runs"][-1]["message"]
    worker._report.__self__.clear()


def test_a_thread_that_was_stopped_in_a_question_goes_on_with_the_next_message(talk):
    worker, ann, thread = talk
    ann.message(thread, "Cancel order 17")
    worker.run_one()
    ann.stop(thread)
    ann.message(thread, "Where is order 18?")
    worker.run_one()
    snapshot = ann.snapshot(thread)
    assert said(snapshot)[-1] == ("assistant", "Order 18 (two cups) is packed.")
    assert calls(snapshot) == [
        ("write_todos", "ok"), ("lookup_order", "ok"), ("cancel_order", "unknown"), ("lookup_order", "ok"),
    ]  # fmt: skip
    assert shop.cancellations().all() == []
