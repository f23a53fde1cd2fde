"""Everybody who may ask, everything that may be asked, and what the answer must be.

`EXPECTED` is written by hand from wire.md, and not from the marks of the views: it is the second opinion.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app import vault_life
from app.auth import principals, tokens
from app.auth.accounts import LOCAL
from app.auth.requests import GrantRequest, RevokeRequest
from continuity.evidence import RecordEvidence
from continuity.services.callers import Caller, CallerKind, Role
from continuity.wire import AbandonRequest, BeginRequest, ConfigureRequest, CreateWorkflow
from tests.observing import LEAST
from tests.people import VISIT
from tests.servers import initialised
from tests.web import thread_rows
from tests.web.site import METRICS_TOKEN, PRODUCER_TOKEN, Browser, Site, site_on
from tests.web.thread_rows import SUBJECTS, THREADERS

WORKFLOWS = "/v1/continuity"
BOTH = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgresql)]
OPERATION = {"name": "publish", "tool": "files", "arguments": {"text": "hello"}}
ATTEMPT = {"name": "publish", "run_id": "run-1", "attempt_id": "at-1"}
EVIDENCE = {
    "run_id": "run-1", "producer": "agent", "epoch": 1, "event_id": "e-1", "kind": "text", "content": "Hello harbour",
    "time": 1_750_000_000,
}  # fmt: skip
PASSPHRASE = "a long passphrase of tests"
MINUTE_S = 61


@dataclass(frozen=True)
class Asker:
    """How a request proves who sends it."""

    browser: Browser
    headers: Mapping[str, str]
    name: str = "nobody"

    def send(self, method: str, path: str, body: Any) -> Any:
        return self.browser.send(method, path, body, headers=self.headers)


@dataclass(frozen=True)
class Target:
    """A coordinator's workflow in the workspace ``default``, and what its worker knows."""

    workflow_id: str
    revision: int
    lease_token: str = ""
    operation_id: str = ""


