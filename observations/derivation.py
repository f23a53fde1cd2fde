"""What accepted events come to: every row and every sum that is derived from them. Values, and no statement.

Rules:

* Accepted events are the truth, and refusals for what they are counted at; of the pruned, the settled sums are
  (`observations.pruning`). An attempt and its charges belong to one workflow, so each is derived on its own.
* A row is written here as the database returns it, so that rows can be compared (`observations.comparison`) and
  inserted (`observations.recount`). A new derived column begins here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from continuity import jsontext
from observations import schema, store
from observations.costs import (
    TALLY,
    Attempt,
    Charge,
    Footprint,
    Vector,
    added,
    charge_pair,
    contribution,
    footprint,
    observe_attempt,
    observe_charge,
)
from observations.events import FORMAT, Event, parse_event

Rows = dict[tuple[Any, ...], dict[str, Any]]
"""Rows of one workflow by (table, key)."""


@dataclass(slots=True)
class Sums:
    """Sums of days by (scope, day, cause, outcome) and of pairs by (scope, day, charge source, price source)."""

    days: dict[tuple[int, int, int, int], Vector] = field(default_factory=dict)
    pairs: dict[tuple[int, int, str, str], Vector] = field(default_factory=dict)


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

    def _footprints(self) -> Iterator[Footprint]:
        by_attempt: dict[str, dict[int, Vector]] = {}
        for (attempt_id, day), vector in self.attempt_days().items():
            by_attempt.setdefault(attempt_id, {})[day] = vector
        for attempt_id, attempt in self.attempts.items():
            yield footprint(attempt, by_attempt.get(attempt_id, {}))


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


def event_of(body: bytes) -> Event:
    """Read a stored event."""
    return parse_event({**jsontext.loads_strict(body), "format": FORMAT})


def _accumulate(sums: dict[Any, Vector], key: Any, vector: Vector) -> None:
    total = sums.setdefault(key, {})
    for name, value in vector.items():
        total[name] = total.get(name, 0) + value
