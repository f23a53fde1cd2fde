"""Requests about threads are read strictly: what is missing, unknown, coerced or too large is refused by its name."""

from __future__ import annotations

import pytest

from continuity.decisions.threads import bounds
from continuity.decisions.threads.entries import ENTRIES
from continuity.errors import MalformedError, TooLargeError
from continuity.thread_requests import (
    AppendRequest,
    ClaimRequest,
    ControlRequest,
    DeclareAgents,
    FailRequest,
    HeartbeatRequest,
    ListThreads,
    NewThread,
    Position,
    ReplyRequest,
    SayRequest,
    SettleRequest,
    WaitRequest,
)

SECRET = "Az09_-" * 7 + "x"
HOLD = {"generation": 1, "secret": SECRET}
ASKED = {"task": "t:1", "ordinal": 0, "kind": "approval", "schema": {"type": "boolean"}, "shown": {"n": 1}}
RIGHT = {
    NewThread: {"request_id": "q", "name": "mine", "agent": "helper"},
    SayRequest: {"request_id": "q", "content": "hello"},
    ControlRequest: {"request_id": "q", "revision": 3},
    ReplyRequest: {"request_id": "q", "revision": 1, "reply": True},
    DeclareAgents: {"agents": [{"name": "helper", "controls": ["stop"], "state_keys": ["todos"], "public": True}]},
    ClaimRequest: {"request_id": "q", "secret": SECRET, "agents": ["helper"]},
    HeartbeatRequest: {**HOLD, "steers_read": 2},
    AppendRequest: {"request_id": "q", **HOLD, "records": [{"kind": "progress", "data": 1}]},
    WaitRequest: {"request_id": "q", **HOLD, "requests": [ASKED]},
    SettleRequest: {"request_id": "q", **HOLD, "output": {"answer": 1}},
    FailRequest: {"request_id": "q", **HOLD, "reason": "blocked", "message": "m", "workflow_id": "wf_1"},
}
OPTIONAL = {"revision", "agents", "output", "workflow_id", "steers_read"}
CASES = [(kind, name) for kind, body in RIGHT.items() for name in body]


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_a_right_request_is_read_and_shows_no_secret(kind):
    request = kind.from_json(RIGHT[kind])

    assert SECRET not in repr(request)
    assert "hello" not in repr(request)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_missing_member_is_refused_by_its_name(kind, name):
    body = {key: value for key, value in RIGHT[kind].items() if key != name}
    if name in OPTIONAL and (kind, name) not in {(ReplyRequest, "revision"), (DeclareAgents, "agents")}:
        kind.from_json(body)
        return
    with pytest.raises(MalformedError, match=name):
        kind.from_json(body)


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_an_unknown_member_is_refused(kind):
    with pytest.raises(MalformedError, match="surprise is not a field"):
        kind.from_json({**RIGHT[kind], "surprise": 1})


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (NewThread, {"name": "a b"}), (NewThread, {"agent": ""}), (NewThread, {"request_id": "x" * 129}),
        (SayRequest, {"content": "  "}), (SayRequest, {"content": {}}), (SayRequest, {"content": ["x"]}),
        (ControlRequest, {"revision": "3"}), (ControlRequest, {"revision": True}), (ReplyRequest, {"revision": -1}),
        (DeclareAgents, {"agents": []}), (DeclareAgents, {"agents": [{"name": "a"}, {"name": "a"}]}),
        (DeclareAgents, {"agents": [{"name": "a", "controls": ["fly"]}]}),
        (DeclareAgents, {"agents": [{"name": "a", "controls": ["stop", "stop"]}]}),
        (DeclareAgents, {"agents": [{"name": "a", "public": "yes"}]}),
        (ClaimRequest, {"secret": "short"}), (ClaimRequest, {"secret": SECRET + "x"}), (ClaimRequest, {"agents": "a"}),
        (HeartbeatRequest, {"generation": 1.5}), (HeartbeatRequest, {"steers_read": -1}),
        (AppendRequest, {"records": []}), (AppendRequest, {"records": [{"kind": "thread_created"}]}),
        (AppendRequest, {"records": [{"kind": "progress", "data": n} for n in range(101)]}),
        (AppendRequest, {"records": [{"kind": "message_part", "message_id": "m", "text": 1}]}),
        (AppendRequest, {"records": [{"kind": "message_part", "message_id": "m m", "text": "x"}]}),
        (AppendRequest, {"records": [{"kind": "message_ended", "message_id": "m", "status": "done"}]}),
        (AppendRequest, {"records": [{"kind": "tool_ended", "call_id": "c", "outcome": "unknown"}]}),
        (WaitRequest, {"requests": [ASKED, ASKED]}), (WaitRequest, {"requests": [{**ASKED, "kind": "guess"}]}),
        (WaitRequest, {"requests": [{**ASKED, "schema": {"pattern": "x"}}]}),
        (WaitRequest, {"requests": [{**ASKED, "ordinal": n} for n in range(33)]}),
        (FailRequest, {"reason": "bored"}), (FailRequest, {"reason": "failed"}), (FailRequest, {"message": " "}),
    ],
    ids=repr,
)  # fmt: skip
def test_nothing_is_coerced_and_every_bound_is_kept(kind, fields):
    with pytest.raises(MalformedError):
        kind.from_json({**RIGHT[kind], **fields})


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (SayRequest, {"content": "x" * bounds.RECORD_BYTES}),
        (ReplyRequest, {"reply": "x" * bounds.RECORD_BYTES}),
        (SettleRequest, {"output": "x" * bounds.RECORD_BYTES}),
        (AppendRequest, {"records": [{"kind": "progress", "data": "x" * bounds.RECORD_BYTES}]}),
        (WaitRequest, {"requests": [{**ASKED, "shown": {"x": "x" * bounds.RECORD_BYTES}}]}),
        (WaitRequest, {"requests": [{**ASKED, "schema": {"title": "x" * bounds.SCHEMA_BYTES}}]}),
    ],
    ids=["message", "reply", "output", "record", "shown", "schema"],
)
def test_what_is_over_its_size_is_too_large(kind, fields):
    with pytest.raises(TooLargeError):
        kind.from_json({**RIGHT[kind], **fields})


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b", "\u200b \u2060\ufeff", "\u00ad\u202e", "\u2800\u3164\ufe0f"])
def test_a_message_in_which_nobody_would_see_anything_is_refused(text):
    with pytest.raises(MalformedError, match="content"):
        SayRequest.from_json({"request_id": "r-1", "content": text})


