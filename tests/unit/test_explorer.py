"""Every order of events within bounds: no second effect from honest hosts, and one as soon as a guard is gone."""

import time
from dataclasses import replace

import pytest

from continuity.decisions import beginning, controls, events
from continuity.decisions.beginning import Reason
from continuity.decisions.clocks import Reading
from continuity.decisions.states import Outcome, Status, Step
from tests.unit.cases import S
from tests.unit.explorer import Bounds, Destination, explore

RETENTION = 200 * S
ABSENCE = 40 * S
DESTINATIONS = {
    "none": Destination(),
    "query": Destination(can_query=True),
    "query, absence final": Destination(can_query=True, absence_us=ABSENCE),
    "idempotent": Destination(is_idempotent=True, retention_us=RETENTION),
    "both": Destination(can_query=True, is_idempotent=True, retention_us=RETENTION),
    "both, absence final": Destination(can_query=True, is_idempotent=True, retention_us=RETENTION, absence_us=ABSENCE),
}
ALONE = Bounds(attempts=3, confirms=0)
ATTENDED = Bounds(attempts=2, confirms=1)


def found_in(capsys, name, bounds, **over):
    started = time.process_time()
    exploration = explore(DESTINATIONS[name], bounds, **over)
    with capsys.disabled():
        print(f"\n  {name}: {exploration.states} states in {time.process_time() - started:.1f} s, {bounds}", end="")
    return exploration


@pytest.mark.parametrize("name", DESTINATIONS)
def test_hosts_alone_never_cause_a_second_effect(name, capsys):
    exploration = found_in(capsys, name, ALONE)

    assert exploration.story == []
    assert exploration.seen["effect lands"]
    assert exploration.seen["late receipt confirmed_succeeded"] or name == "none"
    assert {Status.PENDING, Status.UNCERTAIN, Status.COMPLETED, Status.REFUSED} <= set(exploration.seen)
    assert ("repeat absorbed" in exploration.seen) == DESTINATIONS[name].is_idempotent
    assert ("query granted" in exploration.seen) == DESTINATIONS[name].can_query


@pytest.mark.parametrize("name", DESTINATIONS)
def test_hosts_with_an_operator_never_cause_a_second_effect(name, capsys):
    wide = {"none": 4, "query": 3, "query, absence final": 3}
    exploration = found_in(capsys, name, replace(ATTENDED, attempts=wide.get(name, 2)))

    assert exploration.story == []
    assert exploration.seen["operator confirms"]


@pytest.mark.parametrize("name", ["none", "query, absence final", "idempotent"])
def test_a_clock_that_jumps_an_hour_causes_no_second_effect(name, capsys):
    wide = {"none": (3, 1), "query, absence final": (3, 0), "idempotent": (2, 0)}
    attempts, confirms = wide[name]
    exploration = found_in(capsys, name, Bounds(attempts=attempts, confirms=confirms, steps=1))

    assert exploration.story == []
    assert exploration.seen["clock jumps"]


@pytest.mark.parametrize("name", ["none", "query", "query, absence final"])
def test_a_restored_backup_causes_no_second_effect(name, capsys):
    exploration = found_in(capsys, name, Bounds(attempts=2, confirms=1 if name == "none" else 0, restores=1))

    assert exploration.story == []
    assert exploration.seen["restore"]


@pytest.mark.soak
@pytest.mark.parametrize("name", DESTINATIONS)
def test_wider_bounds_cause_no_second_effect(name, capsys):
    attempts = 5 if name == "none" else 4 if name == "query" else 3

    assert found_in(capsys, name, Bounds(attempts=attempts, confirms=1)).story == []


@pytest.mark.soak
@pytest.mark.parametrize("name", DESTINATIONS)
def test_a_restore_and_an_operator_cause_no_second_effect(name, capsys):
    assert found_in(capsys, name, Bounds(attempts=2, confirms=1, restores=1)).story == []


# The other half of the proof: what finds nothing with a guard gone proves nothing with it in place.


def without_row(monkeypatch, reason):
    rows = tuple(row for row in beginning.ROWS if row.reason is not reason)
    monkeypatch.setattr(beginning, "ROWS", rows)


def believe_absence_at_once(monkeypatch):
    monkeypatch.setattr(beginning, "absence_final_from_us", lambda operation: 0 if operation.absence_us else None)


def count_absence_without_the_landing(monkeypatch):
    def absence_final_from_us(operation):
        starts = (attempt.started_us for attempt in operation.attempts if attempt.is_unresolved)
        return None if operation.absence_us is None else max(starts, default=0) + operation.absence_us

    monkeypatch.setattr(beginning, "absence_final_from_us", absence_final_from_us)


def trust_a_query_right_after_a_step(monkeypatch):
    monkeypatch.setattr(Reading, "is_quiet", lambda *_: False)


