"""Few workflows that many clients want at once, from four server processes of which one is killed meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import pytest

from app.cli.remote import PersonConnection
from continuity.client import ContinuityClient
from continuity.errors import ConflictError, TransportError, UnavailableError
from tests.crash.invariants import FINAL, GRANTS, check_invariants
from tests.crash.stage import NAME, PASSWORD, Case, Stage
from tests.patience import PATIENCE_S

CLIENTS, HOT, SECONDS = 6, 3, 10
KILLED_AFTER_S = 3
ALL_CALLS = {"begin", "outcome", "renew", "confirm"}
CAPABILITIES = ("idempotent", "none", "query")
OUTCOMES = ("unknown", "unknown", "not_dispatched", "confirmed_refused", "confirmed_succeeded")


class Hall:
    """The workflows that everybody wants, and what was answered about each."""

    def __init__(self, stage: Stage, folder) -> None:
        self._stage, self._folder = stage, folder
        self._lock, self._began_s = threading.Lock(), time.monotonic()
        self.cases: list[Case] = []
        self.acks: dict[str, list[dict[str, Any]]] = {}
        self.grants: dict[str, list[Mapping[str, Any]]] = {}
        self.told: dict[str, int] = {}
        for number in range(HOT):
            self._open(number)

    def _open(self, number: int) -> None:
        case = self._stage.case(CAPABILITIES[number % len(CAPABILITIES)], self._folder)
        self.cases.append(case)
        self.acks[case.workflow_id], self.grants[case.workflow_id] = [], []

    def note(self, workflow_id: str, call: str, sent: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
        with self._lock:
            self.told[call] = self.told.get(call, 0) + 1
            self.acks[workflow_id].append({"call": call, "sent": dict(sent), "reply": dict(reply)})
            if call == "begin" and reply["action"] in GRANTS:
                self.grants[workflow_id].append(reply)

    def over(self, case: Case) -> None:
        """Put another one in the place of a workflow that is finished."""
        with self._lock:
            if case in self.cases[-HOT:]:
                self._open(len(self.cases))

    def lacks_something(self) -> bool:
        """Say whether the machine is so slow that not everything has been met yet, and nobody's patience is over."""
        has_met_all = set(self.told) >= ALL_CALLS and len(self.cases) > HOT
        return not has_met_all and time.monotonic() < self._began_s + SECONDS + PATIENCE_S

    def hot(self, choose: random.Random) -> Case:
        return choose.choice(self.cases[-HOT:])


