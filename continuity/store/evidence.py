"""Statements on evidence: what is recorded, what lists and a run read, what a deletion destroys.

Lists go by ``evidence_pk`` (of runs by ``run_pk``) downwards and go on after the last one seen, workspace by
workspace. Where words are asked for the rarest leads, and a page looks at `LOOKED_AT_MOST` of its rows at most, as the
list of workflows does. No list reads content.

Locks (PostgreSQL): the vault's row, shared, then the run's; the audit head last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam

from continuity.store.listing import LOOKED_AT_MOST
from continuity.store.schema import (
    evidence,
    evidence_contents,
    evidence_runs,
    evidence_terms,
    partitions,
    workspaces,
)
from continuity.store.workflows import AnyRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

DISORDER_US: Final = 60_000_000
"""By how much later a record may have been received than one that was numbered after it."""
DESTROYED_AT_ONCE: Final = 200
"""Records that one transaction destroys."""

_RUN_COLUMNS: Final = (
    evidence_runs.c.run_pk, evidence_runs.c.evidence_id, evidence_runs.c.workspace_pk, evidence_runs.c.record_count,
    evidence_runs.c.created_at, evidence_runs.c.received_at, evidence_runs.c.retained_bytes,
    evidence_runs.c.deleting_at, evidence_runs.c.deleted_at, evidence_runs.c.sealed_head,
    partitions.c.key_id.label("wrapping_key_id"), partitions.c.wrapped_key, workspaces.c.name.label("workspace"),
)  # fmt: skip
_RUN: Final = sa.select(*_RUN_COLUMNS).select_from(
    evidence_runs.outerjoin(partitions, partitions.c.partition_id == evidence_runs.c.evidence_id).join(
        workspaces, workspaces.c.workspace_pk == evidence_runs.c.workspace_pk
    )
)
RUN_BY_ID: Final = _RUN.where(evidence_runs.c.evidence_id == bindparam("evidence_id"))
RUNS_BY_INDEX: Final = _RUN.where(evidence_runs.c.run_ix.in_(bindparam("run_indexes", expanding=True)))
LOCKED_RUN: Final = _RUN.where(evidence_runs.c.run_ix == bindparam("run_ix")).with_for_update(of=evidence_runs)
LOCKED_RUN_BY_ID: Final = RUN_BY_ID.with_for_update(of=evidence_runs)

_RECORD_COLUMNS: Final = (
    evidence.c.evidence_pk, evidence.c.run_pk, evidence.c.seq, evidence.c.received_at, evidence.c.hash,
    evidence.c.sealed_record,
)  # fmt: skip
RECORD_BY_EVENT: Final = sa.select(*_RECORD_COLUMNS).where(evidence.c.event_ix == bindparam("event_ix"))
_IN_RUN: Final = evidence.c.run_pk == bindparam("run_pk")
HASH_AT: Final = sa.select(evidence.c.hash).where(_IN_RUN, evidence.c.seq == bindparam("seq"))
RECORDS: Final = (
    sa.select(*_RECORD_COLUMNS, sa.func.length(evidence_contents.c.sealed_content).label("content_bytes"))
    .select_from(
        evidence.outerjoin(evidence_contents, evidence_contents.c.evidence_pk == evidence.c.evidence_pk)
    )
    .where(_IN_RUN, evidence.c.seq > bindparam("after"))
    .order_by(evidence.c.seq)
    .limit(bindparam("count"))
)  # fmt: skip
CONTENT: Final = sa.select(evidence_contents.c.sealed_content).where(
    evidence_contents.c.evidence_pk == bindparam("evidence_pk")
)
_DELETING: Final = (
    sa.select(evidence_runs.c.evidence_id)
    .where(evidence_runs.c.deleting_at.is_not(None))
    .order_by(evidence_runs.c.deleting_at)
    .limit(bindparam("count"))
)
_LISTED: Final = sa.select(
    *_RECORD_COLUMNS, *(c for c in _RUN_COLUMNS if c.name not in {"run_pk", "received_at"})
).select_from(
    evidence.join(evidence_runs, evidence_runs.c.run_pk == evidence.c.run_pk)
    .outerjoin(partitions, partitions.c.partition_id == evidence_runs.c.evidence_id)
    .join(workspaces, workspaces.c.workspace_pk == evidence_runs.c.workspace_pk)
)


# ---- recording


def insert_run(connection: Connection, values: Mapping[str, Any]) -> int:
    """Insert a run; returns its ``run_pk``.

    Raises:
        sqlalchemy.exc.IntegrityError: Somebody else just did. Nothing has happened once `write` has left.
    """
    inserted = connection.execute(sa.insert(evidence_runs), dict(values)).inserted_primary_key
    if inserted is None:  # pragma: no cover - both drivers return it
        raise RuntimeError("the database returned no primary key")
    return int(inserted[0])


def insert_record(
    connection: Connection, values: Mapping[str, Any], *, sealed_content: bytes | None, term_indexes: Sequence[bytes]
) -> None:
    """Insert a record, its content if it is kept, and what it is found by (distinct)."""
    inserted = connection.execute(sa.insert(evidence), dict(values)).inserted_primary_key
    if inserted is None:  # pragma: no cover - both drivers return it
        raise RuntimeError("the database returned no primary key")
    evidence_pk = int(inserted[0])
    if sealed_content is not None:
        content = {"evidence_pk": evidence_pk, "sealed_content": sealed_content}
        connection.execute(sa.insert(evidence_contents), content)
    connection.execute(
        sa.insert(evidence_terms), [{"term_ix": index, "evidence_pk": evidence_pk} for index in term_indexes]
    )


def update_run(connection: Connection, run_pk: int, values: Mapping[str, Any]) -> None:
    """Write changing columns of a run."""
    connection.execute(sa.update(evidence_runs).where(evidence_runs.c.run_pk == run_pk).values(dict(values)))


# ---- lists


@dataclass(frozen=True, slots=True)
class Question:
    """Which records a list shows.

    Attributes:
        places: Workspaces to look in, each with the blind indexes that a record must all have.
        before: Only rows with a smaller ``evidence_pk``.
        since_us: Received at or after.
        until_us: Received before.
    """

    places: Mapping[int, Sequence[bytes]]
    before: int | None = None
    since_us: int | None = None
    until_us: int | None = None


def workspace_pks(connection: Connection) -> list[int]:
    """Return all workspaces, for whoever sees all: the blind indexes of each are its own."""
    return list(connection.execute(sa.select(workspaces.c.workspace_pk)).scalars())


def page(connection: Connection, asked: Question, *, count: int) -> tuple[Sequence[AnyRow], int]:
    """Return a page of records, newest first.

    Returns:
        Rows with the columns of record, run and data key; and the ``evidence_pk`` below which nothing was looked
        at, 0 where all was.
    """
    bounds = _bounds(connection, asked)
    found: list[AnyRow] = []
    floor = 0
    for place, indexes in asked.places.items():
        if indexes:
            leading = _rarest(connection, indexes, bounds)
            place_floor = _floor(connection, leading, bounds)
            floor = max(floor, place_floor)
            statement, number = _having(indexes, leading, place_floor)
        else:
            statement, number = _LISTED.where(evidence.c.workspace_pk == place), evidence.c.evidence_pk
        statement = statement.where(evidence_runs.c.deleting_at.is_(None), *_times(asked), *_within(bounds, number))
        found += connection.execute(statement.order_by(number.desc()).limit(count)).all()
    # Of a place that was looked into further than another only what all were looked into is told.
    found = [row for row in found if row.evidence_pk >= floor]
    return sorted(found, key=lambda row: -row.evidence_pk)[:count], floor


@dataclass(frozen=True, slots=True)
class _Bounds:
    """``evidence_pk`` between which all records of a time lie; None for no bound. `below` is exclusive."""

    least: int | None
    below: int | None


def _bounds(connection: Connection, asked: Question) -> _Bounds:
    """Turn times of receipt into numbers of rows, along the index of the times."""
    least, below = None, asked.before
    number, at = evidence.c.evidence_pk, evidence.c.received_at
    if asked.since_us is not None:
        earlier = sa.select(number).where(at < asked.since_us - DISORDER_US)
        least = connection.execute(earlier.order_by(at.desc(), number.desc()).limit(1)).scalar_one_or_none()
    if asked.until_us is not None:
        later = sa.select(number).where(at > asked.until_us + DISORDER_US).order_by(at, number).limit(1)
        above = connection.execute(later).scalar_one_or_none()
        if above is not None:
            below = above if below is None else min(above, below)
    return _Bounds(least, below)


def _times(asked: Question) -> list[sa.ColumnElement[bool]]:
    conditions = []
    if asked.since_us is not None:
        conditions.append(evidence.c.received_at >= asked.since_us)
    if asked.until_us is not None:
        conditions.append(evidence.c.received_at < asked.until_us)
    return conditions


def _within(bounds: _Bounds, number: sa.ColumnElement[int]) -> list[sa.ColumnElement[bool]]:
    conditions = []
    if bounds.least is not None:
        conditions.append(number >= bounds.least)
    if bounds.below is not None:
        conditions.append(number < bounds.below)
    return conditions


def _rarest(connection: Connection, indexes: Sequence[bytes], bounds: _Bounds) -> bytes:
    """Return the index with the fewest rows, counted as far as a page looks."""
    if len(indexes) == 1:
        return indexes[0]
    counts = []
    for index in indexes:
        rows = sa.select(evidence_terms.c.evidence_pk).where(
            evidence_terms.c.term_ix == index, *_within(bounds, evidence_terms.c.evidence_pk)
        )
        part = rows.order_by(evidence_terms.c.evidence_pk.desc()).limit(LOOKED_AT_MOST).subquery()
        counts.append(connection.execute(sa.select(sa.func.count()).select_from(part)).scalar_one())
    return indexes[counts.index(min(counts))]


def _floor(connection: Connection, leading: bytes, bounds: _Bounds) -> int:
    """Return the last row that a page looks at; 0 when it comes to the end."""
    rows = sa.select(evidence_terms.c.evidence_pk).where(
        evidence_terms.c.term_ix == leading, *_within(bounds, evidence_terms.c.evidence_pk)
    )
    last = rows.order_by(evidence_terms.c.evidence_pk.desc()).limit(1).offset(LOOKED_AT_MOST - 1)
    return connection.execute(last).scalar_one_or_none() or 0


def _having(indexes: Sequence[bytes], leading: bytes, floor: int) -> tuple[Any, sa.ColumnElement[int]]:
    """Return the statement for the rows of the leading index that have all the others, and the number of its order.

    That of the index itself: by another column the database would sort all that it finds.
    """
    led = evidence_terms.alias()
    number = led.c.evidence_pk
    statement = _LISTED.join(led, number == evidence.c.evidence_pk).where(led.c.term_ix == leading, number >= floor)
    for index in indexes:
        if index != leading:
            other = evidence_terms.alias()
            is_had = [other.c.term_ix == index, other.c.evidence_pk == number]
            statement = statement.where(sa.exists().where(*is_had).correlate(led))
    return statement, number


def runs(connection: Connection, places: Sequence[int], *, before: int | None, count: int) -> Sequence[AnyRow]:
    """Return runs, newest created first."""
    found: list[AnyRow] = []
    for place in places:
        conditions = [evidence_runs.c.workspace_pk == place, evidence_runs.c.deleted_at.is_(None)]
        if before is not None:
            conditions.append(evidence_runs.c.run_pk < before)
        statement = _RUN.where(*conditions, evidence_runs.c.deleting_at.is_(None))
        found += connection.execute(statement.order_by(evidence_runs.c.run_pk.desc()).limit(count)).all()
    return sorted(found, key=lambda row: -row.run_pk)[:count]


def runs_after(connection: Connection, places: Sequence[int], *, after: int, count: int) -> Sequence[AnyRow]:
    """Return runs in the order of their creation, for retention."""
    found: list[AnyRow] = []
    for place in places:
        statement = _RUN.where(
            evidence_runs.c.workspace_pk == place,
            evidence_runs.c.deleted_at.is_(None),
            evidence_runs.c.deleting_at.is_(None),
            evidence_runs.c.run_pk > after,
        )
        found += connection.execute(statement.order_by(evidence_runs.c.run_pk).limit(count)).all()
    return sorted(found, key=lambda row: row.run_pk)[:count]


def living_after(connection: Connection, *, after: int, count: int) -> Sequence[AnyRow]:
    """Return runs of all workspaces that are not deleted, in the order of their creation."""
    living = (evidence_runs.c.deleted_at.is_(None), evidence_runs.c.deleting_at.is_(None))
    statement = sa.select(evidence_runs.c.run_pk, evidence_runs.c.evidence_id).where(
        *living, evidence_runs.c.run_pk > after
    )
    return connection.execute(statement.order_by(evidence_runs.c.run_pk).limit(count)).all()


# ---- deletion


def deleting(connection: Connection, *, count: int) -> Sequence[str]:
    """Return ids of runs whose deletion has begun and not ended."""
    return connection.execute(_DELETING, {"count": count}).scalars().all()


def destroy_some(connection: Connection, run_pk: int) -> dict[str, int]:
    """Destroy a bounded number of a run's records; returns how many rows of each table, zeros when none is left."""
    some = sa.select(evidence.c.evidence_pk).where(evidence.c.run_pk == run_pk).limit(DESTROYED_AT_ONCE)
    pks = connection.execute(some).scalars().all()
    if not pks:
        return {"records": 0, "contents": 0}
    counts = {}
    for name, table in (("terms", evidence_terms), ("contents", evidence_contents), ("records", evidence)):
        counts[name] = connection.execute(sa.delete(table).where(table.c.evidence_pk.in_(pks))).rowcount
    return {"records": counts["records"], "contents": counts["contents"]}


def destroy_key(connection: Connection, evidence_id: str) -> None:
    """Destroy the data key of a run."""
    connection.execute(sa.update(partitions).where(partitions.c.partition_id == evidence_id).values(wrapped_key=None))


def entomb(connection: Connection, run_pk: int, *, at_us: int) -> None:
    """Turn a run's row into its tombstone."""
    update_run(connection, run_pk, {
        "deleting_at": None, "deleted_at": at_us, "sealed_head": None, "retained_bytes": 0, "record_count": 0,
    })  # fmt: skip
