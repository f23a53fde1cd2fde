"""A worker is suspended, its lease runs out, others go on, it wakes up: its word is evidence and overwrites nothing."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from continuity.errors import ConflictError
from tests.crash.stage import NAME, until


def asleep(case, point):
    """Start a worker that is suspended at `point`."""
    run = case.start(die_at=point, end="stop")
    until(lambda: psutil.Process(run.process).status() == psutil.STATUS_STOPPED)
    return run


def woken(run):
    os.kill(run.process, signal.SIGCONT)
    return run.report()


def test_a_worker_that_slept_past_its_grant_performs_nothing(stage, tmp_path):
    case = stage.case("none", tmp_path)
    run = asleep(case, "begin.after_reply")
    stage.advance()

    found = woken(run)

    assert found == {"end": "blocked", "code": "not_dispatched", "lease_until": None}
    assert case.sink == []
    # Its own word, proved by its token, is all that is needed to let the next one perform it.
    assert case.operation["status"] == "pending"
    assert case.run()["end"] == "result"
    assert case.decisions == []


@pytest.mark.parametrize("point", ["effect.before", "begin.after_reply"])
def test_a_worker_that_slept_while_another_performed_the_effect_performs_nothing(stage, tmp_path, point):
    case = stage.case("idempotent", tmp_path)
    run = asleep(case, point)
    stage.advance()
    assert case.run()["end"] == "result"
    before = case.check()

    found = woken(run)

    assert len(case.sink) == 1
    assert found["end"] in {"result", "blocked"}
    after = case.check()
    assert after["revision"] == before["revision"]
    (operation,) = after["operations"]
    assert operation["receipt"] == before["operations"][0]["receipt"]
    assert [(late["proved"], late["receipt"]["outcome"]) for late in operation["late"]] == [(True, "not_dispatched")]


@pytest.mark.parametrize("point", ["effect.done", "effect.after", "outcome.before_send"])
def test_a_success_told_after_a_person_had_decided_is_kept_and_overwrites_nothing(stage, tmp_path, point):
    case = stage.case("none", tmp_path)
    run = asleep(case, point)
    stage.advance()
    case.decide()
    before = case.check()

    found = woken(run)

    assert found["end"] == "result"
    (operation,) = case.check()["operations"]
    assert operation["receipt"] == before["operations"][0]["receipt"]
    assert operation["assurance"] == "operator_attested"
    ((late),) = operation["late"]
    assert late["proved"] is True
    assert late["receipt"]["outcome"] == "confirmed_succeeded"
    assert len(case.sink) == 1


def test_a_success_told_about_work_that_was_opened_again_stops_it_until_a_person_decides(stage, tmp_path):
    case = stage.case("none", tmp_path)
    run = asleep(case, "outcome.before_send")
    (effect,) = case.sink
    stage.advance()
    # The person looked in the wrong place: what follows is what limits the damage.
    view = case.view()
    person = stage.person()
    path = f"/v1/continuity/{case.workflow_id}/confirm"
    said = {"name": NAME, "late_receipts": 0, "reason": "Not found there."}
    person.call("POST", path, {**said, "happened": False, "revision": view["revision"]})
    assert case.operation["status"] == "pending"

    assert woken(run) == {"end": "blocked", "code": "stale_lease", "lease_until": None}

    view = case.view()
    assert view["phase"] == "decision"
    (operation,) = view["operations"]
    assert (operation["status"], operation["late_receipts"]) == ("pending", 1)
    stopped = case.start().report()
    assert (stopped["end"], stopped["code"]) == ("blocked", "late_receipt_needs_decision")
    with pytest.raises(ConflictError) as seen_too_little:
        person.call("POST", path, {**said, "happened": False, "revision": view["revision"]})
    assert seen_too_little.value.code == "stale_revision"
    case.decide()
    assert case.run() == {"end": "result", "result": {"published": effect.effect_id}}
    assert len(case.sink) == 1


def test_a_success_told_while_another_worker_asks_the_destination_is_what_both_end_with(stage, tmp_path):
    case = stage.case("query", tmp_path)
    first = asleep(case, "effect.after")
    stage.advance()
    second = asleep(case, "effect.done")

    assert woken(first)["end"] == "blocked"

    (operation,) = case.check()["operations"]
    assert (operation["status"], operation["late_receipts"]) == ("uncertain", 1)
    assert woken(second)["end"] == "result"
    (operation,) = case.check()["operations"]
    assert operation["status"] == "completed"
    assert len(case.sink) == 1


def test_a_repeat_at_a_destination_that_knows_the_key_is_applied_once_whichever_worker_wakes(stage, tmp_path):
    case = stage.case("idempotent", tmp_path)
    first = asleep(case, "effect.done")
    stage.advance()
    second = asleep(case, "effect.done")
    stage.advance()

    third = case.run()

    assert third["end"] == "result"
    # A late success of the same effect: the saved result is theirs too.
    assert woken(second) == third
    assert woken(first) == third
    assert [effect.applied for effect in case.sink] == [True, False, False]
    (operation,) = case.check()["operations"]
    assert operation["late_receipts"] == 2


def test_a_worker_that_slept_past_its_lease_and_nothing_else_happened_is_believed(stage, tmp_path):
    case = stage.case("none", tmp_path)
    run = asleep(case, "effect.after")
    stage.advance()

    assert woken(run)["end"] == "result"

    (operation,) = case.check()["operations"]
    assert (operation["status"], operation["late_receipts"]) == ("completed", 0)
    assert case.run()["end"] == "result"


def test_an_effect_that_a_woken_worker_performs_after_all_is_shown_beside_the_other_one(stage, tmp_path):
    case = stage.case("none", tmp_path)
    run = asleep(case, "effect.started")
    stage.advance()
    # Nothing is there, and nothing in time could still come: the person is right, and the tool checks nothing.
    case.decide()
    assert case.run()["end"] == "result"
    first = case.operation["receipt"]

    woken(run)

    assert len(case.sink) == 2
    (operation,) = case.check(is_honest=False)["operations"]
    assert operation["receipt"] == first
    ((late),) = operation["late"]
    assert late["proved"] is True
    assert late["receipt"]["effect_id"] == case.sink[1].effect_id != first["effect_id"]


def test_an_effect_that_a_woken_worker_repeats_under_its_key_is_applied_once(stage, tmp_path):
    case = stage.case("idempotent", tmp_path)
    run = asleep(case, "effect.started")
    stage.advance()
    found = case.run()

    assert woken(run) == found

    assert [effect.applied for effect in case.sink] == [True, False]
    case.check()
