"""What was observed long ago goes, and no total changes: at any moment, however often, whatever comes meanwhile."""

from __future__ import annotations

import re
import threading

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from continuity.errors import ConflictError, UnavailableError
from observations import pruning, recount, schema
from observations.acceptance import Result
from observations.answers import WorkflowFilter
from observations.costs import SECOND_US
from observations.ingest import Ingest
from tests.integration.test_observations_rollups import SETTINGS, anything, rows, take
from tests.observing import WHOLE, charge, emptied, event, priced, queries_on, taking_on

BEFORE = 100_000
OLD, YOUNG = BEFORE - 1, BEFORE
KEPT = (schema.days, schema.pairs, schema.workflows)
GONE = (schema.events, schema.attempts, schema.attempt_days, schema.charges, schema.refusals)


def prune(store, *, before: float = BEFORE, scope: str = "local", **options):
    return pruning.prune(store, scope, before_us=int(before * SECOND_US), **options)


def totals(store):
    queries = queries_on(store)
    page = queries.workflows(WorkflowFilter(WHOLE), actor="me")
    return [
        queries.totals(WHOLE), queries.over_time(WHOLE), queries.by_source(WHOLE), queries.by_price_source(WHOLE),
        page.workflows,
    ]  # fmt: skip


def old_and_young(taking: Ingest) -> None:
    old = {"attempt_id": "old", "run_id": "r_old", "time": OLD}
    young = {"attempt_id": "young", "run_id": "r_young", "time": YOUNG, "recovery": True}
    told = [
        event(**old), priced(7, "c_old", **old), charge("c_unpriced", **old), event(**old, event="completed"),
        priced(8, "c_old", **old), event(**young), priced(5, "c_young", **young), priced(6, "c_young", **young),
    ]  # fmt: skip
    assert take(taking, told).count(Result.REFUSED) == 2


def test_what_is_old_goes_and_no_total_changes(store, taking):
    old_and_young(taking)
    before = totals(store)

    gone = prune(store)

    assert gone == pruning.Pruned(runs=1, attempts=1, charges=2, events=4, refusals=1)
    assert totals(store) == before
    assert [len(rows(store, table)) for table in GONE] == [2, 1, 1, 1, 1]
    found = queries_on(store).attempts("local", "wf_1", actor="me")
    assert [line.attempt_id for line in found.attempts] == ["young"]
    assert recount.check(store).is_sound


def test_the_count_says_beforehand_what_would_go_and_changes_nothing(store, taking):
    old_and_young(taking)
    everything = [rows(store, table) for table in schema.metadata.sorted_tables]

    counted = pruning.count(store, "local", before_us=BEFORE * SECOND_US)

    assert [rows(store, table) for table in schema.metadata.sorted_tables] == everything
    assert counted == prune(store)
    assert pruning.count(store, "local", before_us=BEFORE * SECOND_US) == pruning.Pruned()


def test_very_many_charges_of_an_attempt_go_a_few_at_a_time_and_no_total_changes(store, taking, monkeypatch):
    monkeypatch.setattr(pruning, "ROWS_READ", 2)
    old = {"attempt_id": "old", "run_id": "r_old", "time": OLD}
    told = [priced(number, f"c{number}", **old) for number in range(5)]
    told += [priced(100 + number, "c1", **old) for number in range(3)]
    assert take(taking, told).count(Result.REFUSED) == 3
    before, asked = totals(store), []

    @sa.event.listens_for(store.engine, "before_cursor_execute")
    def note(_connection, _cursor, statement, *_):
        asked.append(statement)

    gone = prune(store)
    sa.event.remove(store.engine, "before_cursor_execute", note)

    assert (gone.charges, gone.refusals) == (5, 3)
    assert totals(store) == before
    assert rows(store, schema.charges) == rows(store, schema.refusals) == []
    assert recount.check(store).is_sound
    reads = re.compile(r"SELECT(?!.*count\().*FROM observations_(charges|refusals)\b", re.DOTALL)
    of_charges = [each for each in asked if reads.match(each)]
    assert of_charges
    assert all("LIMIT" in each for each in of_charges)


def test_of_a_run_that_goes_on_nothing_goes(store, taking):
    ends = [event(attempt_id="a2", time=OLD), event(attempt_id="a2", time=YOUNG)]
    take(taking, [event(attempt_id="a1", time=OLD), *ends])

    assert prune(store) == pruning.Pruned()
    assert len(rows(store, schema.attempts)) == 2


def test_another_scope_and_an_unknown_one_stay_as_they_are(store, taking):
    take(taking, [event(time=OLD)], scope="other")

    assert prune(store) == prune(store, scope="nobody") == pruning.Pruned()
    assert taking.accept("local", event(time=OLD)) is False


def test_what_is_told_again_after_it_was_pruned_is_not_counted_twice(store, taking):
    told = [priced(7, time=OLD, event_id="e1"), event(time=OLD, event_id="e2")]
    take(taking, told)
    prune(store)
    before = totals(store)

    assert take(taking, [*told, priced(9, "another", time=OLD)]) == [Result.PRUNED] * 3
    with pytest.raises(ConflictError) as raised:
        taking.accept("local", told[0])

    assert raised.value.code == "event_conflict"
    assert totals(store) == before
    assert recount.check(store).is_sound


