"""What thread workers do: declare their agents, claim runs, keep their claims, write records, end runs.

A claim is handed out in the transaction that grants it, and is known again by the worker's request_id and secret.
Of the secret only the hash is stored. What a worker may not know of is answered as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from continuity.decisions.threads import controls, work
from continuity.decisions.threads.entries import Entry, EntryKind
from continuity.decisions.threads.model import Change, Head
from continuity.decisions.threads.work import Proof, Question, key_of
from continuity.errors import ForbiddenError, MalformedError
from continuity.jsontext import canonical_bytes
from continuity.services import threads_receipts
from continuity.services import threads_rights as rights
from continuity.services.identifiers import body_digest, new_id, token_hash
from continuity.services.threads_claims import FIRST, ThreadClaims, hold_of, steer_of
from continuity.services.threads_ledger import Contents, ThreadLedger
from continuity.services.threads_sealing import OpenedThread
from continuity.services.threads_writing import item_index
from continuity.store import threads as statements
from continuity.store import workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.callers import Caller
    from continuity.store.store import Store
    from continuity.thread_requests import (
        AgentDeclaration,
        AppendRequest,
        ClaimRequest,
        DeclareAgents,
        FailRequest,
        HeartbeatRequest,
        Hold,
        SettleRequest,
        WaitingRequest,
        WaitRequest,
    )


class _Write(Protocol):
    """What every write of a worker but a heartbeat has."""

    @property
    def request_id(self) -> str: ...
    @property
    def hold(self) -> Hold: ...
    def body(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class _Moment:
    """A run's thread under its lock, and when."""

    connection: Connection
    opened: OpenedThread
    at_us: int

    @property
    def head(self) -> Head:
        return self.opened.head


