"""The Activity page's answers: what is listed, in which order, and where a page goes on."""

from __future__ import annotations

import base64
import itertools
import json
from itertools import chain

import pytest
import sqlalchemy as sa

from continuity import jsontext
from continuity.errors import MalformedError
from observations import derivation, moves, recount, schema, time_line, transfer, workflow_list
from observations import queries as reading
from observations.answers import DAYS_MOST, SCOPES_MOST, Range, WorkflowFilter
from observations.costs import Cause, Outcome
from observations.cursors import LIFETIME_US
from observations.events import parse_event
from observations.ingest import Ingest
from tests import stepping
from tests.observing import LEAST, NOW_US, WHOLE, charge, event, priced, queries_on

DAY_S = 86_400


@pytest.fixture
def filled(store, taking):
    """Five workflows a day apart in the scope local, one in demo at the third day."""
    for n in range(5):
        taking.accept("local", event(workflow_id=f"wf-{n}", attempt_id=f"at-{n}", run_id=f"r-{n}", time=n * DAY_S))
    taking.accept("local", event(workflow_id="wf-1", attempt_id="at-1", run_id="r-1", event="blocked", time=DAY_S + 1))
    taking.accept("demo", event(workflow_id="wf-d", attempt_id="at-d", run_id="r-d", time=2 * DAY_S))
    return store


def listed(store, asked=None, *, limit=2, actor="me", cursor=None):
    """Return the ids of all pages, page by page."""
    pages = []
    while True:
        asked = asked or WorkflowFilter(WHOLE)
        page = queries_on(store).workflows(asked, actor=actor, limit=limit, cursor=cursor)
        pages.append([each.workflow_id for each in page.workflows])
        cursor = page.next_cursor
        if cursor is None:
            return pages


def test_pages_are_newest_first_over_all_scopes(filled):
    assert listed(filled) == [["wf-4", "wf-3"], ["wf-d", "wf-2"], ["wf-1", "wf-0"]]


def test_demo_data_are_marked_and_can_be_left_out(filled):
    lines = queries_on(filled).workflows(WorkflowFilter(WHOLE), actor="me").workflows

    assert [each.workflow_id for each in lines if each.is_demo] == ["wf-d"]
    assert "wf-d" not in chain(*listed(filled, WorkflowFilter(Range(("local",), 0, 9))))
    assert queries_on(filled).scopes() == ["demo", "local"]


def test_what_comes_while_somebody_pages_is_neither_shown_nor_moves_the_rest(filled, taking):
    first = queries_on(filled).workflows(WorkflowFilter(WHOLE), actor="me", limit=2)
    taking.accept("local", event(workflow_id="late", attempt_id="late", run_id="late", time=3 * DAY_S - 5))
    taking.accept("local", event(workflow_id="newest", attempt_id="newest", run_id="newest", time=9 * DAY_S))

    assert listed(filled, cursor=first.next_cursor) == [["wf-d", "wf-2"], ["wf-1", "wf-0"]]


def test_filters_by_time_and_outcome(filled):
    assert listed(filled, WorkflowFilter(Range(("local", "demo"), 2, 3))) == [["wf-3", "wf-d"], ["wf-2"]]
    assert listed(filled, WorkflowFilter(WHOLE, Outcome.BLOCKED)) == [["wf-1"]]
    assert listed(filled, WorkflowFilter(WHOLE, Outcome.COMPLETED)) == [[]]


def test_a_search_finds_the_beginning_of_an_id_and_a_whole_attempt_id(filled, monkeypatch):
    assert listed(filled, WorkflowFilter(WHOLE, search="wf-")) == [["wf-0", "wf-1"], ["wf-2", "wf-3"], ["wf-4", "wf-d"]]
    assert listed(filled, WorkflowFilter(WHOLE, search="at-3")) == [["wf-3"]]
    assert listed(filled, WorkflowFilter(WHOLE, search="f-")) == [[]]
    assert listed(filled, WorkflowFilter(WHOLE, Outcome.BLOCKED, search="wf"), limit=1) == [["wf-1"], []]

    monkeypatch.setattr(workflow_list, "_CANDIDATES", 2)
    pages = listed(filled, WorkflowFilter(WHOLE, Outcome.BLOCKED, search="wf"), limit=5)
    assert list(chain(*pages)) == ["wf-1"]


