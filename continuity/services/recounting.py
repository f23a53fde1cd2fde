"""Proves the rows of a database that is older than proofs, by what is sealed and not by what its columns say.

Rules:

* A coordinator's counters are counted again from its workflows: whose each is, whether it is over and what its attempts
  keep free stand in its sealed state, and the bytes that it holds are those that lie there.
* A workflow that does not open counts for whom its row names, with the bytes that lie there, and as unfinished: it
  takes room, and gives none.
* Nothing sealed says what the vault's row was, or that a whole workflow was there: its columns are proved as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.errors import ConflictError, VaultError
from continuity.services import proofs
from continuity.services.checking import reserved_bytes
from continuity.services.clockwatch import ClockWatch
from continuity.services.opening import Opener, facts_of
from continuity.store import counters, counting
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.vault.vault import Vault

_BATCH: Final = 100


@dataclass(slots=True)
class _Held:
    unfinished: int = 0
    retained_bytes: int = 0
    reserved_bytes: int = 0


class _NoClock:
    """Opening asks for no time."""

    def now_us(self) -> int:
        return 0

    def monotonic_us(self) -> int:
        return 0


def prove_all(connection: Connection, vault: Vault) -> None:
    """Write the proofs of rows that an earlier version made without, in the step that brings the columns.

    Args:
        connection: The transaction of that step.
        vault: Holds the key.
    """
    row = connection.execute(statements.VAULT_TO_CHANGE).one()
    statements.write_proof(connection, proofs.of_vault_row(vault, row))
    unproved = [owner.counted_owner_pk for owner in connection.execute(counters.UNPROVED)]
    if not unproved:
        return
    held = {owner_pk: _Held() for owner_pk in unproved}
    opener = Opener(vault, ClockWatch(_NoClock()))
    after = 0
    while found := counting.sealed_after(connection, after, count=_BATCH):
        for each in found:
            _add(connection, opener, each.workflow_id, held=held)
        after = found[-1].workflow_pk
    for owner_pk, counted in held.items():
        proofs.prove_counters(
            connection, vault, owner_pk,
            unfinished=counted.unfinished, retained_bytes=counted.retained_bytes, reserved_bytes=counted.reserved_bytes,
        )  # fmt: skip


def _add(connection: Connection, opener: Opener, workflow_id: str, *, held: dict[int, _Held]) -> None:
    row = connection.execute(statements.HEAD_BY_ID, {"workflow_id": workflow_id}).one()
    try:
        opened = opener.unseal(row, facts_of(row))
        reserved = sum(map(reserved_bytes, opener.operations(connection, opened)))
        owner_pk, is_unfinished = opened.origin.owner_pk, opened.workflow.is_unfinished_work
    except (VaultError, ConflictError):
        owner_pk, is_unfinished, reserved = row.owner_pk, True, max(0, row.reserved_bytes)
    if owner_pk in held:
        held[owner_pk].unfinished += int(is_unfinished)
        held[owner_pk].retained_bytes += counting.stored_bytes(connection, row.workflow_pk)
        held[owner_pk].reserved_bytes += reserved
