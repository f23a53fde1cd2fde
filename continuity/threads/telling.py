"""What of a run its journal is told: public text, calls, declared data and state. Pure; entries out.

Rules:

* Only what is declared leaves: the text of assistant messages of the outermost graph, names of tools, arguments and
  results of tools that the agent's client policy names, state keys that it names. System prompts, reasoning, other
  messages and other state never do.
* A call is known by its message and its own id: models give the same call id again in another message.
* A message that was streamed and is then there as a whole is told once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from continuity.decisions.threads import bounds
from continuity.jsontext import canonical_bytes

Entry = dict[str, Any]

ITEM_ID: Final = re.compile(rf"[A-Za-z0-9_.:-]{{1,{bounds.ITEM_ID_CHARS}}}")
GOVERNED: Final = re.compile(r"tool-(call-[0-9a-f]{64})")
"""Id of the message of a governed call, with its workflow key (`continuity.integrations.langgraph.tool_message`)."""
DENIED: Final = re.compile(r"denied-tc_[0-9a-f]{32}")
"""Id of the message of a call that a person has denied."""
HITL_SOURCE: Final = "hitl_interrupt_decision"
"""Marks what LangChain's own approval middleware says of a call that a person has rejected; versions before 1.5 do not
mark it, and there such a call has ended with an error."""
INPUT_MARK: Final = "atmem_input"
"""Marks the message that a run began with, and the checkpoints that it has reached."""
PART_CHARS: Final = 8 * 1024
DATA_BYTES: Final = 48 * 1024
"""What a record holds beside its own words is smaller than the server's 64 KiB."""
NAME_CHARS: Final = 100


def _nowhere(_key: str) -> None:
    """Know of no workflow."""


@dataclass(slots=True)
class Telling:
    """What was told of one run so far.

    Attributes:
        tools: Tools whose arguments and results clients see.
        state_keys: State that clients see.
        work_of: Finds the workflow of a governed call by its key; None where it is not known.
    """

    tools: Collection[str]
    state_keys: Collection[str]
    work_of: Callable[[str], str | None] = _nowhere
    _texts: dict[str, int] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _state: dict[str, bytes] = field(default_factory=dict)

    def begin(self, messages: Iterable[Any]) -> Iterator[Entry]:
        """Take in what the thread holds already; tell again what a worker that died may not have told.

        Messages, calls and their results are skipped by the server where they have ended.
        """
        held = list(messages)
        begun = _last_input(held) + 1
        for message in held[:begun]:
            if message.type == "ai":
                self._ended.add(message_id_of(message))
        yield from self.messages(held[begun:])

    def part(self, message: Any) -> Iterator[Entry]:
        """Tell a part of an assistant message as it streams."""
        message_id, text = message_id_of(message), message.text
        if not text or message_id in self._ended:
            return
        yield from self._said(message_id, str(text))

    def messages(self, messages: Iterable[Any]) -> Iterator[Entry]:
        """Tell what a step has added to the messages."""
        for message in messages:
            kind = getattr(message, "type", None)
            if kind == "ai":
                yield from self._message_ended(message)
                yield from self._begun_calls(message)
            elif kind == "tool":
                yield from self._call_ended(message)

    def state(self, values: Mapping[str, Any]) -> Iterator[Entry]:
        """Tell what has changed of the state that clients see."""
        changed: dict[str, Any] = {}
        for key in self.state_keys:
            value = as_json(values.get(key))
            written = canonical_bytes(value)
            if self._state.get(key, b"null") != written:
                self._state[key] = written
                changed[key] = value
        if changed:
            yield {"kind": "state_changed", "values": changed}

    def progress(self, data: Any, call_id: str | None) -> Iterator[Entry]:
        """Tell how far something has come."""
        item = self._calls.get(call_id or "")
        if item is None:
            yield {"kind": "progress", "data": shortened(data)}
        elif item[0] not in self._answered:
            yield {"kind": "tool_progress", "call_id": item[0], "data": shortened(data)}

    # --- Messages ---

    def _said(self, message_id: str, text: str) -> Iterator[Entry]:
        if message_id not in self._texts:
            self._texts[message_id] = 0
            yield {"kind": "message_started", "message_id": message_id}
        text = text[: bounds.MESSAGE_CHARS - self._texts[message_id]]
        self._texts[message_id] += len(text)
        for start in range(0, len(text), PART_CHARS):
            yield {"kind": "message_part", "message_id": message_id, "text": text[start : start + PART_CHARS]}

    def _message_ended(self, message: Any) -> Iterator[Entry]:
        message_id = message_id_of(message)
        if message_id in self._ended:
            return
        self._ended.add(message_id)
        text = str(message.text)
        told = self._texts.get(message_id, 0)
        if text[told:]:
            yield from self._said(message_id, text[told:])
        if message_id in self._texts:
            yield {"kind": "message_ended", "message_id": message_id}

    # --- Calls ---

    def _begun_calls(self, message: Any) -> Iterator[Entry]:
        message_id = message_id_of(message)
        for call in message.tool_calls:
            item, name = call_item(message_id, str(call["id"])), str(call["name"])[:NAME_CHARS] or "unnamed"
            if self._calls.get(str(call["id"]), ("", ""))[0] == item:
                continue
            self._calls[str(call["id"])] = (item, name)
            entry: Entry = {"kind": "tool_started", "call_id": item, "tool": name}
            if message_id in self._texts:
                entry["message_id"] = message_id
            if name in self.tools:
                arguments = shortened(call["args"])
                entry["arguments"] = arguments if isinstance(arguments, dict) else {"shortened": arguments}
            yield entry

    def _call_ended(self, message: Any) -> Iterator[Entry]:
        item, name = self._calls.get(str(message.tool_call_id), ("", ""))
        if not item or item in self._answered:
            return
        self._answered.add(item)
        entry: Entry = {"kind": "tool_ended", "call_id": item, "outcome": _outcome(message)}
        if name in self.tools:
            entry["result"] = shortened(_result(message))
        found = GOVERNED.fullmatch(str(message.id or ""))
        workflow_id = self.work_of(found[1]) if found else None
        if workflow_id:
            entry["workflow_id"] = workflow_id
        yield entry


