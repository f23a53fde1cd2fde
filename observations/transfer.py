"""Everything that was observed, in and out: JSON lines of events, and attempts with their charges.

Rules:

* A line is an event as it travels over the wire. What is imported meets the same rules as what is submitted, so a
  line that is known is replayed and an import that was interrupted is simply run again.
* Reading is in pages, each one short transaction; what comes meanwhile is at the end or not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import IO, Any, Final

import sqlalchemy as sa

from continuity import jsontext
from continuity.errors import MalformedError
from observations import schema, store
from observations.acceptance import Result
from observations.costs import Attempt, Charge
from observations.events import EVENT_BYTES, FORMAT, Event, read_event
from observations.ingest import Ingest

IMPORTED_AT_ONCE: Final = 25
"""Events of one transaction: others who write wait no longer than these take."""
_LINE_BYTES: Final = EVENT_BYTES + 64
"""Read of one line: an event, spaces around it, and whatever shows that it is longer."""
_READ: Final = 1_000
_MESSAGES_KEPT: Final = 20


@dataclass(slots=True)
class Imported:
    """What became of the lines of an import.

    Attributes:
        line: The last line whose event is on disk, or that holds none.
        accepted: Events that were new.
        replayed: Events that were known.
        refused: Events that contradict what is known; each is counted once, as everywhere.
        pruned: Events of a time that was pruned; they were not taken in.
        malformed: Lines that are no event.
        messages: What is wrong with the first 20 lines that were refused or are malformed, by line.
        lines: How many lines there are, those before the first that was to be taken in among them.
    """

    line: int = 0
    accepted: int = 0
    replayed: int = 0
    refused: int = 0
    pruned: int = 0
    malformed: int = 0
    messages: list[str] = field(default_factory=list)
    lines: int = 0


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Return the lines of a stream; of one that is too long for any event only as much as shows it."""
    while line := stream.readline(_LINE_BYTES):
        yield line
        rest = line
        while len(rest) == _LINE_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(_LINE_BYTES)


def import_lines(
    ingest: Ingest,
    scope: str,
    lines: Iterable[bytes],
    *,
    start_line: int = 1,
    progress: Callable[[Imported], None] = lambda _done: None,
) -> Imported:
    """Take in events, one JSON object a line; empty lines are passed over.

    Args:
        ingest: Where to.
        scope: Observation scope that all of them go into.
        lines: The file from its first line on, as `lines_of` reads it.
        start_line: The first line to take in; those before it are passed over unread.
        progress: Called after each transaction.

    Returns:
        What became of the lines.

    Raises:
        UnavailableError: Storage cannot answer. What `progress` was told last is on disk.
    """
    done, batch = Imported(), list[tuple[int, Event]]()
    for number, line in enumerate(lines, start=1):
        done.lines = number
        if number < start_line:
            continue
        event = _read_line(done, number, line)
        if event is not None:
            batch.append((number, event))
        if len(batch) == IMPORTED_AT_ONCE:
            _take(ingest, scope, batch, done=done, line=number)
            progress(done)
    _take(ingest, scope, batch, done=done, line=done.lines if batch or done.line else done.line)
    progress(done)
    return done


def _read_line(done: Imported, number: int, line: bytes) -> Event | None:
    if not line.strip():
        return None
    try:
        return read_event(_within_limit(line.strip()))
    except MalformedError as error:
        done.malformed += 1
        _say(done, number, error.message)
        return None


def _say(done: Imported, number: int, message: str) -> None:
    if len(done.messages) < _MESSAGES_KEPT:
        done.messages.append(f"Line {number}: {message}")


def _within_limit(line: bytes) -> bytes:
    if len(line) > EVENT_BYTES:
        raise MalformedError(f"An event must be at most {EVENT_BYTES} bytes.")
    return line


def _take(ingest: Ingest, scope: str, batch: list[tuple[int, Event]], *, done: Imported, line: int) -> None:
    results = ingest.accept_all(scope, [event for _, event in batch]) if batch else []
    for (number, event), result in zip(batch, results, strict=True):
        if result is Result.REFUSED:
            _say(done, number, f"Event {event.event_id} contradicts what is known. Refused; what came first stands.")
    done.accepted += results.count(Result.ACCEPTED)
    done.replayed += results.count(Result.REPLAYED)
    done.refused += results.count(Result.REFUSED)
    done.pruned += results.count(Result.PRUNED)
    done.line = line
    batch.clear()