class World:
    """Two workspaces with people and credentials in both."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._numbers = itertools.count()
        site.person("adm", Role.ADMINISTRATOR)
        self.admin = self._caller("adm")
        self._worker_elsewhere: str | None = None
        self.grant("first", "evidence_collector", workspace_id="other")
        for name, role, workspace in (
            ("op", Role.OPERATOR, "default"), ("inv", Role.INVESTIGATOR, "default"),
            ("opt", Role.OPERATOR, "other"), ("ivt", Role.INVESTIGATOR, "other"),
        ):  # fmt: skip
            site.person(name, role, at=(workspace,))
        site.person("new", Role.ADMINISTRATOR)
        self._tokens = {
            "coordinator": self.grant("mine", "continuity_coordinator", workspace_id="default"),
            "coordinator of another principal": self.grant("theirs", "continuity_coordinator", workspace_id="default"),
            "coordinator elsewhere": self.grant("there", "continuity_coordinator", workspace_id="other"),
            "operator": self.grant("operator", "evidence_collector", workspace_id="default"),
            "operator elsewhere": self.grant("operator-there", "evidence_collector", workspace_id="other"),
            "operator of all": self.grant("operator-all", "evidence_collector"),
            "observer": self.grant("observer", "continuity_observer", observation_scope="somewhere"),
            "producer": PRODUCER_TOKEN,
            "monitor": METRICS_TOKEN,
            "expired": self.grant("expired", "evidence_collector", expires_in_seconds=1),
            "revoked": self.grant("revoked", "evidence_collector"),
            "unknown": tokens.new_token(CallerKind.OPERATOR),
        }
        self._tokens |= thread_rows.tokens(self)
        site.wiring.auth.credentials.revoke(self.admin, RevokeRequest("revoked", None))
        good = self._tokens["operator of all"]
        self._tokens["bad checksum"] = good[:-1] + ("0" if good[-1] != "0" else "1")
        site.clock.advance(MINUTE_S)

    # --- who ---

    def ask_as(self, name: str, target: Target) -> Asker:
        """Return the asker of this name; workers' credentials are made for `target`."""
        if name in PEOPLE:
            return self._person(name)
        browser = self.site.browser()
        if name == "nobody":
            return Asker(browser, {})
        subject = {"Atmem-Subject": SUBJECTS[name]} if name in SUBJECTS else {}
        return Asker(browser, {"Authorization": f"Bearer {self._token(name, target)}", **subject}, name)

    def caller_of(self, name: str) -> Caller:
        return self.site.wiring.auth.principals.bearer(f"Bearer {self._tokens[name]}", request_id="req_test")

    def grant(self, principal_id: str, role: str, **fields: object) -> str:
        request = GrantRequest.from_json({"principal_id": principal_id, "role": role, **fields})
        return self.site.wiring.auth.credentials.issue(self.admin, request).token

    def _token(self, name: str, target: Target) -> str:
        if name == "worker":
            return self.grant(f"worker-{next(self._numbers)}", "continuity_host", run_id=target.workflow_id)
        if name == "worker of another workflow":
            if self._worker_elsewhere is None:
                self._worker_elsewhere = self.grant("other-worker", "continuity_host", run_id=self.target().workflow_id)
            return self._worker_elsewhere
        return self._tokens[name]

    def _person(self, name: str) -> Asker:
        username = PEOPLE[name]
        # Past the window of the throttle; everything else in these tests outlives it.
        self.site.clock.advance(MINUTE_S)
        if name == "person with a temporary password":
            self.site.passwords[username] = self.site.wiring.auth.accounts.reset_password(username, by=LOCAL).password
        browser = self.site.signed_in(username)
        if name == "operator with an old password check":
            self.site.clock.advance(11 * 60)
        if name == "operator with another's CSRF token":
            browser.csrf = base64.urlsafe_b64encode(bytes(32)).rstrip(b"=").decode()
        return Asker(browser, {}, username)

    def _caller(self, username: str) -> Caller:
        sign_in = self.site.wiring.auth.sign_in
        welcome = sign_in.sign_in(username, self.site.passwords[username], visit=VISIT, replaced=None)
        found = self.site.wiring.auth.sessions.find(welcome.session.session_id)
        assert found is not None
        return principals.person(found, request_id="req_test")

    # --- what ---

    def target(self, state: str = "enabled", *, of: str = "coordinator") -> Target:
        """Make a workflow of the coordinator and bring it to a state: enabled, begun or ended."""
        services, owner = self.site.wiring.services, self.caller_of(of)
        asked = CreateWorkflow.from_json(
            {"workflow_key": self.new_name("key"), "operations": [OPERATION], "activate": True}
        )
        view = services.workflows.create(owner, asked)
        workflow_id = view["workflow_id"]
        if state == "begun":
            begun = services.attempts.begin(owner, workflow_id, BeginRequest.from_json(ATTEMPT))
            return Target(workflow_id, begun["revision"], begun["lease_token"], begun["operation_id"])
        if state == "ended":
            operator = self.caller_of("operator of all")
            stopped = AbandonRequest("publish", "Not wanted.")
            view = services.controls.abandon(operator, workflow_id, stopped)
        if state == "paused":
            view = services.controls.configure(
                self.caller_of("operator of all"), workflow_id, ConfigureRequest(enabled=False)
            )
        return Target(workflow_id, view["revision"])

    def recorded(self, *, by: str = "operator") -> str:
        """Let an operator's credential record something in its workspace; return the evidence_id of a new run."""
        name = self.new_name("run")
        body = {**EVIDENCE, "run_id": name, "event_id": name}
        reply = self.site.wiring.services.evidence.record(self.caller_of(by), RecordEvidence.from_json(body))
        return reply["evidence_id"]

    def new_name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"


PEOPLE = {
    "person: operator": "op",
    "person: investigator": "inv",
    "person: administrator": "adm",
    "person: operator elsewhere": "opt",
    "person: investigator elsewhere": "ivt",
    "person with a temporary password": "new",
    "operator with another's CSRF token": "op",
    "operator with an old password check": "op",
}
UNPROVED = ("nobody", "bad checksum", "unknown", "expired", "revoked")
WORKERS = ("worker", "worker of another workflow")
COORDINATORS = ("coordinator", "coordinator of another principal", "coordinator elsewhere")
OPERATORS = ("operator", "operator elsewhere", "operator of all")
MACHINES = (*WORKERS, *COORDINATORS, *OPERATORS)
OBSERVERS = ("observer", "producer")
MONITORS = ("monitor",)
"""Apart from the machines: nothing that is for one kind is for the other."""
ASKERS = (*UNPROVED, *MACHINES, *OBSERVERS, *MONITORS, *THREADERS, *PEOPLE)


@dataclass(frozen=True)
class Row:
    """What is sent to one endpoint, on an object in which state, and the status for everybody."""

    state: str
    method: str
    request: Callable[[World, Target, str], tuple[str, Any]]
    expected: Mapping[str, int]
    after: Callable[[World], object] = lambda _world: None
    """Puts right again what the request has changed for everybody."""


