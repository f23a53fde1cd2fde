"""Statements of what was observed: rows in, rows out. What they mean is `observations.costs` and its callers'.

`Units` is the one seam to a database: `continuity.store.store.Store` is one. Additive rows are changed by an UPDATE
of differences, so that a row's limbs never meet Python, and made when there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from observations import schema
from observations.costs import TALLY, Attempt, Charge, Outcome, Vector

T = TypeVar("T")

Key = Mapping[str, object]

_ATTEMPT_FIELDS: Final = tuple(name for name in Attempt.__dataclass_fields__ if name != "workflow_id")
_CHARGE_FIELDS: Final = tuple(name for name in Charge.__dataclass_fields__)
_KEYS: Final[dict[sa.Table, tuple[str, ...]]] = {
    schema.attempt_days: ("scope_pk", "attempt_id", "day"),
    schema.days: ("scope_pk", "day", "cause", "outcome"),
    schema.pairs: ("scope_pk", "day", "pair_ix"),
    schema.workflows: ("workflow_pk",),
    schema.settled_days: ("scope_pk", "day", "cause", "outcome"),
    schema.settled_pairs: ("scope_pk", "day", "pair_ix"),
    schema.settled_workflows: ("workflow_pk",),
}
_ADDED: Final[dict[sa.Table, tuple[str, ...]]] = {
    table: tuple(
        column.name
        for column in table.columns
        if column.name not in {*keys, "scope_pk", "workflow_id", "first_us", "last_us", "charge_source",
                               "price_source", "shown"}
    )
    for table, keys in _KEYS.items()
}  # fmt: skip
"""Columns of each additive table that hold sums."""


class Units(Protocol):
    """Runs units of work in transactions; what a unit raises rolls it back."""

    @property
    def is_postgresql(self) -> bool:
        """Whether the database locks rows; else one writer has it all."""

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one writing transaction, durable when it returns."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one unchanging state of the database."""


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """A known attempt and the row of its workflow."""

    attempt: Attempt
    workflow_pk: int


@dataclass(frozen=True, slots=True)
class HeldWorkflow:
    """A workflow's row as far as an event can change it without adding."""

    workflow_pk: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class HeldScope:
    """A scope's row. Events of a time before `pruned_us` are not taken in."""

    scope_pk: int
    pruned_us: int


def lock_scope(connection: Connection, scope: str) -> HeldScope:
    """Return the scope's row, made when it is new and locked to the end of the transaction."""
    found = connection.execute(_SCOPE, {"scope": scope}).first()
    if found is not None:
        return HeldScope(*found)
    # Of two that make it at once, one is refused by the constraint and comes again.
    made = connection.execute(sa.insert(schema.scopes).values(scope=scope).returning(schema.scopes.c.scope_pk))
    return HeldScope(int(made.scalar_one()), 0)


