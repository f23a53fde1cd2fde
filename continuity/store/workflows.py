"""Statements on workflows: what a decision reads under its lock and what it writes.

Nothing here decides and nothing here can read a sealed column. Each statement is built once and compiled
once; a decision is three of the SELECTs at the head of this module and at most four of the writes.

Locks (PostgreSQL; on SQLite the write transaction is the lock): `LOCKED_HEAD` takes the vault's row, shared,
then the workflow's; the counters of a coordinator come after, the audit head last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from continuity.store import counters
from continuity.store.compiled import Compiled
from continuity.store.schema import (
    definitions,
    events,
    operations,
    owners,
    partitions,
    receipts,
    terms,
    vault,
    workflows,
    workspaces,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection


AnyRow: TypeAlias = Any
"""A row whose columns are read by name: SQLAlchemy's, or one of `compiled.Compiled`."""


class DatabaseTime(FunctionElement[int]):
    """Microseconds by the database's clock at the moment of evaluation; NULL where the host's clock decides."""

    type = sa.BigInteger()
    inherit_cache = True
    name = "database_time"


@compiles(DatabaseTime)
def _no_database_time(_element: DatabaseTime, _compiler: object, **_options: object) -> str:
    return "NULL"


@compiles(DatabaseTime, "postgresql")
def _postgresql_time(_element: DatabaseTime, _compiler: object, **_options: object) -> str:
    return "(extract(epoch from clock_timestamp()) * 1000000)::bigint"


VAULT_COLUMNS: Final = (
    vault.c.format,
    vault.c.state.label("vault_state"),
    vault.c.capture_mode,
    vault.c.clock_high_water.label("vault_mark"),
    vault.c.epoch.label("vault_epoch"),
    vault.c.restored_at,
    vault.c.recovery_open,
    vault.c.proof.label("vault_proof"),
)
"""What a decision must know of the vault."""

_THEN_WORKFLOW: Final = "FOR UPDATE OF continuity_workflows"
"""Behind the lock on the vault's row: PostgreSQL takes them in this order."""

_HEAD_COLUMNS: Final = (
    workflows.c.workflow_pk,
    workflows.c.workflow_id,
    workflows.c.workspace_pk,
    workflows.c.owner_pk,
    workflows.c.definition_ix,
    workflows.c.enabled,
    workflows.c.ever_enabled,
    workflows.c.operation_count,
    workflows.c.done_prefix,
    workflows.c.revision,
    workflows.c.clock_high_water,
    workflows.c.phase,
    workflows.c.phase_due_at,
    workflows.c.phase_after_due,
    workflows.c.created_at,
    workflows.c.changed_at,
    workflows.c.epoch,
    workflows.c.deleting_at,
    workflows.c.deleted_at,
    workflows.c.retained_bytes,
    workflows.c.reserved_bytes,
    workflows.c.sealed_head,
    partitions.c.key_id.label("wrapping_key_id"),
    partitions.c.wrapped_key,
)

HEAD: Final = sa.select(*_HEAD_COLUMNS, *VAULT_COLUMNS).select_from(
    workflows.outerjoin(partitions, partitions.c.partition_id == workflows.c.workflow_id).join(vault, vault.c.id == 1)
)
_BY_ID: Final = HEAD.where(workflows.c.workflow_id == bindparam("workflow_id"))
_BY_KEY: Final = HEAD.where(workflows.c.key_ix == bindparam("key_ix"))
HEAD_BY_ID: Final = _BY_ID.add_columns(DatabaseTime().label("now_us"))
"""For reading; what is locked has no time of its own, which might be that of before the wait."""
HEAD_BY_PK: Final = HEAD.where(workflows.c.workflow_pk == bindparam("workflow_pk"))
LOCKED_HEAD: Final = _BY_ID.with_for_update(of=vault, read=True, key_share=True).suffix_with(
    _THEN_WORKFLOW, dialect="postgresql"
)
LOCKED_HEAD_BY_KEY: Final = _BY_KEY.with_for_update(of=vault, read=True, key_share=True).suffix_with(
    _THEN_WORKFLOW, dialect="postgresql"
)

