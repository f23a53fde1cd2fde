"""Every situation that a thread can be in has its words: what happened, what is known, what is safe next."""

from __future__ import annotations

import pytest

from app.pages.threads_view import offers
from app.pages.threads_words import CAUSES, NOTHING, STATE_NAMES, lead, situation, why_it_ended
from continuity.decisions.threads.states import (
    NEEDS_CONTROL,
    TABLE,
    Cause,
    Control,
    Event,
    Reason,
    Refused,
    RunState,
    Situation,
    ThreadState,
)

RUNS = {
    Situation.QUEUED: ("running", {"state": "queued"}), Situation.CLAIMED: ("running", {"state": "claimed"}),
    Situation.STOPPING: ("running", {"state": "claimed", "stopping": True}),
    Situation.WAITING: ("waiting", {"state": "waiting"}),
    Situation.INTERRUPTED: ("needs_attention", {"state": "interrupted", "reason": "claim_expired"}),
    Situation.FAILED: ("needs_attention", {"state": "failed", "reason": "failed"}),
    Situation.IDLE: ("idle", {"state": "settled"}), Situation.HELD: ("idle", {"state": "stopped"}),
}  # fmt: skip
ALL = frozenset(control.value for control in Control)
EVENTS = {
    "message": Event.MESSAGE, "steer": Event.STEER, "follow_up": Event.FOLLOW_UP, "stop": Event.STOP,
    "resume": Event.RESUME, "delete": Event.DELETE,
}  # fmt: skip


def snapshot(where, **run):
    state, made = RUNS[where]
    queue = [{"kind": "follow_up"}] if where is Situation.HELD else []
    return {"thread": {"state": state}, "runs": [{"stopping": False, **made, **run}], "queue": queue, "waiting": []}


def test_every_state_cause_and_filter_has_a_name():
    assert set(STATE_NAMES) == set(NOTHING) == set(ThreadState)
    assert set(CAUSES) == set(Cause)


@pytest.mark.parametrize("where", list(Situation))
def test_a_situation_is_told_from_a_snapshot(where):
    assert situation(snapshot(where)) is where


@pytest.mark.parametrize("reason", list(Reason))
def test_whatever_interrupts_a_run_is_explained(reason):
    where = Situation.FAILED if reason is Reason.FAILED else Situation.INTERRUPTED
    found = lead(snapshot(where, reason=reason.value, message="Its own words.", workflow_id="wf_1"))

    assert found.tone in {"warn", "bad"}
    assert found.workflow_id == "wf_1"
    assert "Its own words." in found.happened
    assert all((found.title, found.known, found.safe))
    for state in (RunState.INTERRUPTED, RunState.STOPPED):
        assert "Its own words." in why_it_ended({"state": state, "reason": reason.value, "message": "Its own words."})


@pytest.mark.parametrize("where", list(Situation))
@pytest.mark.parametrize("control", list(EVENTS))
def test_what_is_offered_is_what_the_table_admits(where, control):
    event = EVENTS[control]
    is_offered = getattr(offers(where, ALL), control)
    is_admitted = not isinstance(TABLE[where][event], Refused)

    # An idle thread takes a follow-up as it takes a message, and a stop that was asked for is asked for once.
    is_needless = (event is Event.FOLLOW_UP and where in {Situation.IDLE, Situation.HELD}) or (
        event is Event.STOP and where is Situation.STOPPING
    )
    assert is_offered is (is_admitted and not is_needless)


@pytest.mark.parametrize("where", list(Situation))
def test_what_is_not_declared_is_not_offered_but_to_end_what_needs_attention(where):
    found = offers(where, frozenset())
    is_urgent = where in {Situation.INTERRUPTED, Situation.FAILED}

    assert not found.steer
    assert not found.follow_up
    assert found.stop is is_urgent
    assert {control.value for control in NEEDS_CONTROL.values()} <= ALL
