"""Secrets go through every path, good and bad; none is found in database, logs, output or refusals afterwards."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.crash.clocked import follow_clock
from tests.crash.conftest import BOTH
from tests.crash.conversed import Conversation
from tests.crash.stage import Stage, until
from tests.crash.sweep import Secrets, Wire, files, tables
from tests.patience import PATIENCE_S
from tests.servers import ROOT as ROOT_FOLDER
from tests.servers import environment, initialised

ROOT = "/v1/continuity"
KEY_FILES = {"vault.key", "secret.key"}
"""What they hold is what they are for."""


@dataclass
class Sweep:
    """A server, the secrets it was given and gave, and the client that gave them."""

    stage: Stage
    secrets: Secrets
    wire: Wire
    cookie: str = ""
    csrf_token: str = ""
    tokens: dict[str, str] = field(default_factory=dict)

    def mint(self, what):
        return self.secrets.mint(what)

    def as_person(self, method, path, body=None, **more):
        headers = {"Cookie": f"atmem_session={self.cookie}", "X-CSRF-Token": self.csrf_token, **more}
        return self.wire.send(method, path, body, headers=headers)

    def as_page(self, method, path, fields=None):
        """Ask for a page, or send a form of one; return the status.

        A page that refuses shows its own form again: the token of its session, a filter, what was to be confirmed.
        """
        body = None if fields is None else urlencode({**fields, "csrf_token": self.csrf_token}).encode()
        headers = {
            "Cookie": f"atmem_session={self.cookie}", "Accept": "text/html",
            "Content-Type": "application/x-www-form-urlencoded",
        }  # fmt: skip
        status = self.wire.send(method, path, body, headers=headers)[0]
        if status in {400, 403, 409, 422}:
            told = {each.partition(" #")[0] for each in self.secrets.found_in(self.wire.refusals.pop())}
            assert told <= {"CSRF token", "filter", "confirmation"}, path
        return status

    def as_machine(self, path, body, *, kind="operator", method="POST"):
        return self.wire.send(method, path, body, headers={"Authorization": f"Bearer {self.tokens[kind]}"})

    def welcome(self, answer):
        """Take session and token of a sign-in."""
        status, body, headers = answer
        assert status == 200, body
        self.cookie = self.secrets.learn("session cookie", self.wire.cookie(headers))
        self.csrf_token = self.secrets.learn("CSRF token", body["csrf_token"])

    def sign_in(self, password):
        credentials = {"username": self.stage.instance.username, "password": password}
        self.welcome(self.wire.send("POST", "/api/auth/login", credentials))

    def everything(self):
        """Return by name all that the run has left behind."""
        stage = self.stage
        left = {
            f"instance/{name}": content
            for name, content in files(stage.instance.folder).items()
            if name not in KEY_FILES
        }
        if "ATMEM_DATABASE_URL" in stage.extra:
            left |= {f"table {name}": rows for name, rows in tables(stage.extra["ATMEM_DATABASE_URL"]).items()}
        left |= {f"refusal {n}": body for n, body in enumerate(self.wire.refusals)}
        return {**left, "log": stage.log.read_bytes(), "output": Path(f"{stage.log}.out").read_bytes()}

    def leaks(self):
        found = {place: self.secrets.found_in(content) for place, content in self.everything().items()}
        return {place: secrets for place, secrets in found.items() if secrets}


@pytest.fixture(params=BOTH)
def sweep(request, forks, tmp_path):
    """A server of its own, which fails when told to."""
    with tempfile.TemporaryDirectory() as public:
        Path(public).chmod(0o755)
        clock_file = Path(public) / "clock"
        clock_file.write_text("0")
        extra = {}
        if request.param == "postgresql":
            server = request.getfixturevalue("postgresql_server")
            extra["ATMEM_DATABASE_URL"] = server.url(server.create())
        instance = initialised(tmp_path / "instance", extra)
        if extra:
            follow_clock(extra["ATMEM_DATABASE_URL"], clock_file)
        stage = Stage(forks, instance, clock_file)
        stage.extra, stage.is_failing = extra, True
        stage.start()
        try:
            yield Sweep(stage, Secrets(), Wire(stage.url))
        finally:
            stage.stop()


def test_no_secret_is_found_in_anything_that_is_left_behind(sweep):
    learn_keys(sweep)
    people(sweep)
    credentials(sweep)
    workflow_id = work(sweep)
    refused_bodies(sweep, workflow_id)
    misplaced_tokens(sweep)
    failures(sweep)
    run = evidence(sweep)
    pages(sweep, run, workflow_id)
    conversation = Conversation(sweep)
    conversation.everything()

    assert sweep.leaks() == {}
    back_up(sweep)
    lock_and_unlock(sweep)
    delete(sweep, workflow_id)
    delete_run(sweep, run)
    conversation.delete()
    assert sweep.leaks() == {}
    sweep.stage.stop()
    assert sweep.leaks() == {}
    sweep.stage.start()
    assert {400, 401, 403, 404, 409, 413, 415, 500, 503} <= sweep.wire.statuses


def test_the_search_finds_a_secret_wherever_it_is(sweep):
    secret = sweep.mint("anything")
    (sweep.stage.instance.folder / "note").write_text(f"so: {base64.b64encode(secret.encode()).decode()}")
    sweep.wire.refusals.append(secret.encode())
    with sweep.stage.log.open("a") as log:
        log.write(secret.encode().hex().upper())

    assert sweep.leaks() == {
        "instance/note": ["anything #0 as base64"], "refusal 0": ["anything #0 as it is"],
        "log": ["anything #0 as hex"],
    }  # fmt: skip


def command(sweep, *arguments, typed):
    """Run a command that reads a passphrase; nothing that it says is a secret."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.entry", *arguments, "--passphrase-file", "-"], cwd=ROOT_FOLDER,
        env=environment(sweep.stage.instance.folder, sweep.stage.extra), input=f"{typed}\n".encode(),
        capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert sweep.secrets.found_in(done.stdout + done.stderr) == []
    return done.returncode


