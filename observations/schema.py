"""Tables of what was observed, as SQLAlchemy Core metadata ``observations``.

Rules:

* ``observations_events`` and ``observations_refusals`` are what came, ``observations_settled_…`` what the pruned of
  them came to; every other table is made from these and can be made again (`observations.derivation`).
* Rollups hold sums and counts that one event changes in a few rows, whatever is there already: a workflow, a day by
  cause and outcome, a day by charge source and price source. A page reads rollups, never events.
* A sum stands in two columns, high and low limb (`observations.costs`): whole numbers, exact beyond 64 bits.
* Times are whole microseconds since 1970 in UTC, days whole days since then.
* No foreign key, and nothing of another package's tables: an observation outlives what it is about.
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
"""The convention that the metadata of every package must use."""

metadata: Final = sa.MetaData(naming_convention=NAMING)

INTEGER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SMALL: Final = sa.SmallInteger()
WORD: Final = sa.String(32)
ID: Final = sa.String(128)
ORDERED_ID: Final = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
"""An id that is searched by its beginning: in the order of its bytes on both databases."""
PAIR_HIDDEN: Final = 0
PAIR_NAMED: Final = 1
PAIR_OTHER: Final = 2


class ScopeColumns(TypedColumns):
    """Observation scopes. Whoever writes into one locks its row first.

    What was observed before ``pruned_us`` may be pruned, so that nothing of that time is taken in any more.
    """

    scope_pk = Column(INTEGER, primary_key=True)
    scope: Named[str] = Column(ID, unique=True)
    pruned_us: Named[int] = Column(INTEGER, server_default="0")


scopes: Final = sa.Table("observations_scopes", metadata, ScopeColumns, sqlite_autoincrement=True)


class EventColumns(TypedColumns):
    """Accepted events, whole. ``body`` is canonical JSON without ``format``."""

    event_pk = Column(INTEGER, primary_key=True)
    scope_pk: Named[int] = Column(INTEGER)
    event_id: Named[str] = Column(ID)
    workflow_pk: Named[int] = Column(INTEGER)
    received_us: Named[int] = Column(INTEGER)
    body: Named[bytes] = Column(sa.LargeBinary())


events: Final = sa.Table(
    "observations_events",
    metadata,
    EventColumns,
    sa.UniqueConstraint("scope_pk", "event_id"),
    Index(None, "workflow_pk", "event_pk"),
    sqlite_autoincrement=True,
)

REASONS: Final = ("event", "attempt", "charge", "amount", "limit")


class RefusalColumns(TypedColumns):
    """Refused events by id and SHA-256 of the body, once each, and what they are counted at.

    ``workflow_pk`` is the workflow of the charge that they disagree with, which is named and shows as conflicting;
    without such a charge it is the workflow of what else they contradict.
    """

    scope_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    event_id = Column(ID, primary_key=True)
    digest = Column(sa.LargeBinary(), primary_key=True)
    workflow_pk: Named[int] = Column(INTEGER)
    received_us: Named[int] = Column(INTEGER)
    reason: Named[str] = Column(WORD)
    charge_source: Named[str | None] = Column(sa.String(128))
    charge_id: Named[str | None] = Column(sa.String(256))


refusals: Final = sa.Table(
    "observations_refusals",
    metadata,
    RefusalColumns,
    sa.CheckConstraint(f"reason IN ({', '.join(repr(word) for word in REASONS)})", name="reason"),
    Index(None, "workflow_pk"),
    sqlite_with_rowid=False,
)


class TallyColumns(TypedColumns):
    """Sums over charges: `observations.costs.TALLY`."""

    charges: Named[int] = Column(INTEGER)
    priced: Named[int] = Column(INTEGER)
    conflicting: Named[int] = Column(INTEGER)
    cost_hi: Named[int] = Column(INTEGER)
    cost_lo: Named[int] = Column(INTEGER)
    with_input: Named[int] = Column(INTEGER)
    input_hi: Named[int] = Column(INTEGER)
    input_lo: Named[int] = Column(INTEGER)
    with_output: Named[int] = Column(INTEGER)
    output_hi: Named[int] = Column(INTEGER)
    output_lo: Named[int] = Column(INTEGER)


_SOUND: Final = "charges >= priced AND priced >= 0 AND charges >= conflicting AND conflicting >= 0 AND cost_lo >= 0"


class AttemptColumns(TypedColumns):
    """What is known of an attempt: `observations.costs.Attempt`."""

    scope_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    attempt_id = Column(ID, primary_key=True)
    workflow_pk: Named[int] = Column(INTEGER)
    operation_id: Named[str] = Column(ID)
    run_id: Named[str] = Column(ID)
    is_retry: Named[int] = Column(SMALL)
    is_recovery: Named[int] = Column(SMALL)
    outcome: Named[int] = Column(SMALL)
    first_us: Named[int] = Column(INTEGER)
    last_us: Named[int] = Column(INTEGER)


attempts: Final = sa.Table(
    "observations_attempts",
    metadata,
    AttemptColumns,
    sa.CheckConstraint("outcome BETWEEN 0 AND 4", name="outcome"),
    Index(None, "workflow_pk", "first_us", "attempt_id"),
    Index(None, "workflow_pk", "run_id"),
    sqlite_with_rowid=False,
)


class AttemptDayColumns(TallyColumns):
    """Sums of an attempt's charges by their day."""

    scope_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    attempt_id = Column(ID, primary_key=True)
    day = Column(INTEGER, primary_key=True, autoincrement=False)


