"""The tools that a model may call under governance: what each can do is said by the application alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from continuity.errors import MalformedError
from continuity.integrations.arguments import Check, check_of
from continuity.wire import OperationDefinition

CALLS_MOST: Final = 32
"""Governed calls of one assistant message: they run one after another, and each may take its 90 s."""

AnyCallback = Callable[[dict[str, Any], str, str, float], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""``(arguments, operation_id, idempotency_key, timeout_seconds) -> receipt``, or a coroutine function of it."""


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """One tool and what its destination can do.

    Attributes:
        name: The name by which the model calls it: 1 to 128 of ``A-Z a-z 0-9 _ -``.
        execute: Performs the effect; see `continuity.callbacks.Tool`. A coroutine function is for
            `AsyncGovernedToolRunner` alone.
        query: Asks what became of it and never performs it; needed for the capability ``query``.
        destination: Where it acts, in a few printable words: a directory, an account, an address. It is
            part of what is recorded, so that a call begun against one destination never runs against
            another. Never a secret.
        capability: ``"none"``, ``"query"``, ``"idempotent"`` or ``["idempotent", "query"]``: what the
            destination really can do.
        timeout_seconds: Within which a callback ends; more than 0, at most 90.
        retention_seconds: How long the destination enforces a key, for ``idempotent``.
        absence_final_after_seconds: For ``query``: after which a query that finds nothing proves that
            nothing will come. None: never.
        arguments: What the tool takes, see `continuity.integrations.arguments`; None for anything.
        retired: Nothing new is executed. Results are still given back, and what is open can still be asked for.
    """

    name: str
    execute: AnyCallback = field(repr=False)
    query: AnyCallback | None = field(default=None, repr=False)
    destination: str = field(default="", kw_only=True)
    capability: str | Iterable[str] = field(default="none", kw_only=True)
    timeout_seconds: float = field(default=30, kw_only=True)
    retention_seconds: float = field(default=0, kw_only=True)
    absence_final_after_seconds: float | None = field(default=None, kw_only=True)
    arguments: object = field(default=None, kw_only=True, repr=False)
    retired: bool = field(default=False, kw_only=True)
    check: Check = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what could not be recorded or kept.

        Raises:
            ValueError: A name, number or capability that the server would refuse, ``query`` without a
                callback for it, or arguments that are no schema. The message says which.
            TypeError: See `continuity.integrations.arguments.check_of`.
            ImportError: As above.
        """
        if not isinstance(self.capability, str):
            object.__setattr__(self, "capability", tuple(self.capability))
        object.__setattr__(self, "check", check_of(self.arguments))
        try:
            definition = OperationDefinition.from_json(self.definition({}))
        except MalformedError as error:
            raise ValueError(f"The tool {self.name!r}: {error.message}") from error
        if "query" in definition.capability and self.query is None:
            raise ValueError(f"The tool {self.name!r} declares query and has no callback for it.")

    @property
    def tool(self) -> str:
        """What the definition calls the tool: its name, and the destination behind an ``@``."""
        return f"{self.name}@{self.destination}" if self.destination else self.name

    def definition(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the definition of one call, as `ContinuityClient.create_workflow` takes it."""
        made: dict[str, Any] = {
            "name": self.name,
            "tool": self.tool,
            "arguments": dict(arguments),
            "capability": self.capability if isinstance(self.capability, str) else list(self.capability),
            "timeout_seconds": self.timeout_seconds,
            "retention_seconds": self.retention_seconds,
        }
        if self.absence_final_after_seconds is not None:
            made["absence_final_after_seconds"] = self.absence_final_after_seconds
        return made


def registry_of(tools: Iterable[RegisteredTool]) -> dict[str, RegisteredTool]:
    """Return the tools by name; raises `ValueError` for two of one name."""
    registry: dict[str, RegisteredTool] = {}
    for tool in tools:
        if tool.name in registry:
            raise ValueError(f"Two tools are registered as {tool.name!r}.")
        registry[tool.name] = tool
    return registry
