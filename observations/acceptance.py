"""Takes in one event inside a transaction: accepted, replayed or refused for good, and all totals moved with it.

Rules:

* An event is refused whole: when its id is taken by another body, its attempt is known in another place, its charge
  is another attempt's, or it contradicts an amount that is known. What was accepted first stays.
* A refused event is kept by id and digest and counted once: at the charge that it names and its workflow when it
  disagrees with what is known of that, else at the workflow of what it contradicts.
* An event of a time that was pruned is not taken in, as nobody knows any more whether it came before.
* The writes of one event are few and independent of how much is stored: the facts change, and each rollup by the
  difference of two footprints (`observations.costs`).

Source: observations.md, "Rules".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from continuity import jsontext
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
    time_us,
)
from observations.events import Event
from observations.pairs import add_to_pair

ATTEMPT_DAYS: Final = 400
"""Days on which one attempt may have charges: what moves with it must stay small."""


class Result(StrEnum):
    """What became of an event."""

    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    REFUSED = "refused"
    PRUNED = "pruned"


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
