"""What an event does to what is known, and what is refused (observations.md, "Rules")."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from continuity.errors import ConflictError, ThrottledError, UnavailableError
from observations import acceptance, comparison, ingest, pairs, recount, schema
from observations.acceptance import Result
from observations.answers import Range, WorkflowFilter
from observations.costs import CostState, Outcome
from observations.events import AMOUNT_MAX
from observations.ingest import Ingest
from tests.observing import NOW_US, WHOLE, charge, event, priced, queries_on, taking_on
from tests.patience import PATIENCE_S

DAY_S = 86_400


def totals(store):
    return queries_on(store).totals(WHOLE)


def line(store, workflow_id="wf_1", scope="local"):
    (found,) = queries_on(store).find([scope], workflow_id)
    return found


def lines_of(store, workflow_id="wf_1"):
    return queries_on(store).attempts("local", workflow_id, actor="me").attempts


def rows(store, table):
    return store.read(
        lambda connection: connection.execute(sa.select(table).order_by(*table.primary_key.columns)).all()
    )


def accept(taking, *events):
    return [taking.accept("local", each) for each in events]


def refuse(taking, each):
    with pytest.raises(ConflictError) as refused:
        taking.accept("local", each)
    assert refused.value.code == "event_conflict"


# --- Replays and ids ---


def test_the_same_event_again_is_replayed_and_changes_nothing(store, taking):
    assert accept(taking, priced(7, event_id="e"), priced(7, event_id="e")) == [False, True]
    assert totals(store).sums.cost_microusd == 7


def test_a_number_spelled_otherwise_is_the_same_number(store, taking):
    assert accept(taking, event(event_id="e", time=5), event(event_id="e", time=5.0)) == [False, True]


def test_an_id_with_another_body_is_refused_each_time_and_counted_once(store, taking):
    accept(taking, event(event_id="e"))

    for _ in range(3):
        refuse(taking, event(event_id="e", time=2_000))

    assert (line(store).refused, len(rows(store, schema.refusals))) == (1, 1)
    assert line(store).last_us == 1_000_000_000


def test_a_refused_id_stays_refused_when_it_comes_with_what_would_be_fine(store, taking):
    accept(taking, event(attempt_id="a"))
    refuse(taking, event(event_id="e", attempt_id="a", run_id="another"))

    refuse(taking, event(event_id="e", attempt_id="a"))

    assert line(store).refused == 2


def test_ids_are_of_one_scope(store, taking):
    accept(taking, priced(7, event_id="e"))

    assert taking.accept("other", priced(8, event_id="e", run_id="else")) is False
    assert line(store, scope="other").sums.cost_microusd == 8
    assert line(store).sums.cost_microusd == 7


@pytest.mark.parametrize("moved", [{"workflow_id": "wf_2"}, {"operation_id": "op_2"}, {"run_id": "run_2"}])
def test_an_attempt_belongs_to_one_place(store, taking, moved):
    accept(taking, event())

    refuse(taking, event(**moved))

    assert line(store).attempts == 1
    assert queries_on(store).find(["local"], "wf_2") == []


# --- Charges ---


def test_a_charge_belongs_to_one_attempt(store, taking):
    accept(taking, priced(7), event(attempt_id="at_2", workflow_id="wf_2", run_id="run_2"))

    refuse(taking, priced(7, attempt_id="at_2", workflow_id="wf_2", run_id="run_2"))

    assert (line(store).refused, line(store, "wf_2").refused) == (1, 0)
    assert line(store).sums.conflicting == 1
    assert line(store, "wf_2").sums.charges == 0


def test_the_same_charge_id_of_two_sources_is_two_charges(store, taking):
    accept(taking, priced(7), priced(8, charge_source="elsewhere"))

    assert totals(store).sums.charges == 2


@pytest.mark.parametrize(
    "other",
    [
        {"cost_microusd": 8}, {"price_source": "list-2"}, {"input_tokens": 9}, {"output_tokens": 9}, {"model": "n"},
        {"cached_input_tokens": 9}, {"cached_basis": "separate"},
    ],
)  # fmt: skip
def test_what_is_known_never_changes_and_the_charge_shows_as_conflicting(store, taking, other):
    known = {"input_tokens": 1, "output_tokens": 2, "model": "m", "cached_input_tokens": 1, "cached_basis": "included"}
    accept(taking, priced(7, **known))

    for _ in range(2):
        refuse(taking, charge(event_id="liar", **{"price_source": "list-1", **other}))

    (attempt,) = lines_of(store)
    assert attempt.charges[0].charge.cost_microusd == 7
    assert (attempt.charges[0].charge.state, attempt.charges[0].charge.conflicts) == (CostState.CONFLICTING, 1)
    assert (totals(store).sums.conflicting, totals(store).sums.cost_microusd) == (1, 7)


def test_what_is_missing_may_be_filled_in_later(store, taking):
    accept(taking, charge(), charge(input_tokens=5))
    assert (totals(store).sums.unpriced, totals(store).sums.known_cost) == (1, None)

    accept(taking, priced(7))

    assert (totals(store).sums.unpriced, totals(store).sums.known_cost, totals(store).sums.input_tokens) == (0, 7, 5)
    assert [each.name for each in queries_on(store).by_price_source(WHOLE)] == ["list-1"]


def test_a_reported_zero_is_a_real_zero_and_a_missing_cost_is_not(store, taking):
    accept(taking, priced(0, "free"), charge("unknown"))

    assert (totals(store).sums.known_cost, totals(store).sums.unpriced) == (0, 1)
    states = {each.charge_id: each.charge.state for each in lines_of(store)[0].charges}
    assert states == {"free": CostState.REPORTED, "unknown": CostState.UNKNOWN}


def test_a_charge_counts_on_the_day_of_its_earliest_time_whenever_that_comes(store, taking):
    accept(taking, priced(7, time=3 * DAY_S + 1))
    assert [each.day for each in queries_on(store).over_time(WHOLE)] == [3]

    accept(taking, charge(time=2 * DAY_S - 0.000001))

    assert [each.day for each in queries_on(store).over_time(WHOLE)] == [1]
    assert recount.check(store).is_sound


def test_sums_beyond_64_bits_stay_exact_and_leave_as_digits(store, taking):
    count = 2_050
    events = [priced(AMOUNT_MAX, f"c{n}", input_tokens=AMOUNT_MAX) for n in range(count)]
    for start in range(0, count, ingest.BATCH):
        taking.accept_all("local", events[start : start + ingest.BATCH])

    expected = count * AMOUNT_MAX
    assert expected > 2**64
    assert totals(store).sums.cost_microusd == totals(store).sums.input_tokens == expected
    assert line(store).sums.to_json()["cost_microusd"] == str(expected)
    assert queries_on(store).by_source(WHOLE)[0].sums.cost_microusd == expected
    assert recount.check(store).is_sound


# --- Attempts ---


def test_an_outcome_is_the_strongest_seen_in_whatever_order(store, taking):
    for number, order in enumerate((("completed", "unknown"), ("unknown", "blocked"), ("abandoned", "blocked"))):
        accept(taking, *(event(attempt_id=f"a{number}", event=name) for name in order))

    outcomes = {each.attempt_id: each.attempt.outcome for each in lines_of(store)}
    assert outcomes == {"a0": Outcome.COMPLETED, "a1": Outcome.BLOCKED, "a2": Outcome.ABANDONED}
    assert line(store).outcomes[Outcome.UNKNOWN] == 0


def test_what_repetition_cost_moves_when_an_event_says_that_it_was_one(store, taking):
    accept(taking, priced(7), priced(5, "c2", attempt_id="at_2"))
    assert totals(store).repeated.cost_microusd == 0

    accept(taking, event(attempt_id="at_2", retry=True, recovery=True))

    assert totals(store).repeated.cost_microusd == line(store).repeated_microusd == 5
    assert (totals(store).retries, totals(store).recoveries) == (1, 1)
    assert (line(store).attempts, line(store).runs, line(store).unpriced_attempts) == (2, 1, 0)


def test_one_attempt_cannot_spread_over_more_days_than_can_be_moved(store, taking, monkeypatch):
    monkeypatch.setattr(acceptance, "ATTEMPT_DAYS", 3)
    accept(taking, *(priced(1, f"c{n}", time=n * DAY_S) for n in range(3)))

    refuse(taking, priced(1, "c4", time=9 * DAY_S))
    accept(taking, priced(1, "c5", time=2 * DAY_S), event(event="completed", retry=True))

    assert totals(store).by_outcome[Outcome.COMPLETED].cost_microusd == 4
    assert line(store).refused == 1
    assert recount.check(store).is_sound


# --- Five hundred names ---


def test_the_rest_of_a_day_s_names_are_other_whatever_came_first(store, taking, monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS_NAMED", 3)
    monkeypatch.setattr(comparison, "PAIRS_NAMED", 3)
    events = [priced(10**n, f"c{n}", charge_source=f"s{n}", attempt_id=f"a{n}") for n in range(6)]

    def shown(order):
        accept(taking, *order)
        return {each.name: each.sums.cost_microusd for each in queries_on(store).by_source(WHOLE)}

    forwards = shown(events)
    assert len(forwards) == 4
    assert sum(forwards.values()) == 111_111
    assert recount.check(store).is_sound
    store.write(lambda connection: [connection.execute(sa.delete(t)) for t in schema.metadata.sorted_tables])
    assert shown(reversed(events)) == forwards

    # Each charge goes to another day: the names that become free are taken by the rest.
    for n in range(6):
        accept(taking, charge(f"c{n}", charge_source=f"s{n}", attempt_id=f"a{n}", time=0))
        assert recount.check(store).is_sound


# --- Many at once, and trouble ---


def test_many_threads_add_up(store, taking):
    def submit(number):
        return [
            Ingest(store, now_us=lambda: NOW_US, pause_s=0).accept_all(
                "local", [priced(1, f"c{number}-{n}", attempt_id=f"a{n % 3}")]
            )
            for n in range(10)
        ]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(submit, range(4)))

    assert totals(store).sums.cost_microusd == 40
    assert recount.check(store).is_sound


def test_a_batch_is_told_event_by_event(store, taking):
    told = taking.accept_all("local", [event(event_id="e"), event(event_id="e"), event(event_id="e", time=1)])

    assert told == [Result.ACCEPTED, Result.REPLAYED, Result.REFUSED]
    with pytest.raises(ValueError, match="100"):
        taking.accept_all("local", [event()] * 101)


def test_who_comes_in_the_same_moment_as_others_is_not_sent_away(monkeypatch):
    monkeypatch.setattr(ingest, "PLACE_WAIT_S", PATIENCE_S)

    class Slow:
        is_postgresql = True

        def write(self, work):
            time.sleep(0.05)
            return [Result.ACCEPTED]

    taking, together = taking_on(Slow()), threading.Barrier(2 * ingest.PLACES)

    def accept(_number):
        together.wait(PATIENCE_S)
        return taking.accept("local", event())

    with ThreadPoolExecutor(2 * ingest.PLACES) as pool:
        told = list(pool.map(accept, range(2 * ingest.PLACES)))

    assert told == [False] * (2 * ingest.PLACES)


def test_more_than_may_wait_are_told_at_once(monkeypatch):
    # For longer than anybody here is waited for: who waits is not told before the others may leave.
    monkeypatch.setattr(ingest, "PLACE_WAIT_S", 2 * PATIENCE_S)
    entered, leave = threading.Semaphore(0), threading.Event()

    class Slow:
        is_postgresql = True

        def write(self, work):
            entered.release()
            leave.wait(PATIENCE_S)
            return [Result.ACCEPTED]

    slow = taking_on(Slow())
    told = queue.SimpleQueue()

    def accept():
        try:
            told.put(slow.accept("local", event()))
        except ThrottledError:
            told.put("sent away")

    threads = [threading.Thread(target=accept) for _ in range(2 * ingest.PLACES + 1)]
    for thread in threads:
        thread.start()
    first = told.get(timeout=PATIENCE_S)
    assert told.empty()
    leave.set()
    for thread in threads:
        thread.join()

    assert first == "sent away"
    assert [told.get() for _ in range(2 * ingest.PLACES)] == [False] * (2 * ingest.PLACES)


def test_who_finds_all_places_taken_is_told_in_a_second(sqlite_store):
    entered, leave = threading.Semaphore(0), threading.Event()

    class Slow:
        is_postgresql = True

        def write(self, work):
            entered.release()
            assert leave.wait(PATIENCE_S)
            return [Result.ACCEPTED]

    slow = taking_on(Slow())
    threads = [threading.Thread(target=slow.accept, args=("local", event())) for _ in range(ingest.PLACES)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert entered.acquire(timeout=PATIENCE_S)

    waited_s = []

    def wait():
        started = time.monotonic()
        with pytest.raises(ThrottledError):
            slow.accept("local", event())
        waited_s.append(time.monotonic() - started)

    waiting = [threading.Thread(target=wait) for _ in range(ingest.PLACES)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert ingest.PLACE_WAIT_S == 1
    assert len(waited_s) == ingest.PLACES
    assert min(waited_s) >= ingest.PLACE_WAIT_S
    leave.set()
    for thread in threads:
        thread.join()
    assert slow.accept("local", event()) is False


def test_storage_that_cannot_answer_is_unavailable(engine, store, taking):
    def broken(_connection):
        raise UnavailableError("The disk is full.")

    accept(taking, event())
    with pytest.raises(UnavailableError):
        store.write(broken)
    assert line(store).attempts == 1


# --- Recount ---


@pytest.mark.parametrize(
    "damage",
    [
        sa.update(schema.workflows).values(cost_lo=schema.workflows.c.cost_lo + 1),
        sa.update(schema.attempts).values(outcome=0),
        sa.delete(schema.attempts).where(schema.attempts.c.attempt_id == "at_1"),
        sa.update(schema.charges).values(cost_microusd=1),
        sa.delete(schema.charges).where(schema.charges.c.charge_id == "c1"),
        sa.delete(schema.attempt_days),
        sa.update(schema.days).values(attempts=schema.days.c.attempts + 1),
        sa.delete(schema.days),
        sa.delete(schema.pairs),
        sa.update(schema.pairs).values(shown=schema.PAIR_HIDDEN),
        sa.delete(schema.workflows),
    ],
    ids=str,
)
def test_damage_is_found_and_made_good(store, taking, damage):
    accept(taking, priced(7), priced(5, "c2", attempt_id="at_2", retry=True, time=DAY_S), event(event="completed"))
    refuse(taking, priced(9))
    before = everything(store)
    store.write(lambda connection: connection.execute(damage).rowcount)

    found = recount.rebuild(store)

    assert not found.is_sound
    assert found.describe()
    assert recount.check(store).is_sound
    assert everything(store) == before


def everything(store):
    """Return all rows in one order, without sums of days that have gone back to nothing."""
    return {
        table.name: sorted(
            (row for row in rows(store, table) if table is not schema.days or row.charges or row.attempts), key=repr
        )
        for table in schema.metadata.sorted_tables
    }


def test_a_sound_database_is_left_alone(store, taking):
    accept(taking, priced(7), event(event="completed"))
    told = []

    assert recount.rebuild(store, told.append).is_sound
    assert told == [2]


def test_the_list_filters_by_range_and_scope(store, taking):
    accept(taking, event(workflow_id="old", time=0, attempt_id="a1"), event(workflow_id="new", time=5 * DAY_S))

    asked = WorkflowFilter(Range(("local",), 1, 9))

    assert [each.workflow_id for each in queries_on(store).workflows(asked, actor="me").workflows] == ["new"]


def test_of_two_rebuilds_at_once_the_earlier_one_stops_and_nothing_is_corrected_twice(store, taking):
    for number in range(3):
        accept(taking, priced(5, f"c{number}", attempt_id=f"a{number}"))
    for table in (schema.days, schema.pairs):
        store.write(lambda connection, table=table: connection.execute(sa.update(table).values(cost_lo=9)))
    assert not recount.check(store).is_sound

    class Overtaken:
        """A store on which another rebuild runs once this one has read what is wrong."""

        is_postgresql = store.is_postgresql
        reads = 0

        def read(self, work):
            found = store.read(work)
            self.reads += 1
            if self.reads == 1:
                recount.rebuild(store)
            return found

        def write(self, work):
            return store.write(work)

    with pytest.raises(ConflictError):
        recount.rebuild(Overtaken())

    assert recount.check(store).is_sound
    assert totals(store).sums.cost_microusd == 15
