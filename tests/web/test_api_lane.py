"""Workers' requests past Flask: every reply is the one that Flask's own way would have given, byte by byte."""

from __future__ import annotations

import re

import pytest
from werkzeug.test import Client, EnvironBuilder

from app.api import workers
from app.api.lane import Lane
from app.config import load_settings
from app.headers import Edge
from continuity.errors import UnavailableError
from tests.web.matrix import ATTEMPT, world_on

JSON = {"content_type": "application/json"}
OUTCOME = {**ATTEMPT, "lease_token": "lt_none", "receipt": {"outcome": "unknown"}}
RENEWAL = {**ATTEMPT, "lease_token": "lt_none"}
ASKED = {
    "begin": {"json": ATTEMPT},
    "begin with a space in its body": {"data": b'{"name": "publish", "run_id":"run-1","attempt_id":"at-2"} ', **JSON},
    "outcome": {"json": OUTCOME},
    "renew": {"json": RENEWAL},
    "no operation": {"json": {**ATTEMPT, "name": "other"}},
    "a field too many": {"json": {**ATTEMPT, "more": 1}},
    "no JSON": {"data": b"{", **JSON},
    "a key twice": {"data": b'{"name":"a","name":"a"}', **JSON},
    "no body": {"data": b"", **JSON},
    "another type": {"data": b"{}", "content_type": "text/plain"},
    "encoded": {"data": b"{}", "headers": {"Content-Encoding": "gzip"}, **JSON},
    "too large": {"data": b" " * 17_000, **JSON},
}
WHO = ("coordinator", "operator", "worker", "worker of another workflow", "coordinator elsewhere",
       "observer", "producer", "bad checksum", "unknown", "revoked")  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with world_on(tmp_path_factory.mktemp("lane") / "instance") as made:
        yield made


@pytest.fixture
def ways(world):
    """The application as it is, and the same with Flask alone behind the edge."""
    app = world.site.app
    settings = load_settings({"ATMEM_INSTANCE": str(world.site.wiring.settings.instance)})
    flask = type(app).wsgi_app.__get__(app)
    return Client(app), Client(Edge(flask, settings, world.site.clock))


def told(client, path, asked):
    """Send one request; return its reply without what is random."""
    with EnvironBuilder(path=path, method="POST", **asked).get_request() as request:
        reply = client.open(request.environ)
        body = re.sub(rb'"request_id":"req_[0-9a-f]{24}"', b'"request_id":""', reply.get_data())
        headers = [(name, value) for name, value in reply.headers if name not in {"X-Request-Id", "Content-Length"}]
        return reply.status, headers, body


def both(ways, path, asked):
    """Return the reply of each way to a request that was answered before: a receipt is evidence only the first time."""
    told(ways[0], path, asked)
    return [told(way, path, asked) for way in ways]


def test_every_verb_has_a_view_of_its_name(world):
    views = {rule.endpoint for rule in world.site.app.url_map.iter_rules() if rule.endpoint.startswith("workers.")}

    assert views == {f"workers.{name}" for name in workers.VERBS}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", ["begin", "outcome", "renew"])
def test_everybody_is_told_the_same_both_ways(world, ways, who, name):
    target = world.target("paused")
    headers = world.ask_as(who, target).headers

    lane, flask = both(ways, f"/v1/continuity/{target.workflow_id}/{name}", {**ASKED[name], "headers": headers})

    assert lane == flask


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("name", ["begin", "outcome", "renew"])
def test_every_body_is_answered_the_same_both_ways(world, ways, name, asked):
    target = world.target("paused")
    headers = {**asked.get("headers", {}), **world.ask_as("operator", target).headers}

    lane, flask = both(ways, f"/v1/continuity/{target.workflow_id}/{name}", {**asked, "headers": headers})

    assert lane == flask


CREATIONS = {
    "created": {"workflow_key": "lane", "operations": [{"name": "publish", "tool": "post"}], "activate": True},
    "another definition": {"workflow_key": "lane", "operations": [{"name": "publish", "tool": "other"}]},
    "an unknown key": {"workflow_key": "nowhere", "operations": [{"name": "a", "tool": "t"}], "only_known": True},
    "no operations": {"workflow_key": "lane", "operations": []},
    "a field too many": {"workflow_key": "lane", "operations": [{"name": "a", "tool": "t"}], "more": 1},
    "begun again": {"workflow_key": "lane", "operations": [{"name": "publish", "tool": "post"}], "begin": ATTEMPT},
}


