"""Knowing an id grants nothing, and naming one in a request widens nothing (security.md T07, T10, T15, T16)."""

from __future__ import annotations

import pytest

from tests.web.matrix import ATTEMPT, BOTH, OPERATION, PASSPHRASE, WORKFLOWS, world_on

RANDOM = "wf_" + "7" * 32
SUCCESS = {"outcome": "confirmed_succeeded", "operation_id": "op_x", "effect_id": "e", "result": None}
BEGIN = ("POST", "/begin", ATTEMPT)
OUTCOME = ("POST", "/outcome", {**ATTEMPT, "lease_token": "lt_x", "receipt": SUCCESS})
RENEW = ("POST", "/renew", {**ATTEMPT, "lease_token": "lt_x"})
SHOW = ("GET", "", None)
CONFIGURE = ("POST", "/configure", {"enabled": False, "revision": 1})
ABANDON = ("POST", "/abandon", {"name": "publish", "reason": "No.", "revision": 1})
CONFIRM = ("POST", "/confirm", {
    "name": "publish", "happened": False, "revision": 1, "late_receipts": 0, "reason": "No.",
})  # fmt: skip
HOSTS = (
    "worker of another workflow", "coordinator of another principal", "coordinator elsewhere", "operator elsewhere",
)  # fmt: skip
CASES = [
    *[(asker, request) for asker in HOSTS for request in (SHOW, BEGIN, OUTCOME, RENEW)],
    *[("operator elsewhere", request) for request in (CONFIGURE, ABANDON)],
    *[("person: operator elsewhere", request) for request in (SHOW, CONFIGURE, ABANDON, CONFIRM)],
    ("person: investigator elsewhere", SHOW),
]


@pytest.fixture(scope="module", params=BOTH)
def world(request, tmp_path_factory):
    url = None
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        url = server.url(server.create())
    with world_on(tmp_path_factory.mktemp("scope") / "instance", database_url=url) as made:
        yield made


def told(reply):
    """Everything that a reply says, but for the id of its request."""
    identifier = reply.headers["X-Request-Id"]
    headers = sorted((name, value.replace(identifier, "")) for name, value in reply.headers)
    return reply.status_code, headers, reply.get_data(as_text=True).replace(identifier, "")


def as_somebody(world, name):
    return world.ask_as(name, world.target())


@pytest.mark.parametrize(("asker", "request_"), CASES, ids=lambda value: value if isinstance(value, str) else value[1])
def test_in_a_path_anothers_id_and_one_that_does_not_exist_answer_alike(world, asker, request_):
    method, rest, body = request_
    somebody = as_somebody(world, asker)
    theirs = world.target().workflow_id

    known, unknown = (somebody.send(method, f"{WORKFLOWS}/{name}{rest}", body) for name in (theirs, RANDOM))

    assert known.status_code == 404
    assert told(known) == told(unknown)


@pytest.mark.parametrize("asker", ["operator elsewhere", "person: operator elsewhere"])
def test_in_a_body_anothers_id_and_one_that_does_not_exist_answer_alike(world, asker):
    somebody = as_somebody(world, asker)
    theirs = world.target("ended").workflow_id

    known, unknown = (
        somebody.send("POST", "/v1/evidence/delete", {"run_id": name, "confirmation": name})
        for name in (theirs, RANDOM)
    )

    assert known.status_code == 404
    assert told(known) == told(unknown)


@pytest.mark.parametrize(
    ("path", "theirs", "nobodys"),
    [
        (
            "/v1/evidence/grants",
            {"role": "continuity_host", "run_id": ...},
            {"role": "continuity_host", "run_id": RANDOM},
        ),
        (
            "/v1/evidence/grants",
            {"role": "continuity_coordinator", "workspace_id": "default"},
            {"role": "continuity_coordinator", "workspace_id": "nowhere"},
        ),
        ("/v1/evidence/revoke", {"principal_id": "operator"}, {"principal_id": "nobody-at-all"}),
        (
            "/v1/evidence/revoke",
            {"principal_id": "operator", "workspace_id": "default"},
            {"principal_id": "operator", "workspace_id": "nowhere"},
        ),
    ],
)
def test_what_a_person_names_for_a_credential_is_checked_against_that_persons_scope(world, path, theirs, nobodys):
    somebody = as_somebody(world, "person: operator elsewhere")
    filled = {name: world.target().workflow_id if value is ... else value for name, value in theirs.items()}

    known, unknown = (
        somebody.send("POST", path, {"principal_id": "somebody-new", **body}) for body in (filled, nobodys)
    )

    assert known.status_code == 404
    assert told(known) == told(unknown)


