"""Finds entries of the audit log by their clear columns, newest first. Needs no key. Nothing here opens a detail.

However long the log is, a page looks at no more of it. Each index of the log ends with the sequence, in whose order
entries are shown (`continuity.store.schema.audit`): the one with the fewest entries of what is asked for leads, and
where more is asked of them than it knows, a page looks at `LOOKED_AT_MOST` of its entries at most. Where days are asked
for the index of times leads, and entries are shown by their times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.errors import MalformedError
from continuity.store.listing import LOOKED_AT_MOST
from continuity.store.schema import IS_REFUSED, audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

DONE: Final = "done"
REFUSED: Final = "refused"
"""Asks for whatever was not done."""
PAGE_MOST: Final = 1_000
_CHARS: Final = {"action": 64, "actor": 160, "object_id": 160, "result": 64}
_CLEAR: Final = [
    sa.type_coerce(column, sa.types.NullType()).label(column.name)
    for column in audit.c
    if column.name not in {"hash", "sealed_detail"}
]
_SEQ: Final = audit.c.seq
_HAS_DETAIL: Final = audit.c.sealed_detail.is_not(None).label("has_detail")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuestion:
    """Which entries are asked for; whatever is None asks for all.

    Attributes:
        action: The whole action, for example ``user.sign_in``, or its noun with a dot, ``user.``.
        actor: The whole actor, for example ``user:usr_…``.
        object_id: The whole object.
        result: The whole result, or `REFUSED` for all but ``done``.
        since_us: Not before this moment, microseconds since 1970.
        until_us: Before this moment.
    """

    action: str | None = None
    actor: str | None = None
    object_id: str | None = None
    result: str | None = None
    since_us: int | None = None
    until_us: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no column can hold.

        Raises:
            MalformedError: A text is too long or no printable ASCII; the message begins with the field's name.
        """
        for name, most in _CHARS.items():
            text = getattr(self, name)
            if text is not None and not (0 < len(text) <= most and text.isascii() and text.isprintable()):
                raise MalformedError(f"{name}: must be 1 to {most} printable ASCII characters.")