attempt_days: Final = sa.Table(
    "observations_attempt_days",
    metadata,
    AttemptDayColumns,
    sa.CheckConstraint(_SOUND, name="tally"),
    sqlite_with_rowid=False,
)


class ChargeColumns(TypedColumns):
    """What is known of a charge: `observations.costs.Charge`."""

    scope_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    charge_source = Column(sa.String(128), primary_key=True)
    charge_id = Column(sa.String(256), primary_key=True)
    attempt_id: Named[str] = Column(ID)
    first_us: Named[int] = Column(INTEGER)
    price_source: Named[str | None] = Column(sa.String(256))
    cost_microusd: Named[int | None] = Column(INTEGER)
    input_tokens: Named[int | None] = Column(INTEGER)
    output_tokens: Named[int | None] = Column(INTEGER)
    cached_input_tokens: Named[int | None] = Column(INTEGER)
    cached_basis: Named[str | None] = Column(WORD)
    model: Named[str | None] = Column(sa.String(128))
    conflicts: Named[int] = Column(INTEGER)


charges: Final = sa.Table(
    "observations_charges",
    metadata,
    ChargeColumns,
    Index(None, "scope_pk", "attempt_id", "first_us"),
    sqlite_with_rowid=False,
)


class DayColumns(TallyColumns):
    """A day by cause and outcome: attempts that began then, and charges that count then."""

    scope_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    day = Column(INTEGER, primary_key=True, autoincrement=False)
    cause = Column(SMALL, primary_key=True, autoincrement=False)
    outcome = Column(SMALL, primary_key=True, autoincrement=False)
    attempts: Named[int] = Column(INTEGER)
    unpriced_attempts: Named[int] = Column(INTEGER)


days: Final = sa.Table(
    "observations_days", metadata, DayColumns, sa.CheckConstraint(_SOUND, name="tally"), sqlite_with_rowid=False
)


class PairColumns(TallyColumns):
    """A day by charge source and price source.

    ``shown`` is `PAIR_NAMED` for the 500 pairs of smallest ``pair_ix``, `PAIR_HIDDEN` for the rest, whose sum is
    the one row `PAIR_OTHER` of the day.
    """

    scope_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    day = Column(INTEGER, primary_key=True, autoincrement=False)
    pair_ix = Column(sa.LargeBinary(), primary_key=True)
    charge_source: Named[str] = Column(sa.String(128))
    price_source: Named[str] = Column(sa.String(256))
    shown: Named[int] = Column(SMALL)


pairs: Final = sa.Table(
    "observations_pairs",
    metadata,
    PairColumns,
    sa.CheckConstraint(_SOUND, name="tally"),
    sa.CheckConstraint("shown BETWEEN 0 AND 2", name="shown"),
    Index(None, "scope_pk", "shown", "day", "pair_ix"),
    sqlite_with_rowid=False,
)


