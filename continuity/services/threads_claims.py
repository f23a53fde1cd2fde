"""Claims of thread workers: which run is handed out, and with what. Inside `Store.write`.

A claim is known again by the worker's request_id and secret; of the secret only the hash is stored. Of several queued
threads the one that has waited longest comes first; what somebody else claims in the same moment is passed over.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from continuity.decisions import clocks
from continuity.decisions.threads import work
from continuity.decisions.threads.changes import refuse
from continuity.decisions.threads.model import Head, Queued, Run
from continuity.decisions.threads.records import run_from_json
from continuity.decisions.threads.states import RunState
from continuity.decisions.threads.work import Proof
from continuity.errors import ConflictError, DecryptionError, IntegrityError
from continuity.services import threads_receipts
from continuity.services import threads_rights as rights
from continuity.services.documents import seconds
from continuity.services.identifiers import token_hash
from continuity.services.threads_ledger import Contents, ThreadLedger
from continuity.services.threads_sealing import OpenedThread, run_place
from continuity.store import threads as statements
from continuity.store import workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.callers import Caller
    from continuity.store.workflows import AnyRow
    from continuity.thread_requests import ClaimRequest

CANDIDATES: Final = 32
"""How many queued threads a claim looks at in one go: others may take the first ones in the same moment."""
PAGES: Final = 8
"""How many times one transaction goes on behind those. Threads that do not open stay at the head of the queue, and each
costs a look while others wait to write: behind them another transaction looks."""


Behind = Mapping[str, int]
"""A place in the queue, as `statements.QUEUED` takes it."""
FIRST: Final[Behind] = {"after_us": -1, "after_pk": 0}


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a run is handed, beside what its thread's head says: inputs by number, and replies."""

    said: Mapping[int, Mapping[str, Any]]
    replies: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ThreadClaims:
    """Hands out runs.

    Attributes:
        ledger: Opens and records threads.
    """

    ledger: ThreadLedger

    def claim(
        self, connection: Connection, caller: Caller, request: ClaimRequest, *, behind: Behind = FIRST
    ) -> tuple[dict[str, Any], Behind | None]:
        """Claim the run that has waited longest of those behind a place in the queue. Raises as `ThreadWork.claim`.

        Returns:
            The answer of `ThreadWork.claim`, and where another transaction goes on: None where it need not.
        """
        workspace_pk = rights.require_worker(caller)
        names = caller.agents & set(request.agents) if request.agents else caller.agents
        claim_ix = self.ledger.vault.index("thread_claim", caller.actor, request.request_id)
        secret_hash = token_hash(request.secret)
        statements.lock_claim(connection, claim_ix)
        facts = self.ledger.facts(connection.execute(workflows.LOCKED_VAULT).one())
        known = connection.execute(statements.CLAIMED, {"claim_ix": claim_ix}).one_or_none()
        if known is not None:
            return self._claimed_before(connection, known, secret_hash), None
        threads_receipts.require_capture(facts)
        place = {
            "workspace_pk": workspace_pk, "agent_indexes": sorted(map(self.ledger.agent_ix, names)),
            "count": CANDIDATES,
        }  # fmt: skip
        for _ in range(PAGES):
            rows = connection.execute(statements.QUEUED, {**place, **behind}).all()
            for row in rows:
                claimed = self._claim_one(connection, row.thread_pk, secret_hash, caller.actor, claim_ix)
                if claimed is not None:
                    return {"run": claimed}, None
            if len(rows) < CANDIDATES:
                return {"run": None}, None
            behind = {"after_us": rows[-1].queued_at, "after_pk": rows[-1].thread_pk}
        return {"run": None}, behind

    def _claim_one(
        self, connection: Connection, thread_pk: int, secret_hash: str, actor: str, claim_ix: bytes
    ) -> dict[str, Any] | None:
        """Claim the queued run of a thread; None where somebody else was quicker, or a person must look at it."""
        row = connection.execute(statements.FREE_HEAD_BY_PK, {"thread_pk": thread_pk}).one_or_none()
        if row is None or row.queued_at is None:
            return None
        try:
            opened = self.ledger.open_living(row)
            parts = self._parts(connection, opened)
        except (ConflictError, DecryptionError, IntegrityError):
            # One that is damaged, or was deleted before a database was put back, must not keep all others waiting.
            return None
        reading = self.ledger.reading(connection)
        at_us = clocks.dispatch_time_us(reading, opened.head.clock_high_water_us, opened.vault.clock_high_water_us)
        if work.is_older_than_restore(opened.head, opened.vault.epoch):
            self.ledger.record(connection, opened, work.decide_restored(opened.head, at_us=at_us), at_us=at_us)
            return None
        change = work.decide_claim(opened.head, secret_hash=secret_hash, actor=actor, at_us=at_us)
        opened = self.ledger.record(connection, opened, change, at_us=at_us, contents=Contents(claim_ix=claim_ix))
        return _handed(opened, parts)

    def _claimed_before(self, connection: Connection, known: AnyRow, secret_hash: str) -> dict[str, Any]:
        """Answer a claim that was granted before."""
        row = connection.execute(statements.LOCKED_HEAD_BY_PK, {"thread_pk": known.thread_pk}).one()
        opened = self.ledger.open_living(row)
        place = run_place(opened.thread_id, known.number)
        run = run_from_json(json.loads(opened.key.open(known.sealed_run, place=place))["run"])
        if run.claim is None or not hmac.compare_digest(run.claim.secret_hash, secret_hash):
            raise ConflictError(
                "This request_id was used with another secret. Nothing was claimed.", code="request_conflict"
            )
        proof = Proof(run.run_id, run.claim.generation, secret_hash)
        work.require_claim(opened.head, proof, at_us=self.ledger.stamp_us(connection, opened))
        return {"run": _handed(opened, self._parts(connection, opened))}

    def _parts(self, connection: Connection, opened: OpenedThread) -> _Parts:
        """Read what the newest run is handed. Raises `VaultError`: before anything is written."""
        head, run = opened.head, opened.head.run
        if run is None:
            raise refuse("claim_lost")
        numbers = [steer.number for steer in head.steers] + ([] if run.input_no is None else [run.input_no])
        said = self.ledger.contents(connection, opened, numbers)
        return _Parts(said, self._replies(connection, opened, run))

    def _replies(self, connection: Connection, opened: OpenedThread, run: Run) -> list[dict[str, Any]]:
        """Return the admitted replies that a run goes on with, in the order of their questions."""
        if not run.answers:
            return []
        place = {"thread_pk": opened.thread_pk, "ids": list(run.answers)}
        rows = {row.waiting_id: row for row in connection.execute(statements.REQUESTS, place)}
        replies = []
        for waiting_id in run.answers:
            row = rows.get(waiting_id)
            if row is None or row.sealed_reply is None:
                raise IntegrityError("A reply of the thread is missing. Nothing was done.")
            question, reply = self.ledger.request(opened, row), self.ledger.reply(opened, row)
            replies.append({
                "waiting_id": waiting_id, "task": question["task"], "ordinal": question["ordinal"],
                "revision": row.revision, "reply": reply["reply"],
            })  # fmt: skip
        return replies


