"""What stands behind a middleware in LangChain's chain of tool-call wrappers, and never sees a governed call.

Rules:

* A governed call is run without its handler. Whatever stands behind is passed over: a person who would have
  been asked is not asked, what would have been forbidden is done, what would have been imitated is real.
* So such a chain is refused, but for the few that can only repeat a call or word its error.
* Approval of a whole message is given before its tools run, and its edits are read from the stored step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware

_PACKAGE: Final = "langchain.agents.middleware"
_HARMLESS: Final = frozenset({
    f"{_PACKAGE}.tool_retry.ToolRetryMiddleware", f"{_PACKAGE}.tool_error.ToolErrorMiddleware",
})  # fmt: skip
_APPROVAL: Final = f"{_PACKAGE}.human_in_the_loop.HumanInTheLoopMiddleware"


def passed_over(handler: Callable[..., Any]) -> list[str]:
    """Return the names of the middleware behind a handler that might decide about a call."""
    return [type(one).__name__ for one in _wrappers(handler) if not _is_harmless(one)]


def _is_harmless(middleware: AgentMiddleware) -> bool:
    cls = type(middleware)
    name = f"{cls.__module__}.{cls.__qualname__}"
    # Per call, it asks in its wrapper; a version that knows no modes has no wrapper at all.
    return name in _HARMLESS or (name == _APPROVAL and getattr(middleware, "interrupt_mode", "batched") == "batched")


def _wrappers(handler: Callable[..., Any]) -> Iterator[AgentMiddleware]:
    """Find whose methods a handler has closed over: LangChain says it in no other way."""
    waiting: list[Any] = [handler]
    known: set[int] = set()
    while waiting:
        function = waiting.pop()
        if id(function) in known:
            continue
        known.add(id(function))
        owner = getattr(function, "__self__", None)
        if isinstance(owner, AgentMiddleware):
            yield owner
        elif hasattr(function, "__wrapped__"):
            waiting.append(function.__wrapped__)
        else:
            waiting += [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
