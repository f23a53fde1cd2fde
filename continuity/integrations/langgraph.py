"""Nodes for LangGraph that run the tool calls of the last assistant message under governance.

Example::

    graph.add_node("tools", governed_langgraph_tools(runner))
    compiled = graph.compile(checkpointer=SqliteSaver(connection))
    compiled.invoke(state, {"configurable": {"thread_id": "t1"}}, durability="sync")

What is checked before anything is begun, and the codes of what is refused: docs/langgraph.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig

from continuity.integrations.calls import CallResult, Refusal
from continuity.integrations.checks import (
    Step,
    Untested,
    check_config,
    check_message,
    check_postgresql,
    check_sqlite,
    check_stored,
    check_version,
    is_tested,
    saver_kind,
    saver_of,
    step_of,
)
from continuity.integrations.runner import AsyncGovernedToolRunner, GovernedToolRunner, ToolRunner

Node = Callable[[Any, RunnableConfig], dict[str, Any]]
AsyncNode = Callable[[Any, RunnableConfig], Awaitable[dict[str, Any]]]


class UntestedVersionWarning(UserWarning):
    """A version outside the tested range runs because the application said so."""


def governed_langgraph_tools(
    runner: GovernedToolRunner, *, messages_key: str = "messages", untested_langgraph: Untested = "refuse"
) -> Node:
    """Make the node that runs the calls of the last message of the state.

    Args:
        runner: Runs them.
        messages_key: Where the state holds its messages.
        untested_langgraph: ``"run_without_proof"`` accepts a version of LangGraph that no test has run on,
            with a warning: nothing then proves that a call is stored before its effect and that resuming
            finds the same call again, so that an effect may happen twice.

    Returns:
        A node that returns one tool message a call, in their order. It raises `RecoveryBlocked` and other
        `ContinuityError`: the graph stops, and resuming the thread asks again.

    Raises:
        RecoveryBlocked: ``version_not_tested``.
        TypeError: The runner is for nodes that are awaited.
    """
    if not isinstance(runner, GovernedToolRunner):
        raise TypeError("This node needs a GovernedToolRunner.")
    admit_version(runner, "langgraph", untested=untested_langgraph)

    def governed_tools(state: Any, config: RunnableConfig) -> dict[str, Any]:
        configurable = config.get("configurable", {})
        step = admitted_step(runner, configurable, is_async=False)
        message = last_message(runner, state, messages_key)
        stored = read_step(runner, saver_of(configurable), step)
        runner.refuse(check_stored(message, stored, messages_key=messages_key))
        results = runner.run_calls(
            message.tool_calls, thread_id=step.thread_id, message_id=message.id,
            continuity_namespace=step.continuity_namespace,
        )  # fmt: skip
        return {messages_key: [tool_message(result) for result in results]}

    return governed_tools


def agoverned_langgraph_tools(
    runner: AsyncGovernedToolRunner, *, messages_key: str = "messages", untested_langgraph: Untested = "refuse"
) -> AsyncNode:
    """Make the same node for graphs that are awaited; see `governed_langgraph_tools`."""
    if not isinstance(runner, AsyncGovernedToolRunner):
        raise TypeError("This node needs an AsyncGovernedToolRunner.")
    admit_version(runner, "langgraph", untested=untested_langgraph)

    async def governed_tools(state: Any, config: RunnableConfig) -> dict[str, Any]:
        configurable = config.get("configurable", {})
        step = admitted_step(runner, configurable, is_async=True)
        message = last_message(runner, state, messages_key)
        stored = await aread_step(runner, saver_of(configurable), step)
        runner.refuse(check_stored(message, stored, messages_key=messages_key))
        results = await runner.run_calls(
            message.tool_calls, thread_id=step.thread_id, message_id=message.id,
            continuity_namespace=step.continuity_namespace,
        )  # fmt: skip
        return {messages_key: [tool_message(result) for result in results]}

    return governed_tools


def admit_version(runner: ToolRunner, library: str, *, untested: Untested) -> None:
    """Refuse a library that is not tested, or warn where the application accepts it."""
    installed = version(library)
    runner.refuse(check_version(library, installed, untested=untested))
    if not is_tested(library, installed):
        warnings.warn(
            f"{library} {installed} is not tested: nothing proves that a tool call is stored before its effect "
            "and is the same call when the graph is resumed. An effect may happen twice.",
            UntestedVersionWarning,
            stacklevel=3,
        )


def admitted_step(runner: ToolRunner, configurable: Mapping[str, Any], *, is_async: bool) -> Step:
    """Return the step that the node began from, if the configuration may be run under; raises `RecoveryBlocked`."""
    runner.refuse(check_config(configurable, is_async=is_async))
    step = step_of(configurable)
    if isinstance(step, Refusal):
        raise runner.refused(step)
    return step


def last_message(runner: ToolRunner, state: Any, messages_key: str) -> Any:
    """Return the last message of a state, an assistant message with an id; raises `RecoveryBlocked`."""
    messages = state.get(messages_key) if isinstance(state, Mapping) else getattr(state, messages_key, None)
    message = messages[-1] if messages else None
    runner.refuse(check_message(message))
    return message


def read_step(runner: ToolRunner, saver: Any, step: Step) -> Any:
    """Read a step back from where it is stored; raises `RecoveryBlocked` if nothing is stored for good there."""
    kind = saver_kind(saver)
    if kind is not None and kind.is_sqlite:
        with saver.lock:
            rows = [saver.conn.execute(pragma).fetchone() for pragma in _PRAGMAS]
        runner.refuse(check_sqlite(rows[0][2], rows[1][0], rows[2][0]))
    elif kind is not None:
        # Its own way to its connection, which knows of pools, pipelines and its lock.
        with saver._cursor() as cursor:  # noqa: SLF001
            is_idle = _is_idle(cursor)
            cursor.execute(_SHOW)
            row = cursor.fetchone()
        runner.refuse(check_postgresql(row["synchronous_commit"], is_idle=is_idle))
    return saver.get_tuple(step.config)


async def aread_step(runner: ToolRunner, saver: Any, step: Step) -> Any:
    """Do as `read_step` with a saver that is awaited."""
    kind = saver_kind(saver)
    if kind is not None and kind.is_sqlite:
        rows = []
        async with saver.lock:
            for pragma in _PRAGMAS:
                async with saver.conn.execute(pragma) as cursor:
                    rows.append(await cursor.fetchone())
        runner.refuse(check_sqlite(rows[0][2], rows[1][0], rows[2][0]))
    elif kind is not None:
        async with saver._cursor() as cursor:  # noqa: SLF001
            is_idle = _is_idle(cursor)
            await cursor.execute(_SHOW)
            row = await cursor.fetchone()
        runner.refuse(check_postgresql(row["synchronous_commit"], is_idle=is_idle))
    return await saver.aget_tuple(step.config)


def tool_message(result: CallResult) -> ToolMessage:
    """Return the message of one result. Its id is made of the work's key: the same result is the same message."""
    return ToolMessage(
        content=result.content, name=result.name, tool_call_id=result.call_id, id=f"tool-{result.workflow_key}",
        status="error" if result.is_error else "success",
    )  # fmt: skip


def _is_idle(cursor: Any) -> bool:
    return str(cursor.connection.info.transaction_status.name) == "IDLE"


_PRAGMAS = ("PRAGMA database_list", "PRAGMA synchronous", "PRAGMA journal_mode")
_SHOW = "SHOW synchronous_commit"