def _table(*rules: tuple[tuple[str, ...], int]) -> dict[str, int]:
    """Return a status for every asker; a later rule wins."""
    table: dict[str, int] = dict.fromkeys(UNPROVED, 401) | dict.fromkeys((*OBSERVERS, *MONITORS, *THREADERS), 403)
    for names, status in rules:
        table.update(dict.fromkeys(names, status))
    assert set(table) == set(ASKERS)
    return table


ELSEWHERE = ("worker of another workflow", "coordinator of another principal", "coordinator elsewhere",
             "operator elsewhere")  # fmt: skip
HOSTS = _table((MACHINES, 200), (ELSEWHERE, 404), (tuple(PEOPLE), 403))
PUBLIC = dict.fromkeys(ASKERS, 200)
CREATORS = _table((MACHINES, 200), (WORKERS, 403), (tuple(PEOPLE), 403))
READERS = _table(
    (MACHINES, 200), (ELSEWHERE, 404), (tuple(PEOPLE), 200),
    (("person: operator elsewhere", "person: investigator elsewhere"), 404),
    (("person with a temporary password",), 403),
)  # fmt: skip
LISTERS = _table(
    (OPERATORS, 200), (WORKERS, 403), (COORDINATORS, 403), (tuple(PEOPLE), 200),
    (("person with a temporary password",), 403),
)  # fmt: skip
_DECIDING = (
    (("person: operator", "person: administrator", "operator with an old password check"), 200),
    (("person: operator elsewhere",), 404),
    (("person: investigator", "person: investigator elsewhere", "person with a temporary password",
      "operator with another's CSRF token"), 403),
)  # fmt: skip
CONTROLLERS = _table((WORKERS, 403), (COORDINATORS, 403), (OPERATORS, 200), (("operator elsewhere",), 404), *_DECIDING)
DELETERS = _table(
    (WORKERS, 403), (COORDINATORS, 403), (OPERATORS, 200), (("operator elsewhere",), 404), *_DECIDING,
    (("operator with an old password check",), 403),
)  # fmt: skip
REVOKERS = _table((MACHINES, 403), *_DECIDING)
FRESH_PEOPLE = _table((MACHINES, 403), *_DECIDING, (("operator with an old password check",), 403))
FORGED = (("operator with another's CSRF token",), 403)
STALE = (("operator with an old password check",), 403)
EVIDENCE_READERS = _table(
    (OPERATORS, 200), (WORKERS, 403), (COORDINATORS, 403), (tuple(PEOPLE), 200),
    (("operator elsewhere", "person: operator elsewhere", "person: investigator elsewhere"), 404),
    (("person with a temporary password",), 403),
)  # fmt: skip
RECORDERS = _table((OPERATORS, 200), (WORKERS, 403), (COORDINATORS, 403), (tuple(PEOPLE), 403))
RETAINERS = _table(
    (OPERATORS, 200), (WORKERS, 403), (COORDINATORS, 403), (tuple(PEOPLE), 403),
    (("person: operator", "person: operator elsewhere", "person: administrator"), 200),
)  # fmt: skip
WATCHERS = _table((MACHINES, 403), (MONITORS, 200), (tuple(PEOPLE), 403), (("person: administrator",), 200))
ADMINISTRATORS = _table((MACHINES, 403), (tuple(PEOPLE), 403), (("person: administrator",), 200))
SUBMITTERS = _table((MACHINES, 403), (OBSERVERS, 200), (tuple(PEOPLE), 403))
SESSION = _table(
    (MACHINES, 401), ((*OBSERVERS, *MONITORS, *THREADERS), 401), (tuple(PEOPLE), 200),
    (("operator with another's CSRF token",), 403),
)  # fmt: skip


def _to(rest: str, **body: Any) -> Callable[[World, Target, str], tuple[str, Any]]:
    def request(_world: World, target: Target, _asker: str) -> tuple[str, Any]:
        known = {"revision": target.revision, "lease_token": target.lease_token}
        filled = {name: known[name] if value is ... else value for name, value in body.items()}
        return f"{WORKFLOWS}/{target.workflow_id}{rest}", filled or None

    return request


def _receipt(_world: World, target: Target, _asker: str) -> tuple[str, Any]:
    receipt = {"outcome": "unknown", "operation_id": target.operation_id}
    body = {**ATTEMPT, "lease_token": target.lease_token, "receipt": receipt}
    return f"{WORKFLOWS}/{target.workflow_id}/outcome", body


def _create(world: World, _target: Target, _asker: str) -> tuple[str, Any]:
    return WORKFLOWS, {"workflow_key": world.new_name("new"), "operations": [OPERATION], "activate": True}


