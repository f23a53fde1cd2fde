"""A worker is killed anywhere in a conversation, a person resumes it: one effect, one result a call, nothing lost."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter

import psutil
import pytest

pytest.importorskip("langchain")

from tests.crash.stage import until
from tests.patience import wait_for
from tests.threads.talks import DONE, OVER_S, Talk, talking_stage

ASKING = [
    ("claim.before", 1), ("claim.after", 1), ("model.before", 1), ("model.after", 1), ("tool.begin", 1),
    ("tool.begin", 2), ("append.before", 1), ("append.after", 1), ("model.before", 2),
    ("model.after", 2), ("wait.before", 1), ("wait.after", 1),
]  # fmt: skip
ENDING = [
    ("model.before", 1), ("model.after", 1), ("model.before", 2), ("model.after", 2), ("append.before", 1),
    ("append.after", 1), ("settle.before", 1), ("settle.after", 1),
]  # fmt: skip
GOING_ON = [
    ("claim.before", 1), ("claim.after", 1), ("tool.begin", 1), ("begin.before_send", 1), ("begin.after_reply", 1),
    ("effect.before", 1), ("effect.after", 1), ("outcome.before_send", 1), ("outcome.after_reply", 1),
    ("tool.begin", 2), *ENDING,
]  # fmt: skip
DENIED = [("claim.before", 1), ("claim.after", 1), ("tool.begin", 1), *ENDING]
SAFE = {"claim.before": "running", "wait.after": "waiting", "settle.after": "idle"}
"""Where a death leaves nothing in doubt, and the state that it leaves."""


@pytest.fixture(scope="module")
def stage(instance_template, tmp_path_factory):
    folder = tmp_path_factory.mktemp("threads-stage")
    with talking_stage(instance_template.copy_to(folder / "instance"), folder / "clock") as made:
        yield made


@pytest.fixture
def talk(stage, tmp_path):
    made = Talk(stage, tmp_path)
    made.begin()
    return made


def after_kill(talk, point):
    """Bring the thread to rest after a worker died at a point."""
    if point in SAFE:
        assert talk.state == SAFE[point]
        assert talk.finish() == 0
    else:
        talk.interrupted()
        assert talk.finish() >= 1
    talk.check()


@pytest.mark.parametrize(("point", "nth"), ASKING)
def test_a_worker_that_dies_before_the_question(talk, point, nth):
    assert talk.run(die_at=point, nth=nth) == -signal.SIGKILL, talk.logs()
    after_kill(talk, point)


@pytest.mark.parametrize(("point", "nth"), GOING_ON)
def test_a_worker_that_dies_after_the_answer(talk, point, nth):
    assert talk.run() == 0, talk.logs()
    talk.reply()
    assert talk.run(die_at=point, nth=nth) == -signal.SIGKILL, talk.logs()
    after_kill(talk, point)


@pytest.mark.parametrize(("point", "nth"), DENIED)
def test_a_worker_that_dies_after_a_denial(talk, point, nth):
    talk.answer = False
    assert talk.run() == 0, talk.logs()
    talk.reply()
    assert talk.run(die_at=point, nth=nth) == -signal.SIGKILL, talk.logs()
    after_kill(talk, point)


@pytest.mark.parametrize(("point", "nth"), GOING_ON)
def test_an_awaited_worker_that_dies_after_the_answer(talk, point, nth):
    talk.how = "awaited"
    assert talk.run() == 0, talk.logs()
    talk.reply()
    assert talk.run(die_at=point, nth=nth) == -signal.SIGKILL, talk.logs()
    after_kill(talk, point)


@pytest.mark.parametrize(
    ("point", "nth"), [("model.after", 1), ("tool.begin", 2), ("wait.before", 1), ("wait.after", 1)]
)
def test_an_awaited_worker_that_dies_before_the_question(talk, point, nth):
    talk.how = "awaited"
    assert talk.run(die_at=point, nth=nth) == -signal.SIGKILL, talk.logs()
    after_kill(talk, point)


@pytest.fixture(scope="module")
def steps_on_postgresql(postgresql_server):
    """Address of a database with the tables of the saver, which waits for its disk as one that is installed does."""
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415

    name = postgresql_server.create()
    address = postgresql_server.url(name)
    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        # From the next connection on.
        saver.conn.execute(f"ALTER DATABASE {name} SET synchronous_commit = on")
    return address


@pytest.mark.postgresql
@pytest.mark.parametrize(("how", "point", "nth"), [
    ("", "tool.begin", 2), ("", "wait.before", 1), ("", "wait.after", 1), ("awaited", "wait.after", 1),
])  # fmt: skip
def test_a_worker_with_its_steps_on_postgresql_that_dies_at_the_question(talk, steps_on_postgresql, how, point, nth):
    talk.how, talk.steps = how, steps_on_postgresql
    assert talk.run(die_at=point, nth=nth) == -signal.SIGKILL, talk.logs()
    after_kill(talk, point)


@pytest.mark.postgresql
@pytest.mark.parametrize(("how", "point"), [
    ("", "claim.after"), ("", "begin.after_reply"), ("", "effect.before"), ("", "effect.after"),
    ("", "outcome.after_reply"), ("", "model.after"), ("", "settle.before"), ("awaited", "effect.after"),
])  # fmt: skip
def test_a_worker_with_its_steps_on_postgresql_that_dies_after_the_answer(talk, steps_on_postgresql, how, point):
    talk.how, talk.steps = how, steps_on_postgresql
    assert talk.run() == 0, talk.logs()
    talk.reply()
    assert talk.run(die_at=point) == -signal.SIGKILL, talk.logs()
    after_kill(talk, point)


@pytest.mark.postgresql
@pytest.mark.parametrize("how", ["", "awaited"])
def test_steps_that_postgresql_may_lose_stop_a_run_before_its_first_tool(talk, steps_on_postgresql, how):
    talk.how, talk.steps = how, f"{steps_on_postgresql}&options=-csynchronous_commit%3Doff"
    assert talk.run() == 0, talk.logs()

    last = talk.snapshot["runs"][-1]
    assert (last["state"], last["reason"], talk.state) == ("interrupted", "tool_blocked", "needs_attention")
    assert (
        "(checkpointer_not_durable). synchronous_commit is off for its connection. Nothing was begun."
        in (last["message"])
    )
    assert talk.snapshot["waiting"] == []
    talk.steps = steps_on_postgresql
    assert talk.finish() == 1
    talk.check()


@pytest.mark.parametrize("point", ["fail.before", "fail.after"])
def test_a_worker_that_dies_with_a_failure(stage, tmp_path, point):
    talk = Talk(stage, tmp_path)
    talk.begin("Please cancel order 17." + "!" * 2_000)
    assert talk.run(die_at=point) == -signal.SIGKILL, talk.logs()
    if point == "fail.before":
        talk.interrupted()
        talk.resume()
        assert talk.run() == 0, talk.logs()

    last = talk.snapshot["runs"][-1]
    assert (last["state"], talk.state) == ("failed", "needs_attention")
    assert "message" in last["message"]
    talk.ann.stop(talk.thread)
    assert talk.state == "idle"
    assert talk.cancelled == []
    talk.check_journal()


@pytest.mark.parametrize("answer", [True, False], ids=["approved", "denied"])
def test_the_workers_die_at_every_point_that_a_run_passes(talk, tmp_path, answer):
    talk.answer = answer
    assert talk.run(passed=str(tmp_path / "asking")) == 0
    talk.reply()
    assert talk.run(passed=str(tmp_path / "going-on")) == 0

    assert passed(tmp_path / "asking") == set(ASKING)
    assert passed(tmp_path / "going-on") == set(GOING_ON if answer else DENIED)


def passed(path):
    """Return the points, each with how often; how much is appended at once is for the clock to say."""
    counts = Counter(json.loads(path.read_text()))
    return {(point, nth) for point, count in counts.items() for nth in range(1, count + 1) if "append" not in point} | {
        (point, 1) for point in counts if "append" in point
    }


@pytest.mark.parametrize(("point", "nth"), [("model.before", 1), ("tool.begin", 2), ("model.after", 2)])
def test_a_worker_that_slept_past_its_claim_writes_nothing(talk, point, nth):
    zombie = talk.start(die_at=point, nth=nth, end="stop")
    until(lambda: psutil.Process(zombie).status() == psutil.STATUS_STOPPED)
    talk.interrupted()
    talk.finish()
    before = talk.snapshot

    os.kill(zombie, signal.SIGCONT)
    assert talk.stage.forks.wait(zombie) == 0

    assert {**talk.snapshot, "history_cursor": None} == {**before, "history_cursor": None}
    talk.check()
    # Its steps are not the conversation's either: the next message is answered from where the others left it.
    talk.say("Where is order 18?")
    assert talk.run() == 0
    assert talk.snapshot["runs"][-1]["output"] == {"answer": "Order 18 (two cups) is packed."}


@pytest.mark.parametrize("points", [("model.before", "model.after"), ("tool.begin", "append.before")])
def test_a_worker_that_wakes_while_another_goes_on_writes_nothing(talk, points):
    zombie = stopped(talk, points[0])
    talk.interrupted()
    talk.resume()
    other = stopped(talk, points[1])
    before = talk.snapshot

    os.kill(zombie, signal.SIGCONT)
    assert talk.stage.forks.wait(zombie) == 0

    assert "claim" in talk.logs()
    assert {**talk.snapshot, "history_cursor": None} == {**before, "history_cursor": None}
    os.kill(other, signal.SIGCONT)
    assert talk.stage.forks.wait(other) == 0, talk.logs()
    assert talk.finish() == 0
    talk.check()


def stopped(talk, point):
    """Start a worker that stands still at a point."""
    worker = talk.start(die_at=point, end="stop")
    until(lambda: psutil.Process(worker).status() == psutil.STATUS_STOPPED)
    return worker


@pytest.mark.parametrize("point", ["effect.before", "effect.after", "begin.after_reply"])
def test_a_worker_that_slept_in_its_effect_does_it_no_second_time(talk, point):
    assert talk.run() == 0
    talk.reply()
    zombie = talk.start(die_at=point, end="stop")
    until(lambda: psutil.Process(zombie).status() == psutil.STATUS_STOPPED)
    talk.interrupted()
    talk.finish()
    talk.check()

    os.kill(zombie, signal.SIGCONT)
    talk.stage.forks.wait(zombie)

    talk.check()
    assert talk.state == "idle"


@pytest.mark.parametrize("point", ["model.before", "append.before", "effect.after", "settle.before"])
def test_a_server_that_dies_while_a_worker_works_loses_nothing(talk, point):
    assert talk.run() == 0
    talk.reply()
    worker = talk.start(die_at=point, end="stop")
    until(lambda: psutil.Process(worker).status() == psutil.STATUS_STOPPED)
    talk.stage.stop()
    os.kill(worker, signal.SIGCONT)
    talk.stage.start()

    assert talk.stage.forks.wait(worker) == 0, talk.logs()

    assert talk.finish() == 0, "what was lost on the way was not sent again"
    talk.check()


def test_two_workers_share_the_threads(stage, tmp_path, talk):
    talks = [talk]
    for _ in range(3):
        other = Talk(stage, tmp_path)
        other.begin("Where is order 18?")
        talks.append(other)
    workers = [talk.start(runs=2), talk.start(runs=2)]
    assert [stage.forks.wait(worker) for worker in workers] == [0, 0], talk.logs()
    assert sorted(each.state for each in talks) == ["idle", "idle", "idle", "waiting"]
    talk.finish()
    talk.check()
    for other in talks[1:]:
        other.check_journal()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_workers_that_race_and_die_anywhere_bring_every_thread_to_its_end_once(stage, tmp_path, seed):
    chance = random.Random(seed)
    talks = []
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        talks.append(Talk(stage, folder))
        talks[-1].begin()
    # Its workers serve them all, with one shop and one file of checkpoints.
    first = talks[0]
    for _ in range(30):
        if all(each.state == "idle" for each in talks):
            break
        workers = []
        for _ in range(3):
            point, nth = chance.choice([*ASKING, *GOING_ON]) if chance.random() < 0.6 else ("", 1)
            workers.append(first.start(die_at=point, nth=nth, runs=6, leaves=True))
        assert {stage.forks.wait(worker) for worker in workers} <= {0, -signal.SIGKILL}, first.logs()
        stage.advance(OVER_S)
        wait_for(lambda: all(each.snapshot["runs"][-1]["state"] != "claimed" for each in talks))
        for each in talks:
            if each.state == "needs_attention":
                each.resume()
            elif each.state == "waiting":
                each.reply()

    assert first.cancelled == ["17"] * len(talks)
    for each in talks:
        each.check_journal()
        assert [run["output"] for run in each.snapshot["runs"] if run["state"] == "settled"] == [{"answer": DONE}]
