"""Tables of governed operations, as SQLAlchemy Core metadata ``continuity``.

Rules:

* A clear column holds an opaque id, a state, a counter, a time, a name of a workspace or a keyed hash
  (``*_ix``: HMAC-SHA-256 under the vault's index key, 32 bytes). Everything else is sealed.
* ``sealed_*`` is the vault's envelope under the row's partition; the place is (table, partition id, row id,
  column). Every clear column that a decision reads also stands in the sealed state.
* Times are whole microseconds since 1970 in UTC. Words (phase, status, kind …) are stored as words with a
  check beside them, so that the database can be read without this file.
* Large values that never change have tables of their own: an UPDATE of a row rewrites the whole row.
* No foreign keys: rows are written beside their workflow in one transaction, the sealed head says which
  rows must exist, and each key would cost a decision one more look-up (on PostgreSQL one more row lock).
* A change here needs a migration; `alembic check` in the tests finds the difference.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Column, Index, Named, TypedColumns

NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
"""Names of constraints; the metadata of every package must use exactly these."""

metadata: Final = sa.MetaData(naming_convention=NAMING)

INTEGER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""64 bits on both databases; SQLite makes a row id only of the type called INTEGER."""
BYTES: Final = sa.LargeBinary()
SMALL: Final = sa.SmallInteger()
WORD: Final = sa.String(32)
PUBLIC_ID: Final = sa.String(40)
ACTION: Final = sa.String(64).with_variant(sa.String(64, collation="C"), "postgresql")
"""Compared by its bytes everywhere: all actions of a noun are a range of the index."""
"""``wf_`` or ``op_`` and 32 hex digits, and other ids made by the server."""

CAPTURE_MODES: Final = ("full", "metadata", "off")
VAULT_STATES: Final = ("open", "locked", "rotating")
ROTATION_STATES: Final = ("adding", "announced", "running", "held", "retiring", "done")
HOLDER_STATES: Final = ("open", "locked")
PARTITION_KINDS: Final = ("workflow", "thread", "evidence", "audit", "settings", "owner")
OWNER_KINDS: Final = (
    "operators",
    "evidence_collector",
    "continuity_host",
    "continuity_coordinator",
    "continuity_observer",
    "thread_worker",
    "thread_application",
)
"""``operators`` is the namespace that all operators of a workspace share; the others are one principal each."""
PHASES: Final = ("review", "paused", "ready", "running", "resumable", "decision", "done", "ended", "deleted")
"""Phases of the wire, and ``deleted`` for a tombstone, which no list shows."""
STATUSES: Final = ("pending", "uncertain", "completed", "refused", "abandoned")
AUDIT_START: Final = bytes(32)
"""``hash`` of the audit head before the first entry."""


def _one_of(column: str, words: tuple[str, ...]) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{column} IN ({', '.join(repr(word) for word in words)})", name=column)


def _single_row() -> sa.CheckConstraint:
    return sa.CheckConstraint("id = 1", name="single")


class VaultColumns(TypedColumns):
    """The vault: one row, joined into the first SELECT of every decision.

    ``proof`` is a keyed hash over what a decision reads of it; without one nothing is decided.
    ``generation`` rises whenever a process must look again at state or keys; ``key_id`` is the master key that wraps.
    ``restored_from`` is the time of the data that the last restore brought back: for people, no decision reads it.
    """

    id = Column(SMALL, primary_key=True, autoincrement=False)
    format: Named[int] = Column(SMALL)
    epoch: Named[int] = Column(INTEGER)
    capture_mode: Named[str] = Column(WORD)
    state: Named[str] = Column(WORD)
    key_id: Named[int] = Column(INTEGER)
    clock_high_water: Named[int] = Column(INTEGER)
    restored_at: Named[int | None] = Column(INTEGER)
    recovery_open: Named[bool] = Column(sa.Boolean)
    shred_length: Named[int] = Column(INTEGER)
    shred_head: Named[bytes] = Column(BYTES)
    sealed_canary: Named[bytes] = Column(BYTES)
    wrapped_index_key: Named[bytes] = Column(BYTES)
    proof: Named[bytes | None] = Column(BYTES)
    generation: Named[int] = Column(INTEGER, server_default=sa.text("1"))
    locked_at: Named[int | None] = Column(INTEGER)
    locked_by: Named[str | None] = Column(sa.String(160))
    restored_from: Named[int | None] = Column(INTEGER)


