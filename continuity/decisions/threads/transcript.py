"""What records do to a transcript, and to everything else that a snapshot shows. JSON values in, new ones out.

The server folds records into the rows that snapshots are read from; a client folds the records that follow a snapshot's
checkpoint into the snapshot (`advance`). Both use the functions here, so both have the same at the same position.

A record is ``{seq, position, kind, at, run_id, generation, data}``, as `GET …/journal` gives it. An item of the
transcript is a message (``type: message``), a tool call (``type: tool_call``) or the answer to a question (``type:
answer``) with ``item_no``, ``id``, ``status`` (``open, done, incomplete``) and ``run_id``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from continuity.decisions.threads import bounds
from continuity.decisions.threads.states import THREAD_OF_RUN, RunState
from continuity.errors import TooLargeError

Item = Mapping[str, Any]
View = Mapping[str, Any]


def user_message(content: Any, *, input_id: str, item_no: int, kind: str, run_id: str | None, at: float) -> Item:
    """Return the item of what a client said."""
    return {
        "item_no": item_no, "id": input_id, "type": "message", "role": "user", "kind": kind, "content": content,
        "status": "done", "run_id": run_id, "at": at,
    }  # fmt: skip


def fold_item(item: Item | None, record: Mapping[str, Any]) -> Item:
    """Return an item after a record about it.

    Args:
        item: As it was; None before its first record.
        record: A record whose data has ``item_no``.

    Raises:
        TooLargeError: The message would be longer than a snapshot may hold. Nothing has changed.
    """
    data: Mapping[str, Any] = record["data"]
    if record["kind"] == "message_added":
        message: Item = data["message"]
        return message
    if record["kind"] == "request_answered":
        return _answer(record)
    if item is None or record["kind"] in {"message_started", "tool_started"}:
        return _begun(item, record)
    return _FOLDS[record["kind"]](item, data)


def _begun(item: Item | None, record: Mapping[str, Any]) -> Item:
    """Return an item at its beginning: also one that is begun again, by the run that entered its node again."""
    data = record["data"]
    at = record["at"] if item is None else item["at"]
    common = {"item_no": data["item_no"], "status": "open", "run_id": record["run_id"], "at": at}
    if "call_id" in data:
        named = {name: data[name] for name in ("tool", "message_id", "arguments") if name in data}
        return {**common, "id": data["call_id"], "type": "tool_call", **named}
    named = {"name": data["name"]} if "name" in data else {}
    return {**common, "id": data["message_id"], "type": "message", "role": "assistant", "content": "", **named}


def _answer(record: Mapping[str, Any]) -> Item:
    """Return the item of an answer: a question that is asked again keeps what was answered before."""
    data = record["data"]
    return {
        "item_no": data["item_no"], "id": f"{data['waiting_id']}.{data['revision']}", "type": "answer",
        "status": "done", "run_id": record["run_id"], "at": record["at"], "kind": data["request_kind"],
        **{name: data[name] for name in ("waiting_id", "revision", "shown", "reply", "actor")},
    }  # fmt: skip


def _part(item: Item, data: Mapping[str, Any]) -> Item:
    content = item["content"] + data["text"]
    if len(content) > bounds.MESSAGE_CHARS:
        raise TooLargeError(f"A message holds at most {bounds.MESSAGE_CHARS} characters. Nothing was written.")
    return {**item, "content": content}


def _message_ended(item: Item, data: Mapping[str, Any]) -> Item:
    return {**item, "status": data.get("status", "done")}


def _tool_progress(item: Item, data: Mapping[str, Any]) -> Item:
    return {**item, "progress": data["data"]}


def _tool_ended(item: Item, data: Mapping[str, Any]) -> Item:
    named = {name: data[name] for name in ("outcome", "result", "workflow_id", "operation_id") if name in data}
    return {**item, "status": "incomplete" if data["outcome"] == "unknown" else "done", **named}


_FOLDS: Final[dict[str, Callable[[Item, Mapping[str, Any]], Item]]] = {
    "message_part": _part,
    "message_ended": _message_ended,
    "tool_progress": _tool_progress,
    "tool_ended": _tool_ended,
}


def fold_state(state: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return declared state after a change; null takes a key away."""
    merged = {**state, **values}
    return {key: value for key, value in merged.items() if value is not None}


