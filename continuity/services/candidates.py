"""What retention looks at, of whatever kind: a window of rows, and what was found in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.store.evidence import DISORDER_US

if TYPE_CHECKING:
    from continuity.store.workflows import AnyRow

UNREADABLE: Final = "unreadable"
"""Why something that does not open is kept: it is for a person to look at."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that was looked at.

    Attributes:
        id: workflow_id, evidence_id or thread_id.
        name: workflow_key, run_id or name of the thread; empty when it does not open.
        changed_us: When it changed last.
        size_bytes: Stored bytes, of a thread those of its old records.
        kept: Why it is kept, None when it may go.
        seen: What the deletion of a workflow must still find.
        records: Of a thread, how many old records.
    """

    id: str
    name: str
    changed_us: int
    size_bytes: int
    kept: str | None
    seen: str | None = None
    records: int | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """What one batch found.

    Attributes:
        candidates: Old things, oldest created first.
        younger: How many were looked at and are not old.
        after: Where to go on; None at the end.
    """

    candidates: list[Candidate]
    younger: int
    after: int | None


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows one batch looks at.

    Attributes:
        after: Only rows with a larger number.
        limit: At most so many.
        before_us: What changed before is old.
        now_us: The time by which the batch is judged.
    """

    after: int
    limit: int
    before_us: int
    now_us: int

    def cut(self, rows: Sequence[AnyRow], numbers: Sequence[int]) -> tuple[Sequence[AnyRow], int | None]:
        """Return the rows of this batch, and where to go on: rows of the time behind it were not old when created."""
        for count, row in enumerate(rows):
            if row.created_at >= self.before_us + DISORDER_US:
                return rows[:count], None
        looked = rows[: self.limit]
        return looked, numbers[len(looked) - 1] if len(rows) > self.limit else None
