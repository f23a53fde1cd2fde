"""What nodes, tools and middleware say and ask while a worker runs them. Works in any graph; needs LangGraph.

Example, in a node::

    if not approve({"what": "cancel the order", "order": order}):
        return {"answer": "Nothing was cancelled."}

A node is entered again from its beginning when its thread goes on: ask before the effect, never after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

from langgraph.config import get_config, get_stream_writer
from langgraph.types import interrupt
from pydantic import TypeAdapter

from continuity.decisions.threads.schemas import check_schema

T = TypeVar("T")

QUESTION: Final = "atmem-question-v1"
"""Format of the interrupts that `ask` and `approve` make."""
PROGRESS: Final = "atmem-progress-v1"
BOOLEAN: Final[dict[str, Any]] = {"type": "boolean"}


class Current(Protocol):
    """The run that goes on in a context."""

    def steers(self) -> list[Mapping[str, Any]]:
        """Return the steers that were not taken yet."""

    def check(self) -> None:
        """Raise where nothing more may be done for the run."""

    def passed(self, point: str) -> None:
        """Tell whoever traces."""


RUN: ContextVar[Current | None] = ContextVar("atmem_run", default=None)
"""The run that this context works for; None outside of a worker."""


def approve(shown: Mapping[str, Any]) -> bool:
    """Ask a person for a yes or a no; the run ends here, and goes on with the answer.

    Args:
        shown: What there is to decide by: any JSON object.
    """
    return bool(interrupt({"format": QUESTION, "kind": "approval", "schema": BOOLEAN, "shown": dict(shown)}))


def ask(reply: type[T], shown: Mapping[str, Any]) -> T:
    """Ask for a typed reply; the run ends here, and goes on with the answer.

    Args:
        reply: Any type that pydantic knows: a model, ``Literal["yes", "no"]``, ``int``.
        shown: What there is to decide by: any JSON object.

    Raises:
        MalformedError: The type's schema cannot be checked exactly (docs/threads.md, "Replies").
    """
    adapter: TypeAdapter[T] = TypeAdapter(reply)
    schema = adapter.json_schema()
    check_schema(schema)
    answered = interrupt({"format": QUESTION, "kind": "reply", "schema": schema, "shown": dict(shown)})
    return adapter.validate_python(answered)


def steers() -> list[Mapping[str, Any]]:
    """Return what was said to this run since the last look: ``input_id`` and ``content`` each, oldest first.

    An agent of `create_agent` reads them by itself before each model step. In a graph of your own, call it at the
    beginning of the node that asks the model, and put them into the state with `input_id` as the id of the message.
    A node that reads them and then asks a question is entered again from its beginning, and is handed them again.
    """
    run = RUN.get()
    return [] if run is None else run.steers()


def progress(data: Any, *, call_id: str | None = None) -> None:
    """Tell whoever follows the thread how far a node or a tool has come.

    Args:
        data: Any JSON value; clients see it.
        call_id: The tool call that it is about, None for the run as a whole.
    """
    get_stream_writer()({"format": PROGRESS, "data": data, "call_id": call_id})


def tasks_here() -> frozenset[str]:
    """Return the task that this code runs in and those that it is part of; empty outside of a graph."""
    try:
        namespace = str(get_config()["configurable"].get("checkpoint_ns") or "")
    except RuntimeError:
        return frozenset()
    return frozenset(part.rpartition(":")[2] for part in namespace.split("|") if ":" in part)
