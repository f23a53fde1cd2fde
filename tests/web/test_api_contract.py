"""The contract that the server publishes is the one that it keeps (wire.md)."""

from __future__ import annotations

import copy
import dataclasses
import json
import types
import typing
from collections.abc import Mapping

import jsonschema_rs
import pytest
import schemathesis
import sqlalchemy as sa
from click.testing import CliRunner

from app.api import evidence_schemas, schemas, thread_schemas
from app.api.documentation import ERRORS, ROUTES, document, documented, method_of, path_of
from app.auth import requests
from app.auth.admission import public
from app.cli import main
from continuity import evidence, key_requests, thread_requests, wire
from continuity.errors import CONFLICT_CODES
from continuity.store import schema as store_schema
from continuity.wire import Fields
from observations import events
from tests.observing import LEAST
from tests.web.matrix import ATTEMPT, EVIDENCE, EXPECTED, OPERATION, PASSPHRASE, WORKFLOWS, World
from tests.web.site import site_on
from tests.web.thread_rows import QUESTION, SECRET, thread


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("contract") / "instance")
    with site_on(instance.folder) as site:
        yield World(site)


@pytest.fixture(scope="module")
def contract(world):
    return document(world.site.app)


# --- The document ---


def test_the_document_is_valid_openapi(contract):
    schemathesis.openapi.from_dict(contract).validate()


def test_a_broken_document_would_be_noticed(contract):
    broken = copy.deepcopy(contract)
    broken["paths"][WORKFLOWS]["get"]["responses"] = 7

    with pytest.raises(jsonschema_rs.ValidationError):
        schemathesis.openapi.from_dict(broken).validate()


def test_the_document_says_that_its_version_is_not_the_products(contract):
    assert "version is that of this contract and not of the product" in contract["info"]["description"]


def test_every_route_is_in_the_document_and_nothing_else(world, contract):
    routes = {(path_of(rule), method_of(rule).lower()) for rule in documented(world.site.app)}

    assert routes == {(path, method) for path, item in contract["paths"].items() for method in item}


def test_a_route_that_nobody_described_breaks_the_document(fresh_instance):
    with site_on(fresh_instance.folder) as site:
        site.app.add_url_rule("/v1/undescribed", "undescribed", public(lambda: ""))

        with pytest.raises(LookupError, match="undescribed"):
            document(site.app)


def test_the_server_and_the_command_line_publish_the_same(world, contract):
    served = world.site.browser().send("GET", "/openapi.json")
    printed = CliRunner().invoke(main, ["openapi"])

    assert served.json == contract
    assert json.loads(printed.stdout) == contract


def test_every_reference_leads_somewhere(contract):
    for reference in references(contract):
        found = contract
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]


def references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def test_every_request_has_an_example_that_it_would_accept(contract):
    wanted = {route.request.__name__ for route in ROUTES.values() if route.request is not None}

    for name in wanted:
        example = contract["components"]["schemas"][name]["example"]
        validator(contract, name).validate(example)
        parser_of(name)(example)


def test_examples_of_replies_are_replies(contract):
    for name, schema in contract["components"]["schemas"].items():
        if "example" in schema:
            validator(contract, name).validate(schema["example"])


def test_every_error_is_described_with_the_one_body(contract):
    for status in ERRORS:
        body = contract["components"]["responses"][status]["content"]["application/json"]["schema"]
        assert body == {"$ref": "#/components/schemas/Error"}


def test_documented_conflicts_are_codes_of_the_contract():
    for endpoint, route in ROUTES.items():
        assert set(route.conflicts) <= CONFLICT_CODES, endpoint


def test_whom_the_document_admits_is_whom_the_matrix_expects(world, contract):
    names = {
        "evidence_collector": "operator", "continuity_host": "worker", "continuity_coordinator": "coordinator",
        "continuity_observer": "observer", "thread_worker": "thread worker", "thread_application": "application",
        "operator": "person: operator", "investigator": "person: investigator",
        "administrator": "person: administrator", "monitor": "monitor",
    }  # fmt: skip
    for rule in documented(world.site.app):
        operation = contract["paths"][path_of(rule)][method_of(rule).lower()]
        if rule.endpoint.startswith(("health.live", "health.ready", "documentation.", "session.")):
            assert operation["x-admits"] == []
            continue
        expected = EXPECTED[rule.endpoint].expected
        admitted = {asker for asker in names.values() if expected[asker] == 200}
        if rule.endpoint.startswith("threads_api."):
            # Everybody who may have threads is admitted; the one of the matrix is the application's own.
            assert admitted <= {names[name] for name in operation["x-admits"]} == THREAD_OWNERS
        else:
            assert {names[name] for name in operation["x-admits"]} == admitted


