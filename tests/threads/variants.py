"""The example's agent with its steps elsewhere, and its twin for event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import TodoListMiddleware
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from continuity.integrations import RegisteredTool
from continuity.threads import Agent, GovernedTool, define_agent
from examples.order_support import agent as example
from examples.order_support import shop


async def cancel(*given: Any) -> dict[str, Any]:
    """Do as the shop does."""
    return shop.cancel(*given)


async def find(*given: Any) -> dict[str, Any]:
    """Do as the shop does."""
    return shop.find(*given)


@asynccontextmanager
async def checkpoints() -> AsyncIterator[AsyncSqliteSaver]:
    """Open the steps on the file of the example."""
    async with AsyncSqliteSaver.from_conn_string(str(shop.folder() / "checkpoints.db")) as saver:
        await saver.conn.execute("PRAGMA synchronous=FULL")
        yield saver


def on_postgresql(agent: Agent, address: str) -> Agent:
    """Return an agent with its steps in PostgreSQL, whose tables are there."""
    # Only where there is one.
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # noqa: PLC0415

    kind: Any = AsyncPostgresSaver if agent.resources["checkpointer"] is checkpoints else PostgresSaver
    return replace(
        agent, resources={**agent.resources, "checkpointer": lambda: kind.from_conn_string(address)},
    )  # fmt: skip


def awaited() -> Agent:
    """Return the example's agent for an event loop; it remembers nothing beyond a thread."""
    shown = example.cancel_order.registered
    registered = RegisteredTool(
        shown.name, cancel, find, destination=shown.destination, capability=shown.capability,
        absence_final_after_seconds=shown.absence_final_after_seconds, arguments=shown.arguments,
    )  # fmt: skip
    made = example.agent
    return define_agent(
        name=made.name, input=made.input, output=made.output, model=example.ScriptedModel(), instructions="Be brief.",
        tools=[
            example.lookup_order, example.order_status,
            GovernedTool(registered, example.cancel_order.description, approval=True),
        ],
        middleware=[TodoListMiddleware()], checkpointer=checkpoints, limits=made.limits, client=made.client,
        chat=made.chat, controls=tuple(made.controls),
    )  # fmt: skip
