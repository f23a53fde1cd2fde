"""Where a graph waits, and what goes on with which reply: pure decisions about what LangGraph has stored.

Rules:

* A question's place is the innermost task that asks and how many answers that task has had: the id of an interrupt is
  another one from version to version, and is read only in the moment in which it is answered.
* A task asks no more once something that it gives is stored, whatever question is still stored beside it: LangGraph
  before 1.2.24 shows the last question of a task until the whole step is over.
* Replies are given to the questions whose places they name. Whoever still waits is entered again and asks again. A
  reply whose question is answered in the checkpoint already changes nothing.
* Without any reply to give, the graph goes on from its checkpoint: nodes that had begun begin again.

Source: design of threads; LangGraph 1.1.5 to 1.2.24.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from continuity.threads.telling import as_json, shortened
from continuity.threads.words import QUESTION

_RESUME: Final = "__resume__"
_ASKING: Final = frozenset({_RESUME, "__interrupt__", "__error__", "__error_source_node__"})
"""What LangGraph stores of a task that has given nothing yet."""
_HITL: Final = "action_requests"
_DECISIONS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "decisions": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"type": {"enum": ["approve", "reject", "edit", "respond"]}},
                "required": ["type"],
            },
        }
    },
    "required": ["decisions"],
    "additionalProperties": False,
}
"""What LangChain's own approval middleware takes."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One task that waits for an answer.

    Attributes:
        task: Its id.
        config: Where the graph that it is part of is stored.
        interrupt_id: Id of its interrupt, in this moment.
        value: What it asks.
    """

    task: str
    config: Mapping[str, Any]
    interrupt_id: str
    value: Any = field(repr=False)


def waiting_in(state: Any) -> Iterator[Waiting]:
    """Give every task that waits, those of nested graphs in the place of what holds them.

    Args:
        state: A snapshot with its subgraphs.
    """
    for task in state.tasks:
        if hasattr(task.state, "tasks") and task.state.tasks:
            yield from waiting_in(task.state)
            continue
        for interrupt in task.interrupts:
            yield Waiting(str(task.id), state.config, str(interrupt.id), interrupt.value)


def ordinal_of(waiting: Waiting, stored: Any) -> int | None:
    """Return how many answers a task has had, from its graph's stored checkpoint; None if it asks no more."""
    written = [
        (channel, value)
        for task, channel, value in (stored.pending_writes or () if stored is not None else ())
        if task == waiting.task
    ]
    if any(channel not in _ASKING for channel, _ in written):
        return None
    answered: Any = next((value for channel, value in written if channel == _RESUME), [])
    return len(answered) if isinstance(answered, list) else 1


def numbered(found: Iterable[tuple[Waiting, Any]]) -> list[tuple[Waiting, int]]:
    """Return the tasks that still wait, each with its ordinal.

    Args:
        found: Each task that `waiting_in` gave, with its graph's stored checkpoint.
    """
    ordinals = ((waiting, ordinal_of(waiting, stored)) for waiting, stored in found)
    return [(waiting, ordinal) for waiting, ordinal in ordinals if ordinal is not None]


def answers(found: Sequence[tuple[Waiting, int]], replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the replies by the ids of the interrupts that they answer."""
    known = {(reply["task"], reply["ordinal"]): reply["reply"] for reply in replies}
    return {
        waiting.interrupt_id: known[waiting.task, ordinal]
        for waiting, ordinal in found
        if (waiting.task, ordinal) in known
    }


def question(waiting: Waiting, ordinal: int) -> dict[str, Any]:
    """Return a question as the server takes it."""
    return {"task": waiting.task, "ordinal": ordinal, **_asked(waiting.value)}


def _asked(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping) and value.get("format") == QUESTION:
        return {"kind": value["kind"], "schema": dict(value["schema"]), "shown": _object(value["shown"])}
    if isinstance(value, Mapping) and _HITL in value:
        return {"kind": "approval", "schema": _DECISIONS, "shown": _object(value)}
    # Whatever a graph of somebody else's asks: any JSON value answers it.
    return {"kind": "reply", "schema": {}, "shown": _object(value)}


def _object(value: Any) -> dict[str, Any]:
    plain = as_json(value)
    short = shortened(plain)
    return short if isinstance(short, dict) else {"question": short}


def dangling_calls(messages: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the calls of the last assistant message that have no result, which no model takes back."""
    answered = {message.tool_call_id for message in messages if message.type == "tool"}
    last = next((message for message in reversed(messages) if message.type == "ai"), None)
    return [] if last is None else [call for call in last.tool_calls if call["id"] not in answered]


class Fence(Protocol):
    """What stands before a saver."""

    def check(self) -> None:
        """Raise where nothing may be written any more."""

    def look(self) -> None:
        """Hear what was asked meanwhile: once a step is stored, of whatever graph, and before the next one begins."""

    def finished(self, task: str) -> None:
        """Take in that what a task gives is stored."""


def fenced(saver: Any, fence: Fence) -> Any:
    """Return a saver that writes only while a claim lives, of the same class and on the same connection.

    A process that was stopped and wakes behind its claim's end would else write a newer step than the worker that has
    gone on meanwhile.
    """
    made = _copied(saver)
    made.put = _checked(_followed(saver.put, fence.look), fence.check)
    made.put_writes = _checked(_told(saver.put_writes, fence.finished), fence.check)
    made.aput = _acheck(_afollowed(saver.aput, fence.look), fence.check)
    made.aput_writes = _acheck(_atold(saver.aput_writes, fence.finished), fence.check)
    return made


def _copied(saver: Any) -> Any:
    made = object.__new__(type(saver))
    made.__dict__.update(saver.__dict__)
    return made


def _followed(function: Callable[..., Any], look: Callable[[], None]) -> Callable[..., Any]:
    def write(*args: Any, **kwargs: Any) -> Any:
        written = function(*args, **kwargs)
        look()
        return written

    return write


def _afollowed(function: Callable[..., Any], look: Callable[[], None]) -> Callable[..., Any]:
    async def write(*args: Any, **kwargs: Any) -> Any:
        written = await function(*args, **kwargs)
        # In a thread: it waits for the journal.
        await asyncio.to_thread(look)
        return written

    return write


def _told(function: Callable[..., Any], finished: Callable[[str], None]) -> Callable[..., Any]:
    def write(config: Any, writes: Sequence[tuple[str, Any]], task_id: str, *args: Any, **kwargs: Any) -> Any:
        written = function(config, writes, task_id, *args, **kwargs)
        if any(channel not in _ASKING for channel, _ in writes):
            finished(task_id)
        return written

    return write


def _atold(function: Callable[..., Any], finished: Callable[[str], None]) -> Callable[..., Any]:
    async def write(config: Any, writes: Sequence[tuple[str, Any]], task_id: str, *args: Any, **kwargs: Any) -> Any:
        written = await function(config, writes, task_id, *args, **kwargs)
        if any(channel not in _ASKING for channel, _ in writes):
            finished(task_id)
        return written

    return write


def _checked(function: Callable[..., Any], check: Callable[[], None]) -> Callable[..., Any]:
    def write(*args: Any, **kwargs: Any) -> Any:
        check()
        return function(*args, **kwargs)

    return write


def _acheck(function: Callable[..., Any], check: Callable[[], None]) -> Callable[..., Any]:
    async def write(*args: Any, **kwargs: Any) -> Any:
        check()
        return await function(*args, **kwargs)

    return write
