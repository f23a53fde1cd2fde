"""People's controls: what each refuses, at its boundary, and what it leaves behind."""

import itertools
from dataclasses import replace

import pytest

from continuity.decisions.clocks import Reading
from continuity.decisions.controls import (
    absence_can_be_attested_from_us,
    decide_abandon,
    decide_confirm,
    decide_delete,
    decide_enable,
    decide_pause,
    require_revision,
)
from continuity.decisions.events import WorkflowDeleting, evolve, evolve_workflow
from continuity.decisions.model import Standing
from continuity.decisions.states import FINAL, Mode, Outcome, Status
from continuity.errors import ConflictError
from tests.unit.cases import (
    ABSENCE,
    IDEMPOTENT,
    LANDING,
    LEASE,
    QUERY,
    T0,
    S,
    answer,
    grant,
    make_attempt,
    make_ended,
    make_late,
    make_operation,
    make_vault,
    make_workflow,
)

LATER = T0 + 1_000 * S


def code_of(decide, *args, **kwargs):
    with pytest.raises(ConflictError) as refusal:
        decide(*args, **kwargs)
    return refusal.value.code


def confirm(operation, *, happened, at=LATER, workflow=None, vault=None, reading=None, late_receipts=None):
    return decide_confirm(
        make_workflow(operation) if workflow is None else workflow, operation, vault or make_vault(),
        reading or Reading(at), happened=happened,
        late_receipts=len(operation.late) if late_receipts is None else late_receipts, reason="I looked",
        actor="user:1", at_us=at, digest="attested" if happened else None,
    )  # fmt: skip


def abandon(operation, *, at=LATER, workflow=None):
    head = make_workflow(operation) if workflow is None else workflow
    return decide_abandon(head, operation, actor="user:1", reason="not wanted", at_us=at)


@pytest.mark.parametrize("seen", [4, 6, 0])
def test_a_control_bound_to_another_revision_is_refused(seen):
    assert code_of(require_revision, make_workflow(revision=5), seen) == "stale_revision"


@pytest.mark.parametrize("seen", [5, None])
def test_a_control_that_saw_this_revision_or_needs_none_goes_on(seen):
    require_revision(make_workflow(revision=5), seen)


# Enable and pause


def test_enabling_takes_one_revision_and_is_remembered():
    head = make_workflow(make_operation(), is_enabled=False, was_enabled=False)

    event = decide_enable(head, make_vault(), actor="user:1", at_us=LATER)
    enabled = evolve_workflow(head, event)

    assert (enabled.is_enabled, enabled.was_enabled, enabled.revision) == (True, True, head.revision + 1)
    assert enabled.clock_high_water_us == LATER


def test_enabling_or_pausing_twice_changes_nothing():
    assert decide_enable(make_workflow(), make_vault(), actor="u", at_us=LATER) is None
    assert decide_pause(make_workflow(is_enabled=False), actor="u", at_us=LATER) is None


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.ABANDONED, Status.REFUSED])
def test_pausing_what_is_finished_changes_nothing(status):
    head = make_workflow(standings=(Standing(status, 1, 0),))

    assert decide_pause(head, actor="u", at_us=LATER) is None


@pytest.mark.parametrize(
    ("statuses", "is_of_use"),
    [
        ([Status.ABANDONED], False), ([Status.REFUSED, Status.PENDING], False),
        ([Status.REFUSED, Status.COMPLETED], True),
        ([Status.COMPLETED], True), ([Status.COMPLETED, Status.ABANDONED], True), ([Status.PENDING], True),
    ],
)  # fmt: skip
def test_enabling_what_is_finished_does_something_only_where_a_saved_receipt_can_be_had(statuses, is_of_use):
    head = make_workflow(standings=tuple(Standing(status, 1, 0) for status in statuses), is_enabled=False)

    assert (decide_enable(head, make_vault(), actor="u", at_us=LATER) is not None) is is_of_use


def test_a_pause_stops_dispatch_and_is_undone_by_enable_alone():
    operation = make_operation()
    head = make_workflow(operation)

    paused = evolve_workflow(head, decide_pause(head, actor="user:1", at_us=LATER))
    again = evolve_workflow(paused, decide_enable(paused, make_vault(), actor="user:1", at_us=LATER))

    assert (paused.is_enabled, paused.was_enabled, paused.revision) == (False, True, head.revision + 1)
    assert answer(operation, now=LATER, workflow=paused)[1] == "workflow_disabled_or_capture_unavailable"
    assert answer(operation, now=LATER, workflow=again)[0] == "execute"