vault: Final = sa.Table(
    "continuity_vault",
    metadata,
    VaultColumns,
    _single_row(),
    _one_of("capture_mode", CAPTURE_MODES),
    _one_of("state", VAULT_STATES),
)


class PartitionColumns(TypedColumns):
    """Data keys. ``wrapped_key`` is NULL once destroyed; a workflow's partition id is its workflow_id."""

    partition_id = Column(PUBLIC_ID, primary_key=True)
    kind: Named[str] = Column(WORD)
    key_id: Named[int] = Column(INTEGER)
    wrapped_key: Named[bytes | None] = Column(BYTES)


partitions: Final = sa.Table(
    "continuity_partitions",
    metadata,
    PartitionColumns,
    _one_of("kind", PARTITION_KINDS),
    Index(None, "key_id", "partition_id"),
    sqlite_with_rowid=False,
)


class RotationColumns(TypedColumns):
    """Rotations of the master key, one row each; at most one of them is not ``done``.

    ``total`` and ``done`` count partitions, ``unreadable`` those that do not open and so keep the old key.
    ``cursor`` is the last partition looked at, ``driven_at`` when somebody last worked on it.
    """

    rotation_pk = Column(INTEGER, primary_key=True)
    state: Named[str] = Column(WORD)
    old_key_id: Named[int] = Column(INTEGER)
    new_key_id: Named[int] = Column(INTEGER)
    total: Named[int] = Column(INTEGER)
    done: Named[int] = Column(INTEGER)
    unreadable: Named[int] = Column(INTEGER)
    cursor: Named[str] = Column(PUBLIC_ID)
    started_at: Named[int] = Column(INTEGER)
    started_by: Named[str] = Column(sa.String(160))
    driven_at: Named[int] = Column(INTEGER)
    finished_at: Named[int | None] = Column(INTEGER)


rotations: Final = sa.Table(
    "continuity_rotations", metadata, RotationColumns, _one_of("state", ROTATION_STATES), sqlite_autoincrement=True
)


class KeyHolderColumns(TypedColumns):
    """Serving processes: whether each has the keys, which ones by number, and when it said so last."""

    holder_id = Column(PUBLIC_ID, primary_key=True)
    state: Named[str] = Column(WORD)
    generation: Named[int] = Column(INTEGER)
    key_ids: Named[str] = Column(sa.String(200))
    seen_at: Named[int] = Column(INTEGER)


key_holders: Final = sa.Table(
    "continuity_key_holders",
    metadata,
    KeyHolderColumns,
    _one_of("state", HOLDER_STATES),
    Index(None, "seen_at"),
    sqlite_with_rowid=False,
)


class ShreddedColumns(TypedColumns):
    """Deleted partitions, the second copy of the shred list that lies beside the key."""

    partition_ix = Column(BYTES, primary_key=True)
    at: Named[int] = Column(INTEGER)


shredded: Final = sa.Table("continuity_shredded", metadata, ShreddedColumns, sqlite_with_rowid=False)


class WorkspaceColumns(TypedColumns):
    """Workspaces; their names are not secret."""

    workspace_pk = Column(INTEGER, primary_key=True)
    name: Named[str] = Column(sa.String(128), unique=True)


workspaces: Final = sa.Table("continuity_workspaces", metadata, WorkspaceColumns, sqlite_autoincrement=True)


class OwnerColumns(TypedColumns):
    """Key namespaces and principals, with a coordinator's counters.

    ``sealed_agents`` are the names of the agents that a thread worker runs.
    ``principal_ix`` is unique over all rows: its values are (kind, workspace, principal) as the service
    that makes it decides. The counters are bytes of sealed columns and count of unfinished workflows; a
    coordinator's have a ``proof``, a keyed hash over them.
    """

    owner_pk = Column(INTEGER, primary_key=True)
    workspace_pk: Named[int | None] = Column(INTEGER)
    kind: Named[str] = Column(WORD)
    principal_ix: Named[bytes] = Column(BYTES, unique=True)
    sealed_principal: Named[bytes | None] = Column(BYTES)
    unfinished: Named[int] = Column(INTEGER, server_default=sa.text("0"))
    retained_bytes: Named[int] = Column(INTEGER, server_default=sa.text("0"))
    reserved_bytes: Named[int] = Column(INTEGER, server_default=sa.text("0"))
    proof: Named[bytes | None] = Column(BYTES)
    sealed_agents: Named[bytes | None] = Column(BYTES)


