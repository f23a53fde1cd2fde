"""What the server answers about evidence, capture and keys, as OpenAPI shows it; see `app.api.answers`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.answers import Blocking, Reply, Seconds
from app.paths import EVIDENCE_ID
from continuity.decisions.phases import Phase
from continuity.decisions.states import Mode, Status


class EvidenceReply(Reply):
    """The record is kept; `replayed` when it was before."""

    accepted: Literal[True]
    replayed: bool
    evidence_id: str = Field(pattern=f"^{EVIDENCE_ID}$")
    seq: int
    captured: Literal["full", "metadata"]


class EvidenceRecord(Reply):
    """What is known of a record beside its content; of one that does not open, its place alone."""

    evidence_id: str
    run_id: str
    workspace_id: str
    seq: int
    received: Seconds
    producer: str | None = None
    epoch: int | None = None
    event_id: str | None = None
    kind: str | None = None
    time: Seconds | None = None
    type: str | None = None
    bytes: int | None = None
    sha256: str | None = Field(default=None, description="Of the UTF-8 of a text, of the canonical form of the rest.")
    captured: Literal["full", "metadata"] | None = None
    tool: str | None = None
    unreadable: Literal[True] | None = None
    key_id: int | None = Field(default=None, description="With `unreadable`, the master key that it is under.")


class EvidencePage(Reply):
    """Newest received first."""

    records: list[EvidenceRecord]
    next_cursor: str | None = Field(
        description="Where to go on within 15 minutes; null at the end. A search may find few or none and go on."
    )


class EvidenceRun(Reply):
    evidence_id: str
    run_id: str
    workspace_id: str
    records_total: int
    bytes: int
    created: Seconds
    last_received: Seconds
    creator_id: str
    unreadable: Literal[True] | None = None
    key_id: int | None = None


class EvidenceRunPage(Reply):
    """Newest first."""

    runs: list[EvidenceRun]
    next_cursor: str | None


class EvidenceFault(Reply):
    """Where a run is not what was recorded: edited, cut, or put together from others."""

    seq: int
    problem: str


class LinkedWorkflow(Reply):
    """A workflow of which an attempt has the same run_id."""

    workflow_id: str
    workflow_key: str
    phase: Phase
    enabled: bool


class RunRecord(Reply):
    """A record in its run, with its content where that is kept; of one that does not open, its place alone."""

    seq: int
    received: Seconds
    producer: str | None = None
    epoch: int | None = None
    event_id: str | None = None
    kind: str | None = None
    time: Seconds | None = None
    type: str | None = None
    bytes: int | None = None
    sha256: str | None = None
    captured: Literal["full", "metadata"] | None = None
    tool: str | None = None
    content: Any = None
    unreadable: Literal[True] | None = None


class EvidenceRunView(EvidenceRun):
    """A page of a run, in its order."""

    format: Literal["atmem-evidence-v1"]
    workflows: list[LinkedWorkflow]
    workflows_more: bool
    records: list[RunRecord]
    next_after: int | None
    is_whole: bool = Field(description="Whether this page is what was recorded; `faults` says where not.")
    faults: list[EvidenceFault]


class Measure(Reply):
    bytes: int
    sha256: str


class ManifestAttempt(Reply):
    attempt_id: str
    run_id: str
    mode: Mode
    started: Seconds


class ManifestOperation(Reply):
    """What an operation would need again: tool and destination, sizes and digests, no arguments."""

    name: str
    tool: str
    capability: Literal["none", "query", "idempotent"] | list[Literal["idempotent", "query"]]
    timeout_seconds: Seconds
    retention_seconds: Seconds
    definition: Measure
    arguments: Measure
    status: Status
    attempts: list[ManifestAttempt]


class ManifestWorkflow(LinkedWorkflow):
    operations: list[ManifestOperation]


class ManifestTool(Reply):
    tool: str
    records: int
    operations: int
    capability: Any = None


class Manifest(EvidenceRun):
    """What would be needed to run it again, without content."""

    format: Literal["atmem-replay-manifest-v1"]
    is_whole: bool
    faults: list[EvidenceFault]
    records: list[RunRecord]
    workflows: list[ManifestWorkflow]
    workflows_more: bool
    tools: list[ManifestTool]


class RetentionItem(Reply):
    id: str
    name: str
    changed: Seconds
    bytes: int
    outcome: Literal["would_delete", "deleted", "would_trim", "trimmed", "kept"]
    because: str | None = None
    records: int | None = Field(default=None, description="Of a thread, how many records of its journal are old.")


class RetentionReply(Reply):
    """One batch, oldest created first."""

    kind: Literal["workflows", "evidence", "threads"]
    applied: bool
    before: Seconds
    looked_at: int
    younger: int
    items: list[RetentionItem]
    next_cursor: str | None


class CaptureReply(Reply):
    capture_mode: Literal["full", "metadata", "off"]
    blocking: Blocking


class PassphraseNeeded(Reply):
    """For which requests the source of the key needs a passphrase."""

    lock: bool
    unlock: bool
    rotate: bool


class VaultRotation(Reply):
    """The last rotation; it is over with state `done`, or `held` when data keys do not open."""

    state: Literal["adding", "announced", "running", "retiring", "done", "held"]
    old_key_id: int
    new_key_id: int
    total: int = Field(description="Data keys when it began.")
    done: int
    unreadable: int
    started: Seconds
    finished: Seconds | None


class VaultSettings(Reply):
    """Where the vault's keys stand."""

    format: int
    capture_mode: Literal["full", "metadata", "off"]
    locked: bool
    locked_since: Seconds | None
    key_source: Literal["file", "environment", "passphrase", "transit"]
    key_id: int
    passphrase_needed: PassphraseNeeded
    servers_with_keys: int = Field(description="Serving processes that said lately that they have the keys.")
    servers_without_keys: int
    rotation: VaultRotation | None
