"""Makes everything that is derived again from what came, and compares: the rollups are right or this finds it.

Rules:

* Accepted events are the truth, and refusals for what they are counted at; of the pruned, the settled sums are
  (`observations.pruning`). An attempt and its charges belong to one workflow, so a recount holds at most
  `WORKFLOWS_READ` of them in memory, and the sums of days.
* `check` reads one unchanging state and writes nothing.
* `rebuild` writes in small transactions while events go on coming: a workflow that differs is written anew from its
  events; a sum that differs is corrected by the difference that one reading saw between it and the truth, which
  stays the same whatever is added to both meanwhile. Two at once would correct it twice: the later one claims the
  work, and the earlier one stops.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity import jsontext
from continuity.errors import ConflictError
from observations import schema, store
from observations.costs import (
    TALLY,
    Attempt,
    Cause,
    Charge,
    Outcome,
    Vector,
    added,
    charge_pair,
    contribution,
    difference,
    footprint,
    observe_attempt,
    observe_charge,
    pair_rank,
)
from observations.events import FORMAT, Event, parse_event
from observations.ingest import PAIRS_NAMED

WORKFLOWS_READ: Final = 500
"""Workflows of one reading."""
WORKFLOWS_WRITTEN: Final = 20
"""Workflows of one writing transaction."""
PAUSE_S: Final = 0.005
"""Between writing transactions, for whoever else writes."""
_CLAIM: Final = "rebuild"
_TOKEN_BYTES: Final = 16

Progress = Callable[[int], None]
"""Called with the number of events read so far."""


@dataclass(slots=True)
class Recounted:
    """What one workflow's events come to."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    charges: dict[tuple[str, str], Charge] = field(default_factory=dict)
    refused: int = 0
    settled: dict[str, Any] | None = None
    """Row of what was pruned."""

    def observe(self, event: Event) -> None:
        """Add an accepted event.

        Raises:
            RuntimeError: It contradicts an earlier one, so it was never accepted: the table was changed by hand.
        """
        attempt = observe_attempt(self.attempts.get(event.attempt_id), event)
        if attempt is None:
            raise RuntimeError(f"The accepted event {event.event_id} contradicts another.")
        self.attempts[event.attempt_id] = attempt
        if event.charge_source is not None and event.charge_id is not None:
            key = (event.charge_source, event.charge_id)
            charge = observe_charge(self.charges.get(key), event)
            if charge is None:
                raise RuntimeError(f"The accepted event {event.event_id} contradicts another.")
            self.charges[key] = charge

    def refuse(self, charge_source: str | None, charge_id: str | None) -> None:
        """Add a refusal, and where it is counted at a charge that charge."""
        self.refused += 1
        key = (charge_source or "", charge_id or "")
        if key in self.charges:
            known = self.charges[key]
            self.charges[key] = replace(known, conflicts=known.conflicts + 1)

    def attempt_days(self) -> dict[tuple[str, int], Vector]:
        """Return the sums of charges by (attempt, day)."""
        sums: dict[tuple[str, int], Vector] = {}
        for charge in self.charges.values():
            key = (charge.attempt_id, charge.day)
            sums[key] = added((sums.get(key, {}), contribution(charge)))
        return sums

    def workflow(self) -> dict[str, Any]:
        """Return its row, ids aside."""
        attempts = self.attempts.values()
        counts = store.added_columns(schema.workflows)
        settled = self.settled or {}
        vectors = [mark.workflow for mark in self._footprints()]
        vectors.append({"runs": len({attempt.run_id for attempt in attempts}), "refused": self.refused})
        vectors.append({name: settled[name] for name in counts if name in settled})
        firsts = [attempt.first_us for attempt in attempts] + ([settled["first_us"]] if settled else [])
        lasts = [attempt.last_us for attempt in attempts] + ([settled["last_us"]] if settled else [])
        workflow_id = settled["workflow_id"] if settled else next(iter(attempts)).workflow_id
        times = {"workflow_id": workflow_id, "first_us": min(firsts), "last_us": max(lasts)}
        return {**dict.fromkeys(counts, 0), **added(vectors), **times}

    def add_to(self, sums: Sums, scope_pk: int) -> None:
        """Add what it comes to to the sums of days and pairs."""
        for mark in self._footprints():
            for (day, cause, outcome), vector in mark.days.items():
                _accumulate(sums.days, (scope_pk, day, int(cause), int(outcome)), vector)
        for (source, _), charge in self.charges.items():
            for (day, *names), vector in charge_pair(charge, source).items():
                _accumulate(sums.pairs, (scope_pk, day, *names), vector)

    def _footprints(self) -> Iterator[Any]:
        by_attempt: dict[str, dict[int, Vector]] = {}
        for (attempt_id, day), vector in self.attempt_days().items():
            by_attempt.setdefault(attempt_id, {})[day] = vector
        for attempt_id, attempt in self.attempts.items():
            yield footprint(attempt, by_attempt.get(attempt_id, {}))