LOCKED_VAULT: Final = (
    sa.select(*VAULT_COLUMNS, vault.c.key_id.label("vault_key_id"), DatabaseTime().label("now_us"))
    .where(vault.c.id == 1)
    .with_for_update(of=vault, read=True, key_share=True)
)
VAULT: Final = sa.select(*VAULT_COLUMNS, DatabaseTime().label("now_us")).where(vault.c.id == 1)
VAULT_TO_CHANGE: Final = sa.select(*VAULT_COLUMNS).where(vault.c.id == 1).with_for_update(key_share=True)

_OPERATION_COLUMNS: Final = (
    operations.c.workflow_pk,
    operations.c.ordinal,
    operations.c.operation_id,
    operations.c.status,
    operations.c.attempt_count,
    operations.c.lease_until,
    operations.c.change_seq,
    operations.c.sealed_state,
    DatabaseTime().label("now_us"),
)
_IN_WORKFLOW: Final = operations.c.workflow_pk == bindparam("workflow_pk")

OPERATION: Final = sa.select(*_OPERATION_COLUMNS).where(_IN_WORKFLOW, operations.c.name_ix == bindparam("name_ix"))
OPERATION_AT: Final = sa.select(*_OPERATION_COLUMNS).where(_IN_WORKFLOW, operations.c.ordinal == bindparam("ordinal"))
OPERATIONS: Final = sa.select(*_OPERATION_COLUMNS).where(_IN_WORKFLOW).order_by(operations.c.ordinal)
OPERATION_AND_DEFINITION: Final = (
    sa.select(*_OPERATION_COLUMNS, definitions.c.sealed_definition)
    .select_from(
        operations.outerjoin(
            definitions,
            (definitions.c.workflow_pk == operations.c.workflow_pk) & (definitions.c.ordinal == operations.c.ordinal),
        )
    )
    .where(_IN_WORKFLOW, operations.c.name_ix == bindparam("name_ix"))
)
OPERATIONS_OF: Final = (
    sa.select(*_OPERATION_COLUMNS)
    .where(operations.c.workflow_pk.in_(bindparam("workflow_pks", expanding=True)))
    .order_by(operations.c.workflow_pk, operations.c.ordinal)
)
DEFINITIONS: Final = (
    sa.select(definitions.c.ordinal, definitions.c.sealed_definition)
    .where(definitions.c.workflow_pk == bindparam("workflow_pk"))
    .order_by(definitions.c.ordinal)
)
RECEIPT: Final = sa.select(receipts.c.sealed_receipt).where(
    receipts.c.workflow_pk == bindparam("workflow_pk"),
    receipts.c.ordinal == bindparam("ordinal"),
    receipts.c.seq == bindparam("seq"),
)
RECEIPTS: Final = (
    sa.select(
        receipts.c.ordinal, receipts.c.seq, receipts.c.attempt_no, receipts.c.received_at, receipts.c.sealed_receipt
    )
    .where(receipts.c.workflow_pk == bindparam("workflow_pk"))
    .order_by(receipts.c.ordinal, receipts.c.seq)
)
EVENTS: Final = (
    sa.select(events.c.seq, events.c.kind, events.c.at, events.c.hash, events.c.sealed_event)
    .where(events.c.workflow_pk == bindparam("workflow_pk"))
    .order_by(events.c.seq)
)

