"""What travels to the server about threads, as OpenAPI shows it; see `app.api.schemas`.

One model a class of `continuity.thread_requests`. Nothing is parsed with these.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.api.schemas import Count, Identifier, Reason, Request
from app.api.threads import SUBJECT
from continuity.decisions.threads import bounds
from continuity.decisions.threads.entries import EntryKind
from continuity.decisions.threads.states import Control, RequestKind
from continuity.thread_requests import ITEM_ID, SECRET

ItemId = Annotated[str, Field(pattern=f"^{ITEM_ID.pattern}$")]
Secret = Annotated[
    str, Field(pattern=f"^{SECRET.pattern}$", description="256 random bits as base64url, chosen by who claims.")
]
_SECRET = "A" * 43


class NewThread(Request):
    """Name a conversation. The name is the owner's own, for one agent, and used up for ever."""

    request_id: Identifier = Field(description="Of this request: the same again gets the first receipt.")
    name: Identifier
    agent: Identifier = Field(description="Of an agent that a worker has declared.")
    subject: Annotated[str, Field(pattern=f"^{SUBJECT.pattern}$")] | None = Field(
        default=None,
        description="For whom an application acts; absent for people. The header Atmem-Subject says it too.",
    )

    model_config = ConfigDict(
        json_schema_extra={"example": {"request_id": "rq_1", "name": "order-17", "agent": "support"}}
    )


class SayRequest(Request):
    """Something said to an agent."""

    request_id: Identifier
    content: str | dict[str, Any] = Field(
        description=f"Text, or the object that the agent takes; at most {bounds.RECORD_BYTES >> 10} KiB."
    )

    model_config = ConfigDict(json_schema_extra={"example": {"request_id": "rq_2", "content": "Where is my order?"}})


class ControlRequest(Request):
    """Stop or go on."""

    request_id: Identifier
    revision: Count | None = Field(default=None, description="The thread's revision that was seen.")

    model_config = ConfigDict(json_schema_extra={"example": {"request_id": "rq_3", "revision": 4}})


class ReplyRequest(Request):
    """The answer to a waiting request; admitted once."""

    request_id: Identifier
    revision: Count = Field(description="Of the waiting request that is answered.")
    reply: Any = Field(description='What the request\'s schema allows, exactly: a boolean wait refuses "yes".')

    model_config = ConfigDict(json_schema_extra={"example": {"request_id": "rq_4", "revision": 1, "reply": True}})


class AgentDeclaration(Request):
    """What clients may see of an agent and do while it runs."""

    name: Identifier
    controls: list[Control] | None = None
    state_keys: list[Identifier] | None = None
    public: bool | None = Field(
        default=None, description="Any signed-in person and any application of the workspace may use it."
    )
    principals: list[Identifier] | None = Field(default=None, description="Who may use it otherwise.")


class DeclareAgents(Request):
    """Which agents a worker runs."""

    agents: list[AgentDeclaration] = Field(min_length=1, max_length=bounds.AGENTS_PER_WORKER)

    model_config = ConfigDict(json_schema_extra={"example": {
        "agents": [{"name": "support", "controls": ["steer", "stop"], "state_keys": ["todos"], "public": True}],
    }})  # fmt: skip


class ClaimRequest(Request):
    """Ask for a run to work on. The same request_id and secret return the same claim."""

    request_id: Identifier
    secret: Secret
    agents: list[Identifier] | None = Field(default=None, description="Only runs of these; absent for all.")

    model_config = ConfigDict(json_schema_extra={"example": {"request_id": "rq_5", "secret": _SECRET}})


class Held(Request):
    """What proves a claim."""

    generation: Count
    secret: Secret
    steers_read: Count | None = Field(default=None, description="Number of the last steer that the run has read.")


class HeartbeatRequest(Held):
    """Keep a live claim for another 60 seconds."""

    model_config = ConfigDict(json_schema_extra={"example": {"generation": 1, "secret": _SECRET}})


class Entry(Request):
    """One record of a worker; the members beside `kind` are those of its kind (docs/threads.md)."""

    kind: EntryKind

    model_config = ConfigDict(extra="allow")


Entries = Annotated[list[Entry], Field(max_length=bounds.RECORDS_PER_WRITE)]


class AppendRequest(Held):
    """Write records, all of them or none."""

    request_id: Identifier
    records: Annotated[list[Entry], Field(min_length=1, max_length=bounds.RECORDS_PER_WRITE)]

    model_config = ConfigDict(json_schema_extra={"example": {
        "request_id": "rq_6", "generation": 1, "secret": _SECRET,
        "records": [{"kind": "message_started", "message_id": "m-1"}],
    }})  # fmt: skip


class WaitingRequest(Request):
    """One question that a run ends with."""

    task: ItemId
    ordinal: Count
    kind: RequestKind
    schema_: dict[str, Any] = Field(alias="schema", description="What a reply must be: a strict part of JSON Schema.")
    shown: dict[str, Any] = Field(description="What a person is shown to decide by.")


class WaitRequest(Held):
    """End a run with questions."""

    request_id: Identifier
    requests: list[WaitingRequest] = Field(min_length=1, max_length=bounds.REQUESTS_PER_WAIT)
    records: Entries | None = None
    steers_unfinished: list[Annotated[int, Field(ge=1)]] | None = Field(
        default=None, max_length=2 * bounds.STEERS,
        description="Numbers of steers that a node has read which asks: the next run is handed them again.",
    )  # fmt: skip

    model_config = ConfigDict(json_schema_extra={"example": {
        "request_id": "rq_7", "generation": 1, "secret": _SECRET,
        "requests": [{
            "task": "t-1", "ordinal": 0, "kind": "approval", "schema": {"type": "boolean"},
            "shown": {"question": "Cancel order 17?"},
        }],
    }})  # fmt: skip


class SettleRequest(Held):
    """End a run with its output."""

    request_id: Identifier
    output: Any = Field(default=None, description="Any JSON value.")
    records: Entries | None = None

    model_config = ConfigDict(
        json_schema_extra={"example": {"request_id": "rq_8", "generation": 1, "secret": _SECRET, "output": "Done."}}
    )


class FailRequest(Held):
    """End a run that failed, or that governed work does not let go on."""

    request_id: Identifier
    reason: Literal["failed", "blocked"]
    message: Reason = Field(description="What a person is told; no stack, no secret.")
    workflow_id: Identifier | None = Field(default=None, description="With `blocked`: the work to look at.")
    records: Entries | None = None

    model_config = ConfigDict(json_schema_extra={"example": {
        "request_id": "rq_9", "generation": 1, "secret": _SECRET, "reason": "failed", "message": "The model is down.",
    }})  # fmt: skip
