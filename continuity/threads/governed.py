"""Tools with effects: what a model sees of them, and what AtMem runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import StructuredTool

from continuity.integrations.registry import RegisteredTool


@dataclass(frozen=True, slots=True)
class GovernedTool:
    """A tool whose every call is a governed operation: one effect, whatever dies meanwhile.

    Attributes:
        registered: What runs, and what its destination can do. Its `arguments` are what the model must fill in.
        description: What the model is told of it.
        approval: Ask a person about each call before anything is begun.
    """

    registered: RegisteredTool
    description: str
    approval: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return self.registered.name

    def tool(self) -> StructuredTool:
        """Return what the model sees. It is never run itself: what governs it runs what is registered."""
        schema: Any = self.registered.arguments
        if schema is None:
            schema = {"type": "object", "properties": {}}
        if isinstance(schema, Mapping):
            schema = {"title": self.name, "description": self.description, **schema}
        return StructuredTool(name=self.name, description=self.description, args_schema=schema, func=_never)


def _never(**_: Any) -> None:
    raise RuntimeError("A governed tool runs through AtMem alone.")
