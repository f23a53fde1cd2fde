"""What is known of a thread when something is to be decided. Frozen values; times in microseconds UTC.

`Head` is bounded whatever the thread has behind it: at most 32 steers, follow-ups (and moved steers) and questions, and
64 open items. Every decision is made from it alone, and it is what the sealed head of a thread's row holds.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from continuity.decisions.threads.states import (
    THREAD_OF_RUN,
    Cause,
    Reason,
    RequestKind,
    RequestState,
    RunState,
    Situation,
    ThreadState,
)


class RecordKind(StrEnum):
    """Kinds of records that the server writes; those of workers are `entries.EntryKind`."""

    THREAD_CREATED = "thread_created"
    INPUT_QUEUED = "input_queued"
    INPUTS_MOVED = "inputs_moved"
    MESSAGE_ADDED = "message_added"
    RUN_QUEUED = "run_queued"
    RUN_CLAIMED = "run_claimed"
    RUN_WAITING = "run_waiting"
    RUN_SETTLED = "run_settled"
    RUN_INTERRUPTED = "run_interrupted"
    RUN_FAILED = "run_failed"
    RUN_STOPPED = "run_stopped"
    STOP_REQUESTED = "stop_requested"
    REQUEST_OPENED = "request_opened"
    REQUEST_ANSWERED = "request_answered"
    REQUEST_CANCELLED = "request_cancelled"


class InputKind(StrEnum):
    """What a client said, and as what."""

    MESSAGE = "message"
    STEER = "steer"
    FOLLOW_UP = "follow_up"


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's exclusive hold on a run.

    Attributes:
        generation: Rises with every claim of the thread; no two claims share one.
        secret_hash: Hex SHA-256 of the secret that the worker chose.
        until_us: When it runs out.
        actor: The credential that claimed.
    """

    generation: int
    secret_hash: str = field(repr=False)
    until_us: int
    actor: str