def test_a_search_reads_few_more_workflows_than_it_shows(store, taking):
    """Not a thousand of each scope, where a thousand begin so."""
    if store.is_postgresql:
        pytest.skip("steps are those of SQLite")
    scopes, ids = ("local", "demo", "other"), itertools.count()

    def add(count):
        for scope, n in itertools.product(scopes, itertools.islice(ids, count)):
            taking.accept(scope, event(workflow_id=f"wf-{n:04}-{scope}", attempt_id=f"at-{n}", run_id=f"r-{n}"))

    def cost(expected):
        asked = WorkflowFilter(WHOLE, search="wf-")
        page = queries_on(store).workflows(asked, actor="me", limit=5, cursor=None)
        assert [each.workflow_id for each in page.workflows] == expected
        return stepping.steps(store.engine, lambda: queries_on(store).workflows(asked, actor="me", limit=5))

    add(6)
    first = ["wf-0000-demo", "wf-0000-local", "wf-0000-other", "wf-0001-demo", "wf-0001-local"]
    few = cost(first)
    add(300)
    assert cost(first) <= few + 2


def test_a_search_goes_on_after_an_attempt_that_fills_its_first_page(filled, taking):
    taking.accept("local", event(workflow_id="at-3-late", attempt_id="at-9", run_id="r-9", time=0))

    assert listed(filled, WorkflowFilter(WHOLE, search="at-3"), limit=1) == [["wf-3"], ["at-3-late"]]


@pytest.mark.parametrize("at_once", [1, 2, 3, 8])
def test_pages_of_a_search_show_each_workflow_of_every_scope_once(filled, taking, at_once):
    for scope, n in itertools.product(("local", "other"), range(7)):
        taking.accept(scope, event(workflow_id=f"both-{n}", attempt_id=f"b-{n}", run_id="r", time=DAY_S))

    shown = list(chain(*listed(filled, WorkflowFilter(WHOLE, search="both"), limit=at_once)))

    assert shown == sorted([f"both-{n}" for n in range(7)] * 2)


@pytest.mark.parametrize("limit", [0, -1, 201, 10**9])
def test_a_page_has_a_bounded_size(filled, limit):
    with pytest.raises(MalformedError):
        queries_on(filled).workflows(WorkflowFilter(WHOLE), actor="me", limit=limit)


def test_a_range_has_bounds():
    for scopes, first, last in ((("a",), 1, 0), (("a",), 0, DAYS_MOST), (("a",) * (SCOPES_MOST + 1), 0, 1)):
        with pytest.raises(MalformedError):
            Range(scopes, first, last)


# --- Cursors (C01) ---


def test_a_cursor_is_good_for_its_person_and_question_alone(filled):
    cursor = queries_on(filled).workflows(WorkflowFilter(WHOLE), actor="me", limit=2).next_cursor
    asks = [
        lambda: listed(filled, actor="you", cursor=cursor),
        lambda: listed(filled, WorkflowFilter(WHOLE, Outcome.BLOCKED), cursor=cursor),
        lambda: listed(filled, WorkflowFilter(Range(("local",), 0, 9)), cursor=cursor),
        lambda: queries_on(filled).attempts("local", "wf-1", actor="me", cursor=cursor),
        lambda: queries_on(filled, now_us=NOW_US + 901 * 10**6).workflows(
            WorkflowFilter(WHOLE), actor="me", cursor=cursor
        ),
    ]

    said = set()
    for ask in asks:
        with pytest.raises(MalformedError) as refused:
            ask()
        said.add(refused.value.message)
    assert len(said) == 1


def test_a_cursor_with_any_bit_changed_is_refused(filled):
    cursor = queries_on(filled).workflows(WorkflowFilter(WHOLE), actor="me", limit=2).next_cursor
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    flipped = [
        base64.urlsafe_b64encode(raw[:n] + bytes([raw[n] ^ 1]) + raw[n + 1 :]).rstrip(b"=").decode()
        for n in range(len(raw))
    ]

    for changed in [*flipped, cursor + "!", cursor + "A", cursor[:-1], "", "x" * 5_000, "é"]:
        with pytest.raises(MalformedError):
            queries_on(filled).workflows(WorkflowFilter(WHOLE), actor="me", cursor=changed)


# --- One workflow ---


def test_a_workflow_is_shown_attempt_by_attempt_with_its_charges(store, taking, monkeypatch):
    monkeypatch.setattr(time_line, "CHARGES_SHOWN", 2)
    for n in range(3):
        taking.accept("local", event(attempt_id=f"a{n}", time=10 - n, run_id=f"r{n}"))
    for n in range(4):
        taking.accept("local", priced(n, f"c{n}", attempt_id="a1", run_id="r1", time=20 + n, retry=True))

    first = queries_on(store).attempts("local", "wf_1", actor="me", limit=2)
    rest = queries_on(store).attempts("local", "wf_1", actor="me", limit=2, cursor=first.next_cursor)

    assert [each.attempt_id for each in (*first.attempts, *rest.attempts)] == ["a2", "a1", "a0"]
    retried = first.attempts[1]
    assert (retried.sums.charges, retried.sums.cost_microusd) == (4, 6)
    assert [each.charge_id for each in retried.charges] == ["c0", "c1"]
    assert retried.attempt.cause is Cause.RETRY
    assert first.attempts[0].sums.known_cost is None
    assert rest.next_cursor is None
    assert first.workflow.runs == 3