def test_a_kept_event_of_that_time_is_still_known(store, taking):
    told = [event(time=OLD, event_id="e1"), event(time=YOUNG, event_id="e2")]
    take(taking, told)
    prune(store)

    assert take(taking, told) == [Result.REPLAYED] * 2


def test_a_later_charge_of_a_pruned_id_is_a_new_one_without_the_old_contradiction(store, taking):
    take(taking, [priced(7, time=OLD), priced(8, time=OLD)])
    prune(store)

    take(taking, [priced(3, attempt_id="at_2", time=YOUNG)])

    (line,) = queries_on(store).find(["local"], "wf_1")
    assert (line.sums.cost_microusd, line.sums.charges, line.sums.conflicting, line.refused) == (10, 2, 1, 1)
    assert recount.check(store).is_sound


def test_a_workflow_that_goes_on_for_years_is_pruned_again_and_again(store, taking):
    for number in range(4):
        take(taking, [priced(1, f"c{number}", attempt_id=f"a{number}", run_id=f"r{number}", time=OLD + number)])
        prune(store, before=OLD + number)
        assert recount.check(store).is_sound
    prune(store, before=OLD + 4)

    (line,) = queries_on(store).find(["local"], "wf_1")
    assert (line.first_us, line.last_us, line.runs) == (OLD * SECOND_US, (OLD + 3) * SECOND_US, 4)
    assert recount.check(store).is_sound


def test_a_rebuild_after_it_makes_everything_right_again(store, taking):
    old_and_young(taking)
    prune(store)
    before = totals(store)

    def damage(connection):
        connection.execute(sa.delete(schema.workflows))
        connection.execute(sa.update(schema.days).values(attempts=schema.days.c.attempts + 5))
        connection.execute(sa.delete(schema.pairs))

    store.write(damage)
    assert not recount.check(store).is_sound
    recount.rebuild(store)

    assert totals(store) == before
    assert recount.check(store).is_sound


def test_one_that_was_cut_off_is_sound_and_goes_on_where_it_was(store, taking, monkeypatch):
    monkeypatch.setattr(pruning, "EVENTS_AT_ONCE", 3)
    take(taking, [priced(n, f"c{n}", attempt_id=f"a{n}", run_id=f"r{n % 2}", time=OLD) for n in range(10)])
    before = totals(store)

    class Cut(Exception):
        """The process ends here."""

    def cut(done):
        if done.attempts >= 3:
            raise Cut

    with pytest.raises(Cut):
        prune(store, progress=cut)
    assert 0 < len(rows(store, schema.attempts)) < 10
    assert (totals(store), recount.check(store).is_sound) == (before, True)

    gone = prune(store)

    assert gone.runs == 2
    assert rows(store, schema.events) == []
    assert (totals(store), recount.check(store).is_sound) == (before, True)


def test_an_attempt_that_is_heard_of_meanwhile_stays(store, taking):
    take(taking, [event(attempt_id="a1", time=OLD)])

    class Late:
        """A store on which an event comes after the reading and before the writing."""

        is_postgresql = store.is_postgresql
        writes = 0

        def read(self, work):
            return store.read(work)

        def write(self, work):
            self.writes += 1
            if self.writes == 2:
                taking.accept("local", event(attempt_id="a1", time=YOUNG))
            return store.write(work)

    assert prune(Late()) == pruning.Pruned()
    assert len(rows(store, schema.events)) == 2
    assert recount.check(store).is_sound


def test_storage_that_ends_in_the_middle_leaves_what_was_told(store, taking):
    take(taking, [event(time=OLD)])

    class Broken:
        is_postgresql = store.is_postgresql
        read = staticmethod(store.read)
        writes = 0

        def write(self, work):
            self.writes += 1
            if self.writes > 1:
                raise UnavailableError("The disk is full.")
            return store.write(work)

    with pytest.raises(UnavailableError):
        prune(Broken())
    assert len(rows(store, schema.events)) == 1
    assert recount.check(store).is_sound


def test_two_at_once_while_events_come_keep_every_total(store):
    taking = taking_on(store)
    take(taking, [priced(1, f"c{n}", attempt_id=f"a{n}", run_id=f"r{n}", time=OLD) for n in range(30)])
    failures = []

    def safely(work):
        try:
            work()
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)

    work = [lambda: prune(store), lambda: prune(store), lambda: take(
        taking, [priced(1, f"d{n}", attempt_id=f"b{n}", run_id=f"r{n}", time=YOUNG) for n in range(30)]
    )]  # fmt: skip
    threads = [threading.Thread(target=safely, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    (line,) = queries_on(store).find(["local"], "wf_1")
    assert (line.sums.cost_microusd, line.attempts) == (60, 60)
    assert recount.check(store).is_sound


@settings(SETTINGS, max_examples=15)
@given(events=st.lists(anything(), min_size=1, max_size=20), before=st.sampled_from([1, 86_400, 86_408, 300_000]))
def test_whatever_came_and_was_refused_no_total_changes(store, taking, events, before):
    emptied(store)
    first, second = events[: len(events) // 2], events[len(events) // 2 :]
    take(taking, first)
    shown = totals(store)

    counted = pruning.count(store, "local", before_us=before * SECOND_US)
    gone = prune(store, before=before)

    assert counted.attempts == gone.attempts
    assert counted.events == gone.events
    assert totals(store) == shown
    assert recount.check(store).is_sound
    take(taking, second)
    assert recount.check(store).is_sound
    prune(store, before=before + 1)
    assert recount.check(store).is_sound
