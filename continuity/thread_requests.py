"""What travels about threads: requests of people, applications and thread workers, checked field by field.

As in `continuity.wire`: frozen dataclasses with a strict ``from_json``; unknown fields are refused, ``null`` in an
optional field means absent, nothing is coerced. What is a secret, or was said by somebody, shows in no repr.

The file is one table of types, and longer than others for that reason: positions, what agents declare, requests of
clients, requests of workers, and at the end what reads their members.

Source: threads.md, "Paths" and "Rules".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from continuity import limits
from continuity.decisions.threads import bounds, schemas
from continuity.decisions.threads.entries import ENTRIES, OUTCOMES, Entry, EntryKind, Shape
from continuity.decisions.threads.states import Control, RequestKind, ThreadState
from continuity.errors import MalformedError, TooLargeError
from continuity.jsontext import canonical_bytes
from continuity.members import is_blank
from continuity.wire import IDENTIFIER, Fields

SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")
"""256 random bits as base64url, chosen by the worker that claims."""
ITEM_ID: Final = re.compile(rf"[A-Za-z0-9_.:-]{{1,{bounds.ITEM_ID_CHARS}}}")
"""Ids of messages, tool calls and tasks, which libraries choose."""
SCOPES: Final = ("own", "workspace")
_POSITION: Final = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a journal, ``<epoch>-<seq>``: everything up to and with `seq` has been read."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        """Write it as the wire does."""
        return f"{self.epoch}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one; raises `MalformedError`."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise MalformedError("after must be a position, <epoch>-<seq>.")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class AgentDeclaration:
    """What a worker says of an agent that it runs.

    Attributes:
        name: Identifier; the credential of the worker names it.
        controls: What clients may do while it runs.
        state_keys: Keys of its state that clients may see.
        is_public: Any signed-in person and any application of the workspace may use it.
        principals: Who may use it otherwise: usernames, and principal_ids of applications.
    """

    name: str
    controls: frozenset[Control] = frozenset()
    state_keys: tuple[str, ...] = ()
    is_public: bool = False
    principals: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: object, *, at: str = "") -> Self:
        """Check one declaration; raises `MalformedError`."""
        fields = Fields(value, at=at)
        declaration = cls(
            name=fields.identifier("name"),
            controls=frozenset(
                Control(word) for word in _words(fields, "controls", most=len(Control), holds=set(Control).__contains__)
            ),
            state_keys=_words(fields, "state_keys", most=bounds.STATE_KEYS, holds=_is_identifier),
            is_public=fields.optional_boolean("public"),
            principals=_words(fields, "principals", most=bounds.PRINCIPALS_PER_AGENT, holds=_is_identifier),
        )
        fields.finish()
        return declaration

    def to_json(self) -> dict[str, Any]:
        """Return what ``from_json`` reads, lists in a fixed order."""
        return {
            "name": self.name,
            "controls": sorted(control.value for control in self.controls),
            "state_keys": sorted(self.state_keys),
            "public": self.is_public,
            "principals": sorted(self.principals),
        }


@dataclass(frozen=True, slots=True)
class DeclareAgents:
    """``POST /v1/threads/agents``: a worker says which agents it runs, and what of them clients may use."""

    agents: tuple[AgentDeclaration, ...]

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        items = _list(fields, "agents", most=bounds.AGENTS_PER_WORKER)
        fields.finish()
        agents = tuple(AgentDeclaration.from_json(item, at=f"agents[{n}]") for n, item in enumerate(items))
        if len({agent.name for agent in agents}) != len(agents):
            raise fields.fail("agents", "agents with distinct names")
        return cls(agents)


@dataclass(frozen=True, slots=True)
class NewThread:
    """``POST /v1/threads``.

    Attributes:
        request_id: Identifier of this request: the same again gets the first receipt.
        name: Identifier, unique for workspace, owner and agent.
        agent: Name of an agent that a worker has declared.
    """

    request_id: str
    name: str
    agent: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(fields.identifier("request_id"), fields.identifier("name"), fields.identifier("agent"))
        fields.finish()
        return request

    def body(self) -> dict[str, Any]:
        """Return what two requests of one request_id must have in common."""
        return {"name": self.name, "agent": self.agent}


@dataclass(frozen=True, slots=True)
class SayRequest:
    """``POST …/messages``, ``…/steer`` and ``…/follow-ups``.

    Attributes:
        request_id: Identifier of this request.
        content: Text, or the object that the agent takes as its input; at most 64 KiB in canonical form.
    """

    request_id: str
    content: str | Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError` or `TooLargeError`."""
        fields = Fields(value)
        content = fields.need("content")
        is_text = isinstance(content, str) and not is_blank(content)
        if not is_text and not (isinstance(content, Mapping) and content):
            raise fields.fail("content", "text, or an object that is not empty")
        request = cls(fields.identifier("request_id"), content)
        fields.finish()
        _require_size(content, "content")
        return request

    def body(self) -> dict[str, Any]:
        """Return what two requests of one request_id must have in common."""
        return {"content": self.content}


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """``POST …/stop`` and ``…/resume``.

    Attributes:
        request_id: Identifier of this request.
        revision: The thread's revision that the caller saw; None acts on whatever is there.
    """

    request_id: str
    revision: int | None = None

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(fields.identifier("request_id"), fields.optional_count("revision"))
        fields.finish()
        return request

    def body(self) -> dict[str, Any]:
        """Return what two requests of one request_id must have in common."""
        return {"revision": self.revision}


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """``POST …/waiting/{waiting_id}/reply``.

    Attributes:
        request_id: Identifier of this request.
        revision: The revision of the waiting request that is answered.
        reply: Any JSON value, null included, that the request's schema allows.
    """

    request_id: str
    revision: int
    reply: Any = field(repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError` or `TooLargeError`."""
        fields = Fields(value)
        if not isinstance(value, Mapping) or "reply" not in value:
            raise fields.fail("reply", "there, null where that is the reply")
        request = cls(fields.identifier("request_id"), fields.count("revision"), fields.take("reply"))
        fields.finish()
        _require_size(request.reply, "reply")
        return request

    def body(self) -> dict[str, Any]:
        """Return what two replies must have in common to be the same."""
        return {"revision": self.revision, "reply": self.reply}


@dataclass(frozen=True, slots=True)
class ListThreads:
    """What a list of threads is asked for.

    Attributes:
        limit: At most so many, 1 to 200.
        cursor: Where to go on, from the list before.
        state: Only threads in this state.
        scope: ``own``, or ``workspace``: all that a person may see.
    """

    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None
    state: ThreadState | None = None
    scope: str = "own"

    @classmethod
    def from_query(cls, given: Mapping[str, str]) -> Self:
        """Read the parameters of a query; raises `MalformedError`."""
        if not given.keys() <= {"limit", "cursor", "state", "scope"}:
            raise MalformedError("The query may hold only: limit, cursor, state, scope.")
        text = given.get("limit", str(limits.PAGE_DEFAULT))
        if not re.fullmatch("[0-9]{1,3}", text) or not 1 <= int(text) <= limits.PAGE_MAX:
            raise MalformedError(f"limit must be a whole number from 1 to {limits.PAGE_MAX}.")
        state, scope = given.get("state"), given.get("scope", "own")
        if state is not None and state not in set(ThreadState):
            raise MalformedError(f"state must be one of {', '.join(ThreadState)}.")
        if scope not in SCOPES:
            raise MalformedError("scope must be own or workspace.")
        return cls(int(text), given.get("cursor"), None if state is None else ThreadState(state), scope)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """``POST /v1/threads/claims``.

    Attributes:
        request_id: Identifier of this request, fresh for each claim.
        secret: 256 random bits as 43 characters of base64url; only its hash is stored.
        agents: Only runs of these agents; empty for all that the credential names.
    """

    request_id: str
    secret: str = field(repr=False)
    agents: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        agents = _words(fields, "agents", most=bounds.AGENTS_PER_WORKER, holds=_is_identifier)
        request = cls(fields.identifier("request_id"), _secret(fields), agents)
        fields.finish()
        return request


@dataclass(frozen=True, slots=True)
class Hold:
    """What proves a claim, in every write of a worker.

    Attributes:
        generation: Of the claim.
        secret: What the worker chose when it claimed.
        steers_read: Number of the last steer that the run has read, as the replies number them; 0 for none.
    """

    generation: int
    secret: str = field(repr=False)
    steers_read: int = 0

    @classmethod
    def take(cls, fields: Fields) -> Self:
        """Read it from the members of a request; raises `MalformedError`."""
        return cls(fields.count("generation"), _secret(fields), fields.optional_count("steers_read") or 0)


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """``POST …/runs/{run_id}/heartbeat``: keep a live claim for another 60 s."""

    hold: Hold

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        request = cls(Hold.take(fields))
        fields.finish()
        return request


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """``POST …/runs/{run_id}/append``: 1 to 100 records, all of them or none."""

    request_id: str
    hold: Hold
    entries: tuple[Entry, ...] = field(repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError` or `TooLargeError`."""
        fields = Fields(value)
        request = cls(fields.identifier("request_id"), Hold.take(fields), _entries(fields))
        fields.finish()
        if not request.entries:
            raise fields.fail("records", f"a list of 1 to {bounds.RECORDS_PER_WRITE} records")
        return request

    def body(self) -> dict[str, Any]:
        """Return what two requests of one request_id must have in common, but for the claim."""
        return {"records": [entry.to_json() for entry in self.entries]}


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """One question that a run ends with.

    Attributes:
        task: Id of the graph's task that asks.
        ordinal: Which interrupt of that task, from 0.
        kind: Approval, or a typed reply.
        schema: What a reply must be (`continuity.decisions.threads.schemas`).
        shown: What a person is shown to decide by; any JSON object.
    """

    task: str
    ordinal: int
    kind: RequestKind
    schema: Mapping[str, Any] = field(repr=False)
    shown: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, value: object, *, at: str = "") -> Self:
        """Check one question; raises `MalformedError` or `TooLargeError`."""
        fields = Fields(value, at=at)
        kind = fields.need("kind")
        if kind not in set(RequestKind):
            raise fields.fail("kind", " or ".join(RequestKind))
        request = cls(
            task=_item_id(fields, "task"), ordinal=fields.count("ordinal"), kind=RequestKind(kind),
            schema=fields.object("schema"), shown=fields.object("shown"),
        )  # fmt: skip
        fields.finish()
        if len(canonical_bytes(request.schema)) > bounds.SCHEMA_BYTES:
            raise TooLargeError(f"{at}.schema must be at most {bounds.SCHEMA_BYTES} bytes in canonical form.")
        schemas.check_schema(request.schema, at=f"{at}.schema")
        _require_size(request.shown, f"{at}.shown")
        return request

    def to_json(self) -> dict[str, Any]:
        """Return what ``from_json`` reads."""
        return {
            "task": self.task, "ordinal": self.ordinal, "kind": self.kind.value, "schema": self.schema,
            "shown": self.shown,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """``POST …/runs/{run_id}/wait``: the run ends with 1 to 32 questions; their last answer starts the next one.

    Attributes:
        steers_unfinished: Numbers of steers that were read by a node which asks, and is entered again from its
            beginning: the next run is handed them again.
    """

    request_id: str
    hold: Hold
    requests: tuple[WaitingRequest, ...] = field(repr=False)
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    steers_unfinished: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError` or `TooLargeError`."""
        fields = Fields(value)
        items = _list(fields, "requests", most=bounds.REQUESTS_PER_WAIT)
        requests = tuple(WaitingRequest.from_json(item, at=f"requests[{n}]") for n, item in enumerate(items))
        if len({(request.task, request.ordinal) for request in requests}) != len(requests):
            raise fields.fail("requests", "questions with distinct places")
        request = cls(
            fields.identifier("request_id"), Hold.take(fields), requests, _entries(fields), _steers_unfinished(fields)
        )
        fields.finish()
        return request

    def body(self) -> dict[str, Any]:
        """Return what two requests of one request_id must have in common, but for the claim."""
        unfinished = {"steers_unfinished": list(self.steers_unfinished)} if self.steers_unfinished else {}
        return {
            "requests": [request.to_json() for request in self.requests],
            "records": [entry.to_json() for entry in self.entries],
            **unfinished,
        }


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """``POST …/runs/{run_id}/settle``: the run has ended; `output` is any JSON value, null for none."""

    request_id: str
    hold: Hold
    output: Any = field(default=None, repr=False)
    entries: tuple[Entry, ...] = field(default=(), repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError` or `TooLargeError`."""
        fields = Fields(value)
        request = cls(fields.identifier("request_id"), Hold.take(fields), fields.take("output"), _entries(fields))
        fields.finish()
        _require_size(request.output, "output")
        return request

    def body(self) -> dict[str, Any]:
        """Return what two requests of one request_id must have in common, but for the claim."""
        return {"output": self.output, "records": [entry.to_json() for entry in self.entries]}


@dataclass(frozen=True, slots=True)
class FailRequest:
    """``POST …/runs/{run_id}/fail``.

    Attributes:
        reason: ``failed``, or ``blocked``: governed work does not let the run go on.
        message: What a person is told; no stack, no secret.
        workflow_id: With ``blocked``: the work to look at.
    """

    request_id: str
    hold: Hold
    reason: str
    message: str = field(repr=False)
    workflow_id: str | None = None
    entries: tuple[Entry, ...] = field(default=(), repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError` or `TooLargeError`."""
        fields = Fields(value)
        reason = fields.need("reason")
        if reason not in {"failed", "blocked"}:
            raise fields.fail("reason", "failed or blocked")
        is_named = fields.take("workflow_id") is not None
        if is_named and reason != "blocked":
            raise fields.fail("workflow_id", "left out unless the reason is blocked")
        request = cls(
            fields.identifier("request_id"), Hold.take(fields), reason,
            fields.text("message", most=limits.REASON_CHARS),
            fields.identifier("workflow_id") if is_named else None, _entries(fields),
        )  # fmt: skip
        fields.finish()
        return request

    def body(self) -> dict[str, Any]:
        """Return what two requests of one request_id must have in common, but for the claim."""
        return {
            "reason": self.reason, "message": self.message, "workflow_id": self.workflow_id,
            "records": [entry.to_json() for entry in self.entries],
        }  # fmt: skip


def _is_identifier(word: str) -> bool:
    return IDENTIFIER.fullmatch(word) is not None


def _words(fields: Fields, name: str, *, most: int, holds: Callable[[str], bool]) -> tuple[str, ...]:
    value = fields.take(name)
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > most:
        raise fields.fail(name, f"a list of at most {most}")
    if not all(isinstance(word, str) and holds(word) for word in value) or len(set(value)) != len(value):
        raise fields.fail(name, "a list of distinct words that this field knows")
    return tuple(value)


def _list(fields: Fields, name: str, *, most: int) -> list[Any]:
    value = fields.need(name)
    if not isinstance(value, list) or not 0 < len(value) <= most:
        raise fields.fail(name, f"a list of 1 to {most}")
    return value


def _secret(fields: Fields) -> str:
    value = fields.need("secret")
    if not isinstance(value, str) or not SECRET.fullmatch(value):
        raise fields.fail("secret", "256 random bits as 43 characters of base64url")
    return value


def _item_id(fields: Fields, name: str) -> str:
    value = fields.need(name)
    if not isinstance(value, str) or not ITEM_ID.fullmatch(value):
        raise fields.fail(name, f"1 to {bounds.ITEM_ID_CHARS} characters of A-Z a-z 0-9 _ . : -")
    return value


def _require_size(value: Any, name: str) -> None:
    if len(canonical_bytes(value)) > bounds.RECORD_BYTES:
        raise TooLargeError(f"{name} must be at most {bounds.RECORD_BYTES} bytes in canonical form.")


def _entries(fields: Fields) -> tuple[Entry, ...]:
    value = fields.take("records")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > bounds.RECORDS_PER_WRITE:
        raise fields.fail("records", f"a list of at most {bounds.RECORDS_PER_WRITE} records")
    return tuple(_entry(item, at=f"records[{n}]") for n, item in enumerate(value))


def _entry(value: object, *, at: str) -> Entry:
    fields = Fields(value, at=at)
    kind = fields.need("kind")
    if kind not in set(EntryKind):
        raise fields.fail("kind", f"one of {', '.join(EntryKind)}")
    data: dict[str, Any] = {}
    for name, part in ENTRIES[EntryKind(kind)].items():
        if part.is_optional and fields.take(name) is None:
            continue
        data[name] = _READ[part.shape](fields, name)
    fields.finish()
    _require_size(data, at)
    return Entry(EntryKind(kind), data)


def _steers_unfinished(fields: Fields) -> tuple[int, ...]:
    found = fields.take("steers_unfinished")
    if found is None:
        return ()
    is_right = isinstance(found, list) and len(found) <= 2 * bounds.STEERS
    if not is_right or not all(type(number) is int and number > 0 for number in found):
        raise fields.fail("steers_unfinished", f"at most {2 * bounds.STEERS} numbers of steers")
    return tuple(found)


def _any(fields: Fields, name: str) -> Any:
    return fields.take(name)


def _text(fields: Fields, name: str) -> str:
    value = fields.need(name)
    if not isinstance(value, str):
        raise fields.fail(name, "text")
    return value


def _outcome(fields: Fields, name: str) -> str:
    value: str = fields.need(name)
    if value not in OUTCOMES:
        raise fields.fail(name, ", ".join(OUTCOMES))
    return value


_READ: Final[dict[Shape, Callable[[Fields, str], Any]]] = {
    Shape.ITEM: _item_id,
    Shape.TEXT: _text,
    Shape.NAME: lambda fields, name: fields.text(name, most=limits.TOOL_CHARS),
    Shape.IDENTIFIER: Fields.identifier,
    Shape.OUTCOME: _outcome,
    Shape.OBJECT: Fields.object,
    Shape.ANY: _any,
}
