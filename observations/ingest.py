"""Takes events in: each accepted, replayed or refused for good, and all totals moved in the same transaction.

Rules:

* An event is refused whole: when its id is taken by another body, its attempt is known in another place, its charge
  is another attempt's, or it contradicts an amount that is known. What was accepted first stays.
* A refused event is kept by id and digest and counted once: at the charge that it names and its workflow when it
  disagrees with what is known of that, else at the workflow of what it contradicts.
* An event of a time that was pruned is not taken in, as nobody knows any more whether it came before.
* The writes of one event are few and independent of how much is stored: the facts change, and each rollup by the
  difference of two footprints (`observations.costs`).
* One writer a scope: its row is locked first. With SQLite it also pauses between transactions, so that whoever
  begins or ends an attempt meanwhile finds the database free.
* `PLACES` callers at a time use the database, and as many wait for them, `PLACE_WAIT_S` at most; the others are told
  to come again. Nothing here shares a connection, a lock or a thread's time without end with governed operations.

Source: observations.md, "Rules".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity import jsontext
from continuity.errors import ConflictError, ThrottledError
from observations import moves, schema, store
from observations.costs import (
    Attempt,
    Charge,
    Vector,
    added,
    charge_pair,
    contribution,
    difference,
    footprint,
    observe_attempt,
    observe_charge,
    pair_rank,
    time_us,
)
from observations.events import Event
from observations.store import PairKey

T = TypeVar("T")

PAIRS_NAMED: Final = 500
"""Pairs of charge source and price source that a scope and day names; the rest are ``other``."""
ATTEMPT_DAYS: Final = 400
"""Days on which one attempt may have charges: what moves with it must stay small."""
PLACES: Final = 4
"""Callers that use the database at a time. As many more may wait: an agent sends an event once, so whoever comes
in the same moment as others must not be sent away, and half of the server's threads stay free of events."""
PLACE_WAIT_S: Final = 1.0
"""How long a caller waits for a place: half of what a producer gives an event."""
BATCH: Final = 100
"""Most events of one transaction."""
PAUSE_S: Final = 0.002
"""Between transactions on SQLite; writers of other connections ask every millisecond."""
_TRIES: Final = 3


class Result(StrEnum):
    """What became of an event."""

    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    REFUSED = "refused"
    PRUNED = "pruned"


class Ingest:
    """Takes in events. Safe to share between threads."""

    def __init__(self, units: store.Units, *, now_us: Callable[[], int], pause_s: float = PAUSE_S) -> None:
        """Keep the seam to the database, whose connections nobody else should use.

        Args:
            units: Runs the transactions.
            now_us: The server's time, for when an event was received.
            pause_s: Seconds without a transaction after each, on SQLite.
        """
        self._units = units
        self._now_us = now_us
        self._pause_s = 0.0 if units.is_postgresql else pause_s
        self._inside = threading.BoundedSemaphore(2 * PLACES)
        self._places = threading.BoundedSemaphore(PLACES)
        self._turn = threading.Lock()
        self._free_at = 0.0

    def accept(self, scope: str, event: Event) -> bool:
        """Take in one event for somebody who waits.

        Returns:
            True if the same event is known already.

        Raises:
            ConflictError: Refused, code ``event_conflict``, whether it contradicts what is known, which is counted,
                or is of a time that was pruned; nothing else has changed.
            ThrottledError: Too many wait; nothing has happened.
            UnavailableError: Storage cannot answer; the event may be sent again.
        """
        with self._place():
            (result,) = self.accept_all(scope, [event])
        if result in {Result.REFUSED, Result.PRUNED}:
            raise ConflictError(
                "The event contradicts what is known, or is of a time that is no longer kept.", code="event_conflict"
            )
        return result is Result.REPLAYED

    def accept_all(self, scope: str, events: Sequence[Event]) -> list[Result]:
        """Take in at most `BATCH` events in one transaction.

        Returns:
            What became of each, in their order. All of it is on disk.

        Raises:
            UnavailableError: Storage cannot answer; all of them may be sent again.
        """
        if len(events) > BATCH:
            raise ValueError(f"At most {BATCH} events at once.")
        now_us = self._now_us()

        def work(connection: Connection) -> list[Result]:
            held = store.lock_scope(connection, scope)
            return [observe(connection, held, event, now_us=now_us) for event in events]

        with self._in_turn():
            return _repeated(lambda: self._units.write(work))

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._inside.acquire(blocking=False):
            raise ThrottledError("Too many events at once.")
        try:
            if not self._places.acquire(timeout=PLACE_WAIT_S):
                raise ThrottledError("Too many events at once.")
            try:
                yield
            finally:
                self._places.release()
        finally:
            self._inside.release()

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        if not self._pause_s:
            yield
            return
        with self._turn:
            time.sleep(max(0.0, self._free_at - time.monotonic()))
            try:
                yield
            finally:
                self._free_at = time.monotonic() + self._pause_s


