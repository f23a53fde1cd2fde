"""Agents on LangGraph are killed at every point of a governed call; the thread goes on to one effect a call.

All four destinations of examples/, as real processes on a real server. Where a person is needed the agent stops with
the reason, the page says so, and resuming the same thread after the decision finishes it.
"""

from __future__ import annotations

import itertools
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from examples.local_server import Records
from examples.paying_agent.payments_server import WINDOW_S
from tests.crash.agents import CALLS
from tests.crash.forks import Forks
from tests.crash.stage import Stage, until
from tests.patience import PATIENCE_S

_numbers = itertools.count()
RESUMES_MOST = 2 * CALLS + 2

# Where an agent dies: the point, and at which passing of it. The last two lie in the middle of the message.
DEATHS = {
    "before begin": ("begin.before_send", 1),
    "after begin": ("begin.after_reply", 1),
    "after the effect": ("effect.after", 1),
    "after the receipt": ("outcome.after_reply", 1),
    "before the results are kept": ("writes.before", 1),
    "before the checkpoint is written": ("checkpoint.before", 1),
    "before the second begin": ("begin.before_send", 2),
    "after the second effect": ("effect.after", 2),
}
OPTION = {"publishing": "output", "paying": "payments", "mailing": "mail", "blind": "printer"}
LEASED = {"after begin", "after the effect", "after the second effect"}
"""Deaths that leave a grant behind, so that the next agent must wait for its lease."""
ASKS_A_PERSON = {
    ("mailing", "after begin"): "effect_not_found",
    ("blind", "after begin"): "needs_confirmation",
    ("blind", "after the effect"): "needs_confirmation",
    ("blind", "after the second effect"): "needs_confirmation",
}
SAYS = {
    "needs_confirmation": "Needs confirmation: no receipt came",
    "effect_not_found": "The destination will be asked again",
    "idempotency_window_expired": "The key no longer protects a repeat",
}
"""What the page says for each reason for which an agent has stopped."""


@pytest.fixture(scope="session")
def parent() -> Iterator[Forks]:
    parent = Forks("tests.crash.agents")
    yield parent
    parent.close()


@dataclass
class Destination:
    """Where an agent acts, and the records that the agent knows nothing of."""

    name: str
    address: str
    records: Records

    def effects(self) -> list[dict[str, Any]]:
        if self.name == "publishing":
            return [{"text": path.read_text()} for path in sorted(Path(self.address).glob("op_*"))]
        return self.records.all()


@contextmanager
def destination(name: str, parent: Forks, folder: Path) -> Iterator[Destination]:
    records = Records(folder / "records.jsonl")
    if name == "publishing":
        yield Destination(name, str(folder / "published"), records)
        return
    log = folder / "destination.log"
    argv = ["--records", str(folder / "records.jsonl")]
    printed = log.with_name(log.name + ".out")
    printed.unlink(missing_ok=True)
    process = parent.start("destination", log=log, name=name, argv=argv)
    until(lambda: printed.exists() and printed.read_text().endswith("}\n"), log.read_text)
    try:
        yield Destination(name, json.loads(printed.read_text())["url"], records)
    finally:
        parent.kill(process)


@dataclass
class Talk:
    """One thread of one agent: runs it, and does what a person does where it stops."""

    stage: Stage
    parent: Forks
    destination: Destination
    folder: Path
    token: str
    job: str = "agent"
    stops: list[str] = field(default_factory=list)

    def run(self, command: str, *, die_at: str = "", time: int = 1) -> tuple[int, Any]:
        """Run the agent's command line in a process of its own; return how it ended and what it printed."""
        log = self.folder / f"agent-{next(_numbers)}.log"
        argv = [
            command, "--thread", "one", "--checkpoints", str(self.folder / "state" / "checkpoints.db"),
            f"--{OPTION[self.destination.name]}", self.destination.address, "--url", self.stage.url,
        ]  # fmt: skip
        process = self.parent.start(
            self.job, log=log, name=self.destination.name, argv=argv, environment={"ATMEM_EVIDENCE_TOKEN": self.token},
            die_at=die_at, time=time,
        )  # fmt: skip
        status = self.parent.wait(process)
        assert status in {0, 2, -9}, log.read_text()
        printed = log.with_name(log.name + ".out").read_text()
        return status, json.loads(printed) if printed else None

    def finish(self) -> list[dict[str, Any]]:
        """Resume the thread until it has ended; return the results of its calls."""
        for _ in range(RESUMES_MOST):
            status, said = self.run("resume")
            if status == 0:
                return list(said["calls"])
            self.stops.append(said["stopped_safely"])
            if said["stopped_safely"] == "attempt_in_progress":
                assert 0 < said["retry_after_seconds"] <= 120
                self.stage.advance()
            else:
                self.decide(said)
        raise AssertionError(f"no end: {self.stops}")

    def decide(self, said: Mapping[str, Any]) -> None:
        """Be the operator who is sent to the page: read it, look at the destination, say what is there."""
        person = self.stage.person()
        page = requests.get(said["page"], headers={"Cookie": person._cookie}, timeout=PATIENCE_S).text
        assert SAYS[said["stopped_safely"]] in page
        assert "Confirm outcome" in page
        view = self.stage.operator.get_workflow(said["workflow_id"])
        (operation,) = view["operations"]
        found = self.look_for(operation)
        body = {
            "name": operation["name"], "happened": found is not None, "revision": view["revision"],
            "late_receipts": operation["late_receipts"], "reason": "Looked at the destination.",
        }  # fmt: skip
        if found is not None:
            body["receipt"] = {"effect_id": str(found.get("id", found.get("text"))), "result": {"found": found}}
        person.call("POST", f"/v1/continuity/{said['workflow_id']}/confirm", body)
        person.close()

    def look_for(self, operation: Mapping[str, Any]) -> dict[str, Any] | None:
        """Find what an operation did, by what a person would recognise it by."""
        wanted = operation["arguments"].items()
        found = [effect for effect in self.destination.effects() if wanted <= effect.get("what", effect).items()]
        return found[0] if found else None


