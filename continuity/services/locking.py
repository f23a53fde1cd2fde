"""The flag that stops everything sealed, in every process, from the next transaction on.

Rules:

* The flag stands in the vault's row with its proof: who cannot prove the row (`proofs`) neither sets nor clears it.
* It is set and cleared under the row's exclusive lock: decisions hold it shared, so those that were under way have
  ended, and those that come after read the flag.
* Who did it is in the audit log, in the same transaction.
* Keys are no matter of this module: whoever calls has them at hand, and drops or spreads them afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from continuity.errors import ForbiddenError, SealedError
from continuity.services import proofs
from continuity.services.audit import AuditEntry
from continuity.services.callers import Caller, CallerKind, Role
from continuity.store import keyring as statements

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.store.store import Store
    from continuity.vault.vault import Vault


def require_administrator(caller: Caller) -> None:
    """Refuse whoever may not touch the vault's keys.

    Raises:
        ForbiddenError: The caller is no person with the role of an administrator. Nothing has happened.
    """
    if caller.kind is not CallerKind.PERSON or caller.role is not Role.ADMINISTRATOR:
        raise ForbiddenError("Only an administrator may do this.")


@dataclass(frozen=True, slots=True)
class RingState:
    """What the vault's row says of its keys.

    Attributes:
        is_locked: Whether the flag is set.
        generation: Rises whenever a process must look again at flag or keys.
        key_id: The master key that wraps.
        locked_at_us: Since when it is locked, None while it is open.
        locked_by: Who locked it.
        canary: To know a master key by.
        wrapped_index_key: The index key, sealed.
    """

    is_locked: bool
    generation: int
    key_id: int
    locked_at_us: int | None
    locked_by: str | None
    canary: bytes
    wrapped_index_key: bytes


class Locking:
    """Sets, clears and reads the flag. Safe to share between threads."""

    def __init__(self, store: Store, vault: Vault, audit: AuditLog, now_us: Callable[[], int]) -> None:
        """Keep what is written to, what proves, and the clock."""
        self._store = store
        self._vault = vault
        self._audit = audit
        self._now_us = now_us

    def state(self) -> RingState:
        """Read what the row says; the cheapest read there is. Needs no key.

        Raises:
            UnavailableError: Storage cannot answer.
        """
        row = self._store.autocommit(lambda connection: connection.execute(statements.RING).one())
        return RingState(
            row.state == "locked", row.generation, row.key_id, row.locked_at, row.locked_by, row.sealed_canary,
            row.wrapped_index_key,
        )  # fmt: skip

    def lock(self, caller: Caller) -> bool:
        """Set the flag. The vault must be open in this process.

        Returns:
            Whether this call did it; False when it was set before.

        Raises:
            ForbiddenError: The caller may not. Nothing has happened.
            SealedError: The vault is not open here. Nothing has happened.
            IntegrityError: The row is not what was written last. Nothing has happened.
        """
        require_administrator(caller)
        return self._store.write(lambda connection: self._set(connection, caller, state="locked"))

    def unlock(self, caller: Caller) -> bool:
        """Clear the flag. The vault must be open in this process already; raises as `lock`.

        Returns:
            Whether it was set; False when only a process lacked its keys. Both are in the audit log.
        """
        require_administrator(caller)
        return self._store.write(lambda connection: self._set(connection, caller, state="open"))

    def note_refusal(self, caller: Caller, result: str) -> None:
        """Write into the audit log that somebody tried to unlock and what came of it."""
        entry = AuditEntry(action="vault.unlock", actor=caller.actor, result=result, request_id=caller.request_id)
        self._store.write(lambda connection: self._audit.append(connection, entry, now_us=self._now_us()))

    def _set(self, connection: Connection, caller: Caller, *, state: str) -> bool:
        row: Any = connection.execute(statements.EXCLUSIVE).one()
        if self._vault.is_locked:
            raise SealedError("The vault is locked.")
        proofs.check_vault(self._vault, row)
        is_new = bool(row.vault_state != state)
        if is_new or state == "open":
            now_us = self._now_us()
            is_locking = state == "locked"
            statements.write_state(
                connection, state=state, proof=proofs.of_vault_row(self._vault, row, state=state),
                locked_at=now_us if is_locking else None, locked_by=caller.actor if is_locking else None,
            )  # fmt: skip
            entry = AuditEntry(
                action="vault.lock" if is_locking else "vault.unlock", actor=caller.actor, result="done",
                request_id=caller.request_id,
            )  # fmt: skip
            self._audit.append(connection, entry, now_us=now_us)
        return is_new
