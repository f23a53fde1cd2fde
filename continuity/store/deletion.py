"""Statements that destroy a workflow's rows and leave its tombstone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from continuity.store.schema import (
    definitions,
    events,
    operations,
    partitions,
    receipts,
    shredded,
    terms,
    vault,
    workflows,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

_CONTENT: Final = (operations, definitions, receipts, events)
"""All but the words, which are found only by what they are: `forget_words`."""
SHRED_HEAD: Final = sa.select(vault.c.shred_length, vault.c.shred_head).where(vault.c.id == 1)

TOMBSTONE: Final = sa.select(workflows.c.sealed_tombstone).where(workflows.c.workflow_pk == sa.bindparam("workflow_pk"))


def shred_head(connection: Connection) -> Row[int, bytes]:
    """Return ``shred_length, shred_head`` of the vault's row."""
    return connection.execute(SHRED_HEAD).one()


def advance_shred_head(connection: Connection, *, length: int, head: bytes) -> None:
    """Move the database's copy of the shred list's head forward; a list that is further already stays."""
    statement = sa.update(vault).where(vault.c.id == 1, vault.c.shred_length < length)
    connection.execute(statement.values(shred_length=length, shred_head=head))


def destroy(connection: Connection, *, workflow_pk: int, workflow_id: str) -> dict[str, int]:
    """Destroy a workflow's data key and content; returns how many rows of each table."""
    connection.execute(sa.update(partitions).where(partitions.c.partition_id == workflow_id).values(wrapped_key=None))
    return {
        table.name.removeprefix("continuity_"): connection.execute(
            sa.delete(table).where(table.c.workflow_pk == workflow_pk)
        ).rowcount
        for table in _CONTENT
    }


def forget_words(connection: Connection, *, workspace_pk: int, workflow_pk: int, term_indexes: Sequence[bytes]) -> None:
    """Let a workflow no longer be found by its words."""
    place = (terms.c.workspace_pk == workspace_pk, terms.c.workflow_pk == workflow_pk)
    connection.execute(sa.delete(terms).where(*place, terms.c.term_ix.in_(term_indexes)))


def keep_tombstone(connection: Connection, workflow_pk: int, sealed_tombstone: bytes) -> None:
    """Write the tombstone of a workflow whose deletion begins."""
    connection.execute(
        sa.update(workflows).where(workflows.c.workflow_pk == workflow_pk).values(sealed_tombstone=sealed_tombstone)
    )


def tombstone(connection: Connection, workflow_pk: int) -> Any:
    """Return the sealed tombstone of a workflow whose deletion has begun."""
    return connection.execute(TOMBSTONE, {"workflow_pk": workflow_pk}).scalar_one()


def entomb(connection: Connection, workflow_pk: int, *, at_us: int) -> None:
    """Turn a workflow's row into its tombstone, which the index of unfinished deletions no longer holds."""
    values = {
        "deleting_at": None, "deleted_at": at_us, "changed_at": at_us, "phase": "deleted", "phase_due_at": None,
        "phase_after_due": None, "sealed_head": None, "retained_bytes": 0, "reserved_bytes": 0,
    }  # fmt: skip
    connection.execute(sa.update(workflows).where(workflows.c.workflow_pk == workflow_pk).values(values))


def note_shredded(connection: Connection, *, partition_ix: bytes, at_us: int) -> None:
    """Keep the second copy of the shred list, unless it is there."""
    known = connection.execute(sa.select(shredded.c.at).where(shredded.c.partition_ix == partition_ix)).one_or_none()
    if known is None:
        connection.execute(sa.insert(shredded).values(partition_ix=partition_ix, at=at_us))