def back_up(sweep):
    """Make a backup, which holds every secret there is, and look for them in its bytes; try to open it wrongly."""
    passphrase, file = sweep.mint("passphrase of a backup"), sweep.stage.instance.folder.parent / "backup"
    assert command(sweep, "vault", "backup", str(file), typed=passphrase) == 0
    assert command(sweep, "vault", "backup", "--check", str(file), typed=passphrase) == 0
    assert command(sweep, "vault", "backup", "--check", str(file), typed=sweep.mint("wrong passphrase")) == 1
    assert sweep.secrets.found_in(file.read_bytes()) == []


def lock_and_unlock(sweep):
    """While the vault is locked not even the file of its key holds the key; what is asked for is refused."""
    passphrase, folder = sweep.mint("passphrase of a lock"), sweep.stage.instance.folder
    assert command(sweep, "vault", "lock", typed=passphrase) == 0
    locked = {name: content for name, content in files(folder).items() if name != "secret.key"}
    assert {name: found for name, content in locked.items() if (found := sweep.secrets.found_in(content))} == {}
    assert sweep.as_person("GET", f"{ROOT}")[0] == 423
    assert command(sweep, "vault", "unlock", typed=sweep.mint("wrong passphrase")) == 1
    assert command(sweep, "vault", "unlock", typed=passphrase) == 0
    until(lambda: sweep.as_person("GET", f"{ROOT}")[0] == 200)


def learn_keys(sweep):
    folder = sweep.stage.instance.folder
    key = base64.b64decode((folder / "vault.key").read_text().split()[-1])
    assert len(key) == 32
    sweep.secrets.learn_bytes("master key", key)
    sweep.secrets.learn("signing key", (folder / "secret.key").read_text())


