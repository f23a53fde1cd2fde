"""Which workflows a run's attempts belong to, by a blind index: each grant notes its run, a deletion lets it go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from continuity.services.evidence_runs import run_index
from continuity.store import run_links as statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.decisions.model import Operation
    from continuity.services.opened import Opened
    from continuity.vault.vault import Vault

_AT_ONCE: Final = 500
"""Values in one statement."""


def note(connection: Connection, vault: Vault, opened: Opened, operation: Operation, *, run_id: str) -> None:
    """Note that an attempt of `run_id` was granted to an operation, unless an earlier one of it was.

    Args:
        connection: Of the transaction that grants.
        vault: Makes the index.
        opened: The workflow.
        operation: The operation as it was before the grant.
        run_id: Of the new attempt.
    """
    if any(attempt.run_id == run_id for attempt in operation.attempts):
        return
    statements.note(connection, run_index(vault, opened.origin.workspace_pk, run_id), opened.workflow_pk)


def forget(connection: Connection, vault: Vault, opened: Opened, operations: Iterable[Operation]) -> None:
    """Let a workflow that is deleted no longer be found by its runs, while it still opens and says which they are."""
    run_ids = {attempt.run_id for operation in operations for attempt in operation.attempts}
    indexes = [run_index(vault, opened.origin.workspace_pk, run_id) for run_id in sorted(run_ids)]
    for start in range(0, len(indexes), _AT_ONCE):
        statements.forget(connection, indexes[start : start + _AT_ONCE], opened.workflow_pk)