@pytest.mark.parametrize("asker", ["operator elsewhere", "person: operator elsewhere"])
def test_in_a_query_anothers_id_key_or_workspace_and_one_that_does_not_exist_answer_alike(world, asker):
    somebody = as_somebody(world, asker)
    theirs = world.target().workflow_id
    key = world.site.wiring.services.workflows.view(world.caller_of("operator of all"), theirs)["workflow_key"]

    for known, unknown in (
        (f"q={theirs}", f"q={RANDOM}"), (f"key={key}", "key=never-used"), (f"q={key}", "q=never"),
        ("workspace=default", "workspace=nowhere"),
    ):  # fmt: skip
        replies = [somebody.send("GET", f"{WORKFLOWS}?{query}", None) for query in (known, unknown)]
        assert replies[0].json == {"workflows": [], "next_cursor": None}
        assert told(replies[0]) == told(replies[1])


def test_anothers_cursor_and_an_invented_one_answer_alike(world):
    for _ in range(2):
        world.target(of="operator of all")
    ours = as_somebody(world, "operator of all").send("GET", f"{WORKFLOWS}?limit=1", None).json["next_cursor"]
    somebody = as_somebody(world, "operator")

    borrowed, invented = (
        somebody.send("GET", f"{WORKFLOWS}?limit=1&cursor={cursor}", None) for cursor in (ours, "A" * len(ours))
    )

    assert borrowed.status_code == 400
    assert told(borrowed) == told(invented)


def test_a_list_holds_the_callers_scope_and_nothing_else(world):
    here, there = world.target().workflow_id, world.target(of="operator elsewhere").workflow_id

    seen = {
        name: {
            summary["workflow_id"]
            for summary in as_somebody(world, name).send("GET", f"{WORKFLOWS}?limit=200", None).json["workflows"]
        }
        for name in ("operator", "operator elsewhere", "operator of all", "person: investigator elsewhere")
    }

    assert here in seen["operator"]
    assert there not in seen["operator"]
    assert there in seen["operator elsewhere"] & seen["person: investigator elsewhere"]
    assert here not in seen["operator elsewhere"] | seen["person: investigator elsewhere"]
    assert {here, there} <= seen["operator of all"]


def test_the_token_of_a_lease_is_worth_nothing_on_another_workflow(world):
    leased, other = world.target("begun"), world.target("begun")
    coordinator = as_somebody(world, "coordinator")
    receipt = {"outcome": "confirmed_succeeded", "operation_id": leased.operation_id, "effect_id": "e", "result": 1}
    body = {**ATTEMPT, "lease_token": leased.lease_token, "receipt": receipt}

    renewed = coordinator.send(
        "POST", f"{WORKFLOWS}/{other.workflow_id}/renew", {**ATTEMPT, "lease_token": leased.lease_token}
    )
    reported = coordinator.send("POST", f"{WORKFLOWS}/{other.workflow_id}/outcome", body)

    assert renewed.json["error"]["code"] == "stale_lease"
    assert reported.json == {"accepted": False, "reason": "stale_lease", "revision": 2, "status": "uncertain"}


def test_the_id_of_an_attempt_without_its_token_reports_nothing(world):
    leased = world.target("begun")
    receipt = {"outcome": "confirmed_succeeded", "operation_id": leased.operation_id, "effect_id": "e", "result": 1}
    body = {**ATTEMPT, "lease_token": "lt_guessed", "receipt": receipt}

    reply = as_somebody(world, "coordinator").send("POST", f"{WORKFLOWS}/{leased.workflow_id}/outcome", body)

    assert reply.json["accepted"] is False
    assert reply.json["status"] == "uncertain"


def test_a_coordinators_key_is_its_own(world):
    body = {"workflow_key": "the-same", "operations": [OPERATION], "activate": True}

    made = {
        name: as_somebody(world, name).send("POST", WORKFLOWS, body).json["workflow_id"]
        for name in ("coordinator", "coordinator of another principal", "coordinator elsewhere", "operator")
    }

    assert len(set(made.values())) == 4


def test_after_deletion_its_workers_are_nobody_and_only_its_scope_is_told(world):
    target = world.target("ended")
    worker = world.ask_as("worker", target)
    operator, elsewhere = as_somebody(world, "operator"), as_somebody(world, "operator elsewhere")
    body = {"run_id": target.workflow_id, "confirmation": target.workflow_id}
    assert operator.send("POST", "/v1/evidence/delete", body).json["deleted"]["workflows"] == 1

    path = f"{WORKFLOWS}/{target.workflow_id}"

    assert worker.send("GET", path, None).status_code == 401
    told_in_scope = operator.send("GET", path, None)
    assert (told_in_scope.status_code, told_in_scope.json["error"]["code"]) == (409, "workflow_deleted")
    assert operator.send("POST", "/v1/evidence/delete", body).json["error"]["code"] == "workflow_deleted"
    assert told(elsewhere.send("GET", path, None)) == told(elsewhere.send("GET", f"{WORKFLOWS}/{RANDOM}", None))


