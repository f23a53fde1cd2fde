"""The list of threads as one frozen value, made from what `ThreadReading.page` returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.pages.threads_words import NOTHING, STATE_NAMES
from app.pages.wording import count
from continuity import limits
from continuity.decisions.threads.states import ThreadState

FILTERS: Final = ("state", "scope")
OWN: Final = "own"
ALL: Final = "workspace"


@dataclass(frozen=True, slots=True)
class Tab:
    """A filter by state, None for all of them; `count` is empty where nothing was counted."""

    state: str | None
    name: str
    count: str
    is_here: bool
    is_urgent: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One thread. `key_id` is the master key of one that does not open."""

    thread_id: str
    state: str
    name: str
    agent: str
    owner: str
    workspace: str
    changed: float | None
    run_state: str | None
    reason: str
    open: int
    queued: int
    is_stopping: bool
    is_unreadable: bool
    key_id: int | None


@dataclass(frozen=True, slots=True)
class Question:
    """What the list was asked for, as it stands in the address."""

    state: str | None
    scope: str | None

    def parameters(self, **other: str | None) -> dict[str, str]:
        """Return the query that asks the same, but for `other`."""
        asked = {"state": self.state, "scope": self.scope, **other}
        return {name: value for name, value in asked.items() if value}


@dataclass(frozen=True, slots=True)
class ThreadList:
    """A page of the list. `is_first`: nothing newer stands before it, so it is kept up to date."""

    question: Question
    tabs: tuple[Tab, ...]
    lines: tuple[Line, ...]
    next_cursor: str | None
    is_first: bool
    attention: int
    waiting: int
    is_wide: bool
    has_workspaces: bool

    @property
    def nothing(self) -> tuple[str, str]:
        """What to say of a state that no thread is in."""
        return NOTHING[ThreadState(self.question.state)] if self.question.state else ("", "")

    @property
    def is_empty_everywhere(self) -> bool:
        return not self.lines and self.is_first and self.question.state is None

    def words(self, number: int) -> str:
        return count(number, limits.EXACT_COUNT_MAX)


def thread_list(
    page: Mapping[str, Any], counts: Mapping[str, int], question: Question, *, is_first: bool, is_wide: bool,
    workspaces: Sequence[str],
) -> ThreadList:  # fmt: skip
    """Make the page's value. `is_wide`: the person may see threads of others."""
    return ThreadList(
        question=question,
        tabs=(*(_tab(state, counts, question) for state in STATE_NAMES),
              Tab(None, "All", "", question.state is None, is_urgent=False)),
        lines=tuple(_line(each) for each in page["threads"]),
        next_cursor=page["next_cursor"],
        is_first=is_first,
        attention=counts.get(ThreadState.NEEDS_ATTENTION, 0),
        waiting=counts.get(ThreadState.WAITING, 0),
        is_wide=is_wide,
        has_workspaces=len(workspaces) > 1,
    )  # fmt: skip


def _tab(state: ThreadState, counts: Mapping[str, int], question: Question) -> Tab:
    number = counts.get(state)
    is_urgent = bool(number) and state in {ThreadState.NEEDS_ATTENTION, ThreadState.WAITING}
    text = "" if number is None else count(number, limits.EXACT_COUNT_MAX)
    return Tab(state.value, STATE_NAMES[state], text, question.state == state, is_urgent)


def _line(thread: Mapping[str, Any]) -> Line:
    run = thread.get("run") or {}
    return Line(
        thread_id=thread["thread_id"], state=thread["state"], name=thread.get("name", ""),
        agent=thread.get("agent", ""), owner=thread.get("owner", ""), workspace=thread.get("workspace", ""),
        changed=thread.get("changed"), run_state=run.get("state"), reason=run.get("reason", ""),
        open=thread.get("open", 0), queued=thread.get("queued", 0),
        is_stopping=bool(run.get("stopping")) and run.get("state") == "claimed",
        is_unreadable=thread.get("unreadable", False), key_id=thread.get("key_id"),
    )  # fmt: skip
