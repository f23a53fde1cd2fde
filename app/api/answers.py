"""What the server answers, as OpenAPI shows it. An optional member here is absent and never null.

Clients must take members that are not named here: some may come. Times are Unix seconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from app.paths import WORKFLOW_ID
from continuity.decisions.beginning import ROWS, Action
from continuity.decisions.beginning import Reason as BeginReason
from continuity.decisions.phases import Phase
from continuity.decisions.states import Mode, Outcome, Status

Seconds = float


class AbsentNotNull(GenerateJsonSchema):
    """Writes ``x: T | None = None`` as a `T` that may be absent."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = schema["schema"]
        if schema.get("default", ...) is None and inner["type"] == "nullable":
            return self.generate_inner(inner["schema"])
        return super().default_schema(schema)


class Reply(BaseModel):
    """The object of a reply."""


class BlockingWorkflow(Reply):
    workflow_id: str
    because: Literal["enabled", "uncertain"]


class Blocking(Reply):
    """Unfinished work that needs exact content: the first of it, oldest first; counted to 1,000."""

    count: int
    is_more: bool
    workflows: list[BlockingWorkflow]


class Problem(Reply):
    code: str
    message: str
    workflow_id: str | None = None
    """With 409, the caller's own workflow that is in the way, where there is one."""
    blocking: Blocking | None = None
    """With 409 `capture_in_use`, what needs exact content."""


class Error(Reply):
    """Every reply of 400 and above."""

    error: Problem
    format: Literal["atmem-api-error-v1"]
    request_id: str

    model_config = ConfigDict(json_schema_extra={"example": {
        "error": {"code": "not_found", "message": "There is no such workflow."}, "format": "atmem-api-error-v1",
        "request_id": "req_000000000000000000000000",
    }})  # fmt: skip


class Scope(Reply):
    tenant_id: Literal["local"]
    subject_id: None
    workspace_id: str
    run_id: str


class Assurance(StrEnum):
    """Whose word a saved receipt is."""

    HOST = "host_reported"
    PERSON = "operator_attested"


class Definition(Reply):
    """An operation as it was created, defaults filled in."""

    name: str
    tool: str
    arguments: dict[str, Any]
    capability: Literal["none", "query", "idempotent"] | list[Literal["idempotent", "query"]]
    timeout_seconds: Seconds
    retention_seconds: Seconds
    absence_final_after_seconds: Seconds | None = None


class Attempt(Reply):
    attempt_id: str
    run_id: str
    mode: Mode
    started: Seconds
    renewals: int
    ended: Seconds | None = None
    outcome: Outcome | None = None
    receipt: dict[str, Any] | None = Field(default=None, description="What ended it, unless it ended the operation.")


class LateReceipt(Reply):
    """Evidence that came after its attempt was over; `proved` by the attempt's own token."""

    attempt_id: str
    run_id: str
    received: Seconds
    proved: bool
    receipt: dict[str, Any] | None


class Operation(Definition):
    """An operation's definition and what became of it."""

    operation_id: str
    status: Status
    attempts: list[Attempt]
    receipt: dict[str, Any] | None
    assurance: Assurance | None = None
    first_dispatch: Seconds | None = None
    lease_until: Seconds | None = None
    late_receipts: int
    late: list[LateReceipt]


class Head(Reply):
    format: Literal["atmem-workflow-v1"]
    workflow_id: str = Field(pattern=f"^{WORKFLOW_ID}$")
    workflow_key: str
    scope: Scope
    enabled: bool
    phase: Phase
    creator_id: str
    creator_role: str
    created: Seconds
    revision: int
    clock_high_water: Seconds


class WorkflowView(Head):
    """A workflow with everything that was reported about it."""

    definitions: list[Definition]
    operations: list[Operation]


class Past(Reply):
    """One thing that happened; further members say more about it."""

    seq: int
    event: str
    time: Seconds
    actor: str
    name: str | None = None

    model_config = ConfigDict(extra="allow")


class WorkflowHistory(WorkflowView):
    """The view, and what happened, oldest first."""

    history: list[Past]


_REASONS = "The first that is true, with what it is answered by. " + " ".join(
    f"`{row.reason.value}` ({row.action.value}): {row.when}." for row in ROWS
)


class BeginReply(Reply):
    """What may be done now. A grant brings everything from `tool` to `attempt_id`."""

    action: Action
    reason: BeginReason = Field(description=_REASONS)
    operation_id: str
    revision: int
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    timeout_seconds: Seconds | None = None
    idempotency_key: str | None = None
    lease_token: str | None = None
    lease_until: Seconds | None = None
    run_id: str | None = None
    attempt_id: str | None = None
    receipt: dict[str, Any] | None = None
    assurance: Assurance | None = None

    model_config = ConfigDict(json_schema_extra={"example": {
        "action": "blocked", "reason": "attempt_in_progress", "revision": 2, "lease_until": 1_750_000_120,
        "operation_id": "op_00000000000000000000000000000000",
    }})  # fmt: skip


class CreatedWorkflow(WorkflowView):
    """The view; with `begin` when the request had one."""

    begin: BeginReply | None = None


class SummaryOperation(Reply):
    operation_id: str
    name: str
    status: Status
    attempts: int
    late_receipts: int
    has_receipt: bool


class WorkflowSummary(Head):
    operations: list[SummaryOperation]
    unreadable: Literal[True] | None = Field(
        default=None, description="Its content was damaged: key, creator and operations are left empty."
    )
    key_id: int | None = Field(
        default=None, description="With `unreadable`, the master key that its data key names; null without a data key."
    )


class WorkflowPage(Reply):
    """Newest first."""

    workflows: list[WorkflowSummary]
    next_cursor: str | None = Field(
        description="Where to go on within 15 minutes; null at the end. A search may find few or none and go on."
    )


class OutcomeReply(Reply):
    """Whether the receipt is the attempt's end, or late evidence (`stale_lease`)."""

    accepted: bool
    status: Status
    revision: int
    reason: Literal["stale_lease"] | None = None
    replayed: Literal[True] | None = None

    model_config = ConfigDict(json_schema_extra={"example": {"accepted": True, "status": "completed", "revision": 3}})


class RenewReply(Reply):
    lease_until: Seconds
    revision: int


class ObservationReply(Reply):
    """The event is kept; `replayed` when it was before."""

    accepted: Literal[True]
    replayed: bool

    model_config = ConfigDict(json_schema_extra={"example": {"accepted": True, "replayed": False}})


class DeleteReply(Reply):
    """How many rows of each kind were destroyed."""

    deleted: dict[str, int]

    model_config = ConfigDict(json_schema_extra={"example": {"deleted": {"workflows": 1, "operations": 1}}})


class GrantReply(Reply):
    """The token stands here and nowhere else."""

    principal_id: str
    role: str
    token: str
    expires_at: int
    request_id: str


class RevokeReply(Reply):
    principal_id: str
    revoked: int
    request_id: str


class Account(Reply):
    username: str
    role: Literal["operator", "investigator", "administrator"]
    password_change_required: bool


class Welcome(Reply):
    """A session has begun; its cookie comes with this reply."""

    authenticated: Literal[True]
    csrf_token: str
    expires_at: int
    account: Account


class Farewell(Reply):
    authenticated: Literal[False]


class Health(Reply):
    status: str
    code: str | None = None
