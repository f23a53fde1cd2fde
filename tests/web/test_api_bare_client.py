"""A client that knows wire.md and nothing of this program: the fields listed there, null in the optional ones.

It speaks over a plain connection to the real server; nothing of the product is imported for it.
"""

from __future__ import annotations

import http.client
import json

import pytest

from tests.patience import PATIENCE_S


class BareClient:
    """JSON over one keep-alive connection."""

    def __init__(self, address):
        self._connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
        self.headers = {}
        self.cookie = None

    def call(self, method, path, body=None):
        headers = dict(self.headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        reply = json.loads(response.read())
        cookie = response.getheader("Set-Cookie")
        if cookie is not None:
            self.headers["Cookie"] = cookie.partition(";")[0]
        assert response.status == 200, (method, path, reply)
        return reply

    def sign_in(self, path, body):
        reply = self.call("POST", path, body)
        self.headers["X-CSRF-Token"] = reply["csrf_token"]
        return reply

    def close(self):
        self._connection.close()


@pytest.fixture
def connect(running_server):
    clients = []

    def make():
        clients.append(BareClient(running_server.address))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def test_every_call_works_with_the_listed_fields_and_nulls(running_server, connect):
    temporary, password = running_server.instance.password, "bright otter sails north"
    person = connect()
    welcome = person.sign_in("/api/auth/login", {"username": running_server.instance.username, "password": temporary})
    assert welcome["account"] == {
        "username": "administrator", "role": "administrator", "password_change_required": True,
    }  # fmt: skip
    person.sign_in("/api/auth/change-password", {"current_password": temporary, "new_password": password})
    person.sign_in("/api/auth/reauthenticate", {"password": password})

    def credential(principal_id, role, **fields):
        nothing = dict.fromkeys(("run_id", "workspace_id", "observation_scope", "agents", "expires_in_seconds"))
        body = {"principal_id": principal_id, "role": role, **nothing, **fields}
        granted = person.call("POST", "/v1/evidence/grants", body)
        assert set(granted) == {"principal_id", "role", "token", "expires_at", "request_id"}
        client = connect()
        client.headers["Authorization"] = f"Bearer {granted['token']}"
        return client

    operator = credential("field-operator", "evidence_collector")
    definition = {
        "name": "send", "tool": "mail", "arguments": None, "capability": None, "timeout_seconds": None,
        "retention_seconds": None, "absence_final_after_seconds": None,
    }  # fmt: skip
    body = {"workflow_key": "field-1", "operations": [definition], "activate": None, "begin": None}
    workflow = operator.call("POST", "/v1/continuity", body)
    assert workflow["format"] == "atmem-workflow-v1"
    assert workflow["scope"] == {
        "tenant_id": "local", "subject_id": None, "workspace_id": "default", "run_id": workflow["workflow_id"],
    }  # fmt: skip
    path = f"/v1/continuity/{workflow['workflow_id']}"
    assert operator.call("POST", f"{path}/configure", {"enabled": True, "revision": None})["enabled"] is True

    worker = credential("field-worker", "continuity_host", run_id=workflow["workflow_id"])
    attempt = {"name": "send", "run_id": "r", "attempt_id": "a"}
    begun = worker.call("POST", f"{path}/begin", attempt)
    assert begun["action"] == "execute"
    lease = {**attempt, "lease_token": begun["lease_token"]}
    assert set(worker.call("POST", f"{path}/renew", lease)) == {"lease_until", "revision"}
    receipt = {
        "outcome": "confirmed_succeeded", "operation_id": begun["operation_id"], "effect_id": "m-1", "result": None,
    }  # fmt: skip
    assert worker.call("POST", f"{path}/outcome", {**lease, "receipt": receipt})["accepted"] is True
    assert worker.call("GET", path)["history"]

    coordinator = credential("field-tools", "continuity_coordinator", workspace_id="default")
    begin = {"name": "send", "run_id": "r", "attempt_id": "a"}
    own = coordinator.call("POST", "/v1/continuity", {**body, "activate": True, "begin": begin})
    assert own["begin"]["action"] == "execute"
    assert own["workflow_id"] != workflow["workflow_id"]

    second = operator.call("POST", "/v1/continuity", {**body, "workflow_key": "field-2"})
    other = f"/v1/continuity/{second['workflow_id']}"
    confirmed = person.call("POST", f"{other}/confirm", {
        "name": "send", "happened": False, "revision": second["revision"], "late_receipts": 0,
        "reason": "Nothing arrived.", "receipt": None,
    })  # fmt: skip
    stopped = operator.call("POST", f"{other}/abandon", {"name": "send", "reason": "Not wanted.", "revision": None})
    assert (confirmed["operations"][0]["status"], stopped["operations"][0]["status"]) == ("pending", "abandoned")

    listed = operator.call("GET", "/v1/continuity?limit=2&cursor=&state=&workspace=&key=&q=")
    assert len(listed["workflows"]) == 2
    assert operator.call("GET", f"/v1/continuity?limit=2&cursor={listed['next_cursor']}")["next_cursor"] is None

    deleted = operator.call("POST", "/v1/evidence/delete", {
        "run_id": second["workflow_id"], "confirmation": second["workflow_id"],
    })  # fmt: skip
    assert deleted["deleted"]["workflows"] == 1
    person.call("POST", "/v1/evidence/revoke", {"principal_id": "field-worker", "workspace_id": None})
    person.call("POST", "/api/auth/logout", {})
