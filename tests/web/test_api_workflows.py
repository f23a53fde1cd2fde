"""The paths of continuity over HTTP: what they take, what they answer, and what they refuse (wire.md)."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from app.api.documentation import ROUTES
from continuity import limits
from continuity.store.schema import vault
from tests.web.matrix import ATTEMPT, BOTH, EXPECTED, NOTHING, OPERATION, WORKFLOWS, world_on


@pytest.fixture(scope="module", params=BOTH)
def world(request, tmp_path_factory):
    url = None
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        url = server.url(server.create())
    with world_on(tmp_path_factory.mktemp("workflows") / "instance", database_url=url) as made:
        yield made


@pytest.fixture
def operator(world):
    return world.ask_as("operator", world.target())


@pytest.fixture
def send(operator):
    """Send as an operator's credential; what it answers must be 200 unless `status` says otherwise."""

    def ask(path, body=None, *, status=200, method="POST"):
        reply = operator.send(method, path, body)
        assert reply.status_code == status, reply.text
        return reply.json

    return ask


@pytest.fixture
def key(world):
    return world.new_name("work")


def code(reply):
    return reply["error"]["code"]


def raw(world, name, path, data, **headers):
    """Send bytes as an asker of the matrix."""
    asker = world.ask_as(name, world.target())
    return asker.browser.client.post(
        path, data=data, content_type="application/json", headers={**asker.headers, **headers},
        base_url=asker.browser.base_url,
    )  # fmt: skip


# --- Creating ---


def test_the_same_key_and_definition_find_the_workflow_that_is_there(send, key):
    first = send(WORKFLOWS, {"workflow_key": key, "operations": [OPERATION]})
    spelled = {**OPERATION, "timeout_seconds": 30.0, "capability": ["none"], "retention_seconds": None}

    again = send(WORKFLOWS, {"workflow_key": key, "operations": [spelled]})

    assert again == first
    assert first["enabled"] is False
    assert first["phase"] == "review"
    assert first["revision"] == 1


def test_the_same_key_with_other_arguments_is_a_conflict_and_changes_nothing(send, key):
    first = send(WORKFLOWS, {"workflow_key": key, "operations": [OPERATION]})
    other = {**OPERATION, "arguments": {"text": "something else"}}

    refused = send(WORKFLOWS, {"workflow_key": key, "operations": [other]}, status=409)

    assert code(refused) == "definition_conflict"
    assert send(WORKFLOWS, {"workflow_key": key, "operations": [OPERATION]}) == first


def test_a_conflict_of_a_key_names_the_workflow_that_has_it(send, key):
    first = send(WORKFLOWS, {"workflow_key": key, "operations": [OPERATION]})
    other = {**OPERATION, "arguments": {"text": "something else"}}

    for more in ({}, {"only_known": True}):
        refused = send(WORKFLOWS, {"workflow_key": key, "operations": [other], **more}, status=409)
        assert refused["error"]["workflow_id"] == first["workflow_id"]


def test_no_other_refusal_names_a_workflow(send, key):
    assert "workflow_id" not in send(WORKFLOWS, {"workflow_key": key}, status=400)["error"]


def test_who_looks_for_a_key_creates_nothing(send, key):
    body = {"workflow_key": key, "operations": [OPERATION], "only_known": True}
    for more in ({}, {"activate": True}, {"activate": True, "begin": ATTEMPT}):
        assert code(send(WORKFLOWS, {**body, **more}, status=404)) == "key_not_found"
    assert send(f"{WORKFLOWS}?key={key}", method="GET")["workflows"] == []

    made = send(WORKFLOWS, {"workflow_key": key, "operations": [OPERATION]})

    assert send(WORKFLOWS, body) == made


