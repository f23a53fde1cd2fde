"""A model that is a script, so that nothing leaves this machine. It streams word by word, as the others do."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

_ORDER = re.compile(r"[0-9]+")


class ScriptedModel(BaseChatModel):
    """Reads an order's number and what is wanted of it; asks for tools, and then says what came of them."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, _tools: Any, **_: Any) -> ScriptedModel:
        """Take any tools: the script knows which there are."""
        return self

    def _generate(self, messages: Sequence[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_answer(messages))])

    def _stream(self, messages: Sequence[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        whole = _answer(messages)
        words = re.findall(r"\S+\s*", str(whole.content))
        for word in words:
            yield ChatGenerationChunk(message=AIMessageChunk(word, id=whole.id))
        calls = [
            {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": number}
            for number, call in enumerate(whole.tool_calls)
        ]
        yield ChatGenerationChunk(
            message=AIMessageChunk("", id=whole.id, tool_call_chunks=calls, chunk_position="last")
        )


def _answer(messages: Sequence[BaseMessage]) -> AIMessage:
    # An id that no process after this one gives again: a message of a known id would take the other's place.
    message_id = f"msg_{uuid.uuid4().hex}"
    begun = max((n for n, message in enumerate(messages) if message.additional_kwargs.get("atmem_input")), default=0)
    said = [str(message.text) for message in messages[begun:] if message.type == "human"]
    results = [message for message in messages[begun:] if message.type == "tool"]
    orders = [found for text in said for found in _ORDER.findall(text)]
    if not orders:
        return AIMessage("Which order is it? Tell me its number.", id=message_id)
    wish, order = " ".join(said).lower(), orders[-1]
    found = [message for message in results if message.name != "write_todos"]
    is_left = bool(found) and _is_error(found[-1])
    calls = _calls(wish, order, [message.name for message in results], is_left=is_left)
    if calls:
        return AIMessage(_REMARKS.get(calls[-1][0], ""), id=message_id, tool_calls=[_call(*call) for call in calls])
    return AIMessage(_said(found[-1], order), id=message_id)


_REMARKS = {"lookup_order": "I look at the order first.", "cancel_order": "It can still be cancelled."}


def _is_error(result: BaseMessage) -> bool:
    return getattr(result, "status", "") == "error"


def _calls(wish: str, order: str, done: Sequence[str | None], *, is_left: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of the next message, none when there is enough for an answer.

    `is_left` says that the order was not cancelled: what is not to be done any more leaves the list of things to do.
    """
    if "cancel" in wish:
        if "lookup_order" not in done:
            plan = [_todo("Look at the order", "in_progress"), _todo("Cancel it", "pending")]
            return [("write_todos", {"todos": plan}), ("lookup_order", {"order": order})]
        if "cancel_order" not in done:
            return [("cancel_order", {"order": order})]
        # One list at the end: with another one before the question an input would take more calls than it may.
        ticked = [_todo("Look at the order", "completed"), *([] if is_left else [_todo("Cancel it", "completed")])]
        return [] if done.count("write_todos") > 1 else [("write_todos", {"todos": ticked})]
    tool = "order_status" if "status" in wish else "lookup_order"
    return [] if tool in done else [(tool, {"order": order})]


def _todo(content: str, status: str) -> dict[str, str]:
    return {"content": content, "status": status}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": f"call_{uuid.uuid4().hex[:12]}", "type": "tool_call"}


def _said(result: BaseMessage, order: str) -> str:
    if _is_error(result):
        return f"Order {order} was left as it is. {result.text}"
    try:
        found = json.loads(str(result.text))
    except ValueError:
        return str(result.text)
    item = f" ({found['item']})" if "item" in found else ""
    return f"Order {order}{item} is {found['state']}."