def test_enabling_needs_full_capture():
    head, vault = make_workflow(make_operation(), is_enabled=False), make_vault(is_capture_full=False)

    assert code_of(decide_enable, head, vault, actor="u", at_us=LATER) == "capture_not_full"


@pytest.mark.parametrize(("revision", "is_refused"), [(1_999, False), (2_000, True)])
def test_enabling_has_no_headroom_beyond_the_revisions(revision, is_refused):
    head = make_workflow(make_operation(), is_enabled=False, revision=revision)

    if is_refused:
        assert code_of(decide_enable, head, make_vault(), actor="u", at_us=LATER) == "workflow_revision_limit_reached"
    else:
        assert decide_enable(head, make_vault(), actor="u", at_us=LATER) is not None


@pytest.mark.parametrize("operations", [1, 3, 200])
def test_pause_stop_and_confirm_share_a_headroom_of_one_each_operation_and_two(operations):
    operation = make_operation()
    standings = (Standing(Status.PENDING, 1, 0),) * operations
    last = make_workflow(standings=standings, revision=2_000 + operations + 1)
    over = make_workflow(standings=standings, revision=2_000 + operations + 2)

    assert decide_pause(last, actor="u", at_us=LATER)
    assert abandon(operation, workflow=last)
    assert confirm(operation, happened=True, workflow=last)
    assert code_of(decide_pause, over, actor="u", at_us=LATER) == "workflow_revision_limit_reached"
    assert code_of(abandon, operation, workflow=over) == "workflow_revision_limit_reached"
    assert code_of(confirm, operation, happened=True, workflow=over) == "workflow_revision_limit_reached"


# Stop this work


@pytest.mark.parametrize("status", Status)
def test_only_an_open_operation_can_be_stopped(status):
    operation = make_operation(status, [make_ended()])

    if status in FINAL:
        assert code_of(abandon, operation) == "operation_final"
        return
    head, stopped = evolve(make_workflow(operation), operation, abandon(operation), seq=9)
    assert stopped.status is Status.ABANDONED
    assert (head.revision, head.standings[0].status) == (6, Status.ABANDONED)
    assert answer(stopped, now=LATER, workflow=head) == ("blocked", "abandoned")


@pytest.mark.parametrize("decide", [abandon, lambda o, at: confirm(o, happened=True, at=at)], ids=["stop", "confirm"])
@pytest.mark.parametrize("mode", Mode)
def test_nothing_is_stopped_or_confirmed_until_the_very_end_of_a_lease(decide, mode):
    attempts = [make_ended("a0", started_us=T0 - 200 * S), make_attempt(mode=mode)]
    operation = make_operation(Status.UNCERTAIN, attempts)

    assert code_of(decide, operation, at=T0 + LEASE - 1) == "lease_live"
    assert decide(operation, at=T0 + LEASE)


def test_what_depends_on_stopped_work_stays_blocked():
    first, second = make_operation(ordinal=0), make_operation(ordinal=1)
    head = make_workflow(first, second)

    head, _ = evolve(head, first, abandon(first, workflow=head), seq=9)

    assert answer(second, now=LATER, workflow=head) == ("blocked", "earlier_work_unfinished")
    assert head.is_finished
    assert not head.is_unfinished_work


# Confirm outcome


@pytest.mark.parametrize(("status", "happened"), list(itertools.product(Status, [True, False])))
def test_a_confirm_does_what_the_design_says(status, happened):
    operation = make_operation(status, [make_ended(), make_attempt("a2")], late=(make_late(),))
    head, vault = make_workflow(operation), make_vault(epoch=4)

    if status in FINAL:
        assert code_of(confirm, operation, happened=happened) == "operation_final"
        return
    event = confirm(operation, happened=happened, vault=vault)
    new_head, new = evolve(head, operation, event, seq=9)

    assert event.digest == ("attested" if happened else None)
    assert new.status is (Status.COMPLETED if happened else Status.PENDING)
    assert all(attempt.is_attested for attempt in new.attempts)
    assert not any(attempt.is_unresolved for attempt in new.attempts)
    assert not new.has_undecided_success
    assert (new.late_decided, new.epoch, new.first_dispatch_us) == (1, 4, operation.first_dispatch_us)
    assert new_head.standings[0] == Standing(new.status, 9, 4)
    assert new_head.revision == head.revision + 1
    expected = ("completed", "saved_receipt") if happened else ("execute", "authorized_attempt")
    assert answer(new, now=LATER, workflow=new_head, vault=vault) == expected


