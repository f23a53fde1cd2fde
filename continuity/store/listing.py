"""Statements behind lists, counts and the sweeper. No statement touches more rows than it answers with, or a bound.

Lists go by ``workflow_pk`` downwards ("newest first") and go on after the last one seen. Rows are found along an
index: of a workspace, of a phase, of a word. None of them holds tombstones beside living rows, which a list would
have to pass. Whatever else is asked is asked row by row, so where words are asked for the rarest index leads, and
a page looks at `LOOKED_AT_MOST` of its rows at most: two words that a million workflows have and no workflow has
both must not cost a million look-ups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity import limits
from continuity.store.schema import PHASES, terms, workflows, workspaces
from continuity.store.workflows import HEAD, AnyRow

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    AnySelect = sa.Select[*tuple[Any, ...]]

LOOKED_AT_MOST: Final = 2_000
"""Rows of the leading index that one page of a search looks at, of each workspace."""
_BRANCHES_AT_ONCE: Final = 100
"""SQLite takes 500 in one statement."""
_STATEMENTS_KEPT: Final = 256
_LIVING: Final = tuple(phase for phase in PHASES if phase != "deleted")
_PK: Final = workflows.c.workflow_pk
_IS_LISTED: Final = (workflows.c.deleting_at.is_(None), workflows.c.deleted_at.is_(None))


@dataclass(frozen=True, slots=True)
class Question:
    """Which workflows a list shows.

    Attributes:
        workspaces_seen: Workspaces to look in; None for all.
        phase: The stored phase to keep; None for all but deleted ones.
        term_indexes: Blind indexes of words that a workflow must all have.
        before: Only rows with a smaller ``workflow_pk``.
    """

    workspaces_seen: frozenset[int] | None
    phase: str | None = None
    term_indexes: Sequence[bytes] = ()
    before: int | None = None

    @property
    def places(self) -> Sequence[int | None]:
        """The workspaces to look in one by one; only None for all of them at once."""
        return [None] if self.workspaces_seen is None else sorted(self.workspaces_seen)


def page(connection: Connection, asked: Question, *, count: int) -> tuple[Sequence[AnyRow], int]:
    """Return a page of a list.

    Args:
        connection: A reading transaction.
        asked: Which workflows.
        count: At most so many.

    Returns:
        Heads of workflows, newest first, and the ``workflow_pk`` below which nothing was looked at: 0 where all
        was. Only a search stops early, and then may have found fewer than `count`.
    """
    if not asked.places:
        return [], 0
    if not asked.term_indexes:
        found: list[AnyRow] = []
        for statement in _newest(tuple(asked.places), asked.phase, has_before=asked.before is not None, count=count):
            found += connection.execute(statement, {"before": asked.before}).all()
        return _first(found, count), 0
    leading = _rarest(connection, asked)
    floor = max(_floor(connection, leading, place, asked.before) for place in asked.places)
    branches = [_having(leading, place, asked, floor, count) for place in asked.places]
    return _first([row for heads in _heads(branches, count) for row in connection.execute(heads)], count), floor


def one(connection: Connection, workflow_id: str, asked: Question) -> Sequence[AnyRow]:
    """Return the head of the workflow of this id as a list of one, empty when the question does not hold of it."""
    conditions = [workflows.c.workflow_id == workflow_id, *_IS_LISTED]
    if asked.workspaces_seen is not None:
        conditions.append(workflows.c.workspace_pk.in_(sorted(asked.workspaces_seen)))
    if asked.phase is not None:
        conditions.append(workflows.c.phase == asked.phase)
    if asked.before is not None:
        conditions.append(workflows.c.workflow_pk < asked.before)
    words = (_has_word(index, None, _PK) for index in asked.term_indexes)
    return connection.execute(_SHOWN.where(*conditions, *words)).all()


_SHOWN: Final = HEAD.add_columns(workspaces.c.name.label("workspace")).join(
    workspaces, workspaces.c.workspace_pk == workflows.c.workspace_pk
)


def _heads(branches: Sequence[sa.Select[int]], count: int) -> list[AnySelect]:
    """Return statements for the heads of what the branches find; each branch ends by its own limit."""
    statements = []
    for start in range(0, len(branches), _BRANCHES_AT_ONCE):
        parts = [branch.subquery() for branch in branches[start : start + _BRANCHES_AT_ONCE]]
        pks = sa.union_all(*(sa.select(part.c.workflow_pk) for part in parts)).subquery()
        statement = _SHOWN.where(_PK.in_(sa.select(pks.c.workflow_pk)))
        statements.append(statement.order_by(_PK.desc()).limit(count))
    return statements


def _first(rows: Sequence[AnyRow], count: int) -> Sequence[AnyRow]:
    return sorted(rows, key=lambda row: -row.workflow_pk)[:count]


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _newest(places: tuple[int | None, ...], phase: str | None, *, has_before: bool, count: int) -> Sequence[AnySelect]:
    """Return the statements for the newest rows of each workspace, or of each phase where all are looked into.

    Kept: browsers that watch a list ask them every five seconds, and they take longer to make than to answer.
    """
    statement = sa.select(_PK).where(*_IS_LISTED)
    if has_before:
        statement = statement.where(sa.bindparam("before", type_=sa.BigInteger()) > _PK)
    statement = statement.order_by(_PK.desc()).limit(count)
    wanted = [phase] if phase is not None else [None] if places != (None,) else _LIVING
    branches = []
    for place in places:
        for each in wanted:
            branch = statement if place is None else statement.where(workflows.c.workspace_pk == place)
            branches.append(branch if each is None else branch.where(workflows.c.phase == each))
    return _heads(branches, count)


# ---- searching


@dataclass(frozen=True, slots=True)
class _Leading:
    """An index that a search goes along: the rows of a word, or of a phase when `word` is None."""

    word: bytes | None
    phase: str | None

    def rows(self, place: int | None, before: int | None) -> tuple[sa.Select[int], sa.Column[int]]:
        """Return its rows in one workspace or in all, and the column that they are in the order of."""
        table = workflows if self.word is None else terms
        pk = table.c.workflow_pk
        is_its = workflows.c.phase == self.phase if self.word is None else terms.c.term_ix == self.word
        statement = sa.select(pk).where(is_its)
        if place is not None:
            statement = statement.where(table.c.workspace_pk == place)
        if before is not None:
            statement = statement.where(pk < before)
        return statement, pk


def _rarest(connection: Connection, asked: Question) -> _Leading:
    """Return the index with the fewest rows, counted as far as a page looks."""
    candidates = [_Leading(word, None) for word in asked.term_indexes]
    if asked.phase is not None:
        candidates.append(_Leading(None, asked.phase))
    if len(candidates) == 1:
        return candidates[0]

    branches = [[leading.rows(place, asked.before) for place in asked.places] for leading in candidates]
    counts = _counted(connection, _bounded_counts(branches, LOOKED_AT_MOST), LOOKED_AT_MOST)
    return candidates[counts.index(min(counts))]


def _floor(connection: Connection, leading: _Leading, place: int | None, before: int | None) -> int:
    """Return the last row that a page looks at; 0 when it comes to the end."""
    rows, pk = leading.rows(place, before)
    statement = rows.order_by(pk.desc()).limit(1).offset(LOOKED_AT_MOST - 1)
    return connection.execute(statement).scalar_one_or_none() or 0


def _having(leading: _Leading, place: int | None, asked: Question, floor: int, count: int) -> sa.Select[int]:
    """Return the statement for the rows of the leading index, newest first, of which everything else holds.

    As conditions of each row and not as joins: which table comes first is decided here.
    """
    statement, pk = leading.rows(place, asked.before)
    words = (_has_word(index, place, pk) for index in asked.term_indexes if index != leading.word)
    statement = statement.where(pk >= floor, *words).order_by(pk.desc()).limit(count)
    if leading.word is None:
        return statement.where(*_IS_LISTED)
    head = workflows.alias()
    holds = [head.c.workflow_pk == pk, head.c.deleting_at.is_(None), head.c.deleted_at.is_(None)]
    if asked.phase is not None:
        holds.append(head.c.phase == asked.phase)
    return statement.where(sa.exists().where(*holds).correlate(pk.table))


def _has_word(index: bytes, place: int | None, pk: sa.Column[int]) -> sa.ColumnElement[bool]:
    word = terms.alias()
    its = [word.c.term_ix == index, word.c.workflow_pk == pk]
    if place is not None:
        its.append(word.c.workspace_pk == place)
    return sa.exists().where(*its).correlate(pk.table)


# ---- counting


def count_by_phase(
    connection: Connection, workspaces_seen: frozenset[int] | None, phases: Sequence[str]
) -> Mapping[str, int]:
    """Return how many workflows are stored in each of these phases, each counted to one more than 1,000."""
    most = limits.EXACT_COUNT_MAX + 1
    statements = _phase_counts(tuple(Question(workspaces_seen).places), tuple(phases), most)
    counts = _counted(connection, statements, most) if statements else [0] * len(phases)
    return dict(zip(phases, counts, strict=True))


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _phase_counts(places: tuple[int | None, ...], phases: tuple[str, ...], most: int) -> Sequence[AnySelect]:
    """Return the statements of `count_by_phase`, kept as those of the newest rows are."""
    return _bounded_counts([[_Leading(None, phase).rows(place, None) for place in places] for phase in phases], most)


def _bounded_counts(
    branches: Sequence[Sequence[tuple[sa.Select[int], sa.Column[int]]]], most: int
) -> Sequence[AnySelect]:
    """Return as many statements as it takes to count the rows of several lists of branches, each to `most`.

    In the order of the index, which they are counted for: without one PostgreSQL would read the table from its
    beginning in the hope to meet enough of them soon.
    """
    return [
        sa.select(*(
            _bounded(each[start : start + _BRANCHES_AT_ONCE], most).label(f"n{number}")
            for number, each in enumerate(branches)
        ))
        for start in range(0, max(map(len, branches)), _BRANCHES_AT_ONCE)
    ]  # fmt: skip


def _counted(connection: Connection, statements: Sequence[AnySelect], most: int) -> list[int]:
    """Run what `_bounded_counts` made and add it up, to `most`."""
    parts = [connection.execute(statement).one() for statement in statements]
    return [min(sum(each), most) for each in zip(*parts, strict=True)]


def _bounded(branches: Sequence[tuple[sa.Select[int], sa.Column[int]]], most: int) -> sa.ScalarSelect[int]:
    parts = [rows.order_by(pk.desc()).limit(most).subquery() for rows, pk in branches]
    together = sa.union_all(*(sa.select(part.c.workflow_pk) for part in parts)).limit(most).subquery()
    return sa.select(sa.func.count()).select_from(together).scalar_subquery()


def workspace_by_name(connection: Connection, name: str) -> int | None:
    """Return the ``workspace_pk`` of a name, None when there is none."""
    return connection.execute(
        sa.select(workspaces.c.workspace_pk).where(workspaces.c.name == name)
    ).scalar_one_or_none()


def due(connection: Connection, *, now_us: int, count: int) -> Sequence[str]:
    """Return ids of workflows whose phase has changed by itself, the longest overdue first."""
    statement = (
        sa.select(workflows.c.workflow_id)
        .where(workflows.c.phase_due_at.is_not(None), workflows.c.phase_due_at <= now_us)
        .order_by(workflows.c.phase_due_at)
        .limit(count)
    )
    return connection.execute(statement).scalars().all()


def deleting(connection: Connection, *, count: int) -> Sequence[str]:
    """Return ids of workflows whose deletion has begun and not ended."""
    statement = (
        sa.select(workflows.c.workflow_id)
        .where(workflows.c.deleting_at.is_not(None))
        .order_by(workflows.c.deleting_at)
        .limit(count)
    )
    return connection.execute(statement).scalars().all()


def ids_after(connection: Connection, workflow_pk: int, *, count: int) -> Sequence[Row[int, str]]:
    """Return ``workflow_pk, workflow_id`` of living workflows in the order of their creation."""
    statement = (
        sa.select(workflows.c.workflow_pk, workflows.c.workflow_id)
        .where(workflows.c.workflow_pk > workflow_pk, workflows.c.deleted_at.is_(None))
        .order_by(workflows.c.workflow_pk)
        .limit(count)
    )
    return connection.execute(statement).all()