def test_activate_acts_at_creation_only(send, key):
    body = {"workflow_key": key, "operations": [OPERATION], "activate": True}
    made = send(WORKFLOWS, body)
    assert made["enabled"] is True
    send(f"{WORKFLOWS}/{made['workflow_id']}/configure", {"enabled": False})

    assert send(WORKFLOWS, body)["enabled"] is False


def test_a_first_begin_may_come_with_the_creation(send, key):
    body = {"workflow_key": key, "operations": [OPERATION], "activate": True, "begin": ATTEMPT}

    made = send(WORKFLOWS, body)
    again = send(WORKFLOWS, {**body, "begin": {**ATTEMPT, "attempt_id": "at-2"}})

    assert made["begin"]["action"] == "execute"
    assert made["operations"][0]["status"] == "uncertain"
    assert again["begin"]["reason"] == "attempt_in_progress"
    assert again["begin"]["lease_until"] == made["begin"]["lease_until"]


def test_a_coordinators_workflow_has_one_operation(world, key):
    coordinator = world.ask_as("coordinator", world.target())
    operations = [OPERATION, {**OPERATION, "name": "second"}]

    reply = coordinator.send("POST", WORKFLOWS, {"workflow_key": key, "operations": operations, "activate": True})

    assert reply.status_code == 400
    assert "operation" in reply.json["error"]["message"]


# --- Doing ---


def test_arguments_come_back_as_their_canonical_bytes(world, key):
    operator = world.ask_as("operator", world.target())
    arguments = b'{"b": 1.0, "a": [3e2, "\\u00e4", {"z": null, "y": true}]}'
    body = b'{"activate":true,"workflow_key":"%s","operations":[{"name":"publish","tool":"t","arguments":%s}]}' % (
        key.encode(), arguments,
    )  # fmt: skip
    workflow_id = raw(world, "operator", WORKFLOWS, body).json["workflow_id"]

    reply = operator.send("POST", f"{WORKFLOWS}/{workflow_id}/begin", ATTEMPT)

    assert '"arguments":{"a":[300,"ä",{"y":true,"z":null}],"b":1}'.encode() in reply.data


def test_a_receipt_comes_back_as_the_same_bytes_every_time(world, send):
    target = world.target("begun", of="operator")
    receipt = {
        "outcome": "confirmed_succeeded", "operation_id": target.operation_id, "effect_id": "e-1",
        "result": {"n": 1.0, "text": "ä"}, "further": ["kept", {"b": 2, "a": 1}],
    }  # fmt: skip
    path = f"{WORKFLOWS}/{target.workflow_id}"
    report = {**ATTEMPT, "lease_token": target.lease_token, "receipt": receipt}

    first = send(f"{path}/outcome", report)
    again = send(f"{path}/outcome", report)
    begun = [send(f"{path}/begin", {**ATTEMPT, "attempt_id": f"at-{n}"}) for n in (2, 3)]

    assert first == {"accepted": True, "status": "completed", "revision": 3}
    assert again == {**first, "replayed": True}
    assert begun[0] == begun[1]
    assert begun[0]["receipt"] == receipt
    assert begun[0]["assurance"] == "host_reported"


def test_another_body_of_the_same_attempt_is_late_evidence_and_changes_nothing(world, send):
    target = world.target("begun", of="operator")
    path = f"{WORKFLOWS}/{target.workflow_id}"
    lease = {**ATTEMPT, "lease_token": target.lease_token}
    send(f"{path}/outcome", {**lease, "receipt": {"outcome": "unknown"}})

    late = send(f"{path}/outcome", {**lease, "receipt": {
        "outcome": "confirmed_succeeded", "operation_id": target.operation_id, "effect_id": "e", "result": 1,
    }})  # fmt: skip

    assert (late["accepted"], late["reason"], late["status"]) == (False, "stale_lease", "uncertain")
    (operation,) = send(path, method="GET")["operations"]
    assert [(each["proved"], each["receipt"]["effect_id"]) for each in operation["late"]] == [(True, "e")]


