"""What the server answers about threads, as OpenAPI shows it; see `app.api.answers`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.answers import Reply, Seconds
from app.paths import THREAD_ID, THREAD_RUN_ID, WAITING_ID
from continuity.decisions.threads.states import (
    Cause,
    Control,
    Reason,
    RequestKind,
    RequestState,
    RunState,
    ThreadState,
)

Position = str


class ThreadReceipt(Reply):
    """What became of one request; the same again gets the same."""

    request_id: str
    action: Literal["create", "message", "steer", "follow_up", "stop", "resume", "reply"]
    thread_id: str = Field(pattern=f"^{THREAD_ID}$")
    position: Position = Field(description="`<epoch>-<seq>` of the last record that it wrote.")
    revision: int
    state: ThreadState
    name: str | None = None
    agent: str | None = None
    input_id: str | None = None
    run_id: str | None = None
    waiting_id: str | None = None
    waiting_revision: int | None = None


class ThreadHead(Reply):
    thread_id: str = Field(pattern=f"^{THREAD_ID}$")
    name: str
    agent: str
    workspace: str
    owner: str
    created: Seconds
    revision: int
    state: ThreadState


class ThreadRun(Reply):
    """One execution segment. Its state never changes once it has ended, but that a person may stop what was left."""

    run_id: str = Field(pattern=f"^{THREAD_RUN_ID}$")
    number: int
    state: RunState
    cause: Cause
    queued: Seconds
    stopping: bool
    resumes: str | None
    generation: int | None = None
    ended: Seconds | None = None
    reason: Reason | None = None
    workflow_id: str | None = None
    output: Any = None
    message: str | None = None


class WaitingView(Reply):
    waiting_id: str = Field(pattern=f"^{WAITING_ID}$")
    revision: int
    state: RequestState
    kind: RequestKind
    schema_: dict[str, Any] = Field(alias="schema")
    shown: dict[str, Any]
    run_id: str
    at: Seconds
    reply: Any = None


class ThreadSnapshot(Reply):
    """Everything that a client needs at one position of the journal."""

    format: Literal["atmem-thread-v1"]
    thread: ThreadHead
    runs: list[ThreadRun]
    messages: list[dict[str, Any]]
    state: dict[str, Any]
    queue: list[dict[str, Any]]
    waiting: list[WaitingView]
    controls: list[Control]
    checkpoint: Position
    history_cursor: str | None


class ListedThread(Reply):
    thread_id: str
    state: ThreadState
    name: str | None = None
    agent: str | None = None
    workspace: str | None = None
    owner: str | None = None
    created: Seconds | None = None
    changed: Seconds | None = None
    revision: int | None = None
    # Null before the first run; absent of a thread that does not open.
    run: ThreadRun | None = Field(default_factory=lambda: None)
    open: int | None = None
    queued: int | None = None
    unreadable: Literal[True] | None = None
    key_id: int | None = Field(default=None, description="Of one that does not open: the master key of its data key.")


class ThreadPage(Reply):
    """Newest first."""

    threads: list[ListedThread]
    next_cursor: str | None


class AgentView(Reply):
    name: str
    controls: list[Control]
    state_keys: list[str]
    public: bool


class AgentList(Reply):
    agents: list[AgentView]


class JournalRecord(Reply):
    seq: int
    position: Position
    kind: str
    at: Seconds
    run_id: str | None
    generation: int | None
    data: dict[str, Any]


class JournalPage(Reply):
    """Oldest first. With `Accept: text/event-stream` the same records as server-sent events."""

    records: list[JournalRecord]
    checkpoint: Position
    has_more: bool


class HistoryPage(Reply):
    """Older messages, oldest first."""

    messages: list[dict[str, Any]]
    history_cursor: str | None


class Declared(Reply):
    agents: int


class ClaimedRun(Reply):
    """A run and everything that it begins with."""

    thread_id: str
    name: str
    agent: str
    run_id: str
    generation: int
    claim_until: Seconds
    cause: Cause
    input: Any
    resumes: str | None
    replies: list[dict[str, Any]]
    steers: list[dict[str, Any]]
    stop: bool


class ClaimReply(Reply):
    run: ClaimedRun | None = Field(description="null when nothing waits for this worker.")


class HoldReply(Reply):
    """How long the claim lives, and what the run must know."""

    claim_until: Seconds
    generation: int
    stop: bool
    steers: list[dict[str, Any]]


class WorkReceipt(Reply):
    """What became of a worker's write; the same again gets the same."""

    request_id: str
    action: Literal["append", "wait", "settle", "fail"]
    run_id: str
    position: Position
    revision: int | None = None
    state: ThreadState | None = None
    written: int | None = None
    waiting: list[dict[str, Any]] | None = None
    claim_until: Seconds | None = None
    generation: int | None = None
    stop: bool | None = None
    steers: list[dict[str, Any]] | None = None
