"""What decisions have in common: refusals by the table, and the pieces that changes are put together from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from continuity.decisions.threads.model import (
    Ask,
    Change,
    Head,
    InputKind,
    Queued,
    Record,
    RecordKind,
    Run,
)
from continuity.decisions.threads.states import TABLE, Cause, Event, Refused, RequestState, RunState, Step, after
from continuity.errors import ConflictError

WORDS: Final = {
    "thread_busy": "The thread is not idle. Nothing was changed.",
    "thread_not_running": "No run of the thread is going on. Nothing was changed.",
    "thread_stopping": "The run was asked to stop. Nothing was changed.",
    "nothing_to_resume": "No run of the thread was interrupted or has failed. Nothing was changed.",
    "claim_lost": "The claim has run out, or another one has followed it. Nothing was written.",
    "already_answered": "The request is not open. Nothing was changed.",
    "waiting_cancelled": "The run was stopped, and what it asked is no longer asked. Nothing was changed.",
    "control_not_declared": "The agent does not declare this control. Nothing was changed.",
    "queue_full": "So many wait already that no more are taken. Nothing was changed.",
    "stale_revision": "The thread changed after it was looked at. Nothing was changed.",
    "stale_waiting_revision": "The request was asked again after it was looked at. Nothing was changed.",
}
"""What people are told, by code."""


def refuse(code: str, head: Head | None = None, **current: object) -> ConflictError:
    """Make the error of a refusal; with a head it tells the thread's revision and state as ``current``."""
    if head is not None:
        current = {"revision": head.revision, "state": head.state.value, **current}
    return ConflictError(WORDS[code], code=code, current=current)


def require(head: Head, event: Event) -> None:
    """Look an event up in the table.

    Raises:
        ConflictError: The table refuses it; `code` says why. Nothing has changed.
    """
    outcome = TABLE[head.situation][event]
    if isinstance(outcome, Refused):
        raise refuse(outcome.code, head)