_SCOPE: Final = (
    sa.select(schema.scopes.c.scope_pk, schema.scopes.c.pruned_us)
    .where(schema.scopes.c.scope == sa.bindparam("scope"))
    .with_for_update()
)
_EVENT: Final = sa.select(schema.events.c.body, schema.events.c.workflow_pk).where(
    schema.events.c.scope_pk == sa.bindparam("scope_pk"), schema.events.c.event_id == sa.bindparam("event_id")
)
_REFUSALS: Final = sa.select(schema.refusals.c.digest, schema.refusals.c.workflow_pk).where(
    schema.refusals.c.scope_pk == sa.bindparam("scope_pk"), schema.refusals.c.event_id == sa.bindparam("event_id"),
    # The one of this body, and any other: the first tells a repetition, either that the id is taken.
).order_by((schema.refusals.c.digest == sa.bindparam("digest")).desc()).limit(1)  # fmt: skip
_ATTEMPT: Final = (
    sa.select(schema.attempts, schema.workflows.c.workflow_id)
    .join(schema.workflows, schema.workflows.c.workflow_pk == schema.attempts.c.workflow_pk)
    .where(
        schema.attempts.c.scope_pk == sa.bindparam("scope_pk"),
        schema.attempts.c.attempt_id == sa.bindparam("attempt_id"),
    )
)
_CHARGE: Final = sa.select(schema.charges).where(
    schema.charges.c.scope_pk == sa.bindparam("scope_pk"),
    schema.charges.c.charge_source == sa.bindparam("charge_source"),
    schema.charges.c.charge_id == sa.bindparam("charge_id"),
)
_WORKFLOW: Final = sa.select(
    schema.workflows.c.workflow_pk, schema.workflows.c.first_us, schema.workflows.c.last_us
).where(schema.workflows.c.scope_pk == sa.bindparam("scope_pk"), schema.workflows.c.workflow_id == sa.bindparam("id"))
_ATTEMPT_DAYS: Final = sa.select(schema.attempt_days).where(
    schema.attempt_days.c.scope_pk == sa.bindparam("scope_pk"),
    schema.attempt_days.c.attempt_id == sa.bindparam("attempt_id"),
)
_RUN: Final = (
    sa.select(schema.attempts.c.attempt_id)
    .where(
        schema.attempts.c.workflow_pk == sa.bindparam("workflow_pk"), schema.attempts.c.run_id == sa.bindparam("run_id")
    )
    .limit(1)
)


def find_event(connection: Connection, scope_pk: int, event_id: str) -> sa.Row[bytes, int] | None:
    """Return (body, workflow_pk) of an accepted event."""
    return connection.execute(_EVENT, {"scope_pk": scope_pk, "event_id": event_id}).first()


def find_refusal(connection: Connection, scope_pk: int, event_id: str, *, digest: bytes) -> sa.Row[bytes, int] | None:
    """Return (digest, workflow_pk) of a refusal of this id: that of this body if there is one, else any."""
    parameters = {"scope_pk": scope_pk, "event_id": event_id, "digest": digest}
    return connection.execute(_REFUSALS, parameters).first()


def find_attempt(connection: Connection, scope_pk: int, attempt_id: str) -> HeldAttempt | None:
    """Return a known attempt."""
    row = connection.execute(_ATTEMPT, {"scope_pk": scope_pk, "attempt_id": attempt_id}).first()
    return None if row is None else HeldAttempt(attempt_of(row), row.workflow_pk)


def find_charge(connection: Connection, scope_pk: int, *, charge_source: str, charge_id: str) -> Charge | None:
    """Return a known charge."""
    parameters = {"scope_pk": scope_pk, "charge_source": charge_source, "charge_id": charge_id}
    row = connection.execute(_CHARGE, parameters).first()
    return None if row is None else charge_of(row)


def find_workflow(connection: Connection, scope_pk: int, workflow_id: str) -> HeldWorkflow | None:
    """Return a workflow's row."""
    row = connection.execute(_WORKFLOW, {"scope_pk": scope_pk, "id": workflow_id}).first()
    return None if row is None else HeldWorkflow(*row)


def find_attempt_days(connection: Connection, scope_pk: int, attempt_id: str) -> dict[int, Vector]:
    """Return the sums of an attempt's charges by day."""
    rows = connection.execute(_ATTEMPT_DAYS, {"scope_pk": scope_pk, "attempt_id": attempt_id})
    return {row.day: vector_of(row) for row in rows}


def has_run(connection: Connection, workflow_pk: int, run_id: str) -> bool:
    """Say whether a workflow has an attempt of this run."""
    return connection.execute(_RUN, {"workflow_pk": workflow_pk, "run_id": run_id}).first() is not None


def attempt_of(row: Any) -> Attempt:
    """Read an attempt from a row that has its workflow_id too."""
    return Attempt(
        row.workflow_id, row.operation_id, row.run_id, bool(row.is_retry), bool(row.is_recovery),
        Outcome(row.outcome), row.first_us, row.last_us,
    )  # fmt: skip


def charge_of(row: Any) -> Charge:
    """Read a charge from its row."""
    return Charge(**{name: getattr(row, name) for name in _CHARGE_FIELDS})


