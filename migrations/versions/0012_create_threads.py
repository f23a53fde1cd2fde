"""Tables of threads: runs, journals, transcripts, what clients said and were asked, and the agents of workers."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
WORD = sa.String(32)
PUBLIC_ID = sa.String(40)
TABLES = ("agents", "inputs", "journal", "messages", "requests", "runs", "thread_states", "threads", "waiting")


def _create_agents() -> None:
    op.create_table(
        "continuity_agents",
        sa.Column("workspace_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("agent_ix", BYTES, nullable=False),
        sa.Column("changed_at", INTEGER, nullable=False),
        sa.Column("sealed_agent", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("workspace_pk", "agent_ix", name=op.f("pk_continuity_agents")),
        sqlite_with_rowid=False,
    )


def _create_inputs() -> None:
    op.create_table(
        "continuity_inputs",
        sa.Column("thread_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("input_no", INTEGER, autoincrement=False, nullable=False),
        sa.Column("at", INTEGER, nullable=False),
        sa.Column("sealed_input", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("thread_pk", "input_no", name=op.f("pk_continuity_inputs")),
        sqlite_with_rowid=False,
    )


def _create_journal() -> None:
    op.create_table(
        "continuity_journal",
        sa.Column("thread_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("seq", INTEGER, autoincrement=False, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("generation", INTEGER, nullable=True),
        sa.Column("at", INTEGER, nullable=False),
        sa.Column("hash", BYTES, nullable=False),
        sa.Column("sealed_record", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("thread_pk", "seq", name=op.f("pk_continuity_journal")),
        sqlite_with_rowid=False,
    )


def _create_messages() -> None:
    op.create_table(
        "continuity_messages",
        sa.Column("thread_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("item_no", INTEGER, autoincrement=False, nullable=False),
        sa.Column("item_ix", BYTES, nullable=False),
        sa.Column("changed_seq", INTEGER, nullable=False),
        sa.Column("sealed_item", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("thread_pk", "item_no", name=op.f("pk_continuity_messages")),
        sa.UniqueConstraint("thread_pk", "item_ix", name=op.f("uq_continuity_messages_thread_pk_item_ix")),
        sqlite_with_rowid=False,
    )


def _create_requests() -> None:
    op.create_table(
        "continuity_requests",
        sa.Column("scope_ix", BYTES, nullable=False),
        sa.Column("request_id", sa.String(length=128), nullable=False),
        sa.Column("thread_pk", INTEGER, nullable=False),
        sa.Column("body_ix", BYTES, nullable=False),
        sa.Column("sealed_receipt", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("scope_ix", "request_id", name=op.f("pk_continuity_requests")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_continuity_requests_thread_pk"), "continuity_requests", ["thread_pk"])


def _create_runs() -> None:
    op.create_table(
        "continuity_runs",
        sa.Column("thread_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("number", INTEGER, autoincrement=False, nullable=False),
        sa.Column("run_id", PUBLIC_ID, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("claim_ix", BYTES, nullable=True),
        sa.Column("sealed_run", BYTES, nullable=False),
        sa.CheckConstraint(
            "state IN ('queued', 'claimed', 'settled', 'waiting', 'interrupted', 'failed', 'stopped')",
            name=op.f("ck_continuity_runs_state"),
        ),
        sa.PrimaryKeyConstraint("thread_pk", "number", name=op.f("pk_continuity_runs")),
        sa.UniqueConstraint("claim_ix", name=op.f("uq_continuity_runs_claim_ix")),
        sa.UniqueConstraint("run_id", name=op.f("uq_continuity_runs_run_id")),
        sqlite_with_rowid=False,
    )


def _create_thread_states() -> None:
    op.create_table(
        "continuity_thread_states",
        sa.Column("thread_pk", INTEGER, autoincrement=False, nullable=False),
        sa.Column("sealed_state", BYTES, nullable=False),
        sa.PrimaryKeyConstraint("thread_pk", name=op.f("pk_continuity_thread_states")),
        sqlite_with_rowid=False,
    )


def _create_threads() -> None:
    op.create_table(
        "continuity_threads",
        sa.Column("thread_pk", INTEGER, nullable=False),
        sa.Column("thread_id", PUBLIC_ID, nullable=False),
        sa.Column("workspace_pk", INTEGER, nullable=False),
        sa.Column("owner_ix", BYTES, nullable=False),
        sa.Column("name_ix", BYTES, nullable=False),
        sa.Column("agent_ix", BYTES, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("revision", INTEGER, nullable=False),
        sa.Column("clock_high_water", INTEGER, nullable=False),
        sa.Column("last_seq", INTEGER, nullable=False),
        sa.Column("trimmed_seq", INTEGER, nullable=False),
        sa.Column("run_count", INTEGER, nullable=False),
        sa.Column("item_count", INTEGER, nullable=False),
        sa.Column("queued_at", INTEGER, nullable=True),
        sa.Column("claim_until", INTEGER, nullable=True),
        sa.Column("created_at", INTEGER, nullable=False),
        sa.Column("changed_at", INTEGER, nullable=False),
        sa.Column("deleting_at", INTEGER, nullable=True),
        sa.Column("deleted_at", INTEGER, nullable=True),
        sa.Column("sealed_head", BYTES, nullable=True),
        sa.Column("sealed_tombstone", BYTES, nullable=True),
        sa.CheckConstraint(
            "state IN ('idle', 'running', 'waiting', 'needs_attention', 'deleted')",
            name=op.f("ck_continuity_threads_state"),
        ),
        sa.CheckConstraint("(sealed_head IS NULL) = (deleted_at IS NOT NULL)", name=op.f("ck_continuity_threads_head")),
        sa.PrimaryKeyConstraint("thread_pk", name=op.f("pk_continuity_threads")),
        sa.UniqueConstraint("name_ix", name=op.f("uq_continuity_threads_name_ix")),
        sa.UniqueConstraint("thread_id", name=op.f("uq_continuity_threads_thread_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_continuity_threads_claims",
        "continuity_threads",
        ["claim_until"],
        sqlite_where=sa.text("claim_until IS NOT NULL"),
        postgresql_where=sa.text("claim_until IS NOT NULL"),
    )
    op.create_index(
        "ix_continuity_threads_deleting",
        "continuity_threads",
        ["deleting_at"],
        sqlite_where=sa.text("deleting_at IS NOT NULL"),
        postgresql_where=sa.text("deleting_at IS NOT NULL"),
    )
    op.create_index(
        "ix_continuity_threads_living",
        "continuity_threads",
        ["workspace_pk", "thread_pk"],
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "ix_continuity_threads_owned",
        "continuity_threads",
        ["owner_ix", "thread_pk"],
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "ix_continuity_threads_queue",
        "continuity_threads",
        ["workspace_pk", "agent_ix", "queued_at"],
        sqlite_where=sa.text("queued_at IS NOT NULL"),
        postgresql_where=sa.text("queued_at IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_continuity_threads_workspace_pk_state_thread_pk"),
        "continuity_threads",
        ["workspace_pk", "state", "thread_pk"],
    )


def _create_waiting() -> None:
    op.create_table(
        "continuity_waiting",
        sa.Column("waiting_id", PUBLIC_ID, nullable=False),
        sa.Column("thread_pk", INTEGER, nullable=False),
        sa.Column("revision", INTEGER, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("place_ix", BYTES, nullable=False),
        sa.Column("sealed_request", BYTES, nullable=False),
        sa.Column("sealed_reply", BYTES, nullable=True),
        sa.CheckConstraint("state IN ('open', 'answered', 'cancelled')", name=op.f("ck_continuity_waiting_state")),
        sa.PrimaryKeyConstraint("waiting_id", name=op.f("pk_continuity_waiting")),
        sa.UniqueConstraint("thread_pk", "place_ix", name=op.f("uq_continuity_waiting_thread_pk_place_ix")),
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    _create_agents()
    _create_inputs()
    _create_journal()
    _create_messages()
    _create_requests()
    _create_runs()
    _create_thread_states()
    _create_threads()
    _create_waiting()


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(f"continuity_{table}")