def test_a_confirm_that_it_did_not_happen_allows_exactly_one_further_execute():
    operation = make_operation(Status.UNCERTAIN, [make_ended()])
    head, operation = evolve(make_workflow(operation), operation, confirm(operation, happened=False), seq=9)

    assert answer(operation, now=LATER, workflow=head)[0] == "execute"
    head, operation = grant(head, operation, "a2", at=LATER)

    assert answer(operation, now=LATER + LEASE, workflow=head) == ("blocked", "needs_confirmation")


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("seen", [0, 2, 99])
def test_a_confirm_whose_author_saw_other_late_receipts_is_refused(seen, happened):
    operation = make_operation(Status.UNCERTAIN, [make_ended()], late=(make_late(),))

    assert code_of(confirm, operation, happened=happened, late_receipts=seen) == "stale_revision"


@pytest.mark.parametrize("over", [{"is_proved": False, "is_extra": True}, {"outcome": Outcome.UNKNOWN}])
def test_late_receipts_of_every_kind_count(over):
    operation = make_operation(Status.UNCERTAIN, [make_ended()], late=(make_late(**over),))

    assert code_of(confirm, operation, happened=True, late_receipts=0) == "stale_revision"
    assert confirm(operation, happened=True, late_receipts=1)


@pytest.mark.parametrize(
    ("attempts", "from_us"),
    [
        ([make_ended()], T0 + LANDING),
        ([make_ended(lease_until_us=T0 + 10 * LEASE)], T0 + LANDING),
        ([make_ended(), make_ended("a2", started_us=T0 + 7)], T0 + 7 + LANDING),
        ([make_ended("a2", started_us=T0 + 7), make_ended()], T0 + 7 + LANDING),
        # "of the execute attempts": of all of them, whatever their receipts said.
        ([make_ended(), make_ended("a2", Outcome.NOT_DISPATCHED, started_us=T0 + S)], T0 + S + LANDING),
        ([make_ended(), make_ended("q1", mode=Mode.QUERY, started_us=T0 + 500 * S)], T0 + LANDING),
    ],
)
def test_it_did_not_happen_is_refused_while_an_effect_may_land(attempts, from_us):
    operation = make_operation(Status.UNCERTAIN, attempts)

    assert absence_can_be_attested_from_us(operation, make_vault(), Reading(LATER)) == from_us
    assert code_of(confirm, operation, happened=False, at=from_us - 1) == "effect_may_still_land"
    assert confirm(operation, happened=False, at=from_us)
    assert confirm(operation, happened=True, at=from_us - 1)


def test_it_did_not_happen_is_refused_for_two_minutes_after_a_restore():
    operation, vault = make_operation(), make_vault(epoch=1, restored_us=T0)

    assert code_of(confirm, operation, happened=False, at=T0 + 120 * S - 1, vault=vault) == "effect_may_still_land"
    assert confirm(operation, happened=False, at=T0 + 120 * S, vault=vault)
    assert confirm(operation, happened=True, at=T0, vault=vault)


@pytest.mark.parametrize("absence_us", [None, ABSENCE])
def test_it_did_not_happen_is_refused_for_a_while_after_a_forward_step(absence_us):
    operation = make_operation(Status.UNCERTAIN, [make_ended()], absence_us=absence_us)
    stepped = T0 + 500 * S
    from_us = stepped + 120 * S + (absence_us or 0)

    assert code_of(
        confirm, operation, happened=False, at=from_us - 1, reading=Reading(from_us - 1, stepped)
    ) == "effect_may_still_land"  # fmt: skip
    assert confirm(operation, happened=False, at=from_us, reading=Reading(from_us, stepped))
    assert confirm(operation, happened=True, at=stepped, reading=Reading(stepped, stepped))


