"""Turns of calls that start at the same time: in their order, one at a time, none behind one that failed."""

from __future__ import annotations

import itertools
import threading

import pytest

from continuity.integrations.turns import ARRIVAL_S, LINES_MOST, RETURN_S, Line, Lines, Turn

CALLS = ("c1", "c2", "c3")


def line_of(*arrived):
    line = Line()
    line.arrange(CALLS)
    for call_id in arrived:
        line.arrive(call_id)
    return line


@pytest.mark.parametrize("arrivals", list(itertools.permutations(CALLS)))
def test_calls_go_in_their_order_however_they_arrive(arrivals):
    line, gone = line_of(*arrivals), []
    while len(gone) < len(CALLS):
        (going,) = [one for one in CALLS if one not in gone and line.turn(one, waited_s=0) is Turn.GO]
        gone.append(going)
        line.leave(going)
    assert tuple(gone) == CALLS


def test_a_call_waits_however_long_for_one_that_runs():
    assert line_of("c1", "c2").turn("c2", waited_s=10_000) is Turn.WAIT


def test_calls_that_wait_behind_one_that_raised_are_blocked_at_once():
    line = line_of(*CALLS)
    line.leave("c1", TimeoutError())
    assert [line.turn(one, waited_s=0) for one in CALLS[1:]] == [Turn.BLOCKED, Turn.BLOCKED]
    assert isinstance(line.cause, TimeoutError)


def test_a_call_that_comes_after_one_has_raised_waits_a_moment_for_it_to_come_again():
    line = line_of("c1")
    line.leave("c1", TimeoutError())
    line.arrive("c2")
    assert line.turn("c2", waited_s=0) is Turn.WAIT
    assert line.turn("c2", waited_s=RETURN_S) is Turn.BLOCKED
    line.arrive("c1")
    assert line.turn("c2", waited_s=RETURN_S) is Turn.WAIT
    line.leave("c1")
    assert line.turn("c2", waited_s=RETURN_S) is Turn.GO


def test_a_call_that_never_comes_is_waited_for_so_long_and_not_at_all_once_it_is_answered():
    line = line_of("c2")
    assert line.turn("c2", waited_s=ARRIVAL_S - 0.1) is Turn.WAIT
    assert line.is_missing("c2")
    assert line.turn("c2", waited_s=ARRIVAL_S) is Turn.BLOCKED
    line.answer(["c1"])
    assert not line.is_missing("c2")
    assert line.turn("c2", waited_s=0) is Turn.GO


def test_a_call_that_runs_is_not_taken_for_answered():
    line = line_of("c1", "c2")
    line.answer(["c1"])
    assert line.turn("c2", waited_s=0) is Turn.WAIT


def test_what_ended_in_an_earlier_run_counts_no_more():
    line = line_of("c1", "c2")
    line.leave("c1")
    line.leave("c2", TimeoutError())
    line.arrive("c2")
    assert line.turn("c2", waited_s=0) is Turn.WAIT
    line.answer(["c1"])
    assert line.turn("c2", waited_s=0) is Turn.GO


def test_a_new_run_reads_the_message_again_and_one_run_once():
    line = line_of("c1")
    assert [line.reading()[1], line.reading()[1]] == [True, False]
    line.leave("c1")
    line.arrive("c1")
    assert line.reading()[1] is True


def test_a_task_that_stops_waiting_for_the_message_leaves_it_to_the_others():
    future, _ = line_of("c1").reading()
    assert future.cancel() is False
    future.set_result("message")


def test_who_waits_is_woken_when_a_call_ends():
    line, woken = line_of(*CALLS), threading.Event()
    with line.watched(woken.set):
        line.leave("c1")
    assert woken.is_set()
    woken.clear()
    line.leave("c2")
    assert not woken.is_set()


def test_old_messages_are_forgotten_and_those_in_use_are_not():
    lines = Lines()
    used = lines.join("used", "c1")
    ended = lines.join("ended", "c1")
    ended.leave("c1")
    for number in range(LINES_MOST + 1):
        lines.join(number, "c1").leave("c1")
    assert lines.join("used", "c2") is used
    assert lines.join("ended", "c1") is not ended
