"""Phases: each of them, and that what is said to change by itself does so then, and not before."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continuity.decisions.beginning import Question, decide_begin
from continuity.decisions.clocks import Reading
from continuity.decisions.model import Standing
from continuity.decisions.phases import Phase, Standpoint, standpoint
from continuity.decisions.states import Mode, Outcome, Status
from tests.unit.cases import (
    ABSENCE,
    BOTH,
    CAPABILITIES,
    IDEMPOTENT,
    LANDING,
    LEASE,
    NONE,
    QUERY,
    RETENTION,
    T0,
    S,
    make_attempt,
    make_ended,
    make_late,
    make_operation,
    make_vault,
    make_workflow,
)

WINDOW_END = T0 + RETENTION - LANDING


def phase_of(operation, *, now=T0 + 200 * S, vault=None, **over):
    return standpoint(make_workflow(operation, **over), operation, vault or make_vault(), now_us=now)


def uncertain(*attempts, **over):
    return make_operation(Status.UNCERTAIN, attempts or (make_ended(),), **over)


NEVER = {"is_enabled": False, "was_enabled": False}
PAUSED = {"is_enabled": False}


@pytest.mark.parametrize(
    ("operation", "head", "vault", "expected"),
    [
        (make_operation(), NEVER, {}, Standpoint(Phase.REVIEW)),
        (make_operation(), PAUSED, {}, Standpoint(Phase.PAUSED)),
        (make_operation(), {}, {}, Standpoint(Phase.READY)),
        (make_operation(), {}, {"is_capture_full": False}, Standpoint(Phase.READY)),
        (uncertain(**NONE), {}, {}, Standpoint(Phase.DECISION)),
        (uncertain(**NONE), PAUSED, {}, Standpoint(Phase.DECISION)),
        (uncertain(**QUERY), {}, {}, Standpoint(Phase.RESUMABLE)),
        (uncertain(**QUERY), PAUSED, {}, Standpoint(Phase.PAUSED)),
        (uncertain(**QUERY, absence_us=ABSENCE), {}, {}, Standpoint(Phase.RESUMABLE)),
        (uncertain(**BOTH), {}, {}, Standpoint(Phase.RESUMABLE)),
        (uncertain(**IDEMPOTENT), {}, {}, Standpoint(Phase.RESUMABLE, WINDOW_END, Phase.DECISION)),
        (uncertain(**IDEMPOTENT), PAUSED, {}, Standpoint(Phase.PAUSED, WINDOW_END, Phase.DECISION)),
        (make_operation(Status.ABANDONED), {}, {}, Standpoint(Phase.ENDED)),
        (make_operation(Status.REFUSED), PAUSED, {}, Standpoint(Phase.ENDED)),
        (make_operation(Status.ABANDONED), NEVER, {}, Standpoint(Phase.ENDED)),
        (make_operation(late=(make_late(),)), {}, {}, Standpoint(Phase.DECISION)),
        (make_operation(), {}, {"epoch": 1}, Standpoint(Phase.DECISION)),
        (make_operation(), NEVER, {"epoch": 1}, Standpoint(Phase.REVIEW)),
        (make_operation(), {"revision": 1_999}, {}, Standpoint(Phase.DECISION)),
        (make_operation(attempts=[make_ended(f"a{n}", Outcome.NOT_DISPATCHED) for n in range(100)]), {}, {},
         Standpoint(Phase.DECISION)),
    ],
)  # fmt: skip
def test_a_workflow_is_in_the_phase_that_the_design_says(operation, head, vault, expected):
    assert phase_of(operation, vault=make_vault(**vault), **head) == expected


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_live_lease_is_running_until_its_end(name):
    operation = uncertain(make_attempt(), **CAPABILITIES[name])
    after = {"none": Phase.DECISION, "query": Phase.RESUMABLE, "idempotent": Phase.RESUMABLE, "both": Phase.RESUMABLE}

    assert phase_of(operation, now=T0 + 1) == Standpoint(Phase.RUNNING, T0 + LEASE, after[name])


def test_a_lease_that_outlives_the_window_becomes_a_decision():
    operation = uncertain(make_ended(), make_attempt("a2", started_us=WINDOW_END - S, lease_until_us=WINDOW_END + S),
                          **IDEMPOTENT)  # fmt: skip

    assert phase_of(operation, now=WINDOW_END - 1) == Standpoint(Phase.RUNNING, WINDOW_END + S, Phase.DECISION)


def test_a_paused_lease_is_running_and_then_paused():
    operation = uncertain(make_attempt(), **QUERY)

    assert phase_of(operation, now=T0 + 1, **PAUSED) == Standpoint(Phase.RUNNING, T0 + LEASE, Phase.PAUSED)


def test_all_completed_is_done():
    head = make_workflow(standings=(Standing(Status.COMPLETED, 1, 0),))

    assert standpoint(head, None, make_vault(epoch=9), now_us=T0) == Standpoint(Phase.DONE)


TIMES = st.integers(0, 1_200).map(lambda seconds: T0 + seconds * S)


@st.composite
def attempts(draw):
    """Up to three ended attempts and perhaps one that has not ended; each later than the one before."""
    made, at = [], T0
    for number in range(draw(st.integers(1, 4))):
        at += draw(st.sampled_from([0, S, LANDING, LEASE, RETENTION - LANDING]))
        mode = draw(st.sampled_from(Mode)) if number else Mode.EXECUTE
        outcome = draw(st.sampled_from([Outcome.UNKNOWN, Outcome.ABSENT, None]))
        lease = {"started_us": at, "lease_until_us": at + draw(st.sampled_from([LEASE, 3 * LEASE])), "mode": mode}
        made.append(
            make_attempt(f"a{number}", **lease) if outcome is None else make_ended(f"a{number}", outcome, **lease)
        )
    return made


@st.composite
def standpoints(draw):
    """Everything that a phase is computed from."""
    status = draw(st.sampled_from([Status.UNCERTAIN] * 5 + list(Status)))
    tried = draw(attempts())
    if status is Status.PENDING:
        tried = [replace(attempt, is_attested=True) for attempt in tried]
    late = draw(st.sampled_from([(), (), (make_late(),)]))
    capability = CAPABILITIES[draw(st.sampled_from(sorted(CAPABILITIES)))]
    absence = draw(st.sampled_from([None, ABSENCE])) if capability["can_query"] else None
    operation = make_operation(status, tried, late=late, absence_us=absence, **capability)
    was_enabled = draw(st.sampled_from([True, True, False]))
    head = make_workflow(
        operation, was_enabled=was_enabled, is_enabled=was_enabled and draw(st.booleans()),
        revision=draw(st.sampled_from([5, 1_999])),
    )  # fmt: skip
    return head, operation, make_vault(epoch=draw(st.sampled_from([0, 0, 1])))


@settings(max_examples=400, deadline=None)
@given(standpoints(), TIMES, st.lists(st.integers(0, 10**6), max_size=4))
def test_what_changes_by_itself_does_so_when_it_is_due_and_not_before(facts, now, fractions):
    head, operation, vault = facts
    told = standpoint(head, operation, vault, now_us=now)
    if told.due_us is None:
        assert told.after_due is None
        until = now + 10**9 * S
        moments = [now + (until - now) * fraction // 10**6 for fraction in fractions] + [until]
        moments += [moment for moment in (WINDOW_END, T0 + LEASE, T0 + 4 * LEASE, T0 + RETENTION) if moment > now]
        assert {standpoint(head, operation, vault, now_us=moment).phase for moment in moments} == {told.phase}
        return
    assert told.due_us > now
    assert told.after_due is not told.phase
    assert standpoint(head, operation, vault, now_us=told.due_us).phase is told.after_due
    moments = [now + (told.due_us - now) * fraction // 10**6 for fraction in fractions] + [told.due_us - 1]
    for moment in (moment for moment in moments if moment < told.due_us):
        assert standpoint(head, operation, vault, now_us=moment) == told


@settings(max_examples=400, deadline=None)
@given(standpoints(), TIMES)
def test_a_phase_agrees_with_what_a_begin_would_be_told(facts, now):
    head, operation, vault = facts
    phase = standpoint(head, operation, vault, now_us=now).phase
    enabled = replace(head, is_enabled=True, was_enabled=True)
    verdict = decide_begin(Question(enabled, operation, vault, "new", now, Reading(now)))

    if phase in {Phase.READY, Phase.RESUMABLE}:
        assert head.is_enabled
        assert verdict.mode is not None
        assert (verdict.mode is Mode.EXECUTE and operation.status is Status.PENDING) == (phase is Phase.READY)
    elif phase is Phase.RUNNING:
        assert verdict.reason == "attempt_in_progress"
    elif phase is Phase.DECISION:
        assert head.was_enabled
        assert verdict.mode is None
    elif phase is Phase.PAUSED:
        assert not head.is_enabled
        assert verdict.mode is not None
    elif phase is Phase.ENDED:
        assert verdict.reason in {"abandoned", "refused_by_destination", "saved_receipt"}
    else:
        assert phase is Phase.REVIEW
        assert not head.was_enabled
