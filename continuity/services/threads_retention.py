"""Which records of threads are old, for `continuity.services.retention`: found batch by batch, and let go of.

Rules:

* Only a thread that is at rest: idle, with nothing queued. A run that waits, was interrupted or has failed is not over.
* Only journals. Messages, calls, state, runs and receipts stay, so that a snapshot before and after is the same.
* A batch ends behind the thread with which it has counted `RECORDS_AT_MOST` records, however many threads that were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.decisions.threads.states import Situation
from continuity.errors import ConflictError, DecryptionError, IntegrityError
from continuity.services.candidates import UNREADABLE, Candidate, Looked, Window
from continuity.store import threads as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.callers import Caller
    from continuity.services.threads_ledger import ThreadLedger
    from continuity.services.threads_trimming import ThreadTrimming
    from continuity.store.workflows import AnyRow

RECORDS_AT_MOST: Final = 100_000
"""Records one batch counts before it ends: a second or so of reading."""
UNFINISHED: Final = "thread_unfinished"


@dataclass(frozen=True, slots=True)
class OldJournals:
    """Finds old records of threads, and lets go of them.

    Attributes:
        ledger: Opens threads.
        trimming: Lets go of records.
    """

    ledger: ThreadLedger
    trimming: ThreadTrimming

    def look(self, connection: Connection, window: Window) -> Looked:
        """Look at one batch of threads, oldest created first.

        Returns:
            The threads that have records of before the window's time, each with how many and how large they are.

        Raises:
            SealedError: The vault is locked.
        """
        rows = statements.living_after(connection, after=window.after, count=window.limit + 1)
        looked, next_after = window.cut(rows, [row.thread_pk for row in rows])
        candidates, counted = list[Candidate](), 0
        for place, row in enumerate(looked):
            records, size_bytes = statements.old_records(
                connection, row.thread_pk, after=row.trimmed_seq, before_us=window.before_us
            )
            if records:
                candidates.append(self._candidate(row, records, size_bytes))
            counted += records
            if counted >= RECORDS_AT_MOST and place + 1 < len(looked):
                return Looked(candidates, place + 1 - len(candidates), row.thread_pk)
        return Looked(candidates, len(looked) - len(candidates), next_after)

    def trim(self, caller: Caller, candidate: Candidate, *, before_us: int) -> int:
        """Let go of what was found. Raises as `ThreadTrimming.trim`."""
        return self.trimming.trim(caller, candidate.id, older_than_us=before_us)

    def _candidate(self, row: AnyRow, records: int, size_bytes: int) -> Candidate:
        name, kept = "", UNREADABLE
        try:
            opened = self.ledger.open_living(row)
            name = opened.origin.name
            kept = "" if opened.head.situation is Situation.IDLE else UNFINISHED
        except ConflictError as error:
            kept = error.code
        except (DecryptionError, IntegrityError):
            pass
        return Candidate(row.thread_id, name, row.changed_at, size_bytes, kept or None, records=records)
