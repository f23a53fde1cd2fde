"""What travels to the server, as OpenAPI shows it: one model a class of `continuity.wire` and `app.auth.requests`.

Nothing is parsed with these. A test compares them with the dataclasses that are, field by field, so that the
document cannot say anything else than the code. In a request ``null`` stands for an absent optional field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from continuity import limits
from continuity.decisions.threads.bounds import AGENTS_PER_WORKER
from continuity.wire import IDENTIFIER, LEASE_TOKEN
from observations.events import (
    AMOUNT_MAX,
    CHARGE_ID_CHARS,
    CHARGE_SOURCE_CHARS,
    MODEL_CHARS,
    PRICE_SOURCE_CHARS,
    TIME_MAX,
    CachedBasis,
    EventName,
)

Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER.pattern}$")]
LeaseToken = Annotated[str, Field(pattern=f"^{LEASE_TOKEN.pattern}$", description="From the begin reply.")]
Reason = Annotated[str, Field(min_length=1, max_length=limits.REASON_CHARS)]
Count = Annotated[int, Field(ge=0, le=limits.INTEGER_MAX)]
Password = Annotated[str, Field(json_schema_extra={"format": "password"})]
Capability = Literal["none", "query", "idempotent"]
CapabilitySet = Annotated[list[Literal["query", "idempotent"]], Field(min_length=1, max_length=2)]


class Request(BaseModel):
    """A body: members that it does not name are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class OperationDefinition(Request):
    """One side-effecting tool call."""

    name: Identifier = Field(description="Unique in its workflow.")
    tool: str = Field(min_length=1, max_length=limits.TOOL_CHARS, description="Printable characters.")
    arguments: dict[str, Any] | None = Field(default=None, description="For life what they are at creation.")
    capability: Capability | CapabilitySet | None = Field(
        default=None, description="What the destination can do: be asked what happened, enforce a key, both, neither."
    )
    timeout_seconds: float | None = Field(default=None, gt=0, le=limits.TIMEOUT_MAX_S)
    retention_seconds: float | None = Field(
        default=None, ge=0, le=limits.RETENTION_MAX_S,
        description="How long the destination keeps the key; with `idempotent` more than the timeout and 30 seconds.",
    )  # fmt: skip
    absence_final_after_seconds: float | None = Field(
        default=None, gt=0, le=limits.ABSENCE_MAX_S,
        description="With `query` only: after this long, what the destination does not know never happened.",
    )  # fmt: skip


class BeginRequest(Request):
    """Ask for the right to attempt an operation. `attempt_id` is new for each call."""

    name: Identifier
    run_id: Identifier
    attempt_id: Identifier

    model_config = ConfigDict(
        json_schema_extra={"example": {"name": "publish", "run_id": "run_1", "attempt_id": "at_1"}}
    )


class CreateWorkflow(Request):
    """Name a workflow and say what it wants to do. The key is used up for ever."""

    workflow_key: Identifier
    operations: list[OperationDefinition] = Field(min_length=1, max_length=limits.OPERATIONS_PER_WORKFLOW)
    activate: bool | None = Field(default=None, description="Start it enabled; acts at creation only.")
    begin: BeginRequest | None = Field(default=None, description="A first begin in the same transaction.")
    only_known: bool | None = Field(
        default=None, description="Find the workflow of this key and create none: 404 `key_not_found` without one."
    )

    model_config = ConfigDict(json_schema_extra={"example": {
        "workflow_key": "publish-my-document",
        "operations": [{
            "name": "publish", "tool": "publish_document", "arguments": {"title": "Report"},
            "capability": "query", "timeout_seconds": 30,
        }],
    }})  # fmt: skip


class OutcomeRequest(Request):
    """What became of one attempt."""

    name: Identifier
    run_id: Identifier
    attempt_id: Identifier
    lease_token: LeaseToken
    receipt: dict[str, Any] = Field(
        description="`outcome` is one of confirmed_succeeded (with operation_id, effect_id, result), unknown, "
        "confirmed_refused (operation_id, reason), not_dispatched, absent (operation_id). At most 64 KiB; further "
        "members are kept."
    )

    model_config = ConfigDict(json_schema_extra={"example": {
        "name": "publish", "run_id": "run_1", "attempt_id": "at_1", "lease_token": "token-of-the-begin-reply",
        "receipt": {
            "outcome": "confirmed_succeeded", "operation_id": "op_00000000000000000000000000000000",
            "effect_id": "document-7", "result": {"url": "https://example.com/7"},
        },
    }})  # fmt: skip


class RenewRequest(Request):
    """Keep a live lease for another 120 seconds, at most ten times."""

    name: Identifier
    run_id: Identifier
    attempt_id: Identifier
    lease_token: LeaseToken

    model_config = ConfigDict(json_schema_extra={"example": {
        "name": "publish", "run_id": "run_1", "attempt_id": "at_1", "lease_token": "token-of-the-begin-reply",
    }})  # fmt: skip


class ConfigureRequest(Request):
    """Enable recovery or pause new attempts."""

    enabled: bool
    revision: Count | None = Field(default=None, description="The one that was seen; people must send it.")

    model_config = ConfigDict(json_schema_extra={"example": {"enabled": True, "revision": 1}})


class AbandonRequest(Request):
    """Stop one operation for good."""

    name: Identifier
    reason: Reason
    revision: Count | None = Field(default=None, description="The one that was seen; people must send it.")

    model_config = ConfigDict(
        json_schema_extra={"example": {"name": "publish", "reason": "No longer wanted.", "revision": 3}}
    )