_UPDATE_WORKFLOW: Final = (
    sa.update(workflows)
    .where(workflows.c.workflow_pk == bindparam("b_workflow_pk"))
    .values({
        name: bindparam(name)
        for name in (
            "enabled", "ever_enabled", "done_prefix", "revision", "clock_high_water", "phase", "phase_due_at",
            "phase_after_due", "changed_at", "deleting_at", "retained_bytes", "reserved_bytes", "sealed_head",
        )
    })
)  # fmt: skip
_UPDATE_OPERATION: Final = (
    sa.update(operations)
    .where(operations.c.workflow_pk == bindparam("b_workflow_pk"), operations.c.ordinal == bindparam("b_ordinal"))
    .values({
        name: bindparam(name) for name in ("status", "attempt_count", "lease_until", "change_seq", "sealed_state")
    })
)  # fmt: skip
_UPDATE_PHASE: Final = (
    sa.update(workflows)
    .where(workflows.c.workflow_pk == bindparam("b_workflow_pk"))
    .values({name: bindparam(name) for name in ("phase", "phase_due_at", "phase_after_due")})
)
WORKSPACE_NAME: Final = sa.select(workspaces.c.name).where(workspaces.c.workspace_pk == bindparam("workspace_pk"))
OWNER: Final = sa.select(owners.c.owner_pk).where(owners.c.principal_ix == bindparam("principal_ix"))


_DECIDED_BY: Final = (
    workflows.c.workflow_pk, workflows.c.workflow_id, workflows.c.workspace_pk, workflows.c.owner_pk,
    workflows.c.enabled, workflows.c.ever_enabled, workflows.c.operation_count, workflows.c.done_prefix,
    workflows.c.revision, workflows.c.clock_high_water, workflows.c.epoch, workflows.c.deleting_at,
    workflows.c.deleted_at, workflows.c.retained_bytes, workflows.c.reserved_bytes, workflows.c.sealed_head,
    partitions.c.key_id.label("wrapping_key_id"), partitions.c.wrapped_key, *VAULT_COLUMNS[1:],
)  # fmt: skip
"""What a decision reads of the head: without what only lists and people look at."""
LOCKED_HEAD_HOT: Final = Compiled(LOCKED_HEAD.with_only_columns(*_DECIDED_BY))
LOCKED_HEAD_AND_COUNTERS_HOT: Final = Compiled(
    LOCKED_HEAD.with_only_columns(*_DECIDED_BY, *counters.COLUMNS)
    .select_from(workflows)
    .join(owners, owners.c.owner_pk == workflows.c.owner_pk)
)
"""For a coordinator, whose counters the decision moves; on PostgreSQL they are not locked with it."""
OPERATION_HOT: Final = Compiled(OPERATION)
OPERATION_AND_DEFINITION_HOT: Final = Compiled(OPERATION_AND_DEFINITION)
_UPDATE_WORKFLOW_HOT: Final = Compiled(_UPDATE_WORKFLOW)
_UPDATE_OPERATION_HOT: Final = Compiled(_UPDATE_OPERATION)
_INSERT_EVENT_HOT: Final = Compiled(sa.insert(events))
_INSERT_RECEIPT_HOT: Final = Compiled(sa.insert(receipts))

LOCKED_VAULT_HOT: Final = Compiled(LOCKED_VAULT)
LOCKED_HEAD_BY_KEY_HOT: Final = Compiled(LOCKED_HEAD_BY_KEY)
_INSERT_PARTITION_HOT: Final = Compiled(sa.insert(partitions))
_INSERT_WORKFLOW_HOT: Final = Compiled(
    sa.insert(workflows)
    .values({
        name: bindparam(name)
        for name in (
            "workflow_id", "workspace_pk", "owner_pk", "key_ix", "definition_ix", "enabled", "ever_enabled",
            "operation_count", "done_prefix", "revision", "clock_high_water", "phase", "phase_due_at",
            "phase_after_due", "created_at", "changed_at", "epoch", "retained_bytes", "reserved_bytes", "sealed_head",
        )
    })
    .returning(workflows.c.workflow_pk)
)  # fmt: skip
_INSERT_OPERATION_HOT: Final = Compiled(sa.insert(operations))
_INSERT_DEFINITION_HOT: Final = Compiled(sa.insert(definitions))
_INSERT_TERM_HOT: Final = Compiled(sa.insert(terms))


def update_workflow(connection: Connection, workflow_pk: int, values: Mapping[str, Any]) -> None:
    """Write the changing columns of one workflow; `values` names every one of them."""
    _UPDATE_WORKFLOW_HOT.send(connection, {"b_workflow_pk": workflow_pk, **values})


