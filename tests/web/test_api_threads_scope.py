"""Knowing the id of a thread, run, question, request or cursor grants nothing: another's answers as none does."""

from __future__ import annotations

import pytest

from tests.web.matrix import BOTH, NOTHING, world_on
from tests.web.test_api_scope import told
from tests.web.thread_rows import AGENT, QUESTION, SECRET, THREADS, thread

RANDOM = "th_" + "7" * 32
NO_RUN = "rn_" + "7" * 32
NO_QUESTION = "wr_" + "7" * 32
SAID = {"content": "Where is it?"}
STRANGERS = (
    "application for another subject", "application of another principal", "application elsewhere",
    "person: investigator", "person: operator elsewhere", "person: investigator elsewhere",
)  # fmt: skip
OTHER_WORKERS = ("thread worker of other agents", "thread worker elsewhere")
OF_A_THREAD = [
    ("GET", "", None), ("GET", "/journal?after=1-0", None), ("GET", "/journal?after=9-9&wait=1", None),
    ("GET", "/journal?after=1-0", "stream"), ("GET", "/history?cursor={cursor}", None),
    ("GET", "/receipts/{receipt}", None), ("POST", "/messages", SAID), ("POST", "/steer", SAID),
    ("POST", "/follow-ups", SAID), ("POST", "/stop", {}), ("POST", "/resume", {}),
    ("POST", "/waiting/{waiting_id}/reply", {"revision": 1, "reply": True}), ("DELETE", "", None),
]  # fmt: skip
OF_A_RUN = [
    ("heartbeat", {}), ("append", {"records": [{"kind": "progress", "data": 1}]}), ("wait", {"requests": [QUESTION]}),
    ("settle", {"output": "Done."}), ("fail", {"reason": "failed", "message": "It broke."}),
]  # fmt: skip
ROUTES = {
    "show", "journal", "history", "receipt", "message", "steer", "follow_up", "stop", "resume", "reply", "delete",
}  # fmt: skip


@pytest.fixture(scope="module", params=BOTH)
def world(request, tmp_path_factory):
    url = None
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        url = server.url(server.create())
    with world_on(tmp_path_factory.mktemp("threads-scope") / "instance", database_url=url) as made:
        yield made


@pytest.fixture(scope="module")
def theirs(world):
    """A thread with a question, a receipt and so many messages that there is a cursor to older ones."""
    thread_id, known = thread(world, "claimed")
    hold = {"generation": known["generation"], "secret": SECRET}
    path = f"{THREADS}/runs/{known['run_id']}"
    for first in (0, 30):
        records = [
            {"kind": f"message_{what}", "message_id": f"m-{number}"}
            for number in range(first, first + 30)
            for what in ("started", "ended")
        ]
        written = {"request_id": f"rq-{first}", **hold, "records": records}
        assert sent(world, "thread worker", "POST", f"{path}/append", written).status_code == 200
    asked = {"request_id": "rq-wait", **hold, "requests": [QUESTION]}
    waiting = sent(world, "thread worker", "POST", f"{path}/wait", asked).json["waiting"][0]
    cursor = sent(world, "application", "GET", f"{THREADS}/{thread_id}").json["history_cursor"]
    older = sent(world, "application", "GET", f"{THREADS}/{thread_id}/history?cursor={cursor}")
    assert len(older.json["messages"]) == 11
    return {**known, **waiting, "thread_id": thread_id, "cursor": cursor}


def sent(world, name, method, path, body=None, *, stream=False, asker=None):
    asker = asker or world.ask_as(name, NOTHING)
    headers = {**asker.headers, **({"Accept": "text/event-stream"} if stream else {})}
    return asker.browser.send(method, path, body, headers=headers)


def test_every_route_with_the_id_of_a_thread_is_asked_here(world):
    ruled = [rule for rule in world.site.app.url_map.iter_rules() if "<thread:" in rule.rule]
    assert {rule.endpoint for rule in ruled if rule.rule.startswith("/v1/")} == {f"threads_api.{n}" for n in ROUTES}
    assert len({(method, rest.partition("?")[0]) for method, rest, _ in OF_A_THREAD}) == len(ROUTES)
    runs = {rule.rule.rpartition("/")[2] for rule in world.site.app.url_map.iter_rules() if "/runs/<" in rule.rule}
    assert {verb for verb, _ in OF_A_RUN} <= runs


@pytest.mark.parametrize("name", STRANGERS)
def test_anothers_thread_and_none_answer_with_the_same_bytes(world, theirs, name):
    asker = world.ask_as(name, NOTHING)
    for method, rest, body in OF_A_THREAD:
        path = rest.format(**{key: theirs[key] for key in ("cursor", "receipt", "waiting_id")})
        filled = {"request_id": "rq-known", **body} if isinstance(body, dict) else None
        known, none = (
            sent(world, name, method, f"{THREADS}/{thread_id}{path}", filled, stream=body == "stream", asker=asker)
            for thread_id in (theirs["thread_id"], RANDOM)
        )
        assert known.status_code == 404, (method, rest)
        assert told(known) == told(none), (method, rest)
    assert sent(world, "application", "GET", f"{THREADS}/{theirs['thread_id']}").json["thread"]["state"] == "waiting"


@pytest.mark.parametrize("name", OTHER_WORKERS)
def test_anothers_run_and_none_answer_with_the_same_bytes(world, name):
    _, known = thread(world, "claimed")
    asker = world.ask_as(name, NOTHING)
    for verb, body in OF_A_RUN:
        named = {} if verb == "heartbeat" else {"request_id": "rq-known"}
        filled = {"generation": known["generation"], "secret": SECRET, **named, **body}
        replies = [
            sent(world, name, "POST", f"{THREADS}/runs/{run_id}/{verb}", filled, asker=asker)
            for run_id in (known["run_id"], NO_RUN)
        ]
        assert replies[0].status_code == 404, verb
        assert told(replies[0]) == told(replies[1]), verb


