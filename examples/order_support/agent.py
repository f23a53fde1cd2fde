"""An agent that answers questions about orders and cancels them, once a person has said yes.

``atmem threads worker examples.order_support.agent:agent`` runs it; see the README beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langchain.agents.middleware import TodoListMiddleware
from langchain.tools import ToolRuntime, tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore
from pydantic import BaseModel, Field

from continuity.integrations import RegisteredTool
from continuity.threads import Chat, ClientPolicy, GovernedTool, Limits, define_agent
from examples.order_support import shop
from examples.order_support.model import ScriptedModel

NAME = "order_support"


class Question(BaseModel):
    """What the agent takes."""

    message: str = Field(min_length=1, max_length=2_000)


class Answer(BaseModel):
    """What the agent gives."""

    answer: str = Field(min_length=1)


class Order(BaseModel):
    """Which order a tool is about."""

    order: str = Field(pattern="^[0-9]{1,6}$", description="The number of the order.")


@tool(args_schema=Order)
def lookup_order(order: str) -> dict[str, str]:
    """Look at an order. It reads alone, so that to read twice does no harm and nothing governs it."""
    return shop.look_up(order)


@tool
def order_status(order: str, runtime: ToolRuntime) -> dict[str, object]:
    """Say how far an order is, and how often that was asked: LangGraph's store remembers it beyond the thread."""
    seen = runtime.store.get(("orders", order), "asked") if runtime.store else None
    times = 1 + (seen.value["times"] if seen else 0)
    if runtime.store:
        runtime.store.put(("orders", order), "asked", {"times": times})
    return {**shop.look_up(order), "asked": times}


cancel_order = GovernedTool(
    # The books know each operation, so that a cancellation whose receipt was lost is found and not done again.
    RegisteredTool(
        "cancel_order", shop.cancel, shop.find,
        destination="shop", capability="query", absence_final_after_seconds=1, arguments=Order,
    ),
    "Cancel an order for good. A person is asked first.",
    approval=True,
)  # fmt: skip


@contextmanager
def checkpoints() -> Iterator[SqliteSaver]:
    """Open the agent's steps; the worker closes them once."""
    with SqliteSaver.from_conn_string(str(shop.folder() / "checkpoints.db")) as saver:
        yield saver


@contextmanager
def memory() -> Iterator[SqliteStore]:
    """Open what the agent remembers beyond a thread."""
    with SqliteStore.from_conn_string(str(shop.folder() / "memory.db")) as store:
        store.setup()
        yield store


agent = define_agent(
    name=NAME,
    # What comes in and what goes out is checked against these.
    input=Question,
    output=Answer,
    model=ScriptedModel(),
    instructions="Answer questions about orders. Look at an order before you cancel it.",
    # Only these tools, and what governs the one with an effect.
    tools=[lookup_order, order_status, cancel_order],
    middleware=[TodoListMiddleware()],
    checkpointer=checkpoints,
    store=memory,
    limits=Limits(max_steps=4, max_tool_calls=4, timeout_seconds=60),
    state_profile="agents",
    client=ClientPolicy(public=True, state=("todos",), tools=("lookup_order", "order_status", "cancel_order")),
    chat=Chat("message", "answer"),
    controls=("steer", "follow-up", "stop", "approve"),
)
