"""No order of events breaks a promise of threads.md; and the explorer finds the promises that a spoiled core breaks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from continuity.decisions.threads import work
from continuity.decisions.threads.changes import Draft
from continuity.decisions.threads.states import Cause, Situation
from tests.unit.thread_explorer import Bounds, explore

WORLDS = {
    "a call and a stop": Bounds(messages=1, steers=0, follow_ups=0, waits=0, runs=2),
    "a steer and a follow-up": Bounds(calls=0, waits=0, resumes=0, runs=2),
    "a steer and a crash": Bounds(calls=0, waits=0, follow_ups=0, stops=0, runs=3),
    "questions": Bounds(steers=0, calls=0, follow_ups=0, runs=3),
    "a steer, a stop and questions": Bounds(calls=0, follow_ups=0, resumes=0, runs=2),
    "a restored backup": Bounds(steers=0, waits=0, calls=0, stops=0, restores=1, runs=2),
}
EVERYTHING = Bounds(runs=3)
"""Minutes; the worlds above are what it consists of, each in a second or two."""


@pytest.mark.parametrize("bounds", WORLDS.values(), ids=WORLDS)
def test_no_order_of_events_breaks_a_promise(bounds):
    found = explore(bounds)

    assert found.story == []
    assert found.states > 100


@pytest.mark.soak
def test_no_order_of_all_events_breaks_a_promise():
    assert explore(EVERYTHING).story == []


def test_the_explorer_reaches_every_situation_and_every_kind_of_event():
    seen = sum((explore(bounds).seen for bounds in WORLDS.values()), Counter())

    for situation in Situation:
        assert seen[situation.name], situation
    for what in ("messages", "steers", "follow_ups", "stops", "resumes", "replies", "sweeper: ends the claim"):
        assert seen[what], what
    for what in ("claims", "calls", "waits", "writes"):
        assert seen[f"worker 1: {what}"], what


def spoiled(**functions):
    return SimpleNamespace(
        **{name: getattr(work, name) for name in dir(work) if name.startswith(("decide", "is_"))} | functions
    )


def restart_by_itself(head, *, at_us):
    change = work.decide_expiry(head, at_us=at_us)
    if change is None:
        return None
    draft = Draft(change.head, at_us)
    draft.begin(f"rn_{head.run_count + 1}", Cause.RESUME, epoch=1, resumes=change.head.run)
    return draft.done()


def settle_and_drop(head, proof, **named):
    change = work.decide_settle(head, proof, **named)
    return replace(change, head=replace(change.head, follow_ups=()))


def append_without_proof(head, proof, entries, *, ended, at_us):
    run = head.run
    if run is not None and run.claim is not None:
        claim = run.claim
        proof = replace(proof, run_id=run.run_id, generation=claim.generation, secret_hash=claim.secret_hash)
    return work.decide_append(head, proof, entries, ended=ended, at_us=at_us)


def append_twice(head, proof, entries, *, ended, at_us):
    change = work.decide_append(head, proof, entries, ended=ended, at_us=at_us)
    return replace(change, records=change.records * 2)


@pytest.mark.parametrize(
    ("world", "functions", "problem"),
    [
        ("a steer and a crash", {"decide_expiry": restart_by_itself}, "restarted|nobody asked"),
        ("a steer and a follow-up", {"decide_settle": settle_and_drop}, "accepted is lost"),
        ("a call and a stop", {"decide_append": append_without_proof}, "under one generation"),
        ("a call and a stop", {"decide_append": append_twice}, "two results"),
    ],
    ids=["restarts", "drops", "accepts anybody", "writes twice"],
)
def test_a_spoiled_core_is_found(world, functions, problem):
    found = explore(WORLDS[world], decide=spoiled(**functions))

    assert re.search(problem, found.story[-1])
