"""Lists: filters, search, cursors, and what they cost when much is retained."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from continuity.decisions.phases import Phase
from continuity.errors import MalformedError
from continuity.store import listing
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

    # ``anon_…`` are the rows that the branches of a list have found, each branch with its own limit.
    scans = [plan for plan in found if plan.startswith("SCAN") and not plan.startswith("SCAN anon_")]
    whole = [plan for plan in scans if "USING INDEX" not in plan.split("<-")[0]]
    sorting = [plan for plan in found if "TEMP B-TREE" in plan.split("<-")[0]]
    assert [plan[:60] + plan[-160:] for plan in whole + sorting] == []
