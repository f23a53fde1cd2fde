"""What workers do with a run: claim, heartbeat, append, wait, settle, fail; and what becomes of a claim that runs out.

Rules:

* A claim is judged by the time after the row lock. At the instant it runs out it is over, whatever is sent then.
* Every write proves the claim by generation and secret. What a lost claim sends is refused whole.
* A run that was queued before a backup was restored is never handed out: what it does may have been done already.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from continuity.decisions.threads import bounds
from continuity.decisions.threads.changes import Draft, refuse, require
from continuity.decisions.threads.entries import Entry, EntryKind
from continuity.decisions.threads.model import (
    Ask,
    Change,
    Claim,
    Head,
    OpenItem,
    Record,
    RecordKind,
    Run,
    is_held_by,
)
from continuity.decisions.threads.states import (
    Control,
    Event,
    Reason,
    RequestKind,
    RequestState,
    RunState,
    Situation,
    Step,
    after,
)
from continuity.errors import ConflictError, MalformedError
from continuity.limits import SECOND_US


@dataclass(frozen=True, slots=True)
class Proof:
    """What a worker proves its claim with.

    Attributes:
        run_id: The run that it names.
        generation: The claim's.
        secret_hash: Hex SHA-256 of the claim's secret.
        steers_read: Number of the last steer that it has read.
    """

    run_id: str
    generation: int
    secret_hash: str
    steers_read: int = 0


def is_older_than_restore(head: Head, epoch: int) -> bool:
    """Say whether a queued run comes from a backup that was restored since."""
    return head.run is not None and head.run.state is RunState.QUEUED and head.run.epoch != epoch


def decide_claim(head: Head, *, secret_hash: str, actor: str, at_us: int) -> Change:
    """Hand the queued run to a worker.

    Raises:
        ConflictError: ``claim_lost``: there is none any more. Nothing has changed.
    """
    require(head, Event.CLAIM)
    run = _current(head)
    draft = Draft(head, at_us)
    generation = head.generation + 1
    claim = Claim(generation, secret_hash, at_us + bounds.CLAIM_S * SECOND_US, actor)
    claimed = replace(run, state=after(run.state, Step.CLAIM), claim=claim)
    draft.head = replace(head, run=claimed, generation=generation)
    draft.runs.append(claimed)
    draft.write(RecordKind.RUN_CLAIMED, run=claimed, generation=generation)
    return draft.done()


def decide_restored(head: Head, *, at_us: int) -> Change:
    """Interrupt a queued run that is older than the backup that was restored."""
    draft = Draft(head, at_us)
    run = draft.end(_current(head), Step.RESTORE, reason=Reason.RESTORED)
    draft.write(RecordKind.RUN_INTERRUPTED, run=run, reason=Reason.RESTORED.value)
    return draft.done()


def decide_expiry(head: Head, *, at_us: int) -> Change | None:
    """Interrupt the run whose claim has run out; None when there is none."""
    if not head.has_expired(at_us):
        return None
    draft = Draft(head, at_us)
    run = draft.end(_current(head), Step.EXPIRE, reason=Reason.CLAIM_EXPIRED)
    draft.write(RecordKind.RUN_INTERRUPTED, run=run, reason=Reason.CLAIM_EXPIRED.value)
    return draft.done()


def require_claim(head: Head, proof: Proof, *, at_us: int) -> tuple[Run, Claim]:
    """Return the run and the claim that a worker proves.

    Raises:
        ConflictError: ``claim_lost``: it has run out, was superseded, or is another's. Nothing has changed.
    """
    run = head.run
    if run is None or run.run_id != proof.run_id or run.state is not RunState.CLAIMED or run.claim is None:
        raise _lost()
    is_held = is_held_by(run.claim, generation=proof.generation, secret_hash=proof.secret_hash)
    if not is_held or head.has_expired(at_us):
        raise _lost()
    return run, run.claim


def decide_heartbeat(head: Head, proof: Proof, *, at_us: int) -> Change:
    """Keep a live claim for another 60 s. It is no change that anybody must see, unless steers were read.

    Raises:
        ConflictError: ``claim_lost``. Nothing has changed.
    """
    run, claim = require_claim(head, proof, at_us=at_us)
    draft = Draft(head, at_us)
    _renew(draft, run, claim)
    draft.read_steers(proof.steers_read, run)
    return draft.done(is_revised=False)


def decide_append(head: Head, proof: Proof, entries: Sequence[Entry], *, ended: Collection[str], at_us: int) -> Change:
    """Write entries, and renew the claim.

    Args:
        head: The head.
        proof: What the worker proves its claim with.
        entries: In their order.
        ended: Keys of the items that the entries name and that have ended in the transcript.
        at_us: Time of the write.

    Returns:
        The change; entries about items that have ended are left out of it.

    Raises:
        ConflictError: ``claim_lost``. Nothing has changed.
        MalformedError: An entry names an item that was never begun, or too many are open. Nothing has changed.
    """
    run, claim = require_claim(head, proof, at_us=at_us)
    draft = Draft(head, at_us)
    _renew(draft, run, claim)
    draft.read_steers(proof.steers_read, run)
    _append(draft, run, claim, entries, ended=ended)
    return draft.done(is_revised=False)


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a run ends with.

    Attributes:
        waiting_id: A fresh id, or that of the request that the same place has asked before.
        revision: 1, or one more than that request's.
        kind: What it asks for.
        digest: Hex SHA-256 of schema and what is shown.
    """

    waiting_id: str
    revision: int
    kind: RequestKind
    digest: str


