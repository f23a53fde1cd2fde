"""The server is killed before and after each commit about a thread; worker and client go on with the next one.

The worker and the server are processes of their own. Nobody helps: the worker sends again what was not answered, and
so does the client, and in the end everything has happened once.
"""

from __future__ import annotations

import os
import signal

import psutil
import pytest

pytest.importorskip("langchain")

from continuity.errors import TransportError
from continuity.threads import WorkerClient
from examples.order_support.agent import NAME
from tests.crash.stage import until
from tests.threads.talks import DONE, Talk, asked_until_told, come_back, talking_stage, talking_stage_on_postgresql

MOMENTS = ("before_commit", "after_commit")
SERVERS = [
    pytest.param("one", id="one"),
    pytest.param("one of four", id="one of four", marks=[pytest.mark.postgresql, pytest.mark.soak]),
]


@pytest.fixture(scope="module", params=SERVERS)
def stage(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dying-server")
    if request.param == "one":
        template = request.getfixturevalue("instance_template")
        serving = talking_stage(template.copy_to(folder / "instance"), folder / "clock")
    else:
        serving = talking_stage_on_postgresql(request.getfixturevalue("postgresql_server"), folder)
    with serving as made:
        yield made


@pytest.fixture
def talk(stage, tmp_path):
    return Talk(stage, tmp_path)


def stopped_worker(talk, point="model.before"):
    """Start a worker that stands still at a point of its run."""
    worker = talk.start(die_at=point, end="stop")
    until(lambda: psutil.Process(worker).status() == psutil.STATUS_STOPPED)
    return worker


def wake(talk, worker):
    os.kill(worker, signal.SIGCONT)
    assert talk.stage.forks.wait(worker) == 0, talk.logs()


def creates(talk, point):
    talk.stage.arm(point)
    asked_until_told(talk.stage, talk.begin)


def says(talk, point):
    talk.create()
    talk.stage.arm(point)
    asked_until_told(talk.stage, lambda: talk.say("Please cancel order 17."))


def works(talk, point):
    """The worker is the one whose request meets the end of the server."""
    talk.begin()
    if point.startswith(("settle", "create", "outcome")):
        assert talk.run() == 0, talk.logs()
        talk.reply()
    talk.stage.arm(point)
    worker = talk.start()
    come_back(talk.stage)
    assert talk.stage.forks.wait(worker) == 0, talk.logs()
    if point.startswith("create"):
        # Whether it was begun is not known: nobody asks for the same grant twice, and a person goes on after its lease.
        assert talk.state == "needs_attention"
        talk.stage.advance()
        assert talk.finish() >= 1
    else:
        assert talk.finish() == 0, "what was not answered was not sent again"


def replies(talk, point):
    talk.begin()
    assert talk.run() == 0, talk.logs()
    talk.stage.arm(point)
    asked_until_told(talk.stage, talk.reply)


def steers(talk, point):
    talk.begin()
    worker = stopped_worker(talk)
    talk.stage.arm(point)
    asked_until_told(talk.stage, lambda: talk.ann.steer(talk.thread, "Be quick."))
    wake(talk, worker)
    assert talk.finish() == 0
    said = [message["content"] for message in talk.snapshot["messages"] if message.get("role") == "user"]
    assert said == ["Please cancel order 17.", "Be quick."]


def resumes(talk, point):
    talk.begin()
    assert talk.run(die_at="model.after") == -signal.SIGKILL
    talk.interrupted()
    talk.stage.arm(point)
    asked_until_told(talk.stage, talk.resume)


def expires(talk, point):
    talk.begin()
    assert talk.run(die_at="model.after") == -signal.SIGKILL
    talk.stage.arm(point)
    talk.stage.advance(200)
    come_back(talk.stage)
    talk.interrupted()
    talk.resume()


WAYS = {
    "threads": creates, "messages": says, "claims": works, "append": works, "wait": works, "reply": replies,
    "create": works, "outcome": works, "settle": works, "steer": steers, "resume": resumes, "expire": expires,
}  # fmt: skip
FEW = {"append.after_commit", "wait.before_commit", "reply.after_commit", "settle.after_commit", "claims.after_commit"}
POINTS = [f"{unit}.{moment}" for unit in WAYS for moment in MOMENTS]


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=[] if point in FEW else [pytest.mark.soak]) for point in POINTS]
)
def test_a_conversation_ends_as_if_the_server_had_never_died(talk, point):
    WAYS[point.partition(".")[0]](talk, point)
    assert talk.finish() == 0
    talk.check()


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_follow_up_is_taken_once(talk, moment):
    talk.begin()
    assert talk.run() == 0, talk.logs()
    talk.stage.arm(f"follow-ups.{moment}")
    asked_until_told(talk.stage, lambda: talk.ann.follow_up(talk.thread, "Where is order 18?"))
    assert [queued["content"] for queued in talk.snapshot["queue"]] == ["Where is order 18?"]
    talk.reply()
    assert talk.run() == 0, talk.logs()
    assert talk.state == "running"
    assert talk.finish() == 0

    outputs = [run["output"]["answer"] for run in talk.snapshot["runs"] if run["state"] == "settled"]
    assert outputs == [DONE, "Order 18 (two cups) is packed."]
    assert talk.cancelled == ["17"]
    talk.check_journal()


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stop_is_taken_once_and_ends_the_run(talk, moment):
    talk.begin()
    worker = stopped_worker(talk)
    talk.stage.arm(f"stop.{moment}")
    asked_until_told(talk.stage, lambda: talk.ann.stop(talk.thread))
    wake(talk, worker)

    assert [run["state"] for run in talk.snapshot["runs"]] == ["stopped"]
    assert talk.state == "idle"
    assert talk.cancelled == []
    talk.check_journal()


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_failure_is_told_once(talk, moment):
    talk.begin("Please cancel order 17." + "!" * 2_000)
    talk.stage.arm(f"fail.{moment}")
    worker = talk.start()
    come_back(talk.stage)
    assert talk.stage.forks.wait(worker) == 0, talk.logs()

    assert [run["state"] for run in talk.snapshot["runs"]] == ["failed"]
    assert talk.state == "needs_attention"
    talk.ann.stop(talk.thread)
    talk.check_journal()


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_heartbeat_that_is_not_answered_is_sent_again(talk, moment):
    talk.begin()
    calls = WorkerClient(talk.stage.url, talk.stage.runner)
    claimed = calls.claim([NAME])
    talk.stage.arm(f"heartbeat.{moment}")
    with pytest.raises(TransportError):
        asked_until_told(talk.stage, lambda: calls.heartbeat(claimed, steers_read=0))

    held = calls.heartbeat(claimed, steers_read=0)
    calls.write(claimed, "settle", {"output": None}, steers_read=0, patience_s=5)
    calls.close()

    assert (held["generation"], held["stop"]) == (1, False)
    assert talk.state == "idle"
    talk.check_journal()