@dataclass(slots=True)
class Sums:
    """Sums of days by (scope, day, cause, outcome) and of pairs by (scope, day, charge source, price source)."""

    days: dict[tuple[int, int, int, int], Vector] = field(default_factory=dict)
    pairs: dict[tuple[int, int, str, str], Vector] = field(default_factory=dict)


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


def rebuild(units: store.Units, progress: Progress = lambda _events: None) -> Findings:
    """Make everything derived right; return what was wrong. Safe to repeat, and while events come.

    Raises:
        UnavailableError: Storage cannot answer; what was corrected stays so.
        ConflictError: Another one has begun meanwhile and makes right what is left.
        RuntimeError: Accepted events contradict each other.
    """
    token = secrets.token_hex(_TOKEN_BYTES)
    units.write(lambda connection: _claim(connection, token))
    found = check(units, progress)
    if found.workflows:
        _each_written(units, found.workflows, _rewrite, token=token)
        sums = check(units, progress)
    else:
        sums = found
    _each_written(units, sorted(sums.sums.days.items()), _correct_day, token=token)
    _each_written(units, sorted(sums.sums.pairs.items()), _correct_pair, token=token)
    wrong = {*sums.unnamed, *(key[:2] for key in sums.sums.pairs)}
    _each_written(units, sorted(wrong), _name_again, token=token)
    is_ours = sa.and_(schema.claims.c.name == _CLAIM, schema.claims.c.token == token)
    units.write(lambda connection: connection.execute(sa.delete(schema.claims).where(is_ours)))
    return found


def _claim(connection: Connection, token: str) -> None:
    claims = schema.claims
    is_this = claims.c.name == _CLAIM
    if connection.execute(sa.update(claims).where(is_this).values(token=token)).rowcount == 0:
        connection.execute(sa.insert(claims).values(name=_CLAIM, token=token))


def _check_claim(connection: Connection, token: str) -> None:
    # Locked: who claims it next waits for what is written here, and then reads it.
    claims = schema.claims
    held = connection.execute(sa.select(claims.c.token).where(claims.c.name == _CLAIM).with_for_update())
    if held.scalar_one_or_none() != token:
        raise ConflictError("Another rebuild has begun and makes right what is left; this one has stopped.")


def _each_written(
    units: store.Units, items: Sequence[Any], write: Callable[[Connection, Any], None], *, token: str
) -> None:
    for start in range(0, len(items), WORKFLOWS_WRITTEN):
        batch = items[start : start + WORKFLOWS_WRITTEN]

        def work(connection: Connection, batch: Sequence[Any] = batch) -> None:
            _check_claim(connection, token)
            # All of them, in one order: events wait, and so does nobody else.
            connection.execute(sa.select(schema.scopes).order_by(schema.scopes.c.scope_pk).with_for_update()).all()
            for item in batch:
                write(connection, item)

        units.write(work)
        time.sleep(PAUSE_S)


# ---- reading


def _check(connection: Connection, progress: Progress) -> Findings:
    true, wrong, events = _settled_sums(connection), [], 0
    for pks in _workflow_pks(connection):
        recounted, scopes, read = _recount(connection, pks)
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


def _recount(connection: Connection, pks: Sequence[int]) -> tuple[dict[int, Recounted], dict[int, int], int]:
    """Return what the events of these workflows come to, the scope of each, and how many events were read."""
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


def event_of(body: bytes) -> Event:
    """Read a stored event."""
    return parse_event({**jsontext.loads_strict(body), "format": FORMAT})


Rows = dict[tuple[Any, ...], dict[str, Any]]
"""Rows of one workflow by (table, key)."""


def rows_of(recounted: Recounted, workflow_pk: int, scope_pk: int) -> Rows:
    """Return every row that a workflow must have, days and pairs aside."""
    ids = {"workflow_pk": workflow_pk, "scope_pk": scope_pk}
    rows: Rows = {("workflows",): {**ids, **recounted.workflow()}}
    for attempt_id, attempt in recounted.attempts.items():
        facts = asdict(attempt)
        del facts["workflow_id"]
        facts |= {name: int(facts[name]) for name in ("is_retry", "is_recovery", "outcome")}
        rows["attempts", attempt_id] = {**ids, "attempt_id": attempt_id, **facts}
    for (source, charge_id), charge in recounted.charges.items():
        key = {"scope_pk": scope_pk, "charge_source": source, "charge_id": charge_id}
        rows["charges", source, charge_id] = {**key, **asdict(charge)}
    for (attempt_id, day), vector in recounted.attempt_days().items():
        sums = {**dict.fromkeys(TALLY, 0), **vector}
        rows["attempt_days", attempt_id, day] = {"scope_pk": scope_pk, "attempt_id": attempt_id, "day": day, **sums}
    return rows


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
        named, other = _named(ranked.get(place, {}))
        is_named = {rank for rank, how in shown.get(place, {}).items() if how == schema.PAIR_NAMED}
        if named != is_named or difference(other, others.get(place, {})):
            wrong.append(place)
    return sorted(wrong)


