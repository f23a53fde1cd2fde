"""Tables of threads, in the metadata of `continuity.store.schema`; its rules hold here as well.

What a snapshot needs is kept current in the rows of the thread, its items, inputs, requests and state, so that reading
one never depends on how long the journal is. The journal is only ever appended to.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Column, Index, Named, TypedColumns

from continuity.store.schema import BYTES, INTEGER, PUBLIC_ID, WORD, metadata

THREAD_STATES: Final = ("idle", "running", "waiting", "needs_attention", "deleted")
"""States of the wire, and ``deleted`` for a tombstone, which no list shows."""
RUN_STATES: Final = ("queued", "claimed", "settled", "waiting", "interrupted", "failed", "stopped")
REQUEST_STATES: Final = ("open", "answered", "cancelled")


def _one_of(column: str, words: tuple[str, ...]) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(word) for word in words)})", name=column)


def _living(name: str, *columns: str, where: str) -> Index:
    return Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


class ThreadColumns(TypedColumns):
    """Threads and their tombstones.

    ``thread_pk`` grows and is never used again: it is the order "newest first" of every list. ``name_ix`` (of
    workspace, owner, agent and name) and ``thread_id`` stay with the tombstone, which has ``deleted_at``, no head and a
    ``sealed_tombstone`` under the settings partition. ``queued_at`` stands while a run waits for a worker, and
    ``claim_until`` while one has it.
    """

    thread_pk = Column(INTEGER, primary_key=True)
    thread_id: Named[str] = Column(PUBLIC_ID, unique=True)
    workspace_pk: Named[int] = Column(INTEGER)
    owner_ix: Named[bytes] = Column(BYTES)
    name_ix: Named[bytes] = Column(BYTES, unique=True)
    agent_ix: Named[bytes] = Column(BYTES)
    state: Named[str] = Column(WORD)
    revision: Named[int] = Column(INTEGER)
    clock_high_water: Named[int] = Column(INTEGER)
    last_seq: Named[int] = Column(INTEGER)
    trimmed_seq: Named[int] = Column(INTEGER)
    run_count: Named[int] = Column(INTEGER)
    item_count: Named[int] = Column(INTEGER)
    queued_at: Named[int | None] = Column(INTEGER)
    claim_until: Named[int | None] = Column(INTEGER)
    created_at: Named[int] = Column(INTEGER)
    changed_at: Named[int] = Column(INTEGER)
    deleting_at: Named[int | None] = Column(INTEGER)
    deleted_at: Named[int | None] = Column(INTEGER)
    sealed_head: Named[bytes | None] = Column(BYTES)
    sealed_tombstone: Named[bytes | None] = Column(BYTES)


threads: Final = sa.Table(
    "continuity_threads",
    metadata,
    ThreadColumns,
    _one_of("state", THREAD_STATES),
    sa.CheckConstraint("(sealed_head IS NULL) = (deleted_at IS NOT NULL)", name="head"),
    _living("ix_continuity_threads_living", "workspace_pk", "thread_pk", where="deleted_at IS NULL"),
    _living("ix_continuity_threads_owned", "owner_ix", "thread_pk", where="deleted_at IS NULL"),
    Index(None, "workspace_pk", "state", "thread_pk"),
    _living("ix_continuity_threads_owned_in_state", "owner_ix", "state", "thread_pk", where="deleted_at IS NULL"),
    _living("ix_continuity_threads_in_state", "state", "thread_pk", where="deleted_at IS NULL"),
    _living("ix_continuity_threads_queue", "workspace_pk", "agent_ix", "queued_at", where="queued_at IS NOT NULL"),
    _living("ix_continuity_threads_claims", "claim_until", where="claim_until IS NOT NULL"),
    _living("ix_continuity_threads_deleting", "deleting_at", where="deleting_at IS NOT NULL"),
    sqlite_autoincrement=True,
)


class RunColumns(TypedColumns):
    """Runs; ``number`` counts from 1. ``claim_ix`` is of the credential and the request_id that claimed it."""

    thread_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    number = Column(INTEGER, primary_key=True, autoincrement=False)
    run_id: Named[str] = Column(PUBLIC_ID, unique=True)
    state: Named[str] = Column(WORD)
    claim_ix: Named[bytes | None] = Column(BYTES, unique=True)
    sealed_run: Named[bytes] = Column(BYTES)


runs: Final = sa.Table("continuity_runs", metadata, RunColumns, _one_of("state", RUN_STATES), sqlite_with_rowid=False)


class JournalColumns(TypedColumns):
    """A thread's records, ``seq`` 1, 2, 3 … without gaps. ``hash`` chains the rows (`services.chains`)."""

    thread_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    seq = Column(INTEGER, primary_key=True, autoincrement=False)
    kind: Named[str] = Column(WORD)
    generation: Named[int | None] = Column(INTEGER)
    at: Named[int] = Column(INTEGER)
    hash: Named[bytes] = Column(BYTES)
    sealed_record: Named[bytes] = Column(BYTES)