def test_a_run_of_another_secret_or_generation_is_lost_and_nothing_is_written(world):
    thread_id, known = thread(world, "claimed")
    before = sent(world, "application", "GET", f"{THREADS}/{thread_id}").json["checkpoint"]
    for secret, generation in (("x" * 43, known["generation"]), (SECRET, known["generation"] + 1)):
        for verb, body in OF_A_RUN:
            named = {} if verb == "heartbeat" else {"request_id": world.new_name("rq")}
            filled = {"generation": generation, "secret": secret, **named, **body}
            reply = sent(world, "thread worker", "POST", f"{THREADS}/runs/{known['run_id']}/{verb}", filled)
            assert (reply.status_code, reply.json["error"]["code"]) == (409, "claim_lost"), verb
    assert sent(world, "application", "GET", f"{THREADS}/{thread_id}").json["checkpoint"] == before


def test_anothers_question_in_ones_own_thread_and_none_answer_with_the_same_bytes(world, theirs):
    own, _ = thread(world, "waiting")
    body = {"request_id": "rq-known", "revision": 1, "reply": True}

    known, none = (
        sent(world, "application", "POST", f"{THREADS}/{own}/waiting/{waiting_id}/reply", body)
        for waiting_id in (theirs["waiting_id"], NO_QUESTION)
    )

    assert known.status_code == 404
    assert told(known) == told(none)


@pytest.mark.parametrize("name", ["person: operator", "person: administrator"])
def test_who_may_see_a_thread_sees_no_receipt_and_no_cursor_of_its_owner(world, theirs, name):
    asker = world.ask_as(name, NOTHING)
    for rest, invented in (
        (f"/receipts/{theirs['receipt']}", "/receipts/never-sent"),
        (f"/history?cursor={theirs['cursor']}", f"/history?cursor={'A' * len(theirs['cursor'])}"),
    ):
        known, none = (
            sent(world, name, "GET", f"{THREADS}/{theirs['thread_id']}{path}", asker=asker) for path in (rest, invented)
        )
        assert known.status_code == 404, rest
        assert told(known) == told(none), rest


def test_a_cursor_of_another_thread_or_list_is_none(world):
    first, second = thread(world)[0], thread(world)[0]
    page = sent(world, "application", "GET", f"{THREADS}?limit=1").json
    assert page["next_cursor"]
    for name in STRANGERS[:3]:
        borrowed, invented = (
            sent(world, name, "GET", f"{THREADS}?limit=1&cursor={cursor}")
            for cursor in (page["next_cursor"], "A" * len(page["next_cursor"]))
        )
        assert borrowed.status_code == 400, name
        assert told(borrowed) == told(invented), name
        listed = sent(world, name, "GET", f"{THREADS}?limit=200").json["threads"]
        assert not {first, second} & {each["thread_id"] for each in listed}, name


@pytest.mark.parametrize("name", ["application", "person: investigator"])
def test_an_agent_that_may_not_be_used_and_none_answer_with_the_same_bytes(world, name):
    declared = {"agents": [{"name": "other", "controls": [], "public": False, "principals": ["somebody"]}]}
    assert sent(world, "thread worker of other agents", "POST", f"{THREADS}/agents", declared).status_code == 200
    asker = world.ask_as(name, NOTHING)
    replies = [
        sent(world, name, "POST", THREADS, {"request_id": "rq", "name": "named", "agent": agent}, asker=asker)
        for agent in ("other", "never-declared")
    ]

    assert replies[0].status_code == 404
    assert told(replies[0]) == told(replies[1])


def test_a_name_and_a_request_id_in_a_body_find_nothing_of_others(world):
    body = {"request_id": "rq-the-same", "name": "the-same", "agent": AGENT}
    names = ("application", *STRANGERS[:4])

    made = {name: sent(world, name, "POST", THREADS, body).json["thread_id"] for name in names}

    assert len(set(made.values())) == len(names)
    assert sent(world, "application", "POST", THREADS, body).json["thread_id"] == made["application"]


def test_a_worker_claims_nothing_of_agents_that_its_credential_does_not_name(world):
    thread_id, _ = thread(world, "running")
    for name in OTHER_WORKERS:
        for agents in ({}, {"agents": [AGENT]}):
            body = {"request_id": world.new_name("rq"), "secret": SECRET, **agents}
            reply = sent(world, name, "POST", f"{THREADS}/claims", body)
            assert reply.status_code == 403 or reply.json == {"run": None}, (name, agents)
    assert sent(world, "application", "GET", f"{THREADS}/{thread_id}").json["runs"][-1]["state"] == "queued"


@pytest.mark.parametrize("name", STRANGERS)
def test_a_deleted_thread_is_none_for_those_whose_it_was_not(world, name):
    thread_id, _ = thread(world)
    assert sent(world, "application", "DELETE", f"{THREADS}/{thread_id}").status_code == 200

    asker = world.ask_as(name, NOTHING)
    known, none = (sent(world, name, "GET", f"{THREADS}/{each}", asker=asker) for each in (thread_id, RANDOM))

    assert told(known) == told(none)
    owner = sent(world, "application", "GET", f"{THREADS}/{thread_id}")
    assert (owner.status_code, owner.json["error"]["code"]) == (409, "thread_deleted")