def test_a_workflow_that_the_scope_does_not_know_is_none(filled):
    assert queries_on(filled).attempts("demo", "wf-1", actor="me") is None
    assert queries_on(filled).find(["demo", "nowhere"], "wf-1") == []


def test_missing_is_null_and_amounts_are_digits_in_a_download(store, taking):
    taking.accept("local", charge())

    (line,) = queries_on(store).find(["local"], "wf_1")

    shown = line.to_json()
    assert (shown["cost_microusd"], shown["input_tokens"], shown["repeated_cost_microusd"]) == (None, None, None)
    assert (shown["unpriced"], shown["outcomes"]["open"]) == (1, 1)
    json.dumps(shown)


def test_sources_beyond_the_list_are_one_line(store, taking, monkeypatch):
    monkeypatch.setattr(reading, "NAMES_SHOWN", 2)
    for n in range(4):
        taking.accept("local", priced(10**n, f"c{n}", charge_source=f"s{n}", price_source=f"p{n}"))

    found = queries_on(store).by_price_source(WHOLE)

    assert [(each.name, each.is_other, each.sums.cost_microusd) for each in found] == [
        ("p3", False, 1_000), ("p2", False, 100), (None, True, 11),
    ]  # fmt: skip


def test_charges_without_a_price_source_stand_under_no_name(store, taking):
    taking.accept("local", charge())

    (found,) = queries_on(store).by_price_source(WHOLE)

    assert (found.name, found.is_other, found.sums.unpriced) == (None, False, 1)


# --- In and out ---


def lines(*events):
    return [jsontext.canonical_bytes(each.to_json()) + b"\n" for each in events]


def test_what_is_exported_can_be_imported_elsewhere_and_again(store, taking):
    for each in (priced(7), event(attempt_id="a2", retry=True), event(event="completed")):
        taking.accept("local", each)
    exported = [jsontext.canonical_bytes(each) for each in transfer.export_events(store, "local")]

    first = transfer.import_lines(taking, "other", exported)
    again = transfer.import_lines(taking, "other", exported)

    assert (first.accepted, again.accepted, again.replayed) == (3, 0, 3)
    (copy,) = queries_on(store).find(["other"], "wf_1")
    (original,) = queries_on(store).find(["local"], "wf_1")
    assert copy.to_json() | {"scope": "local"} == original.to_json()
    assert recount.check(store).is_sound


def test_an_import_tells_what_is_wrong_by_line_and_takes_the_rest(store, taking):
    bad = [b"{}\n", b"\n", b"[1]\n", b"x" * 9_000, b'{"format": "atmem.continuity.v1", "cost_usd": 1}\n']

    done = transfer.import_lines(
        taking, "local", [*lines(priced(7, event_id="e")), *bad, *lines(priced(8, event_id="f"))]
    )

    assert (done.accepted, done.refused, done.malformed, done.line) == (1, 1, 4, 7)
    assert [message.partition(":")[0] for message in done.messages] == [f"Line {number}" for number in (2, 4, 5, 6, 7)]


def test_an_import_that_was_cut_off_goes_on_where_it_was(store, taking):
    events = [event(attempt_id=f"a{n}") for n in range(60)]
    told = []

    def cut(done):
        told.append(done.line)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfer.import_lines(taking, "local", lines(*events), progress=cut)
    done = transfer.import_lines(taking, "local", lines(*events), start_line=told[-1] + 1)

    assert told == [25, 50]
    assert (done.accepted, done.line) == (10, 60)
    assert transfer.import_lines(taking, "local", []).line == 0


def test_attempts_are_exported_with_all_their_charges(store, taking):
    taking.accept("local", priced(7))
    taking.accept("local", priced(8, "c2"))
    taking.accept("demo", priced(9))

    (costs,) = (
        [charge.cost_microusd for _, charge in each.charges] for each in transfer.export_attempts(store, "local")
    )

    assert costs == [7, 8]
    assert list(transfer.export_attempts(store, "nowhere")) == []