@pytest.fixture
def talk_at(parent, sqlite_stage, tmp_path):
    """Make a thread of an agent that nobody has been before."""

    @contextmanager
    def made(name: str) -> Iterator[Talk]:
        token = sqlite_stage.grant(f"agent-{secrets.token_hex(8)}", "continuity_coordinator")
        with destination(name, parent, tmp_path) as there:
            yield Talk(sqlite_stage, parent, there, tmp_path, token)

    return made


def is_finished_once(talk: Talk) -> None:
    """Finish the thread: each call has one result and each effect happened once, however often it is resumed."""
    calls = talk.finish()
    effects = talk.destination.effects()
    assert [call["id"] for call in calls] == ["call_1", "call_2", "call_3"]
    assert {call["status"] for call in calls} == {"success"}
    assert len(effects) == CALLS
    assert len({json.dumps(effect.get("what", effect.get("to", effect.get("text")))) for effect in effects}) == CALLS

    assert talk.run("resume") == (0, {"thread": "one", "calls": calls})
    assert talk.destination.effects() == effects


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("name", OPTION)
def test_an_agent_killed_anywhere_leaves_a_thread_that_ends_with_one_effect_a_call(talk_at, name, death):
    point, time = DEATHS[death]
    with talk_at(name) as talk:
        assert talk.run("start", die_at=point, time=time) == (-9, None)

        is_finished_once(talk)

    expected = ["attempt_in_progress"] if death in LEASED else []
    if (name, death) in ASKS_A_PERSON:
        expected.append(ASKS_A_PERSON[name, death])
    assert talk.stops == expected


@pytest.mark.parametrize("job", ["awaited_agent", "langchain_agent"])
@pytest.mark.parametrize("death", DEATHS)
def test_an_agent_on_an_event_loop_and_one_of_langchain_are_held_to_the_same(talk_at, death, job):
    point, time = DEATHS[death]
    with talk_at("blind") as talk:
        talk.job = job
        assert talk.run("start", die_at=point, time=time) == (-9, None)

        is_finished_once(talk)

    expected = ["attempt_in_progress"] if death in LEASED else []
    if ("blind", death) in ASKS_A_PERSON:
        expected.append(ASKS_A_PERSON["blind", death])
    assert talk.stops == expected


@pytest.mark.parametrize("name", OPTION)
def test_an_agent_that_nobody_kills_needs_nobody(talk_at, name):
    with talk_at(name) as talk:
        status, said = talk.run("start")

        assert (status, len(said["calls"])) == (0, CALLS)
        is_finished_once(talk)

    assert talk.stops == []


@pytest.mark.parametrize("name", OPTION)
def test_an_agent_killed_again_and_again_still_ends_with_one_effect_a_call(talk_at, name):
    with talk_at(name) as talk:
        talk.run("start", die_at="effect.after", time=1)
        talk.stage.advance()
        for point in ("outcome.before_send", "effect.after"):
            talk.run("resume", die_at=point)
            talk.stage.advance()

        is_finished_once(talk)


def test_a_payment_whose_key_is_no_longer_remembered_waits_for_a_person(talk_at):
    with talk_at("paying") as talk:
        talk.run("start", die_at="effect.after")
        talk.stage.advance(WINDOW_S + 1)

        is_finished_once(talk)

    assert talk.stops == ["idempotency_window_expired"]


def test_an_agent_that_finds_its_destination_gone_goes_on_when_it_is_back(parent, sqlite_stage, talk_at, tmp_path):
    with talk_at("mailing") as talk:
        pass
    status, said = talk.run("start")
    assert (status, said["stopped_safely"]) == (2, "not_dispatched")

    with destination("mailing", parent, tmp_path) as back:
        talk.destination = back
        is_finished_once(talk)


def test_a_checkpoint_file_from_before_the_calls_gives_back_their_results(talk_at):
    with talk_at("blind") as talk:
        state, earlier = talk.folder / "state", talk.folder / "earlier"
        talk.run("start", die_at="begin.before_send")
        shutil.copytree(state, earlier)
        assert talk.run("resume")[0] == 0
        shutil.rmtree(state)
        shutil.copytree(earlier, state)

        is_finished_once(talk)

    assert talk.stops == []
