"""What a worker may write into a journal, and of what parts each entry is made.

A message and a tool call have a beginning, any number of parts, and an end; each is known by an id that the worker's
libraries chose. To begin one again that has not ended starts it afresh: a node that is entered again after a crash
streams its message anew. What has ended never changes; entries about it are skipped, so a call has one result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


class EntryKind(StrEnum):
    """Kinds of entries, as stored and as clients read them."""

    MESSAGE_STARTED = "message_started"
    MESSAGE_PART = "message_part"
    MESSAGE_ENDED = "message_ended"
    TOOL_STARTED = "tool_started"
    TOOL_PROGRESS = "tool_progress"
    TOOL_ENDED = "tool_ended"
    STATE_CHANGED = "state_changed"
    PROGRESS = "progress"


OUTCOMES: Final = ("ok", "error", "denied")
"""How a worker says that a call has ended; ``denied``: a person has said no, and nothing was done."""


class Shape(StrEnum):
    """What a part of an entry must be."""

    ITEM = "item"
    TEXT = "text"
    NAME = "name"
    IDENTIFIER = "identifier"
    OUTCOME = "outcome"
    OBJECT = "object"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Part:
    """One member of an entry."""

    shape: Shape
    is_optional: bool = False


ENTRIES: Final[dict[EntryKind, dict[str, Part]]] = {
    EntryKind.MESSAGE_STARTED: {"message_id": Part(Shape.ITEM), "name": Part(Shape.NAME, is_optional=True)},
    EntryKind.MESSAGE_PART: {"message_id": Part(Shape.ITEM), "text": Part(Shape.TEXT)},
    EntryKind.MESSAGE_ENDED: {"message_id": Part(Shape.ITEM)},
    EntryKind.TOOL_STARTED: {
        "call_id": Part(Shape.ITEM),
        "tool": Part(Shape.NAME),
        "message_id": Part(Shape.ITEM, is_optional=True),
        "arguments": Part(Shape.OBJECT, is_optional=True),
    },
    EntryKind.TOOL_PROGRESS: {"call_id": Part(Shape.ITEM), "data": Part(Shape.ANY)},
    EntryKind.TOOL_ENDED: {
        "call_id": Part(Shape.ITEM),
        "outcome": Part(Shape.OUTCOME),
        "result": Part(Shape.ANY, is_optional=True),
        "workflow_id": Part(Shape.IDENTIFIER, is_optional=True),
        "operation_id": Part(Shape.IDENTIFIER, is_optional=True),
    },
    EntryKind.STATE_CHANGED: {"values": Part(Shape.OBJECT)},
    EntryKind.PROGRESS: {"data": Part(Shape.ANY)},
}
"""Members of each kind, beside ``kind``; ``arguments``, ``data``, ``result`` and ``values`` are for clients to see."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a worker, checked against `ENTRIES`."""

    kind: EntryKind
    data: Mapping[str, Any] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as it travels."""
        return {"kind": self.kind.value, **self.data}