def test_a_mark_above_the_clock_does_not_shorten_the_wait_for_the_effect():
    # The clock ran ahead, left its mark, and was set right: the record is stamped with the mark,
    # but the effect has had no longer to land than the clock says.
    operation = make_operation(Status.UNCERTAIN, [make_ended()])
    at, reading = T0 + 3_600 * S, Reading(T0 + LANDING - 1)

    assert code_of(confirm, operation, happened=False, at=at, reading=reading) == "effect_may_still_land"
    assert confirm(operation, happened=True, at=at, reading=reading).at_us == at
    assert confirm(operation, happened=False, at=at, reading=Reading(T0 + LANDING)).at_us == at


@pytest.mark.parametrize(
    ("left_us", "words"), [(1, "for 1 s"), (S, "for 1 s"), (S + 1, "for 2 s"), (LANDING, "for 60 s")]
)
def test_the_refusal_counts_down_in_whole_seconds(left_us, words):
    operation = make_operation(Status.UNCERTAIN, [make_ended()])

    with pytest.raises(ConflictError, match=words):
        confirm(operation, happened=False, at=T0 + LANDING - left_us)


@pytest.mark.parametrize(("used", "is_refused"), [(99, False), (100, True)])
def test_it_did_not_happen_needs_an_attempt_that_is_left(used, is_refused):
    operation = make_operation(Status.UNCERTAIN, [make_ended(f"a{number}") for number in range(used)])

    assert confirm(operation, happened=True)
    if is_refused:
        assert code_of(confirm, operation, happened=False) == "attempt_limit_reached"
    else:
        assert confirm(operation, happened=False)


def test_a_confirm_decides_a_late_success_and_a_restore():
    operation = make_operation(late=(make_late(),))
    vault = make_vault(epoch=2)
    assert answer(operation, now=LATER, vault=vault)[1] == "late_receipt_needs_decision"

    head, operation = evolve(
        make_workflow(operation), operation, confirm(operation, happened=False, vault=vault), seq=9
    )

    assert answer(operation, now=LATER, workflow=head, vault=vault) == ("execute", "authorized_attempt")


def test_after_a_confirm_earlier_attempts_leave_late_evidence_that_their_tokens_prove():
    operation = make_operation(Status.UNCERTAIN, [make_attempt()])
    head, operation = evolve(make_workflow(operation), operation, confirm(operation, happened=False), seq=9)

    assert operation.live_attempt(T0 + S) is None
    assert operation.attempts[0].lease_hash == "hash-of-a1"
    assert answer(operation, now=LATER, workflow=head)[0] == "execute"


@pytest.mark.parametrize("capability", [QUERY, IDEMPOTENT])
def test_a_confirm_needs_no_capability(capability):
    assert confirm(make_operation(Status.UNCERTAIN, [make_ended()], **capability), happened=True)


# Delete

PREFIXES = {
    "all done": ("completed completed", True),
    "stopped before the end": ("completed abandoned pending", True),
    "refused before the end": ("refused pending", True),
    "stopped, with the rest stopped": ("abandoned abandoned", True),
    "next is pending": ("completed pending", False),
    "next is uncertain": ("uncertain", False),
    "stopped in the middle of what is open": ("pending abandoned", False),
    "uncertain behind a stopped one": ("abandoned uncertain", False),
}


@pytest.mark.parametrize("name", PREFIXES)
def test_only_finished_work_is_deleted_and_frees_a_coordinator(name):
    words, is_over = PREFIXES[name]
    head = make_workflow(standings=tuple(Standing(Status(word), 1, 0) for word in words.split()))

    assert head.is_unfinished_work is not is_over
    if not is_over:
        assert code_of(decide_delete, head, actor="u", at_us=LATER) == "workflow_unfinished"
        return
    deleting = evolve_workflow(head, decide_delete(head, actor="u", at_us=LATER))
    assert (deleting.is_deleting, deleting.is_enabled) == (True, False)
    assert deleting.revision == head.revision + 1


def test_a_workflow_whose_deletion_has_begun_grants_nothing_even_when_enabled_again():
    operation = make_operation()
    head = evolve_workflow(make_workflow(operation), WorkflowDeleting(LATER, "u"))
    enabled = replace(head, is_enabled=True)

    assert answer(operation, now=LATER, workflow=enabled)[1] == "workflow_disabled_or_capture_unavailable"
