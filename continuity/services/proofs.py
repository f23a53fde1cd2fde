"""Proves the clear rows that belong to no workflow: the vault's own and the counters of coordinators.

Rules:

* A proof is a keyed hash (`Vault.index`) over every column of the row that a decision reads. Whoever changes
  the columns writes it in the same statement, after having checked the one that was there.
* A row whose proof is missing or another's is `IntegrityError`: nothing is decided by it, nothing is changed.
* Only who holds the vault's key can make one. An older row put back together with its own proof passes.
  So does the row of a vault that was set back to before there were proofs, once it is upgraded (`recounting`).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from continuity import limits
from continuity.decisions import coordinators
from continuity.errors import IntegrityError
from continuity.store import counters as statements
from continuity.store import workflows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from continuity.store.workflows import AnyRow
    from continuity.vault.vault import Vault

_VAULT: Final = "vault_row"
_COUNTERS: Final = "coordinator_counters"
_NONE: Final = ""
"""In place of a time that is not there; times are numbers."""


def of_vault(
    vault: Vault, *, state: str, capture_mode: str, mark_us: int, epoch: int, restored_us: int | None,
    is_recovery_open: bool,
) -> bytes:  # fmt: skip
    """Make the proof of the vault's row.

    Args:
        vault: Holds the key.
        state: ``open``, ``locked`` or ``rotating``.
        capture_mode: ``full``, ``metadata`` or ``off``.
        mark_us: The clock's high-water mark.
        epoch: Rises with every restore.
        restored_us: When the last restore was, None without one.
        is_recovery_open: The recovery window after a restore has not been closed.

    Returns:
        32 bytes.

    Raises:
        SealedError: The vault is locked.
    """
    restored = _NONE if restored_us is None else restored_us
    return vault.index(_VAULT, state, capture_mode, mark_us, epoch, restored, int(is_recovery_open))


def of_vault_row(
    vault: Vault, row: AnyRow, *, mark_us: int | None = None, state: str | None = None, capture_mode: str | None = None
) -> bytes:  # fmt: skip
    """Make the proof of a row of `workflows.VAULT_COLUMNS`, with other values where they are given."""
    return of_vault(
        vault, state=state or row.vault_state, capture_mode=capture_mode or row.capture_mode,
        mark_us=row.vault_mark if mark_us is None else mark_us, epoch=row.vault_epoch, restored_us=row.restored_at,
        is_recovery_open=bool(row.recovery_open),
    )  # fmt: skip


def check_vault(vault: Vault, row: AnyRow) -> None:
    """Compare the vault's row with its proof.

    Raises:
        SealedError: The vault is locked.
        IntegrityError: The row is not what was written last. Nothing has happened.
    """
    if row.vault_proof is None or not hmac.compare_digest(row.vault_proof, of_vault_row(vault, row)):
        raise IntegrityError("The vault's row contradicts its proof. Nothing was done.")


def raise_mark(connection: Connection, vault: Vault, latest_us: int) -> None:
    """Raise the clock mark of the vault's row; never lowers it. Raises as `check_vault`."""
    row = connection.execute(workflows.VAULT_TO_CHANGE).one()
    check_vault(vault, row)
    if row.vault_mark < latest_us:
        workflows.raise_mark(connection, latest_us, proof=of_vault_row(vault, row, mark_us=latest_us))


@dataclass(frozen=True, slots=True)
class Counters:
    """What a coordinator holds, as its row says.

    Attributes:
        owner_pk: Its row.
        unfinished: Number of its unfinished workflows.
        retained_bytes: Stored bytes of its sealed columns.
        reserved_bytes: Kept free for the receipts of its granted attempts.
        proof: Of the three.
    """

    owner_pk: int
    unfinished: int
    retained_bytes: int
    reserved_bytes: int
    proof: bytes | None

    def plus(self, vault: Vault, *, unfinished: int, retained: int, reserved: int) -> Counters:
        """Return them changed by so much, with their proof; never below zero."""
        changed = replace(
            self,
            unfinished=max(0, self.unfinished + unfinished),
            retained_bytes=max(0, self.retained_bytes + retained),
            reserved_bytes=max(0, self.reserved_bytes + reserved),
        )
        return replace(changed, proof=of_counters(vault, changed))


