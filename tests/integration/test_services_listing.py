"""Lists: filters, search, cursors, and what they cost when much is retained."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from continuity.decisions.phases import Phase
from continuity.errors import MalformedError
from continuity.store import listing, schema
from tests import stepping
from tests.integration.governed import Governed, govern


@pytest.fixture
def at(store, tmp_path) -> Governed:
    return govern(store, tmp_path)


def test_filters_search_and_scope(at):
    blue = at.home.workspace("blue")
    first = at.create("nightly-report")["workflow_id"]
    second = at.create("nightly_upload", activate=False)["workflow_id"]
    third = at.create("nightly-report", by=replace(at.operator, home_workspace=blue))["workflow_id"]
    near = replace(at.operator, workspaces=frozenset({at.operator.home_workspace}))

    assert at.listed() == [third, second, first]
    assert at.listed(by=near) == [second, first]
    assert at.listed(phase=Phase.REVIEW) == [second]
    assert at.listed(key="nightly-report") == [third, first]
    assert at.listed(key="nightly") == []
    assert at.listed(search="NIGHTLY report publish") == [third, first]
    assert at.listed(search="night") == []
    assert at.listed(search=first) == [first]
    assert at.listed(workspace="blue") == [third]
    assert at.page(by=near, workspace="blue") == at.page(by=near, workspace="nowhere")
    assert at.listed(by=near, search=third) == []
    assert at.listed(search=second, phase=Phase.REVIEW, key="nightly_upload") == [second]
    assert at.listed(search=second, phase=Phase.READY) == at.listed(search=second, key="nightly-report") == []
    for question in ({"search": "--"}, {"search": "x" * 201}, {"limit": 0}, {"limit": 201}):
        with pytest.raises(MalformedError):
            at.page(**question)


def test_paging_while_rows_come_and_go_repeats_and_skips_nothing(at):
    ids = [at.finished() for _ in range(6)]
    first = at.page(limit=2)
    at.create()
    at.deletions.delete(at.operator, ids[3])
    second = at.page(limit=2, cursor=first["next_cursor"])
    third = at.page(limit=2, cursor=second["next_cursor"])

    found = [each["workflow_id"] for page in (first, second, third) for each in page["workflows"]]
    assert found == [ids[5], ids[4], ids[2], ids[1], ids[0]]
    assert third["next_cursor"] is None


def test_a_cursor_is_one_callers_for_one_question_and_a_while(at):
    for _ in range(3):
        at.create()
    cursor = at.page(limit=1)["next_cursor"]
    changed = [cursor[:k] + ("A" if cursor[k] != "A" else "B") + cursor[k + 1 :] for k in range(len(cursor))]

    def refused(cursor, **question):
        with pytest.raises(MalformedError) as caught:
            at.page(**{"limit": 1, "cursor": cursor, **question})
        return caught.value.message

    told = {refused(each) for each in [*changed, cursor + "!", cursor + "A", "", "ü"]}
    told |= {refused(cursor, phase=Phase.READY), refused(cursor, by=at.person), refused(cursor, search="key")}
    at.clock.advance(901)
    told.add(refused(cursor))
    assert len(told) == 1


def plans(at: Governed, action) -> list[str]:
    """Return the plans of every SELECT and DELETE that `action` runs on SQLite."""
    found, seen = [], []

    def note(connection, cursor, statement, parameters, context, executemany):
        seen.append((statement, parameters))

    sa.event.listen(at.store.engine, "before_cursor_execute", note)
    action()
    sa.event.remove(at.store.engine, "before_cursor_execute", note)
    with at.store.engine.connect() as connection:
        for statement, parameters in seen:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            found += [f"{row[3]}  <- {statement}" for row in rows]
    return found


def test_no_list_and_no_step_of_a_deletion_reads_a_whole_table(sqlite_store, tmp_path):
    at = govern(sqlite_store, tmp_path)
    home = at.operator.home_workspace
    workflow_id = at.finished()
    near = replace(at.operator, workspaces=frozenset({home}))
    wide = replace(at.operator, workspaces=frozenset({home, home + 1, home + 2}))

    found = []
    found += plans(at, lambda: at.page(by=wide))
    found += plans(at, lambda: at.page(by=wide, phase=Phase.DONE))
    found += plans(at, lambda: at.page(by=wide, search="publish key"))
    found += plans(at, lambda: at.page(by=near))
    found += plans(at, lambda: at.page(by=near, phase=Phase.DONE))
    found += plans(at, lambda: at.page(by=near, search="publish key"))
    found += plans(at, lambda: at.store.read(lambda c: listing.deleting(c, count=5)))
    found += plans(at, lambda: at.store.read(lambda c: listing.due(c, now_us=7, count=5)))
    found += plans(at, lambda: at.deletions.delete(at.operator, workflow_id))

    # ``anon_…`` are the rows that the branches of a list have found, each branch with its own limit; a constant
    # row is no table.
    scans = [plan for plan in found if plan.startswith("SCAN") and not plan.startswith(("SCAN anon_", "SCAN CONSTANT"))]
    whole = [plan for plan in scans if "USING INDEX" not in plan.split("<-")[0]]
    sorting = [plan for plan in found if "TEMP B-TREE" in plan.split("<-")[0]]
    assert [plan[:60] + plan[-160:] for plan in whole + sorting] == []


def steps(at: Governed, action) -> int:
    return stepping.steps(at.store.engine, action)


def copied(at: Governed, workflow_id: str, count: int, **changed: str) -> None:
    """Put rows like that of a workflow, with its words, at the newest end: they count, and open for nobody."""
    names = [column.name for column in schema.workflows.c if column.name != "workflow_pk"]
    new = {"workflow_id": "'wf_copy_' || n", "key_ix": "randomblob(32)", **changed}
    numbers = f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})"
    workflows = (
        f"INSERT INTO continuity_workflows ({', '.join(names)}) {numbers}"
        f" SELECT {', '.join(new.get(name, name) for name in names)} FROM numbers, continuity_workflows"
        " WHERE workflow_id = ?"
    )
    words = (
        "INSERT INTO continuity_terms SELECT t.workspace_pk, t.term_ix, c.workflow_pk FROM continuity_workflows AS w"
        " JOIN continuity_terms AS t USING (workflow_pk) JOIN continuity_workflows AS c"
        " ON c.workflow_id GLOB 'wf_copy_*' WHERE w.workflow_id = ?"
    )
    at.store.write(lambda c: [c.exec_driver_sql(statement, (workflow_id,)) for statement in (workflows, words)])


@pytest.fixture
def many(sqlite_store, tmp_path) -> Governed:
    return govern(sqlite_store, tmp_path)


def test_a_list_does_not_pass_what_was_deleted(many):
    home = many.operator.home_workspace
    near = replace(many.operator, workspaces=frozenset({home}))
    ids = [many.create()["workflow_id"] for _ in range(3)]
    gone = many.finished()
    many.deletions.delete(many.operator, gone)

    def look():
        assert many.listed() == many.listed(by=near) == ids[::-1]

    few = steps(many, look)
    copied(many, gone, 5_000)

    assert steps(many, look) <= few + 10


def test_a_page_far_down_costs_what_the_newest_does(many, monkeypatch):
    monkeypatch.setattr(listing, "LOOKED_AT_MOST", 10)
    home = many.operator.home_workspace
    first = many.create()["workflow_id"]
    copied(many, first, 5_000)
    asked = [
        listing.Question(seen, phase=phase, term_indexes=words, before=before)
        for seen in (None, frozenset({home}))
        for phase in (None, "ready")
        for words in ([], [many.ledger.vault.index("term", "publish")])
        for before in (20, None)
    ]

    def cost(question):
        return steps(many, lambda: many.store.read(lambda c: listing.page(c, question, count=5)))

    assert [question for question in asked if cost(question) > 20] == []


def test_a_search_goes_by_the_rarest_of_its_words_whichever_comes_first(many, monkeypatch):
    monkeypatch.setattr(listing, "LOOKED_AT_MOST", 10)
    near = replace(many.operator, workspaces=frozenset({many.operator.home_workspace}))
    wanted = many.create("rare-nightly")["workflow_id"]
    waiting = many.create("other-nightly", activate=False)["workflow_id"]
    common = many.create("nightly")["workflow_id"]

    def look():
        for by in (many.operator, near):
            assert many.listed(by=by, search="nightly rare") == many.listed(by=by, search="rare nightly") == [wanted]
            assert many.listed(by=by, search="publish nightly", phase=Phase.REVIEW) == [waiting]

    few = steps(many, look)
    copied(many, common, 5_000)

    # The common words are counted as far as a page looks, and none of their rows is looked at.
    assert steps(many, look) <= few + 100


def test_a_search_of_common_words_looks_at_a_bounded_number_and_goes_on(at, monkeypatch):
    monkeypatch.setattr(listing, "LOOKED_AT_MOST", 4)
    blue = at.home.workspace("blue")
    there = replace(at.operator, home_workspace=blue)
    both = [at.create("left-right-1")["workflow_id"], at.create("left-right-2", by=there)["workflow_id"]]
    for number in range(10):
        at.create(f"left-{number}", by=there if number % 3 else None)
        at.create(f"right-{number}")

    pages, cursor = [], None
    while cursor is not None or not pages:
        page = at.page(search="left right", limit=1, cursor=cursor)
        pages.append([each["workflow_id"] for each in page["workflows"]])
        cursor = page["next_cursor"]

    assert [workflow_id for page in pages for workflow_id in page] == both[::-1]
    assert pages[0] == []
    assert len(pages) <= 6


def test_whoever_sees_very_many_workspaces_sees_all_their_work_in_order(at):
    places = [at.home.workspace(f"w{number}") for number in range(510)]
    ids = [at.create(by=replace(at.operator, home_workspace=place))["workflow_id"] for place in (places[-1], places[0])]
    wide = replace(at.operator, workspaces=frozenset(places))

    assert at.listed(by=wide) == ids[::-1]
    assert at.listed(by=wide, limit=1) == ids[1:]
    assert at.listed(by=wide, search="publish", phase=Phase.READY) == ids[::-1]
