"""Compares everything that is derived with what events come to: the rollups are right or this finds what is not.

`check` reads one unchanging state and writes nothing. It holds at most `WORKFLOWS_READ` workflows in memory, and the
sums of days. A new derived table is read here, to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from observations import schema, store
from observations.costs import TALLY, Vector, added, difference, pair_rank
from observations.derivation import Recounted, Rows, Sums, event_of, rows_of
from observations.pairs import PAIRS_NAMED

WORKFLOWS_READ: Final = 500
"""Workflows of one reading."""

Progress = Callable[[int], None]
"""Called with the number of events read so far."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What differs from a recount.

    Attributes:
        events: How many events were counted.
        workflows: ``workflow_pk`` of those that differ.
        sums: What to add to days and pairs to make them right.
        unnamed: (scope_pk, day) whose named pairs, or the sum of the others, are not what they must be.
    """

    events: int
    workflows: list[int]
    sums: Sums
    unnamed: list[tuple[int, int]]

    @property
    def is_sound(self) -> bool:
        """Whether nothing differs."""
        return not (self.workflows or self.sums.days or self.sums.pairs or self.unnamed)

    def describe(self) -> list[str]:
        """Return one line for each kind of difference, none when it is sound."""
        counts = {
            "workflows": len(self.workflows), "days": len(self.sums.days), "sources of a day": len(self.sums.pairs),
            "days with wrong names": len(self.unnamed),
        }  # fmt: skip
        return [f"{count} {name} differ from a recount." for name, count in counts.items() if count]


def check(units: store.Units, progress: Progress = lambda _events: None) -> Findings:
    """Compare everything derived with a recount; reads one state of the database.

    Raises:
        UnavailableError: Storage cannot answer.
        RuntimeError: Accepted events contradict each other.
    """
    return units.read(lambda connection: _check(connection, progress))


def _check(connection: Connection, progress: Progress) -> Findings:
    true, wrong, events = _settled_sums(connection), [], 0
    for pks in _workflow_pks(connection):
        recounted, scopes, read = derive(connection, pks)
        events += read
        progress(events)
        held = _held(connection, pks)
        for workflow_pk in pks:
            one = recounted.get(workflow_pk)
            rows = {} if one is None else rows_of(one, workflow_pk, scopes[workflow_pk])
            if rows != held.get(workflow_pk, {}):
                wrong.append(workflow_pk)
            if one is not None:
                one.add_to(true, scopes[workflow_pk])
    return Findings(events, wrong, *_compare_sums(connection, true))


def _workflow_pks(connection: Connection) -> Iterator[list[int]]:
    """Return all workflows that events or rows are of, in order, in batches."""
    after = 0
    tables = (schema.events, schema.workflows, schema.attempts)
    while True:
        found: set[int] = set()
        for table in tables:
            column = table.c.workflow_pk
            statement = sa.select(column).where(column > after).distinct().order_by(column).limit(WORKFLOWS_READ)
            found |= set(connection.execute(statement).scalars())
        pks = sorted(found)[:WORKFLOWS_READ]
        if not pks:
            return
        yield pks
        after = pks[-1]


def derive(connection: Connection, pks: Sequence[int]) -> tuple[dict[int, Recounted], dict[int, int], int]:
    """Derive workflows anew from their events.

    Args:
        connection: The transaction.
        pks: ``workflow_pk`` of the workflows, in order; all between the first and the last are meant.

    Returns:
        What the events of each come to, the scope of each, and how many events were read.

    Raises:
        RuntimeError: Accepted events contradict each other.
    """
    events, refusals = schema.events, schema.refusals
    statement = (
        sa.select(events.c.workflow_pk, events.c.scope_pk, events.c.body)
        .where(events.c.workflow_pk.between(pks[0], pks[-1]))
        .order_by(events.c.workflow_pk, events.c.event_pk)
    )
    recounted: dict[int, Recounted] = {}
    scopes: dict[int, int] = {}
    count = 0
    for row in connection.execute(statement):
        recounted.setdefault(row.workflow_pk, Recounted()).observe(event_of(row.body))
        scopes[row.workflow_pk] = row.scope_pk
        count += 1
    settled = schema.settled_workflows
    between = settled.c.workflow_pk.between(pks[0], pks[-1])
    for pruned in connection.execute(sa.select(settled).where(between)).mappings():
        recounted.setdefault(pruned["workflow_pk"], Recounted()).settled = dict(pruned)
        scopes[pruned["workflow_pk"]] = pruned["scope_pk"]
    of_these = refusals.c.workflow_pk.between(pks[0], pks[-1])
    for refused in connection.execute(
        sa.select(refusals.c.workflow_pk, refusals.c.charge_source, refusals.c.charge_id).where(of_these)
    ):
        if refused.workflow_pk in recounted:
            recounted[refused.workflow_pk].refuse(refused.charge_source, refused.charge_id)
    return recounted, scopes, count


def _settled_sums(connection: Connection) -> Sums:
    """Return what was pruned."""
    sums = Sums()
    for row in connection.execute(sa.select(schema.settled_days)):
        counts = {"attempts": row.attempts, "unpriced_attempts": row.unpriced_attempts}
        sums.days[row.scope_pk, row.day, row.cause, row.outcome] = store.vector_of(row) | counts
    for row in connection.execute(sa.select(schema.settled_pairs)):
        sums.pairs[row.scope_pk, row.day, row.charge_source, row.price_source] = store.vector_of(row)
    return sums


def _held(connection: Connection, pks: Sequence[int]) -> dict[int, Rows]:
    """Return the rows that these workflows have, as `rows_of` writes them."""
    attempts, charges, days, workflows = schema.attempts, schema.charges, schema.attempt_days, schema.workflows
    between = attempts.c.workflow_pk.between(pks[0], pks[-1])
    held: dict[int, Rows] = {}
    rows = connection.execute(sa.select(workflows).where(workflows.c.workflow_pk.between(pks[0], pks[-1])))
    for row in rows.mappings():
        held.setdefault(row["workflow_pk"], {})["workflows",] = dict(row)
    for row in connection.execute(sa.select(attempts).where(between)).mappings():
        held.setdefault(row["workflow_pk"], {})["attempts", row["attempt_id"]] = dict(row)
    for table, name, key in (
        (charges, "charges", ("charge_source", "charge_id")),
        (days, "attempt_days", ("attempt_id", "day")),
    ):
        is_of = sa.and_(attempts.c.scope_pk == table.c.scope_pk, attempts.c.attempt_id == table.c.attempt_id)
        statement = sa.select(table, attempts.c.workflow_pk).join(attempts, is_of).where(between)
        for found in connection.execute(statement).mappings():
            facts = dict(found)
            workflow_pk = facts.pop("workflow_pk")
            # A sum that has gone back to nothing is no difference.
            if name != "attempt_days" or facts["charges"]:
                held.setdefault(workflow_pk, {})[name, *(facts[part] for part in key)] = facts
    return held


def _compare_sums(connection: Connection, true: Sums) -> tuple[Sums, list[tuple[int, int]]]:
    days: dict[tuple[int, int, int, int], Vector] = {}
    for row in connection.execute(sa.select(schema.days)).mappings():
        key = (row["scope_pk"], row["day"], row["cause"], row["outcome"])
        days[key] = {name: row[name] for name in (*TALLY, "attempts", "unpriced_attempts")}
    pairs: dict[tuple[int, int, str, str], Vector] = {}
    shown: dict[tuple[int, int], dict[bytes, int]] = {}
    others: dict[tuple[int, int], Vector] = {}
    for pair in connection.execute(sa.select(schema.pairs)):
        place = (pair.scope_pk, pair.day)
        if pair.shown == schema.PAIR_OTHER:
            others[place] = store.vector_of(pair)
            continue
        pairs[(*place, pair.charge_source, pair.price_source)] = store.vector_of(pair)
        shown.setdefault(place, {})[pair.pair_ix] = pair.shown
    wrong = Sums(_differences(true.days, days), _differences(true.pairs, pairs))
    return wrong, _wrongly_named(true, shown, others)


def _differences(true: Mapping[Any, Vector], held: Mapping[Any, Vector]) -> dict[Any, Vector]:
    changes = {key: difference(true.get(key, {}), held.get(key, {})) for key in true.keys() | held.keys()}
    return {key: change for key, change in changes.items() if change}


def _wrongly_named(
    true: Sums, shown: Mapping[tuple[int, int], Mapping[bytes, int]], others: Mapping[tuple[int, int], Vector]
) -> list[tuple[int, int]]:
    ranked: dict[tuple[int, int], dict[bytes, Vector]] = {}
    for (scope_pk, day, *names), vector in true.pairs.items():
        ranked.setdefault((scope_pk, day), {})[pair_rank(*names)] = vector
    wrong = []
    for place in ranked.keys() | shown.keys() | others.keys():
        wanted, other = named(ranked.get(place, {}))
        is_named = {rank for rank, how in shown.get(place, {}).items() if how == schema.PAIR_NAMED}
        if wanted != is_named or difference(other, others.get(place, {})):
            wrong.append(place)
    return sorted(wrong)


def named(pairs: Mapping[bytes, Vector]) -> tuple[set[bytes], Vector]:
    """Return which pairs of a day are named, by rank, and the sum of the rest."""
    first = sorted(pairs)[:PAIRS_NAMED]
    rest = pairs.keys() - set(first)
    return set(first), added(pairs[rank] for rank in rest)