@pytest.mark.parametrize("text", ["a", "\u200b.", "👍🏽", "❤\ufe0f", "e\u0301", "س"])
def test_a_message_in_which_something_can_be_seen_is_taken(text):
    assert SayRequest.from_json({"request_id": "r-1", "content": text}).content == text


def test_a_reply_may_be_null_and_must_be_there():
    assert ReplyRequest.from_json({"request_id": "q", "revision": 1, "reply": None}).reply is None


def test_every_kind_of_record_can_be_sent():
    filled = {"item": "i-1", "text": "x", "name": "n", "identifier": "wf_1", "outcome": "ok", "object": {"a": 1}}
    records = [
        {"kind": kind.value, **{name: filled.get(part.shape.value, 1) for name, part in parts.items()}}
        for kind, parts in ENTRIES.items()
    ]

    request = AppendRequest.from_json({"request_id": "q", **HOLD, "records": records})

    assert [entry.to_json() for entry in request.entries] == records


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "1-1-1", "a-1", "1-1\n", "1-" + "9" * 16, "٣-1"])
def test_a_position_is_two_numbers(text):
    with pytest.raises(MalformedError):
        Position.parse(text)
    assert str(Position.parse("2-17")) == "2-17"


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "201"}, {"state": "lost"}, {"scope": "all"}, {"q": "x"}, {"limit": "x"}]
)
def test_a_list_takes_only_its_own_filters(query):
    with pytest.raises(MalformedError):
        ListThreads.from_query(query)