SMUGGLED = ("workspace_id", "scope", "role", "state", "status", "created_at", "owner_pk", "lease_until", "workflow_id")


@pytest.mark.parametrize("field", SMUGGLED)
@pytest.mark.parametrize("request_", [BEGIN, OUTCOME, RENEW, CONFIGURE, ABANDON], ids=lambda value: value[1])
def test_a_field_that_no_request_has_is_refused_and_nothing_changes(world, field, request_):
    method, rest, body = request_
    target = world.target()
    operator = as_somebody(world, "operator")

    reply = operator.send(method, f"{WORKFLOWS}/{target.workflow_id}{rest}", {**body, field: "default"})

    assert reply.status_code == 400
    assert field in reply.json["error"]["message"]
    assert operator.send("GET", f"{WORKFLOWS}/{target.workflow_id}", None).json["revision"] == target.revision


@pytest.mark.parametrize("field", [*SMUGGLED, "creator_id", "enabled", "revision"])
def test_creating_takes_no_other_field_either(world, field):
    operator = as_somebody(world, "operator")
    body = {"workflow_key": f"smuggled-{field}", "operations": [OPERATION]}

    assert operator.send("POST", WORKFLOWS, {**body, field: "other"}).status_code == 400
    assert operator.send("POST", WORKFLOWS, {**body, "operations": [{**OPERATION, field: "x"}]}).status_code == 400
    listed = operator.send("GET", f"{WORKFLOWS}?key=smuggled-{field}", None)
    assert listed.json["workflows"] == []


def test_ids_of_another_form_are_no_address(world):
    operator = as_somebody(world, "operator")
    good = world.target(of="operator").workflow_id

    for name in (good.upper(), good + "0", good[:-1], "wf_" + "g" * 32, "..", ".", "%2e%2e", f"{good}/", f"{good}%20"):
        assert operator.send("GET", f"{WORKFLOWS}/{name}", None).status_code == 404, name


@pytest.mark.parametrize(
    "asker", ["operator elsewhere", "person: operator elsewhere", "person: investigator elsewhere"]
)
def test_evidence_of_others_and_what_does_not_exist_answer_alike(world, asker):
    somebody = as_somebody(world, asker)
    theirs, nobodys = world.recorded(), "er_" + "7" * 32
    name = world.site.wiring.services.evidence_reading.run(world.caller_of("operator"), theirs)["run_id"]

    asked = [(f"/v1/evidence/{known}", f"/v1/evidence/{unknown}", "GET", None, None)
             for known, unknown in ((theirs, nobodys), (f"{theirs}/manifest", f"{nobodys}/manifest"))]  # fmt: skip
    for path in ("reconstruct", "replay-manifest", "export/encrypted"):
        more = {"passphrase": PASSPHRASE} if path.startswith("export") else {}
        asked += [
            (f"/v1/evidence/{path}", f"/v1/evidence/{path}", "POST", {"run_id": known, **more},
             {"run_id": unknown, **more})
            for known, unknown in ((theirs, nobodys), (name, "never-used"))
        ]  # fmt: skip
    for known, unknown, method, body, other in asked:
        replies = somebody.send(method, known, body), somebody.send(method, unknown, other)
        assert replies[0].status_code == 404, known
        assert told(replies[0]) == told(replies[1]), known
    for known, unknown in ((f"run={theirs}", f"run={nobodys}"), (f"run={name}", "run=never-used"),
                           ("q=harbour", "q=never"), ("workspace=default", "workspace=nowhere")):  # fmt: skip
        replies = [somebody.send("GET", f"/v1/evidence?{query}", None) for query in (known, unknown)]
        assert replies[0].json == {"records": [], "next_cursor": None}, known
        assert told(replies[0]) == told(replies[1])


def test_an_administrators_deletion_is_the_only_one_of_evidence(world):
    theirs = world.recorded()
    body = {"run_id": theirs, "confirmation": theirs}
    for asker, status in (
        ("operator elsewhere", 404), ("person: operator elsewhere", 404), ("operator", 403), ("operator of all", 403),
        ("person: operator", 403), ("person: administrator", 200),
    ):  # fmt: skip
        reply = as_somebody(world, asker).send("POST", "/v1/evidence/delete", body)
        assert reply.status_code == status, asker
