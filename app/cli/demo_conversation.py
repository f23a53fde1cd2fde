"""The demo's conversation: an agent asks before it cancels an order, its worker is killed, a person resumes it.

The agent is that of ``examples/order_support``, the second worker is ``atmem threads worker`` itself, and whoever
talks is the administrator: what the demo asks of the server is what the pages ask. The first worker's process ends
itself as ``kill -9`` would, after the cancellation and before its receipt.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import click

from app.cli.demo_stage import (
    ADMINISTRATOR,
    STEP_TIMEOUT_S,
    Stage,
    StoryError,
    atmem,
    environment,
    log_tail,
    wait_until,
)
from app.cli.remote import PersonConnection
from app.cli.terminal import plain
from app.cli.threads import COORDINATOR_VARIABLE, WORKER_VARIABLE, line_of
from continuity.decisions.threads.bounds import CLAIM_S
from continuity.decisions.threads.states import ThreadState
from continuity.transport import VIEW_BYTES, Transport

AGENT: Final = "order_support"
ORDER: Final = "17"
WISH: Final = f"Please cancel order {ORDER}."
HOME: Final = Path(__file__).parents[2]
"""The checkout, or what the packages are installed into, which has no examples."""
_EXAMPLE: Final = Path("examples", AGENT, "agent.py")
_WORKSPACE: Final = "default"
_IDLE_AGENT: Final = "night_report"
"""An agent that nobody runs: its thread has a run that waits for a worker."""
_TOOLS: Final = "order-tools"
_LOG: Final = "worker"
_LOOK_S: Final = 0.25
_LEASE_MARGIN_S: Final = 1.0
_SCENES: Final = (
    ("where-is-18", "Where is order 18?"),
    ("cancel-18", "Please cancel order 18."),
    # Not what the agent takes: its run fails, and says why.
    ("no-question", {"question": "Where?"}),
)
# The worker of the example, which ends itself as `kill -9` would once the order is cancelled.
_KILLED_WORKER: Final = """
import os, signal
from continuity.threads import ThreadWorker, WorkerClient
from examples.order_support.agent import agent
def trace(point):
    if point == "effect.after":
        os.kill(os.getpid(), signal.SIGKILL)