@dataclass(frozen=True, slots=True)
class ThreadWork:
    """Use cases of thread workers.

    Attributes:
        store: Where everything is written.
        ledger: Opens and records threads.
    """

    store: Store
    ledger: ThreadLedger

    def declare(self, caller: Caller, request: DeclareAgents) -> dict[str, Any]:
        """Say which agents a worker runs and what of them clients may use. What is there already is not written again.

        Returns:
            ``agents``: how many were declared.

        Raises:
            ForbiddenError: The caller is no thread worker, or its credential does not name an agent.
            SealedError: The vault is locked. Nothing has happened.
        """
        workspace_pk = rights.require_worker(caller)
        if not {agent.name for agent in request.agents} <= caller.agents:
            raise ForbiddenError("The credential does not name every agent of this request. Nothing was declared.")

        def work(connection: Connection) -> dict[str, Any]:
            self.ledger.facts(connection.execute(workflows.LOCKED_VAULT).one())
            now_us = self.ledger.reading(connection).now_us
            for agent in request.agents:
                known = self.ledger.agent(connection, workspace_pk, agent.name)
                if known is None or known.to_json() != agent.to_json():
                    self.ledger.declare(connection, workspace_pk, agent, now_us=now_us)
            return {"agents": len(request.agents)}

        return self.store.write(work)

    def claim(self, caller: Caller, request: ClaimRequest) -> dict[str, Any]:
        """Claim the run that has waited longest, for 60 s.

        Returns:
            ``{"run": None}`` when none waits, else ``run`` with ``thread_id, name, agent, run_id, generation,
            claim_until`` (Unix seconds), ``cause, input`` (``input_id, kind, content``, or None), ``resumes, replies,
            steers, stop``. The claim is durable; the same request_id and secret return it again while it is live.

        Raises:
            ForbiddenError: The caller is no thread worker. Nothing has happened.
            ConflictError: ``request_conflict``: the request_id was used with another secret; ``claim_lost``: its claim
                is over; ``clock_moved_backwards`` or ``capture_not_full``. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer: send the same again.
        """
        claims, behind = ThreadClaims(self.ledger), FIRST
        while True:
            answer, further = self.store.write(partial(claims.claim, caller=caller, request=request, behind=behind))
            if further is None:
                return answer
            behind = further

    # ---- holding

    def heartbeat(self, caller: Caller, run_id: str, request: HeartbeatRequest) -> dict[str, Any]:
        """Keep a live claim for another 60 s.

        Returns:
            The hold: ``generation, claim_until`` (Unix seconds), ``stop`` (whether a stop was asked for) and ``steers``
            that were not read yet, each with ``number, input_id, content``.

        Raises:
            ForbiddenError: The caller is no thread worker.
            NotFoundError: No such run for this worker.
            ConflictError: ``claim_lost``: nothing revives it. ``thread_deleted``. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            UnavailableError: Storage cannot answer; the claim may or may not have been renewed.
        """

        def hold(connection: Connection) -> dict[str, Any]:
            moment = self._moment(connection, caller, run_id)
            proof = _proof(run_id, request.hold)
            change = work.decide_heartbeat(moment.head, proof, at_us=moment.at_us)
            opened = self.ledger.record(connection, moment.opened, change, at_us=moment.at_us)
            return self._held(connection, opened)

        return self.store.write(hold)

    def append(self, caller: Caller, run_id: str, request: AppendRequest) -> dict[str, Any]:
        """Write records, all of them or none; it keeps the claim as a heartbeat does.

        Records about a message or a call that has ended are left out: a node entered again writes nothing twice.

        Returns:
            The receipt: ``request_id, action, run_id, position`` (of the last record), ``written`` (how many), and the
            hold of `heartbeat`. The same request again gets the receipt with the hold of the first time. Durable.

        Raises:
            As `heartbeat`; MalformedError for a record that names what was never begun or state that is not declared;
            TooLargeError for a message that grows too long; ``request_conflict``. Nothing has happened.
        """

        def decide(moment: _Moment, proof: Proof) -> tuple[Change, Contents]:
            ended = self._ended(moment, request.entries)
            self._check_entries(moment, request.entries)
            change = work.decide_append(moment.head, proof, request.entries, ended=ended, at_us=moment.at_us)
            return change, Contents()

        return self._write(caller, run_id, "append", request, decide)

    # ---- ending

    def wait(self, caller: Caller, run_id: str, request: WaitRequest) -> dict[str, Any]:
        """End a run with questions. They may be answered in any order; the last answer queues the next run.

        The same place asked again keeps its waiting_id and raises its revision.

        Returns:
            The receipt: ``request_id, action, run_id, position, revision, state`` and ``waiting``: ``waiting_id,
            revision, task, ordinal`` of each question, in their order. Durable.

        Raises:
            As `append`, with ``thread_stopping`` and ``control_not_declared`` as well. Nothing has happened.
        """
        named: dict[str, Any] = {}

        def decide(moment: _Moment, proof: Proof) -> tuple[Change, Contents]:
            ended = self._ended(moment, request.entries)
            agent = self._check_entries(moment, request.entries) or self.ledger.agent_of(
                moment.connection, moment.opened
            )
            asked = [self._asked(moment, question) for question in request.requests]
            change = work.decide_wait(
                moment.head, proof, [question for question, _ in asked], agent.controls, entries=request.entries,
                ended=ended, unfinished=request.steers_unfinished, at_us=moment.at_us,
            )  # fmt: skip
            named["waiting"] = [
                {
                    "waiting_id": question.waiting_id, "revision": question.revision, "task": content["task"],
                    "ordinal": content["ordinal"],
                }
                for question, content in asked
            ]  # fmt: skip
            return change, Contents(asked={question.waiting_id: content for question, content in asked})

        return self._write(caller, run_id, "wait", request, decide, named=named)

    def settle(self, caller: Caller, run_id: str, request: SettleRequest) -> dict[str, Any]:
        """End a run. What it has not read of its steers becomes the first follow-up, and the first follow-up starts.

        A run that was asked to stop ends as stopped, with its output, and starts nothing.

        Returns:
            The receipt: ``request_id, action, run_id`` of this run, ``position, revision, state``. Durable.

        Raises:
            As `append`. Nothing has happened.
        """

        def decide(moment: _Moment, proof: Proof) -> tuple[Change, Contents]:
            ended = self._ended(moment, request.entries)
            self._check_entries(moment, request.entries)
            change = work.decide_settle(
                moment.head, proof, entries=request.entries, ended=ended, run_id=new_id("rn"),
                epoch=moment.opened.vault.epoch, at_us=moment.at_us,
            )  # fmt: skip
            return change, Contents(ended={} if request.output is None else {"output": request.output})

        return self._write(caller, run_id, "settle", request, decide)

    def fail(self, caller: Caller, run_id: str, request: FailRequest) -> dict[str, Any]:
        """End a run as failed, or as interrupted where governed work is blocked. Only a person or the owner goes on.

        Returns:
            The receipt: ``request_id, action, run_id, position, revision, state``. Durable.

        Raises:
            As `append`; MalformedError where ``workflow_id`` names no work of this workspace. Nothing has happened.
        """

        def decide(moment: _Moment, proof: Proof) -> tuple[Change, Contents]:
            ended = self._ended(moment, request.entries)
            self._check_entries(moment, request.entries)
            if request.workflow_id is not None:
                self._check_works(moment, {request.workflow_id}, "workflow_id")
            change = work.decide_fail(
                moment.head, proof, is_blocked=request.reason == "blocked", workflow_id=request.workflow_id,
                entries=request.entries, ended=ended, at_us=moment.at_us,
            )  # fmt: skip
            return change, Contents(ended={"message": request.message})

        return self._write(caller, run_id, "fail", request, decide)

    # ---- common

    def _write(
        self, caller: Caller, run_id: str, action: str, request: _Write,
        decide: Callable[[_Moment, Proof], tuple[Change, Contents]], *, named: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Lock, look for the receipt, decide, write, keep the receipt."""
        proof = _proof(run_id, request.hold)
        proved = {
            **request.body(), "run_id": run_id, "generation": proof.generation, "secret": proof.secret_hash,
            "steers_read": proof.steers_read,
        }  # fmt: skip

        def write(connection: Connection) -> dict[str, Any]:
            moment = self._moment(connection, caller, run_id)
            asked = threads_receipts.slip(
                self.ledger.vault, caller, moment.opened.thread_id, request.request_id, action=action, body=proved
            )
            known = threads_receipts.found(connection, moment.opened, asked)
            if known is not None:
                return known
            # Before anything else is said of the thread: whoever has lost the claim may not be the one who held it.
            work.require_claim(moment.head, proof, at_us=moment.at_us)
            change, contents = decide(moment, proof)
            before = moment.head.last_seq
            opened = self.ledger.record(connection, moment.opened, change, at_us=moment.at_us, contents=contents)
            receipt: dict[str, Any] = {
                "request_id": request.request_id, "action": action, "run_id": run_id, "position": opened.position(),
            }  # fmt: skip
            if action == "append":
                receipt |= {"written": opened.head.last_seq - before, **self._held(connection, opened)}
            else:
                described = controls.describe(change)
                receipt |= {"revision": described["revision"], "state": described["state"], **(named or {})}
            threads_receipts.keep(connection, opened, asked, receipt)
            return receipt

        return self.store.write(write)

    def _moment(self, connection: Connection, caller: Caller, run_id: str) -> _Moment:
        opened = self.ledger.lock_run(connection, caller, run_id)
        return _Moment(connection, opened, self.ledger.stamp_us(connection, opened))

    def _held(self, connection: Connection, opened: OpenedThread) -> dict[str, Any]:
        unread = [steer for steer in opened.head.steers if not steer.is_read]
        said = self.ledger.contents(connection, opened, [steer.number for steer in unread])
        return {**hold_of(opened.head), "steers": [steer_of(steer, said) for steer in unread]}

    def _ended(self, moment: _Moment, entries: Sequence[Entry]) -> frozenset[str]:
        """Return the keys of the items that entries name and that have ended."""
        keys = {key for key in map(key_of, entries) if key is not None and moment.head.find_open(key) is None}
        if not keys:
            return frozenset()
        indexes = {item_index(self.ledger, moment.opened.thread_id, key): key for key in keys}
        place = {"thread_pk": moment.opened.thread_pk, "item_indexes": sorted(indexes)}
        rows = moment.connection.execute(statements.KNOWN_ITEMS, place)
        return frozenset(indexes[row.item_ix] for row in rows)

    def _check_entries(self, moment: _Moment, entries: Sequence[Entry]) -> AgentDeclaration | None:
        """Refuse work that is not there, and state that is not declared; returns the declaration where it was needed.

        Raises:
            MalformedError: A workflow is not there, or a key is not declared. Nothing has happened.
        """
        works = {str(entry.data["workflow_id"]) for entry in entries if entry.data.get("workflow_id") is not None}
        if works:
            self._check_works(moment, works, "workflow_id of a record")
        keys = {key for entry in entries if entry.kind is EntryKind.STATE_CHANGED for key in entry.data["values"]}
        if not keys:
            return None
        agent = self.ledger.agent_of(moment.connection, moment.opened)
        if not keys <= set(agent.state_keys):
            raise MalformedError("A record holds state that the agent does not declare. Nothing was written.")
        return agent

    def _check_works(self, moment: _Moment, workflow_ids: set[str], member: str) -> None:
        """Refuse a page that leads nowhere: work that is not there, and work of another workspace, alike.

        Raises:
            MalformedError: One of them is no work of this workspace. Nothing has happened.
        """
        place = {"workspace_pk": moment.opened.origin.workspace_pk, "workflow_ids": sorted(workflow_ids)}
        known = set(moment.connection.execute(statements.WORKS, place).scalars())
        if workflow_ids - known:
            raise MalformedError(f"{member} must name governed work of this workspace. Nothing was written.")

    def _asked(self, moment: _Moment, question: WaitingRequest) -> tuple[Question, dict[str, Any]]:
        """Return a question as the core takes it, and as it is kept."""
        place_ix = self.ledger.vault.index("thread_place", moment.opened.thread_id, question.task, question.ordinal)
        place = {"thread_pk": moment.opened.thread_pk, "place_ix": place_ix}
        row = moment.connection.execute(statements.REQUEST_AT, place).one_or_none()
        revision = 1 if row is None else self.ledger.request(moment.opened, row)["revision"] + 1
        digest = body_digest(canonical_bytes({"schema": question.schema, "shown": question.shown}))
        waiting_id = new_id("wr") if row is None else row.waiting_id
        content = {
            "task": question.task, "ordinal": question.ordinal, "schema": question.schema, "shown": question.shown,
            "digest": digest, "place_ix": place_ix,
        }  # fmt: skip
        return Question(waiting_id, revision, question.kind, digest), content


def _proof(run_id: str, hold: Hold) -> Proof:
    return Proof(run_id, hold.generation, token_hash(hold.secret), hold.steers_read)