def has_scope(units: store.Units, scope: str) -> bool:
    """Say whether an event of a scope was ever accepted.

    Raises:
        UnavailableError: Storage cannot answer.
    """
    found = sa.select(schema.scopes.c.scope_pk).where(schema.scopes.c.scope == scope)
    return units.read(lambda connection: connection.execute(found).first() is not None)


def export_events(units: store.Units, scope: str) -> Iterator[dict[str, Any]]:
    """Return a scope's accepted events as they travel, in the order in which they were accepted.

    Raises:
        UnavailableError: Storage cannot answer.
    """
    events, after = schema.events, 0
    is_of = events.c.scope_pk == _scope_pk(scope)
    while True:
        page = (
            sa.select(events.c.event_pk, events.c.body, is_of.label("is_of"))
            .where(events.c.event_pk > after)
            .order_by(events.c.event_pk)
            .limit(_READ)
        )
        rows = units.read(lambda connection, page=page: connection.execute(page).all())  # type: ignore[misc]
        if not rows:
            return
        for row in rows:
            if row.is_of:
                yield {"format": FORMAT, **jsontext.loads_strict(row.body)}
        after = rows[-1].event_pk


Charges = Iterator[tuple[tuple[str, str], Charge]]
"""Charges with their (charge source, charge id), by both."""


@dataclass(frozen=True, slots=True)
class Observed:
    """An attempt with all its charges.

    Attributes:
        attempt_id: Its id.
        attempt: What is known of it.
        charges: Read from storage as they are taken, for there may be very many; gone with the next attempt. Raises
            `UnavailableError` when storage cannot answer.
    """

    attempt_id: str
    attempt: Attempt
    charges: Charges


def export_attempts(units: store.Units, scope: str) -> Iterator[Observed]:
    """Return a scope's attempts with their charges, by attempt id. Take the charges of each before the next attempt.

    Raises:
        UnavailableError: Storage cannot answer.
    """
    after = ""
    while True:
        rows = units.read(lambda connection, after=after: _attempts(connection, scope, after=after))  # type: ignore[misc]
        if not rows:
            return
        wanted = {row.attempt_id for row in rows}
        # Of an attempt that came since there may be charges; its row is not among these.
        found = ((key, group) for key, group in groupby(_charges(units, scope, rows), _attempt_id) if key in wanted)
        of, group = next(found, (None, iter(())))
        for row in rows:
            is_of = row.attempt_id == of
            taken = (((each.charge_source, each.charge_id), store.charge_of(each)) for each in group) if is_of else ()
            yield Observed(row.attempt_id, store.attempt_of(row), iter(taken))
            if is_of:
                of, group = next(found, (None, iter(())))
        after = rows[-1].attempt_id


def _attempts(connection: sa.Connection, scope: str, *, after: str) -> Sequence[sa.Row[Any]]:
    attempts, workflows = schema.attempts, schema.workflows
    return connection.execute(
        sa.select(attempts, workflows.c.workflow_id)
        .join(workflows, workflows.c.workflow_pk == attempts.c.workflow_pk)
        .where(attempts.c.scope_pk == _scope_pk(scope), attempts.c.attempt_id > after)
        .order_by(attempts.c.attempt_id)
        .limit(_READ)
    ).all()


def _charges(units: store.Units, scope: str, attempts: Sequence[sa.Row[Any]]) -> Iterator[sa.Row[Any]]:
    """Return the charges of attempts that follow each other, in the order of those, a page at a time."""
    charges = schema.charges
    place = (charges.c.attempt_id, charges.c.charge_source, charges.c.charge_id)
    is_of = charges.c.attempt_id.between(attempts[0].attempt_id, attempts[-1].attempt_id)
    page = sa.select(charges).where(charges.c.scope_pk == _scope_pk(scope), is_of).order_by(*place).limit(_READ)
    following = page
    while True:
        rows = units.read(lambda connection, page=following: connection.execute(page).all())  # type: ignore[misc]
        yield from rows
        if len(rows) < _READ:
            return
        last = rows[-1]
        following = page.where(sa.tuple_(*place) > (last.attempt_id, last.charge_source, last.charge_id))


def _attempt_id(row: sa.Row[Any]) -> str:
    attempt_id: str = row.attempt_id
    return attempt_id


def _scope_pk(scope: str) -> sa.ScalarSelect[int]:
    return sa.select(schema.scopes.c.scope_pk).where(schema.scopes.c.scope == scope).scalar_subquery()