def _handed(opened: OpenedThread, parts: _Parts) -> dict[str, Any]:
    """Return what a worker is handed with its claim."""
    head = opened.head
    run = _claimed_run(head)
    begun = None if run.input_no is None else parts.said[run.input_no]
    return {
        "thread_id": opened.thread_id,
        "name": opened.origin.name,
        "agent": opened.origin.agent,
        "run_id": run.run_id,
        "cause": run.cause.value,
        "resumes": run.resumes,
        "input": begun and {name: begun[name] for name in ("input_id", "kind", "content")},
        "replies": parts.replies,
        **hold_of(head),
        # Those that an unfinished run has read as well: what it made of them may be lost.
        "steers": [steer_of(steer, parts.said) for steer in head.steers],
    }


def _claimed_run(head: Head) -> Run:
    if head.run is None or head.run.state is not RunState.CLAIMED or head.run.claim is None:
        raise refuse("claim_lost")
    return head.run


def hold_of(head: Head) -> dict[str, Any]:
    """Return what a worker is told of its claim."""
    run = _claimed_run(head)
    return {
        "generation": head.generation,
        "claim_until": seconds(head.claim_until_us or 0),
        "stop": run.is_stopping,
    }


def steer_of(steer: Queued, said: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a steer as a worker reads it."""
    return {"number": steer.number, "input_id": steer.input_id, "content": said[steer.number]["content"]}
