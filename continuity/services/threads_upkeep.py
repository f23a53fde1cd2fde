"""Ends claims that have run out. For the housekeeping of a serving process, every second or so.

Nothing depends on it for being right: whoever decides about a thread, or looks at one, ends its claim first. It lets
those who follow a journal see the end of a worker that was killed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
"""How many batches one call looks at. Damaged ones stay at the head, since nothing can end them: the next call goes on
behind what this one has seen, so that whoever stands behind them is reached."""
_HEAD: Final = {"after_us": -1, "after_pk": 0}


@dataclass(frozen=True, slots=True)
class ThreadUpkeep:
    """Housekeeping of claims.

    Attributes:
        store: Where everything is written.
        ledger: Opens and records threads.
    """

    store: Store
    ledger: ThreadLedger
    _behind: dict[str, int] = field(default_factory=_HEAD.copy, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def expire_due(self) -> int:
        """Interrupt runs whose claims have run out, in a few batches; returns how many. 0 while the vault is locked.

        A thread that is damaged keeps its claim, which nobody can use, and keeps no other from ending.
        """
        with self._lock:
            ended = 0
            for _ in range(PAGES):
                rows = self._due(self._behind)
                ended += sum(self._expire(row.thread_id) for row in rows)
                is_last = len(rows) < BATCH
                behind = _HEAD if is_last else {"after_us": rows[-1].claim_until, "after_pk": rows[-1].thread_pk}
                self._behind.update(behind)
                if is_last:
                    break
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