def update_operation(connection: Connection, workflow_pk: int, ordinal: int, values: Mapping[str, Any]) -> None:
    """Write the changing columns of one operation; `values` names every one of them."""
    _UPDATE_OPERATION_HOT.send(connection, {"b_workflow_pk": workflow_pk, "b_ordinal": ordinal, **values})


def update_phase(connection: Connection, workflow_pk: int, values: Mapping[str, Any]) -> None:
    """Write what a workflow is shown as: ``phase, phase_due_at, phase_after_due``."""
    connection.execute(_UPDATE_PHASE, {"b_workflow_pk": workflow_pk, **values})


def insert_event(connection: Connection, values: Mapping[str, Any]) -> None:
    """Append one row of a workflow's history."""
    _INSERT_EVENT_HOT.send(connection, values)


def insert_receipt(connection: Connection, values: Mapping[str, Any]) -> None:
    """Keep one receipt."""
    _INSERT_RECEIPT_HOT.send(connection, values)


def insert_workflow(
    connection: Connection,
    *,
    partition: Mapping[str, Any],
    workflow: Mapping[str, Any],
    operation_rows: Sequence[Mapping[str, Any]],
    definition_rows: Sequence[Mapping[str, Any]],
    term_indexes: Sequence[bytes],
) -> int:
    """Insert a workflow and everything it consists of but its first event.

    Args:
        connection: Inside `Store.write`.
        partition: Row of its data key.
        workflow: Row of the workflow, without its ``workflow_pk`` and what only a deletion writes.
        operation_rows: Rows of its operations, without ``workflow_pk``.
        definition_rows: Rows of their definitions, without ``workflow_pk``.
        term_indexes: Blind indexes of its words, distinct.

    Returns:
        The new ``workflow_pk``.

    Raises:
        sqlalchemy.exc.IntegrityError: The key exists already. Nothing has happened once `write` has left.
    """
    _INSERT_PARTITION_HOT.send(connection, partition)
    [inserted] = _INSERT_WORKFLOW_HOT.all(connection, workflow)
    place = {"workflow_pk": inserted.workflow_pk}
    _INSERT_OPERATION_HOT.run_each(connection, [{**row, **place} for row in operation_rows])
    _INSERT_DEFINITION_HOT.run_each(connection, [{**row, **place} for row in definition_rows])
    workspace = {"workspace_pk": workflow["workspace_pk"], **place}
    _INSERT_TERM_HOT.run_each(connection, [{"term_ix": index, **workspace} for index in term_indexes])
    return int(inserted.workflow_pk)


def ensure_owner(connection: Connection, values: Mapping[str, Any]) -> int:
    """Add a key namespace unless somebody else just did; returns its ``owner_pk``."""
    insert = sqlite_insert if connection.dialect.name == "sqlite" else postgresql_insert
    statement = insert(owners).values(dict(values))
    connection.execute(statement.on_conflict_do_nothing(index_elements=[owners.c.principal_ix]))
    return int(connection.execute(OWNER, {"principal_ix": values["principal_ix"]}).scalar_one())


def raise_format(connection: Connection, number: int) -> bool:
    """Raise the vault's format; False when somebody else just did."""
    statement = sa.update(vault).where(vault.c.id == 1, vault.c.format < number)
    return connection.execute(statement.values(format=number)).rowcount == 1


def raise_mark(connection: Connection, at_us: int, *, proof: bytes) -> None:
    """Raise the vault's clock mark to `at_us`, with the row's proof; never lowers it."""
    statement = sa.update(vault).where(vault.c.id == 1, vault.c.clock_high_water < at_us)
    connection.execute(statement.values(clock_high_water=at_us, proof=proof))


def write_proof(connection: Connection, proof: bytes) -> None:
    """Write the proof of a vault's row that has none."""
    connection.execute(sa.update(vault).where(vault.c.id == 1, vault.c.proof.is_(None)).values(proof=proof))