token, coordinator_token = os.environ["ATMEM_THREADS_TOKEN"], os.environ["ATMEM_EVIDENCE_TOKEN"]
client = WorkerClient(os.environ["ATMEM_URL"], token, coordinator_token=coordinator_token, trace=trace)
ThreadWorker(client, [agent]).run(ready=lambda: print("Running", flush=True))
"""


@dataclass
class Conversation:
    """One thread, and the workers that run its agent one after the other."""

    stage: Stage
    checkout: Path
    person: PersonConnection
    tokens: dict[str, str] = field(default_factory=dict, repr=False)
    thread_id: str = ""

    @classmethod
    def of(cls, stage: Stage) -> Self | None:
        """Return the conversation of a demo; None, and say why, where its agent cannot be run."""
        checkout = next((at for at in (HOME, Path.cwd()) if (at / _EXAMPLE).is_file()), None)
        if checkout is None:
            click.echo("\nLeft out: a conversation whose worker is killed. Its agent is in the checkout: run it there.")
            return None
        if find_spec("langchain") is None or find_spec("langgraph") is None:
            click.echo(
                "\nLeft out: a conversation whose worker is killed. Its agent needs LangChain. "
                "In the checkout: python -m pip install '.[server,threads]'"
            )
            return None
        person = PersonConnection(stage.url)
        person.sign_in(ADMINISTRATOR, stage.password)
        return cls(stage, checkout, person)

    # ---- the story

    def lose_a_worker(self) -> None:
        """Let the agent ask, say yes, and lose the worker in what it then does; another one is there."""
        stage = self.stage
        self.tokens = self._credentials()
        killed = self._start([sys.executable, "-c", _KILLED_WORKER])
        self.thread_id = self._said("cancel-17", AGENT, WISH)
        click.echo(f"\nWhile that lease lives, a conversation{self._place}:\n     {ADMINISTRATOR}: {WISH}")
        snapshot = self._when(lambda found: found["thread"]["state"] == ThreadState.WAITING)
        asked = [each["shown"] for each in snapshot["waiting"]]
        has_asked = asked == [{"tool": "cancel_order", "arguments": {"order": ORDER}}] and not self._cancelled
        stage.check("An agent has looked at the order, and asks before it cancels it", has_asked)
        self._approve(snapshot["waiting"][0])
        self._wait_for_the_end_of(killed)
        stage.check(
            "It was told yes, and its worker was killed (SIGKILL) after the cancellation, before its receipt",
            killed.returncode < 0 and self._cancelled == [ORDER],
        )
        second = self._start(atmem("threads", "worker", "examples.order_support.agent:agent"))
        stage.check("Another worker is there; threads in every state can be looked at", self._set_scenes())
        click.echo(f"     The killed worker's claim on the thread ends after {CLAIM_S} s of silence.")
        snapshot = self._when(lambda found: found["thread"]["state"] != ThreadState.RUNNING, timeout_s=2 * CLAIM_S)
        last = snapshot["runs"][-1]
        is_left = (last["state"], last.get("reason")) == ("interrupted", "claim_expired") and second.poll() is None
        stage.check("The thread needs attention: nobody has begun it again by itself", is_left)

    def go_on(self) -> None:
        """Let a person resume it, and look at what became of the order."""
        stage = self.stage
        click.echo("\nThe conversation again:")
        attempts = self._attempts()
        told = "The killed worker's lease protects the cancellation"
        wait_until(float(attempts[-1].get("lease_until", 0)) + _LEASE_MARGIN_S, told=told)
        self._resume()
        snapshot = self._when(lambda found: found["thread"]["state"] == ThreadState.IDLE)
        ended = [run["state"] for run in snapshot["runs"]]
        # Whoever watches may have resumed it while the lease lived: that run ended as interrupted, too.
        is_settled = (*ended[:2], ended[-1]) == ("waiting", "interrupted", "settled")
        stage.check("A person has resumed it, and the other worker went on where it was left", is_settled)
        modes = [attempt["mode"] for attempt in self._attempts()]
        stage.check("It asked the shop instead of cancelling again", modes == ["execute", "query"])
        stage.check(f"The shop's books have one cancellation, of order {ORDER}", self._cancelled == [ORDER])
        calls = [item for item in snapshot["messages"] if item["type"] == "tool_call"]
        outcomes = [(call["tool"], call["outcome"]) for call in calls]
        wanted = [(tool, "ok") for tool in ("write_todos", "lookup_order", "cancel_order", "write_todos")]
        stage.check("Every call has one result", outcomes == wanted)
        todos = [todo["status"] for todo in snapshot["state"]["todos"]]
        stage.check("Its list of things to do is ticked", todos == ["completed", "completed"])
        click.echo()
        for item in snapshot["messages"]:
            click.echo(f"  {plain(line_of(item))}")
        self.person.sign_out()
        self.person.close()

    def _approve(self, waiting: Mapping[str, Any]) -> None:
        told = (f"Look at it: {self._page}", "Approve it there, or press Enter to approve it from here.")
        if not self.stage.leaves(told, is_done=lambda: self._state != ThreadState.WAITING):
            reply = {"revision": waiting["revision"], "reply": True}
            self._post(f"/v1/threads/{self.thread_id}/waiting/{waiting['waiting_id']}/reply", reply)

    def _wait_for_the_end_of(self, worker: subprocess.Popen[str]) -> None:
        try:
            worker.wait(timeout=STEP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise StoryError("The agent was not told yes, or has not cancelled the order.") from None

    def _resume(self) -> None:
        told = (f"Look at it: {self._page}", "Resume it there, or press Enter to resume it from here.")
        is_done = self.stage.leaves(told, is_done=lambda: self._state == ThreadState.IDLE)
        if not is_done and self._state == ThreadState.NEEDS_ATTENTION:
            self._post(f"/v1/threads/{self.thread_id}/resume", {})

    def _set_scenes(self) -> bool:
        """Begin threads for every other state, which the worker that is there runs; return whether all came to be."""
        issue = ("--thread-worker", "--agents", _IDLE_AGENT, "--workspace", _WORKSPACE, "--principal", "night-worker")
        with Transport(self.stage.url, self.stage.credential(*issue)) as worker:
            worker.call("POST", "/v1/threads/agents", {"agents": [{"name": _IDLE_AGENT, "public": True}]})
        self._said("report-of-today", _IDLE_AGENT, "Write the report of today.")
        for name, content in _SCENES:
            self._said(name, AGENT, content)
        ends_at_s = time.monotonic() + STEP_TIMEOUT_S
        while {each["state"] for each in self._get("/v1/threads")["threads"]} != set(ThreadState):
            if time.monotonic() > ends_at_s:
                return False
            time.sleep(_LOOK_S)
        return True

    # ---- what it is made of

    @property
    def _page(self) -> str:
        return f"{self.stage.url}/threads/{self.thread_id}"

    @property
    def _place(self) -> str:
        return f", at {self._page}" if self.stage.is_watched else ""

    @property
    def _cancelled(self) -> list[str]:
        """The orders in the shop's books."""
        books = self._shop / "cancellations.jsonl"
        return [json.loads(line)["order"] for line in books.read_text().splitlines()] if books.exists() else []

    @property
    def _shop(self) -> Path:
        return self.stage.folder / "order-support"

    def _credentials(self) -> dict[str, str]:
        runs = ("--thread-worker", "--agents", AGENT, "--principal", "order-worker")
        does = ("--coordinator", "--principal", _TOOLS)
        variables = {WORKER_VARIABLE: runs, COORDINATOR_VARIABLE: does}
        return {name: self.stage.credential(*how, "--workspace", _WORKSPACE) for name, how in variables.items()}

    def _start(self, command_line: list[str]) -> subprocess.Popen[str]:
        """Start a worker, and wait until it has declared its agent."""
        log = self.stage.folder / f"{_LOG}.log"
        variables = environment(self.stage.folder, url=self.stage.url) | self.tokens
        variables["ORDER_SUPPORT_FOLDER"] = str(self._shop)
        with log.open("w") as stream:
            worker = self.stage.start(command_line, stream, at=self.checkout, variables=variables)
        ends_at_s = time.monotonic() + STEP_TIMEOUT_S
        while "Running" not in log.read_text():
            if worker.poll() is not None or time.monotonic() > ends_at_s:
                raise StoryError(f"A worker of threads did not start. {log_tail(self.stage.folder, _LOG)}")
            time.sleep(_LOOK_S)
        return worker

    def _when(self, holds: Callable[[dict[str, Any]], bool], *, timeout_s: float = STEP_TIMEOUT_S) -> dict[str, Any]:
        """Wait until the thread is as it should be; return it."""
        ends_at_s = time.monotonic() + timeout_s
        while not holds(snapshot := self._snapshot()):
            if time.monotonic() > ends_at_s:
                last = snapshot["runs"][-1]
                where = ": ".join(str(last[name]) for name in ("state", "message") if last.get(name))
                raise StoryError(f"The conversation did not go on ({where}). {log_tail(self.stage.folder, _LOG)}")
            time.sleep(_LOOK_S)
        return snapshot

    def _attempts(self) -> list[dict[str, Any]]:
        """Return the attempts of the cancellation, the last with the end of its lease where it lives."""
        listed = self._get("/v1/continuity")["workflows"]
        # Newest first: whoever watches may have let the agent cancel another order meanwhile.
        found = [each["workflow_id"] for each in listed if each["creator_id"] == _TOOLS][-1]
        operation = self._get(f"/v1/continuity/{found}")["operations"][0]
        *earlier, last = operation["attempts"]
        return [*earlier, {**last, "lease_until": operation.get("lease_until", 0)}]

    def _said(self, name: str, agent: str, content: str | dict[str, str]) -> str:
        """Make a thread, and say something in it."""
        thread_id = str(self._post("/v1/threads", {"name": name, "agent": agent})["thread_id"])
        self._post(f"/v1/threads/{thread_id}/messages", {"content": content})
        return thread_id

    @property
    def _state(self) -> str:
        return str(self._snapshot()["thread"]["state"])

    def _snapshot(self) -> dict[str, Any]:
        return self._get(f"/v1/threads/{self.thread_id}")

    def _get(self, path: str) -> dict[str, Any]:
        return self.person.call("GET", path, most_bytes=VIEW_BYTES)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.person.call("POST", path, {**body, "request_id": f"demo_{secrets.token_hex(8)}"})