def _delete(_world: World, target: Target, _asker: str) -> tuple[str, Any]:
    return "/v1/evidence/delete", {"run_id": target.workflow_id, "confirmation": target.workflow_id}


def _grant(world: World, target: Target, _asker: str) -> tuple[str, Any]:
    body = {"principal_id": world.new_name("granted"), "role": "continuity_host", "run_id": target.workflow_id}
    return "/v1/evidence/grants", body


def _revoke(world: World, target: Target, _asker: str) -> tuple[str, Any]:
    name = world.new_name("ended")
    world.grant(name, "continuity_host", run_id=target.workflow_id)
    return "/v1/evidence/revoke", {"principal_id": name}


def _event(world: World, _target: Target, _asker: str) -> tuple[str, Any]:
    name = world.new_name("seen")
    body = {"format": "atmem.continuity.v1", **LEAST, "event_id": name, "attempt_id": name}
    return "/v1/continuity/events", body


def _record(world: World, _target: Target, _asker: str) -> tuple[str, Any]:
    return "/v1/evidence", {**EVIDENCE, "run_id": world.new_name("run"), "event_id": world.new_name("event")}


def _run(rest: str = "") -> Callable[[World, Target, str], tuple[str, Any]]:
    return lambda world, _target, _asker: (f"/v1/evidence/{world.recorded()}{rest}", None)


def _of_run(path: str, **more: Any) -> Callable[[World, Target, str], tuple[str, Any]]:
    def request(world: World, _target: Target, _asker: str) -> tuple[str, Any]:
        evidence_id = world.recorded()
        return f"/v1/evidence/{path}", {
            "run_id": evidence_id, **{name: evidence_id if value is ... else value for name, value in more.items()}
        }  # fmt: skip

    return request


def _login(world: World, _target: Target, _asker: str) -> tuple[str, Any]:
    world.site.clock.advance(MINUTE_S)
    return "/api/auth/login", {"username": "inv", "password": world.site.passwords["inv"]}


def _own_password(world: World, _target: Target, asker: str) -> tuple[str, Any]:
    return "/api/auth/reauthenticate", {"password": world.site.passwords.get(asker, "nobody's password at all")}


def _new_password(world: World, _target: Target, asker: str) -> tuple[str, Any]:
    current = world.site.passwords.get(asker, "nobody's password at all")
    new = f"amber walrus counts {world.new_name('again')}"
    return "/api/auth/change-password", {"current_password": current, "new_password": new}


def _fixed(path: str, body: Any = None) -> Callable[[World, Target, str], tuple[str, Any]]:
    return lambda _world, _target, _asker: (path, body)


CONFIRMED = {"name": "publish", "happened": True, "revision": ..., "late_receipts": 0, "reason": "Seen.",
             "receipt": {"effect_id": "e-1", "result": None}}  # fmt: skip

