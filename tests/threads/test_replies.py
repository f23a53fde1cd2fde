"""A reply is admitted once, whoever sends it how often and from where: real servers, on both databases."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from continuity.errors import ConflictError, MalformedError
from tests.servers import initialised, start, stop
from tests.threads.town import Town

SERVERS = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgresql)]


@pytest.fixture(scope="module", params=SERVERS)
def served(request, tmp_path_factory):
    """A town on one process with SQLite, or on four with PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("town")
        return
    server = request.getfixturevalue("postgresql_server")
    extra = {"ATMEM_DATABASE_URL": server.url(server.create())}
    running = start(initialised(tmp_path_factory.mktemp("replies") / "instance", extra), "--workers", "4", extra=extra)
    try:
        yield Town(running)
    finally:
        stop(running)


def question(**fields):
    return {
        "task": "t1", "ordinal": 0, "kind": "approval", "schema": {"type": "boolean"}, "shown": {"order": "17"},
        **fields,
    }  # fmt: skip


@pytest.fixture
def asked(served):
    """A thread that waits for a yes or a no, and whoever asks and answers."""
    hand, ann = served.by_hand(), served.talker()
    thread = hand.thread(ann)
    ann.message(thread, "Cancel it")
    hand.write(hand.claim(), "wait", requests=[question()])
    (waiting,) = ann.snapshot(thread)["waiting"]
    return served, hand, ann, thread, waiting


def kinds(ann, thread):
    return [record["kind"] for record in ann.journal(thread, "1-0")["records"]]


@pytest.mark.parametrize("request_id", [None, "rq-the-same"], ids=["each a request of its own", "one request"])
def test_the_same_reply_twenty_times_from_four_threads_is_admitted_once_with_one_receipt(asked, request_id):
    served, hand, ann, thread, waiting = asked
    begin = threading.Barrier(4)

    def replies(_number):
        own = served.talker()
        begin.wait()
        return [
            own.reply(thread, waiting["waiting_id"], True, revision=1, request_id=request_id) for _ in range(5)
        ]  # fmt: skip

    with ThreadPoolExecutor(4) as pool:
        receipts = [receipt for some in pool.map(replies, range(4)) for receipt in some]

    assert len(receipts) == 20
    assert all(receipt == receipts[0] for receipt in receipts)
    assert kinds(ann, thread).count("request_answered") == 1
    assert kinds(ann, thread).count("run_queued") == 2
    again = hand.claim()
    assert [reply["reply"] for reply in again.run["replies"]] == [True]
    assert hand.calls.claim([hand.agent]) is None
    # And later still, when the run that it began is over.
    hand.write(again, "settle")
    assert ann.reply(thread, waiting["waiting_id"], True, revision=1) == receipts[0]


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True)], ids=["approve", "reject"])
def test_the_other_decision_is_refused_with_the_one_that_is_recorded(asked, first, second):
    _, hand, ann, thread, waiting = asked
    ann.reply(thread, waiting["waiting_id"], first, revision=1)
    before = ann.snapshot(thread)["checkpoint"]

    with pytest.raises(ConflictError) as refused:
        ann.reply(thread, waiting["waiting_id"], second, revision=1)

    assert refused.value.code == "already_answered"
    assert refused.value.current["decision"] is first
    assert ann.snapshot(thread)["checkpoint"] == before
    assert [reply["reply"] for reply in hand.claim().run["replies"]] == [first]


def test_both_decisions_at_once_leave_one_and_tell_it_to_the_others(asked):
    served, hand, ann, thread, waiting = asked
    begin = threading.Barrier(4)

    def reply(number):
        own = served.talker()
        begin.wait()
        try:
            own.reply(thread, waiting["waiting_id"], number % 2 == 0, revision=1)
        except ConflictError as error:
            return error.current["decision"]
        return number % 2 == 0

    with ThreadPoolExecutor(4) as pool:
        decisions = set(pool.map(reply, range(4)))

    assert len(decisions) == 1
    assert [each["reply"] for each in hand.claim().run["replies"]] == list(decisions)
    assert kinds(ann, thread).count("request_answered") == 1


def test_an_old_revision_is_refused_with_the_current_one(asked):
    _, hand, ann, thread, waiting = asked
    ann.reply(thread, waiting["waiting_id"], True, revision=1)
    # The same place asks again: whoever has the old question in front of them must look first.
    hand.write(hand.claim(), "wait", requests=[question(shown={"order": "18"})])
    (again,) = [each for each in ann.snapshot(thread)["waiting"] if each["state"] == "open"]
    assert (again["waiting_id"], again["revision"]) == (waiting["waiting_id"], 2)

    for revision in (1, 3):
        with pytest.raises(ConflictError) as refused:
            ann.reply(thread, waiting["waiting_id"], True, revision=revision)
        assert (refused.value.code, refused.value.current["waiting_revision"]) == ("stale_waiting_revision", 2)

    assert ann.snapshot(thread)["thread"]["state"] == "waiting"
    ann.reply(thread, waiting["waiting_id"], False, revision=2)
    assert [reply["reply"] for reply in hand.claim().run["replies"]] == [False]


@pytest.mark.parametrize("reply", ["yes", "true", 1, 0, None, [True], {"reply": True}])
def test_what_is_no_boolean_is_refused_for_one_and_nothing_is_recorded(asked, reply):
    _, _, ann, thread, waiting = asked
    before = ann.snapshot(thread)

    with pytest.raises(MalformedError):
        ann.reply(thread, waiting["waiting_id"], reply, revision=1)

    assert {**ann.snapshot(thread), "history_cursor": None} == {**before, "history_cursor": None}
