"""Tools of an MCP server under governance, from the client's side.

Example::

    described = {tool.name: tool for tool in (await session.list_tools()).tools}
    pay = mcp_tool(
        session, described["pay"], destination="payments.example", effect_id=lambda result: result["payment_id"],
        capability="idempotent", retention_seconds=86_400, key_argument="idempotency_key", confirmed={"idempotent"},
    )
    runner = AsyncGovernedToolRunner(client, [pay], namespace="shop", enabled=True)

Rules:

* What a server says about its tools is a claim. A claim that the application does not confirm grants nothing;
  one that the application confirms and the server does not make is refused, at each start anew.
* ``idempotent`` needs the claim ``idempotentHint`` and an argument that takes the key, which no model can set.
  A tool that is asked what happened needs the claim ``readOnlyHint``.
* An error of a tool or of the session proves nothing: the outcome is unknown, unless the application can read
  from the result that the destination refused.
* Nothing here imports the library mcp: a session is anything with its ``call_tool``, and a tool anything with
  the members of its description, in the spelling of either of the library's generations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from continuity.callbacks import Refused
from continuity.integrations.registry import AnyCallback, RegisteredTool

CLAIMS: Final = {"idempotent": ("idempotent_hint", "idempotentHint"), "read_only": ("read_only_hint", "readOnlyHint")}
"""What an application may confirm, and how a description spells the claim."""

SAID_CHARS: Final = 1_000
"""How much of a tool's error a receipt keeps, for the person who decides."""

Read = Callable[[Any], str | None]
"""Reads something of a result: a JSON value, or the text where the server gives no structured content."""


class Session(Protocol):
    """What is asked of a session; ``mcp.ClientSession`` and ``mcp.Client`` have it."""

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Awaitable[Any]:
        """Call a tool of the server."""


@dataclass(frozen=True, slots=True)
class McpQuery:
    """How to ask an MCP server what became of an operation.

    Attributes:
        described: The tool that is asked, as the server describes it.
        arguments: Makes its arguments of ``(arguments, operation_id, idempotency_key)`` of the operation.
        effect_id: Reads the destination's identifier of the effect; None when it knows of none.
        confirmed: Must hold ``"read_only"``.
    """

    described: Any
    arguments: Callable[[Mapping[str, Any], str, str], dict[str, Any]]
    effect_id: Read
    confirmed: Collection[str] = ()


def mcp_tool(
    session: Session,
    described: Any,
    *,
    effect_id: Read,
    destination: str,
    name: str | None = None,
    key_argument: str | None = None,
    query: McpQuery | None = None,
    refusal: Read = lambda _: None,
    confirmed: Collection[str] = (),
    **declared: Any,
) -> RegisteredTool:
    """Register a tool of an MCP server, for `AsyncGovernedToolRunner`.

    Args:
        session: Where it is called.
        described: The tool as the server describes it.
        effect_id: Reads the destination's identifier of the effect; without one the outcome is unknown.
        destination: See `RegisteredTool`.
        name: What the model calls it; the server's name when left out.
        key_argument: The argument that takes the idempotency key.
        query: How to ask what happened; None where that is not possible.
        refusal: Reads why the destination did nothing for certain; None where it did not say so.
        confirmed: The claims of `CLAIMS` that the application vouches for.
        **declared: ``capability``, ``timeout_seconds``, ``retention_seconds``, ``absence_final_after_seconds``
            and ``retired`` of `RegisteredTool`.

    Raises:
        ValueError: A claim, an argument or a declaration that does not hold; the message says which.
    """
    schema = _member(described, "input_schema", "inputSchema") or {"type": "object"}
    wanted = declared.get("capability", "none")
    check_claims(described, confirmed=confirmed, needs={"idempotent"} if "idempotent" in wanted else set())
    if query is not None:
        check_claims(query.described, confirmed=query.confirmed, needs={"read_only"})
    if "idempotent" in wanted and key_argument is None:
        raise ValueError(f"The MCP tool {described.name!r} needs a key_argument to be idempotent.")
    if key_argument is not None and key_argument not in schema.get("properties", {}):
        raise ValueError(f"The MCP tool {described.name!r} has no argument {key_argument!r}.")

    async def execute(
        arguments: dict[str, Any], operation_id: str, idempotency_key: str, timeout_seconds: float
    ) -> Mapping[str, Any]:
        sent = arguments if key_argument is None else {**arguments, key_argument: idempotency_key}
        async with asyncio.timeout(timeout_seconds):
            result = await session.call_tool(described.name, sent)
        return receipt_of_effect(result, operation_id=operation_id, effect_id=effect_id, refusal=refusal)

    return RegisteredTool(
        name or described.name, execute, None if query is None else _asking(session, query), destination=destination,
        arguments=without_argument(schema, key_argument), **declared,
    )  # fmt: skip


