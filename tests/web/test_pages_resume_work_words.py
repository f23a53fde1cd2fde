"""Every reason and every refusal has words of its own, and the page chooses the right ones."""

from __future__ import annotations

import re

import pytest

from app.pages import wording
from app.pages.conflicts import CONFLICTS, GONE, UNEXPECTED
from app.pages.explanations import ALL_DONE, EXPLANATIONS, Control
from app.pages.situations import following, situation
from continuity import limits
from continuity.decisions.beginning import NEEDS_PERSON, Reason
from continuity.decisions.states import Mode, Outcome
from continuity.errors import CONFLICT_CODES
from continuity.services.controls import Controls
from continuity.services.deletion import Deletions
from tests import people
from tests.web.scenes import FINAL_QUERY, IDEMPOTENT, MAIL, PUBLISH, QUERY, Stage

ALL = [
    *(text for states in EXPLANATIONS.values() for text in states.values()),
    *(text for codes in CONFLICTS.values() for text in codes.values()),
    ALL_DONE, GONE, UNEXPECTED,
]  # fmt: skip
ON_NO_PAGE = {(Reason.ALREADY_ISSUED, "any")}
"""Only a worker is told this."""


@pytest.fixture
def stage(site):
    return Stage(site)


# ---- situations, made through the services


def review(stage):
    return stage.prepare()


def paused(stage):
    return stage.mail().pause()


def paused_uncertain(stage):
    scene = stage.mail(**QUERY)
    scene.lose()
    return scene.pause()


def capture(stage):
    scene = stage.mail()
    change_vault(stage, capture_mode="metadata")
    return scene


def done(stage):
    scene = stage.mail()
    scene.begin().succeed()
    return scene


def done_by_word(stage):
    scene = stage.mail()
    scene.lose()
    return scene.confirm(happened=True)


def stopped_unsent(stage):
    return stage.mail().stop()


def stopped_open(stage):
    scene = stage.mail()
    scene.lose()
    return scene.stop()


def refused(stage):
    scene = stage.mail()
    scene.begin().report("confirmed_refused", reason="no such address")
    return scene


def behind(stage):
    return stage.ready(PUBLISH, MAIL)


def behind_stopped(stage):
    return stage.ready(PUBLISH, MAIL).stop()


def running(stage):
    scene = stage.mail()
    scene.begin()
    return scene


def asking(stage):
    scene = stage.mail(**QUERY)
    scene.lose()
    scene.begin()
    return scene


def all_attempts_pending(stage):
    scene = stage.mail()
    for _ in range(limits.ATTEMPTS_PER_OPERATION):
        scene.begin().report("not_dispatched")
    return scene


def all_attempts_uncertain(stage):
    scene = stage.mail(**QUERY)
    for _ in range(limits.ATTEMPTS_PER_OPERATION):
        scene.lose()
    return scene


def all_changes_pending(stage):
    scene = stage.mail()
    while scene.view()["revision"] < limits.REVISIONS_PER_WORKFLOW - 1:
        scene.pause().enable()
    return scene


def all_changes_uncertain(stage):
    scene = stage.mail(**QUERY)
    scene.lose()
    while scene.view()["revision"] < limits.REVISIONS_PER_WORKFLOW - 1:
        scene.pause().enable()
    return scene


def late_after_word(stage):
    scene = stage.mail()
    attempt = scene.lose()
    scene.confirm(happened=False)
    attempt.succeed()
    return scene


def late_while_open(stage):
    scene = stage.mail(**QUERY)
    attempt = scene.lose()
    scene.begin().report("absent")
    attempt.succeed()
    return scene


def restored_pending(stage):
    scene = stage.mail()
    restore(stage)
    return scene


def restored_uncertain(stage):
    scene = stage.mail()
    scene.lose()
    restore(stage)
    return scene


def window_over(stage):
    scene = stage.mail(**IDEMPOTENT)
    scene.lose()
    stage.site.clock.advance(3_600)
    return scene


def silent(stage):
    scene = stage.mail()
    scene.lose()
    return scene


def host_unsure(stage):
    scene = stage.mail()
    scene.begin().report("unknown")
    return scene


def never_left(stage):
    scene = stage.mail()
    scene.begin().report("not_dispatched")
    return scene


def word_against(stage):
    scene = stage.mail()
    scene.lose()
    return scene.confirm(happened=False)