def people(sweep):
    """Sign in every way that works or does not; choose, change and give a password again."""
    stage, wire = sweep.stage, sweep.wire
    username = stage.instance.username
    temporary = sweep.secrets.learn("temporary password", stage.instance.password)
    first, second = (sweep.mint("password") + " of a person" for _ in range(2))
    sweep.sign_in(temporary)
    for new in (temporary, first[:9], sweep.mint("password") * 9):
        body = {"current_password": temporary, "new_password": new}
        assert sweep.as_person("POST", "/api/auth/change-password", body)[0] == 400
    change = {"current_password": temporary, "new_password": first}
    sweep.welcome(sweep.as_person("POST", "/api/auth/change-password", change))
    change = {"current_password": first, "new_password": second}
    sweep.welcome(sweep.as_person("POST", "/api/auth/change-password", change))
    for body in (
        {"username": username, "password": sweep.mint("wrong password")},
        {"username": sweep.mint("username that is a password"), "password": "something"},
        {"username": username, "password": [sweep.mint("password of a wrong type")]},
        {"username": username, "password": sweep.mint("password") + "\ud800"},
        {"username": username, "password": sweep.mint("endless password") * 200},
    ):
        assert wire.send("POST", "/api/auth/login", body)[0] in {400, 401}
    assert sweep.as_person("POST", "/api/auth/reauthenticate", {"password": sweep.mint("wrong password")})[0] == 401
    stage.advance(61)
    sweep.welcome(sweep.as_person("POST", "/api/auth/reauthenticate", {"password": second}))
    for token in ("", sweep.mint("CSRF token"), "\xff" * 43):
        answer = sweep.as_person("POST", "/api/auth/reauthenticate", {"password": second}, **{"X-CSRF-Token": token})
        assert answer[0] == 403


def credentials(sweep):
    for kind, role in (("operator", "evidence_collector"), ("coordinator", "continuity_coordinator")):
        body = {"principal_id": f"the-{kind}", "role": role, "workspace_id": "default"}
        status, reply, _ = sweep.as_person("POST", "/v1/evidence/grants", body)
        assert status == 200, reply
        sweep.tokens[kind] = sweep.secrets.learn(f"{kind} token", reply["token"])


def operation(sweep, **more):
    return {
        "name": "publish-it", "tool": sweep.mint("tool"), "arguments": {"document": sweep.mint("argument")}, **more,
    }  # fmt: skip


def ids(sweep):
    return {"name": "publish-it", "run_id": sweep.mint("run_id"), "attempt_id": sweep.mint("attempt_id")}


def begun(sweep, workflow_id, *, kind="operator"):
    body = ids(sweep)
    status, grant, _ = sweep.as_machine(f"{ROOT}/{workflow_id}/begin", body, kind=kind)
    assert (status, grant["action"]) == (200, "execute"), grant
    sweep.secrets.learn("lease token", grant["lease_token"])
    sweep.secrets.learn("idempotency key", grant["idempotency_key"])
    return {**body, "lease_token": grant["lease_token"]}, grant["operation_id"]


def success(sweep, operation_id):
    return {
        "outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": sweep.mint("effect_id"),
        "result": {"body": sweep.mint("result")}, "note": sweep.mint("receipt"),
    }  # fmt: skip


def created(sweep, **more):
    body = {"workflow_key": sweep.mint("workflow key"), "operations": [operation(sweep, **more)], "activate": True}
    status, view, _ = sweep.as_machine(ROOT, body)
    assert status == 200, view
    return view["workflow_id"]


