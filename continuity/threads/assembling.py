"""Agents of LangChain under a worker: limits, steers and approvals as middleware, governed tools in front.

The order of middleware is: what watches the run, what asks a person, what governs tools, and then the agent's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage, ToolMessage

from continuity.async_client import AsyncContinuityClient
from continuity.client import ContinuityClient
from continuity.integrations.checks import Untested
from continuity.integrations.middleware import GovernedToolsMiddleware
from continuity.integrations.runner import AsyncGovernedToolRunner, GovernedToolRunner
from continuity.threads.governed import GovernedTool
from continuity.threads.limits import LimitReachedError
from continuity.threads.places import dangling_calls
from continuity.threads.telling import INPUT_MARK, call_item, denied_id
from continuity.threads.words import RUN, approve, steers


class RunMiddleware(AgentMiddleware):
    """Reads steers before each model step, and keeps the limits."""

    def __init__(self, *, max_steps: int, max_tool_calls: int) -> None:
        """Keep the limits."""
        super().__init__()
        self._max_steps = max_steps
        self._max_tool_calls = max_tool_calls

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002 - LangChain's signature
        """Take in what was said meanwhile; raises `LimitReachedError` where no step is left."""
        run = RUN.get()
        if run is not None:
            run.check()
        messages = state["messages"]
        if sum(message.type == "ai" for message in _since_input(messages)) >= self._max_steps:
            raise LimitReachedError(f"It took {self._max_steps} steps without an answer.")
        known = {message.id for message in messages}
        said = [HumanMessage(_text(steer["content"]), id=steer["input_id"]) for steer in steers()]
        return {"messages": [message for message in said if message.id not in known]}

    def after_model(self, state: Any, runtime: Any) -> None:  # noqa: ARG002 - as above
        """Refuse calls beyond the limit before any of them is begun."""
        calls = sum(len(message.tool_calls) for message in _since_input(state["messages"]) if message.type == "ai")
        if calls > self._max_tool_calls:
            raise LimitReachedError(f"It wanted more than {self._max_tool_calls} tool calls.")

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Tell when a model is asked, and when it has answered."""
        _passed("model.before")
        answer = handler(request)
        _passed("model.after")
        return answer

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do as `wrap_model_call` in an agent that is awaited."""
        _passed("model.before")
        answer = await handler(request)
        _passed("model.after")
        return answer

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Begin no call behind the end of the claim."""
        self._begin()
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do as `wrap_tool_call` in an agent that is awaited."""
        self._begin()
        return await handler(request)

    def _begin(self) -> None:
        run = RUN.get()
        if run is not None:
            run.check()
        _passed("tool.begin")


class ApprovalMiddleware(AgentMiddleware):
    """Asks a person about calls before they are begun. A call that is denied gets its result here."""

    def __init__(self, tools: Sequence[GovernedTool]) -> None:
        """Keep which tools need a yes."""
        super().__init__()
        self._names = frozenset(tool.name for tool in tools if tool.approval)

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002 - LangChain's signature
        """Ask about each call of the last message that needs it, in order."""
        asked = [call for call in dangling_calls(state["messages"]) if call["name"] in self._names]
        denied = [call for call in asked if not approve({"tool": call["name"], "arguments": call["args"]})]
        if not denied:
            return None
        asking = next(message.id for message in reversed(state["messages"]) if message.type == "ai")
        return {"messages": [_denial(call, asking) for call in denied]}


def assemble(
    *, name: str, model: Any, instructions: str | None, tools: Sequence[Any], middleware: Sequence[Any],
    checkpointer: Any, store: Any, limits: Any,
    client: ContinuityClient | AsyncContinuityClient | None, response: Any, untested: Untested = "refuse",
) -> Any:  # fmt: skip
    """Compile the agent.

    Args:
        name: Of the agent; also the namespace of its governed calls, so that another one would be new work.
        model: Of LangChain.
        instructions: The system prompt.
        tools: Its tools, governed ones among them.
        middleware: Its own middleware.
        checkpointer: Where it keeps its steps.
        store: What it remembers beyond a thread.
        limits: `continuity.threads.agents.Limits`.
        client: For governed tools.
        response: The form in which the model must answer, None for text.
        untested: What the application has said about versions that no test has run on.
    """
    governed = [tool for tool in tools if isinstance(tool, GovernedTool)]
    front: list[AgentMiddleware] = [
        RunMiddleware(max_steps=limits.max_steps, max_tool_calls=limits.max_tool_calls),
        ApprovalMiddleware(governed),
    ]
    if governed:
        if client is None:
            raise ValueError(f"The agent {name!r} has governed tools and needs a coordinator's credential.")
        registered = [tool.registered for tool in governed]
        kind: Any = AsyncGovernedToolRunner if isinstance(client, AsyncContinuityClient) else GovernedToolRunner
        runner = kind(client, registered, namespace=f"threads.{name}", enabled=True)
        front.append(GovernedToolsMiddleware(runner, unregistered="pass", untested_langgraph=untested))
    seen = [tool.tool() if isinstance(tool, GovernedTool) else tool for tool in tools]
    return create_agent(
        model, seen, system_prompt=instructions, middleware=[*front, *middleware], checkpointer=checkpointer,
        store=store, response_format=response, name=name,
    )  # fmt: skip


def _since_input(messages: Sequence[Any]) -> Sequence[Any]:
    """Return the messages behind the last input; a steer is none."""
    begun = max((n for n, message in enumerate(messages) if message.additional_kwargs.get(INPUT_MARK)), default=-1)
    return messages[begun + 1 :]


def _denial(call: Mapping[str, Any], message_id: str) -> ToolMessage:
    return ToolMessage(
        "A person has denied this call. Nothing was done.", tool_call_id=call["id"], name=call["name"],
        status="error", id=denied_id(call_item(message_id, call["id"])),
    )  # fmt: skip


def _text(content: Any) -> str:
    return content if isinstance(content, str) else str(content)


def _passed(point: str) -> None:
    run = RUN.get()
    if run is not None:
        run.passed(point)
