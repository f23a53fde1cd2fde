"""docs/threads.md says what the tables of threads say, with the right numbers."""

import re
import runpy
from pathlib import Path

import pytest

from continuity.decisions.threads import bounds, schemas
from continuity.decisions.threads.changes import WORDS
from continuity.decisions.threads.states import RUN_STEPS, TABLE, Refused
from continuity.errors import CONFLICT_CODES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "threads.md").read_text(encoding="utf-8")


def section(heading):
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_the_generated_parts_are_up_to_date():
    generate = runpy.run_path(str(DOCS / "generate.py"))

    assert len(generate["PART"].findall(PAGE)) == 3
    assert generate["regenerate"](PAGE) == PAGE, "run: python docs/generate.py"


def test_the_picture_has_every_arrow_of_a_run():
    picture = section("States of a run")

    for state, steps in RUN_STEPS.items():
        for step, target in steps.items():
            assert re.search(rf"{state} --> {target}: .*{re.escape(step.value)}", picture)


def test_every_situation_and_event_stands_in_the_tables():
    table = section("What every event does")

    for situation, outcomes in TABLE.items():
        assert len(re.findall(rf"^\| {re.escape(situation.value)} \|", table, re.MULTILINE)) == 2
        for event, outcome in outcomes.items():
            assert f" {event.value} |" in table
            assert not isinstance(outcome, Refused) or f"`{outcome.code}`" in table


def test_every_refusal_has_words_and_is_a_conflict():
    codes = {
        outcome.code for outcomes in TABLE.values() for outcome in outcomes.values() if isinstance(outcome, Refused)
    }

    assert codes <= WORDS.keys() <= CONFLICT_CODES


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("claim, heartbeat | {} s, every {} s", (bounds.CLAIM_S, bounds.HEARTBEAT_S)),
        ("output | {} KiB", (bounds.RECORD_BYTES // 1024,)),
        ("one write | {}", (bounds.RECORDS_PER_WRITE,)),
        ("together | {:,} characters", (bounds.MESSAGE_CHARS,)),
        ("of a thread | {} KiB", (bounds.STATE_BYTES // 1024,)),
        ("not ended | {}", (bounds.OPEN_ITEMS,)),
        ("follow-ups | {} each", (bounds.STEERS,)),
        ("follow-ups | {} each", (bounds.FOLLOW_UPS,)),
        ("end with | {}", (bounds.REQUESTS_PER_WAIT,)),
        ("older messages | {} records, {} messages", (bounds.JOURNAL_PAGE, bounds.HISTORY_PAGE)),
        ("newest {} messages", (bounds.SNAPSHOT_MESSAGES,)),
        ("newest {} runs", (bounds.SNAPSHOT_RUNS,)),
        ("for {} minutes", (bounds.CURSOR_S // 60,)),
    ],
)
def test_every_number_is_the_one_that_is_kept_to(words, number):
    assert words.format(*number) in PAGE


def test_every_keyword_of_replies_is_listed():
    listed = section("Replies")

    for keyword in schemas._KEYWORDS:
        assert keyword in listed or re.sub(r"^m(in|ax)", "", keyword) in listed, keyword
