"""begin: every row of the decision table alone, before each later row, and at its boundaries."""

import itertools
from dataclasses import dataclass, field, replace

import pytest

from continuity.decisions.beginning import (
    NEEDS_PERSON,
    ROWS,
    Action,
    Question,
    Reason,
    absence_final_from_us,
    decide_begin,
    window_end_us,
)
from continuity.decisions.clocks import Reading
from continuity.decisions.model import Standing
from continuity.decisions.states import Mode, Outcome, Status
from tests.unit.cases import (
    ABSENCE,
    BOTH,
    IDEMPOTENT,
    LANDING,
    LEASE,
    NONE,
    QUERY,
    RETENTION,
    T0,
    TIMEOUT,
    S,
    answer,
    make_attempt,
    make_ended,
    make_late,
    make_operation,
    make_vault,
    make_workflow,
)

NOW = T0 + 300 * S


@dataclass
class Situation:
    """An uncertain operation of a destination that can do nothing, until ingredients change it."""

    attempts: list = field(default_factory=lambda: [make_ended()])
    operation: dict = field(default_factory=lambda: {"status": Status.UNCERTAIN})
    workflow: dict = field(default_factory=dict)
    vault: dict = field(default_factory=dict)
    attempt_id: str = "new"
    earlier: tuple = ()

    def question(self):
        operation = make_operation(attempts=self.attempts, ordinal=len(self.earlier), **self.operation)
        own = Standing(operation.status, 1, operation.epoch)
        head = make_workflow(standings=(*self.earlier, own), **self.workflow)
        return Question(head, operation, make_vault(**self.vault), self.attempt_id, NOW, Reading(NOW))


def _limit(s):
    padding = [make_ended(f"p{n}", Outcome.NOT_DISPATCHED, started_us=T0 - S) for n in range(100 - len(s.attempts))]
    s.attempts = padding + s.attempts


def _pending(s):
    s.operation["status"] = Status.PENDING
    s.attempts = [replace(a, outcome=Outcome.NOT_DISPATCHED) for a in s.attempts]


def _absent(s):
    s.operation.update(can_query=True, absence_us=ABSENCE)
    s.attempts = [*s.attempts, make_ended("q1", Outcome.ABSENT, mode=Mode.QUERY, started_us=NOW - 10 * S)]