def work(sweep):
    """Do, renew, report late, stop, confirm; return a finished workflow."""
    workflow_id = created(sweep)
    grant = {"principal_id": "the-worker", "role": "continuity_host", "run_id": workflow_id}
    status, reply, _ = sweep.as_person("POST", "/v1/evidence/grants", grant)
    assert status == 200, reply
    sweep.tokens["worker"] = sweep.secrets.learn("worker token", reply["token"])
    lease, operation_id = begun(sweep, workflow_id, kind="worker")
    path = f"{ROOT}/{workflow_id}"
    assert sweep.as_machine(f"{path}/renew", lease, kind="worker")[0] == 200
    assert sweep.as_machine(f"{path}/renew", {**lease, "lease_token": sweep.mint("lease token")})[0] == 409
    receipt = {**lease, "receipt": success(sweep, operation_id)}
    assert sweep.as_machine(f"{path}/outcome", receipt, kind="worker")[1]["accepted"] is True
    late = [{**lease, "receipt": success(sweep, operation_id)} for _ in range(12)]
    assert [sweep.as_machine(f"{path}/outcome", body)[0] for body in late] == [200] * 11 + [409]
    assert sweep.as_machine(path, None, method="GET")[0] == 200
    assert sweep.as_person("GET", path)[0] == 200
    stopped(sweep)
    confirmed(sweep)
    coordinated(sweep)
    return workflow_id


def stopped(sweep):
    workflow_id = created(sweep)
    body = {"name": "publish-it", "reason": sweep.mint("reason")}
    assert sweep.as_machine(f"{ROOT}/{workflow_id}/abandon", body)[0] == 200
    assert sweep.as_machine(f"{ROOT}/{workflow_id}/abandon", body)[0] == 409


def confirmed(sweep):
    workflow_id = created(sweep)
    begun(sweep, workflow_id)
    sweep.stage.advance()
    revision = sweep.as_machine(f"{ROOT}/{workflow_id}", None, method="GET")[1]["revision"]
    body = {
        "name": "publish-it", "happened": True, "revision": revision + 1, "late_receipts": 0,
        "reason": sweep.mint("reason"),
        "receipt": {"effect_id": sweep.mint("effect_id"), "result": sweep.mint("result")},
    }  # fmt: skip
    assert sweep.as_person("POST", f"{ROOT}/{workflow_id}/confirm", body)[0] == 409
    body["revision"] = revision
    assert sweep.as_person("POST", f"{ROOT}/{workflow_id}/confirm", body)[0] == 200


def coordinated(sweep):
    body = {
        "workflow_key": sweep.mint("workflow key"), "operations": [operation(sweep)], "activate": True,
        "begin": ids(sweep),
    }  # fmt: skip
    status, reply, _ = sweep.as_machine(ROOT, body, kind="coordinator")
    assert status == 200, reply
    sweep.secrets.learn("lease token", reply["begin"]["lease_token"])
    other = {**body, "operations": [operation(sweep)]}
    assert sweep.as_machine(ROOT, other, kind="coordinator")[0] == 409


