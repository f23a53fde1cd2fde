"""The server is killed just before and just after each commit; what it had acknowledged is true when it is back."""

from __future__ import annotations

import pytest

from tests.crash.stage import until
from tests.crash.test_kill_worker import brought_to_one_effect

LOST = ("before_commit", "after_commit")
WIDE = ("none", "query", "idempotent", "both", "query-final")


def die_and_come_back(stage):
    """Wait for the server's death at the armed point, start it again, and once more: the second changes nothing."""
    assert stage.forks.wait(stage.process) == -9
    assert stage.has_fired
    stage.disarm()
    stage.start()


@pytest.mark.parametrize("moment", LOST)
@pytest.mark.parametrize("capability", WIDE)
def test_a_server_killed_around_the_commit_of_a_begin_grants_what_is_recorded_or_nothing(
    sqlite_stage, tmp_path, capability, moment
):
    case = sqlite_stage.case(capability, tmp_path)
    sqlite_stage.arm(f"begin.{moment}")

    worker = case.start()
    die_and_come_back(sqlite_stage)

    assert worker.report() == {"end": "error", "code": "transport_error"}
    view = case.check()
    # The lost reply was never asked for again: the one attempt that may be there is held by nobody.
    assert len(view["operations"][0]["attempts"]) == (moment == "after_commit")
    assert case.sink == []
    brought_to_one_effect(case)


@pytest.mark.parametrize("moment", LOST)
@pytest.mark.parametrize("capability", WIDE)
def test_a_server_killed_around_the_commit_of_an_outcome_takes_the_receipt_when_it_is_sent_again(
    sqlite_stage, tmp_path, capability, moment
):
    case = sqlite_stage.case(capability, tmp_path)
    sqlite_stage.arm(f"outcome.{moment}")

    worker = case.start()
    die_and_come_back(sqlite_stage)

    (effect,) = case.sink
    assert worker.report() == {"end": "result", "result": {"published": effect.effect_id}}
    case.check()
    replies = [ack["reply"] for ack in case.acks if ack["call"] == "outcome"]
    assert [reply.get("replayed", False) for reply in replies] == [moment == "after_commit"]
    brought_to_one_effect(case)
    assert case.decisions == []


@pytest.mark.parametrize("moment", LOST)
@pytest.mark.parametrize("capability", ["none", "both"])
def test_a_server_killed_around_the_commit_of_a_creation_has_all_of_it_or_nothing(
    sqlite_stage, tmp_path, capability, moment
):
    case = sqlite_stage.coordinated(capability, tmp_path)
    sqlite_stage.arm(f"create.{moment}")

    worker = case.start()
    die_and_come_back(sqlite_stage)

    assert worker.report() == {"end": "error", "code": "transport_error"}
    case.check()
    assert bool(case.workflow_id) == (moment == "after_commit")
    brought_to_one_effect(case)


def test_a_start_after_a_crash_needs_no_hand_and_a_second_one_changes_nothing(sqlite_stage, tmp_path):
    case = sqlite_stage.case("both", tmp_path)
    assert case.start(die_at="effect.after").wait() == -9
    seen = []

    for _ in range(2):
        sqlite_stage.stop()
        assert sqlite_stage.problems() == []
        sqlite_stage.start()
        seen.append(case.check())

    assert seen[0] == seen[1]


# ---- PostgreSQL: one of four processes dies, the other three go on

POINTS = [f"{unit}.{moment}" for unit in ("create", "begin", "outcome") for moment in LOST]


@pytest.mark.postgresql
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("capability", ["none", "both"])
def test_one_killed_process_of_four_loses_and_repeats_nothing(postgresql_stage, tmp_path, capability, point):
    stage = postgresql_stage
    is_creation = point.startswith("create")
    case = stage.coordinated(capability, tmp_path) if is_creation else stage.case(capability, tmp_path)
    stage.arm(point)

    worker = case.start()
    until(lambda: stage.has_fired)
    found = worker.report()
    stage.disarm()

    assert found["end"] == ("result" if point.startswith("outcome") else "error")
    case.check()
    brought_to_one_effect(case)


@pytest.mark.postgresql
@pytest.mark.parametrize("point", ["begin.sent", "effect.done", "outcome.sent"])
@pytest.mark.parametrize("capability", ["none", "query", "both"])
def test_a_worker_killed_on_postgresql_leaves_work_that_ends_with_one_effect(
    postgresql_stage, tmp_path, capability, point
):
    case = postgresql_stage.case(capability, tmp_path)

    assert case.start(die_at=point).wait() == -9
    case.check()

    brought_to_one_effect(case)
