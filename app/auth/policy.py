"""What an administrator decides for all people, kept in the database: every process and every host knows it."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth.accounts import By, check_may
from app.auth.schema import policy
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.clock import Clock
from continuity.store.store import Store


class Policy:
    """Reads and changes the policy. Every change is one transaction with its audit entry."""

    def __init__(self, store: Store, audit: AuditLog, *, clock: Clock) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock

    def administrators_need_second_factor(self) -> bool:
        """Say whether an administrator without a second factor must set one up before anything else."""
        return self._store.autocommit(_wanted)

    def set_administrators_need_second_factor(self, wanted: bool, *, by: By) -> None:  # noqa: FBT001 - the value
        """Change it, from the next request on. The same again changes nothing."""

        def work(connection: Connection) -> None:
            check_may(connection, by)
            now_us = self._clock.now_us()
            if _wanted(connection) == wanted:
                return
            values = {"administrators_need_second_factor": wanted, "changed_at": now_us}
            if not connection.execute(sa.update(policy).values(values)).rowcount:
                connection.execute(sa.insert(policy).values(id=1, **values))
            entry = AuditEntry(
                action="policy.set_second_factor", actor=by.actor, result="done", request_id=by.request_id,
                detail={"administrators_need_second_factor": wanted},
            )  # fmt: skip
            self._audit.append(connection, entry, now_us=now_us)

        self._store.write(work)


def _wanted(connection: Connection) -> bool:
    return bool(connection.execute(sa.select(policy.c.administrators_need_second_factor)).scalar_one_or_none())