def decide_wait(
    head: Head, proof: Proof, questions: Sequence[Question], controls: Collection[Control], *,
    entries: Sequence[Entry] = (), ended: Collection[str] = (), unfinished: Collection[int] = (), at_us: int,
) -> Change:  # fmt: skip
    """End the run with questions.

    Args:
        head: The head.
        proof: What the worker proves its claim with.
        questions: What is asked, in this order.
        controls: Those that the agent declares.
        entries: Last entries, written before the end.
        ended: As for `decide_append`.
        unfinished: Numbers of the steers that a node has read which is entered again: the next run is handed them too.
        at_us: Time of the end.

    Raises:
        ConflictError: ``claim_lost, thread_stopping`` or ``control_not_declared``. Nothing has changed.
        MalformedError: As `decide_append`.
    """
    run, claim = require_claim(head, proof, at_us=at_us)
    require(head, Event.WAIT)
    if Control.APPROVE not in controls and any(each.kind is RequestKind.APPROVAL for each in questions):
        raise refuse("control_not_declared")
    draft = Draft(head, at_us)
    draft.read_steers(proof.steers_read, run)
    _append(draft, run, claim, entries, ended=ended)
    draft.take_in_steers(unfinished)
    asks = tuple(Ask(q.waiting_id, q.revision, RequestState.OPEN, q.kind, q.digest) for q in questions)
    draft.head = replace(draft.head, asks=asks)
    draft.asks += asks
    for ask in asks:
        draft.write(
            RecordKind.REQUEST_OPENED, run=run, waiting_id=ask.waiting_id, revision=ask.revision, kind=ask.kind.value
        )
    ended_run = draft.end(run, Step.WAIT)
    draft.write(RecordKind.RUN_WAITING, run=ended_run)
    return draft.done()


def decide_settle(
    head: Head, proof: Proof, *, entries: Sequence[Entry] = (), ended: Collection[str] = (), run_id: str, epoch: int,
    at_us: int,
) -> Change:  # fmt: skip
    """End the run. Steers that it has not read become the first follow-ups, and the first of those starts.

    After a stop was asked for it ends as stopped, whatever it did is kept, and no follow-up starts.

    Args:
        head: The head.
        proof: What the worker proves its claim with; its `steers_read` is the last that the run has read.
        entries: Last entries, written before the end.
        ended: As for `decide_append`.
        run_id: Id of the run that may start.
        epoch: Vault epoch.
        at_us: Time of the end.

    Raises:
        ConflictError: ``claim_lost``. Nothing has changed.
        MalformedError: As `decide_append`.
    """
    run, claim = require_claim(head, proof, at_us=at_us)
    is_stopping = head.situation is Situation.STOPPING
    draft = Draft(head, at_us)
    draft.read_steers(proof.steers_read, run)
    _append(draft, run, claim, entries, ended=ended)
    if is_stopping:
        draft.stop(run)
        return draft.done()
    draft.close_items(run)
    draft.move_steers()
    ended_run = draft.end(run, Step.SETTLE)
    draft.write(RecordKind.RUN_SETTLED, run=ended_run)
    if draft.head.follow_ups:
        draft.begin_next(run_id, epoch=epoch)
    return draft.done()


