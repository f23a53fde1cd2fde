"""Statements that turn a database that was put back into one that may be worked on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.store.schema import key_holders, owners, partitions, shredded, terms, vault, workflows
from continuity.store.workflows import VAULT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection, Row

_WAITING: Final = ("paused", "ready", "running", "resumable")
EXCLUSIVE: Final = (
    sa.select(*VAULT_COLUMNS, vault.c.generation, vault.c.restored_from).where(vault.c.id == 1).with_for_update()
)
"""The vault's row, with nobody beside: decisions hold it shared."""
WINDOW: Final = sa.select(vault.c.recovery_open, vault.c.restored_at, vault.c.restored_from).where(vault.c.id == 1)


def begin_epoch(connection: Connection, values: Mapping[str, Any]) -> None:
    """Write the vault's row of a new epoch, and forget which processes hold its keys."""
    connection.execute(sa.update(vault).where(vault.c.id == 1).values(dict(values)))
    connection.execute(sa.delete(key_holders))


def let_people_decide(connection: Connection) -> int:
    """Put whatever was ready to go on among what waits for a person; returns how many workflows.

    Phases are for lists and counts, which show by them what the decisions say themselves.
    """
    waits = sa.and_(workflows.c.phase.in_(_WAITING), workflows.c.deleted_at.is_(None), workflows.c.ever_enabled)
    values = {"phase": "decision", "phase_due_at": None, "phase_after_due": None}
    return connection.execute(sa.update(workflows).where(waits).values(values)).rowcount


def close_window(connection: Connection, *, proof: bytes) -> None:
    """Let work be created again."""
    connection.execute(sa.update(vault).where(vault.c.id == 1).values(recovery_open=False, proof=proof))


def noted(connection: Connection) -> int:
    """Count the partitions whose destruction the database knows of."""
    return connection.execute(sa.select(sa.func.count()).select_from(shredded)).scalar_one()


def known(connection: Connection, indexes: Collection[bytes]) -> set[bytes]:
    """Return which of these partitions' destruction the database knows of."""
    return set(
        connection.execute(sa.select(shredded.c.partition_ix).where(shredded.c.partition_ix.in_(indexes))).scalars()
    )


def partitions_after(connection: Connection, partition_id: str, *, count: int) -> Sequence[Row[str, str]]:
    """Return id and kind of partitions whose key is there, in the order of their ids."""
    return connection.execute(
        sa.select(partitions.c.partition_id, partitions.c.kind)
        .where(partitions.c.partition_id > partition_id, partitions.c.wrapped_key.is_not(None))
        .order_by(partitions.c.partition_id)
        .limit(count)
    ).all()


def forget_key(connection: Connection, partition_id: str) -> None:
    """Destroy the data key of a partition."""
    connection.execute(sa.update(partitions).where(partitions.c.partition_id == partition_id).values(wrapped_key=None))


def forget_words_of_deleted(connection: Connection) -> int:
    """Take tombstones out of the search, whose words nobody can tell any more; returns how many words."""
    gone = sa.select(workflows.c.workflow_pk).where(workflows.c.deleted_at.is_not(None))
    return connection.execute(sa.delete(terms).where(terms.c.workflow_pk.in_(gone))).rowcount


def coordinators(connection: Connection) -> list[int]:
    """Return the rows of all coordinators, locked in one order."""
    return list(connection.execute(
        sa.select(owners.c.owner_pk)
        .where(owners.c.kind == "continuity_coordinator")
        .order_by(owners.c.owner_pk)
        .with_for_update()
    ).scalars())  # fmt: skip
