"""What a backup says of itself, and which parts it has. The layout of the file: ``continuity/vault/FORMAT.md``."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from app.auth import schema as people
from continuity.errors import ContinuityError
from continuity.store import schema
from continuity.vault import Keyring, ShredHead, ShredList, Vault, kept_keys, open_vault
from observations import schema as observed

PURPOSE: Final = "backup"
FORMAT: Final = 1
HEAD: Final = "head.json"
KEYS: Final = "vault.key"
SECRET: Final = "secret.key"  # noqa: S105 - the name of a part
OLDER_SECRETS: Final = "secret.older"
SHRED: Final = "shred.list"
DATABASE: Final = "database.sqlite"
TABLE: Final = "table."
SMALL_BYTES_MAX: Final = 1024 * 1024
"""What is read into memory as a whole: head, keys, secret."""

REVISION: Final = sa.table("alembic_version", sa.column("version_num"))


class BackupError(ContinuityError):
    """A backup cannot be made, or is none that can be restored here. The message says what was changed: nothing."""

    code = "backup_unusable"


@dataclass(frozen=True, slots=True)
class Head:
    """What a backup is. Bytes travel as base64.

    Attributes:
        format: Of what is in the file.
        kind: ``sqlite`` or ``postgresql``: it is restored into the same.
        revision: Of the tables.
        made_us: Of what time the data is.
        epoch: The vault's.
        key_id: The master key that wraps.
        canary: By which the master keys are known to be this vault's.
        index_key: The index key, sealed.
        shred_length: How far the shred list went, as the database says.
        shred_head: The same, its hash.
        workflows: How many there are.
        audit_seq: The last entry of the audit log.
        tables: Columns of each table, on PostgreSQL.
        counters: How far numbers of rows went, on PostgreSQL.
    """

    format: int
    kind: str
    revision: str
    made_us: int
    epoch: int
    key_id: int
    canary: str = field(repr=False)
    index_key: str = field(repr=False)
    shred_length: int
    shred_head: str
    workflows: int
    audit_seq: int
    tables: dict[str, list[str]] = field(default_factory=dict, repr=False)
    counters: dict[str, int] = field(default_factory=dict, repr=False)

    def spelled(self) -> bytes:
        """Return it as the first part of a backup."""
        return json.dumps(asdict(self)).encode()

    @property
    def shred(self) -> ShredHead:
        """How far the shred list went."""
        return ShredHead(self.shred_length, base64.b64decode(self.shred_head))

    def check_keys(self, keyring: Keyring) -> None:
        """Prove master keys by the canary; `KeySourceError` when they are not this vault's."""
        kept_keys.prove(
            keyring, canary=base64.b64decode(self.canary), wrapped_index_key=base64.b64decode(self.index_key)
        )

    def open_vault(self, keyring: Keyring, shred_list: ShredList) -> Vault:
        """Open the vault of the backup; `KeySourceError` when the keys are not its."""
        return open_vault(
            keyring, canary=base64.b64decode(self.canary), wrapped_index_key=base64.b64decode(self.index_key),
            shred_list=shred_list, recorded=self.shred,
        )  # fmt: skip


def parsed(content: bytes) -> Head:
    """Read the first part of a backup.

    Raises:
        BackupError: It is of another format, that of a newer program.
    """
    value: dict[str, Any] = json.loads(content)
    if value.get("format") != FORMAT:
        raise BackupError("The backup was made by a newer program: restore it with that one. Nothing was changed.")
    return Head(**value)


def read_head(connection: sa.Connection, *, kind: str, made_us: int, **more: Any) -> Head:
    """Read from a copy what a backup says of itself."""
    vault = connection.execute(sa.select(schema.vault)).one()
    workflows = sa.select(sa.func.count()).select_from(schema.workflows).where(schema.workflows.c.deleted_at.is_(None))
    return Head(
        format=FORMAT,
        kind=kind,
        revision=connection.execute(sa.select(REVISION.c.version_num)).scalar_one(),
        made_us=made_us,
        epoch=vault.epoch,
        key_id=vault.key_id,
        canary=_text(vault.sealed_canary),
        index_key=_text(vault.wrapped_index_key),
        shred_length=vault.shred_length,
        shred_head=_text(vault.shred_head),
        workflows=connection.execute(workflows).scalar_one(),
        audit_seq=connection.execute(sa.select(schema.audit_head.c.seq)).scalar_one(),
        **more,
    )


def tables() -> list[sa.Table]:
    """Return all tables of the product, those that others refer to first."""
    return [
        table for metadata in (schema.metadata, people.metadata, observed.metadata) for table in metadata.sorted_tables
    ]


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