THREAD_OWNERS = {"application", "person: operator", "person: investigator", "person: administrator"}

# --- The models are the dataclasses ---

MODELS = (schemas, evidence_schemas, thread_schemas)
MIRRORED = [
    wire.OperationDefinition, wire.BeginRequest, wire.CreateWorkflow, wire.OutcomeRequest, wire.RenewRequest,
    wire.ConfigureRequest, wire.AbandonRequest, wire.ConfirmRequest, wire.DeleteRequest, requests.LoginRequest,
    requests.ChangePasswordRequest, requests.ReauthenticateRequest, requests.GrantRequest, requests.RevokeRequest,
    events.Event, evidence.RecordEvidence, evidence.SearchEvidence, evidence.Reconstruct, evidence.ManifestRequest,
    evidence.EncryptedExport, evidence.PlaintextExport, evidence.Retention, evidence.CaptureMode,
    key_requests.LockVault, key_requests.UnlockVault, key_requests.RotateVault,
    thread_requests.NewThread, thread_requests.SayRequest, thread_requests.ControlRequest,
    thread_requests.ReplyRequest, thread_requests.AgentDeclaration, thread_requests.DeclareAgents,
    thread_requests.ClaimRequest,
]  # fmt: skip
RENAMED = {
    wire.ConfirmRequest: {"effect_id": "receipt.effect_id", "result": "receipt.result"},
    requests.GrantRequest: {
        "kind": "role", "workflow_id": "run_id", "workspace": "workspace_id", "expires_in_s": "expires_in_seconds",
    },
    requests.RevokeRequest: {"workspace": "workspace_id"},
    thread_requests.AgentDeclaration: {"is_public": "public"},
    evidence.SearchEvidence: {"run": "run_id", "search": "query", "workspace": "workspace_id"},
}  # fmt: skip
# Named on the wire alone: the name of the format.
RESERVED = {events.Event: {"format"}, thread_requests.NewThread: {"subject"}}
JSON_TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "number", Mapping: "object", tuple: "array",
    frozenset: "array",
}  # fmt: skip


def flattened(model, prefix=""):
    """Return (annotation, is required) of a model's fields, those of a nested receipt by their path."""
    for name, field in model.model_fields.items():
        nested = [each for each in typing.get_args(field.annotation) if each is schemas.AttestedReceipt]
        if nested:
            yield from ((f"{name}.{inner}", value) for inner, value in flattened(nested[0]))
        else:
            yield f"{prefix}{name}", (field.annotation, field.is_required())


@pytest.mark.parametrize("wired", MIRRORED, ids=lambda cls: cls.__name__)
def test_a_model_has_the_fields_of_its_dataclass(wired):
    model = next(getattr(module, wired.__name__) for module in MODELS if hasattr(module, wired.__name__))
    renamed = RENAMED.get(wired, {})
    fields = {renamed.get(field.name, field.name): field for field in dataclasses.fields(wired)}
    mirrored = dict(flattened(model))

    assert set(mirrored) - RESERVED.get(wired, set()) == set(fields)
    # The dataclass has no default for what `from_json` fills in; whether a member may be absent is the next test.
    for name, field in fields.items():
        hint = typing.get_type_hints(wired)[field.name]
        if hint is not typing.Any:
            assert json_types(mirrored[name][0]) & json_types(hint), name


def json_types(annotation):
    """Return the JSON types of a type hint, None aside."""
    origin = typing.get_origin(annotation)
    if origin in {typing.Union, types.UnionType}:
        return set().union(*map(json_types, typing.get_args(annotation)))
    if origin is typing.Annotated:
        return json_types(typing.get_args(annotation)[0])
    if origin is typing.Literal:
        return {JSON_TYPES[type(value)] for value in typing.get_args(annotation)}
    base = origin or annotation
    for known, name in [*JSON_TYPES.items(), (dict, "object"), (list, "array"), (wire.Fields, "")]:
        if isinstance(base, type) and issubclass(base, known):
            return {name}
    return {"object"} if dataclasses.is_dataclass(base) or hasattr(base, "model_fields") else set()


