"""Clocks through the services: one clock decides, backwards and forwards."""

from __future__ import annotations

from tests.integration.governed import govern


def test_a_host_clock_that_differs_from_the_databases_changes_nothing(postgresql_store, tmp_path):
    # The test's clock is far from that of the database: whoever reads the wrong one makes the other look stepped.
    at = govern(postgresql_store, tmp_path, database_time=True)
    at.clock.wall_us += 10**15
    workflow_id = at.create()["workflow_id"]
    at.create("key-1")
    at.view(workflow_id)
    at.view(workflow_id, by=at.person)
    at.reviewing.pulse(at.person, workflow_id)
    at.reviewing.review(at.person, workflow_id)
    at.page()
    at.sweeper.sweep()

    at.sweeper.raise_mark(at.watch.latest_us)
    at.view(workflow_id)
    at.begin(workflow_id)
    at.view(workflow_id)
    at.reviewing.pulse(at.person, workflow_id)
    at.begin(workflow_id, "a2")

    assert at.watch.latest_us < at.clock.now_us()
    assert at.watch.stepped_us is None


def test_a_clock_that_was_ahead_while_nothing_was_decided_pauses_nothing_when_it_is_right_again(store, tmp_path):
    at = govern(store, tmp_path)
    workflow_id = at.create()["workflow_id"]
    at.sweeper.raise_mark(at.watch.latest_us)
    ten_years_s = 315_360_000

    at.clock.wall_us += ten_years_s * 1_000_000
    # Lists, pages, polls and housekeeping go on meanwhile.
    at.page()
    at.view(workflow_id)
    at.reviewing.pulse(at.person, workflow_id)
    at.reviewing.review(at.person, workflow_id)
    at.sweeper.sweep()
    at.sweeper.raise_mark(at.watch.latest_us)
    at.clock.set_back(ten_years_s)

    assert at.begin(workflow_id)["action"] == "execute"