# name, action, reason, what makes the row apply; in the order of operations.md.
INGREDIENTS = [
    ("disabled", "blocked", "workflow_disabled_or_capture_unavailable", lambda s: s.workflow.update(is_enabled=False)),
    ("completed", "completed", "saved_receipt", lambda s: s.operation.update(status=Status.COMPLETED)),
    ("abandoned", "blocked", "abandoned", lambda s: s.operation.update(status=Status.ABANDONED)),
    ("refused", "blocked", "refused_by_destination", lambda s: s.operation.update(status=Status.REFUSED)),
    ("earlier", "blocked", "earlier_work_unfinished",
     lambda s: setattr(s, "earlier", (Standing(Status.UNCERTAIN, 1, 0),))),
    ("issued", "blocked", "attempt_already_issued", lambda s: setattr(s, "attempt_id", "a1")),
    ("live", "blocked", "attempt_in_progress",
     lambda s: s.attempts.append(make_attempt("live", started_us=NOW - S, lease_until_us=NOW + 1))),
    ("limit", "blocked", "attempt_limit_reached", _limit),
    ("revisions", "blocked", "workflow_revision_limit_reached", lambda s: s.workflow.update(revision=1_999)),
    ("late", "blocked", "late_receipt_needs_decision", lambda s: s.operation.update(late=(make_late(),))),
    ("restored", "blocked", "restored_needs_decision", lambda s: s.vault.update(epoch=1)),
    ("pending", "execute", "authorized_attempt", _pending),
    ("repeat", "execute", "authorized_attempt", lambda s: s.operation.update(IDEMPOTENT)),
    ("absent", "execute", "authorized_attempt", _absent),
    ("query", "query", "authorized_attempt", lambda s: s.operation.update(can_query=True)),
    ("window", "blocked", "idempotency_window_expired",
     lambda s: s.operation.update(is_idempotent=True, retention_us=RETENTION // 2)),
    ("none", "blocked", "needs_confirmation", lambda s: None),
]  # fmt: skip
NAMES = [name for name, *_ in INGREDIENTS]
STATUSES = {"completed", "abandoned", "refused", "pending"}
UNCERTAIN_ONLY = {"repeat", "absent", "query", "window", "none"}
# Two rows that no state satisfies together: other states, another last attempt, another retention.
IMPOSSIBLE = (
    {frozenset(pair) for pair in itertools.combinations(STATUSES, 2)}
    | {frozenset(pair) for pair in itertools.product(STATUSES, UNCERTAIN_ONLY)}
    | {frozenset(pair) for pair in itertools.product({"completed", "abandoned", "refused"}, {"live"})}
    | {frozenset(pair) for pair in itertools.product({"completed", "abandoned", "refused"}, {"restored"})}
    | {frozenset({"live", "absent"}), frozenset({"repeat", "window"})}
)


def situation(*names):
    made = Situation()
    chosen = [ingredient for ingredient in INGREDIENTS if ingredient[0] in names]
    # What replaces attempts comes before what adds to them.
    for _, _, _, change in sorted(
        chosen, key=lambda item: {"pending": 0, "absent": 1, "live": 2, "limit": 3}.get(item[0], 4)
    ):
        change(made)
    return made.question()


@pytest.mark.parametrize(("name", "action", "reason"), [item[:3] for item in INGREDIENTS])
def test_a_row_alone_decides(name, action, reason):
    verdict = decide_begin(situation(name))

    assert (verdict.action, verdict.reason) == (action, reason)


def test_the_table_has_one_row_for_each_row_of_the_design():
    assert [(row.action.value, row.reason.value) for row in ROWS] == [item[1:3] for item in INGREDIENTS]


@pytest.mark.parametrize(
    ("first", "second"), [pair for pair in itertools.combinations(NAMES, 2) if frozenset(pair) not in IMPOSSIBLE]
)
def test_of_two_rows_that_apply_the_first_decides(first, second):
    question = situation(first, second)

    for name in (first, second):
        assert ROWS[NAMES.index(name)].applies(question), f"{name} was to apply too"
    expected = INGREDIENTS[NAMES.index(first)]
    verdict = decide_begin(question)
    assert (verdict.action, verdict.reason) == expected[1:3]


@pytest.mark.parametrize("pair", sorted(IMPOSSIBLE, key=sorted), ids=lambda pair: "-".join(sorted(pair)))
def test_rows_called_impossible_together_are(pair):
    question = situation(*pair)

    assert sum(ROWS[NAMES.index(name)].applies(question) for name in pair) < 2


@pytest.mark.parametrize("over", [{"is_enabled": False}, {"is_deleting": True}])
def test_a_disabled_or_deleting_workflow_grants_nothing(over):
    operation = make_operation()

    assert answer(operation, now=NOW, workflow=make_workflow(operation, **over)) == (
        "blocked", "workflow_disabled_or_capture_unavailable",
    )  # fmt: skip


def test_reduced_capture_grants_nothing():
    assert answer(make_operation(), now=NOW, vault=make_vault(is_capture_full=False))[1] == Reason.DISABLED


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.COMPLETED])
def test_earlier_work_in_any_state_but_completed_blocks(status):
    operation = make_operation(ordinal=2)
    done, own = Standing(Status.COMPLETED, 1, 0), Standing(Status.PENDING, 1, 0)

    blocked = make_workflow(standings=(done, Standing(status, 1, 0), own))
    free = make_workflow(standings=(done, done, own))

    assert answer(operation, now=NOW, workflow=blocked) == ("blocked", "earlier_work_unfinished")
    assert answer(operation, now=NOW, workflow=free) == ("execute", "authorized_attempt")


def test_an_earlier_operation_may_be_asked_for_while_a_later_one_waits():
    operation = make_operation(ordinal=0)
    head = make_workflow(standings=(Standing(Status.PENDING, 1, 0), Standing(Status.PENDING, 1, 0)))

    assert answer(operation, now=NOW, workflow=head)[0] == "execute"


@pytest.mark.parametrize(("past_us", "reason"), [(-1, "attempt_in_progress"), (0, "needs_confirmation")])
def test_a_lease_lives_until_the_very_microsecond_of_its_end(past_us, reason):
    operation = make_operation(Status.UNCERTAIN, [make_attempt()])

    assert answer(operation, now=T0 + LEASE + past_us) == ("blocked", reason)


def test_an_attempt_that_ended_holds_no_lease():
    operation = make_operation(Status.UNCERTAIN, [make_ended()])

    assert answer(operation, now=T0 + 10 * S) == ("blocked", "needs_confirmation")


@pytest.mark.parametrize(("used", "expected"), [(99, "execute"), (100, "blocked")])
def test_the_hundredth_attempt_is_granted_and_the_next_is_not(used, expected):
    attempts = [make_ended(f"a{n}", Outcome.NOT_DISPATCHED) for n in range(used)]

    assert answer(make_operation(attempts=attempts), now=NOW)[0] == expected


