"""The controller clock at its boundaries, and the counters of coordinators."""

import pytest

from continuity.decisions.clocks import Reading, dispatch_time_us, stamp_us
from continuity.decisions.coordinators import Counters, require_history, require_one_operation, require_open_place
from continuity.errors import ConflictError, MalformedError
from tests.unit.cases import T0, S


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (T0 + S, T0 + S),
        (T0, T0),
        (T0 - 1, T0),
        (T0 - 2 * S, T0),
    ],
)
def test_a_shortfall_of_up_to_two_seconds_counts_as_equal(now, expected):
    assert dispatch_time_us(Reading(now), T0, T0 - 5 * S) == expected
    assert dispatch_time_us(Reading(now), T0 - 5 * S, T0) == expected


@pytest.mark.parametrize("now", [T0 - 2 * S - 1, T0 - 3_600 * S, 0])
@pytest.mark.parametrize("marks", [(T0, 0), (0, T0), (T0, T0)])
def test_more_than_two_seconds_below_any_mark_dispatches_nothing(now, marks):
    with pytest.raises(ConflictError) as refusal:
        dispatch_time_us(Reading(now), *marks)

    assert refusal.value.code == "clock_moved_backwards"


def test_without_marks_the_clock_is_taken_as_it_is():
    assert dispatch_time_us(Reading(T0)) == T0


@pytest.mark.parametrize(("now", "expected"), [(T0 + 1, T0 + 1), (T0, T0), (T0 - 1, T0), (0, T0)])
def test_what_only_records_is_stamped_with_the_mark_however_far_back_the_clock_is(now, expected):
    assert stamp_us(Reading(now), T0, T0 - S) == expected


@pytest.mark.parametrize(
    ("stepped", "extra", "at", "expected"),
    [
        (None, 0, T0, False),
        (T0, 0, T0, True),
        (T0, 0, T0 + 120 * S - 1, True),
        (T0, 0, T0 + 120 * S, False),
        (T0, 7 * S, T0 + 127 * S - 1, True),
        (T0, 7 * S, T0 + 127 * S, False),
        (T0, 0, T0 - 9 * S, True),
    ],
)
def test_a_forward_step_is_felt_for_two_minutes_and_the_declared_seconds(stepped, extra, at, expected):
    assert Reading(T0 + 500 * S, stepped).is_quiet(extra, at) is expected


def test_counters_add_up_and_go_down():
    counters = Counters(3, 1_000, 68 * 1024)

    assert counters.plus(unfinished=-1, retained_bytes=500, reserved_bytes=-68 * 1024) == Counters(2, 1_500, 0)
    assert counters.plus() == counters


@pytest.mark.parametrize(("unfinished", "is_refused"), [(0, False), (499, False), (500, True), (501, True)])
def test_the_five_hundredth_unfinished_workflow_is_the_last(unfinished, is_refused):
    counters = Counters(unfinished, 0, 0)

    if not is_refused:
        require_open_place(counters)
        return
    with pytest.raises(ConflictError) as refusal:
        require_open_place(counters)
    assert refusal.value.code == "coordinator_open_limit"


@pytest.mark.parametrize(
    ("retained", "reserved", "is_refused"), [(0, 100, False), (40, 60, False), (41, 60, True), (0, 101, True)]
)
def test_history_and_reservations_share_the_budget(retained, reserved, is_refused):
    counters = Counters(1, retained, reserved)

    if not is_refused:
        require_history(counters, budget_bytes=100)
        return
    with pytest.raises(ConflictError) as refusal:
        require_history(counters, budget_bytes=100)
    assert refusal.value.code == "coordinator_history_limit"


@pytest.mark.parametrize("count", [2, 200])
def test_a_coordinator_creates_one_operation_a_workflow(count):
    require_one_operation(1)
    with pytest.raises(MalformedError, match="exactly one operation"):
        require_one_operation(count)