def test_a_repeated_begin_of_one_attempt_grants_nothing_twice(world, send):
    target = world.target("enabled", of="operator")
    path = f"{WORKFLOWS}/{target.workflow_id}/begin"

    assert send(path, ATTEMPT)["action"] == "execute"
    assert send(path, ATTEMPT)["reason"] == "attempt_already_issued"


def test_an_operation_that_the_workflow_does_not_have_is_its_own_404(world, send):
    target = world.target("enabled", of="operator")

    refused = send(f"{WORKFLOWS}/{target.workflow_id}/begin", {**ATTEMPT, "name": "other"}, status=404)

    assert code(refused) == "operation_not_found"


def test_a_pause_stops_new_attempts_and_takes_the_receipt_of_a_granted_one(world, send):
    target = world.target("begun", of="operator")
    path = f"{WORKFLOWS}/{target.workflow_id}"
    lease = {**ATTEMPT, "lease_token": target.lease_token}

    send(f"{path}/configure", {"enabled": False})

    assert code(send(f"{path}/renew", lease, status=409)) == "workflow_paused"
    blocked = send(f"{path}/begin", {**ATTEMPT, "attempt_id": "at-2"})
    assert blocked["reason"] == "workflow_disabled_or_capture_unavailable"
    receipt = {"outcome": "confirmed_succeeded", "operation_id": target.operation_id, "effect_id": "e", "result": 1}
    assert send(f"{path}/outcome", {**lease, "receipt": receipt})["status"] == "completed"


def test_secrets_of_an_attempt_stand_in_the_grant_alone(world, send, key):
    body = {"workflow_key": key, "operations": [OPERATION], "activate": True, "begin": ATTEMPT}
    grant = send(WORKFLOWS, body)["begin"]
    workflow_id = send(WORKFLOWS, {name: body[name] for name in ("workflow_key", "operations")})["workflow_id"]

    shown = json.dumps([
        send(f"{WORKFLOWS}/{workflow_id}", method="GET"), send(f"{WORKFLOWS}?key={key}", method="GET"),
        send(f"{WORKFLOWS}/{workflow_id}/configure", {"enabled": False}),
    ])  # fmt: skip

    assert grant["lease_token"] not in shown
    assert grant["idempotency_key"] not in shown
    assert "lease_hash" not in shown


def test_a_summary_leaves_out_what_people_wrote_and_hosts_reported(world, send):
    target = world.target("begun", of="operator")

    listed = send(f"{WORKFLOWS}?q={target.workflow_id}", method="GET")["workflows"][0]

    assert "definitions" not in listed
    assert set(listed["operations"][0]) == {
        "operation_id", "name", "status", "attempts", "late_receipts", "has_receipt",
    }  # fmt: skip


# --- Controls ---


@pytest.fixture
def person(world):
    world.site.clock.advance(61)
    return world.site.signed_in("op")


def confirmation(target, **over):
    return {
        "name": "publish", "happened": True, "revision": target.revision, "late_receipts": 0, "reason": "Seen.",
        "receipt": {"effect_id": "e-1", "result": None}, **over,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rest", "body"), [("/configure", {"enabled": False}), ("/abandon", {"name": "publish", "reason": "No."})]
)
def test_people_say_which_revision_they_saw(world, person, rest, body):
    target = world.target()
    path = f"{WORKFLOWS}/{target.workflow_id}{rest}"

    unseen = person.post(path, body)
    outdated = person.post(path, {**body, "revision": target.revision + 1})
    seen = person.post(path, {**body, "revision": target.revision})

    assert (unseen.status_code, outdated.status_code, seen.status_code) == (400, 409, 200)
    assert "revision" in unseen.json["error"]["message"]
    assert code(outdated.json) == "stale_revision"