@dataclass(frozen=True, slots=True)
class Run:
    """One execution segment.

    Attributes:
        run_id: ``rn_…``.
        number: Its place in the thread, from 1.
        state: Its state.
        cause: Why it was queued.
        input_no: Number of the input that it begins with; None when it goes on from a wait.
        resumes: The run that it goes on from.
        answers: ids of the waiting requests whose replies it is handed.
        epoch: Vault epoch in which it was queued.
        queued_us: When it was queued.
        claim: Who holds it, or held it last.
        is_stopping: A stop was asked for while it was claimed.
        ended_us: When it ended.
        reason: Why it was interrupted or failed.
        workflow_id: The governed work that blocked it.
    """

    run_id: str
    number: int
    state: RunState
    cause: Cause
    epoch: int
    queued_us: int
    input_no: int | None = None
    resumes: str | None = None
    answers: tuple[str, ...] = ()
    claim: Claim | None = None
    is_stopping: bool = False
    ended_us: int | None = None
    reason: Reason | None = None
    workflow_id: str | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """An input that was accepted and is not settled yet.

    Attributes:
        number: Its place among all inputs of the thread, from 1.
        input_id: ``in_…``; the id of its message in the transcript as well.
        kind: As what it was sent, or what it became.
        is_read: A steer that a run has read; it stands in the transcript already.
    """

    number: int
    input_id: str
    kind: InputKind
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A waiting request of the newest run that waited.

    Attributes:
        waiting_id: ``wr_…``.
        revision: Rises when the same place asks again.
        state: Its state.
        kind: What it asks for.
        digest: Hex SHA-256 of schema and what was shown.
        reply_digest: Hex SHA-256 of the admitted reply in canonical form.
    """

    waiting_id: str
    revision: int
    state: RequestState
    kind: RequestKind
    digest: str
    reply_digest: str | None = None


@dataclass(frozen=True, slots=True)
class OpenItem:
    """A message or tool call of the transcript that has not ended.

    Attributes:
        key: ``m:`` or ``c:`` and the id of the message or call.
        number: Its place in the transcript, from 1.
    """

    key: str
    number: int

    @property
    def is_call(self) -> bool:
        """Whether it is a tool call."""
        return self.key.startswith("c:")

    @property
    def item_id(self) -> str:
        """Id of the message or call."""
        return self.key[2:]


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a thread.

    Attributes:
        thread_id: ``th_…``.
        revision: Rises with every change but appends, heartbeats and steers that were read.
        clock_high_water_us: The latest time at which it changed.
        last_seq: Sequence number of the last record of the journal.
        trimmed_seq: Records up to this one are gone.
        generation: Of the last claim; 0 before the first.
        run_count: How many runs there were.
        input_count: How many inputs were accepted.
        item_count: How many items the transcript has.
        run: The newest run.
        asks: Waiting requests of the newest run that waited.
        steers: Steers that no settled or waiting run has taken in, oldest first. A waiting one has not where the node
            that has read them asks.
        follow_ups: What starts next, in this order.
        open_items: Items that have begun and not ended.
        is_deleting: Its deletion has begun.
    """

    thread_id: str
    revision: int
    clock_high_water_us: int
    last_seq: int = 0
    trimmed_seq: int = 0
    generation: int = 0
    run_count: int = 0
    input_count: int = 0
    item_count: int = 0
    run: Run | None = None
    asks: tuple[Ask, ...] = ()
    steers: tuple[Queued, ...] = ()
    follow_ups: tuple[Queued, ...] = ()
    open_items: tuple[OpenItem, ...] = ()
    is_deleting: bool = False

    @property
    def state(self) -> ThreadState:
        """State of the thread."""
        return THREAD_OF_RUN[None if self.run is None else self.run.state]

    @property
    def situation(self) -> Situation:
        """Where it stands, as finely as events can tell it."""
        run = self.run
        if run is None or run.state in {RunState.SETTLED, RunState.STOPPED}:
            return Situation.HELD if self.follow_ups else Situation.IDLE
        if run.state is RunState.CLAIMED:
            return Situation.STOPPING if run.is_stopping else Situation.CLAIMED
        return {
            RunState.QUEUED: Situation.QUEUED,
            RunState.WAITING: Situation.WAITING,
            RunState.INTERRUPTED: Situation.INTERRUPTED,
            RunState.FAILED: Situation.FAILED,
        }[run.state]

    @property
    def claim_until_us(self) -> int | None:
        """When the claim of its newest run runs out; None when that is not claimed."""
        run = self.run
        return None if run is None or run.state is not RunState.CLAIMED or run.claim is None else run.claim.until_us

    def has_expired(self, now_us: int) -> bool:
        """Whether a claim has run out and nothing has been made of it yet."""
        until_us = self.claim_until_us
        return until_us is not None and until_us <= now_us

    def find_open(self, key: str) -> OpenItem | None:
        """Return the open item of that key, or None."""
        return next((item for item in self.open_items if item.key == key), None)

    def find_ask(self, waiting_id: str) -> Ask | None:
        """Return the waiting request of that id among those of the newest run that waited."""
        return next((ask for ask in self.asks if ask.waiting_id == waiting_id), None)


def is_held_by(claim: Claim, *, generation: int, secret_hash: str) -> bool:
    """Say whether a claim is the one that a worker proves."""
    is_same = hmac.compare_digest(claim.secret_hash.encode(), secret_hash.encode())
    return is_same and claim.generation == generation


@dataclass(frozen=True, slots=True)
class Record:
    """A record that is about to be written.

    Attributes:
        kind: `RecordKind` or `entries.EntryKind`, as its word.
        data: What it says; of what clients and workers said only ids, the service puts the content in.
        run_id: The run that it belongs to.
        generation: The claim under which a worker wrote it; None for what the server writes.
    """

    kind: str
    data: Mapping[str, Any]
    run_id: str | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What a decision answers with: all of it is written, or nothing.

    Attributes:
        head: The next head; its `last_seq` counts the records.
        records: What is written into the journal, in order.
        runs: Runs that are new or have changed.
        asks: Waiting requests that are new or have changed.
        inputs: Inputs that are new or have changed.
    """

    head: Head
    records: tuple[Record, ...] = ()
    runs: tuple[Run, ...] = ()
    asks: tuple[Ask, ...] = ()
    inputs: tuple[Queued, ...] = ()
