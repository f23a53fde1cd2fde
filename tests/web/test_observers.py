"""Observers over HTTP: what they learn, what they can change, and that they take nothing from governed work."""

from __future__ import annotations

import json
import threading
import time

import pytest

from app.auth.accounts import LOCAL
from app.auth.requests import RevokeRequest
from continuity.errors import UnavailableError
from observations import ingest
from tests.observing import LEAST, WHOLE
from tests.patience import PATIENCE_S
from tests.web.matrix import ATTEMPT, WORKFLOWS, World
from tests.web.site import PRODUCER_TOKEN, site_on

EVENTS = f"{WORKFLOWS}/events"
FORMAT = {"format": "atmem.continuity.v1"}
PRICED = {
    **FORMAT, **LEAST, "event": "usage", "charge_id": "c", "charge_source": "s", "cost_microusd": 7,
    "price_source": "p",
}  # fmt: skip


@pytest.fixture
def world(site):
    return World(site)


def submit(world, body, name="producer", **options):
    return world.ask_as(name, world.target()).send("POST", EVENTS, body, **options)


def cost_of(world, scope):
    (line,) = world.site.wiring.observations.queries.find([scope], PRICED["workflow_id"])
    return line.sums.cost_microusd


def test_events_go_into_the_scope_of_the_token_and_nowhere_else(world):
    assert submit(world, PRICED).json == {"accepted": True, "replayed": False}
    assert submit(world, {**PRICED, "cost_microusd": 8}, "observer").json == {"accepted": True, "replayed": False}

    assert (cost_of(world, "local"), cost_of(world, "somewhere")) == (7, 8)
    assert submit(world, {**PRICED, "event_id": "x", "scope": "somewhere"}).status_code == 400


def test_an_observer_learns_accepted_replayed_or_conflict_and_nothing_of_why(world):
    """The same bytes whatever the event contradicts, and whether or not anybody else knows the ids."""
    submit(world, PRICED)
    contradictions = [
        {**PRICED, "time": 5},
        {**PRICED, "event_id": "e2", "run_id": "another"},
        {**PRICED, "event_id": "e3", "cost_microusd": 8},
        {**PRICED, "event_id": "e4", "attempt_id": "another"},
    ]

    said = {str(submit(world, body).json["error"]) for body in contradictions}

    assert len(said) == 1
    assert "event_conflict" in said.pop()
    assert submit(world, PRICED).json == {"accepted": True, "replayed": True}
    assert submit(world, contradictions[0], "observer").json == {"accepted": True, "replayed": False}


@pytest.mark.parametrize("token", ["", "x" * 40, PRODUCER_TOKEN[:-1], PRODUCER_TOKEN + "x", PRODUCER_TOKEN.upper()])
def test_a_wrong_token_is_told_nothing(site, token):
    reply = site.browser().send("POST", EVENTS, PRICED, headers={"Authorization": f"Bearer {token}"})

    assert (reply.status_code, reply.json["error"]["code"]) == (401, "unauthenticated")


def test_without_a_token_in_the_environment_there_is_none(fresh_instance):
    with site_on(fresh_instance.folder, {"ATFLOWS_CONTINUITY_TOKEN": ""}) as site:
        for token in ("", PRODUCER_TOKEN):
            reply = site.browser().send("POST", EVENTS, PRICED, headers={"Authorization": f"Bearer {token}"})
            assert reply.status_code == 401


def test_forged_telemetry_changes_nothing_of_governed_work(world):
    """T12: an observer says that an attempt has completed; the ledger does not care."""
    target = world.target("begun")
    operator = world.ask_as("operator of all", target)
    before = operator.send("GET", f"{WORKFLOWS}/{target.workflow_id}", None).json
    forged = {**FORMAT, **LEAST, "workflow_id": target.workflow_id, "operation_id": target.operation_id,
              "run_id": ATTEMPT["run_id"], "attempt_id": ATTEMPT["attempt_id"]}  # fmt: skip

    for number, name in enumerate(("completed", "abandoned", "blocked", "unknown", "query")):
        assert submit(world, {**forged, "event_id": f"f{number}", "event": name}).status_code == 200

    assert operator.send("GET", f"{WORKFLOWS}/{target.workflow_id}", None).json == before


def test_deleting_a_workflow_leaves_its_observations(world):
    target = world.target("ended")
    submit(world, {**PRICED, "workflow_id": target.workflow_id})
    body = {"run_id": target.workflow_id, "confirmation": target.workflow_id}
    assert world.ask_as("operator of all", target).send("POST", "/v1/evidence/delete", body).status_code == 200

    (line,) = world.site.wiring.observations.queries.find(["local"], target.workflow_id)
    assert line.sums.cost_microusd == 7


def test_money_that_is_a_float_is_refused(world):
    """Also one that a loader would round to a whole number."""
    bearer = {"Authorization": f"Bearer {PRODUCER_TOKEN}"}
    for written in ("7.0", "7e0", "9007199254740990.6"):
        text = json.dumps(PRICED).replace('"cost_microusd": 7', f'"cost_microusd": {written}')
        reply = world.site.browser().client.post(EVENTS, data=text, headers=bearer, content_type="application/json")
        assert (reply.status_code, "cost_microusd" in reply.json["error"]["message"]) == (400, True)

    assert submit(world, PRICED).json["replayed"] is False