def advance(view: View, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client holds after one record more.

    Args:
        view: A snapshot, or what this function returned for the record before.
        record: The next record: its ``seq`` is one more than that of the view's checkpoint.

    Returns:
        The same members, changed; ``checkpoint`` is the record's position.
    """
    changed: dict[str, Any] = {**view, "checkpoint": record["position"]}
    kind, data = record["kind"], record["data"]
    if "thread_revision" in data:
        changed["thread"] = {**view["thread"], "revision": data["thread_revision"]}
    if "item_no" in data:
        changed["messages"] = _with_item(view["messages"], record)
    if kind in _VIEWS:
        _VIEWS[kind](changed, record)
    return changed


def bounded(view: View, *, messages: int, runs: int) -> View:
    """Return a view that holds the newest messages, all that have not ended, and the newest runs.

    Folding goes on from it as from the whole: no record is about a message that has ended or about an older run.

    Args:
        view: As `advance` takes it.
        messages: How many of the newest messages stay. They are let go of once there are twice as many.
        runs: How many of the newest runs stay, likewise.
    """
    changed: dict[str, Any] = {}
    if len(view["messages"]) > 2 * messages:
        older, newest = view["messages"][:-messages], view["messages"][-messages:]
        changed["messages"] = [*(item for item in older if item["status"] == "open"), *newest]
    if len(view["runs"]) > 2 * runs:
        changed["runs"] = view["runs"][-runs:]
    return {**view, **changed} if changed else view


def _with_item(messages: list[Item], record: Mapping[str, Any]) -> list[Item]:
    number = record["data"]["item_no"]
    # From the end: what a record is about has begun lately.
    for place in range(len(messages) - 1, -1, -1):
        item = messages[place]
        if item["item_no"] == number:
            return [*messages[:place], fold_item(item, record), *messages[place + 1 :]]
    return [*messages, fold_item(None, record)]


def _input_queued(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    data = record["data"]
    entry = {"input_id": data["input_id"], "kind": data["kind"], "content": data["content"], "at": record["at"]}
    # Steers stand before follow-ups, each in the order in which they were accepted.
    view["queue"] = sorted([*view["queue"], entry], key=lambda each: each["kind"] != "steer")


def _inputs_moved(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    ids = record["data"]["input_ids"]
    known = {entry["input_id"]: entry for entry in view["queue"]}
    moved = [{**known[input_id], "kind": "follow_up"} for input_id in ids]
    view["queue"] = [*moved, *(entry for entry in view["queue"] if entry["input_id"] not in ids)]


def _message_added(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    view["queue"] = [entry for entry in view["queue"] if entry["input_id"] != record["data"]["input_id"]]


def _state_changed(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    view["state"] = fold_state(view["state"], record["data"]["values"])


def _run_queued(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    data = record["data"]
    run = {
        "run_id": record["run_id"], "number": data["number"], "state": "queued", "cause": data["cause"],
        "resumes": data["resumes"], "queued": record["at"], "stopping": False,
    }  # fmt: skip
    view["runs"] = [*view["runs"], run]
    view["waiting"] = []
    _set_state(view, RunState.QUEUED)


def _run_moved(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    state = RunState(record["kind"].removeprefix("run_"))
    named = {
        name: record["data"][name]
        for name in ("generation", "output", "message", "reason", "workflow_id")
        if record["data"].get(name) is not None
    }
    moment = {} if state is RunState.CLAIMED else {"ended": record["at"]}
    view["runs"] = [
        {**run, "state": state.value, **named, **moment} if run["run_id"] == record["run_id"] else run
        for run in view["runs"]
    ]
    if state is RunState.STOPPED:
        view["waiting"] = []
    _set_state(view, state)


def _stop_requested(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    view["runs"] = [{**run, "stopping": True} if run["run_id"] == record["run_id"] else run for run in view["runs"]]


def _request_opened(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    data = record["data"]
    request = {
        "waiting_id": data["waiting_id"], "revision": data["revision"], "state": "open", "kind": data["kind"],
        "schema": data["schema"], "shown": data["shown"], "run_id": record["run_id"], "at": record["at"],
    }  # fmt: skip
    view["waiting"] = [*view["waiting"], request]


def _request_answered(view: dict[str, Any], record: Mapping[str, Any]) -> None:
    data = record["data"]
    view["waiting"] = [
        {**request, "state": "answered", "reply": data["reply"]}
        if request["waiting_id"] == data["waiting_id"]
        else request
        for request in view["waiting"]
    ]


def _set_state(view: dict[str, Any], state: RunState) -> None:
    view["thread"] = {**view["thread"], "state": THREAD_OF_RUN[state].value}


_VIEWS: Final[dict[str, Callable[[dict[str, Any], Mapping[str, Any]], None]]] = {
    "input_queued": _input_queued,
    "inputs_moved": _inputs_moved,
    "message_added": _message_added,
    "state_changed": _state_changed,
    "run_queued": _run_queued,
    **dict.fromkeys(
        ("run_claimed", "run_waiting", "run_settled", "run_interrupted", "run_failed", "run_stopped"), _run_moved
    ),
    "stop_requested": _stop_requested,
    "request_opened": _request_opened,
    "request_answered": _request_answered,
}