def vector_of(row: Any) -> Vector:
    """Read the sums over charges of a row, without zeros."""
    return {name: int(value) for name in TALLY if (value := getattr(row, name))}


def insert_event(
    connection: Connection, scope_pk: int, *, event_id: str, workflow_pk: int, body: bytes, now_us: int
) -> None:
    """Keep an accepted event."""
    connection.execute(
        sa.insert(schema.events),
        {"scope_pk": scope_pk, "event_id": event_id, "workflow_pk": workflow_pk, "received_us": now_us, "body": body},
    )


def insert_refusal(connection: Connection, row: Key) -> None:
    """Keep a refused event's id and digest."""
    connection.execute(sa.insert(schema.refusals), dict(row))


def insert_workflow(connection: Connection, scope_pk: int, workflow_id: str, *, at_us: int) -> HeldWorkflow:
    """Make the row of a workflow without anything in it."""
    values = {"scope_pk": scope_pk, "workflow_id": workflow_id, "first_us": at_us, "last_us": at_us}
    values |= dict.fromkeys(_ADDED[schema.workflows], 0)
    made = connection.execute(sa.insert(schema.workflows).returning(schema.workflows.c.workflow_pk), values)
    return HeldWorkflow(int(made.scalar_one()), at_us, at_us)


def save_attempt(
    connection: Connection, scope_pk: int, attempt_id: str, *, workflow_pk: int, attempt: Attempt, is_new: bool
) -> None:
    """Write what is known of an attempt."""
    facts = {name: getattr(attempt, name) for name in _ATTEMPT_FIELDS}
    facts |= {"is_retry": int(attempt.is_retry), "is_recovery": int(attempt.is_recovery), "workflow_pk": workflow_pk}
    _save(connection, schema.attempts, {"scope_pk": scope_pk, "attempt_id": attempt_id}, facts=facts, is_new=is_new)


def save_charge(
    connection: Connection, scope_pk: int, *, charge_source: str, charge_id: str, charge: Charge, is_new: bool
) -> None:
    """Write what is known of a charge."""
    key = {"scope_pk": scope_pk, "charge_source": charge_source, "charge_id": charge_id}
    _save(
        connection, schema.charges, key, facts={name: getattr(charge, name) for name in _CHARGE_FIELDS}, is_new=is_new
    )


def _save(connection: Connection, table: sa.Table, key: Key, *, facts: dict[str, Any], is_new: bool) -> None:
    if is_new:
        connection.execute(sa.insert(table), {**key, **facts})
    else:
        connection.execute(_setting(table, tuple(key), tuple(facts)), {**_marked(key), **facts})


def set_times(connection: Connection, workflow_pk: int, *, first_us: int, last_us: int) -> None:
    """Write when a workflow was first and last seen."""
    statement = _setting(schema.workflows, ("workflow_pk",), ("first_us", "last_us"))
    connection.execute(statement, {"key_workflow_pk": workflow_pk, "first_us": first_us, "last_us": last_us})


def add(
    connection: Connection, table: sa.Table, key: Key, vector: Mapping[str, int], *, facts: Key | None = None
) -> None:
    """Add differences to a row of an additive table; a row that is not there is made of them and of `facts`."""
    if not vector:
        return
    statement = _adding(table, tuple(key), tuple(sorted(vector)))
    changes = {f"change_{name}": change for name, change in vector.items()}
    if connection.execute(statement, {**_marked(key), **changes}).rowcount == 0:
        connection.execute(sa.insert(table), {**dict.fromkeys(_ADDED[table], 0), **key, **(facts or {}), **vector})


# Statements are made once for each set of columns: making one costs more than running it.


@lru_cache(maxsize=1_024)
def _adding(table: sa.Table, keys: tuple[str, ...], names: tuple[str, ...]) -> sa.Update:
    sums = {name: table.c[name] + sa.bindparam(f"change_{name}") for name in names}
    return sa.update(table).where(*_keyed(table, keys)).values(sums)