def _repeated(write: Callable[[], T]) -> T:
    """Write again when two made the same row at once: the scope's, before there was one to lock."""
    for _ in range(_TRIES - 1):
        try:
            return write()
        except sa.exc.IntegrityError:
            continue
    return write()


@dataclass(frozen=True, slots=True)
class _Change:
    """An attempt and one of its charges, before and after."""

    scope_pk: int
    attempt_id: str
    workflow: store.HeldWorkflow
    attempts: tuple[Attempt | None, Attempt]
    charges: tuple[Charge | None, Charge | None] = (None, None)
    names: tuple[str, str] = ("", "")
    """Charge source and charge id."""
    now_us: int = 0


def observe(connection: Connection, scope: store.HeldScope, event: Event, *, now_us: int) -> Result:
    """Take in one event, inside the transaction that locked its scope."""
    body, scope_pk = body_of(event), scope.scope_pk
    known = store.find_event(connection, scope_pk, event.event_id)
    if known is not None and known.body == body:
        return Result.REPLAYED
    if time_us(event) < scope.pruned_us:
        return Result.PRUNED
    return _observe_new(connection, scope_pk, event, now_us=now_us, known=known)


def _observe_new(
    connection: Connection, scope_pk: int, event: Event, *, now_us: int, known: sa.Row[bytes, int] | None
) -> Result:
    taken = known or store.find_refusal(connection, scope_pk, event.event_id, digest=digest_of(event))
    if taken is not None:
        return _refuse(connection, scope_pk, event, "event", workflow_pk=taken.workflow_pk, now_us=now_us)
    held = store.find_attempt(connection, scope_pk, event.attempt_id)
    attempt = observe_attempt(None if held is None else held.attempt, event)
    if attempt is None:
        assert held is not None  # noqa: S101 - only a known attempt can contradict
        return _refuse(connection, scope_pk, event, "attempt", workflow_pk=held.workflow_pk, now_us=now_us)
    known_charge, charge = charges = _charges(connection, scope_pk, event)
    if known_charge is not None and charge is None:
        owner = _owner(connection, scope_pk, known_charge)
        reason = "amount" if known_charge.attempt_id == event.attempt_id else "charge"
        return _refuse(connection, scope_pk, event, reason, workflow_pk=owner.workflow_pk, now_us=now_us)
    workflow = store.find_workflow(connection, scope_pk, event.workflow_id)
    if workflow is None:
        workflow = store.insert_workflow(connection, scope_pk, event.workflow_id, at_us=time_us(event))
    change = _Change(
        scope_pk,
        event.attempt_id,
        workflow,
        (None if held is None else held.attempt, attempt),
        charges,
        _names(event),
        now_us,
    )
    if not _apply(connection, change):
        return _refuse(connection, scope_pk, event, "limit", workflow_pk=workflow.workflow_pk, now_us=now_us)
    store.insert_event(
        connection,
        scope_pk,
        event_id=event.event_id,
        workflow_pk=workflow.workflow_pk,
        body=body_of(event),
        now_us=now_us,
    )
    return Result.ACCEPTED


def body_of(event: Event) -> bytes:
    """Return what is kept of an event: canonical JSON without its format, so equal events have equal bytes."""
    fields = event.to_json()
    del fields["format"]
    return jsontext.canonical_bytes(fields)


def digest_of(event: Event) -> bytes:
    """Return the SHA-256 by which a refused event is known."""
    return jsontext.digest(event.to_json())


def _names(event: Event) -> tuple[str, str]:
    return (event.charge_source or "", event.charge_id or "")