@pytest.mark.parametrize("who", WHO)
def test_everybody_who_creates_is_told_the_same_both_ways(world, ways, who):
    headers = world.ask_as(who, world.target("paused")).headers

    lane, flask = both(ways, "/v1/continuity", {"json": CREATIONS["created"], "headers": headers})

    assert lane == flask


@pytest.mark.parametrize("body", CREATIONS.values(), ids=CREATIONS)
def test_every_creation_is_answered_the_same_both_ways(world, ways, body):
    headers = world.ask_as("operator", world.target("paused")).headers
    told(ways[0], "/v1/continuity", {"json": CREATIONS["created"], "headers": headers})

    lane, flask = both(ways, "/v1/continuity", {"json": body, "headers": headers})

    assert lane == flask


@pytest.mark.parametrize("name", [name for name, asked in ASKED.items() if "data" in asked])
def test_every_body_of_a_creation_is_answered_the_same_both_ways(world, ways, name):
    asked = {**ASKED[name], "data": ASKED[name]["data"] * (20 if name == "too large" else 1)}
    headers = {**asked.get("headers", {}), **world.ask_as("operator", world.target("paused")).headers}

    lane, flask = both(ways, "/v1/continuity", {**asked, "headers": headers})

    assert lane == flask


def test_creating_goes_past_flask(world, monkeypatch):
    def defect(*_):
        raise AssertionError("Flask was asked")

    monkeypatch.setattr(world.site.app, "full_dispatch_request", defect)
    headers = world.ask_as("operator", world.target("paused")).headers

    status, _, body = told(Client(world.site.app), "/v1/continuity", {"json": CREATIONS["created"], "headers": headers})

    assert (status, b'"workflow_id":"wf_' in body) == ("200 OK", True)


def test_a_grant_has_the_same_fields_and_headers_both_ways(world, ways):
    replies = []
    for way in ways:
        target = world.target()
        asked = {"json": ATTEMPT, "headers": world.ask_as("operator", target).headers}
        replies.append(told(way, f"/v1/continuity/{target.workflow_id}/begin", asked))

    (status, headers, body), (other_status, other_headers, other_body) = replies
    assert (status, headers) == (other_status, other_headers)
    assert status == "200 OK"
    assert re.findall(rb'"([a-z_]+)":', body) == re.findall(rb'"([a-z_]+)":', other_body)


@pytest.mark.parametrize("rest", ["/begin/", "/begins", "/begin%0A", "", "/begin?x=1"])
def test_addresses_beside_it_are_answered_the_same_both_ways(world, ways, rest):
    target = world.target("paused")
    asked = {"json": ATTEMPT, "headers": world.ask_as("operator", target).headers}

    lane, flask = both(ways, f"/v1/continuity/{target.workflow_id}{rest}", asked)

    assert lane == flask


def test_a_locked_vault_and_a_defect_are_told_as_flask_would(world, monkeypatch):
    app = world.site.app
    target = world.target()
    asked = {"json": ATTEMPT, "headers": world.ask_as("operator", target).headers}
    path = f"/v1/continuity/{target.workflow_id}/begin"

    def unavailable(*_):
        raise UnavailableError("The database is busy with another writer.", retry_after_s=3)

    def broken(*_):
        raise KeyError("a secret of the host")

    monkeypatch.setitem(workers.VERBS, "begin", unavailable)
    status, headers, _ = told(Client(app), path, asked)
    assert (status, dict(headers)["Retry-After"]) == ("503 SERVICE UNAVAILABLE", "3")

    monkeypatch.setitem(workers.VERBS, "begin", broken)
    status, headers, body = told(Client(app), path, asked)
    assert status == "500 INTERNAL SERVER ERROR"
    assert b"internal_error" in body
    assert b"secret" not in body
    assert dict(headers)["Cache-Control"] == "no-store"


def test_a_lane_for_a_view_that_admits_nobody_is_not_made(world):
    app = world.site.app
    view = app.view_functions["workers.begin"]
    app.view_functions["workers.begin"] = lambda workflow_id: workflow_id
    try:
        with pytest.raises(RuntimeError):
            Lane(app, app.wsgi_app)
    finally:
        app.view_functions["workers.begin"] = view
