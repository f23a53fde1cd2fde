"""The picture of attempts: true to scale where something happens, readable where nothing does."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.pages.timeline import WIDTH, Bar, draw

TIMES = st.floats(min_value=0, max_value=4_000_000_000, allow_nan=False)


def bar(started, ended, **more):
    return Bar("1 · Execute", "It happened", "good", started, ended, **more)


def test_without_attempts_there_is_no_picture():
    assert draw([]) is None


def test_a_bar_is_as_long_as_its_attempt_beside_the_others():
    picture = draw([bar(100, 110), bar(110, 130)])

    first, second = picture.rows
    assert second.width == pytest.approx(2 * first.width, abs=0.2)
    assert second.x == pytest.approx(first.x + first.width, abs=0.2)
    assert picture.cuts == ()


def test_a_long_time_without_attempts_is_cut_out_and_marked():
    picture = draw([bar(0, 10), bar(36_000, 36_010)])

    assert len(picture.cuts) == 1
    first, second = picture.rows
    assert first.x + first.width < picture.cuts[0] < second.x
    assert second.width == pytest.approx(first.width, abs=0.2)
    assert "10 h" in [tick.text for tick in picture.ticks]


def test_a_lease_without_a_receipt_is_an_outline_up_to_its_end():
    picture = draw([bar(0, 30, lease_until=120, is_open=True)])

    row = picture.rows[0]
    assert row.lease_width == pytest.approx(4 * row.width, abs=0.4)
    assert row.words_x > row.x + row.lease_width


def test_a_late_receipt_is_marked_when_it_came():
    picture = draw([bar(0, 10, late=(20.0,)), bar(10, 20)])

    assert picture.rows[0].late == (pytest.approx(picture.rows[1].x + picture.rows[1].width, abs=0.2),)


def test_an_attempt_of_an_instant_is_seen():
    assert draw([bar(5, 5)]).rows[0].width > 0


def test_labels_of_the_axis_count_from_the_first_attempt_and_do_not_touch():
    picture = draw([bar(1_000, 1_150)])

    labelled = [tick for tick in picture.ticks if tick.text]
    assert labelled[0].text == "0 s"
    assert labelled[1].text == "+30 s"
    assert all(later.x - sooner.x >= 60 for sooner, later in itertools.pairwise(labelled))


@given(st.lists(st.tuples(TIMES, TIMES, st.lists(TIMES, max_size=2)), min_size=1, max_size=30))
def test_whatever_hosts_report_everything_lies_inside_of_the_picture(attempts):
    bars = [bar(min(a, b), max(a, b), late=tuple(late)) for a, b, late in attempts]

    picture = draw(sorted(bars, key=lambda each: each.started))

    assert len(picture.ticks) < 2_000
    for row in picture.rows:
        assert 0 <= row.x <= WIDTH
        assert 0 < row.width <= WIDTH
        assert row.y < picture.height
        assert all(0 <= at <= WIDTH for at in row.late)
