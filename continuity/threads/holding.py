"""Holding a claim: renew it, write what the run says in bounded batches, and know when it is over.

Rules:

* One thread writes for a claim, so that records arrive in the order in which they were said.
* An append renews the claim as a heartbeat does; without one there is a heartbeat every 20 s.
* Once the claim is lost, or its 60 s have passed by the worker's own clock without an answer, nothing more is sent. The
  clock counts suspension: a process that was stopped for longer knows it when it wakes, before it asks anybody.
* Whoever says more than can be written waits: at most `QUEUED_MOST` entries are held.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from continuity.decisions.threads import bounds
from continuity.errors import ContinuityError, MalformedError, TooLargeError
from continuity.jsontext import canonical_bytes
from continuity.threads.claims import Claimed, ClaimLostError, WorkerClient

Entry = dict[str, Any]

QUEUED_MOST: Final = 1_000
BATCH_BYTES: Final = 128 * 1024
"""Half of what a request may hold."""
GATHER_S: Final = 0.05
"""How long a first entry waits for others: twenty writes a second at most, whatever a model streams."""
PART_CHARS: Final = 8 * 1024
"""Neighbouring parts of one message are written as one, up to here."""
FLUSH_S: Final = 1.0
LOOK_S: Final = 0.25
"""How old the last word of the server may be where a step begins."""
_FINAL: Final = (MalformedError, TooLargeError)


class Holding:
    """A claim in hand. Threads may share it; start it once and end it once."""

    def __init__(self, calls: WorkerClient, claimed: Claimed) -> None:
        """Keep what is held; nothing is sent yet."""
        self.claimed = claimed
        self._calls = calls
        self.trace = calls.trace
        self._changed = threading.Condition()
        self._entries: deque[Entry] = deque()
        self._writing = False
        self._is_over = False
        self._is_hurried = False
        self._heard_s = claimed.claimed_s
        self._failure: BaseException | None = None
        self._until_s = claimed.claimed_s + bounds.CLAIM_S
        self._next_beat_s = claimed.claimed_s + bounds.HEARTBEAT_S
        self._is_stopping = bool(claimed.run["stop"])
        self._steers: dict[int, Mapping[str, Any]] = {steer["number"]: steer for steer in claimed.run["steers"]}
        self._steers_read = 0
        self._readers: dict[int, frozenset[str]] = {}
        self._keeper = threading.Thread(target=self._keep, name="atmem-claim", daemon=True)

    def start(self) -> None:
        """Begin to renew and to write."""
        self._keeper.start()

    @property
    def is_stopping(self) -> bool:
        """Somebody has asked for the run to stop."""
        return self._is_stopping

    @property
    def is_lost(self) -> bool:
        """The claim is over: whatever went wrong, somebody else may be at work."""
        with self._changed:
            return isinstance(self._failure, ClaimLostError) or self._calls.clock() >= self._until_s

    def check(self) -> None:
        """Go on only while the claim lives.

        Raises:
            ClaimLostError: It is over.
            ContinuityError: The server has refused what was written.
        """
        with self._changed:
            self._check()

    def say(self, *entries: Entry) -> None:
        """Write entries, in order, soon. Waits while too many are held; raises as `check`."""
        with self._changed:
            for entry in entries:
                while len(self._entries) >= QUEUED_MOST:
                    self._check()
                    self._changed.wait(FLUSH_S)
                self._check()
                if not self._joined(entry):
                    self._entries.append(entry)
            self._changed.notify_all()

    def steers(self, readers: Collection[str] = ()) -> list[Mapping[str, Any]]:
        """Return the steers that were not taken yet, oldest first; the next write says that they were read.

        Args:
            readers: The task that reads, and those that it is part of: `finished` is told of each.
        """
        with self._changed:
            taken = [self._steers[number] for number in sorted(self._steers) if number > self._steers_read]
            if taken:
                self._steers_read = taken[-1]["number"]
            if readers:
                self._readers |= {steer["number"]: frozenset(readers) for steer in taken}
            return taken

    def finished(self, task: str) -> None:
        """Take in that what a task has given is stored: it is not entered again, and has the steers that it read."""
        with self._changed:
            self._readers = {number: tasks for number, tasks in self._readers.items() if task not in tasks}

    @property
    def steers_unfinished(self) -> list[int]:
        """Numbers of the steers whose reader has given nothing yet."""
        with self._changed:
            return sorted(self._readers)

    def flush(self) -> None:
        """Wait until everything that was said is written; raises as `check`."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            while self._entries or self._writing:
                self._check()
                self._changed.wait(FLUSH_S)
            self._is_hurried = False
            self._check()

    def look(self) -> None:
        """Hear what was asked meanwhile, stops and steers, before the next step; raises as `check`.

        What was said is written first, and its answer tells. Where nothing was said for a while the server is asked.
        """
        self.flush()
        with self._changed:
            if self._calls.clock() - self._heard_s < LOOK_S:
                return
            self._next_beat_s = 0.0
            self._changed.notify_all()
            while self._next_beat_s <= 0.0:
                self._check()
                self._changed.wait(FLUSH_S)
            self._check()

    def end(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """End the run, after everything that was said; raises as `check`, or what the server refuses.

        Args:
            action: ``wait``, ``settle`` or ``fail``.
            body: What it ends with.
        """
        if not (action == "fail" and isinstance(self._failure, _FINAL)):
            self.flush()
        self.trace(f"{action}.before")
        receipt = self._calls.write(
            self.claimed, action, body, steers_read=self._steers_read, patience_s=self._left_s()
        )
        self.trace(f"{action}.after")
        return receipt

    def close(self) -> None:
        """Send nothing more. What was said and not written is dropped."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._keeper.join()

    # --- The keeper ---

    def _keep(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, timeout=max(0.0, self._next_beat_s - self._calls.clock()))
                if self._is_over or self._failure is not None:
                    return
            try:
                self._write()
            except BaseException as error:  # noqa: BLE001 - raised again by whoever asks
                with self._changed:
                    self._failure = error
                    self._writing = False
                    self._changed.notify_all()

    def _is_due(self) -> bool:
        return bool(self._is_over or self._failure or self._entries) or self._calls.clock() >= self._next_beat_s

    def _is_enough(self) -> bool:
        return self._is_over or self._is_hurried or len(self._entries) >= bounds.RECORDS_PER_WRITE

    def _write(self) -> None:
        """Write the entries that are held, or renew the claim when there are none and it is time."""
        with self._changed:
            if self._entries and len(self._entries) < bounds.RECORDS_PER_WRITE:
                self._changed.wait_for(self._is_enough, GATHER_S)
            batch = self._batch()
            self._writing = bool(batch)
        sent_s = self._calls.clock()
        held: Mapping[str, Any] | None
        if batch:
            self.trace("append.before")
            held = self._calls.write(
                self.claimed, "append", {"records": batch}, steers_read=self._steers_read, patience_s=self._left_s()
            )
            self.trace("append.after")
        elif sent_s >= self._next_beat_s:
            held = self._beaten(sent_s)
        else:
            return
        self._hear(held, sent_s)

    def _beaten(self, sent_s: float) -> Mapping[str, Any] | None:
        try:
            return self._calls.heartbeat(self.claimed, steers_read=self._steers_read)
        except ContinuityError:
            if sent_s >= self._until_s:
                raise
            return None

    def _hear(self, held: Mapping[str, Any] | None, sent_s: float) -> None:
        with self._changed:
            self._writing = False
            # Sooner after a heartbeat that was not answered: two may be lost before the claim is.
            wait_s = bounds.HEARTBEAT_S if held is not None else FLUSH_S
            self._next_beat_s = self._calls.clock() + wait_s
            if held is not None:
                self._until_s = sent_s + bounds.CLAIM_S
                self._heard_s = sent_s
                self._is_stopping = self._is_stopping or bool(held["stop"])
                self._steers |= {steer["number"]: steer for steer in held["steers"]}
            self._changed.notify_all()

    def _batch(self) -> Sequence[Entry]:
        batch: list[Entry] = []
        size_bytes = 0
        while self._entries and len(batch) < bounds.RECORDS_PER_WRITE:
            size_bytes += len(canonical_bytes(self._entries[0]))
            if batch and size_bytes > BATCH_BYTES:
                break
            batch.append(self._entries.popleft())
        return batch

    def _joined(self, entry: Entry) -> bool:
        """Put a part of a message to the part before it, where that is the last thing said."""
        last = self._entries[-1] if self._entries else None
        if last is None or entry["kind"] != "message_part" or last["kind"] != "message_part":
            return False
        if last["message_id"] != entry["message_id"] or len(last["text"]) + len(entry["text"]) > PART_CHARS:
            return False
        last["text"] += entry["text"]
        return True

    def _left_s(self) -> float:
        return max(0.0, self._until_s - self._calls.clock())

    def _check(self) -> None:
        if self._failure is None and self._calls.clock() >= self._until_s:
            self._failure = ClaimLostError("The claim ran out.")
        if isinstance(self._failure, (*_FINAL, ClaimLostError)):
            raise self._failure
        if self._failure is not None:
            raise ClaimLostError("The claim could not be kept.") from self._failure
