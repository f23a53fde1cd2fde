"""Evidence: runs, records, contents and their blind index; which workflows a run's attempts belong to."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
PUBLIC_ID = sa.String(40)
TABLES = ("run_links", "evidence_terms", "evidence_contents", "evidence", "evidence_runs")


def _column(name: str, kind: sa.types.TypeEngine = INTEGER) -> sa.Column:
    return sa.Column(name, kind, nullable=False)


def _given(name: str) -> sa.Column:
    return sa.Column(name, INTEGER, autoincrement=False, nullable=False)


def _create_runs() -> None:
    op.create_table(
        "continuity_evidence_runs",
        _column("run_pk"),
        _column("evidence_id", PUBLIC_ID),
        _column("workspace_pk"),
        _column("run_ix", BYTES),
        _column("record_count"),
        _column("created_at"),
        _column("received_at"),
        _column("retained_bytes"),
        sa.Column("deleting_at", INTEGER),
        sa.Column("deleted_at", INTEGER),
        sa.Column("sealed_head", BYTES),
        sa.Column("sealed_tombstone", BYTES),
        sa.CheckConstraint(
            "(sealed_head IS NULL) = (deleted_at IS NOT NULL)", name=op.f("ck_continuity_evidence_runs_head")
        ),
        sa.PrimaryKeyConstraint("run_pk", name=op.f("pk_continuity_evidence_runs")),
        sa.UniqueConstraint("evidence_id", name=op.f("uq_continuity_evidence_runs_evidence_id")),
        sa.UniqueConstraint("run_ix", name=op.f("uq_continuity_evidence_runs_run_ix")),
        sqlite_autoincrement=True,
    )
    for name, columns, condition in (
        ("living", ["workspace_pk", "run_pk"], "deleted_at IS NULL"),
        ("deleting", ["deleting_at"], "deleting_at IS NOT NULL"),
    ):
        op.create_index(
            f"ix_continuity_evidence_runs_{name}",
            "continuity_evidence_runs",
            columns,
            sqlite_where=sa.text(condition),
            postgresql_where=sa.text(condition),
        )


def _create_records() -> None:
    op.create_table(
        "continuity_evidence",
        _column("evidence_pk"),
        _column("run_pk"),
        _column("seq"),
        _column("workspace_pk"),
        _column("event_ix", BYTES),
        _column("received_at"),
        _column("hash", BYTES),
        _column("sealed_record", BYTES),
        sa.PrimaryKeyConstraint("evidence_pk", name=op.f("pk_continuity_evidence")),
        sa.UniqueConstraint("event_ix", name=op.f("uq_continuity_evidence_event_ix")),
        sa.UniqueConstraint("run_pk", "seq", name=op.f("uq_continuity_evidence_run_pk_seq")),
        sqlite_autoincrement=True,
    )
    for column in ("workspace_pk", "received_at"):
        op.create_index(
            op.f(f"ix_continuity_evidence_{column}_evidence_pk"), "continuity_evidence", [column, "evidence_pk"]
        )
    op.create_table(
        "continuity_evidence_contents",
        _given("evidence_pk"),
        _column("sealed_content", BYTES),
        sa.PrimaryKeyConstraint("evidence_pk", name=op.f("pk_continuity_evidence_contents")),
    )


def _create_indexes() -> None:
    op.create_table(
        "continuity_evidence_terms",
        _column("term_ix", BYTES),
        _given("evidence_pk"),
        sa.PrimaryKeyConstraint("term_ix", "evidence_pk", name=op.f("pk_continuity_evidence_terms")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_continuity_evidence_terms_evidence_pk"), "continuity_evidence_terms", ["evidence_pk"])
    op.create_table(
        "continuity_run_links",
        _column("run_ix", BYTES),
        _given("workflow_pk"),
        sa.PrimaryKeyConstraint("run_ix", "workflow_pk", name=op.f("pk_continuity_run_links")),
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    _create_runs()
    _create_records()
    _create_indexes()


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(f"continuity_{table}")
