"""What a restored database is not: the one that its hosts, sessions and workers remember.

Rules:

* The vault's epoch rises above every one that this instance had: sessions, credentials, cursors and leases of before
  are void, and operations that were open wait for a person.
* Until somebody closes the recovery window nothing is created enabled: work of the lost time may have happened.
* All of it is one transaction with its audit entry.

Source: vault.md, "restore"; security.md D7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from continuity.services import proofs
from continuity.services.audit import AuditEntry
from continuity.services.locking import require_administrator
from continuity.store import restoring as statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.services.callers import Caller
    from continuity.store.store import Store
    from continuity.vault.vault import Vault

EPOCH_MAX: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore is told of, and tells.

    Attributes:
        action: Of the audit entry, ``vault.restored`` or ``vault.restore_accepted``.
        actor: Who did it.
        epoch_above: Highest epoch that is known of this instance; the new one is higher.
        mark_us: The clock's mark is not lower than this.
        now_us: When it happens.
        data_us: Of what time the data is.
        detail: What else the audit log keeps, sealed.
    """

    action: str
    actor: str
    epoch_above: int
    mark_us: int
    now_us: int
    data_us: int
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecoveryStatus:
    """The recovery window. Times in microseconds since 1970.

    Attributes:
        is_open: Nothing is created enabled.
        restored_us: When the last restore was, None without one.
        backup_us: Of what time its data is, None without one.
    """

    is_open: bool
    restored_us: int | None
    backup_us: int | None


def begin_epoch(connection: Connection, vault: Vault, audit: AuditLog, restored: Restored) -> int:
    """Begin a new epoch. Call it inside a writing transaction that nobody else writes beside.

    Args:
        connection: The transaction.
        vault: Open with the keys of this database.
        audit: Of the same database.
        restored: What is known.

    Returns:
        The new epoch.

    Raises:
        IntegrityError: The vault's row contradicts its proof: the database was changed before it was copied.
        SealedError: The vault is locked.
    """
    row: Any = connection.execute(statements.EXCLUSIVE).one()
    proofs.check_vault(vault, row)
    epoch: int = max(row.vault_epoch, min(restored.epoch_above, EPOCH_MAX)) + 1
    mark_us = max(row.vault_mark, restored.mark_us, restored.now_us)
    proof = proofs.of_vault(
        vault, state=row.vault_state, capture_mode=row.capture_mode, mark_us=mark_us, epoch=epoch,
        restored_us=mark_us, is_recovery_open=True,
    )  # fmt: skip
    statements.begin_epoch(connection, {
        "epoch": epoch, "restored_at": mark_us, "recovery_open": True, "clock_high_water": mark_us, "proof": proof,
        "generation": row.generation + 1, "restored_from": restored.data_us,
    })  # fmt: skip
    waiting = statements.let_people_decide(connection)
    detail = {**restored.detail, "epoch": epoch, "data_of_us": restored.data_us, "workflows_waiting": waiting}
    entry = AuditEntry(action=restored.action, actor=restored.actor, result="done", detail=detail)
    audit.append(connection, entry, now_us=mark_us)
    return epoch


class Recovery:
    """The recovery window after a restore. Safe to share between threads."""

    def __init__(self, store: Store, vault: Vault, audit: AuditLog, now_us: Callable[[], int]) -> None:
        """Keep what is written to, what proves, and the clock."""
        self._store = store
        self._vault = vault
        self._audit = audit
        self._now_us = now_us

    def status(self) -> RecoveryStatus:
        """Read the window. Needs no key.

        Raises:
            UnavailableError: Storage cannot answer.
        """
        row: Any = self._store.autocommit(lambda connection: connection.execute(statements.WINDOW).one())
        return RecoveryStatus(bool(row.recovery_open), row.restored_at, row.restored_from)

    def close(self, caller: Caller) -> bool:
        """Let work be created enabled again. What waits for a person goes on waiting.

        Returns:
            Whether this call did it; False when it was closed before.

        Raises:
            ForbiddenError: The caller is no administrator. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            IntegrityError: The vault's row is not what was written last. Nothing has happened.
            UnavailableError: Storage cannot answer.
        """
        require_administrator(caller)
        return self._store.write(lambda connection: self._close(connection, caller))

    def _close(self, connection: Connection, caller: Caller) -> bool:
        row: Any = connection.execute(statements.EXCLUSIVE).one()
        proofs.check_vault(self._vault, row)
        if not row.recovery_open:
            return False
        proof = proofs.of_vault(
            self._vault, state=row.vault_state, capture_mode=row.capture_mode, mark_us=row.vault_mark,
            epoch=row.vault_epoch, restored_us=row.restored_at, is_recovery_open=False,
        )  # fmt: skip
        statements.close_window(connection, proof=proof)
        entry = AuditEntry(
            action="vault.close_recovery", actor=caller.actor, result="done", request_id=caller.request_id
        )
        self._audit.append(connection, entry, now_us=max(self._now_us(), row.vault_mark))
        return True
