"""Statements about the keys of the vault: its row, rotations, data keys by master key, and who holds keys.

Locks: whoever wraps a data key or decides holds the vault's row shared (``FOR KEY SHARE``); whoever sets the flag,
changes the master key or retires one holds it exclusively (``FOR UPDATE``). On SQLite every writer is alone anyhow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam

from continuity.store.schema import key_holders, partitions, rotations, vault
from continuity.store.workflows import VAULT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

RING: Final = sa.select(
    vault.c.state, vault.c.generation, vault.c.key_id, vault.c.locked_at, vault.c.locked_by, vault.c.sealed_canary,
    vault.c.wrapped_index_key,
).where(vault.c.id == 1)  # fmt: skip
"""What a process must know to follow; without a lock."""

WRAPPING: Final = (
    sa.select(vault.c.state, vault.c.key_id).where(vault.c.id == 1).with_for_update(of=vault, read=True, key_share=True)
)
"""For whoever wraps a data key in the same transaction."""

EXCLUSIVE: Final = (
    sa.select(*VAULT_COLUMNS, vault.c.key_id, vault.c.generation, vault.c.wrapped_index_key)
    .where(vault.c.id == 1)
    .with_for_update(of=vault)
)
"""For whoever changes flag or keys: everybody who holds the row shared has ended."""

PROVABLE: Final = sa.select(
    *VAULT_COLUMNS, vault.c.key_id, vault.c.sealed_canary, vault.c.wrapped_index_key
).where(vault.c.id == 1)  # fmt: skip
"""What stands in the row, for whoever has keys to prove it by; without a lock."""

_WHERE_VAULT: Final = vault.c.id == 1
LATEST: Final = sa.select(rotations).order_by(rotations.c.rotation_pk.desc()).limit(1)
_TO_REWRAP: Final = (
    sa.select(partitions.c.partition_id, partitions.c.key_id, partitions.c.wrapped_key)
    .where(
        partitions.c.partition_id > bindparam("after"),
        partitions.c.key_id != bindparam("new_key_id"),
        partitions.c.wrapped_key.is_not(None),
    )
    .order_by(partitions.c.partition_id)
    .limit(bindparam("count"))
)
_ALL_AFTER: Final = (
    sa.select(partitions.c.partition_id, partitions.c.kind, partitions.c.key_id, partitions.c.wrapped_key)
    .where(partitions.c.partition_id > bindparam("after"), partitions.c.wrapped_key.is_not(None))
    .order_by(partitions.c.partition_id)
    .limit(bindparam("count"))
)
_REWRAP: Final = (
    sa.update(partitions)
    # Not one that was destroyed or rewrapped since it was read.
    .where(partitions.c.partition_id == bindparam("b_partition_id"), partitions.c.wrapped_key == bindparam("b_before"))
    .values(key_id=bindparam("b_key_id"), wrapped_key=bindparam("b_wrapped"))
)


def write_state(
    connection: Connection, *, state: str, proof: bytes, locked_at: int | None, locked_by: str | None
) -> None:
    """Write the flag with its proof, and let every process look again."""
    connection.execute(sa.update(vault).where(_WHERE_VAULT).values(
        state=state, proof=proof, locked_at=locked_at, locked_by=locked_by, generation=vault.c.generation + 1
    ))  # fmt: skip


def raise_generation(connection: Connection) -> None:
    """Let every process look again at flag and keys."""
    connection.execute(sa.update(vault).where(_WHERE_VAULT).values(generation=vault.c.generation + 1))


def switch_key(connection: Connection, *, key_id: int, canary: bytes, wrapped_index_key: bytes) -> None:
    """Let another master key wrap from here on, under the lock of `EXCLUSIVE`."""
    connection.execute(sa.update(vault).where(_WHERE_VAULT).values(
        key_id=key_id, sealed_canary=canary, wrapped_index_key=wrapped_index_key, generation=vault.c.generation + 1
    ))  # fmt: skip


def insert_rotation(connection: Connection, values: Mapping[str, Any]) -> int:
    """Write a new rotation; return its number."""
    made = connection.execute(sa.insert(rotations).values(values)).inserted_primary_key
    return int(made[0]) if made is not None else 0


def move_rotation(
    connection: Connection, rotation_pk: int, *, state: str, cursor: str, values: Mapping[str, Any]
) -> bool:
    """Change a rotation that still stands where its reader saw it; False when somebody else has moved it."""
    stands = sa.and_(rotations.c.rotation_pk == rotation_pk, rotations.c.state == state, rotations.c.cursor == cursor)
    return connection.execute(sa.update(rotations).where(stands).values(values)).rowcount == 1


def to_rewrap(connection: Connection, *, after: str, new_key_id: int, count: int) -> Sequence[Any]:
    """Read data keys that are not under a master key, by partition id: ``partition_id, key_id, wrapped_key``."""
    return connection.execute(_TO_REWRAP, {"after": after, "new_key_id": new_key_id, "count": count}).all()


def data_keys_after(connection: Connection, *, after: str, count: int) -> Sequence[Any]:
    """Read data keys by partition id: ``partition_id, kind, key_id, wrapped_key``."""
    return connection.execute(_ALL_AFTER, {"after": after, "count": count}).all()


def rewrap(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rewrapped data keys: ``b_partition_id, b_before, b_key_id, b_wrapped`` each."""
    if rows:
        connection.execute(_REWRAP, list(rows))


def count_data_keys(connection: Connection) -> int:
    """Count the data keys that are there."""
    return int(connection.execute(
        sa.select(sa.func.count()).select_from(partitions).where(partitions.c.wrapped_key.is_not(None))
    ).scalar_one())  # fmt: skip


def count_by_other_key(connection: Connection, key_id: int) -> dict[int, int]:
    """Count data keys under every master key but one; empty when there are none."""
    rows = connection.execute(
        sa.select(partitions.c.key_id, sa.func.count())
        .where(partitions.c.key_id != key_id, partitions.c.wrapped_key.is_not(None))
        .group_by(partitions.c.key_id)
    )
    return {row[0]: row[1] for row in rows}


def under_other_keys(connection: Connection, key_id: int, *, count: int) -> Sequence[Any]:
    """Read partitions whose data key is under another master key: ``partition_id, key_id``, by partition id."""
    return connection.execute(
        sa.select(partitions.c.partition_id, partitions.c.key_id)
        .where(partitions.c.key_id != key_id, partitions.c.wrapped_key.is_not(None))
        .order_by(partitions.c.partition_id)
        .limit(count)
    ).all()


def write_holder(connection: Connection, values: Mapping[str, Any], *, seen_before: int) -> None:
    """Write what a process holds: ``holder_id, state, generation, key_ids, seen_at``; forget who is long gone."""
    connection.execute(sa.delete(key_holders).where(sa.or_(
        key_holders.c.holder_id == values["holder_id"], key_holders.c.seen_at < seen_before
    )))  # fmt: skip
    connection.execute(sa.insert(key_holders).values(values))


def drop_holder(connection: Connection, holder_id: str) -> None:
    """Forget a process that ends."""
    connection.execute(sa.delete(key_holders).where(key_holders.c.holder_id == holder_id))


def drop_holders(connection: Connection) -> None:
    """Forget all processes: for whoever knows that they are gone."""
    connection.execute(sa.delete(key_holders))


def holders(connection: Connection, *, seen_since: int) -> Sequence[Any]:
    """Read which processes said lately what they hold."""
    return connection.execute(
        sa.select(key_holders).where(key_holders.c.seen_at >= seen_since).order_by(key_holders.c.holder_id)
    ).all()
