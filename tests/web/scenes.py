"""Workflows in every situation that a person can meet, made through the product's own services."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.auth import principals
from app.auth.requests import GrantRequest
from continuity import limits
from continuity.services.callers import Caller, Role
from continuity.wire import (
    AbandonRequest,
    BeginRequest,
    ConfigureRequest,
    ConfirmRequest,
    CreateWorkflow,
    OutcomeRequest,
)
from tests.people import VISIT
from tests.web.site import Site

LEASE_OVER_S = limits.LEASE_S + 1
IDEMPOTENT = {"capability": "idempotent", "retention_seconds": 3_600}
QUERY = {"capability": "query"}
FINAL_QUERY = {"capability": "query", "absence_final_after_seconds": 5}
MAIL = {
    "name": "send-mail",
    "tool": "mail.send",
    "arguments": {"to": "ada@example.org", "subject": "Release 0.1", "body": "It is out.", "attachments": []},
}
PUBLISH = {
    "name": "publish",
    "tool": "directory_publish",
    "arguments": {"output": "/srv/published", "filename": "release-notes.md", "sha256": "9f" * 32, "bytes": 3_402},
    "capability": "query",
}


@dataclass
class Attempt:
    """What a worker knows of its attempt."""

    scene: Scene
    name: str
    attempt_id: str
    reply: Mapping[str, Any]

    @property
    def operation_id(self) -> str:
        return self.reply["operation_id"]

    def report(self, outcome: str, **members: object) -> Mapping[str, Any]:
        """Send a receipt of this outcome."""
        receipt = {"outcome": outcome, "operation_id": self.operation_id, **members}
        request = OutcomeRequest(self.name, "run-1", self.attempt_id, self.reply["lease_token"], receipt)
        return self.scene.stage.services.attempts.outcome(self.scene.stage.host, self.scene.workflow_id, request)

    def succeed(self, effect_id: str = "msg-1") -> Mapping[str, Any]:
        return self.report("confirmed_succeeded", effect_id=effect_id, result={"url": "https://example.org/1"})


@dataclass
class Scene:
    """One workflow and what hosts and people do to it."""

    stage: Stage
    workflow_id: str
    names: tuple[str, ...]
    numbers: itertools.count = field(default_factory=lambda: itertools.count(1))

    def begin(self, name: str | None = None) -> Attempt:
        name = name or self.names[0]
        attempt_id = f"attempt-{next(self.numbers)}"
        reply = self.stage.services.attempts.begin(
            self.stage.host, self.workflow_id, BeginRequest(name, "run-1", attempt_id)
        )
        assert reply["action"] in {"execute", "query"}, reply
        return Attempt(self, name, attempt_id, reply)

    def lose(self, name: str | None = None) -> Attempt:
        """Begin, and let the lease run out without a word."""
        attempt = self.begin(name)
        self.stage.site.clock.advance(LEASE_OVER_S)
        return attempt

    def view(self) -> dict[str, Any]:
        return self.stage.services.reviewing.review(self.stage.person, self.workflow_id)

    def enable(self) -> Scene:
        return self._configure(enabled=True)

    def pause(self) -> Scene:
        return self._configure(enabled=False)

    def stop(self, name: str | None = None, reason: str = "The customer cancelled.") -> Scene:
        request = AbandonRequest(name or self.names[0], reason, self.view()["revision"])
        self.stage.services.controls.abandon(self.stage.person, self.workflow_id, request)
        return self

    def confirm(self, *, happened: bool, name: str | None = None, reason: str = "Looked at the outbox.") -> Scene:
        view = self.view()
        name = name or self.names[0]
        late = next(each["late_receipts"] for each in view["operations"] if each["name"] == name)
        effect = {"effect_id": "msg-by-hand", "result": None} if happened else {}
        request = ConfirmRequest(name, happened, view["revision"], late, reason, **effect)
        self.stage.services.controls.confirm(self.stage.person, self.workflow_id, request)
        return self

    def _configure(self, *, enabled: bool) -> Scene:
        request = ConfigureRequest(enabled=enabled, revision=self.view()["revision"])
        self.stage.services.controls.configure(self.stage.person, self.workflow_id, request)
        return self


class Stage:
    """A site with one administrator who decides and one operator's credential that does what hosts do."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.services = site.wiring.services
        site.person("adm", Role.ADMINISTRATOR)
        self.person = self._caller("adm")
        self.host = self.host_of("agent-host", workspace_id="default")
        self._numbers = itertools.count(1)

    def host_of(self, principal_id: str, **scope: object) -> Caller:
        asked = GrantRequest.from_json({"principal_id": principal_id, "role": "evidence_collector", **scope})
        token = self.site.wiring.auth.credentials.issue(self.person, asked).token
        return self.site.wiring.auth.principals.bearer(f"Bearer {token}", request_id="req_test")

    def prepare(self, *operations: Mapping[str, Any], key: str | None = None, host: Caller | None = None) -> Scene:
        """Prepare a workflow; it is not enabled."""
        defined = operations or (MAIL,)
        asked = {"workflow_key": key or f"work-{next(self._numbers)}", "operations": list(defined)}
        view = self.services.workflows.create(host or self.host, CreateWorkflow.from_json(asked))
        return Scene(self, view["workflow_id"], tuple(each["name"] for each in defined))

    def ready(self, *operations: Mapping[str, Any], key: str | None = None) -> Scene:
        return self.prepare(*operations, key=key).enable()

    def mail(self, key: str | None = None, **capability: object) -> Scene:
        """Prepare and enable one mail to a destination of this capability."""
        return self.ready({**MAIL, **capability}, key=key)

    def _caller(self, username: str) -> Caller:
        auth = self.site.wiring.auth
        welcome = auth.sign_in.sign_in(username, self.site.passwords[username], visit=VISIT, replaced=None)
        found = auth.sessions.find(welcome.session.session_id)
        assert found is not None
        return principals.person(found, request_id="req_test")