def parser_of(name):
    if name == "LogoutRequest":
        return lambda value: Fields(value).finish()
    if name == "Event":
        return events.parse_event
    modules = (wire, requests, evidence, key_requests, thread_requests)
    parse = next(getattr(module, name) for module in modules if hasattr(module, name)).from_json
    if name == "NewThread":
        # Whom an application acts for is the view's to read, with the header that may say it.
        return lambda value: parse({key: each for key, each in value.items() if key != "subject"})
    return parse


HOLD = {"generation": 1, "secret": SECRET, "steers_read": 0}
FULL = {
    "OperationDefinition": {
        "name": "a", "tool": "t", "arguments": {}, "capability": ["query"], "timeout_seconds": 1,
        "retention_seconds": 100, "absence_final_after_seconds": None,
    },
    "BeginRequest": ATTEMPT,
    "CreateWorkflow": {"workflow_key": "k", "operations": [OPERATION], "activate": True, "begin": ATTEMPT},
    "OutcomeRequest": {**ATTEMPT, "lease_token": "lt", "receipt": {}},
    "RenewRequest": {**ATTEMPT, "lease_token": "lt"},
    "ConfigureRequest": {"enabled": True, "revision": 1},
    "AbandonRequest": {"name": "a", "reason": "r", "revision": 1},
    "ConfirmRequest": {
        "name": "a", "happened": False, "revision": 1, "late_receipts": 0, "reason": "r", "receipt": None,
    },
    "DeleteRequest": {"run_id": "r", "confirmation": "r"},
    "Event": {"format": events.FORMAT, **LEAST, "retry": True, "recovery": False, "price_source": "p", "model": "m"},
    "LoginRequest": {"username": "u", "password": "p", "code": "123456"},
    "ChangePasswordRequest": {"current_password": "p", "new_password": "q"},
    "ReauthenticateRequest": {"password": "p"},
    "GrantRequest": {
        "principal_id": "p", "role": "evidence_collector", "run_id": None, "workspace_id": "w",
        "observation_scope": None, "agents": None, "expires_in_seconds": 60,
    },
    "RevokeRequest": {"principal_id": "p", "workspace_id": "w"},
    "LogoutRequest": {},
    "RecordEvidence": EVIDENCE,
    "SearchEvidence": {
        "limit": 1, "cursor": "c", "run_id": "r", "producer": "p", "kind": "k", "query": "q", "since": 1, "until": 2,
        "workspace_id": "w",
    },
    "Reconstruct": {"run_id": "r", "limit": 1, "after": 0},
    "ManifestRequest": {"run_id": "r"},
    "EncryptedExport": {"run_id": "r", "passphrase": PASSPHRASE},
    "PlaintextExport": {"run_id": "r", "confirmation": "r"},
    "Retention": {"older_than_days": 1, "kind": "workflows", "apply": True, "limit": 1, "cursor": "c"},
    "CaptureMode": {"capture_mode": "full"},
    "LockVault": {"confirmation": "lock", "passphrase": PASSPHRASE},
    "UnlockVault": {"passphrase": PASSPHRASE},
    "RotateVault": {"confirmation": "rotate", "passphrase": PASSPHRASE},
    "NewThread": {"request_id": "r", "name": "n", "agent": "a", "subject": "s"},
    "SayRequest": {"request_id": "r", "content": "c"},
    "ControlRequest": {"request_id": "r", "revision": 1},
    "ReplyRequest": {"request_id": "r", "revision": 1, "reply": True},
    "AgentDeclaration": {"name": "a", "controls": ["stop"], "state_keys": ["k"], "public": True, "principals": ["p"]},
    "DeclareAgents": {"agents": [{"name": "a"}]},
    "ClaimRequest": {"request_id": "r", "secret": SECRET, "agents": ["a"]},
    "HeartbeatRequest": HOLD,
    "AppendRequest": {"request_id": "r", **HOLD, "records": [{"kind": "progress", "data": 1}]},
    "WaitRequest": {"request_id": "r", **HOLD, "requests": [QUESTION], "records": []},
    "SettleRequest": {"request_id": "r", **HOLD, "output": 1, "records": []},
    "FailRequest": {
        "request_id": "r", **HOLD, "reason": "blocked", "message": "m", "workflow_id": "w", "records": [],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FULL)
def test_a_member_may_be_absent_or_null_in_the_document_exactly_when_it_may_on_the_wire(contract, name):
    body, parse, check = FULL[name], parser_of(name), validator(contract, name)
    parse(body)
    check.validate(body)

    for field in body:
        for changed in ({key: value for key, value in body.items() if key != field}, {**body, field: None}):
            assert check.is_valid(changed) == is_accepted(parse, changed), (field, changed)
    assert not check.is_valid({**body, "unknown": 1})
    assert not is_accepted(parse, {**body, "unknown": 1})


def is_accepted(parse, body):
    try:
        parse(body)
    except wire.MalformedError:
        return False
    return True


def validator(contract, name, *, closed=False):
    """Return a validator for one schema of the document; `closed` refuses members that it does not name."""
    components = copy.deepcopy(contract["components"])
    if closed:
        for schema in components["schemas"].values():
            if "properties" in schema:
                schema.setdefault("additionalProperties", False)
    schema = {"$ref": f"#/components/schemas/{name}", "components": components}
    return jsonschema_rs.validator_for(schema)


# --- What comes back is what the document says, and nothing that it does not name ---


def test_replies_hold_what_the_document_names_and_nothing_else(world, contract):
    """A whole life: made, begun, held by another, ended, reported late, confirmed, listed, deleted."""
    site = world.site
    operator = world.ask_as("operator", world.target())

    def check(model, reply):
        assert reply.status_code == 200, reply.text
        validator(contract, model, closed=True).validate(reply.json)
        return reply.json

    def send(model, path, body=None, method="POST"):
        return check(model, operator.send(method, path, body))

    body = {
        "workflow_key": "whole-life", "activate": True, "begin": ATTEMPT,
        "operations": [
            {"name": "publish", "tool": "files", "capability": "query", "absence_final_after_seconds": 60},
            {
                "name": "tell", "tool": "mail", "arguments": {"to": ["a", {"b": 1.5}]},
                "capability": ["query", "idempotent"], "retention_seconds": 600,
            },
        ],
    }  # fmt: skip
    made = send("CreatedWorkflow", WORKFLOWS, body)
    path = f"{WORKFLOWS}/{made['workflow_id']}"
    lease = {**ATTEMPT, "lease_token": made["begin"]["lease_token"]}
    send("BeginReply", f"{path}/begin", {**ATTEMPT, "attempt_id": "at-2"})
    send("RenewReply", f"{path}/renew", lease)
    success = {
        "outcome": "confirmed_succeeded", "operation_id": made["begin"]["operation_id"], "effect_id": "e", "result": {},
    }  # fmt: skip
    send("OutcomeReply", f"{path}/outcome", {**lease, "receipt": {"outcome": "unknown"}})
    send("OutcomeReply", f"{path}/outcome", {**lease, "receipt": success})
    late = send("WorkflowHistory", path, method="GET")
    assert late["operations"][0]["late"]
    site.clock.advance(200)
    browser = site.signed_in("adm")
    confirm = {
        "name": "publish", "happened": True, "revision": late["revision"], "late_receipts": 1, "reason": "Seen.",
        "receipt": {"effect_id": "e", "result": {"url": "x"}},
    }  # fmt: skip
    check("WorkflowView", browser.post(f"{path}/confirm", confirm))
    assert send("BeginReply", f"{path}/begin", {**ATTEMPT, "attempt_id": "at-3"})["action"] == "completed"
    refusal = {**ATTEMPT, "name": "tell", "attempt_id": "at-4"}
    granted = send("BeginReply", f"{path}/begin", refusal)
    receipt = {"outcome": "confirmed_refused", "operation_id": granted["operation_id"], "reason": "No such address."}
    send("OutcomeReply", f"{path}/outcome", {**refusal, "lease_token": granted["lease_token"], "receipt": receipt})
    assert send("BeginReply", f"{path}/begin", {**refusal, "attempt_id": "at-5"})["reason"] == "refused_by_destination"
    send("WorkflowView", f"{path}/configure", {"enabled": False})
    whole = send("WorkflowHistory", path, method="GET")
    assert {entry["event"] for entry in whole["history"]} > {"created", "attempt_granted"}
    send("WorkflowPage", f"{WORKFLOWS}?limit=1", method="GET")
    send("DeleteReply", "/v1/evidence/delete", {"run_id": made["workflow_id"], "confirmation": made["workflow_id"]})
    grant = browser.post("/v1/evidence/grants", {"principal_id": "whole-life", "role": "evidence_collector"})
    check("GrantReply", grant)
    check("RevokeReply", browser.post("/v1/evidence/revoke", {"principal_id": "whole-life"}))
    check("Welcome", browser.post("/api/auth/reauthenticate", {"password": site.passwords["adm"]}))
    observer = world.ask_as("observer", world.target())
    seen = {"format": events.FORMAT, **LEAST, "event_id": "whole-life"}
    check("ObservationReply", observer.send("POST", f"{WORKFLOWS}/events", seen))
    check("Farewell", browser.post("/api/auth/logout", {}))


def test_an_abandoned_operation_is_shown_as_the_document_says(world, contract):
    operator = world.ask_as("operator", world.target())
    target = world.target("ended")

    seen = operator.send("GET", f"{WORKFLOWS}/{target.workflow_id}", None)

    validator(contract, "WorkflowHistory", closed=True).validate(seen.json)
    assert seen.json["phase"] == "ended"


def test_replies_about_evidence_hold_what_the_document_names_and_nothing_else(world, contract):
    """A whole life: recorded, listed, searched, read, taken away, kept by retention, deleted; and a damaged record."""
    site = world.site
    operator, browser = world.ask_as("operator", world.target()), site.signed_in("adm")

    def check(model, reply):
        assert reply.status_code == 200, reply.text
        validator(contract, model, closed=True).validate(reply.json)
        return reply.json

    run = {"run_id": world.new_name("life")}
    body = {**EVIDENCE, **run, "event_id": world.new_name("e"), "content": {"tool": "mail", "text": "whole life"}}
    made = check("EvidenceReply", operator.send("POST", "/v1/evidence", body))
    assert check("EvidenceReply", operator.send("POST", "/v1/evidence", body))["replayed"]
    target = world.target(of="operator of all")
    attempt = {**ATTEMPT, **run}
    check("BeginReply", operator.send("POST", f"{WORKFLOWS}/{target.workflow_id}/begin", attempt))
    path = f"/v1/evidence/{made['evidence_id']}"
    assert check("EvidencePage", operator.send("GET", "/v1/evidence?q=whole+life&limit=1", None))["records"]
    assert check("EvidencePage", operator.send("POST", "/v1/evidence/search", {"query": "whole", **run}))["records"]
    assert check("EvidenceRunPage", operator.send("GET", "/v1/evidence/runs?limit=1", None))["runs"]
    shown = check("EvidenceRunView", operator.send("GET", path, None))
    assert shown["records"][0]["content"] == body["content"]
    assert shown["workflows"][0]["workflow_id"] == target.workflow_id
    assert check("EvidenceRunView", operator.send("POST", "/v1/evidence/reconstruct", run)) == shown
    manifest = check("Manifest", operator.send("GET", f"{path}/manifest", None))
    assert check("Manifest", operator.send("POST", "/v1/evidence/replay-manifest", run)) == manifest
    check("CaptureReply", browser.send("GET", "/v1/evidence/settings/capture-mode", None))
    refused = browser.post("/v1/evidence/settings/capture-mode", {"capture_mode": "off"})
    assert refused.json["error"]["blocking"]["workflows"]
    validator(contract, "Error", closed=True).validate(refused.json)
    old = {"older_than_days": 1, "kind": "evidence"}
    check("RetentionReply", browser.post("/v1/evidence/retention", old))
    site.wiring.store.write(lambda connection: connection.execute(
        sa.update(store_schema.evidence).where(store_schema.evidence.c.seq == made["seq"]).values(sealed_record=b"x")
    ).rowcount)  # fmt: skip
    assert check("EvidencePage", operator.send("GET", "/v1/evidence?limit=1", None))["records"][0]["unreadable"]
    assert not check("EvidenceRunView", operator.send("GET", path, None))["is_whole"]
    deleted = {"run_id": made["evidence_id"], "confirmation": made["evidence_id"]}
    assert check("DeleteReply", browser.post("/v1/evidence/delete", deleted))["deleted"]["records"] == 1


def test_replies_about_old_records_of_threads_hold_what_the_document_names(world, contract):
    thread(world)
    unfinished, _ = thread(world, "waiting")
    world.site.clock.advance(2 * 86_400)
    browser, check = world.site.signed_in("adm"), validator(contract, "RetentionReply", closed=True)
    body = {"older_than_days": 1, "kind": "threads", "limit": 200}

    replies = [browser.post("/v1/evidence/retention", {**body, "apply": apply}) for apply in (False, True)]

    for reply in replies:
        assert reply.status_code == 200, reply.text
        check.validate(reply.json)
    outcomes = [{item["outcome"] for item in reply.json["items"]} for reply in replies]
    assert outcomes == [{"would_trim", "kept"}, {"trimmed", "kept"}]
    kept = {item["id"]: item.get("because") for item in replies[1].json["items"]}
    assert kept[unfinished] == "thread_unfinished"
