"""docs/operations.md says what the tables of the decision core say."""

import re
import runpy
from pathlib import Path

import pytest

from continuity.decisions.beginning import ROWS, Reason
from continuity.decisions.phases import Phase
from continuity.decisions.states import TRANSITIONS, Outcome

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "operations.md").read_text(encoding="utf-8")


def section(heading):
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_the_generated_parts_are_up_to_date():
    generate = runpy.run_path(str(DOCS / "generate.py"))

    assert generate["PART"].findall(PAGE)
    assert generate["regenerate"](PAGE) == PAGE, "run: python docs/generate.py"


def test_the_picture_has_every_arrow_of_the_table():
    picture = section("States of an operation")

    for status, steps in TRANSITIONS.items():
        for target in set(steps.values()):
            assert f"{status} --> {target}: " in picture


def test_every_row_stands_in_the_table():
    table = section("begin: the decision table")

    assert [f"`{row.reason}`" in table and row.when in table for row in ROWS] == [True] * len(ROWS)


@pytest.mark.parametrize(
    ("heading", "words"),
    [("Reasons", Reason), ("Receipts", Outcome), ("Phases", Phase)],
    ids=["reasons", "receipts", "phases"],
)
def test_every_word_is_explained_once(heading, words):
    explained = re.findall(r"^\| `(\w+)` \|", section(heading), re.MULTILINE)

    assert sorted(explained) == sorted(word.value for word in words)
