"""Reading evidence: lists and searches, a run in its order, what a hand in the database cannot hide, manifests."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError as ConstraintError

from continuity import limits
from continuity.errors import IntegrityError, MalformedError, NotFoundError
from continuity.evidence import SearchEvidence
from continuity.services.callers import CallerKind, Role
from continuity.store import evidence as statements
from continuity.store import schema
from tests.integration.recorded import Recorded, recorded
from tests.integration.tampering import past_triggers

RECORDS = schema.evidence


@pytest.fixture
def at(store, tmp_path) -> Recorded:
    return recorded(store, tmp_path)


def edit(at: Recorded, statement) -> None:
    past_triggers(at.at.store, lambda connection: connection.execute(statement))


# --- lists ---


def test_a_list_shows_the_newest_first_page_by_page(at):
    at.several(5)

    assert at.found(limit=2) == [f"run-1-{number}" for number in (4, 3, 2, 1, 0)]


def test_a_search_finds_whole_words_however_they_are_written(at):
    at.record(event_id="a", content="The HARBOUR, at dawn")
    at.record(event_id="b", content={"tool": "mail", "text": ["harbour-master", {"n": 42}]})
    at.record(event_id="c", content="harbours")

    assert at.found(search="harbour") == ["b", "a"]
    assert at.found(search="Harbour dawn") == ["a"]
    assert at.found(search="42") == ["b"]
    assert at.found(search="harb") == []
    assert at.found(search="harbour nowhere") == []


def test_filters_hold_together(at):
    at.several(3, run="one", kind="text")
    at.several(3, run="two", kind="tool_call", producer="robot")

    assert at.found(run="one") == ["one-2", "one-1", "one-0"]
    assert at.found(run="two", kind="tool_call", search="word1") == ["two-1"]
    assert at.found(producer="robot", kind="text") == []
    assert at.found(run=at.read("two")["evidence_id"], limit=1) == ["two-2", "two-1", "two-0"]
    assert at.found(search="common", limit=2) == ["two-2", "two-1", "two-0", "one-2", "one-1", "one-0"]


def test_a_time_is_that_of_receipt(at):
    moments = []
    for number in range(5):
        moments.append(at.at.clock.now_us() / 1_000_000)
        at.record(event_id=f"e-{number}")
        at.at.clock.advance(300)

    assert at.found(since=moments[1], until=moments[4]) == ["e-3", "e-2", "e-1"]
    assert at.found(since=moments[4] + 1) == []
    assert at.found(until=moments[0]) == []
    assert at.found(since=moments[3], search="harbour") == ["e-4", "e-3"]


def test_a_search_of_common_words_stops_early_and_goes_on(at, monkeypatch):
    monkeypatch.setattr(statements, "LOOKED_AT_MOST", 3)
    at.several(4, run="one", content="alpha")
    at.several(4, run="two", content="beta")
    at.record(event_id="both", content="alpha beta")
    at.several(4, run="three", content="alpha")

    assert at.found(search="alpha beta") == ["both"]


def test_a_cursor_serves_one_caller_and_one_question(at):
    at.several(3)
    cursor = at.page(limit=1)["next_cursor"]

    for refused in (
        lambda: at.page(limit=1, cursor=cursor, kind="text"),
        lambda: at.page(limit=1, cursor=cursor, by=at.administrator),
        lambda: at.page(limit=1, cursor=cursor + "A"),
        lambda: at.page(limit=1, cursor=cursor[:-1]),
    ):
        with pytest.raises(MalformedError, match="cursor"):
            refused()
    at.at.clock.advance(901)
    with pytest.raises(MalformedError, match="cursor"):
        at.page(limit=1, cursor=cursor)


def test_nobody_sees_the_evidence_of_another_workspace(at):
    at.several(2)
    for stranger in (at.elsewhere(), at.elsewhere(CallerKind.PERSON, Role.INVESTIGATOR)):
        assert at.page(by=stranger)["records"] == []
        assert at.found(by=stranger, search="common") == []
        assert at.page(by=stranger, workspace="default")["records"] == []
        assert at.listed_runs(by=stranger) == []
        own = at.read()["evidence_id"]
        for run in ("run-1", own, "er_" + "0" * 32, "nowhere"):
            with pytest.raises(NotFoundError) as caught:
                at.read(run, by=stranger)
            assert caught.value.message == "There is no such evidence."
        assert at.page(by=stranger, run=own)["records"] == []


def test_runs_are_listed_newest_first(at):
    at.several(2, run="one")
    at.several(1, run="two")

    assert [(run["run_id"], run["records_total"]) for run in at.listed_runs()] == [("two", 1), ("one", 2)]


def test_one_record_that_does_not_open_hides_no_other(at):
    at.several(3)
    edit(at, sa.update(RECORDS).where(RECORDS.c.seq == 2).values(sealed_record=b"damaged"))

    records = at.page()["records"]
    assert [record.get("unreadable", False) for record in records] == [False, True, False]
    assert (records[1]["seq"], records[1]["key_id"]) == (2, 1)
    shown = at.read()
    assert not shown["is_whole"]
    assert [record.get("content") for record in shown["records"]] == ["word0 common", None, "word2 common"]


def test_one_run_whose_key_is_gone_hides_no_other(at):
    at.several(1, run="one")
    at.several(1, run="two")
    edit(at, sa.update(schema.partitions).where(schema.partitions.c.kind == "evidence").values(wrapped_key=b"x" * 65))
    at.several(1, run="three")

    assert [run.get("unreadable", False) for run in at.listed_runs()] == [False, True, True]
    assert [record.get("unreadable", False) for record in at.page()["records"]] == [False, True, True]


def test_no_list_scans_or_sorts_what_it_does_not_show(sqlite_store, tmp_path):
    at, asked = recorded(sqlite_store, tmp_path), []
    at.several(3)
    engine = at.at.store.engine

    def note(_connection, _cursor, statement, parameters, *_rest) -> None:
        if "continuity_evidence" in statement:
            asked.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    now = at.at.clock.now_us() / 1_000_000
    for question in (
        {},
        {"kind": "text"},
        {"search": "common word1"},
        {"run": "run-1", "since": now - 100, "until": now},
    ):
        at.page(**question)
    at.listed_runs()
    at.read()
    sa.event.remove(engine, "before_cursor_execute", note)

    assert len(asked) > 10
    for statement, parameters in asked:
        steps = at.at.store.read(
            lambda c, s=statement, p=parameters: [row[-1] for row in c.exec_driver_sql(f"EXPLAIN QUERY PLAN {s}", p)]
        )
        assert not [step for step in steps if step.startswith("SCAN continuity_") or "TEMP B-TREE" in step], steps


# --- a run in its order ---


def test_a_run_is_read_in_its_order_in_bounded_pages(at, monkeypatch):
    monkeypatch.setattr(limits, "EVIDENCE_PAGE_BYTES", 3_000)
    at.several(7, content="x" * 1_000)

    seqs, after = [], 0
    while after is not None:
        page = at.read(after=after, limit=5)
        assert page["is_whole"]
        assert 1 <= len(page["records"]) <= 2
        seqs += [record["seq"] for record in page["records"]]
        after = page["next_after"]
    assert seqs == list(range(1, 8))


def problems(at: Recorded) -> set[int]:
    shown = at.read()
    assert shown["is_whole"] == (not shown["faults"])
    return {fault["seq"] for fault in shown["faults"]}


def test_an_edit_a_removed_and_an_exchanged_record_are_found(at):
    at.several(5)
    assert problems(at) == set()
    rows = at.at.home.rows(RECORDS)

    def put(seq: int, **values) -> None:
        edit(at, sa.update(RECORDS).where(RECORDS.c.seq == seq).values(values))

    put(2, received_at=rows[1].received_at + 1)
    assert 2 in problems(at)
    put(2, received_at=rows[1].received_at)

    put(3, sealed_record=rows[3].sealed_record)
    assert 3 in problems(at)
    put(3, sealed_record=rows[2].sealed_record, hash=bytes(32))
    assert {3, 4} <= problems(at)
    put(3, hash=rows[2].hash)
    assert problems(at) == set()

    content = schema.evidence_contents
    sealed = at.at.home.rows(content)
    edit(at, sa.update(content).where(content.c.evidence_pk == sealed[0].evidence_pk)
         .values(sealed_content=sealed[1].sealed_content))  # fmt: skip
    assert problems(at) == {1}
    edit(at, sa.delete(content).where(content.c.evidence_pk == sealed[0].evidence_pk))
    assert problems(at) == {1}


def test_a_gap_and_a_cut_end_are_found(at):
    at.several(4)
    edit(at, sa.delete(RECORDS).where(RECORDS.c.seq == 2))
    assert 2 in problems(at)
    edit(at, sa.delete(RECORDS).where(RECORDS.c.seq == 4))
    assert 4 in problems(at)


def test_an_older_head_put_back_is_found(at):
    at.several(2)
    older = at.at.home.rows(schema.evidence_runs)[0]
    at.several(1, start=2)
    columns = ("record_count", "received_at", "retained_bytes", "sealed_head")
    edit(at, sa.update(schema.evidence_runs).values({name: getattr(older, name) for name in columns}))

    assert problems(at) == {3}


@pytest.mark.parametrize("column", ["record_count", "retained_bytes", "workspace_pk", "created_at", "received_at"])
def test_a_changed_column_of_a_run_stops_what_depends_on_it(at, column):
    at.several(2)
    if column == "workspace_pk":
        edit(at, sa.update(schema.evidence_runs).values(workspace_pk=at.at.home.workspace("other")))
    else:
        edit(at, sa.update(schema.evidence_runs).values({column: 7}))

    evidence_id = at.at.home.rows(schema.evidence_runs)[0].evidence_id
    with pytest.raises(IntegrityError):
        at.read(evidence_id)
    assert at.listed_runs()[0]["unreadable"]
    if column != "workspace_pk":
        with pytest.raises(IntegrityError):
            at.record(event_id="more")


# --- links and manifests ---


def test_workflows_of_the_same_run_are_shown_with_it(at):
    at.record(run_id="r1")
    own = at.at.finished("one")
    at.at.begin(at.at.create("open")["workflow_id"])
    at.at.create("no-attempt")

    linked = at.read("r1")["workflows"]
    assert [(each["workflow_key"], each["phase"]) for each in linked] == [("one", "done"), ("open", "running")]
    assert linked[0]["workflow_id"] == own
    at.at.deletions.delete(at.operator, own)
    assert [each["workflow_key"] for each in at.read("r1")["workflows"]] == ["open"]


def test_a_manifest_says_what_a_replay_needs_and_no_content(at):
    at.record(run_id="r1", kind="tool_call", content={"tool": "sentineltool", "text": "sentinelword"})
    at.record(run_id="r1", event_id="e-2", content="sentinelword")
    at.at.finished("one")

    manifest = at.reading.manifest(at.operator, "r1")

    assert manifest["is_whole"]
    assert [record["seq"] for record in manifest["records"]] == [1, 2]
    assert manifest["records"][1]["bytes"] == len("sentinelword")
    operation = manifest["workflows"][0]["operations"][0]
    assert (operation["tool"], operation["capability"], operation["status"]) == (
        "directory_publish",
        "none",
        "completed",
    )
    assert operation["arguments"]["bytes"] == len('{"n":1}')
    assert {tool["tool"]: (tool["records"], tool["operations"]) for tool in manifest["tools"]} == {
        "sentineltool": (1, 0), "directory_publish": (0, 1),
    }  # fmt: skip
    assert "sentinelword" not in repr(manifest)
    assert "ik_" not in repr(manifest)


# --- who looked ---


def test_a_look_of_a_person_is_in_the_audit_log_before_it_is_shown(at):
    at.several(1)
    at.read(by=at.administrator)
    at.reading.manifest(at.investigator, "run-1")
    at.page(by=at.investigator, search="common")
    at.page(by=at.investigator)
    at.read()

    assert [action for action, _ in at.at.home.actions()] == [
        "evidence.viewed", "evidence.manifest_viewed", "evidence.searched",
    ]  # fmt: skip


def test_where_the_audit_log_cannot_be_written_nothing_is_shown(at):
    at.several(1)
    # An entry that a hand has put where the next one must stand.
    surplus = {"seq": 1, "at": 1, "action": "x", "actor": "x", "result": "x", "hash": bytes(32)}
    edit(at, sa.insert(schema.audit).values(surplus))

    for look in (
        lambda: at.read(by=at.administrator),
        lambda: at.reading.manifest(at.administrator, "run-1"),
        lambda: at.page(by=at.administrator, search="common"),
        lambda: at.exporting.encrypted(at.operator, "run-1", "a long passphrase"),
        lambda: at.exporting.plaintext(at.administrator, "run-1"),
    ):
        with pytest.raises(ConstraintError):
            look()


@pytest.mark.parametrize(
    "query",
    [
        {"q": " ".join(f"w{number}" for number in range(9))}, {"q": "-"}, {"q": "x" * 201}, {"since": "-1"},
        {"since": "2", "until": "1"}, {"limit": "0"}, {"limit": "201"}, {"limit": "1e2"}, {"run": "a b"}, {"more": "1"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_question_that_is_not_what_it_must_be_is_refused(query):
    with pytest.raises(MalformedError):
        SearchEvidence.from_query(query)
