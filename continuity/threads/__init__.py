"""Threads: conversations with agents that survive a reconnect, a restart and a worker that dies.

With requests alone::

    ThreadClient(url, token, *, subject=None)          # for those who talk; `follow` gives every record once
    AsyncThreadClient(url, token, *, subject=None)     # the same for event loops
    WorkerClient(url, token, *, coordinator_token=None)

With the extra ``threads``::

    define_agent(*, name, input, output, model, instructions, tools, middleware, graph, checkpointer, store,
                 limits, state_profile, client, chat, controls) -> Agent
    GovernedTool(registered, description, *, approval=False)
    ThreadWorker(client, [agents]).run()               # and AsyncThreadWorker
    approve(shown) -> bool; ask(type, shown); steers(); progress(data)   # in nodes and tools

What a thread promises, and with which numbers: docs/threads.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from continuity.threads.claims import WorkerClient
from continuity.threads.client import ThreadClient
from continuity.threads.following import Following, Update

if TYPE_CHECKING:
    from continuity.threads.agents import Agent, Chat, ClientPolicy, Limits, define_agent
    from continuity.threads.async_client import AsyncThreadClient
    from continuity.threads.async_worker import AsyncThreadWorker
    from continuity.threads.governed import GovernedTool
    from continuity.threads.words import approve, ask, progress, steers
    from continuity.threads.worker import ThreadWorker

__all__ = [
    "Agent",
    "AsyncThreadClient",
    "AsyncThreadWorker",
    "Chat",
    "ClientPolicy",
    "Following",
    "GovernedTool",
    "Limits",
    "ThreadClient",
    "ThreadWorker",
    "Update",
    "WorkerClient",
    "approve",
    "ask",
    "define_agent",
    "progress",
    "steers",
]

_LATER: Final = {
    **dict.fromkeys(("Agent", "Chat", "ClientPolicy", "Limits", "define_agent"), "agents"),
    **dict.fromkeys(("approve", "ask", "progress", "steers"), "words"),
    "AsyncThreadClient": "async_client",
    "AsyncThreadWorker": "async_worker",
    "GovernedTool": "governed",
    "ThreadWorker": "worker",
}
"""Names that need an event loop or the extra: the module that holds each."""


def __getattr__(name: str) -> Any:
    """Import what needs the extra when it is asked for, and name what is missing."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "continuity":
            raise
        raise ImportError(f"{name} needs {error.name}. In the checkout: python -m pip install '.[threads]'") from error
