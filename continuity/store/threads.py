"""Statements on threads: what a decision reads under its lock, what it writes, and what is read for clients.

Nothing here decides and nothing here can read a sealed column.

Locks (PostgreSQL; on SQLite the write transaction is the lock): the vault's row, shared, then the thread's. Everything
else of a thread is written under its row's lock; the audit head comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from continuity.store.schema import INTEGER, partitions, vault, workflows
from continuity.store.threads_schema import (
    agents,
    inputs,
    journal,
    messages,
    requests,
    runs,
    thread_states,
    threads,
    waiting,
)
from continuity.store.workflows import VAULT_COLUMNS, DatabaseTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from continuity.store.workflows import AnyRow


_THEN_THREAD: Final = "FOR UPDATE OF continuity_threads"
_UNLESS_LOCKED: Final = "FOR UPDATE OF continuity_threads SKIP LOCKED"

_HEAD: Final = sa.select(
    *(column for column in threads.c if column.name != "sealed_tombstone"),
    partitions.c.key_id.label("wrapping_key_id"),
    partitions.c.wrapped_key,
    *VAULT_COLUMNS,
).select_from(
    threads.outerjoin(partitions, partitions.c.partition_id == threads.c.thread_id).join(vault, vault.c.id == 1)
)
_BY_ID: Final = _HEAD.where(threads.c.thread_id == bindparam("thread_id"))
_BY_PK: Final = _HEAD.where(threads.c.thread_pk == bindparam("thread_pk"))
_BY_NAME: Final = _HEAD.where(threads.c.name_ix == bindparam("name_ix"))


def _locked(statement: sa.Select[*tuple[Any, ...]], suffix: str) -> sa.Select[*tuple[Any, ...]]:
    return statement.with_for_update(of=vault, read=True, key_share=True).suffix_with(suffix, dialect="postgresql")


HEAD: Final = _BY_ID.add_columns(DatabaseTime().label("now_us"))
"""For reading; what is locked has no time of its own, which might be that of before the wait."""
LOCKED_HEAD: Final = _locked(_BY_ID, _THEN_THREAD)
LOCKED_HEAD_BY_PK: Final = _locked(_BY_PK, _THEN_THREAD)
FREE_HEAD_BY_PK: Final = _locked(_BY_PK, _UNLESS_LOCKED)
"""Nothing where somebody else has the row locked: for what another run of the same search finds again."""
HEAD_BY_RUN: Final = _HEAD.where(
    threads.c.thread_pk == sa.select(runs.c.thread_pk).where(runs.c.run_id == bindparam("run_id")).scalar_subquery()
)
LOCKED_HEAD_BY_RUN: Final = _locked(HEAD_BY_RUN, _THEN_THREAD)
LOCKED_HEAD_BY_NAME: Final = _locked(_BY_NAME, _THEN_THREAD)
HEADS: Final = _HEAD.where(threads.c.deleted_at.is_(None), threads.c.deleting_at.is_(None))
"""Of living threads, for lists: `page`."""
NOW: Final = sa.select(DatabaseTime().label("now_us"))

_BEHIND: Final = sa.tuple_(bindparam("after_us", type_=INTEGER), bindparam("after_pk", type_=INTEGER))
QUEUED: Final = (
    sa.select(threads.c.thread_pk, threads.c.queued_at)
    .where(
        threads.c.workspace_pk == bindparam("workspace_pk"),
        threads.c.agent_ix.in_(bindparam("agent_indexes", expanding=True)),
        threads.c.queued_at.is_not(None),
        sa.tuple_(threads.c.queued_at, threads.c.thread_pk) > _BEHIND,
    )
    .order_by(threads.c.queued_at, threads.c.thread_pk)
    .limit(bindparam("count"))
)
DUE: Final = (
    sa.select(threads.c.thread_id, threads.c.claim_until, threads.c.thread_pk)
    .where(
        threads.c.claim_until <= bindparam("now_us"),
        sa.tuple_(threads.c.claim_until, threads.c.thread_pk) > _BEHIND,
    )
    .order_by(threads.c.claim_until, threads.c.thread_pk)
    .limit(bindparam("count"))
)
DELETING: Final = (
    sa.select(threads.c.thread_id)
    .where(threads.c.deleting_at.is_not(None))
    .order_by(threads.c.deleting_at)
    .limit(bindparam("count"))
)

_IN_THREAD: Final[sa.BindParameter[int]] = bindparam("thread_pk", type_=INTEGER)
CLAIMED: Final = sa.select(runs.c.thread_pk, runs.c.number, runs.c.run_id, runs.c.sealed_run).where(
    runs.c.claim_ix == bindparam("claim_ix")
)
RUN_AT: Final = sa.select(runs.c.sealed_run).where(runs.c.thread_pk == _IN_THREAD, runs.c.number == bindparam("number"))
WORKS: Final = sa.select(workflows.c.workflow_id).where(
    workflows.c.workspace_pk == bindparam("workspace_pk"),
    workflows.c.workflow_id.in_(bindparam("workflow_ids", expanding=True)),
)
"""Which of the workflows that a worker names are there for it."""
NEWEST_RUNS: Final = (
    sa.select(runs.c.number, runs.c.run_id, runs.c.state, runs.c.sealed_run)
    .where(runs.c.thread_pk == _IN_THREAD)
    .order_by(runs.c.number.desc())
    .limit(bindparam("count"))
)
RECORDS: Final = (
    sa.select(
        journal.c.seq, journal.c.kind, journal.c.generation, journal.c.at, journal.c.hash, journal.c.sealed_record
    )
    .where(journal.c.thread_pk == _IN_THREAD, journal.c.seq > bindparam("after"))
    .order_by(journal.c.seq)
    .limit(bindparam("count"))
)
ITEM: Final = sa.select(messages.c.item_no, messages.c.changed_seq, messages.c.sealed_item).where(
    messages.c.thread_pk == _IN_THREAD, messages.c.item_no == bindparam("item_no")
)
ITEMS: Final = sa.select(messages.c.item_no, messages.c.changed_seq, messages.c.sealed_item).where(
    messages.c.thread_pk == _IN_THREAD, messages.c.item_no.in_(bindparam("numbers", expanding=True))
)
KNOWN_ITEMS: Final = sa.select(messages.c.item_no, messages.c.item_ix).where(
    messages.c.thread_pk == _IN_THREAD, messages.c.item_ix.in_(bindparam("item_indexes", expanding=True))
)
NEWEST_ITEMS: Final = (
    sa.select(messages.c.item_no, messages.c.changed_seq, messages.c.sealed_item)
    .where(messages.c.thread_pk == _IN_THREAD)
    .order_by(messages.c.item_no.desc())
    .limit(bindparam("count"))
)
OLDER_ITEMS: Final = (
    sa.select(messages.c.item_no, messages.c.changed_seq, messages.c.sealed_item)
    .where(messages.c.thread_pk == _IN_THREAD, messages.c.item_no < bindparam("before"))
    .order_by(messages.c.item_no.desc())
    .limit(bindparam("count"))
)
INPUTS: Final = sa.select(inputs.c.input_no, inputs.c.at, inputs.c.sealed_input).where(
    inputs.c.thread_pk == _IN_THREAD, inputs.c.input_no.in_(bindparam("numbers", expanding=True))
)
REQUEST: Final = sa.select(waiting).where(
    waiting.c.thread_pk == _IN_THREAD, waiting.c.waiting_id == bindparam("waiting_id")
)
REQUESTS: Final = sa.select(waiting).where(
    waiting.c.thread_pk == _IN_THREAD, waiting.c.waiting_id.in_(bindparam("ids", expanding=True))
)
REQUEST_AT: Final = sa.select(waiting).where(
    waiting.c.thread_pk == _IN_THREAD, waiting.c.place_ix == bindparam("place_ix")
)
RECEIPT: Final = sa.select(requests.c.thread_pk, requests.c.body_ix, requests.c.sealed_receipt).where(
    requests.c.scope_ix == bindparam("scope_ix"), requests.c.request_id == bindparam("request_id")
)
STATE: Final = sa.select(thread_states.c.sealed_state).where(thread_states.c.thread_pk == _IN_THREAD)
AGENT: Final = sa.select(agents.c.sealed_agent).where(
    agents.c.workspace_pk == bindparam("workspace_pk"), agents.c.agent_ix == bindparam("agent_ix")
)
AGENTS: Final = (
    sa.select(agents.c.workspace_pk, agents.c.agent_ix, agents.c.sealed_agent)
    .where(agents.c.workspace_pk == bindparam("workspace_pk"))
    .order_by(agents.c.agent_ix)
)

_UPDATE: Final = sa.update(threads).where(threads.c.thread_pk == bindparam("pk"))
_INSERT_JOURNAL: Final = sa.insert(journal)

_CONTENT: Final = (runs, messages, inputs, waiting, requests, thread_states)
"""All but the journal, which is destroyed in steps: `destroy_records`."""
DESTROYED_AT_ONCE: Final = 1_000


def page(
    connection: Connection, *, before: int | None, count: int, owner_ix: bytes | None = None,
    workspaces: Sequence[int] | None = None, state: str | None = None,
) -> Sequence[AnyRow]:  # fmt: skip
    """Read heads of living threads, newest first.

    Args:
        connection: A reading transaction.
        before: Only threads with a smaller ``thread_pk``.
        count: At most so many.
        owner_ix: Only this owner's.
        workspaces: Only in these; None for all.
        state: Only in this state.
    """
    if owner_ix is not None:
        own = [threads.c.owner_ix == owner_ix]
        # An owner has fewer threads than a workspace: of all indexes the one of owners is to be used.
        own += [] if workspaces is None else [(threads.c.workspace_pk + 0).in_(workspaces)]
        numbers = _newest(connection, own, before=before, count=count, state=state)
    elif workspaces is None:
        numbers = _newest(connection, [], before=before, count=count, state=state)
    else:
        # One after the other: each has its threads in order, and several at once would have to be sorted.
        numbers = [
            number
            for workspace_pk in workspaces
            for number in _newest(
                connection, [threads.c.workspace_pk == workspace_pk], before=before, count=count, state=state
            )
        ]
    shown = sorted(numbers, reverse=True)[:count]
    return connection.execute(HEADS.where(threads.c.thread_pk.in_(shown)).order_by(threads.c.thread_pk.desc())).all()


def _newest(
    connection: Connection, wanted: Sequence[sa.ColumnElement[bool]], *, before: int | None, count: int,
    state: str | None,
) -> Sequence[int]:  # fmt: skip
    """Return numbers of living threads, newest first, by an index that has them in this order."""
    statement = sa.select(threads.c.thread_pk).where(
        *wanted, threads.c.deleted_at.is_(None), threads.c.deleting_at.is_(None)
    )
    if before is not None:
        statement = statement.where(threads.c.thread_pk < before)
    if state is not None:
        statement = statement.where(threads.c.state == state)
    return connection.execute(statement.order_by(threads.c.thread_pk.desc()).limit(count)).scalars().all()


def living_after(connection: Connection, *, after: int, count: int) -> Sequence[AnyRow]:
    """Read heads of living threads of all workspaces, oldest first: at most `count` with a larger ``thread_pk``."""
    return connection.execute(HEADS.where(threads.c.thread_pk > after).order_by(threads.c.thread_pk).limit(count)).all()


def old_records(connection: Connection, thread_pk: int, *, after: int, before_us: int) -> tuple[int, int]:
    """Count the records of a thread behind a sequence number that were written before a time, and their bytes."""
    size = sa.func.coalesce(sa.func.sum(sa.func.length(journal.c.sealed_record)), 0)
    place = (journal.c.thread_pk == thread_pk, journal.c.seq > after, journal.c.at < before_us)
    count, size_bytes = connection.execute(sa.select(sa.func.count(), size).where(*place)).one()
    return int(count), int(size_bytes)


def counts(connection: Connection, states: Sequence[str], workspaces: Sequence[int], *, most: int) -> dict[str, int]:
    """Count living threads of workspaces by state, each up to `most`: what it costs does not grow with their number."""
    found = {}
    for state in states:
        each = sa.select(threads.c.thread_pk).where(
            threads.c.workspace_pk.in_(workspaces), threads.c.state == state, threads.c.deleted_at.is_(None)
        )
        found[state] = int(
            connection.execute(sa.select(sa.func.count()).select_from(each.limit(most).subquery())).scalar_one()
        )
    return found


def insert_thread(connection: Connection, *, partition: Mapping[str, Any], thread: Mapping[str, Any]) -> int:
    """Insert a thread and its data key; returns its ``thread_pk``."""
    connection.execute(sa.insert(partitions).values(**partition))
    made = connection.execute(sa.insert(threads).values(**thread).returning(threads.c.thread_pk))
    return int(made.scalar_one())


def update_thread(connection: Connection, thread_pk: int, values: Mapping[str, Any]) -> None:
    """Write changed columns of a thread."""
    connection.execute(_UPDATE.values(**values), {"pk": thread_pk})


def insert_records(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to the journal."""
    connection.execute(_INSERT_JOURNAL, [dict(row) for row in rows])