def repeatable(stage):
    scene = stage.mail(**IDEMPOTENT)
    scene.lose()
    return scene


def absence_final(stage):
    scene = stage.mail(**FINAL_QUERY)
    scene.lose()
    stage.site.clock.advance(60)
    scene.begin().report("absent")
    return scene


def to_ask(stage):
    scene = stage.mail(**QUERY)
    scene.lose()
    return scene


def to_ask_again(stage):
    scene = stage.mail(**QUERY)
    scene.lose()
    scene.begin().report("absent")
    return scene


SITUATIONS = {
    (Reason.DISABLED, "review"): (review, 0),
    (Reason.DISABLED, "paused"): (paused, 0),
    (Reason.DISABLED, "paused_uncertain"): (paused_uncertain, 0),
    (Reason.DISABLED, "capture"): (capture, 0),
    (Reason.SAVED_RECEIPT, "host"): (done, 0),
    (Reason.SAVED_RECEIPT, "person"): (done_by_word, 0),
    (Reason.ABANDONED, "unsent"): (stopped_unsent, 0),
    (Reason.ABANDONED, "open"): (stopped_open, 0),
    (Reason.REFUSED, "final"): (refused, 0),
    (Reason.EARLIER_UNFINISHED, "waiting"): (behind, 1),
    (Reason.EARLIER_UNFINISHED, "never"): (behind_stopped, 1),
    (Reason.IN_PROGRESS, "execute"): (running, 0),
    (Reason.IN_PROGRESS, "query"): (asking, 0),
    (Reason.ATTEMPT_LIMIT, "pending"): (all_attempts_pending, 0),
    (Reason.ATTEMPT_LIMIT, "uncertain"): (all_attempts_uncertain, 0),
    (Reason.REVISION_LIMIT, "pending"): (all_changes_pending, 0),
    (Reason.REVISION_LIMIT, "uncertain"): (all_changes_uncertain, 0),
    (Reason.LATE_RECEIPT, "pending"): (late_after_word, 0),
    (Reason.LATE_RECEIPT, "uncertain"): (late_while_open, 0),
    (Reason.RESTORED, "pending"): (restored_pending, 0),
    (Reason.RESTORED, "uncertain"): (restored_uncertain, 0),
    (Reason.WINDOW_EXPIRED, "uncertain"): (window_over, 0),
    (Reason.NEEDS_CONFIRMATION, "silent"): (silent, 0),
    (Reason.NEEDS_CONFIRMATION, "unknown"): (host_unsure, 0),
    (Reason.AUTHORIZED, "first"): (lambda stage: stage.mail(), 0),
    (Reason.AUTHORIZED, "never_left"): (never_left, 0),
    (Reason.AUTHORIZED, "attested"): (word_against, 0),
    (Reason.AUTHORIZED, "repeat"): (repeatable, 0),
    (Reason.AUTHORIZED, "absence"): (absence_final, 0),
    (Reason.AUTHORIZED, "ask"): (to_ask, 0),
    (Reason.AUTHORIZED, "ask_again"): (to_ask_again, 0),
}


def change_vault(stage, **values):
    people.change_vault(stage.site.wiring.store, stage.site.wiring.vault, **values)


def restore(stage):
    """Leave what a restored backup leaves: another epoch, and a time."""
    change_vault(stage, epoch=2, restored_at=stage.site.clock.now_us())


def test_every_reason_of_the_table_is_explained():
    assert set(EXPLANATIONS) == set(Reason)
    assert all(EXPLANATIONS.values())


def test_every_explanation_occurs():
    written = {(reason, state) for reason, states in EXPLANATIONS.items() for state in states}

    assert written - ON_NO_PAGE == set(SITUATIONS)


@pytest.mark.parametrize("expected", SITUATIONS, ids=lambda pair: f"{pair[0].name}-{pair[1]}")
def test_the_page_chooses_the_words_of_the_situation(stage, monkeypatch, expected):
    monkeypatch.setattr(limits, "ATTEMPTS_PER_OPERATION", 3)
    monkeypatch.setattr(limits, "REVISIONS_PER_WORKFLOW", 12)
    make, index = SITUATIONS[expected]

    view = make(stage).view()

    assert situation(view, index) == expected


