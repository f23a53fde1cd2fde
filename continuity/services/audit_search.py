"""Finds entries of the audit log by their clear columns, newest first. Needs no key. Nothing here opens a detail.

A page of a million entries opens as fast as a page of ten. Each index of the log ends with the sequence, in whose
order entries are shown (`continuity.store.schema.audit`): the one with the fewest entries of what is asked for leads,
and where more is asked of them than it knows, a page looks at `LOOKED_AT_MOST` of its entries at most. Days are turned
into sequences first: the log is written in the order of time, but for what clocks that are set disturb.
"""

from __future__ import annotations

from dataclasses import dataclass
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
DISORDER_US: Final = 600_000_000
"""By how much later an entry may have been written than one behind it. A search by days knows no larger step back."""
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

    Args:
        connection: A reading transaction.
        question: Which.
        count: At most so many, and at most one more than `PAGE_MOST`.
        before: Only entries with a smaller sequence.

    Returns:
        Rows of ``seq``, ``at``, ``action``, ``actor``, ``object_id``, ``result``, ``request_id``, ``has_detail``; and
        the sequence below which nothing was looked at, 0 where all was. Only what no index answers stops early.
    """
    count, within = min(count, PAGE_MOST + 1), _within(connection, question, before)
    ways = _ways(connection, question)
    way = ways[0] if len(ways) == 1 else min(ways, key=lambda each: _size(connection, each, within))
    rest = [condition for name, condition in _conditions(question) if name not in way.answers]
    most = max(count, LOOKED_AT_MOST // max(1, len(way.branches))) if rest else count
    floor, found = 0, list[Any]()
    for branch in way.branches:
        led = sa.select(_SEQ).where(*branch, *within).order_by(_SEQ.desc())
        if rest:
            floor = max(floor, connection.execute(led.offset(most - 1).limit(1)).scalar_one_or_none() or 0)
        # Its limit keeps the database from going along another index, which knows nothing of it.
        looked = led.limit(most).subquery()
        page = sa.select(*_CLEAR, _HAS_DETAIL).join(looked, looked.c.seq == _SEQ).where(*rest)
        found += connection.execute(page.order_by(looked.c.seq.desc()).limit(count)).all()
    # Of one branch that was looked into further than another only what all were looked into is told.
    found = [row for row in found if row.seq >= floor]
    return sorted(found, key=lambda row: -row.seq)[:count], floor


@dataclass(frozen=True, slots=True)
class _Way:
    """Parts of an index that together hold all entries of what is asked for, and what it answers so."""

    answers: frozenset[str]
    branches: Sequence[Sequence[sa.ColumnElement[bool]]]


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


def _size(connection: Connection, way: _Way, within: Sequence[sa.ColumnElement[bool]]) -> int:
    """Count the entries of a way, as far as a page looks."""
    total = 0
    for branch in way.branches:
        led = sa.select(_SEQ).where(*branch, *within).order_by(_SEQ.desc()).limit(LOOKED_AT_MOST - total).subquery()
        total += connection.execute(sa.select(sa.func.count()).select_from(led)).scalar_one()
        if total >= LOOKED_AT_MOST:
            break
    return total


def _within(connection: Connection, question: AuditQuestion, before: int | None) -> list[sa.ColumnElement[bool]]:
    """Return the sequences between which everything lies: behind a page, and of days along the index of times."""
    wanted = [] if before is None else [before > _SEQ]
    if question.since_us is not None:
        earlier = sa.select(_SEQ).where(audit.c.at < question.since_us - DISORDER_US)
        least = connection.execute(earlier.order_by(audit.c.at.desc(), _SEQ.desc()).limit(1)).scalar_one_or_none()
        wanted += [] if least is None else [least < _SEQ]
    if question.until_us is not None:
        later = sa.select(_SEQ).where(audit.c.at > question.until_us + DISORDER_US)
        above = connection.execute(later.order_by(audit.c.at, _SEQ).limit(1)).scalar_one_or_none()
        wanted += [] if above is None else [above > _SEQ]
    return wanted


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
