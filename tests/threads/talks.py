"""Whole conversations with the example's agent: a person, workers in processes of their own, and what must be true.

Whoever drives a `Talk` lets workers and the server die where it likes, does what a person would do about it, and calls
`check`.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from continuity.threads import WorkerClient
from continuity.threads.client import ThreadClient
from examples.local_server import Records
from examples.order_support.agent import NAME, agent
from tests.crash.clocked import follow_clock
from tests.crash.forks import Forks
from tests.crash.stage import Stage, staged
from tests.databases import PostgreSQLServer
from tests.patience import wait_for
from tests.servers import Instance, initialised

OVER_S = 200
"""Longer than a claim and than a lease."""
ENDS = frozenset({"run_settled", "run_waiting", "run_interrupted", "run_failed", "run_stopped"})
DONE = "Order 17 is cancelled."
LEFT = "Order 17 was left as it is. A person has denied this call. Nothing was done."


@contextmanager
def talking_stage(
    instance: Instance, clock_file: Path, *, extra: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> Iterator[Stage]:
    """Serve an instance in a process of its own, with an application and a credential for the example's workers."""
    forks = Forks("tests.threads.jobs")
    try:
        with staged(forks, instance, clock_file=clock_file, extra=extra, options=options) as made:
            made.application = made.grant("shop", "thread_application", workspace_id="default")
            made.runner = made.grant("runner", "thread_worker", workspace_id="default", agents=[NAME])
            # Threads need an agent that was declared.
            client = WorkerClient(made.url, made.runner)
            client.declare([agent.declaration()])
            client.close()
            yield made
    finally:
        forks.close()


@contextmanager
def talking_stage_on_postgresql(server: PostgreSQLServer, folder: Path) -> Iterator[Stage]:
    """Serve with four processes on one database: one of them dies and is replaced, the others go on."""
    url = server.url(server.create())
    extra = {"ATMEM_DATABASE_URL": url}
    # Where the database's own user can read it.
    with tempfile.TemporaryDirectory() as public:
        Path(public).chmod(0o755)
        clock_file = Path(public) / "clock"
        instance = initialised(folder / "instance", extra)
        follow_clock(url, clock_file)
        with talking_stage(instance, clock_file, extra=extra, options=["--workers", "4"]) as made:
            made.is_one_of_many = True
            yield made


