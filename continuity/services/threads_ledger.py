"""Opens threads, and writes what became of one: records, runs, requests, transcript and head, all of it or nothing.

Rules:

* What is opened is compared with the clear columns beside it; whoever may not know of a thread is answered as if there
  were none.
* `ThreadLedger.record` writes a `Change` whole, inside `Store.write`; nothing is true before that has returned.
* The journal is chained like a workflow's history (`continuity.services.chains`), its end stands in the sealed head.
* What it costs depends on the change, never on how much the thread has behind it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from continuity.decisions import clocks
from continuity.decisions.threads import records
from continuity.decisions.threads.model import Change, Head
from continuity.decisions.threads.states import RunState
from continuity.decisions.threads.work import decide_expiry
from continuity.errors import ConflictError, DecryptionError, IntegrityError
from continuity.services import threads_rights as rights
from continuity.services.partitions import ensure_partition, find_partition
from continuity.services.sealing import seal_json
from continuity.services.threads_rights import Right
from continuity.services.threads_sealing import (
    AGENTS,
    OpenedThread,
    Origin,
    agent_place,
    head_place,
    input_place,
    reply_place,
    request_place,
    seal_head,
)
from continuity.services.threads_writing import Contents, Writing
from continuity.store import threads as statements
from continuity.thread_requests import AgentDeclaration

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.clocks import Reading
    from continuity.decisions.model import VaultFacts
    from continuity.services.callers import Caller
    from continuity.services.opening import Opener
    from continuity.store.workflows import AnyRow
    from continuity.vault.vault import Vault


class ThreadLedger:
    """Opens, checks and records threads. Safe to share between threads of a process."""

    def __init__(self, opener: Opener) -> None:
        """Keep what reads the vault's row and the clock."""
        self._opener = opener

    @property
    def vault(self) -> Vault:
        """The vault, for blind indexes."""
        return self._opener.vault

    def facts(self, row: AnyRow) -> VaultFacts:
        """Read what a decision must know of the vault. Raises `SealedError` or `IntegrityError`."""
        return self._opener.facts(row)

    def reading(self, connection: Connection) -> Reading:
        """Read the clock; call it after the thread's row is locked."""
        is_sqlite = connection.dialect.name == "sqlite"
        return self._opener.read_clock(None if is_sqlite else connection.execute(statements.NOW).scalar_one())

    def stamp_us(self, connection: Connection, opened: OpenedThread) -> int:
        """Return the time to record something with: never below what was recorded before."""
        reading = self.reading(connection)
        return clocks.stamp_us(reading, opened.head.clock_high_water_us, opened.vault.clock_high_water_us)

    # ---- indexes

    def owner_ix(self, key: str) -> bytes:
        """Return the blind index of an owner."""
        return self.vault.index("thread_owner", key)

    def agent_ix(self, name: str) -> bytes:
        """Return the blind index of an agent's name."""
        return self.vault.index("thread_agent", name)

    def caller_ix(self, caller: Caller) -> bytes:
        """Return the blind index of the caller as an owner. Raises as `rights.owner_key`."""
        return self.owner_ix(rights.owner_key(caller))

    # ---- opening

    def lock(self, connection: Connection, caller: Caller, thread_id: str, right: Right) -> OpenedThread:
        """Lock a thread for a decision of a person or an application, and open its head.

        Raises:
            NotFoundError: It does not exist or is not the caller's to know.
            ForbiddenError: The caller may see it, and not do this.
            ConflictError: ``thread_deleted``.
            SealedError: The vault is locked.
            VaultError: It does not open, or its columns contradict it. Nothing has happened.
        """
        row = connection.execute(statements.LOCKED_HEAD, {"thread_id": thread_id}).one_or_none()
        return self.open(row, caller, right)

    def peek(self, connection: Connection, caller: Caller, thread_id: str) -> OpenedThread:
        """Open a thread's head without a lock, for reading. Raises as `lock`."""
        row = connection.execute(statements.HEAD, {"thread_id": thread_id}).one_or_none()
        return self.open(row, caller, Right.SEE)

    def open(self, row: AnyRow | None, caller: Caller, right: Right) -> OpenedThread:
        """Check that a row is there for the caller and open its head. Raises as `lock`."""
        owner_ix = self.caller_ix(caller)
        if row is None:
            raise rights.no_such_thread()
        rights.require(caller, row, right, owner_ix=owner_ix)
        return self.open_living(row)

    def lock_run(self, connection: Connection, caller: Caller, run_id: str) -> OpenedThread:
        """Lock the thread of a run for its worker. Raises as `lock`."""
        workspace_pk = rights.require_worker(caller)
        row = connection.execute(statements.LOCKED_HEAD_BY_RUN, {"run_id": run_id}).one_or_none()
        if row is None or row.workspace_pk != workspace_pk:
            raise rights.no_such_run()
        if row.agent_ix not in {self.agent_ix(name) for name in caller.agents}:
            raise rights.no_such_run()
        return self.open_living(row)

    def open_living(self, row: AnyRow) -> OpenedThread:
        """Open the head of a row that is known to be there for whoever asks.

        Raises:
            ConflictError: ``thread_deleted``.
            SealedError: The vault is locked.
            VaultError: It does not open, or row and head differ. Nothing has happened.
        """
        facts = self.facts(row)
        if row.deleted_at is not None or row.deleting_at is not None:
            raise rights.was_deleted()
        return self.unseal(row, facts)

    def unseal(self, row: AnyRow, facts: VaultFacts) -> OpenedThread:
        """Open the head of a row. Raises as `open_living`."""
        thread_id: str = row.thread_id
        try:
            key = self.vault.open_partition(thread_id, row.wrapped_key, key_id=row.wrapping_key_id)
        except DecryptionError:
            if self.vault.has_shredded(thread_id):
                raise rights.was_deleted() from None
            raise
        value = json.loads(key.open(row.sealed_head, place=head_place(thread_id)))
        head = records.head_from_json(value, thread_id=thread_id)
        origin = Origin(*value["origin"])
        self._check(row, head, origin)
        return OpenedThread(
            thread_pk=row.thread_pk, key=key, head=head, origin=origin, vault=facts,
            chain_hash=bytes.fromhex(value["chain"]), changed_us=row.changed_at,
        )  # fmt: skip

    def _check(self, row: AnyRow, head: Head, origin: Origin) -> None:
        """Compare the clear columns of a row with its head. Raises `IntegrityError`."""
        stands = {name: getattr(row, name) for name in head_columns(head)}
        is_same = (
            stands == head_columns(head)
            and row.workspace_pk == origin.workspace_pk
            and row.owner_ix == self.owner_ix(origin.owner)
            and row.agent_ix == self.agent_ix(origin.agent)
            and row.created_at == origin.created_us
            and (row.deleting_at is not None) == head.is_deleting
        )
        if not is_same:
            raise IntegrityError("The thread's columns contradict its sealed head. Nothing was done.")

    # ---- agents

    def agent(self, connection: Connection, workspace_pk: int, name: str) -> AgentDeclaration | None:
        """Return what a worker of the workspace has declared of an agent, None when nobody has.

        Raises:
            SealedError: The vault is locked.
            VaultError: It does not open.
        """
        agent_ix = self.agent_ix(name)
        place = {"workspace_pk": workspace_pk, "agent_ix": agent_ix}
        sealed = connection.execute(statements.AGENT, place).scalar_one_or_none()
        return None if sealed is None else self.open_agent(connection, workspace_pk, agent_ix, sealed)

    def agent_of(self, connection: Connection, opened: OpenedThread) -> AgentDeclaration:
        """Return the declaration of a thread's agent. Raises as `agent`."""
        found = self.agent(connection, opened.origin.workspace_pk, opened.origin.agent)
        if found is None:
            raise IntegrityError("The declaration of the thread's agent is missing. Nothing was done.")
        return found

    def open_agent(self, connection: Connection, workspace_pk: int, agent_ix: bytes, sealed: bytes) -> AgentDeclaration:
        """Open the declaration of an agent. Raises as `agent`."""
        key = find_partition(connection, self.vault, AGENTS)
        if key is None:
            raise IntegrityError("The key of the agents' declarations is not there.")
        return AgentDeclaration.from_json(json.loads(key.open(sealed, place=agent_place(workspace_pk, agent_ix))))

    def declare(self, connection: Connection, workspace_pk: int, agent: AgentDeclaration, *, now_us: int) -> None:
        """Write what a worker says of an agent. Inside `Store.write`."""
        key = ensure_partition(connection, self.vault, AGENTS, kind="settings")
        agent_ix = self.agent_ix(agent.name)
        sealed = seal_json(key, agent.to_json(), agent_place(workspace_pk, agent_ix))
        statements.put_agent(connection, {
            "workspace_pk": workspace_pk, "agent_ix": agent_ix, "changed_at": now_us, "sealed_agent": sealed,
        })  # fmt: skip

    # ---- reading what decisions need beside the head

    def contents(self, connection: Connection, opened: OpenedThread, numbers: list[int]) -> dict[int, dict[str, Any]]:
        """Return inputs by number, each with ``input_id, kind, content, at_us``.

        Raises:
            VaultError: One is missing or does not open.
        """
        if not numbers:
            return {}
        rows = connection.execute(statements.INPUTS, {"thread_pk": opened.thread_pk, "numbers": numbers}).all()
        found = {
            row.input_no: json.loads(
                opened.key.open(row.sealed_input, place=input_place(opened.thread_id, row.input_no))
            )
            for row in rows
        }
        if len(found) != len(numbers):
            raise IntegrityError("Something that was said in the thread is missing. Nothing was done.")
        return found

    def request(self, opened: OpenedThread, row: AnyRow) -> dict[str, Any]:
        """Open a waiting request. Raises `VaultError`."""
        place = request_place(opened.thread_id, row.waiting_id)
        value: dict[str, Any] = json.loads(opened.key.open(row.sealed_request, place=place))
        ask = opened.head.find_ask(row.waiting_id)
        is_same = row.revision == value["revision"] and (
            ask is None or (ask.revision, ask.state.value, ask.digest) == (row.revision, row.state, value["digest"])
        )
        if not is_same:
            raise IntegrityError("A waiting request contradicts the thread's sealed head. Nothing was done.")
        return value

    def reply(self, opened: OpenedThread, row: AnyRow) -> dict[str, Any]:
        """Open the admitted reply to a waiting request: ``reply, digest, actor, receipt, revision, at``.

        Raises:
            VaultError: There is none, it does not open, or it is not the one that was admitted last.
        """
        place = reply_place(opened.thread_id, row.waiting_id)
        value: dict[str, Any] = json.loads(opened.key.open(row.sealed_reply, place=place))
        ask = opened.head.find_ask(row.waiting_id)
        if value["revision"] != row.revision or (ask is not None and ask.reply_digest != value["digest"]):
            raise IntegrityError("A reply contradicts the thread's sealed head. Nothing was done.")
        return value

    # ---- writing

    def record(
        self, connection: Connection, opened: OpenedThread, change: Change, *, at_us: int,
        contents: Contents | None = None,
    ) -> OpenedThread:  # fmt: skip
        """Write a change and everything that follows from it. Call it inside `Store.write`.

        Args:
            connection: The transaction.
            opened: The thread, locked; `change` was decided from its head.
            change: What the core decided.
            at_us: The time that it was decided with.
            contents: What was said, asked, replied or returned, where the change is about that.

        Returns:
            The thread after it.

        Raises:
            TooLargeError: A message would be longer than a snapshot may hold.
            VaultError: What is already there does not open. Nothing has happened once `Store.write` has left.
        """
        self._opener.note_change(at_us)
        writing = Writing(connection, self, opened, change, contents=contents or Contents(), at_us=at_us)
        chain_hash = writing.write()
        sealed = seal_head(opened.key, change.head, opened.origin, chain_hash)
        # An append changes no more than where the journal ends.
        statements.update_thread(connection, opened.thread_pk, {
            **head_columns(change.head),
            "changed_at": at_us,
            "deleting_at": at_us if change.head.is_deleting else None,
            "sealed_head": sealed,
        })  # fmt: skip
        return replace(opened, head=change.head, chain_hash=chain_hash, changed_us=at_us)

    def expire(self, connection: Connection, opened: OpenedThread, at_us: int) -> OpenedThread:
        """Interrupt the run whose claim has run out, if there is one: before any other decision, in a writing unit."""
        change = decide_expiry(opened.head, at_us=at_us)
        return opened if change is None else self.record(connection, opened, change, at_us=at_us)

    def expire_by_id(self, connection: Connection, thread_id: str) -> bool:
        """Lock a thread and interrupt its run if the claim has run out; says whether it has."""
        row = connection.execute(statements.LOCKED_HEAD, {"thread_id": thread_id}).one_or_none()
        if row is None or row.claim_until is None:
            return False
        try:
            opened = self.open_living(row)
        except ConflictError:
            return False
        return self.expire(connection, opened, self.stamp_us(connection, opened)) is not opened


def head_columns(head: Head) -> dict[str, Any]:
    """Return the clear columns of a thread's row that follow from its head."""
    run = head.run
    is_queued = run is not None and run.state is RunState.QUEUED
    return {
        "state": head.state.value,
        "revision": head.revision,
        "clock_high_water": head.clock_high_water_us,
        "last_seq": head.last_seq,
        "trimmed_seq": head.trimmed_seq,
        "run_count": head.run_count,
        "item_count": head.item_count,
        "queued_at": run.queued_us if run is not None and is_queued else None,
        "claim_until": head.claim_until_us,
    }


__all__ = ["Contents", "ThreadLedger", "head_columns"]
