"""What travels to the server about evidence, capture and keys, as OpenAPI shows it; see `app.api.schemas`.

One model a class of `continuity.evidence` and `continuity.key_requests`. Nothing is parsed with these.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.api.schemas import Count, Identifier, Request
from continuity import limits
from continuity.evidence import TIME_MAX_S

Moment = Annotated[float, Field(ge=0, le=TIME_MAX_S)]
PageSize = Annotated[int, Field(ge=1, le=limits.PAGE_MAX)]
Passphrase = Annotated[str, Field(json_schema_extra={"format": "password"})]
Position = Annotated[int, Field(ge=0, le=999_999_999)]


class RecordEvidence(Request):
    """One thing that an agent says it did, read or was told."""

    run_id: Identifier = Field(description="The host's own name of the run; no wf_ or er_ id of this server.")
    producer: Identifier
    epoch: Count = Field(description="Which life of the producer; an event_id is unique in one.")
    event_id: Identifier
    kind: Identifier = Field(description="text, tool_call, tool_result, or the host's own word.")
    content: Any = Field(
        description=f"Any JSON but null, at most {limits.EVIDENCE_BYTES >> 10} KiB in canonical form.",
        json_schema_extra={"not": {"type": "null"}},
    )
    time: Moment = Field(description="By the host's clock.")

    model_config = ConfigDict(json_schema_extra={
        "example": {
            "run_id": "run_1", "producer": "agent", "epoch": 1, "event_id": "call_7", "kind": "tool_call",
            "content": {"tool": "search", "arguments": {"for": "reports"}}, "time": 1_750_000_000,
        },
    })  # fmt: skip


class SearchEvidence(Request):
    """The filters of the list; `query` is whole words of the content."""

    limit: PageSize | None = None
    cursor: str | None = None
    run_id: Identifier | None = None
    producer: Identifier | None = None
    kind: Identifier | None = None
    query: str | None = Field(default=None, max_length=limits.EVIDENCE_SEARCH_CHARS)
    since: Moment | None = None
    until: Moment | None = None
    workspace_id: Identifier | None = None

    model_config = ConfigDict(json_schema_extra={"example": {"query": "reports", "kind": "tool_call"}})


class Reconstruct(Request):
    """A page of a run in its order."""

    run_id: Identifier
    limit: PageSize | None = None
    after: Position | None = None

    model_config = ConfigDict(json_schema_extra={"example": {"run_id": "run_1"}})


class ManifestRequest(Request):
    """What would be needed to run it again."""

    run_id: Identifier

    model_config = ConfigDict(json_schema_extra={"example": {"run_id": "run_1"}})


class EncryptedExport(Request):
    """A run or workflow, sealed under a passphrase of 12 to 1,024 characters."""

    run_id: Identifier
    passphrase: Passphrase

    model_config = ConfigDict(
        json_schema_extra={"example": {"run_id": "run_1", "passphrase": "of your own, nobody else's"}}
    )


class PlaintextExport(Request):
    """A run or workflow in the clear; `confirmation` is the run_id again."""

    run_id: Identifier
    confirmation: Identifier

    model_config = ConfigDict(json_schema_extra={"example": {"run_id": "run_1", "confirmation": "run_1"}})


class Retention(Request):
    """One batch of what nothing has touched for so many days."""

    older_than_days: Annotated[int, Field(ge=1, le=limits.RETENTION_MOST_DAYS)]
    kind: Literal["workflows", "evidence", "threads"] = Field(
        description="Of threads, the old records of journals are let go of."
    )
    apply: bool | None = Field(default=None, description="Delete it; otherwise it is only listed.")
    limit: PageSize | None = None
    cursor: str | None = None

    model_config = ConfigDict(json_schema_extra={"example": {"older_than_days": 90, "kind": "workflows"}})


class CaptureMode(Request):
    """What is kept of what agents do: exact content, its size and digest, nothing."""

    capture_mode: Literal["full", "metadata", "off"]

    model_config = ConfigDict(json_schema_extra={"example": {"capture_mode": "full"}})


class LockVault(Request):
    """Stop everything sealed; `confirmation` is the word lock."""

    confirmation: Literal["lock"]
    passphrase: Passphrase | None = Field(
        default=None,
        description="Of 12 to 1,024 characters; needed where `passphrase_needed.lock` says so. It alone unlocks.",
    )

    model_config = ConfigDict(
        json_schema_extra={"example": {"confirmation": "lock", "passphrase": "of your own, nobody else's"}}
    )


class UnlockVault(Request):
    """Let everything go on."""

    passphrase: Passphrase | None = Field(
        default=None, description="That of the lock or of the vault, where `passphrase_needed.unlock` says so."
    )

    model_config = ConfigDict(json_schema_extra={"example": {"passphrase": "of your own, nobody else's"}})


class RotateVault(Request):
    """Put a new master key in place of the one that there is; `confirmation` is the word rotate."""

    confirmation: Literal["rotate"]
    passphrase: Passphrase | None = Field(
        default=None, description="That of the vault, where `passphrase_needed.rotate` says so."
    )

    model_config = ConfigDict(json_schema_extra={"example": {"confirmation": "rotate"}})
