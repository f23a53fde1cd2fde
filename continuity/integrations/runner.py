"""Runs the tool calls of one assistant message, one after another, each at most once for ever.

Example::

    runner = GovernedToolRunner(client, [RegisteredTool("pay", pay, find)], namespace="shop", enabled=True)
    results = runner.run_calls(message.tool_calls, thread_id="order-17", message_id=message.id)

`client` holds a coordinator credential. Nothing is governed that is not registered, and nothing runs
unless `enabled` is True. The message must be stored before its calls are run: a message that is lost with
its id is written again under another id, and that is new work.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from continuity.callbacks import Callbacks, Tool
from continuity.errors import ContinuityError
from continuity.integrations.calls import (
    CallResult,
    Origin,
    PlannedCall,
    Refusal,
    check_calls,
    page_of,
    plan_calls,
)
from continuity.integrations.registry import RegisteredTool, registry_of
from continuity.stops import RecoveryBlocked

NAMESPACE_CHARS: Final = 256


class Client(Protocol):
    """What a runner asks of `continuity.client.ContinuityClient`."""

    url: str

    def run_new_operation(self, workflow_key: str, operation: Mapping[str, Any], tools: Mapping[str, Callbacks]) -> Any:
        """Create and bring to its result."""

    def find_workflow(self, workflow_key: str, operations: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return what is there of a key; create nothing."""

    def run_operation(self, workflow_id: str, name: str, tools: Mapping[str, Callbacks]) -> Any:
        """Bring what is there to its result."""


