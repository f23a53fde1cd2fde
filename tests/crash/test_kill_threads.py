"""The process that serves threads is killed before and after each commit; what it had answered is true afterwards.

Another process then sends every request again, as clients do that lost their answers, and all of it has happened once.
"""

from __future__ import annotations

import json

import pytest

from continuity.errors import ConflictError
from continuity.thread_requests import ListThreads
from tests.crash.forks import Forks
from tests.crash.thread_jobs import STEPS, client_of, play
from tests.integration.conversing import Held, converse, process_of

KILLED = -9


@pytest.fixture(scope="module")
def forks():
    forks = Forks("tests.crash.thread_jobs")
    yield forks
    forks.close()


ORDINARY = 7
"""Steps that are killed at on both sides each time; of the others, the side on which an answer is lost."""
KILLS = [
    pytest.param(
        number, moment, id=f"{moment} {step}".replace(" ", "-"),
        marks=[pytest.mark.soak] if number > ORDINARY and moment == "before" else [],
    )
    for number, step in enumerate(STEPS, start=1)
    for moment in ("before", "after")
]  # fmt: skip


@pytest.mark.parametrize(("countdown", "moment"), KILLS)
def test_what_was_answered_is_true_and_the_rest_happens_once(forks, database, store, tmp_path, countdown, moment):
    at = converse(store, tmp_path)
    client = at.application("s-1")
    thread_id = at.create(by=client)
    at.say(thread_id, "begin", by=client)
    held = at.claim()
    acks = tmp_path / "acks"

    child = forks.start(
        "serve", log=tmp_path / "log", url=database, folder=str(tmp_path), acks=str(acks), thread_id=thread_id,
        held={"run": held.run, "secret": held.secret, "request_id": held.request_id}, owner_pk=client.owner_pk,
        countdown=countdown, moment=moment,
    )  # fmt: skip
    assert forks.wait(child) == KILLED, (tmp_path / "log").read_text()

    told = [json.loads(line) for line in acks.read_text().splitlines()]
    assert [step for step, _ in told] == list(STEPS[: countdown - 1])
    assert at.checker.check() == []
    later, worker = process_of(at.home), Held(held.run, held.secret, held.request_id)
    again = list(play(later, thread_id, worker, client.owner_pk, told=dict(told)))
    # A receipt is the first one; a claim that was answered before is the same claim.
    assert [[step, json.loads(json.dumps(reply))] for step, reply in again[: len(told)]] == told
    assert [step for step, _ in again] == list(STEPS)

    shown = at.snapshot(thread_id, by=client)
    assert [run["state"] for run in shown["runs"]] == ["waiting", "settled", "stopped", "failed", "queued"]
    assert [message.get("content", message.get("reply", message["id"])) for message in shown["messages"]] == [
        "begin", "words a", "c", True, "words b", "late", "then",
    ]  # fmt: skip
    assert [message["result"] for message in shown["messages"] if message["type"] == "tool_call"] == [1]
    kinds = [record["kind"] for record in at.records(thread_id, by=client)]
    once = ("request_answered", "inputs_moved", "tool_ended", "stop_requested", "run_stopped", "run_failed")
    assert {kind: kinds.count(kind) for kind in once} == dict.fromkeys(once, 1)
    assert [queued["content"] for queued in shown["queue"]] == ["again"]
    assert [each["name"] for each in at.reading.page(client, ListThreads())["threads"]].count("other") == 1
    going_on = at.claim().run
    assert (going_on["input"]["content"], going_on["resumes"]) == ("then", shown["runs"][3]["run_id"])
    assert at.checker.check() == []


def test_a_worker_killed_with_its_claim_leaves_a_run_that_only_its_owner_goes_on_with(store, tmp_path):
    at = converse(store, tmp_path)
    client = client_of(at, at.application("s-1").owner_pk)
    thread_id = at.create(by=client)
    at.say(thread_id, "begin", by=client)
    held = at.claim()
    at.append(held, {"kind": "tool_started", "call_id": "c", "tool": "t"})
    at.clock.advance(61)

    later = process_of(at.home)
    assert later.claim() is None
    assert later.upkeep.expire_due() == 1
    assert later.claim() is None
    with pytest.raises(ConflictError):
        at.append(held, {"kind": "tool_ended", "call_id": "c", "outcome": "ok"})
    later.control(thread_id, "resume", by=client)
    assert later.claim().run["generation"] == held.run["generation"] + 1
