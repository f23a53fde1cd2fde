"""What to do about the tool calls of one assistant message, decided before any of them is begun.

Rules:

* A message is refused as a whole, before its first call, when it holds too many calls, a call without an
  identifier of its own, or a tool that is not registered: nothing that might have been done already is
  ever turned into an error message that lets a model try again under another id.
* What a model wrote wrongly is told to the model, unless the call has been recorded already, as before its
  tool's schema was narrowed: such work is gone on with, and executes nothing any more.
* What the destination refused for certain is told to the model too. Everything else raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from continuity.callbacks import NotDispatched, Refused
from continuity.errors import ConflictError, ContinuityError, MalformedError
from continuity.integrations.identity import workflow_key
from continuity.integrations.registry import CALLS_MOST, AnyCallback, RegisteredTool
from continuity.jsontext import canonical_bytes, loads_strict
from continuity.stops import RecoveryBlocked
from continuity.wire import CreateWorkflow

_LIST: Final = "/resume-work"
_CHANGED: Final = "definition_conflict"
NAME_CHARS: Final = 100
"""How much of an unknown tool's name is repeated: a model may write anything."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing may be begun: a code of docs/langgraph.md, and one sentence on what was met."""

    code: str
    because: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where calls come from; with a call's id it makes the identity of the work.

    Attributes:
        namespace: The application's.
        thread_id: The conversation.
        message_id: The assistant message.
        continuity_namespace: The node's, may be empty.
    """

    namespace: str
    thread_id: str
    message_id: str
    continuity_namespace: str = ""

    def key_of(self, call_id: str) -> str:
        """Return the workflow key of the call with this id."""
        return workflow_key(
            namespace=self.namespace, thread_id=self.thread_id, message_id=self.message_id,
            continuity_namespace=self.continuity_namespace, call_id=call_id,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call came to.

    Attributes:
        call_id: Identifier of the call.
        name: The tool's name.
        content: Text for the model: the result itself if it is a string, else its JSON.
        is_error: The call did nothing, and `content` says why.
        workflow_key: The key of the work.
    """

    call_id: str
    name: str
    content: str = field(repr=False)
    is_error: bool
    workflow_key: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The two callbacks of a tool as a client takes them."""

    execute: AnyCallback
    query: AnyCallback | None


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call that may be begun, or whose arguments are at fault.

    Attributes:
        call_id: Identifier of the call.
        tool: What it calls.
        workflow_key: The key of its work.
        definition: Its one operation; without its arguments where they cannot be recorded.
        fault: What is wrong with its arguments; empty when nothing is.
        is_recordable: The server would take its arguments.
    """

    call_id: str
    tool: RegisteredTool
    workflow_key: str
    definition: Mapping[str, Any] = field(repr=False)
    fault: str = ""
    is_recordable: bool = True

    @property
    def callbacks(self) -> dict[str, Bound]:
        """The callbacks by the tool's name of the definition; at fault or retired, it executes nothing."""
        execute = _retired if self.tool.retired else self.tool.execute
        return {self.tool.tool: Bound(self._unfit if self.fault else execute, self.tool.query)}

    def with_fault(self, fault: str) -> PlannedCall:
        """Return the same call with arguments that are at fault, if `fault` says so."""
        return replace(self, fault=fault)

    def faulty(self) -> CallResult:
        """Return what the model is told of arguments that are at fault, where the call was never recorded."""
        return self._error(f"The arguments do not fit the tool, and nothing was done. {self.fault}")

    def recorded_as(self, workflow_id: str, *, url: str) -> str:
        """Return the id of the work that was found for a call at fault, if it may be gone on with.

        Raises:
            RecoveryBlocked: ``call_changed``: what was recorded cannot be these arguments.
        """
        if not self.is_recordable:
            raise RecoveryBlocked("call_changed", workflow_id, page=page_of(url, workflow_id), because=self.fault)
        return workflow_id

    def succeeded(self, result: Any) -> CallResult:
        """Return what the model is told of a result."""
        content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        return CallResult(self.call_id, self.tool.name, content, is_error=False, workflow_key=self.workflow_key)

    def settled(self, error: ContinuityError, *, url: str) -> CallResult:
        """Return what the model is told of a run that raised, or raise what a person must see.

        Args:
            error: What the client raised.
            url: The server's address.

        Raises:
            RecoveryBlocked: For everything that is not certain to have done nothing for good.
            ContinuityError: `error` itself, where no rule is known for it.
        """
        if isinstance(error, RecoveryBlocked):
            if error.code == "refused_by_destination":
                return self._error(f"The destination refused, and nothing was done. {error.because}".rstrip())
            if self.tool.retired and error.code == "not_dispatched":
                raise RecoveryBlocked("tool_retired", error.workflow_id, page=error.page) from error
            raise error
        if isinstance(error, ConflictError):
            code = "call_changed" if error.code == _CHANGED else error.code
            page = page_of(url, error.workflow_id)
            raise RecoveryBlocked(code, error.workflow_id, page=page, because=error.message) from error
        raise error

    def _unfit(self, *_: Any) -> Mapping[str, Any]:
        raise Refused(f"The tool does not take these arguments any more. {self.fault}")

    def _error(self, content: str) -> CallResult:
        return CallResult(self.call_id, self.tool.name, content, is_error=True, workflow_key=self.workflow_key)


