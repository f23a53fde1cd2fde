"""Lets go of what was observed long ago, and keeps what it came to.

Rules:

* What goes is a run all of whose attempts were last seen before a time, by the clock of their hosts: the attempts,
  their charges, and the events and refusals about them.
* No total changes. What an attempt came to moves into the settled sums in the transaction that deletes it, so a
  recount of settled sums and kept events equals the rollups at every moment, and a run that was killed goes on where
  it was.
* A scope first takes in nothing of that time any more (`schema.ScopeColumns`): an event whose first delivery is
  forgotten would count twice.
* Transactions are small, and events and governed operations come in between.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity import jsontext
from observations import schema, store
from observations.costs import Vector, charge_pair, footprint, pair_rank
from observations.store import HeldAttempt

ROWS_READ: Final = 1_000
"""Attempts or events of one reading."""
EVENTS_AT_ONCE: Final = 200
"""Events of one writing transaction, the last attempt's aside."""
PAUSE_S: Final = 0.005
"""Between writing transactions, for whoever else writes."""


@dataclass(slots=True)
class Pruned:
    """What went, or would go."""

    runs: int = 0
    attempts: int = 0
    charges: int = 0
    events: int = 0
    refusals: int = 0


Progress = Callable[[Pruned], None]
"""Called after each transaction, and of a count after each workflow."""


@dataclass(slots=True)
class _Old:
    """Attempts of one workflow that may go, and their events by number; `seen_pk` is the last event that was read."""

    workflow_pk: int
    runs: int
    attempts: dict[str, list[int]]
    seen_pk: int = 0


def count(units: store.Units, scope: str, *, before_us: int, progress: Progress = lambda _done: None) -> Pruned:
    """Say what `prune` would let go of. Writes nothing.

    Raises:
        UnavailableError: Storage cannot answer.
    """
    done = Pruned()
    for old in _all_old(units, scope, before_us):
        events = sum(len(pks) for pks in old.attempts.values())
        _add(done, Pruned(runs=old.runs, attempts=len(old.attempts), events=events))
        for start in range(0, len(old.attempts), ROWS_READ):
            ids = list(old.attempts)[start : start + ROWS_READ]
            _add(done, units.read(lambda connection, ids=ids: _count_more(connection, scope, ids)))  # type: ignore[misc]
        progress(done)
    done.refusals += units.read(lambda connection: _count_refusals(connection, scope, before_us))
    return done


def prune(units: store.Units, scope: str, *, before_us: int, progress: Progress = lambda _done: None) -> Pruned:
    """Let go of the runs of a scope that ended before a time. Safe to repeat, and while events come.

    Args:
        units: Runs the transactions.
        scope: Observation scope; one that nobody knows has nothing to prune.
        before_us: Microseconds since 1970. From the first transaction on, the scope takes in no event of an
            earlier time.
        progress: Called after each transaction.

    Raises:
        UnavailableError: Storage cannot answer. What `progress` was told last is gone.
    """
    done = Pruned()
    if not units.write(lambda connection: _close_time(connection, scope, before_us)):
        return done
    for old in _all_old(units, scope, before_us):
        for attempts in _batches(old):

            def work(connection: Connection, old: _Old = old, attempts: Sequence[str] = attempts) -> Pruned:
                return _settle(connection, scope, old, attempts=attempts, before_us=before_us)

            _add(done, units.write(work))
            progress(done)
            time.sleep(PAUSE_S)
    while gone := units.write(lambda connection: _drop_refusals(connection, scope, before_us)):
        done.refusals += gone
        progress(done)
        time.sleep(PAUSE_S)
    return done


def _add(done: Pruned, more: Pruned) -> None:
    for name in Pruned.__dataclass_fields__:
        setattr(done, name, getattr(done, name) + getattr(more, name))


def _close_time(connection: Connection, scope: str, before_us: int) -> bool:
    """Take in nothing of that time any more; False for a scope that nobody knows."""
    scopes = schema.scopes
    is_this = scopes.c.scope == scope
    known = connection.execute(sa.select(scopes.c.scope_pk).where(is_this).with_for_update()).first() is not None
    later = sa.and_(is_this, scopes.c.pruned_us < before_us)
    connection.execute(sa.update(scopes).where(later).values(pruned_us=before_us))
    return known


# ---- finding


def _all_old(units: store.Units, scope: str, before_us: int) -> Iterator[_Old]:
    """Return what may go, workflow by workflow; one is held in memory at a time."""
    for workflow_pk, rows in itertools.groupby(_attempts(units, scope), key=lambda row: int(row.workflow_pk)):
        last: dict[str, int] = {}
        runs: dict[str, str] = {}
        for row in rows:
            runs[row.attempt_id] = row.run_id
            last[row.run_id] = max(row.last_us, last.get(row.run_id, 0))
        ids = [attempt_id for attempt_id, run_id in runs.items() if last[run_id] < before_us]
        if ids:
            is_old = [run_id for run_id, last_us in last.items() if last_us < before_us]
            yield _with_events(units, _Old(workflow_pk, len(is_old), {attempt_id: [] for attempt_id in ids}))