class WorkflowColumns(TallyColumns):
    """A workflow: counts of its attempts, sums of its charges, and how many events about it were refused."""

    workflow_pk = Column(INTEGER, primary_key=True)
    scope_pk: Named[int] = Column(INTEGER)
    workflow_id: Named[str] = Column(ORDERED_ID)
    first_us: Named[int] = Column(INTEGER)
    last_us: Named[int] = Column(INTEGER)
    runs: Named[int] = Column(INTEGER)
    attempts: Named[int] = Column(INTEGER)
    unpriced_attempts: Named[int] = Column(INTEGER)
    retries: Named[int] = Column(INTEGER)
    recoveries: Named[int] = Column(INTEGER)
    open: Named[int] = Column(INTEGER)
    unknown: Named[int] = Column(INTEGER)
    blocked: Named[int] = Column(INTEGER)
    abandoned: Named[int] = Column(INTEGER)
    completed: Named[int] = Column(INTEGER)
    repeated_hi: Named[int] = Column(INTEGER)
    repeated_lo: Named[int] = Column(INTEGER)
    refused: Named[int] = Column(INTEGER)
    repeated_charges: Named[int] = Column(INTEGER, server_default="0")
    repeated_priced: Named[int] = Column(INTEGER, server_default="0")


OUTCOME_COLUMNS: Final = ("open", "unknown", "blocked", "abandoned", "completed")

workflows: Final = sa.Table(
    "observations_workflows",
    metadata,
    WorkflowColumns,
    sa.CheckConstraint(_SOUND, name="tally"),
    sa.UniqueConstraint("scope_pk", "workflow_id"),
    Index(None, "scope_pk", "first_us", "workflow_pk"),
    *(
        Index(
            f"ix_observations_workflows_{name}", "scope_pk", "first_us", "workflow_pk",
            sqlite_where=sa.text(f"{name} > 0"), postgresql_where=sa.text(f"{name} > 0"),
        )
        for name in OUTCOME_COLUMNS
    ),
    sqlite_autoincrement=True,
)  # fmt: skip


class SettledDayColumns(TallyColumns):
    """Of `days`, what was pruned."""

    scope_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    day = Column(INTEGER, primary_key=True, autoincrement=False)
    cause = Column(SMALL, primary_key=True, autoincrement=False)
    outcome = Column(SMALL, primary_key=True, autoincrement=False)
    attempts: Named[int] = Column(INTEGER)
    unpriced_attempts: Named[int] = Column(INTEGER)


settled_days: Final = sa.Table("observations_settled_days", metadata, SettledDayColumns, sqlite_with_rowid=False)


class SettledPairColumns(TallyColumns):
    """Of `pairs`, what was pruned."""

    scope_pk = Column(INTEGER, primary_key=True, autoincrement=False)
    day = Column(INTEGER, primary_key=True, autoincrement=False)
    pair_ix = Column(sa.LargeBinary(), primary_key=True)
    charge_source: Named[str] = Column(sa.String(128))
    price_source: Named[str] = Column(sa.String(256))


settled_pairs: Final = sa.Table("observations_settled_pairs", metadata, SettledPairColumns, sqlite_with_rowid=False)


class SettledWorkflowColumns(WorkflowColumns):
    """Of `workflows`, what was pruned. ``runs`` are those of which no attempt is left."""

    workflow_pk = Column(INTEGER, primary_key=True, autoincrement=False)


settled_workflows: Final = sa.Table("observations_settled_workflows", metadata, SettledWorkflowColumns)


class MoveColumns(TypedColumns):
    """Where something stood in a list before an event with an earlier time came, for lists that are being read.

    ``attempt_id`` is empty for the workflow itself.
    """

    move_pk = Column(INTEGER, primary_key=True)
    workflow_pk: Named[int] = Column(INTEGER)
    attempt_id: Named[str] = Column(ID)
    was_us: Named[int] = Column(INTEGER)
    moved_us: Named[int] = Column(INTEGER)


moves: Final = sa.Table(
    "observations_moves", metadata, MoveColumns, Index(None, "workflow_pk", "move_pk"), sqlite_autoincrement=True
)


class ClaimColumns(TypedColumns):
    """Who does what only one may do at a time: the last that said so."""

    name = Column(WORD, primary_key=True)
    token: Named[str] = Column(WORD)


claims: Final = sa.Table("observations_claims", metadata, ClaimColumns, sqlite_with_rowid=False)
