"""Compares the database with the anchor that is kept beside the key, and keeps the anchor up with the database.

Rules:

* A database that is older than the anchor was put back, by whoever can write to it or by a failover that lost
  commits. Nothing may be decided on it until a person has said that it is meant (security.md V06, F12).
* A later epoch is a restore that was meant: the anchor follows it.
* Begins, outcomes and renewals leave no audit entry. The vault's clock mark follows them within a second, so the
  anchor holds it too.
* What happened after the anchor was kept last, and is gone, is found by nobody: see `KEEP_S` of `app.audits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.services.audit import AuditLog
from continuity.store.schema import vault
from continuity.vault.anchor import Anchor, AnchorFile

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.store.store import Store

OLDER: Final = "older"
REWRITTEN: Final = "rewritten"
_VAULT: Final = sa.select(vault.c.epoch, vault.c.clock_high_water).where(vault.c.id == 1)


@dataclass(frozen=True, slots=True)
class AnchorFault:
    """Why the database is not the one that the anchor knows.

    Attributes:
        kind: ``older`` (something that the anchor knows is not there any more), ``rewritten`` (the audit entry
            that it knows is another one).
        problem: The same in a sentence, without content.
    """

    kind: str
    problem: str


@dataclass(frozen=True, slots=True)
class Anchoring:
    """Keeps one instance's anchor.

    Attributes:
        store: Where the database is read.
        file: The anchor.
    """

    store: Store
    file: AnchorFile

    def compare(self) -> AnchorFault | None:
        """Compare the database with the anchor.

        Returns:
            What contradicts it; None when nothing does, or there is no anchor yet.

        Raises:
            KeySourceError, IntegrityError: The anchor cannot be read, or is none.
            UnavailableError: The database does not answer.
        """
        # The anchor first: what others commit and anchor meanwhile only brings the database further.
        kept = self.file.read()
        return None if kept is None else self.store.read(lambda connection: self._fault(connection, kept))

    def keep(self) -> AnchorFault | None:
        """Compare, and when nothing contradicts let the anchor go as far as the database does now.

        Returns:
            As `compare`; with a fault the anchor stays where it is.

        Raises:
            KeySourceError, IntegrityError: The anchor cannot be read or written. It stays where it is.
            UnavailableError: The database does not answer.
        """
        kept = self.file.read()
        fault, now = self.store.read(
            lambda connection: (None if kept is None else self._fault(connection, kept), _state(connection))
        )
        if fault is None and now is not None and (kept is None or now.order > kept.order):
            self.file.write(now)
        return fault

    def _fault(self, connection: Connection, kept: Anchor) -> AnchorFault | None:
        now = _state(connection)
        if now is None:
            return AnchorFault(OLDER, "the database has no vault, and the anchor knows of one")
        if now.epoch != kept.epoch:
            said = f"the vault is of epoch {now.epoch}, and was of epoch {kept.epoch}"
            return AnchorFault(OLDER, said) if now.epoch < kept.epoch else None
        if now.seq < kept.seq:
            return AnchorFault(OLDER, f"the audit log ends with entry {now.seq}, and had entry {kept.seq} already")
        if kept.seq and AuditLog(None).hash_at(connection, kept.seq) != kept.hash:
            return AnchorFault(REWRITTEN, f"audit entry {kept.seq} is not the one that was written")
        if now.mark_us < kept.mark_us:
            behind_s = (kept.mark_us - now.mark_us) // 1_000_000
            return AnchorFault(OLDER, f"the last decision is {behind_s} seconds older than the last one that was made")
        return None


def _state(connection: Connection) -> Anchor | None:
    """Read how far the database goes; None when it has no vault."""
    row: Any = connection.execute(_VAULT).one_or_none()
    if row is None:
        return None
    head = AuditLog(None).head(connection)
    # A head that somebody removed goes nowhere: the log's own verification says so.
    return Anchor(row.epoch, head.seq, head.hash or bytes(32), row.clock_high_water)