def lock_claim(connection: Connection, claim_ix: bytes) -> None:
    """Let the same claim, sent twice at once, be decided one after the other. First of all locks."""
    if connection.dialect.name == "postgresql":
        number = int.from_bytes(claim_ix[:8], "big", signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))


def put_run(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write a run, new or changed."""
    _put(connection, runs, row, key=("thread_pk", "number"))


def put_item(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write an item of the transcript, new or changed."""
    _put(connection, messages, row, key=("thread_pk", "item_no"))


def put_request(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write a waiting request, new or changed."""
    _put(connection, waiting, row, key=("waiting_id",))


def put_state(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write the declared state of a thread."""
    _put(connection, thread_states, row, key=("thread_pk",))


def put_agent(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write what a worker has declared of an agent."""
    _put(connection, agents, row, key=("workspace_pk", "agent_ix"))


def insert_input(connection: Connection, row: Mapping[str, Any]) -> None:
    """Keep what a client said."""
    connection.execute(sa.insert(inputs).values(**row))


def insert_receipt(connection: Connection, row: Mapping[str, Any]) -> None:
    """Keep the answer to a request_id."""
    connection.execute(sa.insert(requests).values(**row))


def update_request(connection: Connection, waiting_id: str, values: Mapping[str, Any]) -> None:
    """Write changed columns of a waiting request."""
    connection.execute(sa.update(waiting).where(waiting.c.waiting_id == waiting_id).values(**values))


def trim_records(connection: Connection, thread_pk: int, upto: int) -> None:
    """Let go of a thread's records up to one."""
    connection.execute(sa.delete(journal).where(journal.c.thread_pk == thread_pk, journal.c.seq <= upto))


def destroy_records(connection: Connection, thread_pk: int) -> int:
    """Destroy the oldest `DESTROYED_AT_ONCE` records of a thread; returns how many there were."""
    oldest = sa.select(sa.func.min(journal.c.seq)).where(journal.c.thread_pk == thread_pk).scalar_subquery()
    place = (journal.c.thread_pk == thread_pk, journal.c.seq < oldest + DESTROYED_AT_ONCE)
    return connection.execute(sa.delete(journal).where(*place)).rowcount


def destroy(connection: Connection, *, thread_pk: int, thread_id: str) -> dict[str, int]:
    """Destroy a thread's data key and content; returns how many rows of each table."""
    connection.execute(sa.update(partitions).where(partitions.c.partition_id == thread_id).values(wrapped_key=None))
    return {
        table.name.removeprefix("continuity_"): connection.execute(
            sa.delete(table).where(table.c.thread_pk == thread_pk)
        ).rowcount
        for table in _CONTENT
    }


def entomb(connection: Connection, thread_pk: int, *, at_us: int) -> None:
    """Turn a thread's row into its tombstone."""
    values = {
        "deleting_at": None, "deleted_at": at_us, "changed_at": at_us, "state": "deleted", "queued_at": None,
        "claim_until": None, "sealed_head": None,
    }  # fmt: skip
    connection.execute(_UPDATE.values(**values), {"pk": thread_pk})


def _put(connection: Connection, table: sa.Table, row: Mapping[str, Any], *, key: tuple[str, ...]) -> None:
    insert = sqlite_insert if connection.dialect.name == "sqlite" else postgresql_insert
    statement = insert(table).values(**row)
    changed = {name: statement.excluded[name] for name in row if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=[table.c[name] for name in key], set_=changed))