owners: Final = sa.Table(
    "continuity_owners",
    metadata,
    OwnerColumns,
    _one_of("kind", OWNER_KINDS),
    sa.CheckConstraint("unfinished >= 0 AND retained_bytes >= 0 AND reserved_bytes >= 0", name="counters"),
    sqlite_autoincrement=True,
)


class WorkflowColumns(TypedColumns):
    """Workflows and their tombstones.

    ``workflow_pk`` grows and is never used again: it is the order "newest first" of every list.
    ``key_ix`` (of owner and workflow_key) and ``workflow_id`` stay with the tombstone, which has
    ``deleted_at``, no head and a ``sealed_tombstone`` under the settings partition.
    ``definition_ix`` answers "same key, same definition?" without opening anything.
    """

    workflow_pk = Column(INTEGER, primary_key=True)
    workflow_id: Named[str] = Column(PUBLIC_ID, unique=True)
    workspace_pk: Named[int] = Column(INTEGER)
    owner_pk: Named[int] = Column(INTEGER)
    key_ix: Named[bytes] = Column(BYTES, unique=True)
    definition_ix: Named[bytes] = Column(BYTES)
    enabled: Named[bool] = Column(sa.Boolean)
    ever_enabled: Named[bool] = Column(sa.Boolean)
    operation_count: Named[int] = Column(SMALL)
    done_prefix: Named[int] = Column(SMALL)
    revision: Named[int] = Column(INTEGER)
    clock_high_water: Named[int] = Column(INTEGER)
    phase: Named[str] = Column(WORD)
    phase_due_at: Named[int | None] = Column(INTEGER)
    phase_after_due: Named[str | None] = Column(WORD)
    created_at: Named[int] = Column(INTEGER)
    changed_at: Named[int] = Column(INTEGER)
    epoch: Named[int] = Column(INTEGER)
    deleting_at: Named[int | None] = Column(INTEGER)
    deleted_at: Named[int | None] = Column(INTEGER)
    retained_bytes: Named[int] = Column(INTEGER)
    reserved_bytes: Named[int] = Column(INTEGER)
    sealed_head: Named[bytes | None] = Column(BYTES)
    sealed_tombstone: Named[bytes | None] = Column(BYTES)