class AsyncClient(Protocol):
    """What a runner asks of `continuity.client.AsyncContinuityClient`."""

    url: str

    async def run_new_operation(self, workflow_key: str, operation: Mapping[str, Any], tools: Mapping[str, Any]) -> Any:
        """Create and bring to its result."""

    async def find_workflow(self, workflow_key: str, operations: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return what is there of a key; create nothing."""

    async def run_operation(self, workflow_id: str, name: str, tools: Mapping[str, Any]) -> Any:
        """Bring what is there to its result."""


class ToolRunner:
    """What both runners share: the registry, and every decision.

    Attributes:
        tools: The registered tools by name.
        namespace: The application's name for its governed calls.
        url: The server's address.
    """

    def __init__(self, tools: Iterable[RegisteredTool], *, url: str, namespace: str, enabled: bool) -> None:
        """Keep what is decided by; nothing is asked.

        Raises:
            ValueError: Two tools of one name, or a namespace that is empty or too long.
        """
        if not 0 < len(namespace) <= NAMESPACE_CHARS:
            raise ValueError(f"A namespace has 1 to {NAMESPACE_CHARS} characters.")
        self.tools: Mapping[str, RegisteredTool] = registry_of(tools)
        self.namespace = namespace
        self.url = url
        self._enabled = enabled

    def plan(
        self,
        calls: Sequence[Mapping[str, Any]],
        *,
        thread_id: str,
        message_id: str,
        continuity_namespace: str = "",
        may_pass: bool = False,
    ) -> tuple[PlannedCall, ...]:
        """Decide about the calls of one message; nothing is begun.

        Args:
            calls: All tool calls of the message, ``{id, name, args}`` each, in their order.
            thread_id: The conversation.
            message_id: Identifier of the message.
            continuity_namespace: Tells several governed nodes apart.
            may_pass: Leave out calls of tools that are not registered instead of refusing the message.

        Raises:
            RecoveryBlocked: The message must not be run; nothing has happened.
        """
        if self._enabled is not True:
            self.refuse(Refusal("integration_not_enabled"))
        if not thread_id:
            self.refuse(Refusal("thread_missing"))
        if not message_id:
            self.refuse(Refusal("message_without_id"))
        refusal = check_calls(calls, self.tools, may_pass=may_pass)
        if refusal is not None:
            self.refuse(refusal)
        origin = Origin(self.namespace, thread_id, message_id, continuity_namespace)
        return plan_calls(calls, self.tools, origin=origin)

    def refuse(self, refusal: Refusal | None) -> None:
        """Raise `RecoveryBlocked` for a refusal; do nothing for None."""
        if refusal is not None:
            raise self.refused(refusal)

    def refused(self, refusal: Refusal) -> RecoveryBlocked:
        """Return the error of a refusal; no work has been looked up for it."""
        return RecoveryBlocked(refusal.code, "", page=page_of(self.url), because=refusal.because)


class GovernedToolRunner(ToolRunner):
    """Runs calls with a `ContinuityClient`. Threads may share it."""

    def __init__(
        self, client: Client, tools: Iterable[RegisteredTool], *, namespace: str, enabled: bool = False
    ) -> None:
        """Keep client and registry; nothing is asked.

        Args:
            client: With a coordinator credential.
            tools: All tools that may be governed; each name once.
            namespace: 1 to 256 characters, the same for ever: another one is new work.
            enabled: The application's word that it wants this. Without it nothing runs.

        Raises:
            ValueError: See `ToolRunner`.
            TypeError: A callback is a coroutine function.
        """
        super().__init__(tools, url=client.url, namespace=namespace, enabled=enabled)
        self._client = client
        for tool in self.tools.values():
            if any(inspect.iscoroutinefunction(callback) for callback in (tool.execute, tool.query)):
                raise TypeError(f"The tool {tool.name!r} is for AsyncGovernedToolRunner: it has a coroutine function.")

    def run_calls(
        self, calls: Sequence[Mapping[str, Any]], *, thread_id: str, message_id: str, continuity_namespace: str = ""
    ) -> list[CallResult]:
        """Bring every call of a stored message to its result, in order; see `ToolRunner.plan` for the arguments.

        Returns:
            One result a call, in the order of the calls.

        Raises:
            RecoveryBlocked: Stopped safely. Calls before it have their saved results, later ones were not begun.
            ContinuityError: The server refused or was not reached; as above.
        """
        plan = self.plan(
            calls, thread_id=thread_id, message_id=message_id, continuity_namespace=continuity_namespace
        )  # fmt: skip
        return [self.run(planned) for planned in plan]

    def run(self, planned: PlannedCall) -> CallResult:
        """Bring one planned call to its result; raises as `run_calls`."""
        tools = {name: Tool(bound.execute, bound.query) for name, bound in planned.callbacks.items()}  # type: ignore[arg-type]
        try:
            if planned.fault:
                known = self._client.find_workflow(planned.workflow_key, [planned.definition])
                if known is None:
                    return planned.faulty()
                workflow_id = planned.recorded_as(known["workflow_id"], url=self.url)
                result = self._client.run_operation(workflow_id, planned.tool.name, tools)
            else:
                result = self._client.run_new_operation(planned.workflow_key, planned.definition, tools)
        except ContinuityError as error:
            return planned.settled(error, url=self.url)
        return planned.succeeded(result)


class AsyncGovernedToolRunner(ToolRunner):
    """Runs calls with an `AsyncContinuityClient`. Tasks may share it."""

    def __init__(
        self, client: AsyncClient, tools: Iterable[RegisteredTool], *, namespace: str, enabled: bool = False
    ) -> None:
        """Keep client and registry; see `GovernedToolRunner`. Callbacks may be coroutine functions."""
        super().__init__(tools, url=client.url, namespace=namespace, enabled=enabled)
        self._client = client

    async def run_calls(
        self, calls: Sequence[Mapping[str, Any]], *, thread_id: str, message_id: str, continuity_namespace: str = ""
    ) -> list[CallResult]:
        """Bring every call of a stored message to its result; see `GovernedToolRunner.run_calls`."""
        plan = self.plan(
            calls, thread_id=thread_id, message_id=message_id, continuity_namespace=continuity_namespace
        )  # fmt: skip
        return [await self.run(planned) for planned in plan]

    async def run(self, planned: PlannedCall) -> CallResult:
        """Bring one planned call to its result; raises as `run_calls`."""
        tools, definition = planned.callbacks, planned.definition
        try:
            if planned.fault:
                known = await self._client.find_workflow(planned.workflow_key, [definition])
                if known is None:
                    return planned.faulty()
                workflow_id = planned.recorded_as(known["workflow_id"], url=self.url)
                result = await self._client.run_operation(workflow_id, planned.tool.name, tools)
            else:
                result = await self._client.run_new_operation(planned.workflow_key, definition, tools)
        except ContinuityError as error:
            return planned.settled(error, url=self.url)
        return planned.succeeded(result)
