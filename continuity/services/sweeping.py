"""Moves stored phases that have changed by themselves: a lease ran out, an idempotency window closed.

Small batches, each its own transaction; nothing that a decision reads is written. Pages compute the phase
of the rows they show, so this only keeps filters and counts true.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from continuity.decisions.phases import standpoint
from continuity.errors import ConflictError, DecryptionError, IntegrityError, SealedError
from continuity.services import proofs
from continuity.services.columns import phase_columns
from continuity.store import listing
from continuity.store import workflows as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.model import Operation, VaultFacts
    from continuity.services.ledger import Ledger
    from continuity.services.opened import Opened
    from continuity.store.store import Store

BATCH: Final = 50


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Housekeeping of phases and of the vault's clock mark.

    Attributes:
        store: Where everything is written.
        ledger: Opens workflows.
    """

    store: Store
    ledger: Ledger

    def sweep(self) -> int:
        """Move one batch of due phases; returns how many. Does nothing while the vault is locked."""

        def find(connection: Connection) -> list[str]:
            row = connection.execute(statements.VAULT).one()
            return list(listing.due(connection, now_us=self.ledger.read_clock(row.now_us).now_us, count=BATCH))

        due = self.store.read(find)
        if not due:
            return 0

        def move(connection: Connection) -> int:
            # In one order, so that two processes do not wait for each other.
            return sum(self._move(connection, workflow_id) for workflow_id in sorted(due))

        try:
            return self.store.write(move)
        except SealedError:
            return 0

    def raise_mark(self, latest_us: int) -> None:
        """Raise the vault's clock mark to the latest time a decision was given."""
        # A locked vault proves nothing; it gives no decision either, and those before are in the mark.
        with suppress(SealedError):
            self.store.write(lambda connection: proofs.raise_mark(connection, self.ledger.vault, latest_us))

    def _move(self, connection: Connection, workflow_id: str) -> int:
        row = connection.execute(statements.LOCKED_HEAD, {"workflow_id": workflow_id}).one_or_none()
        if row is None or row.deleted_at is not None or row.phase_due_at is None:
            return 0
        facts = self.ledger.facts(row)
        try:
            opened, following = self._open(connection, row, facts)
        except (ConflictError, DecryptionError, IntegrityError):
            # What does not open must not stay due for ever and keep the others waiting: it moves as its row says.
            moved = {"phase": row.phase_after_due, "phase_due_at": None, "phase_after_due": None}
            statements.update_phase(connection, row.workflow_pk, moved)
            return 1
        database_us = connection.execute(statements.VAULT).one().now_us
        now_us = self.ledger.read_clock(database_us).now_us
        if now_us < row.phase_due_at:
            return 0
        view = standpoint(opened.workflow, following, opened.vault, now_us=now_us)
        statements.update_phase(connection, opened.workflow_pk, phase_columns(view))
        return 1

    def _open(
        self, connection: Connection, row: statements.AnyRow, facts: VaultFacts
    ) -> tuple[Opened, Operation | None]:
        """Open a workflow and its first operation that is not completed."""
        opened = self.ledger.unseal(row, facts)
        ordinal = opened.workflow.done_prefix
        if ordinal == len(opened.workflow.standings):
            return opened, None
        return opened, self.ledger.operation_at(connection, opened, ordinal).operation
