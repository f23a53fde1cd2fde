"""Conversations as a person has them: a browser, the real server, and workers in processes of their own.

The server's clock is moved by the tests, so that nobody waits a minute for the claim of a killed worker to run out.
Agents are the example of the shop, in its worker, or `ByHand`, whose every word a test says itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from app.cli.remote import PersonConnection
from continuity.decisions.threads.states import Control
from continuity.thread_requests import AgentDeclaration
from continuity.threads.claims import WorkerClient
from examples.local_server import Records
from tests.browser.visits import Visit, people_of
from tests.crash.forks import Forks
from tests.crash.stage import Stage, staged
from tests.patience import PATIENCE_S, wait_for
from tests.servers import Instance
from tests.threads.town import ByHand

SHOP = "order_support"
OVER_S = 200
"""Longer than a claim and than a lease."""
RUNS = 1_000
"""More than any test has: a worker that goes on until it is killed."""


@dataclass
class Shop:
    """The example's workers of one test, and the books of its shop."""

    world: World
    folder: Path
    workers: list[int] = field(default_factory=list)

    def open(self, **options: Any) -> int:
        """Start a worker; ``die_at`` and ``nth`` say where it kills itself."""
        stage = self.world.stage
        worker = stage.forks.start(
            "work", log=self.folder / f"worker-{len(self.workers)}.log", url=stage.url, token=self.world.runner,
            coordinator=self.world.coordinator, folder=str(self.folder / "shop"), clock=str(stage.clock_file),
            **{"runs": RUNS, **options},
        )  # fmt: skip
        self.workers.append(worker)
        wait_for(self.world.knows_the_shop, what="the worker declared no agent")
        return worker

    def wait(self, worker: int) -> int:
        """Wait until a worker has ended; return its exit status."""
        self.workers.remove(worker)
        return self.world.stage.forks.wait(worker)

    def kill(self, worker: int) -> None:
        self.workers.remove(worker)
        self.world.stage.forks.kill(worker)

    def close(self) -> None:
        for worker in list(self.workers):
            self.kill(worker)

    @property
    def cancelled(self) -> list[str]:
        return [each["order"] for each in Records(self.folder / "shop" / "cancellations.jsonl").all()]


@dataclass
class World:
    """A server with people, credentials for the shop's workers, and a person's own connection."""

    stage: Stage
    passwords: dict[str, str]
    runner: str
    coordinator: str
    op: PersonConnection

    def agent(self, **declared: Any) -> ByHand:
        """Declare an agent that the test is."""
        name = f"agent-{secrets.token_hex(4)}"
        token = self.stage.grant(f"runner-{name}", "thread_worker", workspace_id="default", agents=[name])
        calls = WorkerClient(self.stage.url, token)
        calls.declare([AgentDeclaration(name, **{"controls": frozenset(Control), "is_public": True, **declared})])
        return ByHand(self, calls, name)

    def thread(self, agent: str = SHOP) -> str:
        """Begin a thread of ``op``'s."""
        body = {"request_id": secrets.token_hex(8), "name": f"talk-{secrets.token_hex(4)}", "agent": agent}
        return str(self.op.call("POST", "/v1/threads", body)["thread_id"])

    def knows_the_shop(self) -> bool:
        return any(each["name"] == SHOP for each in self.op.call("GET", "/v1/threads/agents")["agents"])

    def say(self, thread: str, content: str) -> None:
        body = {"request_id": secrets.token_hex(8), "content": content}
        self.op.call("POST", f"/v1/threads/{thread}/messages", body)

    def snapshot(self, thread: str) -> dict[str, Any]:
        return self.op.call("GET", f"/v1/threads/{thread}")

    def state(self, thread: str) -> str:
        return str(self.snapshot(thread)["thread"]["state"])

    def reaches(self, thread: str, state: str) -> None:
        wait_for(lambda: self.state(thread) == state, what=f"the thread never was {state}")


@contextmanager
def worlds(instance: Instance, folder: Path) -> Iterator[World]:
    """Serve an instance with ``op``, ``inv`` and ``adm`` in it for as long as the block lasts."""
    with people_of(instance) as people:
        passwords = dict(people.passwords)
    forks = Forks("tests.threads.jobs")
    try:
        with staged(forks, instance, clock_file=folder / "clock", refuses=True) as stage:
            op = PersonConnection(stage.url)
            op.sign_in("op", passwords["op"])
            runner = stage.grant("runner", "thread_worker", workspace_id="default", agents=[SHOP])
            yield World(stage, passwords, runner, stage.grant("tools", "continuity_coordinator"), op)
            op.close()
    finally:
        forks.close()


@dataclass(frozen=True)
class Reader:
    """Somebody with a thread's page open."""

    page: Page

    @classmethod
    def at(cls, visit: Visit, thread: str) -> Reader:
        assert visit.go(f"/threads/{thread}") == 200
        return cls(visit.page)

    @property
    def texts(self) -> Locator:
        """The messages, in their order."""
        return self.page.locator("#transcript [data-text]")

    @property
    def last(self) -> Locator:
        return self.texts.last

    @property
    def note(self) -> Locator:
        """The line that says how fresh the page is."""
        return self.page.locator("#thread-live-note")

    @property
    def said(self) -> Locator:
        """What a screen reader is told."""
        return self.page.locator("#said")

    @property
    def box(self) -> Locator:
        return self.page.locator("#say-content")

    def stands(self, state: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the page shows a state of the thread."""
        shown = self.page.locator("#conversation")
        expect(shown).to_have_attribute("data-state", state, timeout=timeout_s * 1_000)

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def say(self, text: str, button: str = "Send") -> None:
        self.box.fill(text)
        self.press(button)

    def unfold(self, name: str) -> None:
        """Open a control unless it is open."""
        control = self.page.locator(f"#control-{name}")
        if control.get_attribute("open") is None:
            control.locator("summary").first.click()