def judge_a_step_by_the_time_of_the_begin(monkeypatch):
    # So it was once: an absence seen too early was believed as soon as the quiet time had passed.
    is_quiet = Reading.is_quiet
    monkeypatch.setattr(Reading, "is_quiet", lambda reading, extra_us, _: is_quiet(reading, extra_us, reading.now_us))


def repeat_until_the_key_is_forgotten(monkeypatch):
    def window_end_us(operation):
        first_us = operation.first_dispatch_us
        return first_us + operation.retention_us if operation.is_idempotent and first_us is not None else None

    monkeypatch.setattr(beginning, "window_end_us", window_end_us)


def move_the_window_with_every_repeat(monkeypatch):
    margin_us = 60 * S

    def window_end_us(operation):
        if not operation.is_idempotent or operation.first_dispatch_us is None:
            return None
        return operation.attempts[-1].started_us + operation.retention_us - margin_us

    monkeypatch.setattr(beginning, "window_end_us", window_end_us)


def forget_the_other_unresolved_attempts(monkeypatch):
    step_of = events.step_of
    alone = {Step.NOT_DISPATCHED_OTHERS_OPEN: Step.NOT_DISPATCHED, Step.REFUSED_OTHERS_OPEN: Step.REFUSED}

    def careless(operation, attempt, outcome):
        step = step_of(operation, attempt, outcome)
        return alone.get(step, step) if outcome is Outcome.NOT_DISPATCHED else step

    monkeypatch.setattr(events, "step_of", careless)


def call_it_refused_while_others_are_open(monkeypatch):
    step_of = events.step_of

    def careless(operation, attempt, outcome):
        step = step_of(operation, attempt, outcome)
        return Step.REFUSED if step is Step.REFUSED_OTHERS_OPEN else step

    monkeypatch.setattr(events, "step_of", careless)


def confirm_without_waiting_for_the_effect(monkeypatch):
    monkeypatch.setattr(controls, "absence_can_be_attested_from_us", lambda *_: 0)


def confirm_whatever_the_revision(monkeypatch):
    monkeypatch.setattr(controls, "require_revision", lambda *_: None)


def dispatch_what_a_restore_forgot(monkeypatch):
    without_row(monkeypatch, Reason.RESTORED)


def confirm_right_after_a_restore(monkeypatch):
    wait = controls.absence_can_be_attested_from_us
    monkeypatch.setattr(
        controls, "absence_can_be_attested_from_us",
        lambda operation, vault, reading: wait(operation, replace(vault, restored_us=None), reading),
    )  # fmt: skip


def execute_what_is_uncertain(monkeypatch):
    rows = [replace(row, action=beginning.Action.EXECUTE) if row.reason is Reason.NEEDS_CONFIRMATION else row
            for row in beginning.ROWS]  # fmt: skip
    monkeypatch.setattr(beginning, "ROWS", tuple(rows))


CONTROLS = [
    (believe_absence_at_once, "query, absence final", ALONE),
    (count_absence_without_the_landing, "query, absence final", ALONE),
    (trust_a_query_right_after_a_step, "query, absence final", replace(ALONE, steps=1)),
    (judge_a_step_by_the_time_of_the_begin, "query, absence final", replace(ALONE, steps=1)),
    (repeat_until_the_key_is_forgotten, "idempotent", ALONE),
    (move_the_window_with_every_repeat, "idempotent", ALONE),
    (forget_the_other_unresolved_attempts, "idempotent", replace(ALONE, attempts=4)),
    (call_it_refused_while_others_are_open, "idempotent", ALONE),
    (confirm_without_waiting_for_the_effect, "none", ATTENDED),
    (confirm_without_waiting_for_the_effect, "query", ATTENDED),
    (confirm_whatever_the_revision, "none", replace(ATTENDED, attempts=3, confirms=2)),
    (dispatch_what_a_restore_forgot, "none", replace(ALONE, restores=1)),
    (confirm_right_after_a_restore, "none", replace(ATTENDED, attempts=3, restores=1)),
    (execute_what_is_uncertain, "none", ALONE),
]


@pytest.mark.parametrize(("remove", "name", "bounds"), CONTROLS, ids=lambda value: getattr(value, "__name__", None))
def test_with_a_guard_removed_the_explorer_finds_the_second_effect(remove, name, bounds, monkeypatch, capsys):
    remove(monkeypatch)

    # Where hosts are honest a wrong word is as far as some of this goes; else only the second effect counts.
    is_word = remove is call_it_refused_while_others_are_open
    exploration = found_in(capsys, name, bounds, are_words_checked=is_word)

    assert exploration.story, "the explorer did not notice that the guard was gone"
    with capsys.disabled():
        print("".join(f"\n    {line}" for line in exploration.story), end="")
