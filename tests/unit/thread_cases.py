"""Heads of threads in every situation, made by the decisions themselves, and every event that can meet them."""

from __future__ import annotations

from continuity.decisions.threads import controls, work
from continuity.decisions.threads.entries import Entry, EntryKind
from continuity.decisions.threads.model import Head
from continuity.decisions.threads.states import Control, Event, RequestKind, Situation
from continuity.decisions.threads.work import Proof, Question
from continuity.errors import ConflictError
from continuity.limits import SECOND_US

T0 = 1_750_000_000 * SECOND_US
CLAIM = 60 * SECOND_US
ALL = frozenset(Control)
SECRET = "5" * 64
PART = Entry(EntryKind.MESSAGE_STARTED, {"message_id": "m1"})


def idle() -> Head:
    return Head("th_1", revision=1, clock_high_water_us=T0, last_seq=1)


def said(head: Head, at_us: int = T0) -> Head:
    n = head.input_count + 1
    return controls.decide_message(
        head, input_id=f"in_{n}", run_id=f"rn_{head.run_count + 1}", epoch=1, at_us=at_us
    ).head


def followed(head: Head, at_us: int = T0) -> Head:
    n = head.input_count + 1
    return controls.decide_follow_up(
        head, ALL, input_id=f"in_{n}", run_id=f"rn_{head.run_count + 1}", epoch=1, at_us=at_us
    ).head


def claimed(head: Head, at_us: int = T0) -> Head:
    return work.decide_claim(head, secret_hash=SECRET, actor="cred:1", at_us=at_us).head


def proof_of(head: Head, **fields) -> Proof:
    run = head.run
    run_id = "rn_0" if run is None else run.run_id
    return Proof(run_id, head.generation, SECRET, **fields)


def stopping(head: Head) -> Head:
    return controls.decide_stop(head, ALL, seen=None, actor="user:1", at_us=T0).head


def waiting(head: Head, count: int = 1) -> Head:
    asked = [Question(f"wr_{n}", 1, RequestKind.REPLY, "d" * 64) for n in range(count)]
    return work.decide_wait(head, proof_of(head), asked, ALL, at_us=T0).head


def at(situation: Situation) -> Head:
    running = claimed(said(idle()))
    return {
        Situation.IDLE: idle,
        Situation.HELD: lambda: stopping(followed(said(idle()))),
        Situation.QUEUED: lambda: said(idle()),
        Situation.CLAIMED: lambda: running,
        Situation.STOPPING: lambda: stopping(running),
        Situation.WAITING: lambda: waiting(running, 2),
        Situation.INTERRUPTED: lambda: work.decide_expiry(running, at_us=T0 + CLAIM).head,
        Situation.FAILED: lambda: (
            work.decide_fail(running, proof_of(running), is_blocked=False, workflow_id=None, at_us=T0).head
        ),
    }[situation]()


EVENTS = {
    Event.MESSAGE: said,
    Event.STEER: lambda head: controls.decide_steer(head, ALL, input_id="in_9", at_us=T0).head,
    Event.FOLLOW_UP: followed,
    Event.STOP: lambda head: (controls.decide_stop(head, ALL, seen=None, actor="user:1", at_us=T0) or _same(head)).head,
    Event.RESUME: lambda head: controls.decide_resume(head, seen=None, run_id="rn_9", epoch=1, at_us=T0).head,
    Event.REPLY: lambda head: (
        controls.decide_reply(
            head, "wr_0", revision=1, digest="e" * 64, actor="user:1", run_id="rn_9", epoch=1, at_us=T0
        ).head
    ),
    Event.DELETE: lambda head: controls.decide_delete(head, at_us=T0).head,
    Event.CLAIM: claimed,
    Event.HEARTBEAT: lambda head: work.decide_heartbeat(head, proof_of(head), at_us=T0).head,
    Event.APPEND: lambda head: work.decide_append(head, proof_of(head), [PART], ended=(), at_us=T0).head,
    Event.WAIT: waiting,
    Event.SETTLE: lambda head: work.decide_settle(head, proof_of(head), run_id="rn_9", epoch=1, at_us=T0).head,
    Event.FAIL: lambda head: work.decide_fail(head, proof_of(head), is_blocked=False, workflow_id=None, at_us=T0).head,
    Event.BLOCK: lambda head: (
        work.decide_fail(head, proof_of(head), is_blocked=True, workflow_id="wf_1", at_us=T0).head
    ),
    Event.EXPIRE: lambda head: (work.decide_expiry(head, at_us=T0 + 10 * CLAIM) or _same(head)).head,
}


class _same:  # noqa: N801 - reads like the change that did not happen
    def __init__(self, head: Head) -> None:
        self.head = head


def meet(head: Head, event: Event) -> Head | str:
    """Return the head after an event, or the code of the refusal."""
    try:
        return EVENTS[event](head)
    except ConflictError as error:
        return error.code
