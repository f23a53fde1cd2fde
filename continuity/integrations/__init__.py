"""Governed tool calls that a model chooses: a registry, a runner, and what connects them to LangGraph.

Without LangGraph installed::

    RegisteredTool(name, execute, query=None, *, destination="", capability="none", timeout_seconds=30,
                   retention_seconds=0, absence_final_after_seconds=None, arguments=None, retired=False)
    GovernedToolRunner(client, tools, *, namespace, enabled=False)          # client: ContinuityClient
        .run_calls(calls, *, thread_id, message_id, continuity_namespace="") -> list[CallResult]
    AsyncGovernedToolRunner(client, tools, *, namespace, enabled=False)     # client: AsyncContinuityClient
        await .run_calls(...)                                               # the same
    CallResult(call_id, name, content, is_error)
    workflow_key(*, namespace, thread_id, continuity_namespace, message_id, call_id) -> str

With the extra ``langgraph``::

    governed_langgraph_tools(runner, *, messages_key="messages", untested_langgraph="refuse")    # node(state, config)
    agoverned_langgraph_tools(runner, *, messages_key="messages", untested_langgraph="refuse")   # async node

With the extra ``langchain`` (LangChain 1.x)::

    GovernedToolsMiddleware(runner, *, unregistered="refuse", untested_langgraph="refuse")       # create_agent

For tools of an MCP server, with any session (its schema needs jsonschema, which the extra ``mcp`` brings)::

    mcp_tool(session, described, *, effect_id, destination, name=None, key_argument=None, query=None,
             refusal=…, confirmed=(), **declared) -> RegisteredTool
    McpQuery(described, arguments, effect_id, confirmed=())

`execute` and `query` are callbacks as `continuity.callbacks.Tool` takes them; for the async runner they may
also be coroutine functions, and ordinary ones run in a worker thread. A definition's ``tool`` is
``name`` or ``name@destination``: a call that was begun against one destination is not run against another.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from continuity.integrations.calls import CallResult
from continuity.integrations.identity import workflow_key
from continuity.integrations.mcp import McpQuery, mcp_tool
from continuity.integrations.registry import RegisteredTool
from continuity.integrations.runner import AsyncGovernedToolRunner, GovernedToolRunner

if TYPE_CHECKING:
    from continuity.integrations.langgraph import (
        UntestedVersionWarning,
        agoverned_langgraph_tools,
        governed_langgraph_tools,
    )
    from continuity.integrations.middleware import GovernedToolsMiddleware

__all__ = [
    "AsyncGovernedToolRunner",
    "CallResult",
    "GovernedToolRunner",
    "GovernedToolsMiddleware",
    "McpQuery",
    "RegisteredTool",
    "UntestedVersionWarning",
    "agoverned_langgraph_tools",
    "governed_langgraph_tools",
    "mcp_tool",
    "workflow_key",
]

_LATER: Final = {
    "GovernedToolsMiddleware": ("middleware", "langchain"),
    "UntestedVersionWarning": ("langgraph", "langgraph"),
    "agoverned_langgraph_tools": ("langgraph", "langgraph"),
    "governed_langgraph_tools": ("langgraph", "langgraph"),
}
"""Names that need more than the base install: the module that holds each, and the extra that brings what it needs."""


def __getattr__(name: str) -> Any:
    """Import what needs an extra when it is asked for, and name the extra where it is missing."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _LATER[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "continuity":
            raise
        raise ImportError(f"{name} needs {error.name}. In the checkout: python -m pip install '.[{extra}]'") from error