def _charges(connection: Connection, scope_pk: int, event: Event) -> tuple[Charge | None, Charge | None]:
    """Return the charge that the event names, before and after; (known, None) when the event contradicts it."""
    if event.charge_id is None or event.charge_source is None:
        return (None, None)
    known = store.find_charge(connection, scope_pk, charge_source=event.charge_source, charge_id=event.charge_id)
    return (known, observe_charge(known, event))


def _owner(connection: Connection, scope_pk: int, charge: Charge) -> store.HeldAttempt:
    held = store.find_attempt(connection, scope_pk, charge.attempt_id)
    if held is None:
        raise RuntimeError("A charge without its attempt: run `atmem observations rebuild`.")
    return held


# ---- refusing


def _refuse(
    connection: Connection, scope_pk: int, event: Event, reason: str, *, workflow_pk: int, now_us: int
) -> Result:
    """Keep and count a refusal, unless this very event was refused before."""
    digest = digest_of(event)
    before = store.find_refusal(connection, scope_pk, event.event_id, digest=digest)
    if before is not None and before.digest == digest:
        return Result.REFUSED
    known, after = _charges(connection, scope_pk, event)
    row = {
        "scope_pk": scope_pk, "event_id": event.event_id, "digest": digest, "workflow_pk": workflow_pk,
        "received_us": now_us, "reason": reason, "charge_source": None, "charge_id": None,
    }  # fmt: skip
    if known is not None and after is None:
        row |= _mark(connection, scope_pk, event, known)
    store.insert_refusal(connection, row)
    store.add(connection, schema.workflows, {"workflow_pk": row["workflow_pk"]}, {"refused": 1})
    return Result.REFUSED


def _mark(connection: Connection, scope_pk: int, event: Event, known: Charge) -> dict[str, object]:
    """Let the charge that the event disagrees with show as conflicting; return where the refusal is counted."""
    owner = _owner(connection, scope_pk, known)
    workflow = store.HeldWorkflow(owner.workflow_pk, owner.attempt.first_us, owner.attempt.last_us)
    marked = replace(known, conflicts=known.conflicts + 1)
    both = (owner.attempt, owner.attempt)
    _apply(connection, _Change(scope_pk, known.attempt_id, workflow, both, (known, marked), _names(event)))
    source, charge_id = _names(event)
    return {"workflow_pk": owner.workflow_pk, "charge_source": source, "charge_id": charge_id}


# ---- accepting


def _apply(connection: Connection, change: _Change) -> bool:
    """Write what changed and move the totals; False, with nothing written, when it would move too many days."""
    scope_pk, attempt_id, (before, after) = change.scope_pk, change.attempt_id, change.attempts
    days = {} if before is None else store.find_attempt_days(connection, scope_pk, attempt_id)
    moved = _by_day(change.charges)
    days_after = {day: added((days.get(day, {}), moved.get(day, {}))) for day in days.keys() | moved.keys()}
    days_after = {day: vector for day, vector in days_after.items() if vector.get("charges")}
    if len(days_after) > ATTEMPT_DAYS and len(days_after) > len(days):
        return False
    was, now = footprint(before, days), footprint(after, days_after)
    runs = _new_runs(connection, change.workflow.workflow_pk, before=before, after=after)
    _save(connection, change)
    for day, vector in moved.items():
        key = {"scope_pk": scope_pk, "attempt_id": attempt_id, "day": day}
        store.add(connection, schema.attempt_days, key, vector)
    for place in sorted(was.days.keys() | now.days.keys()):
        day, cause, outcome = place
        key = {"scope_pk": scope_pk, "day": day, "cause": int(cause), "outcome": int(outcome)}
        store.add(connection, schema.days, key, difference(now.days.get(place, {}), was.days.get(place, {})))
    workflow_key = {"workflow_pk": change.workflow.workflow_pk}
    store.add(connection, schema.workflows, workflow_key, difference(now.workflow, was.workflow) | runs)
    _move_pairs(connection, change)
    return True


def _by_day(charges: tuple[Charge | None, Charge | None]) -> dict[int, Vector]:
    before, after = charges
    totals: dict[int, Vector] = {}
    if after is not None:
        totals[after.day] = contribution(after)
    if before is not None:
        totals[before.day] = difference(totals.get(before.day, {}), contribution(before))
    return {day: vector for day, vector in totals.items() if any(vector.values())}


def _new_runs(connection: Connection, workflow_pk: int, *, before: Attempt | None, after: Attempt) -> Vector:
    is_new = before is None and not store.has_run(connection, workflow_pk, after.run_id)
    return {"runs": 1} if is_new else {}


