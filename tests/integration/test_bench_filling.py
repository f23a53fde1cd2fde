"""Filled databases of the benchmarks hold what the product itself would have made."""

from __future__ import annotations

import contextlib
import json

import pytest
import sqlalchemy as sa

from continuity.services.checking import Checker
from continuity.store import schema
from continuity.store.engine import make_engine
from continuity.store.store import Store
from continuity.wire import BeginRequest, ListRequest
from observations import recount
from observations.events import EventName
from tests.bench import observations, scale
from tests.bench.filling import DELETED_SHARE, RARE, RARE_EACH, fill, opened


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("filled") / "instance", 2 * DELETED_SHARE, mixed=True)


def test_a_filled_database_agrees_with_itself_and_every_workflow_in_it_opens_is_found_and_begins(filled):
    with opened(filled.instance) as built:
        services = built.services
        assert Checker(built.store, services.workflows.ledger).check() == []
        caller = built.auth.principals.bearer(f"Bearer {filled.token}", request_id="req_test")
        ready = 2 * DELETED_SHARE - len(RARE) * RARE_EACH
        assert len(filled.workflow_ids) == ready
        assert services.listing.counts(caller) == {**dict.fromkeys(RARE, RARE_EACH), "ready": ready, "running": 0}
        for number in (0, 1, ready - 1):
            found = services.listing.page(caller, ListRequest(search=f"bench {number} publish"))["workflows"]
            assert [each["workflow_id"] for each in found] == [filled.workflow_ids[number]]
            begun = services.attempts.begin(caller, found[0]["workflow_id"], BeginRequest("publish", "r", "a"))
            assert begun["action"] == "execute"
        assert len(services.listing.page(caller, ListRequest(limit=200))["workflows"]) == 200


def test_a_filled_database_is_as_durable_as_any_and_counts_what_was_deleted(filled):
    with opened(filled.instance) as built, built.store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
        deleted = sa.select(sa.func.count()).where(schema.workflows.c.phase == "deleted")
        assert connection.execute(deleted).scalar_one() == built.vault.shred_list.length == 2


def test_a_kept_database_is_copied_and_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "kept"))

    first, second = fill(tmp_path / "first", 3), fill(tmp_path / "second", 3)

    assert first.workflow_ids == second.workflow_ids
    assert first.token == second.token
    assert first.instance.folder != second.instance.folder
    with opened(second.instance) as built:
        assert built.auth.principals.bearer(f"Bearer {second.token}", request_id="req_test").principal


def test_copied_observations_are_what_taking_in_their_events_comes_to(database, monkeypatch):
    monkeypatch.setattr(observations, "TOLD", 4)
    with contextlib.closing(Store(make_engine(database, pool_size=2))) as store:
        observations.fill(store, 11 * observations.EVENTS_A_WORKFLOW)
    store.engine.dispose()

    with contextlib.closing(Store(make_engine(database, pool_size=2))) as store:
        found = recount.check(store)
        assert (found.is_sound, found.events) == (True, 55)
        queries = observations.Seat(55, store).queries
        page = queries.attempts(observations.SCOPE, observations.workflow_id_of(10), actor="bench")
        assert [each.attempt.outcome.word for each in page.attempts] == ["open", EventName.COMPLETED]
        assert [len(each.charges) for each in page.attempts] == [1, 1]
    store.engine.dispose()


@pytest.mark.soak
def test_the_nightly_measurement_says_every_goal(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("BENCH_CACHE", raising=False)
    written = tmp_path / "scale.json"
    sizes = ["--begins", "60", "70", "--workflows", "90", "100", "--events", "50", "100", "--rounds", "2"]

    scale.main([*sizes, "--json", str(written)])

    said, told = capsys.readouterr().out, json.loads(written.read_text())
    goals = {goal["goal"]: goal for goal in told["goals"]}
    for what, bound in (
        ("begin, at 70 / at 60", 1.2), ("Resume work: search one of all, at 100 / at 90", 1.5),
        ("Resume work: list of a workspace, at 100 / at 90", 1.5), ("Activity: poll, at 100 / at 50", 1.5),
    ):  # fmt: skip
        assert what in said
        assert goals[what]["bound"] == bound
    rows = {(part["subject"], row["name"]): row for part in told["parts"] for row in part["rows"]}
    few, many = (rows["begin and outcome", f"begin {size}"] for size in (60, 70))
    assert goals["begin, at 70 / at 60"]["measured"] == pytest.approx(many["p50_ms"] / few["p50_ms"])
    assert {row["count"] for (subject, _), row in rows.items() if subject == "Activity"} == {2}
