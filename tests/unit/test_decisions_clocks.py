"""The controller clock at its boundaries, and the counters of coordinators."""

import pytest

from continuity.decisions.clocks import Reading, dispatch_time_us, stamp_us
from continuity.decisions.coordinators import refusal, require_one_operation
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


@pytest.mark.parametrize(
    ("unfinished", "code"),
    [
        (0, "coordinator_history_limit"),
        (499, "coordinator_history_limit"),
        (500, "coordinator_open_limit"),
        (501, "coordinator_open_limit"),
    ],
)
def test_a_refusal_names_the_limit_that_was_met(unfinished, code):
    refused = refusal(unfinished=unfinished, budget_bytes=100)

    assert isinstance(refused, ConflictError)
    assert refused.code == code


@pytest.mark.parametrize("count", [2, 200])
def test_a_coordinator_creates_one_operation_a_workflow(count):
    require_one_operation(1)
    with pytest.raises(MalformedError, match="exactly one operation"):
        require_one_operation(count)