def _attempts(units: store.Units, scope: str) -> Iterator[Any]:
    attempts = schema.attempts
    key = (attempts.c.workflow_pk, attempts.c.run_id, attempts.c.attempt_id)
    after: tuple[Any, ...] = (0, "", "")
    while True:
        page = (
            sa.select(*key, attempts.c.last_us)
            .where(attempts.c.scope_pk == _scope_pk(scope), sa.tuple_(*key) > after)
            .order_by(*key)
            .limit(ROWS_READ)
        )
        rows = units.read(lambda connection, page=page: connection.execute(page).all())  # type: ignore[misc]
        if not rows:
            return
        yield from rows
        after = tuple(rows[-1][:3])


def _scope_pk(scope: str) -> sa.ScalarSelect[int]:
    return sa.select(schema.scopes.c.scope_pk).where(schema.scopes.c.scope == scope).scalar_subquery()


def _with_events(units: store.Units, old: _Old) -> _Old:
    """Add which events are about the attempts."""
    while rows := units.read(lambda connection: _events(connection, old)):
        for row in rows:
            pks = old.attempts.get(_attempt_of(row.body))
            if pks is not None:
                pks.append(row.event_pk)
        old.seen_pk = rows[-1].event_pk
    return old


def _events(connection: Connection, old: _Old) -> Sequence[Any]:
    events = schema.events
    statement = (
        sa.select(events.c.event_pk, events.c.body)
        .where(events.c.workflow_pk == old.workflow_pk, events.c.event_pk > old.seen_pk)
        .order_by(events.c.event_pk)
        .limit(ROWS_READ)
    )
    return connection.execute(statement).all()


def _attempt_of(body: bytes) -> str:
    return str(jsontext.loads_strict(body)["attempt_id"])


def _count_more(connection: Connection, scope: str, ids: Sequence[str]) -> Pruned:
    """Count charges of attempts, and the refusals at them."""
    charges, refusals = schema.charges, schema.refusals
    is_of = sa.and_(charges.c.scope_pk == _scope_pk(scope), charges.c.attempt_id.in_(ids))
    both = sa.join(charges, refusals, _is_at(charges, refusals))
    counted = [sa.select(sa.func.count()).select_from(source).where(is_of) for source in (charges, both)]
    return Pruned(
        charges=connection.execute(counted[0]).scalar_one(), refusals=connection.execute(counted[1]).scalar_one()
    )


