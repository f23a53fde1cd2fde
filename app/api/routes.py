"""What the url map does not say of each route of the JSON API, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from app.api import answers, evidence_answers, evidence_schemas, schemas, thread_answers, thread_schemas

_CONTROL: Final = ("workflow_deleted", "stale_revision", "workflow_revision_limit_reached")


@dataclass(frozen=True, slots=True)
class Route:
    """What the url map does not say of a route.

    `conflicts` are the codes of its 409; `needs_vault` routes answer 423 while the vault is locked; `statuses` are
    errors beside those of every route of its kind; `file` is the type of a reply that is no JSON object.
    """

    reply: type[BaseModel] | None
    request: type[BaseModel] | None = None
    conflicts: tuple[str, ...] = ()
    needs_vault: bool = False
    statuses: tuple[str, ...] = ()
    file: str | None = None


_FIND_RUN: Final = ("evidence_deleted", "request_conflict")
_EXPORT: Final = ("workflow_deleted", *_FIND_RUN)
_EVIDENCE_ROUTES: Final[Mapping[str, Route]] = {
    "evidence.record": Route(
        evidence_answers.EvidenceReply, evidence_schemas.RecordEvidence,
        ("event_conflict", "capture_off", "evidence_deleted", "evidence_limit_reached"), needs_vault=True,
    ),
    "evidence.index": Route(evidence_answers.EvidencePage, needs_vault=True),
    "evidence.search": Route(evidence_answers.EvidencePage, evidence_schemas.SearchEvidence, needs_vault=True),
    "evidence.runs": Route(evidence_answers.EvidenceRunPage, needs_vault=True),
    "evidence.show": Route(evidence_answers.EvidenceRunView, conflicts=("evidence_deleted",), needs_vault=True),
    "evidence.reconstruct": Route(
        evidence_answers.EvidenceRunView, evidence_schemas.Reconstruct, _FIND_RUN, needs_vault=True, statuses=("404",)
    ),
    "evidence.manifest": Route(evidence_answers.Manifest, conflicts=("evidence_deleted",), needs_vault=True),
    "evidence.replay_manifest": Route(
        evidence_answers.Manifest, evidence_schemas.ManifestRequest, _FIND_RUN, needs_vault=True, statuses=("404",)
    ),
    "evidence.export_encrypted": Route(
        None, evidence_schemas.EncryptedExport, _EXPORT, needs_vault=True, statuses=("404",),
        file="application/octet-stream",
    ),
    "evidence.export_plaintext": Route(
        None, evidence_schemas.PlaintextExport, _EXPORT, needs_vault=True, statuses=("404",),
        file="application/x-ndjson",
    ),
    "evidence.retain": Route(evidence_answers.RetentionReply, evidence_schemas.Retention, needs_vault=True),
    "capture.show": Route(evidence_answers.CaptureReply, needs_vault=True),
    "capture.change": Route(
        evidence_answers.CaptureReply, evidence_schemas.CaptureMode, ("capture_in_use",), needs_vault=True
    ),
    "keys.show": Route(evidence_answers.VaultSettings),
    # Not `needs_vault`: a vault that is locked stays so. Without the keys of an open one there is nothing to lock.
    "keys.lock": Route(evidence_answers.VaultSettings, evidence_schemas.LockVault, statuses=("423",)),
    "keys.unlock": Route(evidence_answers.VaultSettings, evidence_schemas.UnlockVault),
    "keys.rotate": Route(evidence_answers.VaultSettings, evidence_schemas.RotateVault, needs_vault=True),
}  # fmt: skip

_THREAD: Final = ("thread_deleted", "request_conflict")
_FED: Final = (*_THREAD, "capture_not_full", "clock_moved_backwards")
_CLAIMED: Final = ("claim_lost", "request_conflict", "clock_moved_backwards")
_THREAD_ROUTES: Final[Mapping[str, Route]] = {
    "threads_api.create": Route(
        thread_answers.ThreadReceipt, thread_schemas.NewThread, _FED, needs_vault=True, statuses=("404",)
    ),
    "threads_api.index": Route(thread_answers.ThreadPage, needs_vault=True),
    "threads_api.agents": Route(thread_answers.AgentList, needs_vault=True),
    "threads_api.show": Route(thread_answers.ThreadSnapshot, conflicts=("thread_deleted",), needs_vault=True),
    "threads_api.journal": Route(
        thread_answers.JournalPage, conflicts=("thread_deleted", "cursor_gap"), needs_vault=True
    ),
    "threads_api.history": Route(thread_answers.HistoryPage, conflicts=("thread_deleted",), needs_vault=True),
    "threads_api.receipt": Route(thread_answers.ThreadReceipt, conflicts=("thread_deleted",), needs_vault=True),
    "threads_api.message": Route(
        thread_answers.ThreadReceipt, thread_schemas.SayRequest, (*_FED, "thread_busy", "queue_full"), needs_vault=True
    ),
    "threads_api.steer": Route(
        thread_answers.ThreadReceipt, thread_schemas.SayRequest,
        (*_FED, "control_not_declared", "thread_not_running", "thread_stopping", "queue_full"), needs_vault=True,
    ),
    "threads_api.follow_up": Route(
        thread_answers.ThreadReceipt, thread_schemas.SayRequest, (*_FED, "control_not_declared", "queue_full"),
        needs_vault=True,
    ),
    "threads_api.stop": Route(
        thread_answers.ThreadReceipt, thread_schemas.ControlRequest,
        (*_THREAD, "thread_not_running", "control_not_declared", "stale_revision"), needs_vault=True,
    ),
    "threads_api.resume": Route(
        thread_answers.ThreadReceipt, thread_schemas.ControlRequest, (*_FED, "nothing_to_resume", "stale_revision"),
        needs_vault=True,
    ),
    "threads_api.reply": Route(
        thread_answers.ThreadReceipt, thread_schemas.ReplyRequest,
        (*_FED, "already_answered", "stale_waiting_revision", "waiting_cancelled"), needs_vault=True,
    ),
    "threads_api.delete": Route(
        answers.DeleteReply, conflicts=("thread_deleted", "thread_busy"), needs_vault=True
    ),
    "thread_workers.declare": Route(thread_answers.Declared, thread_schemas.DeclareAgents, needs_vault=True),
    "thread_workers.claim": Route(
        thread_answers.ClaimReply, thread_schemas.ClaimRequest, ("request_conflict", "clock_moved_backwards"),
        needs_vault=True,
    ),
    "thread_workers.heartbeat": Route(
        thread_answers.HoldReply, thread_schemas.HeartbeatRequest, ("claim_lost", "clock_moved_backwards"),
        needs_vault=True,
    ),
    "thread_workers.append": Route(
        thread_answers.WorkReceipt, thread_schemas.AppendRequest, _CLAIMED, needs_vault=True
    ),
    "thread_workers.wait": Route(
        thread_answers.WorkReceipt, thread_schemas.WaitRequest,
        (*_CLAIMED, "thread_stopping", "control_not_declared"), needs_vault=True,
    ),
    "thread_workers.settle": Route(
        thread_answers.WorkReceipt, thread_schemas.SettleRequest, _CLAIMED, needs_vault=True
    ),
    "thread_workers.fail": Route(thread_answers.WorkReceipt, thread_schemas.FailRequest, _CLAIMED, needs_vault=True),
}  # fmt: skip

ROUTES: Final[Mapping[str, Route]] = {
    "health.live": Route(answers.Health),
    "health.ready": Route(answers.Health, statuses=("503",)),
    "health.metrics": Route(None, file="text/plain"),
    "documentation.openapi": Route(None),
    "session.login": Route(answers.Welcome, schemas.LoginRequest, statuses=("401", "403")),
    "session.change_password": Route(answers.Welcome, schemas.ChangePasswordRequest, statuses=("401", "403")),
    "session.reauthenticate": Route(answers.Welcome, schemas.ReauthenticateRequest, statuses=("401", "403")),
    "session.logout": Route(answers.Farewell, schemas.LogoutRequest, statuses=("401", "403")),
    "grants.issue": Route(
        answers.GrantReply, schemas.GrantRequest, ("request_conflict", "workflow_deleted"),
        needs_vault=True, statuses=("404",),
    ),
    "grants.revoke": Route(answers.RevokeReply, schemas.RevokeRequest, needs_vault=True, statuses=("404",)),
    "coordinators.create": Route(
        answers.CreatedWorkflow, schemas.CreateWorkflow,
        ("definition_conflict", "workflow_deleted", "capture_not_full", "clock_moved_backwards",
         "coordinator_open_limit", "coordinator_history_limit"),
        needs_vault=True, statuses=("404",),
    ),
    "workers.begin": Route(
        answers.BeginReply, schemas.BeginRequest,
        ("workflow_deleted", "clock_moved_backwards", "coordinator_history_limit"), needs_vault=True,
    ),
    "workers.outcome": Route(
        answers.OutcomeReply, schemas.OutcomeRequest, ("workflow_deleted", "late_receipt_limit_reached"),
        needs_vault=True,
    ),
    "workers.renew": Route(
        answers.RenewReply, schemas.RenewRequest,
        ("stale_lease", "lease_expired", "workflow_paused", "renewal_limit_reached", "clock_moved_backwards",
         "workflow_deleted"),
        needs_vault=True,
    ),
    "observers.submit": Route(answers.ObservationReply, schemas.Event, ("event_conflict",)),
    "operators.index": Route(answers.WorkflowPage, needs_vault=True),
    "operators.show": Route(answers.WorkflowHistory, conflicts=("workflow_deleted",), needs_vault=True),
    "operators.configure": Route(
        answers.WorkflowView, schemas.ConfigureRequest,
        (*_CONTROL, "capture_not_full", "clock_moved_backwards"), needs_vault=True,
    ),
    "operators.abandon": Route(
        answers.WorkflowView, schemas.AbandonRequest, (*_CONTROL, "operation_final", "lease_live"), needs_vault=True
    ),
    "operators.confirm": Route(
        answers.WorkflowView, schemas.ConfirmRequest,
        (*_CONTROL, "operation_final", "lease_live", "effect_may_still_land", "attempt_limit_reached"),
        needs_vault=True,
    ),
    "evidence.delete": Route(
        answers.DeleteReply, schemas.DeleteRequest,
        ("workflow_unfinished", "workflow_deleted", "evidence_deleted", "request_conflict"),
        needs_vault=True, statuses=("404",),
    ),
    **_EVIDENCE_ROUTES,
    **_THREAD_ROUTES,
}  # fmt: skip
"""By endpoint."""