class AttestedReceipt(Request):
    """What a person saw at the destination."""

    effect_id: str = Field(min_length=1, max_length=limits.EFFECT_ID_CHARS)
    result: Any = None


class ConfirmRequest(Request):
    """A person's word on whether the effect happened."""

    name: Identifier
    happened: bool
    revision: Count
    late_receipts: Count = Field(description="How many the person saw.")
    reason: Reason
    receipt: AttestedReceipt | None = Field(default=None, description="With `happened`: required, without: absent.")

    model_config = ConfigDict(json_schema_extra={"example": {
        "name": "publish", "happened": False, "revision": 4, "late_receipts": 0, "reason": "The folder is empty.",
    }})  # fmt: skip


Amount = Annotated[int, Field(ge=0, le=AMOUNT_MAX)]


class Event(Request):
    """What was seen of an attempt, and what a provider reportedly charged for it. Never any content."""

    format: Literal["atmem.continuity.v1"]
    event_id: Identifier = Field(description="Unique in its scope; the same event may be sent again.")
    workflow_id: Identifier
    operation_id: Identifier
    run_id: Identifier
    attempt_id: Identifier = Field(description="Belongs to one workflow, operation and run.")
    event: EventName
    time: float = Field(ge=0, le=TIME_MAX, description="Unix seconds, as the host says.")
    retry: bool | None = None
    recovery: bool | None = None
    charge_id: str | None = Field(default=None, min_length=1, max_length=CHARGE_ID_CHARS)
    charge_source: str | None = Field(
        default=None, min_length=1, max_length=CHARGE_SOURCE_CHARS, description="With `charge_id`, and only with it."
    )
    cost_microusd: Amount | None = Field(
        default=None, description="Millionths of a US dollar; needs `charge_id` and `price_source`. Absent: not known."
    )
    input_tokens: Amount | None = None
    output_tokens: Amount | None = None
    cached_input_tokens: Amount | None = None
    cached_basis: CachedBasis | None = Field(
        default=None, description="Whether cached tokens are part of the input tokens or come on top."
    )
    price_source: str | None = Field(default=None, min_length=1, max_length=PRICE_SOURCE_CHARS)
    model: str | None = Field(default=None, min_length=1, max_length=MODEL_CHARS)

    model_config = ConfigDict(json_schema_extra={"example": {
        "format": "atmem.continuity.v1", "event_id": "ev_1", "workflow_id": "wf_00000000000000000000000000000000",
        "operation_id": "op_00000000000000000000000000000000", "run_id": "run_1", "attempt_id": "at_1",
        "event": "usage", "time": 1_750_000_000, "charge_id": "resp_1", "charge_source": "my-account",
        "input_tokens": 120, "output_tokens": 30,
    }})  # fmt: skip


class DeleteRequest(Request):
    """Destroy a finished run; `confirmation` is the run_id again."""

    run_id: Identifier
    confirmation: Identifier

    model_config = ConfigDict(json_schema_extra={"example": {
        "run_id": "wf_00000000000000000000000000000000", "confirmation": "wf_00000000000000000000000000000000",
    }})  # fmt: skip


class GrantRequest(Request):
    """A credential to issue."""

    principal_id: Identifier
    role: Literal[
        "evidence_collector", "continuity_host", "continuity_coordinator", "continuity_observer", "thread_worker",
        "thread_application",
    ]  # fmt: skip
    run_id: Identifier | None = Field(default=None, description="A worker's workflow; absent for other roles.")
    workspace_id: Identifier | None = None
    observation_scope: Identifier | None = Field(
        default=None, description="Where an observer's events go; absent for other roles."
    )
    agents: Annotated[list[Identifier], Field(min_length=1, max_length=AGENTS_PER_WORKER)] | None = Field(
        default=None, description="Whose runs a thread worker may claim; absent for other roles."
    )
    expires_in_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = Field(
        default=None, description="90 days when absent."
    )

    model_config = ConfigDict(
        json_schema_extra={"example": {"principal_id": "document-operator", "role": "evidence_collector"}}
    )


class RevokeRequest(Request):
    """Credentials to end."""

    principal_id: Identifier
    workspace_id: Identifier | None = None

    model_config = ConfigDict(json_schema_extra={"example": {"principal_id": "document-operator"}})


class LoginRequest(Request):
    """A username and a password.

    `code` is that of the account's second factor: six digits from the authenticator app, or a recovery code. Without
    one where one is due the answer is 401 `second_factor_required`. An account without a second factor needs none.
    """

    username: str = Field(max_length=256)
    password: Password
    code: str | None = Field(default=None, max_length=64)

    model_config = ConfigDict(
        json_schema_extra={"example": {"username": "administrator", "password": "a long passphrase"}}
    )


class ChangePasswordRequest(Request):
    """The password that was, and the one that shall be."""

    current_password: Password
    new_password: Password

    model_config = ConfigDict(json_schema_extra={"example": {
        "current_password": "a long passphrase", "new_password": "another long passphrase",
    }})  # fmt: skip


class ReauthenticateRequest(Request):
    """The password again."""

    password: Password

    model_config = ConfigDict(json_schema_extra={"example": {"password": "a long passphrase"}})


class LogoutRequest(Request):
    """Nothing."""

    model_config = ConfigDict(json_schema_extra={"example": {}})