def _is_at(charges: sa.Table, refusals: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(
        charges.c.scope_pk == refusals.c.scope_pk,
        charges.c.charge_source == refusals.c.charge_source,
        charges.c.charge_id == refusals.c.charge_id,
    )


def _batches(old: _Old) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for attempt_id, pks in old.attempts.items():
        batch.append(attempt_id)
        size += len(pks)
        if size >= EVENTS_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# ---- letting go


def _settle(connection: Connection, scope: str, old: _Old, *, attempts: Collection[str], before_us: int) -> Pruned:
    """Let go of attempts that are still as they were read, inside a transaction that locks the scope."""
    gone = Pruned()
    scope_pk = store.lock_scope(connection, scope).scope_pk
    touched = {_attempt_of(row.body) for row in _events(connection, old)}
    for attempt_id in attempts:
        held = store.find_attempt(connection, scope_pk, attempt_id)
        if held is None or attempt_id in touched or _is_young(connection, held, before_us):
            continue
        gone.attempts += 1
        gone.events += len(old.attempts[attempt_id])
        _add(gone, _settle_attempt(connection, scope_pk, attempt_id, held=held))
        _delete_events(connection, old.attempts[attempt_id])
        if not store.has_run(connection, old.workflow_pk, held.attempt.run_id):
            gone.runs += 1
            _add_settled(connection, old.workflow_pk, {"runs": 1})
    return gone


def _is_young(connection: Connection, held: HeldAttempt, before_us: int) -> bool:
    """Say whether the attempt's run went on after that time, since it was read."""
    attempts = schema.attempts
    statement = sa.select(sa.func.max(attempts.c.last_us)).where(
        attempts.c.workflow_pk == held.workflow_pk, attempts.c.run_id == held.attempt.run_id
    )
    return bool(connection.execute(statement).scalar_one() >= before_us)


def _settle_attempt(connection: Connection, scope_pk: int, attempt_id: str, *, held: HeldAttempt) -> Pruned:
    """Move what an attempt and its charges come to into the settled sums, and delete them."""
    mark = footprint(held.attempt, store.find_attempt_days(connection, scope_pk, attempt_id))
    for (day, cause, outcome), vector in mark.days.items():
        key = {"scope_pk": scope_pk, "day": day, "cause": int(cause), "outcome": int(outcome)}
        store.add(connection, schema.settled_days, key, vector)
    _add_settled(connection, held.workflow_pk, mark.workflow)
    gone = _settle_charges(connection, scope_pk, attempt_id)
    for table in (schema.charges, schema.attempt_days, schema.attempts):
        connection.execute(sa.delete(table).where(table.c.scope_pk == scope_pk, table.c.attempt_id == attempt_id))
    return gone


def _settle_charges(connection: Connection, scope_pk: int, attempt_id: str) -> Pruned:
    refusals = schema.refusals
    gone = Pruned()
    for row in _charges(connection, scope_pk, attempt_id):
        for (day, *names), vector in charge_pair(store.charge_of(row), row.charge_source).items():
            key = {"scope_pk": scope_pk, "day": day, "pair_ix": pair_rank(*names)}
            named = dict(zip(("charge_source", "price_source"), names, strict=True))
            store.add(connection, schema.settled_pairs, key, vector, facts=named)
        gone.charges += 1
        if row.conflicts:
            # Kept, they would make a later charge of this id one that is contradicted.
            at = sa.and_(
                refusals.c.scope_pk == scope_pk,
                refusals.c.charge_source == row.charge_source,
                refusals.c.charge_id == row.charge_id,
            )
            first = sa.select(refusals).where(at).limit(ROWS_READ)
            while settled := _settle_refusals(connection, connection.execute(first).all()):
                gone.refusals += settled
    return gone


def _charges(connection: Connection, scope_pk: int, attempt_id: str) -> Iterator[sa.Row[Any]]:
    """Return an attempt's charges, which may be very many, a page at a time."""
    charges = schema.charges
    place = (charges.c.charge_source, charges.c.charge_id)
    is_of = sa.and_(charges.c.scope_pk == scope_pk, charges.c.attempt_id == attempt_id)
    page = sa.select(charges).where(is_of).order_by(*place).limit(ROWS_READ)
    following = page
    while rows := connection.execute(following).all():
        yield from rows
        following = page.where(sa.tuple_(*place) > (rows[-1].charge_source, rows[-1].charge_id))


def _add_settled(connection: Connection, workflow_pk: int, vector: Vector) -> None:
    """Add to what the pruned of a workflow came to. Its times are those of its row now, which only grow apart."""
    workflows, settled = schema.workflows, schema.settled_workflows
    row = connection.execute(sa.select(workflows).where(workflows.c.workflow_pk == workflow_pk)).one()
    facts = {name: getattr(row, name) for name in ("scope_pk", "workflow_id", "first_us", "last_us")}
    store.add(connection, settled, {"workflow_pk": workflow_pk}, vector, facts=facts)
    times = {"first_us": row.first_us, "last_us": row.last_us}
    connection.execute(sa.update(settled).where(settled.c.workflow_pk == workflow_pk).values(times))


def _delete_events(connection: Connection, event_pks: Sequence[int]) -> None:
    statement = sa.delete(schema.events).where(schema.events.c.event_pk == sa.bindparam("pk"))
    if event_pks:
        connection.execute(statement, [{"pk": event_pk} for event_pk in event_pks])


# ---- refusals


def _settle_refusals(connection: Connection, rows: Sequence[Any]) -> int:
    """Move refusals into the settled sums, and delete them; return how many."""
    refusals = schema.refusals
    for row in rows:
        _add_settled(connection, row.workflow_pk, {"refused": 1})
        connection.execute(
            sa.delete(refusals).where(*(column == getattr(row, column.name) for column in refusals.primary_key))
        )
    return len(rows)


def _lone_refusals(scope: str, before_us: int) -> sa.ColumnElement[bool]:
    """Say which refusals at no charge may go: those of that time by the server's clock."""
    refusals = schema.refusals
    return sa.and_(
        refusals.c.scope_pk == _scope_pk(scope), refusals.c.charge_id.is_(None), refusals.c.received_us < before_us
    )


def _count_refusals(connection: Connection, scope: str, before_us: int) -> int:
    statement = sa.select(sa.func.count()).select_from(schema.refusals).where(_lone_refusals(scope, before_us))
    return int(connection.execute(statement).scalar_one())


def _drop_refusals(connection: Connection, scope: str, before_us: int) -> int:
    store.lock_scope(connection, scope)
    refusals = schema.refusals
    old = sa.select(refusals).where(_lone_refusals(scope, before_us)).order_by(*refusals.primary_key)
    return _settle_refusals(connection, connection.execute(old.limit(EVENTS_AT_ONCE)).all())
