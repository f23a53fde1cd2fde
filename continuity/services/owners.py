"""Principals of credentials: one row of ``continuity_owners`` each, with the name sealed.

A principal_id is known by a keyed hash, so that it can be found without being readable. Its first credential
fixes its kind and workspace for good: who reads a history later must not wonder whose name this was.

The rows of kind ``operators`` are key namespaces and no principals; they have no name and are never found here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from continuity.errors import ConflictError, DecryptionError, IntegrityError, SealedError
from continuity.services import proofs
from continuity.services.callers import CallerKind
from continuity.services.partitions import ensure_partition, find_partition
from continuity.store.schema import owners
from continuity.store.store import Store
from continuity.vault.partition import PartitionKey
from continuity.vault.place import Place
from continuity.vault.vault import Vault

PARTITION: Final = "principals"
"""Partition under which all names are sealed; made with the first one."""

_NAMES_KEPT: Final = 4_096
_INDEX_PURPOSE: Final = "principal"


@dataclass(frozen=True, slots=True)
class Owner:
    """A known principal.

    Attributes:
        owner_pk: Its row.
        kind: Its only kind, as on the wire.
        workspace_pk: Its only workspace; None for an operator that reaches all of its issuer's.
    """

    owner_pk: int
    kind: str
    workspace_pk: int | None


class Owners:
    """Finds and makes principals, and reads their names. Safe to share between threads."""

    def __init__(self, store: Store, vault: Vault) -> None:
        """Keep both; nothing is read yet."""
        self._store = store
        self._vault = vault
        self._remembered = lru_cache(maxsize=_NAMES_KEPT)(self._read_name)
        self._remembered_agents = lru_cache(maxsize=_NAMES_KEPT)(self._read_agents)

    def find(self, connection: Connection, principal_id: str) -> Owner | None:
        """Return a known principal, None for any other name.

        Raises:
            SealedError: The vault is locked.
        """
        row = connection.execute(_OWNER.where(owners.c.principal_ix == self._index(principal_id))).one_or_none()
        return None if row is None else Owner(row.owner_pk, row.kind, row.workspace_pk)

    def ensure(
        self, connection: Connection, principal_id: str, *, kind: CallerKind, workspace_pk: int | None,
        agents: frozenset[str] = frozenset(),
    ) -> int:  # fmt: skip
        """Return the principal's owner_pk, made now when it is new. Safe when two do it at once.

        Args:
            connection: Of the caller's writing transaction.
            principal_id: An identifier: ASCII letters, digits, ``_`` and ``-``.
            kind: The kind it has or shall have.
            workspace_pk: The workspace it has or shall have.
            agents: Of a thread worker: the agents whose runs it may claim.

        Raises:
            ConflictError: It is known with another kind, workspace or agents (``request_conflict``).
            SealedError: The vault is locked.
        """
        principal_ix = self._index(principal_id)
        key = ensure_partition(connection, self._vault, PARTITION, kind="owner")
        sealed = key.seal(principal_id.encode("ascii"), place=_place(principal_ix))
        values = {
            "workspace_pk": workspace_pk, "kind": kind.value, "principal_ix": principal_ix, "sealed_principal": sealed,
            "sealed_agents": _sealed_agents(key, agents, principal_ix),
        }  # fmt: skip
        is_new = self.find(connection, principal_id) is None
        _insert_new(connection, owners, values=values, key=owners.c.principal_ix)
        row = connection.execute(_OWNER.where(owners.c.principal_ix == principal_ix)).one()
        if row.kind != kind.value or row.workspace_pk != workspace_pk:
            raise ConflictError("principal_id is known with another role or workspace; take another name.")
        if _agents_of(key, row) != agents:
            raise ConflictError("principal_id is known with other agents; take another name.")
        if is_new and kind is CallerKind.COORDINATOR:
            # Of two that find it missing, one writes the proof and the other finds it written.
            proofs.begin_counters(connection, self._vault, row.owner_pk)
        return int(row.owner_pk)

    def name(self, owner_pk: int, *, epoch: int) -> str:
        """Return the principal_id of a row, from memory after the first time: it never changes in an epoch.

        Raises:
            SealedError: The vault is locked; what was remembered is forgotten.
            DecryptionError: The name or its key was changed.
            IntegrityError: There is no such row, or it has no name.
        """
        if self._vault.is_locked:
            self.forget()
            raise SealedError("The vault is locked.")
        return self._remembered(owner_pk, epoch)

    def agents(self, owner_pk: int, *, epoch: int) -> frozenset[str]:
        """Return the agents whose runs a thread worker may claim; remembered and raised as `name`."""
        if self._vault.is_locked:
            self.forget()
            raise SealedError("The vault is locked.")
        return self._remembered_agents(owner_pk, epoch)

    def names(self, connection: Connection) -> dict[int, str]:
        """Return the names of all principals by owner_pk.

        Raises:
            SealedError: The vault is locked.
            DecryptionError: A name or the key was changed.
        """
        rows = connection.execute(_NAME.where(owners.c.sealed_principal.is_not(None))).all()
        if not rows:
            return {}
        key = self._key(connection)
        return {row.owner_pk: _name_of(key, row) for row in rows}

    def forget(self) -> None:
        """Drop every name from memory, when the vault is locked."""
        self._remembered.cache_clear()
        self._remembered_agents.cache_clear()

    def _index(self, principal_id: str) -> bytes:
        return self._vault.index(_INDEX_PURPOSE, principal_id)

    def _read_name(self, owner_pk: int, _epoch: int) -> str:
        statement = _NAME.where(owners.c.owner_pk == owner_pk)
        row = self._store.autocommit(lambda connection: connection.execute(statement).one_or_none())
        if row is None or row.sealed_principal is None:
            raise IntegrityError("A principal's row is damaged.")
        return _name_of(self._store.autocommit(self._key), row)

    def _read_agents(self, owner_pk: int, _epoch: int) -> frozenset[str]:
        statement = _OWNER.where(owners.c.owner_pk == owner_pk)
        row = self._store.autocommit(lambda connection: connection.execute(statement).one_or_none())
        if row is None:
            raise IntegrityError("A principal's row is damaged.")
        return _agents_of(self._store.autocommit(self._key), row)

    def _key(self, connection: Connection) -> PartitionKey:
        key = find_partition(connection, self._vault, PARTITION)
        if key is None:
            raise IntegrityError("The key of principals' names is not there.")
        return key


_OWNER: Final = sa.select(
    owners.c.owner_pk, owners.c.kind, owners.c.workspace_pk, owners.c.principal_ix, owners.c.sealed_agents
)
_NAME: Final = sa.select(owners.c.owner_pk, owners.c.principal_ix, owners.c.sealed_principal)


def _place(principal_ix: bytes) -> Place:
    # Named by the keyed hash: the row's number is not known before the row is there.
    return Place("continuity_owners", PARTITION, principal_ix.hex(), "sealed_principal")


def _name_of(key: PartitionKey, row: Any) -> str:
    try:
        return key.open(row.sealed_principal, place=_place(row.principal_ix)).decode("ascii")
    except UnicodeDecodeError:
        raise DecryptionError from None


def _agents_place(principal_ix: bytes) -> Place:
    return Place("continuity_owners", PARTITION, principal_ix.hex(), "sealed_agents")


def _sealed_agents(key: PartitionKey, agents: frozenset[str], principal_ix: bytes) -> bytes | None:
    if not agents:
        return None
    return key.seal(",".join(sorted(agents)).encode("ascii"), place=_agents_place(principal_ix))


def _agents_of(key: PartitionKey, row: Any) -> frozenset[str]:
    """Read the agents of a row. Their names are identifiers, so none holds a comma."""
    if row.sealed_agents is None:
        return frozenset()
    try:
        return frozenset(key.open(row.sealed_agents, place=_agents_place(row.principal_ix)).decode("ascii").split(","))
    except UnicodeDecodeError:
        raise DecryptionError from None


def _insert_new(connection: Connection, table: Any, *, values: dict[str, Any], key: Any) -> None:
    """Insert a row unless one with this key is there, whoever was first."""
    insert = sqlite_insert if connection.dialect.name == "sqlite" else postgresql_insert
    connection.execute(insert(table).values(values).on_conflict_do_nothing(index_elements=[key]))