def decide_fail(
    head: Head, proof: Proof, *, is_blocked: bool, workflow_id: str | None, entries: Sequence[Entry] = (),
    ended: Collection[str] = (), at_us: int,
) -> Change:  # fmt: skip
    """End the run as failed, or as interrupted where governed work is blocked. Nothing starts by itself.

    Raises:
        ConflictError: ``claim_lost``. Nothing has changed.
        MalformedError: As `decide_append`.
    """
    run, claim = require_claim(head, proof, at_us=at_us)
    draft = Draft(head, at_us)
    draft.read_steers(proof.steers_read, run)
    _append(draft, run, claim, entries, ended=ended)
    reason = Reason.TOOL_BLOCKED if is_blocked else Reason.FAILED
    step = Step.BLOCK if is_blocked else Step.FAIL
    ended_run = draft.end(run, step, reason=reason, workflow_id=workflow_id)
    kind = RecordKind.RUN_INTERRUPTED if is_blocked else RecordKind.RUN_FAILED
    draft.write(kind, run=ended_run, reason=reason.value, workflow_id=workflow_id)
    return draft.done()


def _current(head: Head) -> Run:
    if head.run is None:
        raise refuse("claim_lost")
    return head.run


def _lost() -> ConflictError:
    # Without the head: whoever has lost a claim may not be the one who held it.
    return refuse("claim_lost")


def _renew(draft: Draft, run: Run, claim: Claim) -> None:
    until_us = max(claim.until_us, draft.at_us + bounds.CLAIM_S * SECOND_US)
    draft.head = replace(draft.head, run=replace(run, claim=replace(claim, until_us=until_us)))


def _append(draft: Draft, run: Run, claim: Claim, entries: Sequence[Entry], *, ended: Collection[str]) -> None:
    over = set(ended)
    for entry in entries:
        key = key_of(entry)
        if key in over:
            continue
        data = dict(entry.data)
        if key is not None:
            data["item_no"] = _item_no(draft, entry, key)
            if entry.kind in {EntryKind.MESSAGE_ENDED, EntryKind.TOOL_ENDED}:
                over.add(key)
                left = tuple(item for item in draft.head.open_items if item.key != key)
                draft.head = replace(draft.head, open_items=left)
        draft.records.append(Record(entry.kind.value, data, run.run_id, claim.generation))


def _item_no(draft: Draft, entry: Entry, key: str) -> int:
    found = draft.head.find_open(key)
    if found is not None:
        return found.number
    if entry.kind not in {EntryKind.MESSAGE_STARTED, EntryKind.TOOL_STARTED}:
        raise MalformedError("A record names a message or a call that was not begun. Nothing was written.")
    if len(draft.head.open_items) >= bounds.OPEN_ITEMS:
        raise MalformedError(f"At most {bounds.OPEN_ITEMS} messages and calls may be open. Nothing was written.")
    number = draft.head.item_count + 1
    opened = (*draft.head.open_items, OpenItem(key, number))
    draft.head = replace(draft.head, item_count=number, open_items=opened)
    return number


def key_of(entry: Entry) -> str | None:
    """Return the key of the item that an entry is about, None when it is about none."""
    if entry.kind in {EntryKind.STATE_CHANGED, EntryKind.PROGRESS}:
        return None
    return f"c:{entry.data['call_id']}" if "call_id" in entry.data else f"m:{entry.data['message_id']}"
