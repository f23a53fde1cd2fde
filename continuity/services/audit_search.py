"""Finds entries of the audit log by their clear columns, newest first. Needs no key.

Each question is answered from an index that ends with the sequence (`continuity.store.schema.audit`), so a page of a
million entries opens as fast as a page of ten. Nothing here opens a detail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.errors import MalformedError
from continuity.store.schema import audit

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


def search(connection: Connection, question: AuditQuestion, *, count: int, before: int | None = None) -> Sequence[Any]:
    """Read a page of entries as they are stored, newest first, without their details.

    Args:
        connection: A transaction.
        question: Which.
        count: At most so many, and at most `PAGE_MOST`.
        before: Only entries with a smaller sequence.

    Returns:
        Rows of ``seq``, ``at``, ``action``, ``actor``, ``object_id``, ``result``, ``request_id``, ``has_detail``.
    """
    wanted = [*_conditions(question), *([] if before is None else [audit.c.seq < before])]
    statement = sa.select(*_CLEAR, _HAS_DETAIL).where(*wanted).order_by(audit.c.seq.desc())
    return connection.execute(statement.limit(min(count, PAGE_MOST))).all()


def one(connection: Connection, seq: int) -> Any:
    """Read one entry, without its detail; None when it is not there."""
    return connection.execute(sa.select(*_CLEAR, _HAS_DETAIL).where(audit.c.seq == seq)).one_or_none()


def _conditions(question: AuditQuestion) -> list[Any]:
    wanted: list[Any] = []
    if question.action is not None:
        # A noun is a range of the index: "/" follows "." in ASCII.
        noun = question.action
        is_noun = noun.endswith(".")
        wanted += [audit.c.action >= noun, audit.c.action < f"{noun[:-1]}/"] if is_noun else [audit.c.action == noun]
    if question.actor is not None:
        wanted.append(audit.c.actor == question.actor)
    if question.object_id is not None:
        wanted.append(audit.c.object_id == question.object_id)
    if question.result == DONE:
        wanted.append(audit.c.result == DONE)
    elif question.result is not None:
        # In the words of the partial index, or it is not used.
        wanted.append(sa.text("result <> 'done'"))
        wanted += [] if question.result == REFUSED else [audit.c.result == question.result]
    if question.since_us is not None:
        wanted.append(audit.c.at >= question.since_us)
    if question.until_us is not None:
        wanted.append(audit.c.at < question.until_us)
    return wanted
