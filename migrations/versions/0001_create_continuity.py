"""Tables of governed operations and the audit log that only grows."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
SMALL = sa.SmallInteger()
WORD = sa.String(32)
PUBLIC_ID = sa.String(40)
PHASES = "'review', 'paused', 'ready', 'running', 'resumable', 'decision', 'done', 'ended', 'deleted'"
OWNER_KINDS = (
    "'operators', 'evidence_collector', 'continuity_host', 'continuity_coordinator', "
    "'continuity_observer', 'thread_worker', 'thread_application'"
)

# The chain of hashes shows what was changed, these triggers stop it from happening by mistake. Whoever may
# drop a trigger gets past them. Batch changes of these two tables on SQLite must make them again.
# REPLACE deletes the old row of SQLite without its DELETE trigger, hence the one on INSERT.
SQLITE_TRIGGERS = {
    "continuity_audit_update": "UPDATE ON continuity_audit",
    "continuity_audit_delete": "DELETE ON continuity_audit",
    "continuity_audit_insert": (
        "INSERT ON continuity_audit WHEN NEW.seq <> (SELECT seq FROM continuity_audit_head WHERE id = 1)"
    ),
    "continuity_audit_head_update": "UPDATE ON continuity_audit_head WHEN NEW.seq <> OLD.seq + 1",
    "continuity_audit_head_delete": "DELETE ON continuity_audit_head",
    "continuity_audit_head_insert": (
        "INSERT ON continuity_audit_head WHEN EXISTS (SELECT 1 FROM continuity_audit_head)"
    ),
}
POSTGRESQL_FUNCTION = """
CREATE FUNCTION continuity_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log only grows' USING ERRCODE = 'integrity_constraint_violation';
END $$
"""
POSTGRESQL_TRIGGERS = {
    "continuity_audit_change": "UPDATE OR DELETE ON continuity_audit FOR EACH ROW",
    "continuity_audit_truncate": "TRUNCATE ON continuity_audit FOR EACH STATEMENT",
    "continuity_audit_head_update": ("UPDATE ON continuity_audit_head FOR EACH ROW WHEN (NEW.seq <> OLD.seq + 1)"),
    "continuity_audit_head_delete": "DELETE ON continuity_audit_head FOR EACH ROW",
    "continuity_audit_head_truncate": "TRUNCATE ON continuity_audit_head FOR EACH STATEMENT",
}


def _create_vault() -> None:
    op.create_table(
        "continuity_vault",
        sa.Column("id", SMALL, autoincrement=False, nullable=False),
        sa.Column("format", SMALL, nullable=False),
        sa.Column("epoch", INTEGER, nullable=False),
        sa.Column("capture_mode", WORD, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("key_id", INTEGER, nullable=False),
        sa.Column("clock_high_water", INTEGER, nullable=False),
        sa.Column("restored_at", INTEGER, nullable=True),
        sa.Column("recovery_open", sa.Boolean, nullable=False),
        sa.Column("shred_length", INTEGER, nullable=False),
        sa.Column("shred_head", BYTES, nullable=False),
        sa.Column("sealed_canary", BYTES, nullable=False),
        sa.Column("wrapped_index_key", BYTES, nullable=False),
        sa.CheckConstraint(
            "capture_mode IN ('full', 'metadata', 'off')", name=op.f("ck_continuity_vault_capture_mode")
        ),
        sa.CheckConstraint("state IN ('open', 'locked', 'rotating')", name=op.f("ck_continuity_vault_state")),
        sa.CheckConstraint("id = 1", name=op.f("ck_continuity_vault_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_continuity_vault")),
    )
    op.create_table(
        "continuity_partitions",
        sa.Column("partition_id", PUBLIC_ID, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("key_id", INTEGER, nullable=False),
        sa.Column("wrapped_key", BYTES, nullable=True),
        sa.CheckConstraint(
            "kind IN ('workflow', 'thread', 'evidence', 'audit', 'settings', 'owner')",
            name=op.f("ck_continuity_partitions_kind"),
        ),
        sa.PrimaryKeyConstraint("partition_id", name=op.f("pk_continuity_partitions")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        op.f("ix_continuity_partitions_key_id_partition_id"), "continuity_partitions", ["key_id", "partition_id"]
    )
    op.create_table(
        "continuity_shredded",
        sa.Column("partition_ix", BYTES, nullable=False),
        sa.Column("at", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("partition_ix", name=op.f("pk_continuity_shredded")),
        sqlite_with_rowid=False,
    )


def _create_workflows() -> None:
    op.create_table(
        "continuity_workspaces",
        sa.Column("workspace_pk", INTEGER, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("workspace_pk", name=op.f("pk_continuity_workspaces")),
        sa.UniqueConstraint("name", name=op.f("uq_continuity_workspaces_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "continuity_owners",
        sa.Column("owner_pk", INTEGER, nullable=False),
        sa.Column("workspace_pk", INTEGER, nullable=True),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("principal_ix", BYTES, nullable=False),
        sa.Column("sealed_principal", BYTES, nullable=True),
        sa.Column("unfinished", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("retained_bytes", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("reserved_bytes", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            f"kind IN ({OWNER_KINDS})",
            name=op.f("ck_continuity_owners_kind"),
        ),
        sa.CheckConstraint(
            "unfinished >= 0 AND retained_bytes >= 0 AND reserved_bytes >= 0",
            name=op.f("ck_continuity_owners_counters"),
        ),
        sa.PrimaryKeyConstraint("owner_pk", name=op.f("pk_continuity_owners")),
        sa.UniqueConstraint("principal_ix", name=op.f("uq_continuity_owners_principal_ix")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "continuity_workflows",
        sa.Column("workflow_pk", INTEGER, nullable=False),
        sa.Column("workflow_id", PUBLIC_ID, nullable=False),
        sa.Column("workspace_pk", INTEGER, nullable=False),
        sa.Column("owner_pk", INTEGER, nullable=False),
        sa.Column("key_ix", BYTES, nullable=False),
        sa.Column("definition_ix", BYTES, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("ever_enabled", sa.Boolean, nullable=False),
        sa.Column("operation_count", SMALL, nullable=False),
        sa.Column("done_prefix", SMALL, nullable=False),
        sa.Column("revision", INTEGER, nullable=False),
        sa.Column("clock_high_water", INTEGER, nullable=False),
        sa.Column("phase", WORD, nullable=False),
        sa.Column("phase_due_at", INTEGER, nullable=True),
        sa.Column("phase_after_due", WORD, nullable=True),
        sa.Column("created_at", INTEGER, nullable=False),
        sa.Column("changed_at", INTEGER, nullable=False),
        sa.Column("epoch", INTEGER, nullable=False),
        sa.Column("deleting_at", INTEGER, nullable=True),
        sa.Column("deleted_at", INTEGER, nullable=True),
        sa.Column("retained_bytes", INTEGER, nullable=False),
        sa.Column("reserved_bytes", INTEGER, nullable=False),
        sa.Column("sealed_head", BYTES, nullable=True),
        sa.Column("sealed_tombstone", BYTES, nullable=True),
        sa.CheckConstraint(
            f"phase IN ({PHASES})",
            name=op.f("ck_continuity_workflows_phase"),
        ),
        sa.CheckConstraint(
            f"phase_after_due IN ({PHASES})",
            name=op.f("ck_continuity_workflows_phase_after_due"),
        ),
        sa.CheckConstraint(
            "(phase_due_at IS NULL) = (phase_after_due IS NULL)", name=op.f("ck_continuity_workflows_due")
        ),
        sa.CheckConstraint(
            "(sealed_head IS NULL) = (deleted_at IS NOT NULL)", name=op.f("ck_continuity_workflows_head")
        ),
        sa.PrimaryKeyConstraint("workflow_pk", name=op.f("pk_continuity_workflows")),
        sa.UniqueConstraint("key_ix", name=op.f("uq_continuity_workflows_key_ix")),
        sa.UniqueConstraint("workflow_id", name=op.f("uq_continuity_workflows_workflow_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_continuity_workflows_deleting",
        "continuity_workflows",
        ["deleting_at"],
        sqlite_where=sa.text("deleting_at IS NOT NULL"),
        postgresql_where=sa.text("deleting_at IS NOT NULL"),
    )
    op.create_index(
        "ix_continuity_workflows_due",
        "continuity_workflows",
        ["phase_due_at"],
        sqlite_where=sa.text("phase_due_at IS NOT NULL"),
        postgresql_where=sa.text("phase_due_at IS NOT NULL"),
    )
    op.create_index(op.f("ix_continuity_workflows_phase_workflow_pk"), "continuity_workflows", ["phase", "workflow_pk"])
    op.create_index(
        op.f("ix_continuity_workflows_workspace_pk_phase_workflow_pk"),
        "continuity_workflows",
        ["workspace_pk", "phase", "workflow_pk"],
    )
    op.create_index(
        op.f("ix_continuity_workflows_workspace_pk_workflow_pk"),
        "continuity_workflows",
        ["workspace_pk", "workflow_pk"],
    )


def _create_operations() -> None:
    op.create_table(
        "continuity_operations",
        sa.Column("workflow_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("ordinal", SMALL, autoincrement=False, nullable=False),
        sa.Column("operation_id", PUBLIC_ID, nullable=False),
        sa.Column("name_ix", BYTES, nullable=False),
        sa.Column("status", WORD, nullable=False),
        sa.Column("attempt_count", SMALL, nullable=False),
        sa.Column("lease_until", INTEGER, nullable=True),
        sa.Column("change_seq", INTEGER, nullable=False),
        sa.Column("sealed_state", BYTES, nullable=False),
        sa.CheckConstraint(
            "status IN ('pending', 'uncertain', 'completed', 'refused', 'abandoned')",
            name=op.f("ck_continuity_operations_status"),
        ),
        sa.PrimaryKeyConstraint("workflow_pk", "ordinal", name=op.f("pk_continuity_operations")),
        sa.UniqueConstraint("operation_id", name=op.f("uq_continuity_operations_operation_id")),
        sa.UniqueConstraint("workflow_pk", "name_ix", name=op.f("uq_continuity_operations_workflow_pk_name_ix")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "continuity_definitions",
        sa.Column("workflow_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("ordinal", SMALL, autoincrement=False, nullable=False),
        sa.Column("sealed_definition", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("workflow_pk", "ordinal", name=op.f("pk_continuity_definitions")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "continuity_receipts",
        sa.Column("workflow_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("ordinal", SMALL, autoincrement=False, nullable=False),
        sa.Column("seq", SMALL, autoincrement=False, nullable=False),
        sa.Column("attempt_no", SMALL, nullable=False),
        sa.Column("received_at", INTEGER, nullable=False),
        sa.Column("sealed_receipt", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("workflow_pk", "ordinal", "seq", name=op.f("pk_continuity_receipts")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "continuity_events",
        sa.Column("workflow_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("seq", INTEGER, autoincrement=False, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("at", INTEGER, nullable=False),
        sa.Column("hash", BYTES, nullable=False),
        sa.Column("sealed_event", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("workflow_pk", "seq", name=op.f("pk_continuity_events")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "continuity_terms",
        sa.Column("workspace_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("term_ix", BYTES, nullable=False),
        sa.Column("workflow_pk", INTEGER, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("workspace_pk", "term_ix", "workflow_pk", name=op.f("pk_continuity_terms")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_continuity_terms_term_ix_workflow_pk"), "continuity_terms", ["term_ix", "workflow_pk"])


def _create_audit() -> None:
    op.create_table(
        "continuity_audit",
        sa.Column("seq", INTEGER, autoincrement=False, nullable=False),
        sa.Column("at", INTEGER, nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("actor", sa.String(length=160), nullable=False),
        sa.Column("object_id", sa.String(length=160), nullable=True),
        sa.Column("result", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=True),
        sa.Column("hash", BYTES, nullable=False),
        sa.Column("sealed_detail", BYTES, nullable=True),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_continuity_audit")),
    )
    op.create_table(
        "continuity_audit_head",
        sa.Column("id", SMALL, autoincrement=False, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("hash", BYTES, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_continuity_audit_head_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_continuity_audit_head")),
    )


def _create_triggers() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for name, event in SQLITE_TRIGGERS.items():
            op.execute(
                f"CREATE TRIGGER {name} BEFORE {event} BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END"
            )
        return
    op.execute(POSTGRESQL_FUNCTION)
    for name, event in POSTGRESQL_TRIGGERS.items():
        op.execute(f"CREATE TRIGGER {name} BEFORE {event} EXECUTE FUNCTION continuity_audit_refuse()")


def upgrade() -> None:
    _create_vault()
    _create_workflows()
    _create_operations()
    _create_audit()
    head = sa.table("continuity_audit_head", sa.column("id"), sa.column("seq"), sa.column("hash"))
    op.execute(head.insert().values(id=1, seq=0, hash=sa.literal(bytes(32), BYTES)))
    _create_triggers()


def downgrade() -> None:
    for table in (
        "audit_head", "audit", "terms", "events", "receipts", "definitions", "operations", "workflows", "owners",
        "workspaces", "shredded", "partitions", "vault",
    ):  # fmt: skip
        op.drop_table(f"continuity_{table}")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION continuity_audit_refuse()")
