"""Situations and events of threads: every pair against threads.md, written out by hand, and against the decisions."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from continuity.decisions.threads import bounds, controls, work
from continuity.decisions.threads.model import InputKind
from continuity.decisions.threads.states import (
    NOTHING,
    RUN_STEPS,
    TABLE,
    THREAD_OF_RUN,
    Cause,
    Control,
    Event,
    Reason,
    Refused,
    RequestKind,
    RequestState,
    RunState,
    Situation,
    Step,
    ThreadState,
    TransitionError,
    after,
)
from continuity.decisions.threads.work import Proof
from continuity.errors import ConflictError
from continuity.limits import SECOND_US
from tests.unit.thread_cases import (
    ALL,
    CLAIM,
    EVENTS,
    SECRET,
    T0,
    at,
    claimed,
    followed,
    idle,
    meet,
    proof_of,
    said,
    stopping,
    waiting,
)

# The states and rules 4 to 6 of the design, read again without looking at the code. Columns in the order of Event:
# what follows, or the refusal.
READ_AGAIN = """
                message      steer        follow-up  stop         resume   reply     delete  claim  worker
idle            queued       not-running  queued     not-running  nothing  answered  idle    lost   lost
held            queued       not-running  queued     not-running  queued   answered  held    lost   lost
queued          busy         queued       queued     idle/held    nothing  answered  busy    claimed lost
claimed         busy         claimed      claimed    stopping     nothing  answered  busy    lost   works
stopping        busy         stopping!    stopping   stopping     nothing  answered  busy    lost   works
waiting         busy         not-running  waiting    idle/held    nothing  waiting/queued busy lost lost
interrupted     busy         not-running  interrupted idle/held   queued   answered  busy    lost   lost
failed          busy         not-running  failed     idle/held    queued   answered  busy    lost   lost
"""
CODES = {
    "busy": "thread_busy", "not-running": "thread_not_running", "stopping!": "thread_stopping",
    "nothing": "nothing_to_resume", "answered": "already_answered", "lost": "claim_lost",
}  # fmt: skip
WORKS = {
    Situation.CLAIMED: {
        Event.HEARTBEAT: "claimed", Event.APPEND: "claimed", Event.WAIT: "waiting", Event.SETTLE: "idle/queued",
        Event.FAIL: "failed", Event.BLOCK: "interrupted", Event.EXPIRE: "interrupted",
    },
    Situation.STOPPING: {
        Event.HEARTBEAT: "stopping", Event.APPEND: "stopping", Event.WAIT: "stopping!", Event.SETTLE: "idle/held",
        Event.FAIL: "failed", Event.BLOCK: "interrupted", Event.EXPIRE: "interrupted",
    },
}  # fmt: skip
CLIENT_EVENTS = (
    Event.MESSAGE, Event.STEER, Event.FOLLOW_UP, Event.STOP, Event.RESUME, Event.REPLY, Event.DELETE, Event.CLAIM,
)  # fmt: skip
WORKER_EVENTS = tuple(event for event in Event if event not in CLIENT_EVENTS)
PAIRS = list(itertools.product(Situation, Event))


def read_again() -> dict[tuple[str, Event], str]:
    found = {}
    for line in READ_AGAIN.strip().splitlines()[1:]:
        name, *cells = line.split()
        for event, cell in zip(CLIENT_EVENTS, cells[:8], strict=True):
            found[name, event] = cell
        for event in WORKER_EVENTS:
            works = WORKS.get(Situation[name.upper()], {})
            found[name, event] = works[event] if cells[8] == "works" else cells[8]
        if cells[8] != "works":
            found[name, Event.EXPIRE] = "-"
    return found


def spelled(outcome) -> str:
    if isinstance(outcome, Refused):
        return next(word for word, code in CODES.items() if code == outcome.code)
    return "/".join(situation.name.lower() for situation in outcome) or "-"


@pytest.mark.parametrize(("situation", "event"), PAIRS, ids=[f"{s.name}-{e.name}" for s, e in PAIRS])
class TestEveryPair:
    def test_the_table_says_what_the_design_says(self, situation, event):
        assert spelled(TABLE[situation][event]) == read_again()[situation.name.lower(), event]

    def test_the_decision_does_what_the_table_says(self, situation, event):
        head = at(situation)
        assert head.situation is situation
        outcome = TABLE[situation][event]

        met = meet(head, event)

        if isinstance(outcome, Refused):
            assert met == outcome.code
        else:
            assert not isinstance(met, str), met
            assert met.situation in (outcome or (situation,))
            if outcome == NOTHING:
                assert met is head

    def test_nothing_that_was_accepted_is_lost(self, situation, event):
        """Every input stays queued, or stands in the transcript, or is a steer that was read."""
        head = at(situation)
        if situation in {Situation.CLAIMED, Situation.QUEUED}:
            head = controls.decide_steer(head, ALL, input_id="in_8", at_us=T0).head
        if situation not in {Situation.IDLE, Situation.HELD}:
            head = followed(head)
        met = meet(head, event)
        after_it = head if isinstance(met, str) else met

        waiting_inputs = {q.number for q in (*after_it.follow_ups, *after_it.steers) if not q.is_read}
        assert len(waiting_inputs) + after_it.item_count >= after_it.input_count

    def test_only_a_settled_run_starts_the_next_one_by_itself(self, situation, event):
        head = at(situation)
        if situation not in {Situation.IDLE, Situation.HELD}:
            head = followed(head)
        met = meet(head, event)
        started = not isinstance(met, str) and met.run_count > head.run_count

        asked_for = {Event.MESSAGE, Event.FOLLOW_UP, Event.RESUME, Event.REPLY}
        assert not started or event in asked_for or (event, situation) == (Event.SETTLE, Situation.CLAIMED)


@pytest.mark.parametrize(("situation", "event"), [p for p in PAIRS if p[1] not in {Event.EXPIRE, Event.REPLY}])
def test_every_change_raises_the_revision_by_one_or_is_none_that_must_be_seen(situation, event):
    head = at(situation)
    met = meet(head, event)
    if not isinstance(met, str) and met is not head:
        assert met.revision - head.revision == int(event not in {Event.HEARTBEAT, Event.APPEND})


def test_the_state_of_a_thread_is_that_of_its_newest_run():
    assert {situation: at(situation).state for situation in Situation} == {
        Situation.IDLE: ThreadState.IDLE, Situation.HELD: ThreadState.IDLE, Situation.QUEUED: ThreadState.RUNNING,
        Situation.CLAIMED: ThreadState.RUNNING, Situation.STOPPING: ThreadState.RUNNING,
        Situation.WAITING: ThreadState.WAITING, Situation.INTERRUPTED: ThreadState.NEEDS_ATTENTION,
        Situation.FAILED: ThreadState.NEEDS_ATTENTION,
    }  # fmt: skip
    assert set(THREAD_OF_RUN) == {None, *RunState}


@pytest.mark.parametrize(("state", "step"), list(itertools.product(RunState, Step)))
def test_a_run_takes_only_the_steps_of_its_table(state, step):
    legal = {
        ("queued", "CLAIM"): "claimed", ("queued", "RESTORE"): "interrupted", ("queued", "STOP"): "stopped",
        ("claimed", "WAIT"): "waiting", ("claimed", "SETTLE"): "settled", ("claimed", "SETTLE_STOPPING"): "stopped",
        ("claimed", "FAIL"): "failed", ("claimed", "BLOCK"): "interrupted", ("claimed", "EXPIRE"): "interrupted",
        ("waiting", "STOP"): "stopped", ("interrupted", "STOP"): "stopped", ("failed", "STOP"): "stopped",
    }  # fmt: skip
    expected = legal.get((state.value, step.name))
    if expected is None:
        with pytest.raises(TransitionError):
            after(state, step)
    else:
        assert after(state, step) == expected
    assert not RUN_STEPS[RunState.SETTLED]
    assert not RUN_STEPS[RunState.STOPPED]


class TestClaims:
    def test_a_claim_lasts_sixty_seconds_and_ends_at_the_instant(self):
        head = at(Situation.CLAIMED)
        just_before, exactly = T0 + 60 * SECOND_US - 1, T0 + 60 * SECOND_US

        assert work.decide_heartbeat(head, proof_of(head), at_us=just_before).head.claim_until_us == just_before + CLAIM
        assert work.decide_expiry(head, at_us=just_before) is None
        with pytest.raises(ConflictError, match="Nothing was written") as lost:
            work.decide_heartbeat(head, proof_of(head), at_us=exactly)
        assert lost.value.code == "claim_lost"
        run = work.decide_expiry(head, at_us=exactly).head.run
        assert (run.state, run.reason) == (RunState.INTERRUPTED, Reason.CLAIM_EXPIRED)

    @pytest.mark.parametrize("event", [e for e in WORKER_EVENTS if e is not Event.EXPIRE])
    @pytest.mark.parametrize("wrong", ["run", "generation", "secret", "late"])
    def test_whatever_does_not_prove_a_live_claim_writes_nothing(self, event, wrong, monkeypatch):
        head = at(Situation.CLAIMED)
        proof = proof_of(head)
        bad = {
            "run": replace(proof, run_id="rn_7"), "generation": replace(proof, generation=proof.generation + 1),
            "secret": replace(proof, secret_hash="6" * 64), "late": proof,
        }[wrong]  # fmt: skip
        monkeypatch.setattr("tests.unit.thread_cases.proof_of", lambda _head: bad)
        if wrong == "late":
            run = replace(head.run, claim=replace(head.run.claim, until_us=T0))
            head = replace(head, run=run)

        assert meet(head, event) == "claim_lost"

    def test_each_claim_has_a_generation_of_its_own(self):
        head, seen = idle(), []
        for _ in range(3):
            head = claimed(said(head))
            seen.append(head.run.claim.generation)
            head = work.decide_settle(head, proof_of(head), run_id="rn_x", epoch=1, at_us=T0).head

        assert seen == [1, 2, 3]

    def test_a_run_from_before_a_restore_is_never_handed_out(self):
        head = said(idle())

        assert not work.is_older_than_restore(head, 1)
        assert work.is_older_than_restore(head, 2)
        run = work.decide_restored(head, at_us=T0).head.run
        assert (run.state, run.reason) == (RunState.INTERRUPTED, Reason.RESTORED)


class TestInputs:
    def test_a_steer_that_was_not_read_becomes_the_first_follow_up_and_starts(self):
        head = followed(claimed(said(idle())))
        for number in (8, 9):
            head = controls.decide_steer(head, ALL, input_id=f"in_{number}", at_us=T0).head
        first = head.steers[0].number

        change = work.decide_settle(head, proof_of(head, steers_read=first), run_id="rn_x", epoch=1, at_us=T0)

        run = change.head.run
        assert (run.state, run.cause, run.input_no) == (RunState.QUEUED, Cause.FOLLOW_UP, first + 1)
        assert [q.kind for q in change.head.follow_ups] == [InputKind.FOLLOW_UP]
        assert change.head.steers == ()
        kinds = [record.kind for record in change.records]
        assert kinds == ["message_added", "inputs_moved", "run_settled", "message_added", "run_queued"]

    def test_thirty_two_steers_and_follow_ups_are_taken_and_no_more(self):
        head = at(Situation.CLAIMED)
        for number in range(bounds.STEERS):
            head = controls.decide_steer(head, ALL, input_id=f"s{number}", at_us=T0).head
            head = controls.decide_follow_up(head, ALL, input_id=f"f{number}", run_id="rn_x", epoch=1, at_us=T0).head

        for event in (Event.STEER, Event.FOLLOW_UP):
            assert meet(head, event) == "queue_full"
        ended = work.decide_settle(head, proof_of(head), run_id="rn_x", epoch=1, at_us=T0).head
        assert len(ended.follow_ups) == 2 * bounds.STEERS - 1
        assert [q.number for q in ended.follow_ups][:31] == [q.number for q in head.steers][1:]

    def test_what_a_crashed_run_has_read_is_handed_out_again(self):
        head = controls.decide_steer(at(Situation.CLAIMED), ALL, input_id="in_8", at_us=T0).head
        head = work.decide_heartbeat(head, proof_of(head, steers_read=head.steers[0].number), at_us=T0).head
        assert head.steers[0].is_read

        head = work.decide_expiry(head, at_us=T0 + CLAIM).head
        resumed = controls.decide_resume(head, seen=None, run_id="rn_x", epoch=1, at_us=T0 + CLAIM).head

        assert [q.input_id for q in resumed.steers] == ["in_8"]
        assert resumed.run.input_no == 1
        assert resumed.item_count == 2

    def test_after_a_stop_a_message_does_not_overtake_what_waits(self):
        head = at(Situation.HELD)
        first = head.follow_ups[0].number

        started = said(head)

        assert started.run.input_no == first
        assert [q.kind for q in started.follow_ups] == [InputKind.MESSAGE]


class TestControls:
    @pytest.mark.parametrize(
        ("event", "control"),
        [(Event.STEER, Control.STEER), (Event.FOLLOW_UP, Control.FOLLOW_UP), (Event.STOP, Control.STOP)],
    )
    def test_what_an_agent_does_not_declare_is_refused(self, event, control, monkeypatch):
        monkeypatch.setattr("tests.unit.thread_cases.ALL", ALL - {control})

        assert meet(at(Situation.CLAIMED) if event is not Event.STOP else claimed(said(idle())), event) == (
            "control_not_declared"
        )

    def test_what_needs_attention_can_be_stopped_in_any_case(self):
        for situation in (Situation.INTERRUPTED, Situation.FAILED):
            change = controls.decide_stop(at(situation), frozenset(), seen=None, actor="user:1", at_us=T0)
            assert change.head.run.state is RunState.STOPPED

    def test_an_agent_without_approvals_cannot_ask_for_one(self):
        head = at(Situation.CLAIMED)
        asked = [work.Question("wr_0", 1, RequestKind.APPROVAL, "d" * 64)]

        with pytest.raises(ConflictError) as refused:
            work.decide_wait(head, proof_of(head), asked, ALL - {Control.APPROVE}, at_us=T0)
        assert refused.value.code == "control_not_declared"

    def test_a_look_that_is_too_old_is_refused_with_the_current_revision(self):
        head = at(Situation.INTERRUPTED)

        with pytest.raises(ConflictError) as refused:
            controls.decide_resume(head, seen=head.revision - 1, run_id="rn_x", epoch=1, at_us=T0)
        assert refused.value.code == "stale_revision"
        assert refused.value.current == {"revision": head.revision, "state": "needs_attention"}

    def test_a_stop_asked_for_twice_changes_nothing(self):
        assert controls.decide_stop(at(Situation.STOPPING), ALL, seen=None, actor="user:1", at_us=T0) is None


class TestRequests:
    def test_the_last_answer_starts_the_next_run_in_any_order(self):
        for order in itertools.permutations(["wr_0", "wr_1", "wr_2"]):
            head = waiting(at(Situation.CLAIMED), 3)
            for number, waiting_id in enumerate(order):
                assert head.situation is Situation.WAITING
                head = controls.decide_reply(
                    head, waiting_id, revision=1, digest=str(number) * 64, actor="u", run_id="rn_x", epoch=1, at_us=T0
                ).head
            assert head.situation is Situation.QUEUED
            assert head.run.answers == ("wr_0", "wr_1", "wr_2")
            assert (head.run.cause, head.run.resumes) == (Cause.REPLY, "rn_1")

    def test_a_crashed_run_hands_its_answers_to_the_next(self):
        head = waiting(at(Situation.CLAIMED))
        head = claimed(EVENTS[Event.REPLY](head))
        head = work.decide_expiry(head, at_us=T0 + CLAIM).head
        resumed = controls.decide_resume(head, seen=None, run_id="rn_y", epoch=1, at_us=T0 + CLAIM).head

        assert resumed.run.answers == ("wr_0",)
        assert resumed.run.resumes == "rn_9"

    def test_another_revision_than_the_open_one_is_refused_with_it(self):
        head = waiting(at(Situation.CLAIMED))

        with pytest.raises(ConflictError) as refused:
            controls.decide_reply(
                head, "wr_0", revision=2, digest="e" * 64, actor="u", run_id="rn_x", epoch=1, at_us=T0
            )
        assert refused.value.code == "stale_waiting_revision"
        assert refused.value.current["waiting_revision"] == 1

    def test_a_stop_cancels_what_is_open_and_keeps_what_was_answered(self):
        head = EVENTS[Event.REPLY](waiting(at(Situation.CLAIMED), 2))

        stopped = stopping(head)

        assert [ask.state for ask in stopped.asks] == [RequestState.ANSWERED, RequestState.CANCELLED]


def test_a_secret_is_compared_whole():
    head = at(Situation.CLAIMED)
    proof = Proof(head.run.run_id, head.generation, SECRET[:-1])

    with pytest.raises(ConflictError):
        work.require_claim(head, proof, at_us=T0)
