"""A thread's records as server-sent events, named as the AG-UI protocol names them where it has a name.

One event a record, and its id is the record's position, so that ``Last-Event-ID`` goes on behind it. The data is what
AG-UI asks for, with the record whole as ``rawEvent``: front ends that speak AG-UI read the former, `ThreadClient` the
latter. What AG-UI has no word for is ``CUSTOM``, with our word as its ``name``.

Where AG-UI has several events for one record, the others follow the first at once, without an id and a record: of a
call, its arguments and that they are whole, without which its front ends refuse the end of a run.

Pure: no I/O. Source: threads.md, "Rules" 1; https://docs.ag-ui.com/sdk/js/core/events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

Record = Mapping[str, Any]
Event = dict[str, Any]

HEARTBEAT: Final = b": \n\n"
"""A comment, which no client shows: a proxy must not think that the stream is dead."""
RETRY: Final = b"retry: 1000\n\n"
_MILLISECONDS: Final = 1_000


def frame(record: Record, thread_id: str) -> bytes:
    """Return the event of one record as it travels."""
    event = {**_event(record, thread_id), "timestamp": int(record["at"] * _MILLISECONDS), "rawEvent": record}
    frames = b"id: %s\n" % record["position"].encode() + _lines(event["type"], event)
    return frames + b"".join(_lines(each["type"], each) for each in _following(record))


def closing(name: str, value: Mapping[str, Any]) -> bytes:
    """Return the event that says why a stream ends; it has no id, as nothing was read."""
    return _lines(name, {"type": "CUSTOM", "name": name, "value": value})


def _lines(name: str, data: Mapping[str, Any]) -> bytes:
    # Escaped JSON has no line ends, so one line of data is always enough.
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _event(record: Record, thread_id: str) -> Event:
    make = _EVENTS.get(record["kind"])
    made = None if make is None else make(record["data"], {"threadId": thread_id, "runId": record["run_id"]})
    return made or {"type": "CUSTOM", "name": record["kind"], "value": record["data"]}


def _following(record: Record) -> list[Event]:
    """Return what AG-UI wants to hear of a record behind its first event."""
    if record["kind"] != "tool_started":
        return []
    data, call = record["data"], {"toolCallId": record["data"]["call_id"]}
    told = []
    if "arguments" in data:
        told.append({"type": "TOOL_CALL_ARGS", **call, "delta": json.dumps(data["arguments"])})
    return [*told, {"type": "TOOL_CALL_END", **call}]


def _said(data: Record, _run: Event) -> Event | None:
    message = data["message"]
    if not isinstance(message["content"], str):
        return None
    return {
        "type": "TEXT_MESSAGE_CHUNK", "messageId": message["id"], "role": "user", "delta": message["content"],
    }  # fmt: skip


def _part(data: Record, _run: Event) -> Event | None:
    # AG-UI knows no empty delta.
    return (
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": data["message_id"], "delta": data["text"]}
        if data["text"]
        else None
    )


def _tool_started(data: Record, _run: Event) -> Event:
    parent = {"parentMessageId": data["message_id"]} if "message_id" in data else {}
    return {"type": "TOOL_CALL_START", "toolCallId": data["call_id"], "toolCallName": data["tool"], **parent}


def _tool_ended(data: Record, _run: Event) -> Event:
    content = data["result"] if isinstance(data.get("result"), str) else json.dumps(data.get("result"))
    return {
        "type": "TOOL_CALL_RESULT", "messageId": data["call_id"], "toolCallId": data["call_id"], "content": content,
        "role": "tool",
    }  # fmt: skip


def _state_changed(data: Record, _run: Event) -> Event:
    """Say it as a JSON Patch. ``add`` puts a member in whether it was there or not; nothing can be removed unseen."""
    return {
        "type": "STATE_DELTA",
        "delta": [
            {"op": "add", "path": "/" + key.replace("~", "~0").replace("/", "~1"), "value": value}
            for key, value in data["values"].items()
        ],
    }


def _run_error(data: Record, run: Event) -> Event:
    return {"type": "RUN_ERROR", "message": data.get("message") or data["reason"], "code": data["reason"], **run}


_EVENTS: Final[dict[str, Callable[[Record, Event], Event | None]]] = {
    "run_claimed": lambda _data, run: {"type": "RUN_STARTED", **run},
    "run_settled": lambda data, run: {"type": "RUN_FINISHED", **run, "result": data.get("output")},
    "run_stopped": lambda data, run: {"type": "RUN_FINISHED", **run, "result": data.get("output")},
    "run_waiting": lambda _data, run: {"type": "RUN_FINISHED", **run},
    "run_failed": _run_error,
    "run_interrupted": _run_error,
    "message_added": _said,
    "message_started": lambda data, _run: {
        "type": "TEXT_MESSAGE_START", "messageId": data["message_id"], "role": "assistant",
    },
    "message_part": _part,
    "message_ended": lambda data, _run: {"type": "TEXT_MESSAGE_END", "messageId": data["message_id"]},
    "tool_started": _tool_started,
    "tool_ended": _tool_ended,
    "state_changed": _state_changed,
}  # fmt: skip
"""By the kind of a record; None where this one has no AG-UI form."""