def _named(pairs: Mapping[bytes, Vector]) -> tuple[set[bytes], Vector]:
    """Return which pairs of a day are named, and the sum of the rest."""
    named = sorted(pairs)[:PAIRS_NAMED]
    rest = pairs.keys() - set(named)
    return set(named), added(pairs[rank] for rank in rest)


# ---- writing


def _rewrite(connection: Connection, workflow_pk: int) -> None:
    """Write a workflow's rows anew from its events, as they are now."""
    recounted, scopes, _ = _recount(connection, [workflow_pk])
    attempts, workflows = schema.attempts, schema.workflows
    one = recounted.get(workflow_pk)
    held = sa.select(attempts.c.attempt_id).where(attempts.c.workflow_pk == workflow_pk)
    scope_pk = scopes.get(workflow_pk, _scope_of(connection, workflow_pk))
    ids = {*connection.execute(held).scalars(), *(() if one is None else one.attempts)}
    for table in (schema.charges, schema.attempt_days):
        statement = sa.delete(table).where(
            table.c.scope_pk == scope_pk, table.c.attempt_id == sa.bindparam("of_attempt")
        )
        if ids:
            connection.execute(statement, [{"of_attempt": attempt_id} for attempt_id in sorted(ids)])
    connection.execute(sa.delete(attempts).where(attempts.c.workflow_pk == workflow_pk))
    connection.execute(sa.delete(workflows).where(workflows.c.workflow_pk == workflow_pk))
    if one is not None:
        insert_rows(connection, rows_of(one, workflow_pk, scopes[workflow_pk]).items())


def _scope_of(connection: Connection, workflow_pk: int) -> int | None:
    """Return the scope of a workflow that no event is of."""
    attempts = schema.attempts
    statement = sa.select(attempts.c.scope_pk).where(attempts.c.workflow_pk == workflow_pk).limit(1)
    return connection.execute(statement).scalar_one_or_none()


def insert_rows(connection: Connection, rows: Iterable[tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
    """Insert what `rows_of` returned, of any number of workflows."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for key, row in rows:
        tables.setdefault(key[0], []).append(row)
    for name, values in tables.items():
        connection.execute(sa.insert(schema.metadata.tables[f"observations_{name}"]), values)


def insert_sums(connection: Connection, sums: Sums) -> None:
    """Insert sums of days and pairs into empty tables."""
    for item in sums.days.items():
        _correct_day(connection, item)
    for pair in sums.pairs.items():
        _correct_pair(connection, pair)
    for place in sorted({key[:2] for key in sums.pairs}):
        _name_again(connection, place)


def _correct_day(connection: Connection, item: tuple[tuple[int, int, int, int], Vector]) -> None:
    (scope_pk, day, cause, outcome), vector = item
    key = {"scope_pk": scope_pk, "day": day, "cause": int(Cause(cause)), "outcome": int(Outcome(outcome))}
    store.add(connection, schema.days, key, vector)


def _correct_pair(connection: Connection, item: tuple[tuple[int, int, str, str], Vector]) -> None:
    (scope_pk, day, source, price_source), vector = item
    key = store.PairKey(scope_pk, day, pair_rank(source, price_source))
    if store.find_pair(connection, key) is None:
        # Which are named is decided when all of the day are right.
        names = (source, price_source)
        store.insert_pair(connection, key, names=names, shown=schema.PAIR_HIDDEN, vector=vector)
    else:
        store.add(connection, schema.pairs, key.columns, vector)


def _name_again(connection: Connection, place: tuple[int, int]) -> None:
    scope_pk, day = place
    pairs = schema.pairs
    of_day = sa.and_(pairs.c.scope_pk == scope_pk, pairs.c.day == day)
    connection.execute(sa.delete(pairs).where(of_day, sa.or_(pairs.c.charges == 0, pairs.c.pair_ix == store.OTHER)))
    rows = {row.pair_ix: row for row in connection.execute(sa.select(pairs).where(of_day))}
    named, other = _named({rank: store.vector_of(row) for rank, row in rows.items()})
    for rank, row in rows.items():
        shown = schema.PAIR_NAMED if rank in named else schema.PAIR_HIDDEN
        if row.shown != shown:
            store.show_pair(connection, store.key_of(row), shown=shown)
    if other.get("charges"):
        key = store.PairKey(scope_pk, day, store.OTHER)
        store.insert_pair(connection, key, names=("", ""), shown=schema.PAIR_OTHER, vector=other)


def _accumulate(sums: dict[Any, Vector], key: Any, vector: Vector) -> None:
    total = sums.setdefault(key, {})
    for name, value in vector.items():
        total[name] = total.get(name, 0) + value