def search(
    connection: Connection, question: AuditQuestion, *, count: int, before: int | None = None
) -> tuple[Sequence[Any], int]:
    """Read a page of entries as they are stored, newest first, without their details.

    Newest is what was written last; where days are asked for, what has the latest time.

    Args:
        connection: A reading transaction.
        question: Which.
        count: At most so many, and at most one more than `PAGE_MOST`.
        before: Sequence of an entry: only those behind it, in that order.

    Returns:
        Rows of ``seq``, ``at``, ``action``, ``actor``, ``object_id``, ``result``, ``request_id``, ``has_detail``; and
        the sequence of the last entry that was looked at, 0 where all were. Only what no index answers stops early.
    """
    count, order = min(count, PAGE_MOST + 1), _order(question)
    behind = [] if before is None else [_behind(connection, order, before)]
    way = _way(connection, question, behind)
    rest = [condition for name, condition in _conditions(question) if name not in way.answers]
    most = max(count, LOOKED_AT_MOST // max(1, len(way.branches))) if rest else count
    floor, found = 0, list[Any]()
    for branch in way.branches:
        led = sa.select(*order).where(*branch, *behind).order_by(*(column.desc() for column in order))
        if rest and not way.is_short:
            last = connection.execute(led.offset(most - 1).limit(1)).one_or_none()
            floor = floor if last is None else max(floor, last.seq)
        # Its limit keeps the database from going along another index, which knows nothing of it.
        looked = led.limit(LOOKED_AT_MOST if way.is_short else most).subquery()
        page = sa.select(*_CLEAR, _HAS_DETAIL).join(looked, looked.c.seq == _SEQ).where(*rest)
        found += connection.execute(page.order_by(*(column.desc() for column in looked.c)).limit(count)).all()
    if len(way.branches) > 1:
        # Of one branch that was looked into further than another only what all were looked into is told.
        found = [row for row in found if row.seq >= floor]
    newest = sorted(found, key=attrgetter(*(column.name for column in order)), reverse=True)
    return newest[:count], floor


@dataclass(frozen=True, slots=True)
class _Way:
    """Parts of an index that together hold all entries of what is asked for, and what it answers so.

    A short one has so few entries that a page looks at all of them.
    """

    answers: frozenset[str]
    branches: Sequence[Sequence[sa.ColumnElement[bool]]]
    is_short: bool = False


def _order(question: AuditQuestion) -> tuple[sa.Column[Any], ...]:
    # Clocks are set back: in the order of the log the entries of a day may stand anywhere.
    return (_SEQ,) if question.since_us is None and question.until_us is None else (audit.c.at, _SEQ)


def _behind(connection: Connection, order: tuple[sa.Column[Any], ...], before: int) -> sa.ColumnElement[bool]:
    place = connection.execute(sa.select(*order).where(audit.c.seq == before)).one()
    return sa.tuple_(*order) < sa.tuple_(*place)


def _way(connection: Connection, question: AuditQuestion, behind: Sequence[sa.ColumnElement[bool]]) -> _Way:
    """Choose the part of an index that leads: the one with the fewest entries.

    The index of times leads where days are asked for, unless another part is short: its entries are in another order.
    """
    ways = _ways(connection, question)
    if len(_order(question)) == 1:
        return ways[0] if len(ways) == 1 else min(ways, key=lambda each: _size(connection, each, behind))
    for way in ways:
        if _size(connection, way, ()) < LOOKED_AT_MOST:
            return replace(way, is_short=True)
    days = {"since", "until"}
    return _Way(frozenset(days), [[condition for name, condition in _conditions(question) if name in days]])


def _ways(connection: Connection, question: AuditQuestion) -> list[_Way]:
    ways = []
    if question.action is not None and question.action.endswith("."):
        actions = _actions(connection, question.action)
        ways.append(_Way(frozenset({"action"}), [[audit.c.action == action] for action in actions]))
    for name, condition in _conditions(question):
        is_noun = name == "action" and len(ways) > 0
        if name in {"action", "actor", "object_id", "refused"} and not is_noun:
            ways.append(_Way(frozenset({name}), [[condition]]))
    return ways or [_Way(frozenset(), [[]])]


def _actions(connection: Connection, noun: str) -> list[str]:
    """Return the actions of a noun that the log knows, one step along their index for each."""
    found, last = list[str](), noun
    # A noun is a range of the index: "/" follows "." in ASCII.
    step = sa.select(sa.func.min(audit.c.action)).where(
        audit.c.action > sa.bindparam("last", type_=audit.c.action.type), audit.c.action < f"{noun[:-1]}/"
    )
    while last:
        last = connection.execute(step, {"last": last}).scalar_one() or ""
        found += [last] if last else []
    return found


def _size(connection: Connection, way: _Way, behind: Sequence[sa.ColumnElement[bool]]) -> int:
    """Count the entries of a way, as far as a page looks."""
    total = 0
    for branch in way.branches:
        led = sa.select(_SEQ).where(*branch, *behind).order_by(_SEQ.desc()).limit(LOOKED_AT_MOST - total).subquery()
        total += connection.execute(sa.select(sa.func.count()).select_from(led)).scalar_one()
        if total >= LOOKED_AT_MOST:
            break
    return total


def one(connection: Connection, seq: int) -> Any:
    """Read one entry, without its detail; None when it is not there."""
    return connection.execute(sa.select(*_CLEAR, _HAS_DETAIL).where(audit.c.seq == seq)).one_or_none()


def _conditions(question: AuditQuestion) -> list[tuple[str, Any]]:
    """Return what must hold of an entry, each by what is asked so."""
    wanted: list[tuple[str, Any]] = []
    if question.action is not None:
        noun = question.action
        is_noun = sa.and_(audit.c.action >= noun, audit.c.action < f"{noun[:-1]}/")
        wanted.append(("action", is_noun if noun.endswith(".") else audit.c.action == noun))
    wanted += [("actor", audit.c.actor == question.actor)] if question.actor is not None else []
    wanted += [("object_id", audit.c.object_id == question.object_id)] if question.object_id is not None else []
    if question.result == DONE:
        wanted.append(("done", audit.c.result == DONE))
    elif question.result is not None:
        # In the words of the partial index, or it is not used.
        wanted.append(("refused", IS_REFUSED))
        wanted += [] if question.result == REFUSED else [("result", audit.c.result == question.result)]
    wanted += [("since", audit.c.at >= question.since_us)] if question.since_us is not None else []
    wanted += [("until", audit.c.at < question.until_us)] if question.until_us is not None else []
    return wanted
