"""Whatever is sent, the answer is one that the contract names (security.md J14). Examples are generated from it."""

from __future__ import annotations

import math
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from app.api.documentation import ROUTES, document, documented, method_of, path_of
from app.vault_life import LOCAL
from tests.web.matrix import World
from tests.web.site import COOKIE, site_on
from tests.web.thread_rows import SECRET, SUBJECT, thread

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
ENDPOINTS = sorted(ROUTES)
SOAK_CASES = int(os.environ.get("ATMEM_FUZZ_CASES", "10000"))
"""In all, in a soak: what security.md J14 asks for."""
EXAMPLES = [
    pytest.param(15, id="quick"),
    # Three tests a route.
    pytest.param(math.ceil(SOAK_CASES / (3 * len(ENDPOINTS))), id="soak", marks=pytest.mark.soak),
]
"""Cases of each test."""
# Only people may: the session's cookie and token go along.
SESSIONS = {"grants.issue", "grants.revoke", "operators.confirm", "session.change_password", "session.logout",
            "session.reauthenticate", "evidence.export_plaintext", "capture.show", "capture.change",
            "keys.show", "keys.lock", "keys.unlock", "keys.rotate"}  # fmt: skip

READ_BY_NAME = {"evidence.reconstruct", "evidence.replay_manifest", "evidence.export_encrypted",
                "evidence.export_plaintext"}  # fmt: skip


def bounded(examples):
    return settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )  # fmt: skip


class Fuzzed:
    """An installation, its contract, and objects that generated requests may meet."""

    def __init__(self, site):
        self.world = World(site)
        self.schema = schemathesis.openapi.from_dict(document(site.app))
        self.schema.app = site.app
        self.rules = {rule.endpoint: rule for rule in documented(site.app)}
        self.targets = [self.world.target(state).workflow_id for state in ("enabled", "begun", "paused", "ended")]
        # Nobody waits for a record: a page comes at once, however long the request would.
        site.wiring.threads.streams.places.most = 0
        self.known = {"evidence_id": self.world.recorded(), **self.waiting_thread()}
        self.operator = {"Authorization": f"Bearer {self.world._tokens['operator of all']}"}
        self.observer = {"Authorization": f"Bearer {self.world._tokens['observer']}"}
        self.application = {
            "Authorization": f"Bearer {self.world._tokens['application']}", "Atmem-Subject": SUBJECT,
        }  # fmt: skip
        self.thread_worker = {"Authorization": f"Bearer {self.world._tokens['thread worker']}"}

    def waiting_thread(self):
        thread_id, known = thread(self.world, "waiting")
        # The run has ended with its question; one that goes on belongs to another thread.
        _, claimed = thread(self.world, "claimed")
        self.hold = {"generation": claimed["generation"], "secret": SECRET}
        return {
            "thread_id": thread_id, "waiting_id": known["waiting_id"], "asked_id": known["receipt"],
            "thread_run_id": claimed["run_id"],
        }  # fmt: skip

    def headers_of(self, endpoint):
        blueprint = endpoint.partition(".")[0]
        if blueprint == "threads_api":
            return dict(self.application)
        if blueprint == "thread_workers":
            return dict(self.thread_worker)
        return dict(self.observer if endpoint == "observers.submit" else self.operator)

    def operation(self, endpoint):
        rule = self.rules[endpoint]
        return self.schema[path_of(rule)][method_of(rule)]

    def prove(self, endpoint, case):
        """Put proofs on the request with which it gets as far as its body."""
        case.headers, case.cookies = self.headers_of(endpoint), {}
        if endpoint in SESSIONS:
            self.world.site.clock.advance(61)
            browser = self.world.site.signed_in("adm")
            case.headers, case.cookies = {"X-CSRF-Token": browser.csrf}, {COOKIE: browser.cookie()}


@pytest.fixture(scope="module")
def fuzzed(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("fuzz") / "instance")
    with site_on(instance.folder) as site:
        yield Fuzzed(site)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["in form", "out of form"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("examples", EXAMPLES)
def test_only_documented_answers(fuzzed, endpoint, mode, examples):
    operation = fuzzed.operation(endpoint)
    if mode is GenerationMode.NEGATIVE and not can_be_wrong(operation):
        # Nothing can be wrong about a request without body and parameters.
        mode = GenerationMode.POSITIVE

    @bounded(examples)
    @given(
        case=operation.as_strategy(generation_mode=mode),
        target=st.sampled_from(fuzzed.targets),
        is_known=st.booleans(),
    )
    def run(case, target, is_known):
        fuzzed.prove(endpoint, case)
        if is_known and case.path_parameters:
            known = {**fuzzed.known, "workflow_id": target}
            case.path_parameters = {name: known[name] for name in case.path_parameters}
            if isinstance(case.body, dict) and "name" in case.body:
                case.body["name"] = "publish"
        if is_known and isinstance(case.body, dict) and endpoint in READ_BY_NAME:
            evidence_id = fuzzed.known["evidence_id"]
            case.body.update(dict.fromkeys({"run_id", "confirmation"} & case.body.keys(), evidence_id))
        if is_known and isinstance(case.body, dict) and endpoint.startswith("thread_workers."):
            case.body.update({name: fuzzed.hold[name] for name in fuzzed.hold.keys() & case.body.keys()})
        reply = case.call()
        case.validate_response(reply, checks=CHECKS)
        if endpoint == "keys.lock" and reply.status_code == 200:
            # The others are asked of a vault that is open.
            fuzzed.world.site.wiring.vault_life.unlock(LOCAL, case.body["passphrase"])

    run()


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("examples", EXAMPLES)
def test_only_documented_answers_to_invented_credentials(fuzzed, endpoint, examples):
    @bounded(examples)
    @given(case=fuzzed.operation(endpoint).as_strategy())
    def run(case):
        case.validate_response(case.call(), checks=CHECKS)

    run()


def can_be_wrong(operation):
    return bool(operation.definition.raw.get("requestBody") or operation.definition.raw.get("parameters"))
