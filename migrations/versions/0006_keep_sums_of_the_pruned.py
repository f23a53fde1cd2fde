"""Sums of observations that were pruned, where first times moved, and what retries and recoveries were charged."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
ID = sa.String(128)
ORDERED_ID = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
TALLY = (
    "charges", "priced", "conflicting", "cost_hi", "cost_lo", "with_input", "input_hi", "input_lo", "with_output",
    "output_hi", "output_lo",
)  # fmt: skip
COUNTS = (
    "runs", "attempts", "unpriced_attempts", "retries", "recoveries",
    "open", "unknown", "blocked", "abandoned", "completed",
    "repeated_hi", "repeated_lo", "refused",
)  # fmt: skip
REPEATED = {"repeated_charges": "charges", "repeated_priced": "priced"}
TABLES = ("claims", "moves", "settled_workflows", "settled_pairs", "settled_days")
SUMMED = """
UPDATE observations_workflows SET {column} = (
    SELECT COALESCE(SUM(d.{summed}), 0)
    FROM observations_attempts AS a
    JOIN observations_attempt_days AS d ON d.scope_pk = a.scope_pk AND d.attempt_id = a.attempt_id
    WHERE a.workflow_pk = observations_workflows.workflow_pk AND (a.is_retry = 1 OR a.is_recovery = 1)
)
WHERE retries > 0 OR recoveries > 0
"""


def _column(name: str, kind: sa.types.TypeEngine = INTEGER) -> sa.Column:
    return sa.Column(name, kind, nullable=False)


def _key(table: str, *names: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*names, name=op.f(f"pk_observations_{table}"))


def _create_settled() -> None:
    op.create_table(
        "observations_settled_days",
        *(_column(name) for name in TALLY),
        _column("scope_pk"),
        _column("day"),
        _column("cause", sa.SmallInteger()),
        _column("outcome", sa.SmallInteger()),
        _column("attempts"),
        _column("unpriced_attempts"),
        _key("settled_days", "scope_pk", "day", "cause", "outcome"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "observations_settled_pairs",
        *(_column(name) for name in TALLY),
        _column("scope_pk"),
        _column("day"),
        _column("pair_ix", BYTES),
        _column("charge_source", sa.String(128)),
        _column("price_source", sa.String(256)),
        _key("settled_pairs", "scope_pk", "day", "pair_ix"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "observations_settled_workflows",
        *(_column(name) for name in TALLY),
        sa.Column("workflow_pk", INTEGER, nullable=False, autoincrement=False),
        _column("scope_pk"),
        _column("workflow_id", ORDERED_ID),
        _column("first_us"),
        _column("last_us"),
        *(_column(name) for name in COUNTS),
        *(sa.Column(name, INTEGER, nullable=False, server_default="0") for name in REPEATED),
        _key("settled_workflows", "workflow_pk"),
    )


def _create_moves() -> None:
    op.create_table(
        "observations_moves",
        _column("move_pk"),
        _column("workflow_pk"),
        _column("attempt_id", ID),
        _column("was_us"),
        _column("moved_us"),
        _key("moves", "move_pk"),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_observations_moves_workflow_pk_move_pk"), "observations_moves", ["workflow_pk", "move_pk"])
    op.create_table(
        "observations_claims",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("token", sa.String(32), nullable=False),
        _key("claims", "name"),
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    op.add_column("observations_scopes", sa.Column("pruned_us", INTEGER, nullable=False, server_default="0"))
    for column, summed in REPEATED.items():
        op.add_column("observations_workflows", sa.Column(column, INTEGER, nullable=False, server_default="0"))
        op.execute(sa.text(SUMMED.format(column=column, summed=summed)))
    _create_settled()
    _create_moves()


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(f"observations_{table}")
    for column in REPEATED:
        op.drop_column("observations_workflows", column)
    op.drop_column("observations_scopes", "pruned_us")