@pytest.mark.parametrize(("revision", "expected"), [(1_998, "execute"), (1_999, "blocked"), (2_000, "blocked")])
def test_a_grant_needs_two_revisions_so_that_its_receipt_fits(revision, expected):
    operation = make_operation()

    assert answer(operation, now=NOW, workflow=make_workflow(operation, revision=revision))[0] == expected


@pytest.mark.parametrize(
    ("over", "decided", "expected"),
    [
        ({}, 0, "late_receipt_needs_decision"),
        ({}, 1, "needs_confirmation"),
        ({"is_proved": False, "is_extra": True}, 0, "needs_confirmation"),
        ({"is_extra": True}, 0, "late_receipt_needs_decision"),
        ({"outcome": Outcome.UNKNOWN}, 0, "needs_confirmation"),
        ({"outcome": Outcome.REFUSED}, 0, "needs_confirmation"),
        ({"outcome": Outcome.ABSENT}, 0, "needs_confirmation"),
    ],
)
def test_only_a_proved_undecided_late_success_stops_dispatch(over, decided, expected):
    operation = make_operation(Status.UNCERTAIN, [make_ended()], late=(make_late(**over),), late_decided=decided)

    assert answer(operation, now=NOW) == ("blocked", expected)


def test_a_late_success_after_the_decision_stops_dispatch_again():
    late = (make_late(), make_late(digest="other", is_extra=True))

    assert answer(make_operation(late=late, late_decided=1), now=NOW) == ("blocked", "late_receipt_needs_decision")


@pytest.mark.parametrize(
    ("own", "vault", "expected"), [(0, 1, "blocked"), (1, 1, "execute"), (3, 3, "execute"), (1, 3, "blocked")]
)
def test_after_a_restore_every_open_operation_waits_for_its_own_confirm(own, vault, expected):
    operation = make_operation(epoch=own)

    assert answer(operation, now=NOW, vault=make_vault(epoch=vault))[0] == expected


def test_the_window_of_idempotency_ends_where_a_repeat_could_outlive_the_key():
    operation = make_operation(Status.UNCERTAIN, [make_ended()], **IDEMPOTENT)
    # now + timeout + 30 s < first dispatch + retention
    end = T0 + RETENTION - TIMEOUT - 30 * S

    assert window_end_us(operation) == end
    assert answer(operation, now=end - 1) == ("execute", "authorized_attempt")
    assert answer(operation, now=end) == ("blocked", "idempotency_window_expired")


def test_after_the_window_a_destination_that_can_do_both_is_queried():
    operation = make_operation(Status.UNCERTAIN, [make_ended()], **BOTH)
    end = T0 + RETENTION - LANDING

    assert answer(operation, now=end - 1) == ("execute", "authorized_attempt")
    assert answer(operation, now=end) == ("query", "authorized_attempt")


def test_the_window_is_not_moved_by_repeats_renewals_or_an_attestation():
    again = make_ended("a2", started_us=T0 + 400 * S)
    operation = make_operation(Status.UNCERTAIN, [make_ended(is_attested=True, renewals=10), again], **IDEMPOTENT)

    assert window_end_us(operation) == T0 + RETENTION - LANDING


@pytest.mark.parametrize("capability", [NONE, QUERY])
def test_there_is_no_window_without_an_idempotent_destination(capability):
    assert window_end_us(make_operation(Status.UNCERTAIN, [make_ended()], **capability)) is None


def absent_after(granted_us, *executes, absence_us=ABSENCE, **over):
    query = make_ended("q1", Outcome.ABSENT, mode=Mode.QUERY, started_us=granted_us, ended_us=granted_us + S)
    return make_operation(Status.UNCERTAIN, [*executes, query], **{**QUERY, "absence_us": absence_us, **over})


@pytest.mark.parametrize(("past_us", "action"), [(-1, "query"), (0, "query"), (1, "execute")])
@pytest.mark.parametrize(
    ("execute", "landed_us"),
    [
        (make_ended(), T0 + LANDING),
        (make_ended(started_us=T0 + 7), T0 + 7 + LANDING),
        (make_ended(lease_until_us=T0 + 10 * LEASE), T0 + LANDING),
        (make_attempt(), T0 + LEASE),
        (make_attempt(lease_until_us=T0 + 900 * S, renewals=9), T0 + 900 * S),
        (make_attempt(lease_until_us=T0 + LANDING - 5), T0 + LANDING),
    ],
)
def test_absence_is_final_only_when_the_query_was_granted_later_than_the_declared_seconds(
    execute, landed_us, past_us, action
):
    operation = absent_after(landed_us + ABSENCE + past_us, execute)

    assert absence_final_from_us(operation) == landed_us + ABSENCE
    assert answer(operation, now=T0 + 5_000 * S) == (action, "authorized_attempt")