def test_a_body_above_eight_kib_is_not_read(world):
    assert submit(world, {**PRICED, "model": "m" * 9_000}).status_code == 413


def test_storage_that_cannot_answer_is_503_and_may_be_asked_again(world, monkeypatch):
    def broken(_work):
        raise UnavailableError("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(world.site.wiring.observations.ingest, "_units", Broken(broken))
        reply = submit(world, PRICED)

    assert (reply.status_code, reply.json["error"]["code"]) == (503, "storage_unavailable")
    assert "Retry-After" in reply.headers
    assert submit(world, PRICED).json["replayed"] is False


class Broken:
    is_postgresql = True

    def __init__(self, write):
        self.write = write


def test_a_vault_that_is_locked_does_not_keep_observations_out(world):
    observer = world.ask_as("observer", world.target())
    world.site.wiring.vault.lock()

    assert observer.send("POST", EVENTS, PRICED).status_code == 200


# --- Credentials ---


def test_only_administrators_issue_and_revoke_observers(world):
    body = {"principal_id": "producer-7", "role": "continuity_observer", "observation_scope": "s"}
    operator = world.ask_as("person: operator", world.target())
    assert operator.send("POST", "/v1/evidence/grants", body).status_code == 403
    assert operator.send("POST", "/v1/evidence/revoke", {"principal_id": "observer"}).status_code == 404

    administrator = world.ask_as("person: administrator", world.target())
    issued = administrator.send("POST", "/v1/evidence/grants", body).json
    assert issued["token"].startswith("atm_b_")
    bearer = {"Authorization": f"Bearer {issued['token']}"}
    assert world.site.browser().send("POST", EVENTS, PRICED, headers=bearer).status_code == 200

    assert administrator.send("POST", "/v1/evidence/revoke", {"principal_id": "producer-7"}).json["revoked"] == 1
    assert world.site.browser().send("POST", EVENTS, PRICED, headers=bearer).status_code == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"observation_scope": None}, {"observation_scope": "a b"}, {"observation_scope": 1},
        {"workspace_id": "default"},
        {"run_id": "wf_" + "0" * 32}, {"agents": ["a"]}, {"role": "evidence_collector"},
    ],
)  # fmt: skip
def test_an_observer_has_a_scope_and_nothing_else(world, wrong):
    body = {"principal_id": "producer-7", "role": "continuity_observer", "observation_scope": "s", **wrong}

    assert world.ask_as("person: administrator", world.target()).send(
        "POST", "/v1/evidence/grants", body
    ).status_code == 400  # fmt: skip


def test_an_observer_ends_with_its_issuer(world):
    token = world.ask_as("observer", world.target())
    world.site.wiring.auth.accounts.disable("adm", by=LOCAL)

    assert token.send("POST", EVENTS, PRICED).status_code == 401


def test_a_revoked_observer_is_refused_at_once(world):
    observer = world.ask_as("observer", world.target())
    world.site.wiring.auth.credentials.revoke(world.admin, RevokeRequest("observer", None))

    assert observer.send("POST", EVENTS, PRICED).status_code == 401


# --- A flood (R02) ---


def test_a_flood_of_events_uses_up_its_own_budget_alone(fresh_instance):
    with site_on(fresh_instance.folder, {"ATMEM_EVENTS_PER_SECOND": "5"}) as site:
        world = World(site)
        target = world.target()
        statuses = [submit(world, {**PRICED, "event_id": f"e{n}"}).status_code for n in range(15)]

        assert statuses.count(200) == 10
        assert set(statuses) == {200, 429}
        begun = world.ask_as("operator of all", target).send("POST", f"{WORKFLOWS}/{target.workflow_id}/begin", ATTEMPT)
        assert begun.json["action"] == "execute"


def test_events_that_hang_in_storage_hold_neither_threads_nor_connections_of_governed_work(world, monkeypatch):
    entered, leave = threading.Semaphore(0), threading.Event()

    def hang(_work):
        entered.release()
        assert leave.wait(PATIENCE_S)
        raise UnavailableError("The disk hangs.")

    monkeypatch.setattr(world.site.wiring.observations.ingest, "_units", Broken(hang))
    target = world.target()
    replies = []
    threads = [
        threading.Thread(target=lambda n=n: replies.append(submit(world, {**PRICED, "event_id": f"e{n}"}).status_code))
        for n in range(ingest.PLACES)
    ]
    for thread in threads:
        thread.start()
    assert entered.acquire(timeout=PATIENCE_S)
    give_up = time.monotonic() + PATIENCE_S
    while world.site.wiring.observations.ingest._places._value:
        assert time.monotonic() < give_up
        time.sleep(0.01)

    assert submit(world, PRICED).status_code == 429
    operator = world.ask_as("operator of all", target)
    assert operator.send("POST", f"{WORKFLOWS}/{target.workflow_id}/begin", ATTEMPT).json["action"] == "execute"

    leave.set()
    for thread in threads:
        thread.join()
    assert replies == [503] * ingest.PLACES


def test_observations_have_connections_of_their_own(world):
    wiring = world.site.wiring

    assert wiring.observations.store.engine is not wiring.store.engine
    assert wiring.observations.queries.totals(WHOLE).attempts == 0
