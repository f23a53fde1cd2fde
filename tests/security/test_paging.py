"""Lists in pages: against a model, across a restore, with a role that is lost on the way (C01 to C04)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.auth.accounts import LOCAL
from continuity.errors import MalformedError
from continuity.services.callers import Role
from tests.integration.governed import govern
from tests.web.pages import get
from tests.web.reading import LIST
from tests.web.told import ACTIVITY, Observer

LISTED = "/v1/continuity"


@pytest.fixture
def at(sqlite_store, tmp_path):
    return govern(sqlite_store, tmp_path)


STEPS = st.lists(
    st.tuples(st.sampled_from(["page", "create", "delete first", "delete last", "delete seen"]), st.integers(1, 4)),
    max_size=14,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_comes_and_goes_each_that_stays_is_met_once_in_order(at, steps):
    there = [at.finished() for _ in range(6)]
    start = at.listed(limit=200)
    seen, gone, cursor = [], set(), None
    for step, limit in [*steps, *[("page", 200)] * 2]:
        left = [each for each in start if each not in gone]
        if step == "page" and (cursor is not None or not seen):
            page = at.page(limit=limit, cursor=cursor)
            new = [each["workflow_id"] for each in page["workflows"]]
            assert not set(new) & gone, "what was deleted is back"
            assert not set(new) & set(seen), "met twice"
            seen += new
            cursor = page["next_cursor"]
            if cursor is None:
                break
        elif step == "create":
            there.append(at.create()["workflow_id"])
        elif step.startswith("delete"):
            kind = step.partition(" ")[2]
            candidates = [each for each in (seen if kind == "seen" else left) if each not in gone and each in there]
            if candidates:
                chosen = candidates[0 if kind == "first" else -1]
                at.deletions.delete(at.operator, chosen) if is_over(at, chosen) else None
                gone |= {chosen} if is_gone(at, chosen) else set()
    stays = [each for each in start if each not in gone]
    assert [each for each in seen if each in stays] == stays


def is_over(at, workflow_id):
    return at.row(workflow_id).phase in {"done", "ended"}


def is_gone(at, workflow_id):
    return at.row(workflow_id).deleted_at is not None


def test_after_a_restore_no_cursor_of_before_goes_on(at):
    for _ in range(3):
        at.create()
    cursor = at.page(limit=1)["next_cursor"]
    assert at.page(limit=1, cursor=cursor)["workflows"]

    at.home.set_vault(epoch=2)

    with pytest.raises(MalformedError):
        at.page(limit=1, cursor=cursor)


def test_a_clock_set_back_prolongs_no_cursor_that_was_found_old(at):
    for _ in range(3):
        at.create()
    cursor = at.page(limit=1)["next_cursor"]
    at.clock.advance(901)
    at.create()
    at.sweeper.raise_mark(at.watch.latest_us)
    at.clock.set_back(600)

    with pytest.raises(MalformedError):
        at.page(limit=1, cursor=cursor)


@pytest.mark.parametrize("limit", ["0", "201", "-1", "99999999999999999999", "1e3", "1 ", "0x10", "１"])
def test_a_page_has_a_size_that_the_contract_knows(site, scenes, limit):
    site.person("op")

    reply = site.signed_in("op").send("GET", f"{LISTED}?limit={limit}")

    assert reply.status_code == 400
    assert reply.json["error"]["code"] == "malformed"


def test_rights_are_looked_at_again_on_every_page(site, scenes):
    for number in range(3):
        scenes.mail(f"key-{number}")
    site.person("op", Role.OPERATOR)
    site.person("inv", Role.INVESTIGATOR)
    operator, investigator = site.signed_in("op"), site.signed_in("inv")
    observer = Observer(site)
    for number in range(60):
        observer.story(f"flow-{number}", f"at-{number}")
    cursor = operator.send("GET", f"{LISTED}?limit=1").json["next_cursor"]
    assert operator.send("GET", f"{LISTED}?limit=1&cursor={cursor}").status_code == 200

    site.wiring.auth.accounts.set_role("op", Role.INVESTIGATOR, by=LOCAL)
    site.wiring.auth.accounts.disable("inv", by=LOCAL)

    assert operator.send("GET", f"{LISTED}?limit=1&cursor={cursor}").status_code == 401
    assert get(operator, f"{LIST}?cursor={cursor}").status_code in {303, 401}
    assert get(investigator, f"{ACTIVITY}?cursor={cursor}").status_code in {303, 401}


def test_a_cursor_of_a_workspace_that_was_left_shows_nothing_of_it(at):
    blue = at.home.workspace("blue")
    for _ in range(3):
        at.create(by=replace(at.operator, home_workspace=blue))
    both = replace(at.operator, workspaces=frozenset({at.operator.home_workspace, blue}))
    cursor = at.page(by=both, limit=1)["next_cursor"]

    left = replace(both, workspaces=frozenset({at.operator.home_workspace}))

    assert at.page(by=left, limit=1, cursor=cursor)["workflows"] == []