@pytest.mark.parametrize("reason", sorted(NEEDS_PERSON))
def test_what_only_a_person_can_clear_names_a_control_and_stands_out(reason):
    for text in EXPLANATIONS[reason].values():
        assert text.tone == "warn"
        assert text.controls


def test_no_two_explanations_say_the_same():
    assert len({text.title for text in ALL}) == len(ALL)
    assert len({(text.happened, text.known, text.safe) for text in ALL}) == len(ALL)
    for text in ALL:
        assert all(sentence.endswith(".") for sentence in (text.happened, text.known, text.safe)), text.title


def codes_of(method) -> set[str]:
    """Return the 409 codes that the docstring of a service promises."""
    raised = re.search(r"ConflictError: (.*?)(?:\n\s+\w+Error:|\Z)", method.__doc__, flags=re.DOTALL)
    quoted = " ".join(re.findall(r"``([^`]+)``", raised[1]))
    return set(re.findall(r"[a-z_]+", quoted)) & CONFLICT_CODES


def test_every_refusal_of_a_control_is_explained():
    configure = codes_of(Controls.configure)

    assert set(CONFLICTS) == set(Control)
    assert set(CONFLICTS[Control.ENABLE]) == configure
    assert configure - {"capture_not_full", "clock_moved_backwards"} == set(CONFLICTS[Control.PAUSE])
    assert set(CONFLICTS[Control.STOP]) == codes_of(Controls.abandon)
    assert set(CONFLICTS[Control.CONFIRM]) == codes_of(Controls.confirm)
    # What the page adds: nothing is destroyed that its author has not seen.
    assert set(CONFLICTS[Control.DELETE]) == codes_of(Deletions.delete) | {"stale_revision"}


def test_what_a_workflow_waits_for_is_its_first_open_operation():
    assert following([{"status": "completed"}, {"status": "uncertain"}, {"status": "pending"}]) == 1
    assert following([{"status": "completed"}]) is None


@pytest.mark.parametrize(
    ("definition", "name", "said"),
    [
        ({"capability": "none"}, "Neither query nor idempotency key", "only a person can say"),
        ({"capability": "query"}, "Query", "That it knows nothing is no proof"),
        ({"capability": "query", "absence_final_after_seconds": 90}, "Query", "becomes final 1 min 30 s after"),
        (
            {"capability": "idempotent", "retention_seconds": 86_400},
            "Idempotency key",
            "AtMem allows repeats for the first 23 h 59 min of it",
        ),
        (
            {"capability": ["idempotent", "query"], "retention_seconds": 3_600},
            "Query and idempotency key",
            "can be asked what happened",
        ),
    ],
)
def test_a_capability_is_told_in_words_with_its_times(definition, name, said):
    words = wording.capability({"timeout_seconds": 30, "retention_seconds": 0, **definition})

    assert words.name == name
    assert said in words.sentence


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("mode", list(Mode))
def test_every_outcome_and_mode_has_a_name_and_a_sentence(outcome, mode):
    assert wording.OUTCOMES[outcome].sentence.endswith(".")
    assert wording.MODES[mode].sentence.endswith(".")
    assert wording.outcome({"mode": mode, "outcome": outcome}, is_live=False) is wording.OUTCOMES[outcome]


def test_an_attempt_without_a_receipt_is_told_by_its_lease_and_mode():
    assert wording.outcome({"mode": "execute"}, is_live=True) is wording.UNDER_WAY
    assert wording.outcome({"mode": "execute"}, is_live=False) is wording.NO_RECEIPT
    assert wording.outcome({"mode": "execute"}, is_live=False, happened=True) is wording.AFFIRMED
    assert wording.outcome({"mode": "execute"}, is_live=False, happened=False) is wording.DENIED
    assert wording.outcome({"mode": "query"}, is_live=False) is wording.ASKED_IN_VAIN


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.04, "0 s"), (0.42, "0.4 s"), (1, "1 s"), (59.6, "1 min"), (150, "2 min 30 s"),
     (86_400, "1 d"), (90_061, "1 d 1 h"), (3_601, "1 h 1 s")],
)  # fmt: skip
def test_a_span_of_time_is_told_in_at_most_two_units(seconds, text):
    assert wording.span(seconds) == text


def test_counts_are_exact_to_a_thousand_and_say_when_not():
    assert [wording.count(number, 1_000) for number in (0, 999, 1_000, 1_001)] == ["0", "999", "1,000", "1,000+"]
