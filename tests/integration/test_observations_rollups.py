"""Whatever comes, in whatever order and however often: the rollups are what a plain recount says."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from observations import derivation, recount, schema
from observations.acceptance import Result
from observations.costs import DAY_US, Outcome, join
from observations.events import AMOUNT_MAX, CachedBasis, Event, EventName
from observations.ingest import Ingest
from tests.observing import WHOLE, emptied, event, queries_on

SETTINGS = settings(
    max_examples=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
DAY_S = 86_400
TIMES = st.sampled_from([0, 1.5, DAY_S - 0.000001, DAY_S, DAY_S + 7, 3 * DAY_S])
ROLLUPS = (
    schema.attempts, schema.attempt_days, schema.charges, schema.days, schema.pairs, schema.workflows,
)  # fmt: skip


@st.composite
def consistent(draw):
    """A set of events without conflict: attempts and charges are made first, then told in pieces."""
    numbers = itertools.count()
    attempts = [
        {"workflow_id": f"w{n % 2}", "operation_id": f"o{n}", "run_id": f"r{n % 2}", "attempt_id": f"a{n}"}
        for n in range(draw(st.integers(1, 3)))
    ]
    charges = [
        {
            "charge_id": f"c{n}", "charge_source": draw(st.sampled_from(["x", "y", "z"])),
            "owner": draw(st.sampled_from(attempts)), "cost_microusd": draw(st.sampled_from([0, 1, AMOUNT_MAX])),
            "price_source": draw(st.sampled_from(["p", "q"])), "input_tokens": draw(st.integers(0, AMOUNT_MAX)),
            "output_tokens": draw(st.sampled_from([0, AMOUNT_MAX])), "model": "m",
        }
        for n in range(draw(st.integers(0, 4)))
    ]  # fmt: skip
    events = []
    for _ in range(draw(st.integers(1, 10))):
        fields = {"event_id": f"e{next(numbers)}", "time": draw(TIMES), "retry": draw(st.sampled_from([None, True]))}
        fields["recovery"] = draw(st.sampled_from([None, False, True]))
        fields["event"] = draw(st.sampled_from(list(EventName)))
        if charges and draw(st.booleans()):
            charge = dict(draw(st.sampled_from(charges)))
            fields |= charge.pop("owner")
            told = draw(st.sets(st.sampled_from(["cost_microusd", "price_source", "input_tokens", "output_tokens"])))
            told |= {"price_source"} if "cost_microusd" in told else set()
            fields |= {name: charge[name] for name in {"charge_id", "charge_source", *told}}
        else:
            fields |= draw(st.sampled_from(attempts))
        events.append(event(**fields))
    return events


def rollups(store):
    """Return every derived row; workflows by their name, as their number tells who came first."""
    names = {row.workflow_pk: row.workflow_id for row in rows(store, schema.workflows)}
    found = {}
    for table in ROLLUPS:
        found[table.name] = sorted(
            (
                {
                    name: names[value] if name == "workflow_pk" else value
                    for name, value in row._mapping.items()
                    if name != "scope_pk"
                }
                for row in rows(store, table)
                # A sum that has gone back to nothing says nothing.
                if table not in {schema.days, schema.attempt_days} or any((row.charges, getattr(row, "attempts", 0)))
            ),
            key=repr,
        )
    return found


def rows(store, table):
    return store.read(
        lambda connection: connection.execute(sa.select(table).order_by(*table.primary_key.columns)).all()
    )


def take(taking: Ingest, events: Iterable[Event], scope: str = "local") -> list[Result]:
    return [taking.accept_all(scope, [each])[0] for each in events]


@SETTINGS
@given(events=consistent(), data=st.data())
def test_order_and_repetition_change_nothing_without_conflict(store, taking, events, data):
    emptied(store)
    assert set(take(taking, events)) == {Result.ACCEPTED}
    expected = rollups(store)

    emptied(store)
    again = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=4))))
    results = Counter(take(taking, again))

    assert results == Counter({Result.ACCEPTED: len(events), Result.REPLAYED: len(again) - len(events)}) + Counter()
    assert rollups(store) == expected
    assert recount.check(store).is_sound


@st.composite
def anything(draw):
    """Events that contradict each other in every way: few ids, few values."""
    few = st.sampled_from
    fields = {
        "event_id": draw(few([f"e{n}" for n in range(6)])), "workflow_id": draw(few(["w0", "w1"])),
        "operation_id": draw(few(["o0", "o0", "o1"])), "run_id": draw(few(["r0", "r0", "r1"])),
        "attempt_id": draw(few(["a0", "a1"])), "event": draw(few(list(EventName))), "time": draw(TIMES),
        "retry": draw(few([None, True])), "recovery": draw(few([None, True])),
    }  # fmt: skip
    if draw(st.booleans()):
        fields |= {
            "charge_id": draw(few(["c0", "c1"])), "charge_source": "x", "price_source": draw(few(["p", "p", "q"])),
            "cost_microusd": draw(few([None, 1, 2])), "input_tokens": draw(few([None, 5, 6])),
            "cached_basis": draw(few([None, *CachedBasis])),
        }  # fmt: skip
    return event(**fields)


@SETTINGS
@given(events=st.lists(anything(), min_size=1, max_size=25))
def test_a_recount_always_says_the_same_whatever_was_refused(store, taking, events):
    emptied(store)

    take(taking, events)

    assert recount.check(store).is_sound
    refused = {row.workflow_id: row.refused for row in rows(store, schema.workflows)}
    assert sum(refused.values()) == len(rows(store, schema.refusals))
    assert plain(store) == shown(store)


def plain(store):
    """Count the accepted events once more, in the most simple-minded way there is."""
    accepted = [derivation.event_of(row.body) for row in rows(store, schema.events)]
    attempts, charges = {}, {}
    for each in accepted:
        attempts.setdefault(each.attempt_id, []).append(each)
        if each.charge_id:
            charges.setdefault((each.charge_source, each.charge_id), []).append(each)
    cost = sum(next((e.cost_microusd for e in told if e.cost_microusd is not None), 0) for told in charges.values())
    repeated = {attempt for attempt, told in attempts.items() if any(e.retry or e.recovery for e in told)}
    priced = {key for key, told in charges.items() if any(e.cost_microusd is not None for e in told)}
    return {
        "attempts": len(attempts), "cost": cost, "charges": len(charges), "priced": len(priced),
        "repeated": sum(
            next((e.cost_microusd for e in told if e.cost_microusd is not None), 0)
            for told in charges.values() if told[0].attempt_id in repeated
        ),
        "retries": sum(any(e.retry for e in told) for told in attempts.values()),
        "completed": sum(any(e.event == "completed" for e in told) for told in attempts.values()),
        "unpriced attempts": len(attempts.keys() - {charges[key][0].attempt_id for key in priced}),
        "first day": min(int(e.time // DAY_S) for e in accepted),
    }  # fmt: skip


def shown(store):
    queries = queries_on(store)
    totals = queries.totals(WHOLE)
    lines = list(rows(store, schema.workflows))
    assert totals.sums.cost_microusd == sum(join(row.cost_hi, row.cost_lo) for row in lines)
    for named in (queries.by_source(WHOLE), queries.by_price_source(WHOLE)):
        assert sum(each.sums.cost_microusd for each in named) == totals.sums.cost_microusd
    days = queries.over_time(WHOLE)
    assert sum(each.first.cost_microusd + each.repeated.cost_microusd for each in days) == totals.sums.cost_microusd
    return {
        "attempts": totals.attempts, "cost": totals.sums.cost_microusd, "charges": totals.sums.charges,
        "priced": totals.sums.priced, "repeated": totals.repeated.cost_microusd, "retries": totals.retries,
        "completed": totals.attempts_by_outcome[Outcome.COMPLETED], "unpriced attempts": totals.unpriced_attempts,
        "first day": min(row.first_us for row in lines) // DAY_US,
    }  # fmt: skip
