"""Issuing and revoking over HTTP (security.md S12, T01 to T05, T16)."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import event

from app.auth import tokens
from app.auth.schema import credentials
from continuity.services.callers import CallerKind, Role
from continuity.store.schema import owners
from tests.patience import PATIENCE_S

GRANT = "/v1/evidence/grants"
REVOKE = "/v1/evidence/revoke"
LIST = "/v1/continuity"
BODY = {"principal_id": "document-operator", "role": "evidence_collector"}
WORKFLOW = {"workflow_key": "k", "operations": [{"name": "publish", "tool": "files", "arguments": {}}]}


@pytest.fixture
def ada(site):
    site.person("ada")
    return site.signed_in("ada")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def status_for(site, token: str) -> int:
    return site.browser().send("GET", LIST, headers=bearer(token)).status_code


def test_the_reply_is_the_contracts(site, ada):
    reply = ada.post(GRANT, BODY)

    assert reply.status_code == 200
    assert set(reply.json) == {"principal_id", "role", "token", "expires_at", "request_id"}
    assert reply.json["principal_id"] == "document-operator"
    assert reply.json["role"] == "evidence_collector"
    assert reply.json["expires_at"] == site.clock.wall_us // 1_000_000 + 90 * 86_400
    assert tokens.is_well_formed(reply.json["token"])
    assert reply.json["request_id"] == reply.headers["X-Request-Id"]
    assert reply.headers["Cache-Control"] == "no-store"


def test_the_token_is_kept_nowhere(site, ada, caplog):
    token = ada.post(GRANT, BODY).json["token"]
    status_for(site, token)

    assert token not in repr(site.everything())
    assert token not in caplog.text


def test_a_grant_asks_for_the_password_of_the_last_ten_minutes(site, ada):
    site.clock.advance(601)

    refused = ada.post(GRANT, BODY)
    ada.post("/api/auth/reauthenticate", {"password": site.passwords["ada"]})

    assert (refused.status_code, refused.json["error"]["code"]) == (403, "reauthentication_required")
    assert ada.post(GRANT, BODY).status_code == 200


def test_a_revocation_does_not_wait_for_a_password(site, ada):
    token = ada.post(GRANT, BODY).json["token"]
    site.clock.advance(601)

    reply = ada.post(REVOKE, {"principal_id": "document-operator"})

    assert reply.status_code == 200
    assert reply.json["revoked"] == 1
    assert status_for(site, token) == 401


def test_expired_revoked_and_invented_tokens_have_one_answer(site, ada):
    expired = ada.post(GRANT, {**BODY, "expires_in_seconds": 1}).json["token"]
    revoked = ada.post(GRANT, {**BODY, "principal_id": "other"}).json["token"]
    ada.post(REVOKE, {"principal_id": "other"})
    site.clock.advance(1)
    invented = [tokens.new_token(kind) for kind in tokens.LETTERS]
    answers = set()
    for token in (expired, revoked, *invented, "atm_o_wrong", "é", ""):
        reply = site.browser().send("GET", LIST, headers=bearer(token))
        answers.add((reply.status_code, str(reply.json["error"]), reply.headers["WWW-Authenticate"]))

    assert len(answers) == 1
    assert answers.pop()[0] == 401


def test_a_wrong_checksum_asks_the_database_nothing(site, ada):
    token = ada.post(GRANT, BODY).json["token"]
    damaged = token[:10] + ("A" if token[10] != "A" else "B") + token[11:]
    seen = []
    event.listen(site.wiring.store.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))

    assert status_for(site, damaged) == 401
    assert seen == []


@pytest.mark.parametrize("role", [Role.INVESTIGATOR])
def test_who_may_not_issue_is_refused(site, role):
    site.person("ivy", role)
    browser = site.signed_in("ivy")

    assert browser.post(GRANT, BODY).status_code == 403
    assert browser.post(REVOKE, {"principal_id": "x"}).status_code == 403
    assert site.rows(credentials) == []


def test_nobody_is_refused_before_the_body_is_looked_at(site):
    assert site.browser().post(GRANT, {"nonsense": 1}).status_code == 401


@pytest.mark.parametrize(
    "more", [{"owner_pk": 1}, {"workspace_pk": 2}, {"created_at": 1}, {"fence": 1}, {"scope": {"workspace_id": "x"}}]
)
def test_what_the_server_decides_cannot_be_sent(site, ada, more):
    assert ada.post(GRANT, {**BODY, **more}).status_code == 400
    assert site.rows(credentials) == []


@pytest.mark.parametrize("kind", ["nonsense", "person"])
def test_a_kind_that_is_not_issued_names_those_that_are(ada, kind):
    reply = ada.post(GRANT, {**BODY, "role": kind})

    assert reply.status_code == 400
    for name in ("evidence_collector", "continuity_host", "continuity_coordinator"):
        assert name in reply.json["error"]["message"]


def test_another_role_for_a_known_principal_is_a_conflict(ada):
    ada.post(GRANT, BODY)

    reply = ada.post(GRANT, {**BODY, "role": "continuity_coordinator"})

    assert (reply.status_code, reply.json["error"]["code"]) == (409, "request_conflict")


def test_a_workspace_of_others_and_one_that_is_not_there_answer_alike(site, ada):
    site.person("bob", at=("south",))
    answers = []
    for workspace in ("south", "nowhere"):
        reply = ada.post(GRANT, {**BODY, "workspace_id": workspace})
        answers.append((reply.status_code, reply.json["error"]))

    assert answers[0] == answers[1]
    assert answers[0][0] == 404


class TestWorker:
    @pytest.fixture
    def workflow_id(self, site, ada):
        token = ada.post(GRANT, BODY).json["token"]
        return site.browser().post(LIST, WORKFLOW, headers=bearer(token)).json["workflow_id"]

    def worker(self, ada, workflow_id):
        grant = {"principal_id": "document-worker", "role": "continuity_host", "run_id": workflow_id}
        return ada.post(GRANT, grant)

    def test_its_token_opens_its_workflow_and_no_other(self, site, ada, workflow_id):
        token = self.worker(ada, workflow_id).json["token"]
        other = site.browser().post(
            LIST, {**WORKFLOW, "workflow_key": "other"}, headers=bearer(ada.post(GRANT, BODY).json["token"])
        ).json["workflow_id"]  # fmt: skip

        own = site.browser().send("GET", f"{LIST}/{workflow_id}", headers=bearer(token))
        foreign = site.browser().send("GET", f"{LIST}/{other}", headers=bearer(token))

        assert own.status_code == 200
        assert foreign.status_code == 404

    def test_its_token_dies_with_its_workflow_and_stays_dead_under_a_new_one(self, site, ada, workflow_id):
        token = self.worker(ada, workflow_id).json["token"]
        view = ada.send("GET", f"{LIST}/{workflow_id}").json
        stop = {"name": "publish", "reason": "not wanted", "revision": view["revision"]}
        assert ada.post(f"{LIST}/{workflow_id}/abandon", stop).status_code == 200
        deletion = ada.post("/v1/evidence/delete", {"run_id": workflow_id, "confirmation": workflow_id})
        assert deletion.status_code == 200
        site.browser().post(
            LIST, {**WORKFLOW, "workflow_key": "again"}, headers=bearer(ada.post(GRANT, BODY).json["token"])
        )

        assert site.browser().send("GET", f"{LIST}/{workflow_id}", headers=bearer(token)).status_code == 401
        again = self.worker(ada, workflow_id)
        assert (again.status_code, again.json["error"]["code"]) == (409, "workflow_deleted")

    def test_a_workflow_that_is_not_there_is_not_found(self, ada):
        assert self.worker(ada, "wf_" + "0" * 32).status_code == 404


def test_a_live_revocation_holds_within_one_connection(running_server):
    import requests  # noqa: PLC0415

    url, start = running_server.url, running_server.instance
    with requests.Session() as browser, requests.Session() as machine:
        first = {"username": start.username, "password": start.password}
        csrf = browser.post(f"{url}/api/auth/login", json=first, timeout=PATIENCE_S).json()["csrf_token"]
        change = {"current_password": start.password, "new_password": "bright otter sails north"}
        changed = browser.post(
            f"{url}/api/auth/change-password", json=change, headers={"X-CSRF-Token": csrf}, timeout=PATIENCE_S
        ).json()
        proof = {"X-CSRF-Token": changed["csrf_token"]}
        token = browser.post(f"{url}{GRANT}", json=BODY, headers=proof, timeout=PATIENCE_S).json()["token"]

        before = machine.get(f"{url}{LIST}", headers=bearer(token), timeout=PATIENCE_S)
        browser.post(f"{url}{REVOKE}", json={"principal_id": BODY["principal_id"]}, headers=proof, timeout=PATIENCE_S)
        after = machine.get(f"{url}{LIST}", headers=bearer(token), timeout=PATIENCE_S)

    assert (before.status_code, after.status_code) == (200, 401)
    time.sleep(0.05)
    written = running_server.log.read_text()
    assert token not in written
    assert start.password not in written


def test_a_thread_worker_is_issued_with_the_agents_that_it_runs(site, ada):
    reply = ada.post(GRANT, {"principal_id": "runner", "role": "thread_worker", "agents": ["support", "research"]})

    assert reply.status_code == 200
    caller = site.wiring.auth.principals.bearer(f"Bearer {reply.json['token']}", request_id="req_test")
    assert (caller.kind, caller.agents) == (CallerKind.THREAD_WORKER, {"support", "research"})
    assert caller.owner_pk is not None


@pytest.mark.parametrize("agents", [None, [], ["not an identifier"], "support", ["a"] * 33, [7]])
def test_a_thread_worker_without_names_of_agents_is_refused(site, ada, agents):
    body = {"principal_id": "runner", "role": "thread_worker", "agents": agents}

    reply = ada.post(GRANT, {name: value for name, value in body.items() if value is not None})

    assert (reply.status_code, "agents" in reply.json["error"]["message"]) == (400, True)
    assert site.rows(credentials) == []


@pytest.mark.parametrize("role", ["thread_application", "continuity_coordinator"])
def test_agents_are_for_thread_workers_alone(ada, role):
    assert ada.post(GRANT, {"principal_id": "other", "role": role, "agents": ["support"]}).status_code == 400


def test_a_principal_keeps_the_agents_that_it_was_first_issued_with(ada):
    body = {"principal_id": "runner", "role": "thread_worker", "agents": ["support"]}
    ada.post(GRANT, body)

    assert ada.post(GRANT, body).status_code == 200
    other = ada.post(GRANT, {**body, "agents": ["support", "research"]})
    assert (other.status_code, other.json["error"]["code"]) == (409, "request_conflict")


def test_names_of_agents_stand_nowhere_in_the_clear(site, ada):
    ada.post(GRANT, {"principal_id": "runner", "role": "thread_worker", "agents": ["secret-agent-name"]})

    rows = site.rows(owners)
    assert rows
    assert "secret-agent-name" not in str(rows)