EXPECTED: dict[str, Row] = {
    "health.live": Row("none", "GET", _fixed("/healthz"), PUBLIC),
    "health.ready": Row("none", "GET", _fixed("/readyz"), PUBLIC),
    "health.metrics": Row("none", "GET", _fixed("/metrics"), WATCHERS),
    "documentation.openapi": Row("none", "GET", _fixed("/openapi.json"), PUBLIC),
    "session.login": Row("none", "POST", _login, PUBLIC),
    "session.logout": Row("none", "POST", _fixed("/api/auth/logout", {}), SESSION),
    "session.change_password": Row("none", "POST", _new_password, SESSION),
    "session.reauthenticate": Row("none", "POST", _own_password, {**SESSION, "person with a temporary password": 403}),
    "grants.issue": Row("enabled", "POST", _grant, FRESH_PEOPLE),
    "grants.revoke": Row("enabled", "POST", _revoke, REVOKERS),
    "coordinators.create": Row("none", "POST", _create, CREATORS),
    "workers.begin": Row("enabled", "POST", _to("/begin", **ATTEMPT), HOSTS),
    "workers.outcome": Row("begun", "POST", _receipt, HOSTS),
    "workers.renew": Row("begun", "POST", _to("/renew", **ATTEMPT, lease_token=...), HOSTS),
    "observers.submit": Row("none", "POST", _event, SUBMITTERS),
    "operators.index": Row("none", "GET", _fixed(WORKFLOWS), LISTERS),
    "operators.show": Row("enabled", "GET", _to(""), READERS),
    "operators.configure": Row("paused", "POST", _to("/configure", enabled=True, revision=...), CONTROLLERS),
    "operators.abandon": Row(
        "enabled", "POST", _to("/abandon", name="publish", reason="No.", revision=...), CONTROLLERS
    ),
    "operators.confirm": Row("enabled", "POST", _to("/confirm", **CONFIRMED), FRESH_PEOPLE),
    "evidence.delete": Row("ended", "POST", _delete, DELETERS),
    "evidence.record": Row("none", "POST", _record, RECORDERS),
    "evidence.index": Row("none", "GET", _fixed("/v1/evidence"), LISTERS),
    "evidence.runs": Row("none", "GET", _fixed("/v1/evidence/runs"), LISTERS),
    "evidence.search": Row(
        "none", "POST", _fixed("/v1/evidence/search", {"query": "harbour"}), {**LISTERS, **dict.fromkeys(*FORGED)}
    ),
    "evidence.show": Row("none", "GET", _run(), EVIDENCE_READERS),
    "evidence.manifest": Row("none", "GET", _run("/manifest"), EVIDENCE_READERS),
    "evidence.reconstruct": Row("none", "POST", _of_run("reconstruct"), {**EVIDENCE_READERS, **dict.fromkeys(*FORGED)}),
    "evidence.replay_manifest": Row(
        "none", "POST", _of_run("replay-manifest"), {**EVIDENCE_READERS, **dict.fromkeys(*FORGED)}
    ),
    "evidence.export_encrypted": Row(
        "none",
        "POST",
        _of_run("export/encrypted", passphrase=PASSPHRASE),
        {**EVIDENCE_READERS, **dict.fromkeys(*FORGED), **dict.fromkeys(*STALE)},
    ),
    "evidence.export_plaintext": Row("none", "POST", _of_run("export/plaintext", confirmation=...), ADMINISTRATORS),
    "evidence.retain": Row(
        "none", "POST", _fixed("/v1/evidence/retention", {"older_than_days": 30, "kind": "workflows"}), RETAINERS
    ),
    "capture.show": Row("none", "GET", _fixed("/v1/evidence/settings/capture-mode"), ADMINISTRATORS),
    "capture.change": Row(
        "none", "POST", _fixed("/v1/evidence/settings/capture-mode", {"capture_mode": "full"}), ADMINISTRATORS
    ),
    "keys.show": Row("none", "GET", _fixed("/v1/evidence/settings"), ADMINISTRATORS),
    "keys.lock": Row(
        "none",
        "POST",
        _fixed("/v1/evidence/settings/lock", {"confirmation": "lock", "passphrase": PASSPHRASE}),
        ADMINISTRATORS,
        after=lambda world: world.site.wiring.vault_life.unlock(vault_life.LOCAL, PASSPHRASE),
    ),
    "keys.unlock": Row(
        "none", "POST", _fixed("/v1/evidence/settings/unlock", {"passphrase": PASSPHRASE}), ADMINISTRATORS
    ),
    "keys.rotate": Row(
        "none",
        "POST",
        _fixed("/v1/evidence/settings/rotate", {"confirmation": "rotate"}),
        ADMINISTRATORS,
        after=lambda world: world.site.wiring.vault_life.run(lambda _progress: None),
    ),
    **thread_rows.rows(Row, askers=_table((MACHINES, 403), (tuple(PEOPLE), 403))),
}
"""By endpoint. A route without a row fails `test_every_route_has_a_row`."""

NOTHING = Target("wf_" + "0" * 32, 1)


@contextmanager
def world_on(folder: Path, *, database_url: str | None = None) -> Iterator[World]:
    """Make the world on a new instance in `folder`, on SQLite or the empty database at an address."""
    extra = {} if database_url is None else {"ATMEM_DATABASE_URL": database_url}
    initialised(folder, extra)
    with site_on(folder, extra) as site:
        yield World(site)


def ask(world: World, endpoint: str, asker: str) -> Any:
    """Send the request of a row as somebody and return the reply. Each call has objects of its own."""
    row = EXPECTED[endpoint]
    # The session first: signing in moves the clock, and a lease must not run out by that.
    session = world.ask_as(asker, NOTHING) if asker in PEOPLE else None
    target = NOTHING if row.state == "none" else world.target(row.state)
    if session is None:
        # A worker's credential is for a workflow, whatever is asked; a coordinator may have 500 unfinished ones alone.
        needs_target = row.state == "none" and asker in WORKERS
        session = world.ask_as(asker, world.target() if needs_target else target)
    path, body = row.request(world, target, session.name)
    reply = session.send(row.method, path, body)
    if endpoint == "session.change_password" and reply.status_code == 200:
        world.site.passwords[session.name] = body["new_password"]
    if reply.status_code == 200:
        row.after(world)
    return reply