class Guest(threading.Thread):
    """A client that does whatever comes to its mind."""

    def __init__(self, stage: Stage, hall: Hall, person: PersonConnection, seed: int, until: float) -> None:
        super().__init__()
        self._person, self._advances = person, 0
        self._stage, self._hall, self._until, self._is_person = stage, hall, until, seed == 0
        self._choose = random.Random(seed)
        self.wrong: list[BaseException] = []

    def run(self) -> None:
        # One of them decides what people decide; he alone lets time go on.
        own = [self.confirm] * 4 if self._is_person else [self.begin] * 4
        acts = [self.begin] * 3 + [self.outcome] * 6 + [self.renew] * 2 + [self.abandon] + own
        with ContinuityClient(self._stage.url, self._stage.token) as self._client:
            while not self.wrong and (time.monotonic() < self._until or self._hall.lacks_something()):
                self._try(self._choose.choice(acts), self._hall.hot(self._choose))

    def _try(self, act: Callable[[Case], None], case: Case) -> None:
        try:
            act(case)
        except (ConflictError, TransportError, UnavailableError):
            # Refused, or nobody knows: whatever it has left, it may not contradict what others were told.
            pass
        except BaseException as error:  # noqa: BLE001 - the test judges
            self.wrong.append(error)

    def _grant(self, case: Case) -> Mapping[str, Any]:
        grants = self._hall.grants[case.workflow_id]
        if not grants:
            raise ConflictError("nothing was granted yet", code="nothing_granted")
        return self._choose.choice(grants[-2:])

    def begin(self, case: Case) -> None:
        sent = {"run_id": f"run-{self._choose.randrange(3)}", "attempt_id": f"at_{secrets.token_hex(8)}"}
        reply = self._client.begin(case.workflow_id, NAME, **sent)
        self._hall.note(case.workflow_id, "begin", sent, reply)
        if reply["reason"] in {"saved_receipt", "abandoned", "refused_by_destination"}:
            self._hall.over(case)

    def outcome(self, case: Case) -> None:
        grant = self._grant(case)
        kind = self._choose.choice(OUTCOMES)
        receipt = {"outcome": kind, "operation_id": grant["operation_id"], "reason": "none"}
        if kind == "confirmed_succeeded":
            receipt = {**receipt, "effect_id": f"effect-{self._choose.randrange(3)}", "result": None}
        sent = {"run_id": grant["run_id"], "attempt_id": grant["attempt_id"], "receipt": receipt}
        reply = self._client.send_outcome(case.workflow_id, NAME, **sent, lease_token=grant["lease_token"])
        self._hall.note(case.workflow_id, "outcome", sent, reply)

    def renew(self, case: Case) -> None:
        grant = self._grant(case)
        sent = {"run_id": grant["run_id"], "attempt_id": grant["attempt_id"]}
        reply = self._client.renew(case.workflow_id, NAME, **sent, lease_token=grant["lease_token"])
        self._hall.note(case.workflow_id, "renew", sent, reply)

    def abandon(self, case: Case) -> None:
        if self._choose.random() < 0.2:
            self._client.abandon(case.workflow_id, NAME, reason="not wanted")
            self._hall.over(case)

    def confirm(self, case: Case) -> None:
        view = self._client.get_workflow(case.workflow_id)
        body = {
            "name": NAME, "happened": self._choose.random() < 0.3, "revision": view["revision"],
            "late_receipts": view["operations"][0]["late_receipts"], "reason": "Looked.",
        }  # fmt: skip
        if body["happened"]:
            body["receipt"] = {"effect_id": "effect-seen", "result": None}
        if self._advances == 3:
            # The password counts for ten minutes. Where the kill meets this, time does not go on before it is given.
            self._person.sign_in(self._stage.instance.username, PASSWORD)
            self._advances = 0
        self._advances += 1
        self._stage.advance()
        reply = self._person.call("POST", f"/v1/continuity/{case.workflow_id}/confirm", body)
        self._hall.note(case.workflow_id, "confirm", body, reply)


@pytest.mark.postgresql
def test_hot_workflows_hold_every_invariant_while_one_process_of_four_is_killed(postgresql_stage, tmp_path):
    stage = postgresql_stage
    hall, until = Hall(stage, tmp_path), time.monotonic() + SECONDS
    person = stage.person()
    guests = [Guest(stage, hall, person, seed, until) for seed in range(CLIENTS)]
    for guest in guests:
        guest.start()
    time.sleep(KILLED_AFTER_S)
    processes = psutil.Process(stage.process).children()
    os.kill(processes[0].pid, signal.SIGKILL)
    for guest in guests:
        guest.join()
    person.close()

    assert len(processes) >= 4
    assert [guest.wrong for guest in guests] == [[]] * CLIENTS
    assert set(hall.told) >= ALL_CALLS, hall.told
    finals = 0
    for case in hall.cases:
        view = stage.operator.get_workflow(case.workflow_id)
        check_invariants([], view, hall.acks[case.workflow_id], is_honest=False)
        check_leases(view, hall.acks[case.workflow_id])
        finals += view["operations"][0]["status"] in FINAL
    assert finals >= 1
    # Histories replay to the stored states, counters and the audit chain hold.
    assert stage.problems() == []


def check_leases(view: Mapping[str, Any], acks: list[dict[str, Any]]) -> None:
    """No attempt was granted while the lease of the one before it was live: it had ended, or 120 s had gone."""
    renewed: dict[str, float] = {}
    for ack in acks:
        if ack["call"] == "renew":
            attempt_id = ack["sent"]["attempt_id"]
            renewed[attempt_id] = max(renewed.get(attempt_id, 0), ack["reply"]["lease_until"])
    attempts = view["operations"][0]["attempts"]
    for before, after in itertools.pairwise(attempts):
        lease_until = max(before["started"] + 120, renewed.get(before["attempt_id"], 0))
        has_ended = "ended" in before and before["ended"] <= after["started"]
        is_covered = any(
            event["event"] == "outcome_confirmed" and before["started"] <= event["time"] <= after["started"]
            for event in view["history"]
        )
        assert has_ended or is_covered or lease_until <= after["started"], "two live leases"
