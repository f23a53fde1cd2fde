"""Middleware for LangChain agents: one line governs the registered tools of an agent.

Example::

    agent = create_agent(model, tools, middleware=[GovernedToolsMiddleware(runner)], checkpointer=saver)
    agent.invoke(state, {"configurable": {"thread_id": "t1"}}, durability="sync")

It stands first in the list, so that no other middleware repeats a call or turns what it raises into a
message for the model; only what asks a person about each call stands before it (`continuity.integrations.behind`).
What the model sees of a tool is the agent's own tool; what runs is the registered one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain.agents.middleware import AgentMiddleware
from langchain.tools.tool_node import ToolCallRequest

from continuity.integrations.arguments import check_of
from continuity.integrations.behind import passed_over
from continuity.integrations.calls import PlannedCall, Refusal, page_of
from continuity.integrations.checks import (
    Step,
    Untested,
    answered_calls,
    assistant_message,
    check_stored,
    same_call,
    saver_of,
)
from continuity.integrations.langgraph import admit_version, admitted_step, aread_step, read_step, tool_message
from continuity.integrations.runner import AsyncGovernedToolRunner, GovernedToolRunner
from continuity.integrations.turns import POLL_S, Line, Lines, Turn
from continuity.stops import OutcomeNotRecorded, RecoveryBlocked

Unregistered = Literal["refuse", "pass"]
Behind = Literal["refuse", "pass_over"]
_MESSAGES: Final = "messages"
_EDITS: Final = "hitl_edited_tool_calls"
"""Where LangChain 1.5 keeps what a person has made of a call, by its id; before that it was in the message."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The calls of the stored message, as written and as edited, and what is to be done about the governed ones."""

    calls: Sequence[Mapping[str, Any]]
    plan: Mapping[str, PlannedCall]