def test_a_confirmed_success_is_on_the_persons_word(world, person):
    target = world.target()

    reply = person.post(f"{WORKFLOWS}/{target.workflow_id}/confirm", confirmation(target))

    (operation,) = reply.json["operations"]
    assert operation["status"] == "completed"
    assert operation["assurance"] == "operator_attested"
    assert operation["receipt"]["effect_id"] == "e-1"


def test_nothing_is_confirmed_while_a_lease_is_live(world, person):
    target = world.target("begun")

    for happened, receipt in ((True, {"effect_id": "e", "result": 1}), (False, None)):
        body = confirmation(target, happened=happened, receipt=receipt)
        refused = person.post(f"{WORKFLOWS}/{target.workflow_id}/confirm", body)
        assert (refused.status_code, code(refused.json)) == (409, "lease_live")


def test_what_did_not_happen_is_believed_after_it_can_no_longer_land(tmp_path):
    """On SQLite, where the clock of decisions is the one that the test moves; PostgreSQL has its own."""
    with world_on(tmp_path / "instance") as world:
        target = world.target("begun")
        world.site.clock.advance(121)

        body = confirmation(target, happened=False, receipt=None)
        landed = world.site.signed_in("op").post(f"{WORKFLOWS}/{target.workflow_id}/confirm", body)

    assert landed.status_code == 200
    assert landed.json["operations"][0]["status"] == "pending"


def test_a_person_who_missed_a_late_receipt_confirms_nothing(world, person):
    target = world.target("begun")
    world.site.clock.advance(121)

    reply = person.post(f"{WORKFLOWS}/{target.workflow_id}/confirm", confirmation(target, late_receipts=3))

    assert reply.status_code == 409
    assert code(reply.json) == "stale_revision"


def test_confirming_asks_for_the_password_of_the_last_ten_minutes(world, person):
    target = world.target()
    path = f"{WORKFLOWS}/{target.workflow_id}/confirm"
    world.site.clock.advance(601)

    refused = person.post(path, confirmation(target))
    person.post("/api/auth/reauthenticate", {"password": world.site.passwords["op"]})

    assert (refused.status_code, code(refused.json)) == (403, "reauthentication_required")
    assert person.post(path, confirmation(target)).status_code == 200


# --- Deleting ---


def test_only_finished_work_is_deleted(world, send):
    target = world.target("begun", of="operator")
    body = {"run_id": target.workflow_id, "confirmation": target.workflow_id}

    assert code(send("/v1/evidence/delete", body, status=409)) == "workflow_unfinished"
    assert send(f"{WORKFLOWS}/{target.workflow_id}", method="GET")["operations"][0]["status"] == "uncertain"


def test_deleting_needs_the_id_twice(world, send):
    target = world.target("ended", of="operator")

    for confirmed in ("wf_" + "0" * 32, "yes", None):
        refused = send("/v1/evidence/delete", {"run_id": target.workflow_id, "confirmation": confirmed}, status=400)
        assert "confirmation" in refused["error"]["message"]
    send(f"{WORKFLOWS}/{target.workflow_id}", method="GET")


def test_a_deleted_key_can_never_be_used_again(send, key):
    body = {"workflow_key": key, "operations": [OPERATION]}
    workflow_id = send(WORKFLOWS, body)["workflow_id"]
    send(f"{WORKFLOWS}/{workflow_id}/abandon", {"name": "publish", "reason": "No."})

    counts = send("/v1/evidence/delete", {"run_id": workflow_id, "confirmation": workflow_id})["deleted"]

    assert (counts["workflows"], counts["operations"]) == (1, 1)
    for changed in (OPERATION, {**OPERATION, "tool": "other"}):
        refused = send(WORKFLOWS, {**body, "operations": [changed]}, status=409)
        assert code(refused) == "workflow_deleted"


# --- Listing ---


