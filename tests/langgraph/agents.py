"""LangChain agents whose model is a script."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedModel(BaseChatModel):
    """Makes the calls of its script, one message after another, and then says that it is done."""

    replies: list[list[dict[str, Any]]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, _tools: Any, **_: Any) -> ScriptedModel:
        return self

    def _generate(self, messages: Sequence[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = sum(message.type == "ai" for message in messages)
        calls = self.replies[turn] if turn < len(self.replies) else []
        # An id that no process after this one will give again: a message of a known id takes the other's place.
        message = AIMessage("" if calls else "done", id=f"agent-{uuid.uuid4().hex}", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


HANDLED: list[str] = []
"""What ran in the agent's own tools, which a governed call never reaches."""


@tool
def send(to: str) -> str:
    """Send something."""
    HANDLED.append(to)
    return f"sent to {to}"


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"looked at {at}"


def agent(middleware: Sequence[Any], *replies: list[dict[str, Any]], saver: Any, **options: Any) -> Any:
    return create_agent(
        ScriptedModel(replies=list(replies)), [send, look], middleware=list(middleware), checkpointer=saver, **options
    )
