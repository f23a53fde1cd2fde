"""What was refused, and what contradicted itself, as entries of the audit log: each kind told, none of them a flood.

Rules:

* Noted in memory while the request is answered, and written a moment later in a transaction of its own: a refusal
  changes nothing, and costs whoever is refused no write of ours.
* The first of a kind (who, what, where) is an entry of its own; what follows within a minute is counted, and the
  count is the next entry's. However many kinds there are, at most `ENTRIES_A_MINUTE` entries are written a minute;
  what that leaves out is counted in one entry without actor.
* An entry says who, which view, with which code, and the id of the first request; the address that it came from is
  sealed beside it. Nothing of what was sent stands there.
* The server's own log has every refused request, with its id and at once.

Source: security.md G03, G04, V03.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from continuity.services.audit import AuditEntry, AuditLog
from continuity.store.store import Store

REFUSED: Final = "access.refused"
THROTTLED: Final = "access.throttled"
INTEGRITY: Final = "vault.integrity_failure"
ENTRIES_A_MINUTE: Final = 60
WRITE_S: Final = 1.0
"""How long a refusal waits for its entry."""
_KINDS_MOST: Final = 1_000
_MINUTE_US: Final = 60 * 1_000_000


@dataclass(frozen=True, slots=True)
class Denial:
    """What happened. `what` is an action, `where` the endpoint or the id of what contradicts itself."""

    what: str
    actor: str
    where: str
    code: str


@dataclass(slots=True)
class _Count:
    request_id: str
    address: str
    times: int = 0
    told_us: int | None = None


class Denials:
    """Counts and writes them. One for a process; safe to share between threads."""

    def __init__(self, store: Store, log: AuditLog, *, now_us: Callable[[], int]) -> None:
        self._store = store
        self._log = log
        self._now_us = now_us
        self._lock = threading.Lock()
        self._counts: dict[Denial, _Count] = {}
        self._left_out = 0
        self._minute_us = 0
        self._written = 0

    def note(self, denial: Denial, *, request_id: str, address: str) -> None:
        """Remember one, until `write`."""
        with self._lock:
            count = self._counts.get(denial)
            if count is None:
                if len(self._counts) >= _KINDS_MOST:
                    self._left_out += 1
                    return
                count = self._counts[denial] = _Count(request_id, address)
            if count.times == 0:
                count.request_id, count.address = request_id, address
            count.times += 1

    def write(self) -> None:
        """Write what is due. For the housekeeping, and for the end of serving.

        Raises:
            UnavailableError: Storage cannot answer; what was noted is kept for the next time.
        """
        now_us = self._now_us()
        due = self._due(now_us)
        if not due:
            return
        try:
            self._store.write(lambda connection: [
                self._log.append(connection, entry, now_us=now_us) for entry, _ in due
            ])  # fmt: skip
        except Exception:
            with self._lock:
                for _, give_back in due:
                    give_back()
            raise

    def _due(self, now_us: int) -> list[tuple[AuditEntry, Callable[[], None]]]:
        with self._lock:
            if not 0 <= now_us - self._minute_us < _MINUTE_US:
                self._minute_us, self._written = now_us, 0
                self._forget(now_us)
            due: list[tuple[AuditEntry, Callable[[], None]]] = []
            for denial, count in self._counts.items():
                is_fresh = count.told_us is not None and 0 <= now_us - count.told_us < _MINUTE_US
                if not count.times or is_fresh or self._written >= ENTRIES_A_MINUTE:
                    continue
                due.append((_entry(denial, count), _undo(count)))
                count.times, count.told_us = 0, now_us
                self._written += 1
            if self._left_out and self._written < ENTRIES_A_MINUTE:
                due.append((_rest(self._left_out), self._restore(self._left_out)))
                self._left_out = 0
                self._written += 1
            return due

    def _forget(self, now_us: int) -> None:
        """Forget kinds that did not come again, so that new ones find room."""
        self._counts = {
            denial: count
            for denial, count in self._counts.items()
            if count.times or (count.told_us is not None and now_us - count.told_us < _MINUTE_US)
        }

    def _restore(self, number: int) -> Callable[[], None]:
        def restore() -> None:
            self._left_out += number

        return restore


def _entry(denial: Denial, count: _Count) -> AuditEntry:
    return AuditEntry(
        action=denial.what, actor=denial.actor, object_id=denial.where or None, result=denial.code,
        request_id=count.request_id, detail={"address": count.address, "times": count.times},
    )  # fmt: skip


def _undo(count: _Count) -> Callable[[], None]:
    times, told_us = count.times, count.told_us

    def undo() -> None:
        count.times += times
        count.told_us = told_us

    return undo


def _rest(number: int) -> AuditEntry:
    return AuditEntry(action=REFUSED, actor="nobody", object_id=None, result="too_many_kinds", detail={"times": number})