def test_a_list_goes_on_where_it_stopped_and_shows_each_once(world, send):
    name = world.new_name("page")
    made = [
        send(WORKFLOWS, {"workflow_key": f"{name}-{n}", "operations": [OPERATION]})["workflow_id"] for n in range(5)
    ]

    seen, query = [], f"limit=2&q={name}"
    for _ in range(3):
        page = send(f"{WORKFLOWS}?{query}", method="GET")
        seen.append([summary["workflow_id"] for summary in page["workflows"]])
        query = f"limit=2&q={name}&cursor={page['next_cursor']}"

    assert seen == [made[:2:-1], made[2:0:-1], made[:1]]
    assert page["next_cursor"] is None


def test_a_list_is_filtered_by_state_key_and_whole_words(send, key):
    workflow_id = send(WORKFLOWS, {"workflow_key": key, "operations": [OPERATION]})["workflow_id"]

    def found(query):
        return [summary["workflow_id"] for summary in send(f"{WORKFLOWS}?{query}", method="GET")["workflows"]]

    assert found(f"key={key}") == found(f"key={key}&state=review&workspace=default") == [workflow_id]
    assert found(f"key={key}&state=done") == found(f"key={key}x") == found(f"key={key}&workspace=other") == []
    assert found(f"q={workflow_id}") == [workflow_id]
    assert workflow_id in found("q=publish&limit=200")
    assert found("q=publis") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"), ("limit=201", "limit"), ("limit=-1", "limit"), ("limit=1.5", "limit"),
        ("limit=+5", "limit"), ("limit=%C2%B2", "limit"), ("limit=9999999999", "limit"), ("state=finished", "state"),
        ("state=REVIEW", "state"), ("state=review,done", "state"), ("workspace=a%20b", "workspace"),
        ("key=..", "key"), ("cursor=abc", "cursor"), ("cursor=%00", "cursor"), ("limit=1&limit=2", "limit"),
        ("state=done&state=done", "state"), ("sort=created", "sort"), ("q=" + "x" * 201, "q"), ("q=%2D%2D", "q"),
        ("Limit=5", "Limit"), ("limit[]=5", "limit"),
    ],
)  # fmt: skip
def test_a_query_that_is_not_exactly_right_is_refused_by_name(send, query, field):
    refused = send(f"{WORKFLOWS}?{query}", status=400, method="GET")

    message = refused["error"]["message"]
    assert message.startswith((field, "The query may hold only"))


def test_showing_takes_no_query(world, send):
    target = world.target("enabled", of="operator")

    send(f"{WORKFLOWS}/{target.workflow_id}?verbose=1", status=400, method="GET")


# --- Bodies and headers ---


def padded(body, size):
    """Return `body` as JSON of exactly `size` bytes, filled with blanks."""
    text = json.dumps(body).encode()
    return text[:-1] + b" " * (size - len(text)) + b"}"


BODIES = [
    ("", {"workflow_key": "padded", "operations": [OPERATION]}, limits.DEFINITION_BYTES + limits.ENVELOPE_BYTES),
    ("/outcome", {**ATTEMPT, "lease_token": "lt", "receipt": {}}, limits.RECEIPT_BYTES + limits.ENVELOPE_BYTES),
    ("/begin", ATTEMPT, 16 * 1024),
    ("/renew", {**ATTEMPT, "lease_token": "lt"}, 16 * 1024),
    ("/configure", {"enabled": True}, 16 * 1024),
    ("/abandon", {"name": "publish", "reason": "No."}, 16 * 1024),
]


