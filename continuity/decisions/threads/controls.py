"""What people and applications decide about a thread: message, steer, follow-up, stop, resume, reply, delete.

Every function looks its event up in `states.TABLE` first. Ids and times come from the caller. Where a claim has run out
and nothing was made of it yet, `work.decide_expiry` comes before, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from continuity.decisions.threads import bounds
from continuity.decisions.threads.changes import Draft, refuse, require
from continuity.decisions.threads.model import Change, Head, InputKind, RecordKind
from continuity.decisions.threads.states import (
    NEEDS_CONTROL,
    Cause,
    Control,
    Event,
    RequestState,
    RunState,
    Situation,
    ThreadState,
)


def require_control(event: Event, controls: Collection[Control]) -> None:
    """Refuse what the agent does not declare.

    Raises:
        ConflictError: ``control_not_declared``. Nothing has changed.
    """
    if NEEDS_CONTROL[event] not in controls:
        raise refuse("control_not_declared")


def require_revision(head: Head, seen: int | None) -> None:
    """Compare the revision that somebody saw; None acts on whatever is there.

    Raises:
        ConflictError: ``stale_revision``, with the current one. Nothing has changed.
    """
    if seen is not None and seen != head.revision:
        raise refuse("stale_revision", head)


def decide_message(head: Head, *, input_id: str, run_id: str, epoch: int, at_us: int) -> Change:
    """Start a run with a message. Behind follow-ups that a stop has left, it joins them and the first one starts.

    Raises:
        ConflictError: ``thread_busy`` or ``queue_full``. Nothing has changed.
    """
    require(head, Event.MESSAGE)
    return _start(head, InputKind.MESSAGE, input_id=input_id, run_id=run_id, epoch=epoch, at_us=at_us)


def decide_follow_up(
    head: Head, controls: Collection[Control], *, input_id: str, run_id: str, epoch: int, at_us: int
) -> Change:
    """Queue an input for the next run; an idle thread starts at once.

    Raises:
        ConflictError: ``control_not_declared`` or ``queue_full``. Nothing has changed.
    """
    require_control(Event.FOLLOW_UP, controls)
    require(head, Event.FOLLOW_UP)
    if head.state is ThreadState.IDLE:
        return _start(head, InputKind.FOLLOW_UP, input_id=input_id, run_id=run_id, epoch=epoch, at_us=at_us)
    draft = Draft(head, at_us)
    _enqueue(draft, InputKind.FOLLOW_UP, input_id)
    return draft.done()


def _start(head: Head, kind: InputKind, *, input_id: str, run_id: str, epoch: int, at_us: int) -> Change:
    draft = Draft(head, at_us)
    _enqueue(draft, kind, input_id)
    draft.begin_next(run_id, epoch=epoch)
    return draft.done()


def _enqueue(draft: Draft, kind: InputKind, input_id: str) -> None:
    if len(draft.head.follow_ups) >= bounds.FOLLOW_UPS:
        raise refuse("queue_full", draft.head, limit=bounds.FOLLOW_UPS)
    queued = draft.accept(input_id, kind)
    draft.head = replace(draft.head, follow_ups=(*draft.head.follow_ups, queued))
    draft.write(RecordKind.INPUT_QUEUED, input_id=input_id, input_no=queued.number, kind=kind.value)


def decide_steer(head: Head, controls: Collection[Control], *, input_id: str, at_us: int) -> Change:
    """Take a message that the run going on reads before its next step.

    Raises:
        ConflictError: ``control_not_declared, thread_not_running, thread_stopping`` or ``queue_full``. Nothing has
            changed.
    """
    require_control(Event.STEER, controls)
    require(head, Event.STEER)
    if sum(not steer.is_read for steer in head.steers) >= bounds.STEERS or len(head.steers) >= 2 * bounds.STEERS:
        raise refuse("queue_full", head, limit=bounds.STEERS)
    draft = Draft(head, at_us)
    queued = draft.accept(input_id, InputKind.STEER)
    draft.head = replace(draft.head, steers=(*draft.head.steers, queued))
    draft.write(
        RecordKind.INPUT_QUEUED, run=head.run, input_id=input_id, input_no=queued.number, kind=InputKind.STEER.value
    )
    return draft.done()


def decide_stop(
    head: Head, controls: Collection[Control], *, seen: int | None, actor: str, at_us: int
) -> Change | None:
    """Stop the newest run: at once where nobody works on it, else by asking its worker.

    Returns:
        The change; None where a stop was asked for already.

    Raises:
        ConflictError: ``stale_revision, control_not_declared`` or ``thread_not_running``. Nothing has changed.
    """
    require_revision(head, seen)
    require(head, Event.STOP)
    if head.state is not ThreadState.NEEDS_ATTENTION:
        require_control(Event.STOP, controls)
    run = head.run
    if run is None or (run.is_stopping and run.state is RunState.CLAIMED):
        return None
    draft = Draft(head, at_us)
    if run.state is RunState.CLAIMED:
        asked = replace(run, is_stopping=True)
        draft.head = replace(head, run=asked)
        draft.runs.append(asked)
        draft.write(RecordKind.STOP_REQUESTED, run=run, actor=actor)
        return draft.done()
    draft.stop(run)
    return draft.done()


def decide_resume(head: Head, *, seen: int | None, run_id: str, epoch: int, at_us: int) -> Change:
    """Go on after an interruption or a failure, or with the follow-ups that a stop has left.

    Raises:
        ConflictError: ``stale_revision`` or ``nothing_to_resume``. Nothing has changed.
    """
    require_revision(head, seen)
    require(head, Event.RESUME)
    draft = Draft(head, at_us)
    if head.state is ThreadState.IDLE:
        draft.begin_next(run_id, epoch=epoch)
    else:
        draft.begin(run_id, Cause.RESUME, epoch=epoch, resumes=head.run)
    return draft.done()


def decide_reply(
    head: Head, waiting_id: str, *, revision: int, digest: str, actor: str, run_id: str, epoch: int, at_us: int
) -> Change:
    """Admit the reply to an open request; the last one starts the next run.

    The reply itself has been checked against the request's schema. A request that is not open any more never comes
    here: the service answers with the receipt of its first reply, or that it was answered.

    Args:
        head: The head.
        waiting_id: An open request of the newest run.
        revision: The one that was looked at.
        digest: Hex SHA-256 of the reply in canonical form.
        actor: Who replies.
        run_id: Id of the run that may start.
        epoch: Vault epoch.
        at_us: Time of the reply.

    Raises:
        ConflictError: ``stale_waiting_revision``, with the current one, or ``already_answered``. Nothing has changed.
    """
    ask = head.find_ask(waiting_id)
    if ask is None or ask.state is not RequestState.OPEN:
        raise refuse("already_answered", head)
    require(head, Event.REPLY)
    if ask.revision != revision:
        raise refuse("stale_waiting_revision", head, waiting_revision=ask.revision)
    draft = Draft(head, at_us)
    draft.change_ask(replace(ask, state=RequestState.ANSWERED, reply_digest=digest))
    draft.add_answer(ask, actor=actor)
    if all(each.state is RequestState.ANSWERED for each in draft.head.asks):
        answers = tuple(each.waiting_id for each in draft.head.asks)
        draft.begin(run_id, Cause.REPLY, epoch=epoch, resumes=head.run, answers=answers)
    return draft.done()


def decide_delete(head: Head, *, at_us: int) -> Change:
    """Begin a deletion.

    Raises:
        ConflictError: ``thread_busy``: something runs, waits or needs attention. Nothing has changed.
    """
    require(head, Event.DELETE)
    draft = Draft(head, at_us)
    draft.head = replace(head, is_deleting=True)
    return draft.done()


def decide_trim(head: Head, upto: int, *, at_us: int) -> Change | None:
    """Let go of the records up to one, which clients then no longer go on from; None when they are gone already.

    Nothing that anybody must see changes: what snapshots show is kept in rows of its own.

    Raises:
        ConflictError: ``thread_busy``: something of it is not over. Nothing has changed.
    """
    if head.situation is not Situation.IDLE:
        raise refuse("thread_busy", head)
    upto = min(upto, head.last_seq)
    if upto <= head.trimmed_seq:
        return None
    return Draft(replace(head, trimmed_seq=upto), at_us).done(is_revised=False)


def describe(change: Change) -> dict[str, Any]:
    """Return what a receipt says of a change: revision, state, and the run that was queued by it."""
    queued = [run.run_id for run in change.runs if run.state is RunState.QUEUED]
    return {
        "revision": change.head.revision,
        "state": change.head.state.value,
        **({"run_id": queued[-1]} if queued else {}),
    }