def check_claims(described: Any, *, confirmed: Collection[str], needs: Collection[str]) -> None:
    """Refuse a confirmation without a claim, and a need without a confirmation.

    Args:
        described: The tool as the server describes it.
        confirmed: Names of `CLAIMS` that the application vouches for.
        needs: Names of those without which the tool must not be used so.

    Raises:
        ValueError: The message names the tool and the claim.
    """
    annotations = getattr(described, "annotations", None)
    for claim in sorted({*confirmed, *needs}):
        if claim not in CLAIMS:
            raise ValueError(f"{claim!r} is no claim of an MCP server: {', '.join(CLAIMS)}.")
        if claim not in confirmed:
            raise ValueError(f"The MCP tool {described.name!r} must be confirmed as {claim} by the application.")
        if _member(annotations, *CLAIMS[claim]) is not True:
            raise ValueError(f"The server does not claim that its tool {described.name!r} is {claim}.")


def without_argument(schema: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """Return a JSON Schema that refuses one argument, which is the application's to set."""
    if name is None:
        return dict(schema)
    kept = {key: value for key, value in schema.get("properties", {}).items() if key != name}
    required = [key for key in schema.get("required", ()) if key != name]
    return {**schema, "properties": {**kept, name: False}, "required": required}


def receipt_of_effect(result: Any, *, operation_id: str, effect_id: Read, refusal: Read) -> dict[str, Any]:
    """Return the receipt of a call that was meant to have an effect.

    Args:
        result: What ``call_tool`` returned.
        operation_id: The operation.
        effect_id: See `mcp_tool`.
        refusal: See `mcp_tool`.

    Raises:
        Refused: The destination did nothing, as `refusal` has read.
    """
    value = value_of(result)
    reason = refusal(value)
    if reason:
        raise Refused(reason)
    if is_error(result):
        return {"outcome": "unknown", "operation_id": operation_id, "said": str(value)[:SAID_CHARS]}
    known_as = effect_id(value)
    if not known_as:
        return {"outcome": "unknown", "operation_id": operation_id, "returned": value}
    return {
        "outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": known_as, "result": value,
    }  # fmt: skip


def receipt_of_question(result: Any, *, operation_id: str, effect_id: Read) -> dict[str, Any]:
    """Return the receipt of a call that asked what had happened; see `receipt_of_effect`."""
    value = value_of(result)
    if is_error(result):
        return {"outcome": "unknown", "operation_id": operation_id, "said": str(value)[:SAID_CHARS]}
    known_as = effect_id(value)
    if not known_as:
        return {"outcome": "absent", "operation_id": operation_id}
    return {
        "outcome": "confirmed_succeeded", "operation_id": operation_id, "effect_id": known_as, "result": value,
    }  # fmt: skip


def value_of(result: Any) -> Any:
    """Return the structured content of a result, else its texts, joined by line breaks."""
    structured = _member(result, "structured_content", "structuredContent")
    if structured is not None:
        return structured
    content: Sequence[Any] = getattr(result, "content", None) or ()
    return "\n".join(part.text for part in content if isinstance(getattr(part, "text", None), str))


def is_error(result: Any) -> bool:
    """Say whether a result is an error, or no result of a tool at all."""
    flag = _member(result, "is_error", "isError")
    return flag is not False


def _asking(session: Session, query: McpQuery) -> AnyCallback:
    async def ask(
        arguments: dict[str, Any], operation_id: str, idempotency_key: str, timeout_seconds: float
    ) -> Mapping[str, Any]:
        asked = query.arguments(arguments, operation_id, idempotency_key)
        async with asyncio.timeout(timeout_seconds):
            result = await session.call_tool(query.described.name, asked)
        return receipt_of_question(result, operation_id=operation_id, effect_id=query.effect_id)

    return ask


def _member(described: Any, *spellings: str) -> Any:
    return next((getattr(described, name) for name in spellings if hasattr(described, name)), None)
