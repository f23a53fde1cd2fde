"""Tables of what was observed, and the observation scope of a credential."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
ID = sa.String(128)
ORDERED_ID = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
SOURCE = sa.String(128)
CHARGE = sa.String(256)
TALLY = (
    "charges", "priced", "conflicting", "cost_hi", "cost_lo", "with_input", "input_hi", "input_lo", "with_output",
    "output_hi", "output_lo",
)  # fmt: skip
SOUND = "charges >= priced AND priced >= 0 AND charges >= conflicting AND conflicting >= 0 AND cost_lo >= 0"
OUTCOMES = ("open", "unknown", "blocked", "abandoned", "completed")
TABLES = ("workflows", "pairs", "days", "charges", "attempt_days", "attempts", "refusals", "events", "scopes")


def _column(name: str, kind: sa.types.TypeEngine = INTEGER, *, nullable: bool = False) -> sa.Column:
    return sa.Column(name, kind, nullable=nullable)


def _tally() -> list[sa.Column]:
    return [_column(name) for name in TALLY]


def _key(table: str, *names: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*names, name=op.f(f"pk_observations_{table}"))


def _sound(table: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(SOUND, name=op.f(f"ck_observations_{table}_tally"))


def _index(table: str, *names: str) -> None:
    op.create_index(op.f(f"ix_observations_{table}_{'_'.join(names)}"), f"observations_{table}", list(names))


def _create_received() -> None:
    op.create_table(
        "observations_scopes",
        _column("scope_pk"),
        _column("scope", ID),
        _key("scopes", "scope_pk"),
        sa.UniqueConstraint("scope", name=op.f("uq_observations_scopes_scope")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "observations_events",
        _column("event_pk"),
        _column("scope_pk"),
        _column("event_id", ID),
        _column("workflow_pk"),
        _column("received_us"),
        _column("body", BYTES),
        _key("events", "event_pk"),
        sa.UniqueConstraint("scope_pk", "event_id", name=op.f("uq_observations_events_scope_pk_event_id")),
        sqlite_autoincrement=True,
    )
    _index("events", "workflow_pk", "event_pk")
    op.create_table(
        "observations_refusals",
        _column("scope_pk"),
        _column("event_id", ID),
        _column("digest", BYTES),
        _column("workflow_pk"),
        _column("received_us"),
        _column("reason", sa.String(32)),
        _column("charge_source", SOURCE, nullable=True),
        _column("charge_id", CHARGE, nullable=True),
        _key("refusals", "scope_pk", "event_id", "digest"),
        sa.CheckConstraint(
            "reason IN ('event', 'attempt', 'charge', 'amount', 'limit')", name=op.f("ck_observations_refusals_reason")
        ),
        sqlite_with_rowid=False,
    )
    _index("refusals", "workflow_pk")


def _create_known() -> None:
    op.create_table(
        "observations_attempts",
        _column("scope_pk"),
        _column("attempt_id", ID),
        _column("workflow_pk"),
        _column("operation_id", ID),
        _column("run_id", ID),
        _column("is_retry", sa.SmallInteger()),
        _column("is_recovery", sa.SmallInteger()),
        _column("outcome", sa.SmallInteger()),
        _column("first_us"),
        _column("last_us"),
        _key("attempts", "scope_pk", "attempt_id"),
        sa.CheckConstraint("outcome BETWEEN 0 AND 4", name=op.f("ck_observations_attempts_outcome")),
        sqlite_with_rowid=False,
    )
    _index("attempts", "workflow_pk", "first_us", "attempt_id")
    _index("attempts", "workflow_pk", "run_id")
    op.create_table(
        "observations_charges",
        _column("scope_pk"),
        _column("charge_source", SOURCE),
        _column("charge_id", CHARGE),
        _column("attempt_id", ID),
        _column("first_us"),
        _column("price_source", CHARGE, nullable=True),
        _column("cost_microusd", nullable=True),
        _column("input_tokens", nullable=True),
        _column("output_tokens", nullable=True),
        _column("cached_input_tokens", nullable=True),
        _column("cached_basis", sa.String(32), nullable=True),
        _column("model", SOURCE, nullable=True),
        _column("conflicts"),
        _key("charges", "scope_pk", "charge_source", "charge_id"),
        sqlite_with_rowid=False,
    )
    _index("charges", "scope_pk", "attempt_id", "first_us")


def _create_sums() -> None:
    op.create_table(
        "observations_attempt_days",
        *_tally(),
        _column("scope_pk"),
        _column("attempt_id", ID),
        _column("day"),
        _key("attempt_days", "scope_pk", "attempt_id", "day"),
        _sound("attempt_days"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "observations_days",
        *_tally(),
        _column("scope_pk"),
        _column("day"),
        _column("cause", sa.SmallInteger()),
        _column("outcome", sa.SmallInteger()),
        _column("attempts"),
        _column("unpriced_attempts"),
        _key("days", "scope_pk", "day", "cause", "outcome"),
        _sound("days"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "observations_pairs",
        *_tally(),
        _column("scope_pk"),
        _column("day"),
        _column("pair_ix", BYTES),
        _column("charge_source", SOURCE),
        _column("price_source", CHARGE),
        _column("shown", sa.SmallInteger()),
        _key("pairs", "scope_pk", "day", "pair_ix"),
        _sound("pairs"),
        sa.CheckConstraint("shown BETWEEN 0 AND 2", name=op.f("ck_observations_pairs_shown")),
        sqlite_with_rowid=False,
    )
    _index("pairs", "scope_pk", "shown", "day", "pair_ix")


def _create_workflows() -> None:
    counts = ("runs", "attempts", "unpriced_attempts", "retries", "recoveries", *OUTCOMES)
    op.create_table(
        "observations_workflows",
        *_tally(),
        _column("workflow_pk"),
        _column("scope_pk"),
        _column("workflow_id", ORDERED_ID),
        _column("first_us"),
        _column("last_us"),
        *(_column(name) for name in (*counts, "repeated_hi", "repeated_lo", "refused")),
        _key("workflows", "workflow_pk"),
        _sound("workflows"),
        sa.UniqueConstraint("scope_pk", "workflow_id", name=op.f("uq_observations_workflows_scope_pk_workflow_id")),
        sqlite_autoincrement=True,
    )
    _index("workflows", "scope_pk", "first_us", "workflow_pk")
    for name in OUTCOMES:
        op.create_index(
            f"ix_observations_workflows_{name}",
            "observations_workflows",
            ["scope_pk", "first_us", "workflow_pk"],
            sqlite_where=sa.text(f"{name} > 0"),
            postgresql_where=sa.text(f"{name} > 0"),
        )


def upgrade() -> None:
    _create_received()
    _create_known()
    _create_sums()
    _create_workflows()
    op.add_column("auth_credentials", sa.Column("scope", sa.String(128), nullable=True))


def downgrade() -> None:
    op.drop_column("auth_credentials", "scope")
    for table in TABLES:
        op.drop_table(f"observations_{table}")