journal: Final = sa.Table("continuity_journal", metadata, JournalColumns, sqlite_with_rowid=False)


class MessageColumns(TypedColumns):
    """The transcript: messages and tool calls, as they are now. ``changed_seq`` is the record that changed one last."""

    thread_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    item_no = Column(INTEGER, primary_key=True, autoincrement=False)
    item_ix: Named[bytes] = Column(BYTES)
    changed_seq: Named[int] = Column(INTEGER)
    sealed_item: Named[bytes] = Column(BYTES)


messages: Final = sa.Table(
    "continuity_messages",
    metadata,
    MessageColumns,
    sa.UniqueConstraint("thread_pk", "item_ix"),
    sqlite_with_rowid=False,
)


class InputColumns(TypedColumns):
    """What clients said, as it was accepted; never rewritten. Which of them still wait stands in the sealed head."""

    thread_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    input_no = Column(INTEGER, primary_key=True, autoincrement=False)
    at: Named[int] = Column(INTEGER)
    sealed_input: Named[bytes] = Column(BYTES)


inputs: Final = sa.Table("continuity_inputs", metadata, InputColumns, sqlite_with_rowid=False)


class WaitingColumns(TypedColumns):
    """Waiting requests. ``place_ix`` is of task and ordinal: the same place asked again is the same request."""

    waiting_id = Column(PUBLIC_ID, primary_key=True)
    thread_pk: Named[int] = Column(INTEGER)
    revision: Named[int] = Column(INTEGER)
    state: Named[str] = Column(WORD)
    place_ix: Named[bytes] = Column(BYTES)
    sealed_request: Named[bytes] = Column(BYTES)
    sealed_reply: Named[bytes | None] = Column(BYTES)


waiting: Final = sa.Table(
    "continuity_waiting",
    metadata,
    WaitingColumns,
    _one_of("state", REQUEST_STATES),
    sa.UniqueConstraint("thread_pk", "place_ix"),
    sqlite_with_rowid=False,
)


class RequestColumns(TypedColumns):
    """Receipts: the stored answer to a request_id. ``scope_ix`` is of the principal and the thread or workspace."""

    scope_ix = Column(BYTES, primary_key=True)
    request_id = Column(sa.String(128), primary_key=True)
    thread_pk: Named[int] = Column(INTEGER)
    body_ix: Named[bytes] = Column(BYTES)
    sealed_receipt: Named[bytes] = Column(BYTES)


requests: Final = sa.Table(
    "continuity_requests", metadata, RequestColumns, Index(None, "thread_pk"), sqlite_with_rowid=False
)


class StateColumns(TypedColumns):
    """Declared state of a thread, as it is now."""

    thread_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    sealed_state: Named[bytes] = Column(BYTES)


thread_states: Final = sa.Table("continuity_thread_states", metadata, StateColumns, sqlite_with_rowid=False)


class AgentColumns(TypedColumns):
    """Agents that a worker of the workspace has declared."""

    workspace_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    agent_ix = Column(BYTES, primary_key=True)
    changed_at: Named[int] = Column(INTEGER)
    sealed_agent: Named[bytes] = Column(BYTES)


agents: Final = sa.Table("continuity_agents", metadata, AgentColumns, sqlite_with_rowid=False)
