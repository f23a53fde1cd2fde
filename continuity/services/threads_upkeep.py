"""Ends claims that have run out. For the housekeeping of a serving process, every second or so.

Nothing depends on it for being right: whoever decides about a thread, or looks at one, ends its claim first. It lets
those who follow a journal see the end of a worker that was killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.errors import DecryptionError, IntegrityError, SealedError
from continuity.store import threads as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.services.threads_ledger import ThreadLedger
    from continuity.store.store import Store
    from continuity.store.workflows import AnyRow

BATCH: Final = 50
PAGES: Final = 4
"""Damaged ones come first every time, since nothing can end them: behind 200 of them nobody is looked for."""


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
        """Interrupt runs whose claims have run out, in a few batches; returns how many. 0 while the vault is locked.

        A thread that is damaged keeps its claim, which nobody can use, and keeps no other from ending.
        """
        ended, behind = 0, {"after_us": -1, "after_pk": 0}
        for _ in range(PAGES):
            rows = self._due(behind)
            ended += sum(self._expire(row.thread_id) for row in rows)
            if len(rows) < BATCH:
                break
            behind = {"after_us": rows[-1].claim_until, "after_pk": rows[-1].thread_pk}
        return ended

    def _due(self, behind: Mapping[str, int]) -> Sequence[AnyRow]:
        def find(connection: Connection) -> Sequence[AnyRow]:
            now_us = self.ledger.reading(connection).now_us
            return connection.execute(statements.DUE, {"now_us": now_us, "count": BATCH, **behind}).all()

        return self.store.read(find)

    def _expire(self, thread_id: str) -> int:
        with suppress(SealedError, DecryptionError, IntegrityError):
            return int(self.store.write(lambda connection: self.ledger.expire_by_id(connection, thread_id)))
        return 0
