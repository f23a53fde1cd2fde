"""The use cases of threads, put together for `app.wiring`."""

from __future__ import annotations

from dataclasses import dataclass

from app.streaming import Streams
from continuity.services.audit import AuditLog
from continuity.services.opening import Opener
from continuity.services.threads import Threads
from continuity.services.threads_checking import ThreadChecker
from continuity.services.threads_deletion import ThreadDeletions
from continuity.services.threads_ledger import ThreadLedger
from continuity.services.threads_reading import ThreadReading
from continuity.services.threads_retention import OldJournals
from continuity.services.threads_standing import ThreadStanding
from continuity.services.threads_trimming import ThreadTrimming
from continuity.services.threads_upkeep import ThreadUpkeep
from continuity.services.threads_work import ThreadWork
from continuity.store.store import Store


@dataclass(frozen=True, slots=True)
class ThreadServices:
    """Conversations: who owns them acts, others read, workers work; and those who wait for news of them."""

    acting: Threads
    reading: ThreadReading
    standing: ThreadStanding
    work: ThreadWork
    deletions: ThreadDeletions
    upkeep: ThreadUpkeep
    journals: OldJournals
    checker: ThreadChecker
    streams: Streams


def build(store: Store, opener: Opener, audit: AuditLog, *, threads: int) -> ThreadServices:
    """Wire them; `threads` is how many threads the server has."""
    ledger = ThreadLedger(opener)
    return ThreadServices(
        acting=Threads(store, ledger, audit),
        reading=ThreadReading(store, ledger, audit),
        standing=ThreadStanding(store, ledger),
        work=ThreadWork(store, ledger),
        deletions=ThreadDeletions(store, ledger, audit),
        upkeep=ThreadUpkeep(store, ledger),
        journals=OldJournals(ledger, ThreadTrimming(store, ledger, audit)),
        checker=ThreadChecker(store, ledger),
        streams=Streams(threads),
    )
