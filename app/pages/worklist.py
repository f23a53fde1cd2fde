"""The list of work as one frozen value, made from what `Listing` returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.pages.wording import count, work_title
from continuity import limits
from continuity.decisions.phases import Phase
from continuity.decisions.states import Status

TABS: Final = (
    Phase.DECISION, Phase.REVIEW, Phase.RUNNING, Phase.RESUMABLE, Phase.READY, Phase.PAUSED, Phase.DONE, Phase.ENDED,
)  # fmt: skip
"""In the order in which they want attention."""
TAB_NAMES: Final = {
    Phase.DECISION: "Needs a decision",
    Phase.REVIEW: "Needs review",
    Phase.RUNNING: "Running",
    Phase.RESUMABLE: "Can resume",
    Phase.READY: "Ready",
    Phase.PAUSED: "Paused",
    Phase.DONE: "Done",
    Phase.ENDED: "Ended",
}
NOTHING: Final = {
    Phase.DECISION: ("Nothing needs a decision", "Whatever is open, a worker can settle by itself."),
    Phase.REVIEW: ("Nothing waits for review", "Work that a host prepares appears here until somebody enables it."),
    Phase.RUNNING: ("Nothing is running", "A worker's attempt shows here while its lease is live."),
    Phase.RESUMABLE: ("Nothing waits to be resumed", "Work of a lost worker shows here until the next one takes it."),
    Phase.READY: ("Nothing is ready to start", "Enabled work shows here until a worker asks for it."),
    Phase.PAUSED: ("Nothing is paused", "Work shows here after somebody paused new attempts."),
    Phase.DONE: ("Nothing is done yet", "Work shows here once all its operations are completed."),
    Phase.ENDED: ("Nothing has ended", "Work shows here that was stopped, or that the destination refused."),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recovered:
    """An open recovery window: when a backup was restored, and of when its data is. Unix seconds."""

    restored: float | None
    backup: float | None


def recovered_view(status: Any) -> Recovered:
    """Return what the banner says of an open recovery window."""
    times = (status.restored_us, status.backup_us)
    return Recovered(*(None if each is None else each / limits.SECOND_US for each in times))


@dataclass(frozen=True, slots=True)
class Tab:
    """A filter by phase; `phase` is None for all of them."""

    phase: str | None
    name: str
    count: str
    is_here: bool
    is_urgent: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One workflow. `next_name` is what it waits for; `key_id` the master key of one that does not open."""

    workflow_id: str
    title: str
    phase: str
    is_paused: bool
    workspace: str
    progress: str
    next_name: str | None
    next_status: str | None
    next_attempts: int
    attempts: int
    late_receipts: int
    creator: str
    created: float
    is_unreadable: bool = False
    key_id: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What the list was asked for, as it stands in the address. Times do not belong to it."""

    state: str | None = None
    workspace: str | None = None
    q: str | None = None

    def parameters(self, **other: str | None) -> dict[str, str]:
        """Return the query that asks the same, but for `other`."""
        asked = {"state": self.state, "workspace": self.workspace, "q": self.q, **other}
        return {name: value for name, value in asked.items() if value}

    @property
    def is_filtered(self) -> bool:
        return self.q is not None or self.workspace is not None


@dataclass(frozen=True, slots=True)
class WorkList:
    """A page of the list. `is_first`: nothing newer stands before it, so it is kept up to date."""

    question: Question
    tabs: tuple[Tab, ...]
    lines: tuple[Line, ...]
    next_cursor: str | None
    is_first: bool
    is_empty_everywhere: bool
    waiting: int
    workspaces: tuple[str, ...]

    @property
    def nothing(self) -> tuple[str, str]:
        """What to say of a phase without work."""
        return NOTHING[Phase(self.question.state)] if self.question.state else ("", "")

    @property
    def waiting_text(self) -> str:
        return count(self.waiting, limits.EXACT_COUNT_MAX)


def work_list(
    page: Mapping[str, Any], counts: Mapping[str, int], question: Question, *, is_first: bool,
    workspaces: Sequence[str],
) -> WorkList:  # fmt: skip
    """Make the page's value."""
    total = sum(counts.values())
    return WorkList(
        question=question,
        tabs=(*(_tab(phase, counts, question) for phase in TABS),
              Tab(None, "All", _count(total), question.state is None, is_urgent=False)),
        lines=tuple(_line(summary) for summary in page["workflows"]),
        next_cursor=page["next_cursor"],
        is_first=is_first,
        is_empty_everywhere=total == 0 and not question.is_filtered,
        waiting=counts[Phase.DECISION],
        workspaces=tuple(workspaces),
    )  # fmt: skip


def _tab(phase: Phase, counts: Mapping[str, int], question: Question) -> Tab:
    number = counts[phase]
    is_urgent = phase is Phase.DECISION and number > 0
    return Tab(phase.value, TAB_NAMES[phase], _count(number), question.state == phase, is_urgent)


def _count(number: int) -> str:
    return count(number, limits.EXACT_COUNT_MAX)


def _line(summary: Mapping[str, Any]) -> Line:
    operations = summary["operations"]
    waiting = next((one for one in operations if one["status"] != Status.COMPLETED), None)
    done = sum(one["status"] == Status.COMPLETED for one in operations)
    is_held = not summary["enabled"] and summary["phase"] in {Phase.RUNNING, Phase.DECISION}
    return Line(
        workflow_id=summary["workflow_id"],
        title=work_title(summary["workflow_key"], [one["name"] for one in operations]), phase=summary["phase"],
        is_paused=is_held, workspace=summary["scope"]["workspace_id"],
        progress=f"{done} of {len(operations)}",
        next_name=None if waiting is None else waiting["name"],
        next_status=None if waiting is None else waiting["status"],
        next_attempts=0 if waiting is None else waiting["attempts"],
        attempts=sum(one["attempts"] for one in operations),
        late_receipts=sum(one["late_receipts"] for one in operations),
        creator=summary["creator_id"], created=summary["created"],
        is_unreadable=summary.get("unreadable", False), key_id=summary.get("key_id"),
    )  # fmt: skip