def refused_bodies(sweep, workflow_id):
    """Send what cannot be read, or is of a wrong type, to every path that takes a body."""
    paths = [ROOT, "/v1/evidence/grants", "/v1/evidence/revoke", "/v1/evidence/delete", "/api/auth/login"]
    paths += [f"{ROOT}/{workflow_id}/{call}" for call in ("begin", "outcome", "renew", "configure", "abandon")]
    fields = (
        "workflow_key", "operations", "name", "run_id", "attempt_id", "lease_token", "receipt", "enabled", "reason",
        "principal_id", "role", "confirmation", "username", "password",
    )  # fmt: skip
    for path in paths:
        for make in (lambda s: s + " \t", lambda s: [s], lambda s: {"x": s}, lambda s: s * 20):
            body = {name: make(sweep.mint(name)) for name in fields}
            assert sweep.as_machine(path, body)[0] in {400, 401, 403, 404}
        for text in ('{"a":"%s"', '{"a":NaN,"b":"%s"}', '{"a":1,"a":"%s"}', '"%s"', '{"a":"\\ud800%s"}', "\xff%s"):
            body = (text % sweep.mint("broken body")).encode("latin-1")
            assert sweep.as_machine(path, body)[0] in {400, 401, 403, 404}
        assert sweep.as_machine(path, {"a": sweep.mint("large body") * 9_000})[0] in {400, 401, 403, 413}
        headers = {"Authorization": f"Bearer {sweep.tokens['operator']}", "Content-Type": sweep.mint("content type")}
        assert sweep.wire.send("POST", path, {"a": sweep.mint("body")}, headers=headers)[0] in {401, 403, 415}
    for definition in (
        {"tool": [sweep.mint("tool")]}, {"arguments": sweep.mint("argument")},
        {"timeout_seconds": sweep.mint("number")}, {"retention_seconds": [sweep.mint("number")]},
        {"capability": sweep.mint("capability")}, {"absence_final_after_seconds": sweep.mint("number")},
    ):  # fmt: skip
        body = {"workflow_key": "work-of-no-kind", "operations": [operation(sweep, **definition)]}
        assert sweep.as_machine(ROOT, body)[0] == 400
    unknown = f"{ROOT}/wf_{'0' * 32}"
    assert sweep.as_machine(f"{unknown}/begin", ids(sweep))[0] == 404
    assert sweep.as_machine(f"{ROOT}/{workflow_id}/begin", {**ids(sweep), "name": sweep.mint("name")})[0] == 404


def misplaced_tokens(sweep):
    """Present credentials where none belong, and broken ones where they do."""
    token, wire = sweep.tokens["operator"], sweep.wire
    broken = [
        f"Bearer {token[:-1]}!", f"Bearer {token}x", f"bearer  {token}", f"Basic {token}", token,
        f"Bearer {sweep.mint('token')}", f"Bearer {token}, Bearer {token}",
    ]  # fmt: skip
    for value in broken:
        assert wire.send("GET", ROOT, headers={"Authorization": value})[0] == 401
    assert wire.send("GET", f"{ROOT}?token={token}&q={sweep.mint('query')}")[0] in {400, 401}
    assert wire.send("GET", ROOT, headers={"Cookie": f"atmem_session={token}"})[0] == 401
    assert wire.send("GET", f"{ROOT}/{token}")[0] in {401, 404}
    assert sweep.as_machine(f"{ROOT}?cursor={sweep.mint('cursor')}", None, method="GET")[0] == 400
    assert sweep.as_machine(f"{ROOT}?q={sweep.mint('search')}", None, method="GET")[0] == 200
    assert wire.send("GET", ROOT, headers={"Host": sweep.mint("host") + ".example"})[0] == 400
    assert wire.send("GET", ROOT, headers={"X-Forwarded-For": sweep.mint("address")})[0] == 401


def failures(sweep):
    """Let storage and the program fail with secrets in hand."""
    for how, expected in (("program", 500), ("statement", 500), ("storage", 503)):
        workflow_id = created(sweep)
        path = f"{ROOT}/{workflow_id}"
        sweep.stage.armed.write_text(f"begin {how} {sweep.mint('failure')}")
        assert sweep.as_machine(f"{path}/begin", ids(sweep))[0] == expected
        lease, operation_id = begun(sweep, workflow_id)
        sweep.stage.armed.write_text(f"outcome {how} {sweep.mint('failure')}")
        body = {**lease, "receipt": success(sweep, operation_id)}
        assert sweep.as_machine(f"{path}/outcome", body)[0] == expected
        sweep.stage.armed.write_text(f"create {how} {sweep.mint('failure')}")
        body = {"workflow_key": sweep.mint("workflow key"), "operations": [operation(sweep)]}
        assert sweep.as_machine(ROOT, body)[0] == expected


