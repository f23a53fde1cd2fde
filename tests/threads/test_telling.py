"""What a journal is told of a run, and how a stream is read: pure."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("langchain_core")

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage

from app.api import agui
from continuity.errors import TransportError
from continuity.thread_requests import AppendRequest
from continuity.threads import following
from continuity.threads.events import EVENT_BYTES, read_events
from continuity.threads.telling import INPUT_MARK, Telling, call_item

RECORDS = [
    {"seq": n, "position": f"1-{n}", "kind": "message_part", "at": 1.0, "run_id": "rn_1", "generation": 1,
     "data": {"message_id": "m", "text": text, "item_no": 1}}
    for n, text in enumerate(["a", "line\nend", "\r\n\r\n", "ü" * 50, ""], start=1)
]  # fmt: skip


@given(st.lists(st.integers(1, 400), max_size=30))
def test_events_are_the_same_however_a_stream_is_cut(sizes):
    whole = agui.RETRY + b"".join(agui.frame(record, "th_1") + agui.HEARTBEAT for record in RECORDS)
    pieces, left = [], whole
    for size in sizes:
        pieces.append(left[:size])
        left = left[size:]
    events = list(read_events([*pieces, left]))
    assert [json.loads(event.data)["rawEvent"] for event in events] == RECORDS
    assert [event.id for event in events] == [record["position"] for record in RECORDS]


CALL = {
    "seq": 6, "position": "1-6", "kind": "tool_started", "at": 1.0, "run_id": "rn_1", "generation": 1,
    "data": {"call_id": "tc_1", "tool": "lookup", "message_id": "m", "arguments": {"order": 17}, "item_no": 2},
}  # fmt: skip


def test_front_ends_hear_that_a_call_is_whole_and_followers_hear_of_its_record_once():
    events = list(read_events([agui.frame(CALL, "th_1"), agui.frame(RECORDS[0], "th_1")]))

    assert [event.name for event in events] == [
        "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TEXT_MESSAGE_CONTENT",
    ]  # fmt: skip
    assert [event.id for event in events] == ["1-6", "", "", "1-1"]
    assert json.loads(json.loads(events[1].data)["delta"]) == {"order": 17}
    assert {json.loads(event.data)["toolCallId"] for event in events[:3]} == {"tc_1"}
    records = [following.record_of(event) for event in events]
    assert [record for record in records if record is not None] == [CALL, RECORDS[0]]


def test_an_event_that_was_cut_off_is_none():
    frame = agui.frame(RECORDS[0], "th_1")
    assert list(read_events([frame, frame[:-1]])) == list(read_events([frame]))


def test_an_event_without_an_end_is_not_waited_for_for_ever():
    with pytest.raises(TransportError):
        list(read_events([b"data: " + b"x" * EVENT_BYTES, b"x"]))


def told(telling, *messages):
    entries = list(telling.messages(messages))
    body = {"request_id": "r", "generation": 1, "secret": "s" * 43, "records": entries}
    if entries:
        AppendRequest.from_json(json.loads(json.dumps(body)))
    return entries


def test_a_message_that_was_streamed_is_told_once():
    telling = Telling((), ())
    parts = [entry for text in ("Good ", "day") for entry in telling.part(AIMessageChunk(text, id="m1"))]
    rest = told(telling, AIMessage("Good day", id="m1"))
    assert [entry["kind"] for entry in parts] == ["message_started", "message_part", "message_part"]
    assert [entry["kind"] for entry in rest] == ["message_ended"]
    assert told(telling, AIMessage("Good day", id="m1")) == []


def test_what_is_not_declared_is_not_told():
    telling = Telling(("open",), ("todos",))
    call = {"args": {"key": "hidden"}, "type": "tool_call"}
    asked = AIMessage(
        "", id="m1", tool_calls=[{**call, "name": "shut", "id": "a"}, {**call, "name": "open", "id": "b"}]
    )
    entries = told(
        telling, SystemMessage("hidden"), HumanMessage("hidden"), asked,
        ToolMessage("hidden", tool_call_id="a"), ToolMessage('{"n": 1}', tool_call_id="b"),
    )  # fmt: skip
    entries += list(telling.state({"todos": ["x"], "secret": "hidden"}))
    shut, opened = call_item("m1", "a"), call_item("m1", "b")
    assert [entry for entry in entries if entry.get("call_id") == shut] == [
        {"kind": "tool_started", "call_id": shut, "tool": "shut"},
        {"kind": "tool_ended", "call_id": shut, "outcome": "ok"},
    ]
    assert [entry for entry in entries if entry.get("call_id") == opened][1]["result"] == {"n": 1}
    assert entries[-1] == {"kind": "state_changed", "values": {"todos": ["x"]}}


def test_reasoning_is_not_text():
    thinking = AIMessage([{"type": "reasoning", "reasoning": "hidden"}, {"type": "text", "text": "Said"}], id="m1")
    assert "hidden" not in json.dumps(told(Telling((), ()), thinking))


def test_the_same_call_id_in_another_message_is_another_call():
    telling = Telling((), ())
    for message_id in ("m1", "m2"):
        told(telling, AIMessage("", id=message_id, tool_calls=[{"name": "look", "args": {}, "id": "call_1"}]))
        (ended,) = told(telling, ToolMessage("x", tool_call_id="call_1"))
        assert ended["call_id"] == call_item(message_id, "call_1")


def test_a_process_after_another_tells_what_the_first_may_not_have_told():
    asked = AIMessage("", id="m1", tool_calls=[{"name": "look", "args": {}, "id": "a"}])
    held = [HumanMessage("Go"), asked, ToolMessage("x", tool_call_id="a")]
    assert [entry["kind"] for entry in Telling((), ()).begin(held)] == ["tool_started", "tool_ended"]


def test_what_was_said_and_done_before_a_steer_is_told_again_as_well():
    asked = AIMessage("I look.", id="m2", tool_calls=[{"name": "look", "args": {}, "id": "a"}])
    held = [
        HumanMessage("First", additional_kwargs={INPUT_MARK: True}), AIMessage("Answered.", id="m1"),
        HumanMessage("Go", additional_kwargs={INPUT_MARK: True}), asked, ToolMessage("x", tool_call_id="a"),
        HumanMessage("Be brief."), AIMessage("Done.", id="m3"),
    ]  # fmt: skip
    entries = list(Telling((), ()).begin(held))
    assert [(entry["kind"], entry.get("text")) for entry in entries] == [
        ("message_started", None), ("message_part", "I look."), ("message_ended", None), ("tool_started", None),
        ("tool_ended", None), ("message_started", None), ("message_part", "Done."), ("message_ended", None),
    ]  # fmt: skip


def test_a_value_too_large_for_a_record_is_cut():
    telling = Telling(("look",), ())
    told(telling, AIMessage("", id="m1", tool_calls=[{"name": "look", "args": {"a": "x" * 90_000}, "id": "a"}]))
    (ended,) = told(telling, ToolMessage("y" * 90_000, tool_call_id="a"))
    assert len(json.dumps(ended)) < 10_000