class GovernedToolsMiddleware(AgentMiddleware):
    """Runs registered tools under governance, in the order of their message, one at a time."""

    def __init__(
        self,
        runner: GovernedToolRunner | AsyncGovernedToolRunner,
        *,
        unregistered: Unregistered = "refuse",
        behind: Behind = "refuse",
        untested_langgraph: Untested = "refuse",
    ) -> None:
        """Keep the runner; nothing is asked.

        Args:
            runner: Runs the calls: a `GovernedToolRunner` for agents that are invoked, an
                `AsyncGovernedToolRunner` for agents that are awaited.
            unregistered: What to do with a call of a tool that is not registered. ``"pass"`` lets the
                agent's own tool run, ungoverned: it may run twice.
            behind: What to do where middleware that wraps tool calls stands behind this one, and might decide
                about a call. ``"pass_over"`` accepts that it never sees a governed one.
            untested_langgraph: See `continuity.integrations.governed_langgraph_tools`; for LangChain too.

        Raises:
            RecoveryBlocked: ``version_not_tested``.
        """
        super().__init__()
        self._runner = runner
        self._may_pass = unregistered == "pass"
        self._may_pass_over = behind == "pass_over"
        self._lines = Lines()
        for library in ("langgraph", "langchain"):
            admit_version(runner, library, untested=untested_langgraph)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Run a governed call; never calls `handler` for one."""
        runner = self._runner
        if not isinstance(runner, GovernedToolRunner):
            raise runner.refused(Refusal("runner_mismatch"))
        step, call_id = self._admitted(request, is_async=False)
        saver = saver_of(_configurable(request))
        line = self._lines.join(step.key, call_id)
        try:
            seen = self._seen(line, lambda: read_step(runner, saver, step), step)
            planned = self._planned(seen, request)
            if planned is None:
                answer = handler(request)
            else:
                self._check_behind(handler)
                self._wait(line, planned, lambda: _answered(read_step(runner, saver, step)))
                answer = tool_message(runner.run(planned))
        except BaseException as error:
            line.leave(call_id, error)
            raise
        line.leave(call_id)
        return answer

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Do as `wrap_tool_call` in an agent that is awaited."""
        runner = self._runner
        if not isinstance(runner, AsyncGovernedToolRunner):
            raise runner.refused(Refusal("runner_mismatch"))
        step, call_id = self._admitted(request, is_async=True)
        saver = saver_of(_configurable(request))
        line = self._lines.join(step.key, call_id)
        try:
            seen = await self._aseen(line, lambda: aread_step(runner, saver, step), step)
            planned = self._planned(seen, request)
            if planned is None:
                answer = await handler(request)
            else:
                self._check_behind(handler)
                await self._await(line, planned, lambda: aread_step(runner, saver, step))
                answer = tool_message(await runner.run(planned))
        except BaseException as error:
            line.leave(call_id, error)
            raise
        line.leave(call_id)
        return answer

    # --- What both share ---

    def _admitted(self, request: ToolCallRequest, *, is_async: bool) -> tuple[Step, str]:
        call_id = request.tool_call.get("id")
        if not isinstance(call_id, str) or not call_id:
            raise self._runner.refused(Refusal("call_id_missing", "A tool call of the message has no id."))
        return admitted_step(self._runner, _configurable(request), is_async=is_async), call_id

    def _read(self, stored: Any, line: Line, step: Step) -> _Seen:
        message = assistant_message(stored, messages_key=_MESSAGES)
        self._runner.refuse(check_stored(message, stored, messages_key=_MESSAGES))
        calls = _as_edited(message.tool_calls, stored)
        plan = self._runner.plan(
            calls, thread_id=step.thread_id, message_id=message.id,
            continuity_namespace=step.continuity_namespace, may_pass=self._may_pass,
        )  # fmt: skip
        line.arrange([planned.call_id for planned in plan])
        line.answer(_answered(stored))
        return _Seen((*message.tool_calls, *calls), {planned.call_id: planned for planned in plan})

    def _check_behind(self, handler: Callable[..., Any]) -> None:
        names = [] if self._may_pass_over else passed_over(handler)
        if names:
            because = f"{', '.join(names)} would not see the call."
            raise self._runner.refused(Refusal("middleware_passed_over", because))

    def _planned(self, seen: _Seen, request: ToolCallRequest) -> PlannedCall | None:
        """Return the plan of the requested call, None for one that is not governed."""
        if not any(same_call(call, request.tool_call) for call in seen.calls):
            raise self._runner.refused(Refusal("call_changed", "The stored message does not hold this call."))
        planned = seen.plan.get(str(request.tool_call["id"]))
        if planned is None or planned.fault or planned.tool.arguments is not None or request.tool is None:
            return planned
        if request.tool.name != planned.tool.name:
            # A person has sent the call to another tool, and what checks its arguments here is still the first one.
            return planned
        return planned.with_fault(check_of(request.tool.tool_call_schema)(planned.definition["arguments"]))

    def _blocked(self, line: Line) -> RecoveryBlocked:
        cause = line.cause
        if isinstance(cause, RecoveryBlocked):
            return RecoveryBlocked(
                "earlier_call_unresolved", cause.workflow_id, page=cause.page, because=f"It stopped ({cause.code}).",
                lease_until=cause.lease_until, retry_after_s=cause.retry_after_s,
            )  # fmt: skip
        because = "" if cause is None else f"It raised {type(cause).__name__}."
        if isinstance(cause, OutcomeNotRecorded):
            return RecoveryBlocked("earlier_call_unresolved", cause.workflow_id, page=cause.page, because=because)
        return RecoveryBlocked("earlier_call_unresolved", "", page=page_of(self._runner.url), because=because)

    # --- Waiting, in a thread ---

    def _seen(self, line: Line, read: Callable[[], Any], step: Step) -> _Seen:
        future, is_mine = line.reading()
        if is_mine:
            try:
                future.set_result(self._read(read(), line, step))
            except BaseException as error:
                future.set_exception(error)
                raise
        seen: _Seen = future.result()
        return seen

    def _wait(self, line: Line, planned: PlannedCall, answered: Callable[[], set[str]]) -> None:
        began_s = time.monotonic()
        woken = threading.Event()
        with line.watched(woken.set):
            while (turn := line.turn(planned.call_id, waited_s=time.monotonic() - began_s)) is not Turn.GO:
                if turn is Turn.BLOCKED:
                    raise self._blocked(line) from line.cause
                if not woken.wait(POLL_S) and line.is_missing(planned.call_id):
                    line.answer(answered())
                woken.clear()

    # --- Waiting, in a task ---

    async def _aseen(self, line: Line, read: Callable[[], Awaitable[Any]], step: Step) -> _Seen:
        future, is_mine = line.reading()
        if is_mine:
            try:
                future.set_result(self._read(await read(), line, step))
            except BaseException as error:
                future.set_exception(error)
                raise
        seen: _Seen = await asyncio.wrap_future(future)
        return seen

    async def _await(self, line: Line, planned: PlannedCall, read: Callable[[], Awaitable[Any]]) -> None:
        began_s = time.monotonic()
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()
        with line.watched(lambda: loop.call_soon_threadsafe(woken.set)):
            while (turn := line.turn(planned.call_id, waited_s=time.monotonic() - began_s)) is not Turn.GO:
                if turn is Turn.BLOCKED:
                    raise self._blocked(line) from line.cause
                try:
                    await asyncio.wait_for(woken.wait(), POLL_S)
                except TimeoutError:
                    if line.is_missing(planned.call_id):
                        line.answer(_answered(await read()))
                woken.clear()


def _as_edited(calls: Sequence[Mapping[str, Any]], stored: Any) -> list[Mapping[str, Any]]:
    """Return the calls of a stored message as a person has edited them."""
    edits = stored.checkpoint.get("channel_values", {}).get(_EDITS) or {}
    return [{**call, **_edit(edits[call["id"]])} if call.get("id") in edits else call for call in calls]


def _edit(action: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": action["name"], "args": action["args"]}


def _answered(stored: Any) -> set[str]:
    return answered_calls(stored, messages_key=_MESSAGES)


def _configurable(request: ToolCallRequest) -> Mapping[str, Any]:
    configurable: Mapping[str, Any] = request.runtime.config.get("configurable", {})
    return configurable