def _save(connection: Connection, change: _Change) -> None:
    (before, after), workflow = change.attempts, change.workflow
    if before != after:
        store.save_attempt(
            connection, change.scope_pk, change.attempt_id, workflow_pk=workflow.workflow_pk, attempt=after,
            is_new=before is None,
        )  # fmt: skip
        first_us, last_us = min(workflow.first_us, after.first_us), max(workflow.last_us, after.last_us)
        _note_moves(connection, change)
        if (first_us, last_us) != (workflow.first_us, workflow.last_us):
            store.set_times(connection, workflow.workflow_pk, first_us=first_us, last_us=last_us)
    known, charge = change.charges
    if charge is not None and charge != known:
        source, charge_id = change.names
        store.save_charge(
            connection, change.scope_pk, charge_source=source, charge_id=charge_id, charge=charge, is_new=known is None
        )


def _note_moves(connection: Connection, change: _Change) -> None:
    """Keep where attempt and workflow stood in their lists, if they now begin earlier."""
    (before, after), workflow = change.attempts, change.workflow
    if before is not None and after.first_us < before.first_us:
        moves.note(connection, workflow.workflow_pk, change.attempt_id, was_us=before.first_us, now_us=change.now_us)
    if after.first_us < workflow.first_us:
        moves.note(connection, workflow.workflow_pk, "", was_us=workflow.first_us, now_us=change.now_us)


def _move_pairs(connection: Connection, change: _Change) -> None:
    before, after = (charge_pair(charge, change.names[0]) for charge in change.charges)
    # What is taken away first: it may free a name for what comes.
    for place in sorted(before.keys() | after.keys(), key=lambda each: each in after):
        vector = difference(after.get(place, {}), before.get(place, {}))
        if vector:
            day, source, price_source = place
            add_to_pair(connection, change.scope_pk, day, names=(source, price_source), vector=vector)


def add_to_pair(connection: Connection, scope_pk: int, day: int, *, names: tuple[str, str], vector: Vector) -> None:
    """Add to a pair of a day, and decide again which pairs are named."""
    key = PairKey(scope_pk, day, pair_rank(*names))
    row = store.find_pair(connection, key)
    if row is None:
        _insert_pair(connection, key, names=names, vector=vector)
        return
    store.add(connection, schema.pairs, key.columns, vector)
    if row.shown == schema.PAIR_HIDDEN:
        _add_to_other(connection, key, vector)
    if row.charges + vector.get("charges", 0) == 0:
        store.delete_pair(connection, key)
        if row.shown == schema.PAIR_NAMED:
            _name_next(connection, key)


def _insert_pair(connection: Connection, key: PairKey, *, names: tuple[str, str], vector: Vector) -> None:
    shown = schema.PAIR_NAMED
    if store.count_named(connection, key.scope_pk, key.day) >= PAIRS_NAMED:
        last = store.edge_pair(connection, key.scope_pk, key.day, shown=schema.PAIR_NAMED)
        if last is not None and key.pair_ix < last.pair_ix:
            store.show_pair(connection, store.key_of(last), shown=schema.PAIR_HIDDEN)
            _add_to_other(connection, key, store.vector_of(last))
        else:
            shown = schema.PAIR_HIDDEN
    store.insert_pair(connection, key, names=names, shown=shown, vector=vector)
    if shown == schema.PAIR_HIDDEN:
        _add_to_other(connection, key, vector)


def _name_next(connection: Connection, key: PairKey) -> None:
    first = store.edge_pair(connection, key.scope_pk, key.day, shown=schema.PAIR_HIDDEN)
    if first is not None:
        store.show_pair(connection, store.key_of(first), shown=schema.PAIR_NAMED)
        _add_to_other(connection, key, store.negated(store.vector_of(first)))


def _add_to_other(connection: Connection, key: PairKey, vector: Vector) -> None:
    other = PairKey(key.scope_pk, key.day, store.OTHER)
    row = store.find_pair(connection, other)
    if row is None:
        store.insert_pair(connection, other, names=("", ""), shown=schema.PAIR_OTHER, vector=vector)
        return
    store.add(connection, schema.pairs, other.columns, vector)
    if row.charges + vector.get("charges", 0) == 0:
        store.delete_pair(connection, other)