workflows: Final = sa.Table(
    "continuity_workflows",
    metadata,
    WorkflowColumns,
    _one_of("phase", PHASES),
    _one_of("phase_after_due", PHASES),
    sa.CheckConstraint("(phase_due_at IS NULL) = (phase_after_due IS NULL)", name="due"),
    sa.CheckConstraint("(sealed_head IS NULL) = (deleted_at IS NOT NULL)", name="head"),
    Index(None, "workspace_pk", "phase", "workflow_pk"),
    Index(None, "phase", "workflow_pk"),
    # Without tombstones: a list of everything must not pass a million of them to find what is newest.
    Index(
        "ix_continuity_workflows_living",
        "workspace_pk",
        "workflow_pk",
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    ),
    Index(
        "ix_continuity_workflows_due",
        "phase_due_at",
        sqlite_where=sa.text("phase_due_at IS NOT NULL"),
        postgresql_where=sa.text("phase_due_at IS NOT NULL"),
    ),
    Index(
        "ix_continuity_workflows_deleting",
        "deleting_at",
        sqlite_where=sa.text("deleting_at IS NOT NULL"),
        postgresql_where=sa.text("deleting_at IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)


class OperationColumns(TypedColumns):
    """Operations: what changes with every attempt. ``ordinal`` counts from 0.

    ``change_seq`` is the event that changed the row last; the sealed head knows it too, so that an older
    row put back is found.
    """

    workflow_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    ordinal = Column(SMALL, primary_key=True, autoincrement=False)
    operation_id: Named[str] = Column(PUBLIC_ID, unique=True)
    name_ix: Named[bytes] = Column(BYTES)
    status: Named[str] = Column(WORD)
    attempt_count: Named[int] = Column(SMALL)
    lease_until: Named[int | None] = Column(INTEGER)
    change_seq: Named[int] = Column(INTEGER)
    sealed_state: Named[bytes] = Column(BYTES)


operations: Final = sa.Table(
    "continuity_operations",
    metadata,
    OperationColumns,
    _one_of("status", STATUSES),
    sa.UniqueConstraint("workflow_pk", "name_ix"),
    sqlite_with_rowid=False,
)


class DefinitionColumns(TypedColumns):
    """The canonical definition of each operation, never rewritten."""

    workflow_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    ordinal = Column(SMALL, primary_key=True, autoincrement=False)
    sealed_definition: Named[bytes] = Column(BYTES)


definitions: Final = sa.Table("continuity_definitions", metadata, DefinitionColumns, sqlite_with_rowid=False)


class ReceiptColumns(TypedColumns):
    """Receipts: ``seq`` 0 is the accepted one, 1 and above are late ones in order of arrival."""

    workflow_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    ordinal = Column(SMALL, primary_key=True, autoincrement=False)
    seq = Column(SMALL, primary_key=True, autoincrement=False)
    attempt_no: Named[int] = Column(SMALL)
    received_at: Named[int] = Column(INTEGER)
    sealed_receipt: Named[bytes] = Column(BYTES)


receipts: Final = sa.Table("continuity_receipts", metadata, ReceiptColumns, sqlite_with_rowid=False)


class EventColumns(TypedColumns):
    """A workflow's history. ``hash`` chains the rows: see the vault page of the docs."""

    workflow_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    seq = Column(INTEGER, primary_key=True, autoincrement=False)
    kind: Named[str] = Column(WORD)
    at: Named[int] = Column(INTEGER)
    hash: Named[bytes] = Column(BYTES)
    sealed_event: Named[bytes] = Column(BYTES)


events: Final = sa.Table("continuity_events", metadata, EventColumns, sqlite_with_rowid=False)


class TermColumns(TypedColumns):
    """Blind index of the words of workflow_key and of the operations' names."""

    workspace_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    term_ix = Column(BYTES, primary_key=True)
    workflow_pk = Column(INTEGER, primary_key=True, autoincrement=False)


terms: Final = sa.Table(
    "continuity_terms", metadata, TermColumns, Index(None, "term_ix", "workflow_pk"), sqlite_with_rowid=False
)


class AuditColumns(TypedColumns):
    """The audit log, one chain for the whole installation. Triggers refuse UPDATE and DELETE.

    ``actor`` and ``object_id`` are ids, never names that somebody else chose; free text is sealed.
    """

    seq = Column(INTEGER, primary_key=True, autoincrement=False)
    at: Named[int] = Column(INTEGER)
    action: Named[str] = Column(ACTION)
    actor: Named[str] = Column(sa.String(160))
    object_id: Named[str | None] = Column(sa.String(160))
    result: Named[str] = Column(sa.String(64))
    request_id: Named[str | None] = Column(sa.String(64))
    hash: Named[bytes] = Column(BYTES)
    sealed_detail: Named[bytes | None] = Column(BYTES)


IS_REFUSED: Final = sa.text("result <> 'done'")
audit: Final = sa.Table(
    "continuity_audit",
    metadata,
    AuditColumns,
    # For who looks for something: each ends with the sequence, in whose order the entries are shown.
    Index(None, "action", "seq"),
    Index(None, "actor", "seq"),
    Index(None, "object_id", "seq"),
    Index(None, "at", "seq"),
    # Nearly all was done: only the rest needs finding.
    Index("ix_continuity_audit_refused", "seq", sqlite_where=IS_REFUSED, postgresql_where=IS_REFUSED),
)


class AuditHeadColumns(TypedColumns):
    """Sequence and hash of the last audit entry: one row, locked last. A trigger refuses steps other than one."""

    id = Column(SMALL, primary_key=True, autoincrement=False)
    seq: Named[int] = Column(INTEGER)
    hash: Named[bytes] = Column(BYTES)


audit_head: Final = sa.Table("continuity_audit_head", metadata, AuditHeadColumns, _single_row())


class EvidenceRunColumns(TypedColumns):
    """Runs of evidence and their tombstones: what agents say they did, outside of governed operations.

    ``evidence_id`` is also the partition id. ``run_ix`` (of workspace and run_id) stays with the tombstone, which has
    ``deleted_at``, no head and a ``sealed_tombstone``, as a workflow's does.
    """

    run_pk = Column(INTEGER, primary_key=True)
    evidence_id: Named[str] = Column(PUBLIC_ID, unique=True)
    workspace_pk: Named[int] = Column(INTEGER)
    run_ix: Named[bytes] = Column(BYTES, unique=True)
    record_count: Named[int] = Column(INTEGER)
    created_at: Named[int] = Column(INTEGER)
    received_at: Named[int] = Column(INTEGER)
    retained_bytes: Named[int] = Column(INTEGER)
    deleting_at: Named[int | None] = Column(INTEGER)
    deleted_at: Named[int | None] = Column(INTEGER)
    sealed_head: Named[bytes | None] = Column(BYTES)
    sealed_tombstone: Named[bytes | None] = Column(BYTES)


evidence_runs: Final = sa.Table(
    "continuity_evidence_runs",
    metadata,
    EvidenceRunColumns,
    sa.CheckConstraint("(sealed_head IS NULL) = (deleted_at IS NOT NULL)", name="head"),
    Index(
        "ix_continuity_evidence_runs_living",
        "workspace_pk",
        "run_pk",
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    ),
    Index(
        "ix_continuity_evidence_runs_deleting",
        "deleting_at",
        sqlite_where=sa.text("deleting_at IS NOT NULL"),
        postgresql_where=sa.text("deleting_at IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)


class EvidenceColumns(TypedColumns):
    """Records of runs. ``seq`` counts from 1 in its run; ``hash`` chains it to the one before, as events are.

    ``evidence_pk`` is the order "newest first" of lists, ``event_ix`` of (workspace, producer, epoch, event_id).
    """

    evidence_pk = Column(INTEGER, primary_key=True)
    run_pk: Named[int] = Column(INTEGER)
    seq: Named[int] = Column(INTEGER)
    workspace_pk: Named[int] = Column(INTEGER)
    event_ix: Named[bytes] = Column(BYTES, unique=True)
    received_at: Named[int] = Column(INTEGER)
    hash: Named[bytes] = Column(BYTES)
    sealed_record: Named[bytes] = Column(BYTES)


evidence: Final = sa.Table(
    "continuity_evidence",
    metadata,
    EvidenceColumns,
    sa.UniqueConstraint("run_pk", "seq"),
    Index(None, "workspace_pk", "evidence_pk"),
    Index(None, "received_at", "evidence_pk"),
    sqlite_autoincrement=True,
)


class EvidenceContentColumns(TypedColumns):
    """Exact content of records, where it is kept. In a table of its own: lists never read it."""

    evidence_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    sealed_content: Named[bytes] = Column(BYTES)


evidence_contents: Final = sa.Table("continuity_evidence_contents", metadata, EvidenceContentColumns)


class EvidenceTermColumns(TypedColumns):
    """Blind index of records: run, producer, kind, and the words of what is kept. Its workspace is inside the index."""

    term_ix = Column(BYTES, primary_key=True)
    evidence_pk = Column(INTEGER, primary_key=True, autoincrement=False)


evidence_terms: Final = sa.Table(
    "continuity_evidence_terms", metadata, EvidenceTermColumns, Index(None, "evidence_pk"), sqlite_with_rowid=False
)


class RunLinkColumns(TypedColumns):
    """Which workflows the attempts of a run belong to; ``run_ix`` is of (workspace, run_id)."""

    run_ix = Column(BYTES, primary_key=True)
    workflow_pk = Column(INTEGER, primary_key=True, autoincrement=False)


run_links: Final = sa.Table("continuity_run_links", metadata, RunLinkColumns, sqlite_with_rowid=False)
