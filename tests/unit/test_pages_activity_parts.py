"""What the pages of activity are made of: exact money, questions, the chart's geometry, cells that are no formulas."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.pages import costchart
from app.pages.asking import date_of, read_question
from app.pages.money import Cost, dollars
from app.pages.spreadsheet import cell, csv_bytes
from continuity.errors import MalformedError
from observations.answers import DaySums, Sums

TODAY = 20_787


def sums(cost=0, charges=1, priced=1, conflicting=0):
    return Sums(charges, priced, conflicting, cost, None, None, charges, charges)


NONE = sums(charges=0, priced=0)


# ---- money


@pytest.mark.parametrize(
    ("microusd", "text"),
    [
        (0, "$0.00"), (1, "$0.000001"), (10, "$0.00001"), (10_000, "$0.01"), (123_456, "$0.123456"),
        (1_500_000, "$1.50"), (1_000_000_000_000, "$1,000,000.00"), (2**53 - 1, "$9,007,199,254.740991"),
        (10**40 + 1, f"${10**34:,}.000001"),
    ],
)  # fmt: skip
def test_an_amount_is_written_exactly(microusd, text):
    assert dollars(microusd) == text


@given(st.integers(min_value=0, max_value=2**80))
def test_nothing_of_an_amount_is_lost(microusd):
    digits = dollars(microusd).removeprefix("$").replace(",", "")
    whole, rest = digits.split(".")

    assert int(whole) * 1_000_000 + int(rest.ljust(6, "0")) == microusd
    assert Decimal(digits) >= 0


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(0, None, 0, 0), "no charge reported"),
        (Cost(1, None, 1, 0), "unknown, 1 charge without a price"),
        (Cost(2, None, 2, 0), "unknown, 2 charges without a price"),
        (Cost(1, "$0.00", 0, 0), "$0.00"),
        (Cost(3, "$1.00", 2, 0), "at least $1.00, 2 unknown"),
    ],
)
def test_every_state_of_a_cost_has_its_words(cost, text):
    assert cost.text == text


# ---- questions


@pytest.mark.parametrize(
    ("given_", "first", "last"),
    [
        ({}, TODAY - 29, TODAY),
        ({"days": "7"}, TODAY - 6, TODAY),
        ({"from": "1970-01-01", "to": "1970-01-01"}, 0, 0),
        ({"from": "1970-01-03", "to": "1970-01-04"}, 2, 3),
        ({"to": "1970-01-04"}, 0, 3),
        ({"from": date_of(TODAY - 3)}, TODAY - 3, TODAY),
        ({"from": date_of(TODAY + 9)}, TODAY + 9, TODAY + 9),
        ({"from": "9999-12-31", "to": "9999-12-31"}, 2_932_896, 2_932_896),
    ],
)
def test_a_range_is_the_last_days_or_from_date_to_date(given_, first, last):
    question = read_question(given_, today=TODAY)

    assert (question.first_day, question.last_day) == (first, last)
    assert question.parameters() == given_


@pytest.mark.parametrize(
    "given_",
    [{"from": "2026-13-01"}, {"from": "2026-W01-1"}, {"to": "٢٠٢٦-01-01"}, {"to": "1969-12-31"}, {"days": "31"},
     {"days": "٧"}, {"from": "2026-02-02", "to": "2026-02-01"}, {"from": "2000-01-01", "to": "2026-01-01"},
     {"demo": "yes"}, {"outcome": "OPEN"}, {"q": "x" * 129}],
    ids=str,
)  # fmt: skip
def test_a_question_that_cannot_be_is_refused_by_name(given_):
    with pytest.raises(MalformedError, match=rf"^({'|'.join(given_)}): "):
        read_question(given_, today=TODAY)


def test_demo_is_left_out_of_whatever_is_asked():
    scopes = ["demo", "local", "other"]

    assert read_question({}, today=TODAY).range(scopes).scopes == ("demo", "local", "other")
    assert read_question({"demo": "no"}, today=TODAY).range(scopes).scopes == ("local", "other")
    assert read_question({"scope": "demo", "demo": "no"}, today=TODAY).range(scopes).scopes == ()
    assert read_question({"scope": "unheard-of"}, today=TODAY).range(scopes).scopes == ()


# ---- the chart


def drawn(days, first_day, last_day):
    return costchart.draw(days, first_day=first_day, last_day=last_day)


def test_without_charges_there_is_no_chart():
    assert drawn([], 0, 29) is None


@pytest.mark.parametrize(("length", "days"), [(1, 1), (62, 1), (63, 7), (434, 7), (435, 30), (1_860, 30), (3_660, 90)])
def test_bars_hold_as_many_days_as_it_needs_for_them_to_be_told_apart(length, days):
    chart = drawn([DaySums(TODAY, sums(5), NONE)], TODAY - length + 1, TODAY)

    assert chart.days == days


@given(
    st.lists(st.tuples(st.integers(0, 3_659), st.integers(0, 2**70), st.integers(0, 2**70)), min_size=1, max_size=40,
             unique_by=lambda each: each[0]),
    st.integers(1, 3_660),
)  # fmt: skip
def test_whatever_the_amounts_everything_is_inside_the_picture(told, length):
    days = [DaySums(TODAY - ago, sums(first), sums(repeated)) for ago, first, repeated in told if ago < length]
    chart = drawn(sorted(days, key=lambda each: each.day), TODAY - length + 1, TODAY)
    if not days:
        assert chart is None
        return

    assert len(chart.bars) <= costchart.BARS_MOST
    for bar in chart.bars:
        assert chart.left <= bar.x
        assert bar.x + bar.width <= chart.right
        assert bar.repeated_y >= 0
        assert bar.first_y + bar.first_height == pytest.approx(chart.base, abs=0.2)
        assert bar.repeated_y + bar.repeated_height == pytest.approx(bar.first_y, abs=0.2)
    written = sum(int(re.sub(r"\D", "", amount(bar.whole.amount))) for bar in chart.bars)
    assert written == sum(each.first.cost_microusd + each.repeated.cost_microusd for each in days)


def amount(text):
    """Write an amount with all six digits after the point."""
    whole, _, rest = text.partition(".")
    return f"{whole}.{rest.ljust(6, '0')}"


def test_a_cost_of_zero_has_no_bar_and_one_that_is_unknown_has_a_mark():
    chart = drawn([DaySums(TODAY - 1, sums(0), NONE), DaySums(TODAY, sums(priced=0), NONE)], TODAY - 29, TODAY)

    assert [bar.first_height for bar in chart.bars] == [0, 0]
    assert [bar.whole.text for bar in chart.bars] == ["$0.00", "unknown, 1 charge without a price"]
    assert chart.has_unknown


def test_the_smallest_cost_is_seen_beside_the_largest():
    chart = drawn([DaySums(TODAY - 1, sums(1), NONE), DaySums(TODAY, sums(10**12), NONE)], TODAY - 29, TODAY)

    assert chart.bars[0].first_height > 1


# ---- cells


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\0=1", " =1", "  -x", "'=1", '"=1', "＝1", " ＝1", "＋1",
     "－1", "＠x", "\ufeff=1", "\u00a0=1", "-", '=HYPERLINK("http://x")', "\u200b=1", "\u2060=1", "﹦1", "﹢1", "﹣1",
     "﹫x", "−1"],
    ids=ascii,
)  # fmt: skip
def test_text_that_a_spreadsheet_may_run_stands_behind_an_apostrophe(text):
    # A line end or a tab begins a cell for some, so there the sign has its own apostrophe too.
    safe = f"'{text}" if text[0] not in "\t\r\n" else f"'{text[0]}'{text[1:]}"
    assert cell(text) == safe
    (row,) = list(csv.reader(io.StringIO(csv_bytes([], [[text]]).decode().partition("\r\n")[2], newline="")))
    assert row == [safe]


@pytest.mark.parametrize(
    "value",
    ["plain", "a=b", "2026-11-30T10:00:00Z", "flow-1", "a,b", 'say "x"', "a\nb", "", 0, -5, 2**70, None],
    ids=ascii,
)
def test_everything_else_stays_as_it_is(value):
    assert cell(value) == value


@pytest.mark.parametrize("separator", [";", "\t", "|", "\n", "\r\n"])
def test_no_cell_begins_with_a_formula_for_who_splits_at_something_else(separator):
    text = csv_bytes(["a", "b"], [[f"x{separator}=1+1", f'"{separator}=1']]).decode()

    for row in (line.split(separator) for line in text.splitlines()):
        assert not any(each.lstrip(" \"'").startswith("=") and not each.lstrip(' "').startswith("'") for each in row)


def test_a_table_is_read_back_as_it_was_written():
    rows = [["a,b", 'c"d', "e\r\nf", 7, None], ["", "Grüße", "😀", -1, 2**70]]

    read = list(csv.reader(io.StringIO(csv_bytes(["v", "w", "x", "y", "z"], rows).decode(), newline="")))

    assert read[0] == ["v", "w", "x", "y", "z"]
    assert read[1:] == [["" if value is None else str(value) for value in row] for row in rows]
