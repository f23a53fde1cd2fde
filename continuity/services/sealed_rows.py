"""Every sealed column there is, with where its values open: the one list of what a vault holds.

A test compares it with the tables; a new sealed column is added here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from continuity.services.audit import PARTITION_ID
from continuity.services.deletion import TOMBSTONES
from continuity.services.owners import PARTITION
from continuity.services.threads_sealing import AGENTS
from continuity.store import schema as s
from continuity.store import threads_schema as t
from continuity.vault.place import Place


def _text(value: Any) -> str:
    return str(value)


def _dotted(*values: Any) -> str:
    return ".".join(map(str, values))


def _hex(value: bytes) -> str:
    return value.hex()


def _hex_first(first: bytes, second: str) -> str:
    return f"{first.hex()}.{second}"


def _hex_second(first: int, second: bytes) -> str:
    return f"{first}.{second.hex()}"


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """One sealed column.

    Attributes:
        column: The column.
        partition: The column that holds the partition's id, or the id of a shared partition.
        named_by: Columns from which the row's id in the place is spelled.
        spelled: Spells it.
        joined: Tables between the column's and the partition's, each with its condition.
    """

    column: sa.Column[Any]
    partition: sa.ColumnElement[str] | str
    named_by: tuple[sa.Column[Any], ...]
    spelled: Callable[..., str] = _text
    joined: tuple[tuple[sa.Table, sa.ColumnElement[bool]], ...] = ()

    @property
    def table(self) -> sa.Table:
        """The table of the column."""
        table: sa.Table = self.column.table
        return table

    def place(self, partition_id: str, names: tuple[Any, ...]) -> Place:
        """Return where a value opens; `names` are the values of `named_by`."""
        return Place(self.table.name, partition_id, self.spelled(*names), self.column.name)

    def statement(self, after: tuple[Any, ...] | None, *, count: int) -> sa.Select[Any]:
        """Select rows behind a primary key, in its order.

        Returns:
            Columns ``sealed, partition_id, wrapped_key, key_id``, then those of the primary key (``k0`` …) and of
            `named_by` (``n0`` …).
        """
        partition_id = sa.literal(self.partition) if isinstance(self.partition, str) else self.partition
        keys = list(self.table.primary_key.columns)
        source: Any = self.table
        for table, condition in self.joined:
            source = source.join(table, condition)
        source = source.outerjoin(s.partitions, s.partitions.c.partition_id == partition_id)
        statement = (
            sa.select(
                self.column.label("sealed"),
                partition_id.label("partition_id"),
                s.partitions.c.wrapped_key,
                s.partitions.c.key_id,
                *(key.label(f"k{number}") for number, key in enumerate(keys)),
                *(name.label(f"n{number}") for number, name in enumerate(self.named_by)),
            )
            .select_from(source)
            .where(self.column.is_not(None))
            .order_by(*keys)
            .limit(count)
        )
        if after is None:
            return statement
        bounds = [sa.bindparam(None, value, type_=key.type) for value, key in zip(after, keys, strict=True)]
        return statement.where(sa.tuple_(*keys) > sa.tuple_(*bounds))


def _of_workflow(
    column: sa.Column[Any], *named_by: sa.Column[Any], spelled: Callable[..., str] = _text
) -> SealedColumn:
    table = column.table
    joined = ((s.workflows, s.workflows.c.workflow_pk == table.c.workflow_pk),)
    return SealedColumn(column, s.workflows.c.workflow_id, named_by, spelled, joined)


def _of_thread(column: sa.Column[Any], *named_by: sa.Column[Any], spelled: Callable[..., str] = _text) -> SealedColumn:
    joined = ((t.threads, t.threads.c.thread_pk == column.table.c.thread_pk),)
    return SealedColumn(column, t.threads.c.thread_id, named_by, spelled, joined)


def _own(column: sa.Column[Any], identifier: sa.Column[Any]) -> SealedColumn:
    return SealedColumn(column, identifier, (identifier,))


_RUN = (s.evidence_runs, s.evidence_runs.c.run_pk == s.evidence.c.run_pk)
_RECORD = (s.evidence, s.evidence.c.evidence_pk == s.evidence_contents.c.evidence_pk)

SEALED: Final = (
    _own(s.workflows.c.sealed_head, s.workflows.c.workflow_id),
    SealedColumn(s.workflows.c.sealed_tombstone, TOMBSTONES, (s.workflows.c.workflow_id,)),
    _of_workflow(s.operations.c.sealed_state, s.operations.c.ordinal),
    _of_workflow(s.definitions.c.sealed_definition, s.definitions.c.ordinal),
    _of_workflow(s.receipts.c.sealed_receipt, s.receipts.c.ordinal, s.receipts.c.seq, spelled=_dotted),
    _of_workflow(s.events.c.sealed_event, s.events.c.seq),
    SealedColumn(s.owners.c.sealed_principal, PARTITION, (s.owners.c.principal_ix,), _hex),
    SealedColumn(s.owners.c.sealed_agents, PARTITION, (s.owners.c.principal_ix,), _hex),
    SealedColumn(s.audit.c.sealed_detail, PARTITION_ID, (s.audit.c.seq,)),
    _own(s.evidence_runs.c.sealed_head, s.evidence_runs.c.evidence_id),
    SealedColumn(s.evidence_runs.c.sealed_tombstone, TOMBSTONES, (s.evidence_runs.c.evidence_id,)),
    SealedColumn(
        s.evidence.c.sealed_record, s.evidence_runs.c.evidence_id, (s.evidence.c.seq,), joined=(_RUN,)
    ),
    SealedColumn(
        s.evidence_contents.c.sealed_content, s.evidence_runs.c.evidence_id, (s.evidence.c.seq,),
        joined=(_RECORD, _RUN),
    ),
    _own(t.threads.c.sealed_head, t.threads.c.thread_id),
    SealedColumn(t.threads.c.sealed_tombstone, TOMBSTONES, (t.threads.c.thread_id,)),
    _of_thread(t.runs.c.sealed_run, t.runs.c.number),
    _of_thread(t.journal.c.sealed_record, t.journal.c.seq),
    _of_thread(t.messages.c.sealed_item, t.messages.c.item_no),
    _of_thread(t.inputs.c.sealed_input, t.inputs.c.input_no),
    _of_thread(t.waiting.c.sealed_request, t.waiting.c.waiting_id),
    _of_thread(t.waiting.c.sealed_reply, t.waiting.c.waiting_id),
    _of_thread(
        t.requests.c.sealed_receipt, t.requests.c.scope_ix, t.requests.c.request_id, spelled=_hex_first
    ),
    _of_thread(t.thread_states.c.sealed_state, t.threads.c.thread_id),
    SealedColumn(t.agents.c.sealed_agent, AGENTS, (t.agents.c.workspace_pk, t.agents.c.agent_ix), _hex_second),
)  # fmt: skip
"""All of them, but for the canary in the vault's own row."""
