"""A worker is killed anywhere in a conversation, a person resumes it: one effect, one result a call, nothing lost."""

from __future__ import annotations

import os
import secrets
import signal

import psutil
import pytest

pytest.importorskip("langchain")

from continuity.threads.client import ThreadClient
from examples.local_server import Records
from examples.order_support.agent import NAME
from tests.crash.forks import Forks
from tests.crash.stage import staged, until
from tests.threads.town import wait_for

OVER_S = 200
"""Longer than a claim and than a lease."""
ASKING = [
    ("claim.before", 1), ("claim.after", 1), ("model.before", 1), ("model.after", 1), ("tool.begin", 1),
    ("tool.begin", 2), ("append.before", 1), ("append.after", 1), ("model.before", 2),
    ("model.after", 2), ("wait.before", 1), ("wait.after", 1),
]  # fmt: skip
GOING_ON = [
    ("claim.before", 1), ("claim.after", 1), ("tool.begin", 1), ("begin.before_send", 1), ("begin.after_reply", 1),
    ("effect.before", 1), ("effect.after", 1), ("outcome.before_send", 1), ("outcome.after_reply", 1),
    ("model.before", 1), ("model.after", 1), ("append.before", 1), ("append.after", 1), ("settle.before", 1),
    ("settle.after", 1),
]  # fmt: skip


@pytest.fixture(scope="module")
def stage(instance_template, tmp_path_factory):
    forks = Forks("tests.threads.jobs")
    folder = tmp_path_factory.mktemp("threads-stage")
    try:
        with staged(forks, instance_template.copy_to(folder / "instance"), clock_file=folder / "clock") as made:
            made.application = made.grant("shop", "thread_application", workspace_id="default")
            made.runner = made.grant("runner", "thread_worker", workspace_id="default", agents=[NAME])
            yield made
    finally:
        forks.close()


class Talk:
    """One thread of the example, and workers that run it."""

    def __init__(self, stage, folder):
        self.stage = stage
        self.folder = folder
        self.ann = ThreadClient(stage.url, stage.application, subject="ann")
        # Declares the agent, which threads need: a worker that finds nothing to do.
        self.thread = ""

    def begin(self, text="Please cancel order 17."):
        self.thread = self.ann.create(f"talk-{secrets.token_hex(6)}", NAME)["thread_id"]
        self.ann.message(self.thread, text)

    def start(self, **options):
        return self.stage.forks.start(
            "work", log=self.folder / f"worker-{secrets.token_hex(3)}.log", url=self.stage.url,
            token=self.stage.runner, coordinator=self.stage._tokens["coordinator"], folder=str(self.folder / "shop"),
            clock=str(self.stage.clock_file), **options,
        )  # fmt: skip

    def run(self, **options):
        return self.stage.forks.wait(self.start(**options))

    @property
    def snapshot(self):
        return self.ann.snapshot(self.thread)

    @property
    def state(self):
        return self.snapshot["thread"]["state"]

    @property
    def cancelled(self):
        return [each["order"] for each in Records(self.folder / "shop" / "cancellations.jsonl").all()]

    def reply(self, answer=True):
        (waiting,) = [each for each in self.snapshot["waiting"] if each["state"] == "open"]
        self.ann.reply(self.thread, waiting["waiting_id"], answer, revision=waiting["revision"])

    def logs(self):
        return "\n".join(path.read_text() for path in self.folder.glob("worker-*.log"))

    def finish(self):
        """Do what a person does until the thread is idle; return how often it was resumed."""
        resumed = 0
        for _ in range(8):
            state = self.state
            if state == "idle":
                return resumed
            if state == "needs_attention":
                self.ann.resume(self.thread)
                resumed += 1
            elif state == "waiting":
                self.reply()
            assert self.run() == 0, self.logs()
        raise AssertionError(f"it never came to rest: {self.snapshot['runs']} {self.logs()}")

    def interrupted(self):
        """Let the claim run out; nothing may begin by itself."""
        self.stage.advance(OVER_S)
        runs = len(self.snapshot["runs"])
        wait_for(lambda: self.state == "needs_attention", what="the run was not interrupted")
        snapshot = self.snapshot
        assert len(snapshot["runs"]) == runs
        assert snapshot["runs"][-1]["reason"] == "claim_expired"

    def check(self):
        snapshot = self.snapshot
        calls = [m for m in snapshot["messages"] if m["type"] == "tool_call"]
        assert [call["outcome"] for call in calls] == ["ok"] * len(calls), calls
        assert [call["tool"] for call in calls].count("cancel_order") == 1, calls
        assert len({call["id"] for call in calls}) == len(calls)
        said = [m["content"] for m in snapshot["messages"] if m["type"] == "message" and m["status"] == "done"]
        assert said[0] == "Please cancel order 17."
        assert said.count("Order 17 is cancelled.") == 1
        assert said[-1] == "Order 17 is cancelled."
        assert self.cancelled == ["17"]
        settled = [run for run in snapshot["runs"] if run["state"] == "settled"]
        assert [run["output"] for run in settled] == [{"answer": "Order 17 is cancelled."}]
        records = self.records()
        claims = [record["data"]["generation"] for record in records if record["kind"] == "run_claimed"]
        assert claims == list(range(1, len(claims) + 1))
        written = [record["generation"] for record in records if record["generation"] is not None]
        assert written == sorted(written)

    def records(self):
        found, after = [], "1-0"
        while True:
            page = self.ann.journal(self.thread, after)
            found += page["records"]
            after = page["checkpoint"]
            if not page["has_more"]:
                assert [record["seq"] for record in found] == list(range(1, len(found) + 1))
                return found


@pytest.fixture
def talk(stage, tmp_path):
    made = Talk(stage, tmp_path)
    from continuity.threads import WorkerClient  # noqa: PLC0415
    from examples.order_support.agent import agent  # noqa: PLC0415

    client = WorkerClient(stage.url, stage.runner)
    client.declare([agent.declaration()])
    client.close()
    made.begin()
    return made


def after_kill(talk, point):
    """Bring the thread to rest after a worker died at a point."""
    if point in {"claim.before", "wait.after", "settle.after"}:
        assert talk.state == {"claim.before": "running", "wait.after": "waiting", "settle.after": "idle"}[point]
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
    talk.ann.message(talk.thread, "Where is order 18?")
    assert talk.run() == 0
    assert talk.snapshot["runs"][-1]["output"] == {"answer": "Order 18 (two cups) is packed."}


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
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        other = Talk(stage, talk.folder)
        other.begin("Where is order 18?")
        talks.append(other)
    workers = [talk.start(runs=2), talk.start(runs=2)]
    assert [stage.forks.wait(worker) for worker in workers] == [0, 0], talk.logs()
    assert sorted(each.state for each in talks) == ["idle", "idle", "idle", "waiting"]
    talk.finish()
    talk.check()