@dataclass
class Draft:
    """A change that is being put together. Only this package makes one, and only inside one decision."""

    head: Head
    at_us: int
    records: list[Record] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    inputs: list[Queued] = field(default_factory=list)

    def done(self, *, is_revised: bool = True) -> Change:
        """Return the change: records counted, the revision raised, the clock's mark moved."""
        head = replace(
            self.head,
            revision=self.head.revision + int(is_revised),
            last_seq=self.head.last_seq + len(self.records),
            clock_high_water_us=max(self.head.clock_high_water_us, self.at_us),
        )
        return Change(head, tuple(self.records), tuple(self.runs), tuple(self.asks), tuple(self.inputs))

    def write(self, what: RecordKind, /, *, run: Run | None = None, **data: object) -> None:
        """Add a record of the server."""
        self.records.append(Record(what.value, data, None if run is None else run.run_id))

    # ---- inputs

    def accept(self, input_id: str, kind: InputKind) -> Queued:
        """Count an input; the caller puts it where it belongs."""
        number = self.head.input_count + 1
        self.head = replace(self.head, input_count=number)
        queued = Queued(number, input_id, kind)
        self.inputs.append(queued)
        return queued

    def read_steers(self, upto: int, run: Run) -> None:
        """Put the steers that a run has read into the transcript, each once."""
        steers = []
        for steer in self.head.steers:
            is_new = steer.number <= upto and not steer.is_read
            if is_new:
                self.add_message(steer, run)
                self.inputs.append(replace(steer, is_read=True))
            steers.append(replace(steer, is_read=True) if is_new else steer)
        self.head = replace(self.head, steers=tuple(steers))

    def take_in_steers(self, unfinished: Collection[int]) -> None:
        """Let go of the steers that were read: what the run leaves behind holds them, but for the `unfinished` ones."""
        left = tuple(steer for steer in self.head.steers if not steer.is_read or steer.number in unfinished)
        self.head = replace(self.head, steers=left)

    def move_steers(self) -> None:
        """Make the steers that nobody has read the first follow-ups, in their order."""
        moved = [replace(steer, kind=InputKind.FOLLOW_UP) for steer in self.head.steers if not steer.is_read]
        if moved:
            self.write(RecordKind.INPUTS_MOVED, input_ids=[each.input_id for each in moved])
            self.inputs += moved
        self.head = replace(self.head, steers=(), follow_ups=(*moved, *self.head.follow_ups))

    def add_answer(self, ask: Ask, *, actor: str) -> None:
        """Give the answer to a question its place in the transcript."""
        number = self.head.item_count + 1
        self.head = replace(self.head, item_count=number)
        self.write(
            RecordKind.REQUEST_ANSWERED, run=self.head.run, waiting_id=ask.waiting_id, revision=ask.revision,
            item_no=number, request_kind=ask.kind.value, actor=actor,
        )  # fmt: skip

    def add_message(self, queued: Queued, run: Run) -> None:
        """Give an input its place in the transcript."""
        number = self.head.item_count + 1
        self.head = replace(self.head, item_count=number)
        self.write(
            RecordKind.MESSAGE_ADDED, run=run, input_id=queued.input_id, input_no=queued.number, item_no=number,
            kind=queued.kind.value,
        )  # fmt: skip

    # ---- runs

    def begin(
        self, run_id: str, cause: Cause, *, epoch: int, queued: Queued | None = None, resumes: Run | None = None,
        answers: tuple[str, ...] = (),
    ) -> Run:  # fmt: skip
        """Queue a run, with the input that it begins with or the run that it goes on from."""
        number = self.head.run_count + 1
        input_no = queued.number if queued is not None else None
        if cause is Cause.RESUME and resumes is not None:
            input_no, answers = resumes.input_no, resumes.answers
        run = Run(
            run_id, number, RunState.QUEUED, cause, epoch=epoch, queued_us=self.at_us, input_no=input_no,
            resumes=None if resumes is None else resumes.run_id, answers=answers,
        )  # fmt: skip
        if queued is not None:
            self.add_message(queued, run)
        self.write(
            RecordKind.RUN_QUEUED, run=run, number=number, cause=cause.value, resumes=run.resumes,
            input_id=None if queued is None else queued.input_id,
        )  # fmt: skip
        self.head = replace(self.head, run=run, run_count=number)
        self.runs.append(run)
        return run

    def begin_next(self, run_id: str, *, epoch: int) -> Run:
        """Queue a run for the first follow-up."""
        first, *rest = self.head.follow_ups
        self.head = replace(self.head, follow_ups=tuple(rest))
        cause = Cause.MESSAGE if first.kind is InputKind.MESSAGE else Cause.FOLLOW_UP
        return self.begin(run_id, cause, epoch=epoch, queued=first)

    def end(self, run: Run, step: Step, **fields: object) -> Run:
        """Move the newest run by a step that ends it."""
        ended = replace(run, state=after(run.state, step), ended_us=self.at_us, **fields)  # type: ignore[arg-type]
        self.head = replace(self.head, run=ended)
        self.runs.append(ended)
        return ended

    def stop(self, run: Run) -> None:
        """End a run as stopped: nothing of it stays open, and nothing that was accepted is lost."""
        step = Step.SETTLE_STOPPING if run.state is RunState.CLAIMED else Step.STOP
        self.close_items(run)
        for ask in self.head.asks:
            if ask.state is RequestState.OPEN:
                self.write(RecordKind.REQUEST_CANCELLED, run=run, waiting_id=ask.waiting_id, revision=ask.revision)
                self.change_ask(replace(ask, state=RequestState.CANCELLED))
        self.move_steers()
        self.end(run, step)
        self.write(RecordKind.RUN_STOPPED, run=run)

    def close_items(self, run: Run) -> None:
        """End what has begun and will not end by itself: each call gets its one result."""
        for item in self.head.open_items:
            data = {"call_id": item.item_id, "outcome": "unknown"} if item.is_call else {"message_id": item.item_id}
            kind = "tool_ended" if item.is_call else "message_ended"
            if not item.is_call:
                data["status"] = "incomplete"
            self.records.append(Record(kind, {**data, "item_no": item.number}, run.run_id))
        self.head = replace(self.head, open_items=())

    def change_ask(self, changed: Ask) -> None:
        """Put a changed waiting request in the place of the one of its id."""
        asks = tuple(changed if ask.waiting_id == changed.waiting_id else ask for ask in self.head.asks)
        self.head = replace(self.head, asks=asks)
        self.asks.append(changed)