@pytest.mark.parametrize(("rest", "body", "limit"), BODIES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_body_may_be_as_large_as_its_route_says_and_no_larger(world, rest, body, limit):
    path = WORKFLOWS + (f"/{world.target('begun', of='operator').workflow_id}{rest}" if rest else "")

    fits = raw(world, "operator", path, padded(body, limit))
    exceeds = raw(world, "operator", path, padded(body, limit + 1))

    assert fits.status_code not in {400, 413}, fits.text
    assert exceeds.status_code == 413
    assert code(exceeds.json) == "too_large"


def test_the_largest_receipt_and_definition_fit_in_their_bodies(world, send, key):
    text = "x" * (limits.DEFINITION_BYTES - 400)
    made = send(WORKFLOWS, {
        "workflow_key": key, "operations": [{**OPERATION, "arguments": {"text": text}}], "activate": True,
        "begin": ATTEMPT,
    })  # fmt: skip
    receipt = {
        "outcome": "confirmed_succeeded", "operation_id": made["begin"]["operation_id"], "effect_id": "e", "result": "",
    }  # fmt: skip
    receipt["result"] = "x" * (limits.RECEIPT_BYTES - len(json.dumps(receipt, separators=(",", ":"))))
    path = f"{WORKFLOWS}/{made['workflow_id']}/outcome"
    lease = {**ATTEMPT, "lease_token": made["begin"]["lease_token"]}

    refused = send(path, {**lease, "receipt": {**receipt, "result": receipt["result"] + "x"}}, status=400)

    assert "receipt" in refused["error"]["message"]
    assert send(path, {**lease, "receipt": receipt})["status"] == "completed"


def test_replies_are_compact_json_that_nobody_stores(world):
    reply = world.ask_as("operator", world.target()).send("GET", WORKFLOWS, None)

    assert reply.headers["Content-Type"] == "application/json; charset=utf-8"
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.data == json.dumps(reply.json, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def test_nothing_is_read_for_a_caller_who_may_not(world):
    """Kind and role first: not even whether the body is JSON is told."""
    reply = raw(world, "worker", f"{WORKFLOWS}/{'wf_' + '0' * 32}/configure", b"not json")

    assert reply.status_code == 403


# --- A locked vault ---

ASKED_AS = {
    "grants.issue": "person: operator",
    "operators.confirm": "person: operator",
    "evidence.export_plaintext": "person: administrator",
    "capture.show": "person: administrator",
    "capture.change": "person: administrator",
    "keys.rotate": "person: administrator",
    "operators.index": "operator",
}


def machine_for(endpoint):
    blueprint = endpoint.partition(".")[0]
    return {"threads_api": "application", "thread_workers": "thread worker"}.get(blueprint, "operator")


def test_a_locked_vault_stops_every_path_of_continuity_and_signing_in_goes_on(tmp_path):
    # Revoking goes on as well: a credential that is lost does not wait for a key.
    endpoints = [name for name, route in ROUTES.items() if route.needs_vault and name != "grants.revoke"]
    with world_on(tmp_path / "instance") as world:
        people = {name: world.ask_as(name, NOTHING) for name in ("person: operator", "person: administrator")}
        requests = []
        for name in endpoints:
            row = EXPECTED[name]
            target = NOTHING if row.state == "none" else world.target(row.state)
            asker = people.get(ASKED_AS.get(name, "")) or world.ask_as(machine_for(name), target)
            requests.append((name, asker, row.method, *row.request(world, target, asker.name)))
        for person in people.values():
            # Signing the next one in moves the clock: the session was seen again before anything is compared.
            person.send("GET", WORKFLOWS, None)
        before = world.site.everything()
        world.site.wiring.store.write(lambda connection: connection.execute(sa.update(vault).values(state="locked")))

        replies = {name: asker.send(method, path, body) for name, asker, method, path, body in requests}

        world.site.wiring.store.write(lambda connection: connection.execute(sa.update(vault).values(state="open")))
        assert world.site.everything() == before
        world.site.wiring.store.write(lambda connection: connection.execute(sa.update(vault).values(state="locked")))
        world.site.clock.advance(61)
        signed_in = world.site.browser().sign_in("op", world.site.passwords["op"])

    assert {name: (reply.status_code, code(reply.json)) for name, reply in replies.items()} == dict.fromkeys(
        endpoints, (423, "vault_locked")
    )
    assert all(reply.headers["Retry-After"] == "5" for reply in replies.values())
    assert signed_in.status_code == 200