class Talk:
    """One thread of the example, and workers that run it."""

    def __init__(self, stage: Stage, folder: Path, **options: Any) -> None:
        self.stage = stage
        self.folder = folder
        self.ann = ThreadClient(stage.url, stage.application, subject="ann", **options)
        self.answer = True
        self.thread = ""
        self.asked: Counter[str] = Counter()
        self.how = ""
        self.steps = ""

    # ---- what the person does

    def begin(self, text: str = "Please cancel order 17.") -> None:
        self.create()
        self.say(text)

    def create(self) -> None:
        self.thread = self.ann.create(f"talk-{secrets.token_hex(6)}", NAME)["thread_id"]

    def say(self, text: str) -> None:
        self.ann.message(self.thread, text)
        self.asked["message"] += 1

    def resume(self) -> None:
        self.ann.resume(self.thread)
        self.asked["resume"] += 1

    def reply(self) -> None:
        (waiting,) = [each for each in self.snapshot["waiting"] if each["state"] == "open"]
        self.ann.reply(self.thread, waiting["waiting_id"], self.answer, revision=waiting["revision"])
        self.asked["reply"] += 1

    def finish(self) -> int:
        """Do what a person does until the thread is idle; return how often it was resumed."""
        resumed = 0
        for _ in range(8):
            state = self.state
            if state == "idle":
                return resumed
            if state == "needs_attention":
                self.resume()
                resumed += 1
            elif state == "waiting":
                self.reply()
            assert self.run() == 0, self.logs()
        raise AssertionError(f"it never came to rest: {self.snapshot['runs']} {self.logs()}")

    def interrupted(self) -> None:
        """Let the claim run out; nothing may begin by itself."""
        self.stage.advance(OVER_S)
        runs = len(self.snapshot["runs"])
        wait_for(lambda: self.state == "needs_attention", what="the run was not interrupted")
        snapshot = self.snapshot
        assert len(snapshot["runs"]) == runs
        assert snapshot["runs"][-1]["reason"] == "claim_expired"

    # ---- workers

    def start(self, **options: Any) -> int:
        return self.stage.forks.start(
            "work", log=self.folder / f"worker-{secrets.token_hex(3)}.log", url=self.stage.url,
            token=self.stage.runner, coordinator=self.stage._tokens["coordinator"], folder=str(self.folder / "shop"),
            clock=str(self.stage.clock_file), how=self.how, steps=self.steps, **options,
        )  # fmt: skip

    def run(self, **options: Any) -> int:
        return self.stage.forks.wait(self.start(**options))

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("worker-*.log"))

    # ---- what there is

    @property
    def snapshot(self) -> dict[str, Any]:
        return self.ann.snapshot(self.thread)

    @property
    def state(self) -> str:
        return self.snapshot["thread"]["state"]

    @property
    def cancelled(self) -> list[str]:
        return [each["order"] for each in Records(self.folder / "shop" / "cancellations.jsonl").all()]

    def records(self) -> list[dict[str, Any]]:
        found, after = [], "1-0"
        while True:
            page = self.ann.journal(self.thread, after)
            found += page["records"]
            after = page["checkpoint"]
            if not page["has_more"]:
                return found

    # ---- what must be true

    def check(self) -> None:
        """Compare what the thread shows with what was done: everything of a cancellation that came to its end."""
        end = DONE if self.answer else LEFT
        snapshot = self.snapshot
        calls = [m for m in snapshot["messages"] if m["type"] == "tool_call"]
        ended = {"cancel_order": "ok" if self.answer else "denied"}
        assert [call["outcome"] for call in calls] == [ended.get(call["tool"], "ok") for call in calls], calls
        assert [call["tool"] for call in calls].count("cancel_order") == 1, calls
        said = [m["content"] for m in snapshot["messages"] if m["type"] == "message" and m["status"] == "done"]
        assert (said[0], said.count(end), said[-1]) == ("Please cancel order 17.", 1, end)
        assert self.cancelled == (["17"] if self.answer else [])
        settled = [run for run in snapshot["runs"] if run["state"] == "settled"]
        assert [run["output"] for run in settled] == [{"answer": end}]
        self.check_journal()

    def check_journal(self) -> None:
        """Whatever it came to: no gap, one run a generation, one result a call, no run that nobody asked for."""
        records = self.records()
        assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
        _one_run_a_generation(records)
        results = Counter(record["data"]["call_id"] for record in records if record["kind"] == "tool_ended")
        calls = {m["id"] for m in self.snapshot["messages"] if m["type"] == "tool_call"}
        assert results == dict.fromkeys(calls, 1)
        queued = Counter(record["data"]["cause"] for record in records if record["kind"] == "run_queued")
        assert {name: queued[name] for name in ("message", "resume", "reply")} == {
            name: self.asked[name] for name in ("message", "resume", "reply")
        }


def _one_run_a_generation(records: list[dict[str, Any]]) -> None:
    """Records of a generation are of one run, between its claim and its end, and of no other generation."""
    claimed: dict[int, str] = {}
    living = None
    for record in records:
        generation = record["generation"]
        if record["kind"] == "run_claimed":
            living = record["data"]["generation"]
            assert living == len(claimed) + 1
            claimed[living] = record["run_id"]
        if generation is not None:
            assert generation == living, record
            assert claimed[generation] == record["run_id"]
        if record["kind"] in ENDS and record["run_id"] == claimed.get(living or 0):
            living = None


def asked_until_told(stage: Stage, ask: Callable[[], Any]) -> Any:
    """Ask while the server dies at its armed point, start it again, and return what the asker was told in the end."""
    told: list[Any] = []
    problems: list[BaseException] = []

    def asking() -> None:
        try:
            told.append(ask())
        except BaseException as error:  # noqa: BLE001 - raised again below
            problems.append(error)

    asker = threading.Thread(target=asking)
    asker.start()
    come_back(stage)
    asker.join()
    if problems:
        raise problems[0]
    return told[0]


def come_back(stage: Stage) -> None:
    """Wait for the server's death at the armed point, and start it again."""
    wait_for(lambda: stage.has_fired, what="the server did not come to the armed point")
    if getattr(stage, "is_one_of_many", False):
        stage.disarm()
        return
    assert stage.forks.wait(stage.process) == -9
    stage.disarm()
    stage.start()