def test_very_many_charges_of_an_attempt_are_exported_a_few_at_a_time(store, taking, monkeypatch):
    monkeypatch.setattr(transfer, "_READ", 2)
    sizes = []

    class Measured:
        def read(self, work):
            rows = store.read(work)
            sizes.append(len(rows))
            return rows

    for attempt_id, charges in {"a1": 5, "a2": 0, "a3": 2, "a4": 1, "a5": 3}.items():
        taking.accept("local", event(attempt_id=attempt_id))
        for number in range(charges):
            taking.accept("local", priced(number, f"{attempt_id}-c{number}", attempt_id=attempt_id))

    exported = transfer.export_attempts(Measured(), "local")
    found = {each.attempt_id: [(*names, charge.cost_microusd) for names, charge in each.charges] for each in exported}

    assert {attempt_id: [cost for *_, cost in charges] for attempt_id, charges in found.items()} == {
        "a1": [0, 1, 2, 3, 4], "a2": [], "a3": [0, 1], "a4": [0], "a5": [0, 1, 2],
    }  # fmt: skip
    assert [charge_id for _, charge_id, _ in found["a3"]] == ["a3-c0", "a3-c1"]
    assert max(sizes) == 2
    passed_over = [each.attempt_id for each in transfer.export_attempts(store, "local")]
    assert passed_over == ["a1", "a2", "a3", "a4", "a5"]


def test_what_is_kept_of_an_event_is_the_event():
    sent = event(retry=True, time=1.25)

    assert derivation.event_of(jsontext.canonical_bytes({**LEAST, **sent.to_json()})) == parse_event(sent.to_json())


# --- What moves while it is being read (C02) ---


def every_workflow(queries, *, between):
    """Read the list to its end, two at a time; `between` is called between two pages."""
    cursor, shown = None, []
    while True:
        page = queries.workflows(WorkflowFilter(WHOLE), actor="me", limit=2, cursor=cursor)
        shown += [line.workflow_id for line in page.workflows]
        cursor = page.next_cursor
        if cursor is None:
            return shown
        between()


def test_a_workflow_whose_first_time_moves_while_the_list_is_read_is_listed_once(store, taking):
    names = [f"w{n}" for n in range(6)]
    for number, name in enumerate(names):
        taking.accept("local", event(workflow_id=name, attempt_id=f"a_{name}", time=1_000_000 - number))
    late = itertools.cycle(names)
    times = itertools.count(900_000, -1)

    def move():
        for _ in range(4):
            name = next(late)
            taking.accept("local", event(workflow_id=name, attempt_id=f"a_{name}", time=next(times)))

    assert sorted(every_workflow(queries_on(store), between=move)) == names


def test_an_attempt_whose_first_time_moves_while_the_time_line_is_read_is_listed_once(store, taking):
    names = [f"a{n}" for n in range(7)]
    for number, name in enumerate(names):
        taking.accept("local", event(attempt_id=name, time=1_000 + number))
    queries, cursor, shown = queries_on(store), None, []
    for late in itertools.count():
        page = queries.attempts("local", "wf_1", actor="me", limit=2, cursor=cursor)
        shown += [line.attempt_id for line in page.attempts]
        cursor = page.next_cursor
        if cursor is None:
            break
        # One that was shown, one that was not, and one that stands at the very end, all before what was shown.
        for name in ("a0", f"a{late + 3}", "a6"):
            taking.accept("local", event(attempt_id=name, time=500 - late))

    assert shown == names


def test_a_cursor_of_a_time_line_that_has_moved_too_much_is_refused(store, taking, monkeypatch):
    monkeypatch.setattr(moves, "MOVED_MOST", 1)
    for number in range(4):
        taking.accept("local", event(attempt_id=f"a{number}", time=1_000 + number))
    queries = queries_on(store)
    cursor = queries.attempts("local", "wf_1", actor="me", limit=2).next_cursor
    for number in (2, 3):
        taking.accept("local", event(attempt_id=f"a{number}", time=10))

    with pytest.raises(MalformedError):
        queries.attempts("local", "wf_1", actor="me", limit=2, cursor=cursor)
    assert len(queries.attempts("local", "wf_1", actor="me", limit=4).attempts) == 4


def test_moves_are_kept_no_longer_than_a_cursor_is_good(store):
    clock = [NOW_US]
    taking = Ingest(store, now_us=lambda: clock[0], pause_s=0)
    for number in range(5):
        taking.accept("local", event(time=1_000 - number))
        clock[0] += LIFETIME_US + 1

    assert len(store.read(lambda connection: connection.execute(sa.select(schema.moves)).all())) == 2


def test_charges_of_one_moment_are_in_one_order(store, taking):
    for name in ("c3", "c1", "c2"):
        taking.accept("local", priced(1, name))

    (line,) = queries_on(store).attempts("local", "wf_1", actor="me").attempts
    assert [each.charge_id for each in line.charges] == ["c1", "c2", "c3"]