def check_calls(
    calls: Sequence[Mapping[str, Any]], registry: Mapping[str, RegisteredTool], *, may_pass: bool = False
) -> Refusal | None:
    """Say why a message's calls must not be begun, None if each may be.

    Args:
        calls: ``{id, name, args}`` each.
        registry: The tools by name.
        may_pass: Calls of tools that are not registered are somebody else's.
    """
    ids = [call.get("id") for call in calls]
    if any(not isinstance(call_id, str) or not call_id for call_id in ids):
        return Refusal("call_id_missing", "A tool call of the message has no id.")
    if len(set(ids)) < len(ids):
        return Refusal("call_id_duplicate", "Two tool calls of the message have one id.")
    strangers = [call.get("name") for call in calls if _tool_of(call, registry) is None]
    if strangers and not may_pass:
        return Refusal("tool_not_registered", f"The tool {strangers[0]!r:.{NAME_CHARS}} is not registered.")
    if len(calls) - len(strangers) > CALLS_MOST:
        return Refusal("too_many_calls", f"The message holds more than {CALLS_MOST} governed calls.")
    return None


def plan_calls(
    calls: Iterable[Mapping[str, Any]], registry: Mapping[str, RegisteredTool], *, origin: Origin
) -> tuple[PlannedCall, ...]:
    """Make the plan of the calls that `check_calls` let pass, in their order, those of unregistered tools left out."""
    found = ((call, _tool_of(call, registry)) for call in calls)
    return tuple(_planned(call, tool, origin) for call, tool in found if tool is not None)


def page_of(url: str, workflow_id: str = "") -> str:
    """Return the address of the page of a workflow, or of the list of work where none is named."""
    return f"{url}{_LIST}/{workflow_id}" if workflow_id else f"{url}{_LIST}"


def _tool_of(call: Mapping[str, Any], registry: Mapping[str, RegisteredTool]) -> RegisteredTool | None:
    name = call.get("name")
    return registry.get(name) if isinstance(name, str) else None


def _planned(call: Mapping[str, Any], tool: RegisteredTool, origin: Origin) -> PlannedCall:
    arguments = call.get("args")
    key = origin.key_of(call["id"])
    if not isinstance(arguments, Mapping):
        return _unrecordable(call["id"], tool, key, "They must be a JSON object.")
    definition = tool.definition(arguments)
    fault = _fault_of(key, definition)
    if fault:
        return _unrecordable(call["id"], tool, key, fault)
    # Only now: arguments that are nested without end would exhaust whoever validates them.
    return PlannedCall(call["id"], tool, key, definition, tool.check(arguments))


def _unrecordable(call_id: str, tool: RegisteredTool, key: str, fault: str) -> PlannedCall:
    return PlannedCall(call_id, tool, key, tool.definition({}), fault, is_recordable=False)


def _fault_of(key: str, definition: Mapping[str, Any]) -> str:
    """Say why the server would refuse the arguments; the rest of the definition was checked at registration."""
    try:
        CreateWorkflow.from_json(loads_strict(canonical_bytes({"workflow_key": key, "operations": [definition]})))
    except MalformedError as error:
        return error.message
    return ""


def _retired(*_: Any) -> Mapping[str, Any]:
    raise NotDispatched("The tool is retired.")