def _last_input(messages: Sequence[Any]) -> int:
    """Return the place of the message that the newest run began with, -1 without one; a steer is none."""
    human = [number for number, message in enumerate(messages) if message.type == "human"]
    marked = [number for number in human if messages[number].additional_kwargs.get(INPUT_MARK)]
    return max(marked or human, default=-1)


def messages_in(values: Mapping[str, Any]) -> list[Any]:
    """Return the messages of a state; a graph of somebody's may keep anything else under that name."""
    found = values.get("messages")
    return [each for each in found if isinstance(getattr(each, "type", None), str)] if isinstance(found, list) else []


def message_id_of(message: Any) -> str:
    """Return the id of a message as the journal takes it."""
    text = str(message.id or "")
    return text if ITEM_ID.fullmatch(text) else f"msg_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def call_item(message_id: str, call_id: str) -> str:
    """Return the id by which the journal knows a call: the same call has the same, in whatever process."""
    return f"tc_{hashlib.sha256(f'{len(message_id)}:{message_id}{call_id}'.encode()).hexdigest()[:32]}"


def as_json(value: Any) -> Any:
    """Return a value as JSON has it: models as objects, what JSON has no word for as its text."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    return json.loads(json.dumps(value, default=_default, allow_nan=False))


def shortened(value: Any) -> Any:
    """Return a value that fits into a record: itself, or the beginning of its text."""
    plain = as_json(value)
    if len(canonical_bytes(plain)) <= DATA_BYTES:
        return plain
    return f"{json.dumps(plain)[:PART_CHARS]}…"


def _default(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def denied_id(item: str) -> str:
    """Return the id of the message that says that a person has denied a call."""
    return f"denied-{item}"


def _outcome(message: Any) -> str:
    if getattr(message, "status", "success") != "error":
        return "ok"
    is_langchains = getattr(message, "additional_kwargs", {}).get("lc_source") == HITL_SOURCE
    return "denied" if is_langchains or DENIED.fullmatch(str(message.id or "")) else "error"


def _result(message: Any) -> Any:
    text = str(message.text)
    try:
        return json.loads(text)
    except ValueError:
        return text
