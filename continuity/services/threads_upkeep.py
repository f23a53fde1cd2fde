"""Ends claims that have run out. For the housekeeping of a serving process, every second or so.

Nothing depends on it for being right: whoever decides about a thread, or looks at one, ends its claim first. It lets
those who follow a journal see the end of a worker that was killed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.errors import DecryptionError, IntegrityError, SealedError
from continuity.store import threads as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.threads_ledger import ThreadLedger
    from continuity.store.store import Store

BATCH: Final = 50


@dataclass(frozen=True, slots=True)
class ThreadUpkeep:
    """Housekeeping of claims.

    Attributes:
        store: Where everything is written.
        ledger: Opens and records threads.
    """

    store: Store
    ledger: ThreadLedger

    def expire_due(self) -> int:
        """Interrupt the runs of one batch of claims that have run out; returns how many. 0 while the vault is locked.

        A thread that is damaged keeps its claim, which nobody can use, and keeps no other from ending.
        """

        def find(connection: Connection) -> list[str]:
            now_us = self.ledger.reading(connection).now_us
            return list(connection.execute(statements.DUE, {"now_us": now_us, "count": BATCH}).scalars())

        return sum(map(self._expire, self.store.read(find)))

    def _expire(self, thread_id: str) -> int:
        with suppress(SealedError, DecryptionError, IntegrityError):
            return int(self.store.write(lambda connection: self.ledger.expire_by_id(connection, thread_id)))
        return 0