def evidence(sweep):
    """Record, find, read and take away what an agent says; return its run."""
    now = int(sweep.stage.clock_file.stat().st_mtime)
    event = {
        "run_id": "run-of-secrets", "producer": "agent", "epoch": 1, "event_id": "1", "kind": "tool_call",
        "content": {"tool": sweep.mint("tool"), "parameters": {"to": sweep.mint("parameter")}}, "time": now,
    }  # fmt: skip
    status, reply, _ = sweep.as_machine("/v1/evidence", event)
    assert status == 200, reply
    run = reply["evidence_id"]
    text = {**event, "event_id": "2", "kind": "text", "content": f"It said {sweep.mint('text')}."}
    assert sweep.as_machine("/v1/evidence", text)[0] == 200
    other = {**text, "content": sweep.mint("another content")}
    assert sweep.as_machine("/v1/evidence", other)[0] == 409
    for wrong in (
        {"kind": sweep.mint("kind") * 9},
        {"content": None, "time": sweep.mint("time")},
    ):
        assert sweep.as_machine("/v1/evidence", {**event, "event_id": "3", **wrong})[0] == 400
    assert sweep.as_person("POST", "/v1/evidence/search", {"query": sweep.mint("word")})[0] == 200
    assert sweep.as_person("GET", f"/v1/evidence/{run}")[0] == 200
    assert sweep.as_person("GET", f"/v1/evidence?q={sweep.mint('search')}&cursor={sweep.mint('cursor')}")[0] == 400
    for passphrase in (sweep.mint("passphrase") + " of a file", sweep.mint("passphrase")[:8]):
        body = {"run_id": run, "passphrase": passphrase}
        assert sweep.as_person("POST", "/v1/evidence/export/encrypted", body)[0] in {200, 400}
    body = {"run_id": run, "confirmation": run}
    assert sweep.as_person("POST", "/v1/evidence/export/plaintext", body)[0] == 200
    return run


def pages(sweep, run, workflow_id):
    """Open, filter and take away what pages show, with secrets where none belong."""
    addresses = [
        "/evidence", f"/evidence/{run}", f"/evidence/{run}/manifest", f"/evidence/{run}/export",
        f"/resume-work/{workflow_id}", "/settings/audit", "/settings/audit/entries/1", "/settings/audit/entries.csv",
        "/settings/audit/entries.json", "/settings/audit/check", "/settings/audit/checkpoint.jsonl",
    ]  # fmt: skip
    for address in addresses:
        assert sweep.as_page("GET", address) == 200, address
    for address in (
        "/settings/audit?object=",
        "/evidence/records?q=",
        "/evidence/records?run=",
        "/settings/audit?actor=",
    ):
        assert sweep.as_page("GET", address + sweep.mint("filter")) == 200, address
    for address in ("/settings/audit?cursor=", "/evidence?cursor=", "/settings/audit?from=", "/evidence?x="):
        assert sweep.as_page("GET", address + sweep.mint("filter")) in {303, 400, 422}, address
    for form in ("export/encrypted", "export/plaintext", "delete"):
        fields = {name: sweep.mint(name) for name in ("passphrase", "again", "confirmation", "password")}
        assert sweep.as_page("POST", f"/evidence/{run}/{form}", fields) in {400, 403, 422}, form


def delete_run(sweep, run):
    body = {"run_id": run, "confirmation": run}
    status, reply, _ = sweep.as_person("POST", "/v1/evidence/delete", body)
    assert status == 200, reply
    assert sweep.as_page("GET", f"/evidence/{run}") == 409


def delete(sweep, workflow_id):
    body = {"run_id": workflow_id, "confirmation": workflow_id}
    assert sweep.as_machine("/v1/evidence/delete", {**body, "confirmation": sweep.mint("confirmation")})[0] == 400
    status, reply, _ = sweep.as_machine("/v1/evidence/delete", body)
    assert status == 200, reply
    assert sweep.as_machine(f"{ROOT}/{workflow_id}/begin", ids(sweep))[0] == 409
    assert sweep.as_machine(f"{ROOT}/{workflow_id}/begin", ids(sweep), kind="worker")[0] == 401
    until(lambda: json.loads(sweep.stage.log.read_text().splitlines()[-1])["status"] == 401)