def test_absence_counts_from_the_last_of_all_unresolved_executes():
    executes = [
        make_ended("a1"),
        make_ended("a2", started_us=T0 + 130 * S),
        make_ended("a3", Outcome.REFUSED, started_us=T0 + 900 * S),
    ]

    assert absence_final_from_us(absent_after(T0 + 2_000 * S, *executes)) == T0 + 130 * S + LANDING + ABSENCE


def test_resolved_and_attested_executes_do_not_hold_absence_back():
    executes = [
        make_ended("a1"),
        make_ended("a2", Outcome.NOT_DISPATCHED, started_us=T0 + 500 * S),
        make_ended("a3", is_attested=True, started_us=T0 + 600 * S),
    ]

    assert absence_final_from_us(absent_after(T0 + 2_000 * S, *executes)) == T0 + LANDING + ABSENCE


def test_absence_is_never_final_unless_the_workflow_says_so():
    operation = absent_after(T0 + 10**6 * S, make_ended(), absence_us=None)

    assert absence_final_from_us(operation) is None
    assert answer(operation, now=T0 + 10**7 * S) == ("query", "authorized_attempt")


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, None])
def test_a_query_that_did_not_end_absent_proves_nothing(outcome):
    query = make_attempt("q1", mode=Mode.QUERY, started_us=T0 + 900 * S, lease_until_us=T0 + 1_020 * S)
    if outcome is not None:
        query = replace(query, ended_us=T0 + 901 * S, outcome=outcome)
    operation = make_operation(Status.UNCERTAIN, [make_ended(), query], **QUERY, absence_us=ABSENCE)

    assert answer(operation, now=T0 + 5_000 * S)[0] == "query"


def test_an_absence_followed_by_another_attempt_proves_nothing():
    operation = absent_after(T0 + 900 * S, make_ended())
    operation = replace(operation, attempts=(*operation.attempts, make_ended("a2", started_us=T0 + 910 * S)))

    assert answer(operation, now=T0 + 5_000 * S)[0] == "query"


@pytest.mark.parametrize(("past_us", "action"), [(-1, "query"), (0, "execute")])
def test_after_a_forward_step_absence_needs_a_query_granted_when_the_quiet_time_is_over(past_us, action):
    # The step made the attempt look older than it is: what a query saw before 120 s + s have passed may be too early.
    stepped = T0 + 4_000 * S
    operation = absent_after(stepped + 120 * S + ABSENCE + past_us, make_ended())

    assert answer(operation, now=T0 + 9_000 * S, stepped=stepped) == (action, "authorized_attempt")


def test_for_a_while_after_a_forward_step_an_older_absence_grants_nothing():
    operation = absent_after(T0 + 3_000 * S, make_ended())
    stepped = T0 + 4_000 * S

    for now in (stepped, stepped + 120 * S + ABSENCE - 1):
        assert answer(operation, now=now, stepped=stepped) == ("query", "authorized_attempt")
    assert answer(operation, now=T0 + 4_000 * S) == ("execute", "authorized_attempt")


def test_a_forward_step_does_not_stop_what_needs_no_absence():
    stepped = NOW - S

    assert answer(make_operation(), now=NOW, stepped=stepped)[0] == "execute"
    repeat = make_operation(Status.UNCERTAIN, [make_ended()], **IDEMPOTENT)
    assert answer(repeat, now=NOW, stepped=stepped)[0] == "execute"


def test_only_grants_have_a_mode():
    modes = {row.action: None for row in ROWS}
    for row in ROWS:
        verdict = decide_begin(situation(NAMES[ROWS.index(row)]))
        modes[row.action] = verdict.mode

    assert modes == {
        Action.EXECUTE: Mode.EXECUTE, Action.QUERY: Mode.QUERY, Action.COMPLETED: None, Action.BLOCKED: None,
    }  # fmt: skip


def test_reasons_that_only_a_person_can_clear():
    assert {reason.value for reason in NEEDS_PERSON} == {
        "attempt_limit_reached", "workflow_revision_limit_reached", "late_receipt_needs_decision",
        "restored_needs_decision", "idempotency_window_expired", "needs_confirmation",
    }  # fmt: skip
