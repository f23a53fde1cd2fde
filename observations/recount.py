"""Makes everything that is derived again from what came.

Rules:

* `rebuild` writes in small transactions while events go on coming: a workflow that differs is written anew from its
  events; a sum that differs is corrected by the difference that one reading saw between it and the truth, which
  stays the same whatever is added to both meanwhile. Two at once would correct it twice: the later one claims the
  work, and the earlier one stops.
* What is right stands in `observations.derivation`, what differs from it is found by `observations.comparison`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity.errors import ConflictError
from observations import schema, store
from observations.comparison import Findings, Progress, check, derive, named
from observations.costs import Cause, Outcome, Vector, pair_rank
from observations.derivation import Sums, rows_of

WORKFLOWS_WRITTEN: Final = 20
"""Workflows of one writing transaction."""
PAUSE_S: Final = 0.005
"""Between writing transactions, for whoever else writes."""
_CLAIM: Final = "rebuild"
_TOKEN_BYTES: Final = 16


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


def _rewrite(connection: Connection, workflow_pk: int) -> None:
    """Write a workflow's rows anew from its events, as they are now."""
    recounted, scopes, _ = derive(connection, [workflow_pk])
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
    names, other = named({rank: store.vector_of(row) for rank, row in rows.items()})
    for rank, row in rows.items():
        shown = schema.PAIR_NAMED if rank in names else schema.PAIR_HIDDEN
        if row.shown != shown:
            store.show_pair(connection, store.key_of(row), shown=shown)
    if other.get("charges"):
        key = store.PairKey(scope_pk, day, store.OTHER)
        store.insert_pair(connection, key, names=("", ""), shown=schema.PAIR_OTHER, vector=other)
