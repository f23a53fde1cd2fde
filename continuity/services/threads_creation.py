"""Creating a thread, or finding the caller's own of the same name and agent. Inside `Store.write`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from continuity.decisions import clocks
from continuity.decisions.threads.model import Change, Head, Record, RecordKind
from continuity.services import chains, threads_receipts
from continuity.services import threads_rights as rights
from continuity.services.identifiers import new_id
from continuity.services.threads_ledger import ThreadLedger, head_columns
from continuity.services.threads_rights import Right
from continuity.services.threads_sealing import OpenedThread, Origin, seal_head
from continuity.services.workflows import WORKFLOW_FORMAT
from continuity.store import threads as statements
from continuity.store import workflows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.callers import Caller
    from continuity.store.workflows import AnyRow
    from continuity.thread_requests import NewThread


@dataclass(frozen=True, slots=True)
class Created:
    """What became of a creation.

    Attributes:
        receipt: What the caller is answered.
        is_new: A thread was made.
        has_opted_in: It raised the vault's format.
        at_us: When the thread changed last.
    """

    receipt: dict[str, Any] = field(repr=False)
    is_new: bool = False
    has_opted_in: bool = False
    at_us: int = 0

    @property
    def thread_id(self) -> str:
        """``th_…``."""
        return str(self.receipt["thread_id"])


def create(connection: Connection, ledger: ThreadLedger, caller: Caller, request: NewThread) -> Created:
    """Create a thread or find it, and keep the receipt. Raises as `Threads.create`."""
    owner = rights.owner_key(caller)
    row = connection.execute(workflows.LOCKED_VAULT).one()
    facts = ledger.facts(row)
    scope = f"workspace:{caller.home_workspace}"
    asked = threads_receipts.slip(ledger.vault, caller, scope, request.request_id, action="create", body=request.body())
    known = threads_receipts.find(connection, asked)
    if known is not None:
        made = connection.execute(statements.LOCKED_HEAD_BY_PK, {"thread_pk": known.thread_pk}).one()
        return Created(threads_receipts.read(ledger.open(made, caller, Right.SEE), asked, known))
    agent = ledger.agent(connection, caller.home_workspace, request.agent)
    if agent is None or not rights.may_use(caller, agent):
        raise rights.no_such_agent()
    threads_receipts.require_capture(facts)
    name_ix = ledger.vault.index("thread_name", caller.home_workspace, owner, request.agent, request.name)
    head = connection.execute(statements.LOCKED_HEAD_BY_NAME, {"name_ix": name_ix}).one_or_none()
    has_opted_in = False
    if head is not None:
        opened = ledger.open(head, caller, Right.FEED)
        # Under the thread's lock: while it was waited for, the same request may have been done.
        done = threads_receipts.found(connection, opened, asked)
        if done is not None:
            return Created(done)
    else:
        now_us = clocks.dispatch_time_us(ledger.reading(connection), facts.clock_high_water_us)
        has_opted_in = row.format < WORKFLOW_FORMAT and workflows.raise_format(connection, WORKFLOW_FORMAT)
        origin = Origin(request.name, request.agent, caller.home_workspace, owner, rights.owner_name(caller), now_us)
        opened = _insert(connection, ledger, origin, row, name_ix=name_ix)
    receipt = {
        **threads_receipts.new(opened, request.request_id, "create"), "name": request.name, "agent": request.agent,
    }  # fmt: skip
    threads_receipts.keep(connection, opened, asked, receipt)
    return Created(receipt, is_new=head is None, has_opted_in=has_opted_in, at_us=opened.changed_us)


def _insert(
    connection: Connection, ledger: ThreadLedger, origin: Origin, vault: AnyRow, *, name_ix: bytes
) -> OpenedThread:
    """Insert a thread and its first record."""
    thread_id, now_us = new_id("th"), origin.created_us
    # The master key of now, as the locked row says: a rotation may have begun since this process looked.
    key, wrapped = ledger.vault.new_partition(thread_id, key_id=vault.vault_key_id)
    empty = Head(thread_id, revision=0, clock_high_water_us=now_us)
    thread_pk = statements.insert_thread(
        connection,
        partition={
            "partition_id": thread_id, "kind": "thread", "key_id": wrapped.key_id, "wrapped_key": wrapped.wrapped,
        },
        thread={
            **head_columns(empty), "thread_id": thread_id, "workspace_pk": origin.workspace_pk,
            "owner_ix": ledger.owner_ix(origin.owner), "name_ix": name_ix, "agent_ix": ledger.agent_ix(origin.agent),
            "created_at": now_us, "changed_at": now_us, "sealed_head": seal_head(key, empty, origin, chains.GENESIS),
        },
    )  # fmt: skip
    opened = OpenedThread(thread_pk, key, empty, origin, ledger.facts(vault), chains.GENESIS, now_us)
    first = Record(RecordKind.THREAD_CREATED.value, {"name": origin.name, "agent": origin.agent})
    change = Change(replace(empty, revision=1, last_seq=1), (first,))
    return ledger.record(connection, opened, change, at_us=now_us)
