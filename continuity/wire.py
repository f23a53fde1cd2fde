"""What travels: requests and the definition of an operation, checked field by field.

Every class here is a frozen dataclass with ``from_json`` (strict: unknown fields are refused, ``null``
in an optional field means absent, nothing is coerced) and, where a client sends it, ``to_json``.
``app/api/schemas.py`` mirrors them for OpenAPI; a test compares the fields.

The file is one table of types, and longer than others for that reason. `Fields`, which reads a member of an object,
stands at its head; a definition, then each request with what only its own fields must be, a list last.

Source: wire.md "Paths"; operations.md "Words" and "Limits".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from continuity import limits
from continuity.decisions.phases import Phase
from continuity.errors import MalformedError
from continuity.jsontext import canonical_bytes

IDENTIFIER: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.IDENTIFIER_CHARS}}}")
"""Identifiers that hosts choose: workflow_key, name, run_id, attempt_id."""

LEASE_TOKEN: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
LIST_PARAMETERS: Final = ("limit", "cursor", "state", "workspace", "key", "q")
"""What the query of a list may hold."""

_PAGE_SIZE: Final = re.compile(r"[0-9]{1,3}")
_CAPABILITIES: Final = ("idempotent", "query")


class Fields:
    """Reads the members of one JSON object and refuses what it was not asked for."""

    def __init__(self, value: object, *, at: str = "") -> None:
        """Take the object; `at` is the path that messages put before a field's name."""
        if not isinstance(value, Mapping):
            raise MalformedError(f"{at or 'The body'} must be an object.")
        self._value = {key: child for key, child in value.items() if child is not None}
        self._at = f"{at}." if at else ""
        self._asked: set[str] = set()
        self._given = set(value)

    def take(self, name: str) -> Any:
        """Return the member, None when absent or null."""
        self._asked.add(name)
        return self._value.get(name)

    def need(self, name: str) -> Any:
        """Return the member, which must be there."""
        value = self.take(name)
        if value is None:
            raise MalformedError(f"{self._at}{name} is required.")
        return value

    def fail(self, name: str, must: str) -> MalformedError:
        """Make the error that says what `name` must be."""
        return MalformedError(f"{self._at}{name} must be {must}.")

    def identifier(self, name: str) -> str:
        """Return a required identifier (1 to 128 of ``A-Z a-z 0-9 _ -``)."""
        value = self.need(name)
        if not isinstance(value, str) or not IDENTIFIER.fullmatch(value):
            raise self.fail(name, "1 to 128 characters of A-Z a-z 0-9 _ -")
        return value

    def text(self, name: str, *, most: int) -> str:
        """Return a required string of 1 to `most` characters that is not all blank."""
        value = self.need(name)
        if not isinstance(value, str) or not value.strip() or len(value) > most:
            raise self.fail(name, f"text of 1 to {most} characters")
        return value

    def boolean(self, name: str) -> bool:
        """Return a required boolean; 1 and "true" are none."""
        value = self.need(name)
        if not isinstance(value, bool):
            raise self.fail(name, "true or false")
        return value

    def optional_boolean(self, name: str) -> bool:
        """Return a boolean, False when absent."""
        return False if self.take(name) is None else self.boolean(name)

    def count(self, name: str) -> int:
        """Return a required whole number that is not negative; true is none."""
        value = self.need(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.fail(name, "a whole number, 0 or more")
        return value

    def optional_count(self, name: str) -> int | None:
        """Return a whole number, None when absent."""
        return None if self.take(name) is None else self.count(name)

    def seconds(self, name: str, *, default: float, must: str, holds: Callable[[float], bool]) -> float:
        """Return a number of seconds for which `holds` is true; `must` words it."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fail(name, must)
        if not holds(value):
            raise self.fail(name, must)
        return int(value) if float(value).is_integer() else value

    def object(self, name: str) -> Mapping[str, Any]:
        """Return a required object."""
        value = self.need(name)
        if not isinstance(value, Mapping):
            raise self.fail(name, "an object")
        return value

    def finish(self) -> None:
        """Refuse members that nothing asked for."""
        unknown = sorted(self._given - self._asked)
        if unknown:
            # The name of an unknown field is the caller's own text: show it only when it is an identifier.
            name = unknown[0] if IDENTIFIER.fullmatch(unknown[0]) else "(unprintable)"
            raise MalformedError(f"{self._at}{name} is not a field of this request.")


@dataclass(frozen=True, slots=True)
class OperationDefinition:
    """One side-effecting tool call as the host defined it and a person reviews it.

    Attributes:
        name: Identifier, unique in its workflow.
        tool: 1 to 256 printable characters.
        arguments: JSON object handed to the tool, for life the canonical bytes of its creation.
        capability: Sorted subset of ``idempotent``, ``query``; empty for a destination that can do neither.
        timeout_seconds: 0 < t ≤ 90.
        retention_seconds: How long the destination honours the idempotency key; 0 when it has none.
        absence_final_after_seconds: After this many seconds a destination that knows nothing of an
            effect will never show it; only with ``query``.
    """

    name: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    capability: tuple[str, ...] = ()
    timeout_seconds: float = limits.TIMEOUT_DEFAULT_S
    retention_seconds: float = 0
    absence_final_after_seconds: float | None = None

    @classmethod
    def from_json(cls, value: object, *, at: str = "operation") -> Self:
        """Check one definition; `at` is its path in the request.

        Raises:
            MalformedError: A field is missing, unknown or not what it must be.
        """
        fields = Fields(value, at=at)
        timeout = fields.seconds(
            "timeout_seconds", default=limits.TIMEOUT_DEFAULT_S,
            must=f"a number of seconds above 0, at most {limits.TIMEOUT_MAX_S}",
            holds=lambda s: 0 < s <= limits.TIMEOUT_MAX_S,
        )  # fmt: skip
        capability = _capability(fields)
        definition = cls(
            name=fields.identifier("name"),
            tool=_tool(fields),
            arguments={} if fields.take("arguments") is None else fields.object("arguments"),
            capability=capability,
            timeout_seconds=timeout,
            retention_seconds=_retention(fields, timeout, is_idempotent="idempotent" in capability),
            absence_final_after_seconds=_absence(fields, can_query="query" in capability),
        )
        fields.finish()
        return definition

    def to_json(self) -> dict[str, Any]:
        """Return the canonical definition: defaults filled in, one capability as its string."""
        value: dict[str, Any] = {
            "name": self.name,
            "tool": self.tool,
            "arguments": self.arguments,
            "capability": capability_to_json(self.capability),
            "timeout_seconds": self.timeout_seconds,
            "retention_seconds": self.retention_seconds,
        }
        if self.absence_final_after_seconds is not None:
            value["absence_final_after_seconds"] = self.absence_final_after_seconds
        return value


def capability_to_json(capability: tuple[str, ...]) -> str | list[str]:
    """Return ``"none"``, the one capability as a string, or the sorted list."""
    if not capability:
        return "none"
    return capability[0] if len(capability) == 1 else list(capability)


def _capability(fields: Fields) -> tuple[str, ...]:
    value = fields.take("capability")
    names = [value] if isinstance(value, str) else value
    if names is None or names == ["none"]:
        return ()
    if not isinstance(names, list) or not names or any(name not in _CAPABILITIES for name in names):
        raise fields.fail("capability", '"none", "query", "idempotent" or a list of the last two')
    if len(set(names)) != len(names):
        raise fields.fail("capability", "a list without repeats")
    return tuple(sorted(names))


def _tool(fields: Fields) -> str:
    value = fields.need("tool")
    if not isinstance(value, str) or not 0 < len(value) <= limits.TOOL_CHARS or not value.isprintable():
        raise fields.fail("tool", f"1 to {limits.TOOL_CHARS} printable characters")
    return value


def _retention(fields: Fields, timeout: float, *, is_idempotent: bool) -> float:
    retention = fields.seconds(
        "retention_seconds", default=0,
        must=f"a number of seconds from 0 to {limits.RETENTION_MAX_S}",
        holds=lambda s: 0 <= s <= limits.RETENTION_MAX_S,
    )  # fmt: skip
    if is_idempotent and not retention > timeout + limits.LANDING_MARGIN_S:
        raise fields.fail(
            "retention_seconds",
            f"more than timeout_seconds + {limits.LANDING_MARGIN_S} when the capability is idempotent",
        )
    return retention


def _absence(fields: Fields, *, can_query: bool) -> float | None:
    if fields.take("absence_final_after_seconds") is None:
        return None
    if not can_query:
        raise fields.fail("absence_final_after_seconds", "left out unless the capability has query")
    return fields.seconds(
        "absence_final_after_seconds", default=0,
        must=f"a number of seconds above 0, at most {limits.ABSENCE_MAX_S}",
        holds=lambda s: 0 < s <= limits.ABSENCE_MAX_S,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """``POST …/begin``: ask for the right to attempt operation `name`."""

    name: str
    run_id: str
    attempt_id: str

    @classmethod
    def from_json(cls, value: object, *, at: str = "") -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value, at=at)
        request = cls(
            name=fields.identifier("name"),
            run_id=fields.identifier("run_id"),
            attempt_id=fields.identifier("attempt_id"),
        )
        fields.finish()
        return request


@dataclass(frozen=True, slots=True)
class CreateWorkflow:
    """``POST /v1/continuity``: name a workflow and say what it wants to do.

    Attributes:
        workflow_key: Identifier, unique in its workspace and namespace for ever.
        operations: 1 to 200 definitions with distinct names, in their order.
        activate: Acts at creation only.
        begin: Optional first begin in the same transaction.
        only_known: Find the workflow of this key and create none.
    """

    workflow_key: str
    operations: tuple[OperationDefinition, ...]
    activate: bool = False
    begin: BeginRequest | None = None
    only_known: bool = False

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(
            workflow_key=fields.identifier("workflow_key"),
            operations=_operations(fields),
            activate=fields.optional_boolean("activate"),
            begin=None if fields.take("begin") is None else BeginRequest.from_json(fields.take("begin"), at="begin"),
            only_known=fields.optional_boolean("only_known"),
        )
        fields.finish()
        names = {operation.name for operation in request.operations}
        if request.begin is not None and request.begin.name not in names:
            raise fields.fail("begin.name", "the name of one of the operations")
        if len(request.definition_bytes()) > limits.DEFINITION_BYTES:
            raise fields.fail("operations", f"at most {limits.DEFINITION_BYTES} bytes in canonical form")
        return request

    def definitions(self) -> tuple[bytes, ...]:
        """Return the canonical definition of each operation, in their order."""
        return tuple(canonical_bytes(operation.to_json()) for operation in self.operations)

    def definition_bytes(self) -> bytes:
        """Return the canonical definition; two definitions are the same when these bytes are."""
        return b"[" + b",".join(self.definitions()) + b"]"


def _operations(fields: Fields) -> tuple[OperationDefinition, ...]:
    value = fields.need("operations")
    if not isinstance(value, list) or not 0 < len(value) <= limits.OPERATIONS_PER_WORKFLOW:
        raise fields.fail("operations", f"a list of 1 to {limits.OPERATIONS_PER_WORKFLOW} operations")
    operations = tuple(
        OperationDefinition.from_json(item, at=f"operations[{index}]") for index, item in enumerate(value)
    )
    if len({operation.name for operation in operations}) != len(operations):
        raise fields.fail("operations", "operations with distinct names")
    return operations


@dataclass(frozen=True, slots=True)
class OutcomeRequest:
    """``POST …/outcome``: what became of one attempt.

    Attributes:
        lease_token: The secret of the begin reply; shown in no repr.
        receipt: A JSON object of at most 64 KiB in canonical form; what it means is decided by
            ``continuity.decisions.receipts``.
    """

    name: str
    run_id: str
    attempt_id: str
    lease_token: str = field(repr=False)
    receipt: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(
            name=fields.identifier("name"),
            run_id=fields.identifier("run_id"),
            attempt_id=fields.identifier("attempt_id"),
            lease_token=_lease_token(fields),
            receipt=fields.object("receipt"),
        )
        fields.finish()
        if len(canonical_bytes(request.receipt)) > limits.RECEIPT_BYTES:
            raise fields.fail("receipt", f"at most {limits.RECEIPT_BYTES} bytes in canonical form")
        return request


@dataclass(frozen=True, slots=True)
class RenewRequest:
    """``POST …/renew``: keep a live lease for another 120 s."""

    name: str
    run_id: str
    attempt_id: str
    lease_token: str = field(repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(
            name=fields.identifier("name"),
            run_id=fields.identifier("run_id"),
            attempt_id=fields.identifier("attempt_id"),
            lease_token=_lease_token(fields),
        )
        fields.finish()
        return request


def _lease_token(fields: Fields) -> str:
    value = fields.need("lease_token")
    if not isinstance(value, str) or not LEASE_TOKEN.fullmatch(value):
        raise fields.fail("lease_token", "the lease token of the begin reply")
    return value


@dataclass(frozen=True, slots=True)
class ConfigureRequest:
    """``POST …/configure``: enable recovery or pause new attempts. People must send `revision`."""

    enabled: bool
    revision: int | None = None

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(enabled=fields.boolean("enabled"), revision=fields.optional_count("revision"))
        fields.finish()
        return request


@dataclass(frozen=True, slots=True)
class AbandonRequest:
    """``POST …/abandon``: stop one operation for good. People must send `revision`."""

    name: str
    reason: str = field(repr=False)
    revision: int | None = None

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(
            name=fields.identifier("name"),
            reason=fields.text("reason", most=limits.REASON_CHARS),
            revision=fields.optional_count("revision"),
        )
        fields.finish()
        return request


@dataclass(frozen=True, slots=True)
class ConfirmRequest:
    """``POST …/confirm``: a person attests whether the effect happened.

    Attributes:
        happened: True completes the operation, False allows exactly one further execute.
        revision: The workflow's revision that the person saw.
        late_receipts: The count of late receipts that the person saw.
        effect_id: With `happened`: what identifies the effect at the destination.
        result: With `happened`: any JSON value, stored as the receipt's result.
    """

    name: str
    happened: bool
    revision: int
    late_receipts: int
    reason: str = field(repr=False)
    effect_id: str | None = field(default=None, repr=False)
    result: Any = field(default=None, repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        happened = fields.boolean("happened")
        effect_id, result = _attested(fields, happened=happened)
        request = cls(
            name=fields.identifier("name"),
            happened=happened,
            revision=fields.count("revision"),
            late_receipts=fields.count("late_receipts"),
            reason=fields.text("reason", most=limits.REASON_CHARS),
            effect_id=effect_id,
            result=result,
        )
        fields.finish()
        return request


def _attested(fields: Fields, *, happened: bool) -> tuple[str | None, Any]:
    if not happened:
        if fields.take("receipt") is not None:
            raise fields.fail("receipt", "left out when happened is false")
        return None, None
    receipt = Fields(fields.need("receipt"), at="receipt")
    effect_id = receipt.text("effect_id", most=limits.EFFECT_ID_CHARS)
    result = receipt.take("result")
    receipt.finish()
    if len(canonical_bytes({"effect_id": effect_id, "result": result})) > limits.RECEIPT_BYTES:
        raise fields.fail("receipt", f"at most {limits.RECEIPT_BYTES} bytes in canonical form")
    return effect_id, result


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """``POST /v1/evidence/delete``: destroy a finished run.

    Attributes:
        run_id: The workflow_id.
        confirmation: The same again, so that nothing is deleted by a slip.
    """

    run_id: str
    confirmation: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(run_id=fields.identifier("run_id"), confirmation=fields.identifier("confirmation"))
        fields.finish()
        if request.confirmation != request.run_id:
            raise fields.fail("confirmation", "the run_id again")
        return request


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What a list is asked for; every filter may be left out.

    Attributes:
        limit: At most so many, 1 to 200.
        cursor: Where to go on, from the list before.
        phase: Only workflows of this phase.
        workspace: Only this workspace, by name.
        key: Only workflows of exactly this key.
        search: A workflow_id, or whole words that key and operation names must have.
    """

    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None
    phase: Phase | None = None
    workspace: str | None = None
    key: str | None = None
    search: str | None = None

    @property
    def question(self) -> str:
        """Everything the answer depends on but the position."""
        return json.dumps([self.phase, self.workspace, self.key, self.search])

    @classmethod
    def from_query(cls, given: Mapping[str, str]) -> Self:
        """Read the parameters of a query, each of which is there at most once; raises `MalformedError`."""
        unknown = sorted(given.keys() - set(LIST_PARAMETERS))
        if unknown:
            raise MalformedError(f"The query may hold only: {', '.join(LIST_PARAMETERS)}.")
        return cls(
            limit=_page_size(given.get("limit")),
            cursor=given.get("cursor"),
            phase=_phase(given.get("state")),
            workspace=_filter(given, "workspace"),
            key=_filter(given, "key"),
            search=given.get("q"),
        )


def _page_size(text: str | None) -> int:
    if text is None:
        return limits.PAGE_DEFAULT
    if not _PAGE_SIZE.fullmatch(text) or not 1 <= int(text) <= limits.PAGE_MAX:
        raise MalformedError(f"limit must be a whole number from 1 to {limits.PAGE_MAX}.")
    return int(text)


def _phase(text: str | None) -> Phase | None:
    if text is None:
        return None
    if text not in set(Phase):
        raise MalformedError(f"state must be one of {', '.join(Phase)}.")
    return Phase(text)


def _filter(given: Mapping[str, str], name: str) -> str | None:
    text = given.get(name)
    if text is not None and not IDENTIFIER.fullmatch(text):
        raise MalformedError(f"{name} must be 1 to {limits.IDENTIFIER_CHARS} characters of A-Z a-z 0-9 _ -.")
    return text
