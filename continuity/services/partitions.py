"""Data keys: how one is made, and those that belong to no single workflow (the audit log, names, tombstones).

Rules:

* A data key is wrapped under the master key that the vault's row names, read under a shared lock in the transaction
  that writes the key: nothing comes under a master key that a rotation has left (`rotation`).
* Where the flag says that the vault is locked, none is made and none is opened, whatever this process still holds.
* A shared one is made with the first value that is sealed under it, in the transaction that writes the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from continuity.errors import IntegrityError, SealedError
from continuity.store import keyring as statements
from continuity.store.schema import partitions
from continuity.store.schema import vault as vault_row

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from continuity.vault.partition import PartitionKey, WrappedKey
    from continuity.vault.vault import Vault

# Outer: a database without the vault's row is one of tests of a single part, and not locked.
_KEY = (
    sa.select(partitions.c.wrapped_key, partitions.c.key_id, vault_row.c.state)
    .select_from(partitions.outerjoin(vault_row, vault_row.c.id == 1))
    .where(partitions.c.partition_id == sa.bindparam("partition_id"))
)


def make_partition(connection: Connection, vault: Vault, partition_id: str) -> tuple[PartitionKey, WrappedKey]:
    """Make a fresh data key inside a writing transaction.

    Args:
        connection: Of the transaction that will write what this returns.
        vault: The vault.
        partition_id: An id that no partition had before, a destroyed one included.

    Returns:
        The data key, and what the row of the partition holds.

    Raises:
        SealedError: The vault is locked. Nothing has happened.
        KeySourceError: This process lacks the master key of now and cannot get it. Nothing has happened.
    """
    row = connection.execute(statements.WRAPPING).one_or_none()
    if row is None:
        return vault.new_partition(partition_id)
    if row.state == "locked":
        raise SealedError("The vault is locked. Nothing was done.")
    return vault.new_partition(partition_id, key_id=row.key_id)


def find_partition(connection: Connection, vault: Vault, partition_id: str) -> PartitionKey | None:
    """Return the data key of a partition, None when it was never made.

    Raises:
        SealedError: The vault is locked.
        VaultError: The key does not open or was destroyed.
    """
    row = connection.execute(_KEY, {"partition_id": partition_id}).one_or_none()
    if row is None:
        return None
    if row.wrapped_key is None:
        raise IntegrityError("The key of a shared partition was destroyed.")
    if row.state == "locked":
        raise SealedError("The vault is locked. Nothing was done.")
    return vault.open_partition(partition_id, row.wrapped_key, key_id=row.key_id)


def ensure_partition(connection: Connection, vault: Vault, partition_id: str, *, kind: str) -> PartitionKey:
    """Return the data key of a partition, made now when there is none. Safe when two do it at once.

    Args:
        connection: Of a writing transaction.
        vault: The vault.
        partition_id: Which partition.
        kind: Its kind in the table of partitions.

    Raises:
        SealedError: The vault is locked.
        VaultError: The key does not open or was destroyed.
    """
    found = find_partition(connection, vault, partition_id)
    if found is not None:
        return found
    _, wrapped = make_partition(connection, vault, partition_id)
    values = {
        "partition_id": partition_id, "kind": kind, "key_id": wrapped.key_id, "wrapped_key": wrapped.wrapped,
    }  # fmt: skip
    insert = sqlite_insert if connection.dialect.name == "sqlite" else postgresql_insert
    statement = insert(partitions).values(values)
    connection.execute(statement.on_conflict_do_nothing(index_elements=[partitions.c.partition_id]))
    # Read back: another process may have made it first.
    made = find_partition(connection, vault, partition_id)
    if made is None:
        raise IntegrityError("The key of a shared partition is not there.")
    return made
