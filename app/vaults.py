"""The vault of an instance: where its key comes from, how its row and files are made, how it is opened.

Keys are read here, from where the settings say, and go into the vault; they stand in no setting.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from app.config import Settings
from continuity.errors import KeySourceError, UnavailableError
from continuity.services import proofs, recounting
from continuity.store import schema
from continuity.store.store import Store
from continuity.vault import (
    EnvironmentKeyProvider,
    FileKeyProvider,
    KeyProvider,
    ShredHead,
    ShredList,
    Vault,
    create_vault,
    files,
    open_vault,
)

EVIDENCE_FORMAT: Final = 2
"""Format of a new vault; the first workflow opts it in to the next one."""


def key_provider(settings: Settings) -> KeyProvider:
    """Return where the master key comes from. Takes it out of the environment: once a process, before any fork."""
    if settings.vault_key_variable is not None:
        return EnvironmentKeyProvider(name=settings.vault_key_variable)
    return FileKeyProvider(settings.vault_key_file)


def vault_row(store: Store) -> sa.Row[Any] | None:
    """Return the vault's row, None before there is one."""
    return store.autocommit(lambda connection: connection.execute(sa.select(schema.vault)).first())


def create(store: Store, settings: Settings, keys: KeyProvider, *, now_us: int) -> None:
    """Write the vault's row, with keys made before it: a crash between leaves keys that the next try finds."""
    if isinstance(keys, FileKeyProvider):
        _make_file(settings.vault_key_file, keys.create)
    _make_file(settings.shred_list, lambda: ShredList.create(settings.shred_list))
    shred_list = ShredList(settings.shred_list)
    head, keyring = shred_list.head, keys.load()
    new = create_vault(keyring)
    vault = open_vault(
        keyring, canary=new.canary, wrapped_index_key=new.wrapped_index_key, shred_list=shred_list, recorded=head
    )
    proof = proofs.of_vault(
        vault, state="open", capture_mode="full", mark_us=now_us, epoch=1, restored_us=None, is_recovery_open=False
    )
    row = {
        "id": 1, "format": EVIDENCE_FORMAT, "epoch": 1, "capture_mode": "full", "state": "open",
        "key_id": new.key_id, "sealed_canary": new.canary, "wrapped_index_key": new.wrapped_index_key,
        "clock_high_water": now_us, "restored_at": None, "recovery_open": False,
        "shred_length": head.length, "shred_head": head.head, "proof": proof,
    }  # fmt: skip

    def work(connection: sa.Connection) -> None:
        # Of two that initialise at once the second one's row is refused, and its keys were the first one's files.
        if connection.execute(sa.select(schema.vault.c.id)).first() is None:
            connection.execute(sa.insert(schema.vault), row)

    store.write(work)


def _make_file(path: Path, create: Callable[[], object]) -> None:
    if not files.is_unwritten(path):
        return
    try:
        create()
    except KeySourceError:
        # Of two that initialise at once the other one was faster: its file is the one.
        if files.is_unwritten(path):
            raise


def open_stored(store: Store, settings: Settings, keys: KeyProvider) -> Vault:
    """Open the vault of an instance.

    Raises:
        UnavailableError: There is none yet, or the database does not answer.
        KeySourceError: The master key cannot be had.
        IntegrityError: The shred list is not the one that the database knows.
    """
    row = vault_row(store)
    if row is None:
        raise UnavailableError("The instance has no vault yet. Run `atmem init`.")
    return _opened(row, settings, keys)


def prove_rows(connection: sa.Connection, settings: Settings, keys: KeyProvider) -> None:
    """Prove the rows of a vault that is older than proofs. Only the step that makes room for them does this."""
    # Columns that a later step adds are not there yet: a new database has no row, and nothing more is asked of it.
    if connection.execute(sa.select(schema.vault.c.id)).first() is None:
        return
    row = connection.execute(sa.select(schema.vault)).one()
    recounting.prove_all(connection, _opened(row, settings, keys))


def _opened(row: sa.Row[Any], settings: Settings, keys: KeyProvider) -> Vault:
    return open_vault(
        keys.load(),
        canary=row.sealed_canary,
        wrapped_index_key=row.wrapped_index_key,
        shred_list=ShredList(settings.shred_list),
        recorded=ShredHead(row.shred_length, row.shred_head),
    )
