"""Proves that what is stored of threads agrees with itself: journals, transcripts, runs, requests, heads.

For every thread: its journal is whole from what was trimmed on, chained, and ends where the head says; folding it gives
the transcript, the state, the queue, the runs and the requests that snapshots are read from; no two claims share a
generation. Reads one thread at a time while the server runs, holds of it what a snapshot does, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions.threads import bounds, transcript
from continuity.services import chains
from continuity.services.checking import BATCH, Finding, check_each, findings_of
from continuity.services.threads_ledger import ThreadLedger
from continuity.services.threads_sealing import OpenedThread
from continuity.services.threads_views import ThreadViews, record_view
from continuity.store import threads as statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from continuity.store.store import Store

PAGE: Final = 1_000
_FOLDED: Final = ("messages", "state", "queue", "waiting", "runs")


@dataclass(frozen=True, slots=True)
class ThreadChecker:
    """Checks everything that is stored about threads.

    Attributes:
        store: Where it is read.
        ledger: Opens threads.
    """

    store: Store
    ledger: ThreadLedger

    def check(self, progress: Callable[[int], None] = lambda _count: None) -> list[Finding]:
        """Check all threads.

        Args:
            progress: Called after each batch with how many threads were checked so far.

        Returns:
            What contradicts itself; empty when nothing does.

        Raises:
            SealedError: The vault is locked.
        """
        return check_each(self._batch, self._check_one, progress)

    def _batch(self, before: int | None) -> list[tuple[int, str]]:
        rows = self.store.read(lambda connection: statements.page(connection, before=before, count=BATCH))
        return [(row.thread_pk, row.thread_id) for row in rows]

    def _check_one(self, thread_id: str) -> list[Finding]:
        def work(connection: Connection) -> list[str]:
            row = connection.execute(statements.HEAD, {"thread_id": thread_id}).one()
            if row.deleted_at is not None or row.deleting_at is not None:
                return []
            opened = self.ledger.unseal(row, self.ledger.facts(row))
            return list(self._problems(connection, opened))

        return findings_of(thread_id, lambda: self.store.read(work))

    def _problems(self, connection: Connection, opened: OpenedThread) -> Iterator[str]:
        """Say what of a thread does not agree with its journal."""
        view: Mapping[str, Any] = {
            "thread": {"state": "idle", "revision": 0}, "messages": [], "state": {}, "queue": [], "waiting": [],
            "runs": [], "checkpoint": opened.position(0),
        }  # fmt: skip
        head = opened.head
        seq, chain_hash, generation = head.trimmed_seq, chains.GENESIS, 0
        for row in _walk(connection, opened, seq):
            seq += 1
            if row.seq != seq:
                yield f"record {seq} of the journal is missing"
                return
            linked = chains.link(
                opened.thread_id, seq=seq, kind=row.kind, at_us=row.at, sealed_event=row.sealed_record,
                previous=chain_hash,
            )  # fmt: skip
            if linked != row.hash and (seq > 1 + head.trimmed_seq or head.trimmed_seq == 0):
                yield f"record {seq} of the journal does not follow from the one before"
            chain_hash = row.hash
            record = record_view(opened, row)
            if head.trimmed_seq:
                # What came before is gone: the rest opens and is chained, and is folded onto nothing.
                continue
            if record["kind"] == "run_claimed":
                if record["data"]["generation"] <= generation:
                    yield "a generation was given to more than one claim"
                generation = record["data"]["generation"]
            yield from _generation_problems(record, generation)
            view = transcript.bounded(
                transcript.advance(view, record), messages=bounds.SNAPSHOT_MESSAGES, runs=bounds.SNAPSHOT_RUNS
            )
        # Where all of it was trimmed, no record is left that the chain could end with.
        is_whole = seq == head.trimmed_seq or chain_hash == opened.chain_hash
        if seq != head.last_seq or not is_whole:
            yield "the journal does not end where the head says"
        if head.trimmed_seq == 0:
            yield from self._view_problems(connection, opened, view, generation)

    def _view_problems(
        self, connection: Connection, opened: OpenedThread, view: Mapping[str, Any], generation: int
    ) -> Iterator[str]:
        """Compare what the journal says with the rows that snapshots are read from."""
        views = ThreadViews(self.ledger)
        stored: dict[str, Any] = {
            "messages": views.newest_items(connection, opened), "queue": views.queue(connection, opened),
            "waiting": views.waiting(connection, opened), "runs": views.runs(connection, opened),
            "state": views.whole_state(connection, opened),
        }  # fmt: skip
        for name in _FOLDED:
            said, kept = view[name], stored[name]
            if isinstance(kept, list) and name in {"messages", "runs"}:
                key = "item_no" if name == "messages" else "number"
                numbers = {each[key] for each in kept}
                said = [each for each in said if each[key] in numbers]
            if json.dumps(said, sort_keys=True) != json.dumps(kept, sort_keys=True):
                yield f"{name} differ from what the journal says"
        if view["thread"]["state"] != opened.head.state.value:
            yield "its state differs from what the journal says"
        if generation != opened.head.generation:
            yield "its generation differs from what the journal says"
        open_items = [each["item_no"] for each in view["messages"] if each["status"] == "open"]
        if sorted(item.number for item in opened.head.open_items) != open_items:
            yield "the items that have not ended differ from what the journal says"


def _generation_problems(record: dict[str, Any], newest: int) -> Iterator[str]:
    """Say whether a worker's record stands under another claim than the newest."""
    if record["generation"] is not None and record["generation"] != newest:
        yield f"record {record['seq']} was written under a claim that was not the newest"


def _walk(connection: Connection, opened: OpenedThread, after: int) -> Iterator[Any]:
    while True:
        place = {"thread_pk": opened.thread_pk, "after": after, "count": PAGE}
        rows = connection.execute(statements.RECORDS, place).all()
        yield from rows
        if len(rows) < PAGE:
            return
        after = rows[-1].seq