def of_counters(vault: Vault, counters: Counters) -> bytes:
    """Make the proof of a coordinator's counters, 32 bytes. Raises `SealedError`."""
    return vault.index(
        _COUNTERS, counters.owner_pk, counters.unfinished, counters.retained_bytes, counters.reserved_bytes
    )


def proved_counters(vault: Vault, row: AnyRow) -> Counters:
    """Read a coordinator's counters from a row with `store.counters.COLUMNS`.

    Raises:
        SealedError: The vault is locked.
        IntegrityError: They are not what was written last. Nothing has happened.
    """
    counters = Counters(
        row.counted_owner_pk, row.owner_unfinished, row.owner_retained, row.owner_reserved, row.owner_proof
    )
    if counters.proof is None or not hmac.compare_digest(counters.proof, of_counters(vault, counters)):
        raise IntegrityError("A coordinator's counters contradict their proof. Nothing was done.")
    return counters


def count(
    connection: Connection, vault: Vault, owner_pk: int, *, known: Counters | None, change: Mapping[str, int],
    budget_bytes: int | None = None,
) -> Counters:  # fmt: skip
    """Change a coordinator's counters. Call it inside `Store.write`, after the workflow was locked.

    Args:
        connection: The transaction.
        vault: Holds the key.
        owner_pk: Whose counters.
        known: As they were read with the workflow; None reads them now.
        change: ``unfinished, retained, reserved``: what is added to each.
        budget_bytes: New work is admitted only within so many bytes, and within the unfinished workflows of
            `limits`; None admits whatever comes, as completions are.

    Returns:
        The counters now.

    Raises:
        SealedError: The vault is locked.
        IntegrityError: The counters contradict their proof.
        ConflictError: ``coordinator_open_limit`` or ``coordinator_history_limit``.
            In no case has anything happened once the transaction has been left.
    """
    if known is not None:
        changed = _changed(vault, known, change, budget_bytes)
        if statements.move(connection, owner_pk, before=known.proof, after=_columns(changed)):
            return changed
        # Another workflow of this coordinator moved them since: PostgreSQL alone.
    known = read_counters(connection, vault, owner_pk)
    changed = _changed(vault, known, change, budget_bytes)
    if not statements.move(connection, owner_pk, before=known.proof, after=_columns(changed)):
        raise IntegrityError("A coordinator's counters changed under their lock. Nothing was done.")
    return changed


def read_counters(connection: Connection, vault: Vault, owner_pk: int) -> Counters:
    """Lock a coordinator's counters and read them. Raises as `proved_counters`."""
    row = statements.LOCKED.one_or_none(connection, {"owner_pk": owner_pk})
    if row is None:
        raise IntegrityError("A coordinator's row is not there. Nothing was done.")
    return proved_counters(vault, row)


def begin_counters(connection: Connection, vault: Vault, owner_pk: int) -> None:
    """Write the proof of a coordinator that was made in this transaction and holds nothing."""
    new = Counters(owner_pk, 0, 0, 0, None)
    statements.move(connection, owner_pk, before=None, after=_columns(replace(new, proof=of_counters(vault, new))))


def prove_counters(
    connection: Connection, vault: Vault, owner_pk: int, *, unfinished: int, retained_bytes: int, reserved_bytes: int
) -> None:
    """Write the counters of a coordinator that have no proof yet, as they were counted now; see `Counters`."""
    counted = Counters(owner_pk, unfinished, retained_bytes, reserved_bytes, None)
    proved = replace(counted, proof=of_counters(vault, counted))
    statements.move(connection, owner_pk, before=None, after=_columns(proved))


def _changed(vault: Vault, known: Counters, change: Mapping[str, int], budget_bytes: int | None) -> Counters:
    changed = known.plus(vault, **change)
    if budget_bytes is None:
        return changed
    is_full = changed.retained_bytes + changed.reserved_bytes > budget_bytes
    if is_full or changed.unfinished > limits.COORDINATOR_UNFINISHED:
        raise coordinators.refusal(
            unfinished=known.unfinished if change["unfinished"] else 0, budget_bytes=budget_bytes
        )
    return changed


def _columns(counters: Counters) -> dict[str, Any]:
    return {
        "unfinished": counters.unfinished,
        "retained_bytes": counters.retained_bytes,
        "reserved_bytes": counters.reserved_bytes,
        "proof": counters.proof,
    }