@lru_cache(maxsize=64)
def _setting(table: sa.Table, keys: tuple[str, ...], names: tuple[str, ...]) -> sa.Update:
    return sa.update(table).where(*_keyed(table, keys)).values({name: sa.bindparam(name) for name in names})


def _keyed(table: sa.Table, keys: tuple[str, ...]) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == sa.bindparam(f"key_{name}") for name in keys]


def _marked(key: Key) -> dict[str, object]:
    return {f"key_{name}": value for name, value in key.items()}


def _is(table: sa.Table, key: Key) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == value for name, value in key.items()]


# ---- pairs of a day

OTHER: Final = b""
"""``pair_ix`` of the row that holds the sum of a day's hidden pairs; every other has 16 bytes."""


@dataclass(frozen=True, slots=True)
class PairKey:
    """Key of a pair's row."""

    scope_pk: int
    day: int
    pair_ix: bytes

    @property
    def columns(self) -> dict[str, Any]:
        """The key as columns."""
        return {"scope_pk": self.scope_pk, "day": self.day, "pair_ix": self.pair_ix}


def find_pair(connection: Connection, key: PairKey) -> sa.Row[Any] | None:
    """Return the row of a pair."""
    return connection.execute(_PAIR, _marked(key.columns)).first()


def count_named(connection: Connection, scope_pk: int, day: int) -> int:
    """Return how many pairs of a day are named."""
    parameters = {"key_scope_pk": scope_pk, "key_day": day, "key_shown": schema.PAIR_NAMED}
    return int(connection.execute(_NAMED, parameters).scalar_one())


def edge_pair(connection: Connection, scope_pk: int, day: int, *, shown: int) -> sa.Row[Any] | None:
    """Return the last of a day's named pairs, or the first of its hidden ones, by `shown`."""
    statement = _LAST_NAMED if shown == schema.PAIR_NAMED else _FIRST_HIDDEN
    return connection.execute(statement, {"key_scope_pk": scope_pk, "key_day": day, "key_shown": shown}).first()


_SHOWN: Final = _keyed(schema.pairs, ("scope_pk", "day", "shown"))
_PAIR: Final = sa.select(schema.pairs).where(*_keyed(schema.pairs, ("scope_pk", "day", "pair_ix")))
_NAMED: Final = sa.select(sa.func.count()).select_from(schema.pairs).where(*_SHOWN)
_LAST_NAMED: Final = sa.select(schema.pairs).where(*_SHOWN).order_by(schema.pairs.c.pair_ix.desc()).limit(1)
_FIRST_HIDDEN: Final = sa.select(schema.pairs).where(*_SHOWN).order_by(schema.pairs.c.pair_ix).limit(1)


def insert_pair(connection: Connection, key: PairKey, *, names: tuple[str, str], shown: int, vector: Vector) -> None:
    """Make the row of a pair."""
    source, price_source = names
    named = {"charge_source": source, "price_source": price_source, "shown": shown}
    connection.execute(sa.insert(schema.pairs), {**dict.fromkeys(TALLY, 0), **key.columns, **named, **vector})


def show_pair(connection: Connection, key: PairKey, *, shown: int) -> None:
    """Say how a pair is shown."""
    connection.execute(sa.update(schema.pairs).where(*_is(schema.pairs, key.columns)).values(shown=shown))


def delete_pair(connection: Connection, key: PairKey) -> None:
    """Delete a pair that holds nothing."""
    connection.execute(sa.delete(schema.pairs).where(*_is(schema.pairs, key.columns)))


def key_of(row: Any) -> PairKey:
    """Return the key of a pair's row."""
    return PairKey(row.scope_pk, row.day, row.pair_ix)


def negated(vector: Mapping[str, int]) -> Vector:
    """Return what takes `vector` away again."""
    return {name: -value for name, value in vector.items()}


def added_columns(table: sa.Table) -> Sequence[str]:
    """Return the columns of an additive table that hold sums."""
    return _ADDED[table]
