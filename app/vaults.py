"""The vault of an instance: where its key comes from, how its row and files are made, how it is opened.

Keys are read here, from where the settings say, and go into the vault; they stand in no setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from app import handing
from app.config import Settings, TransitPlace
from continuity.errors import KeySourceError, SealedError, UnavailableError
from continuity.services import proofs, recounting
from continuity.store import schema
from continuity.store.engine import make_engine
from continuity.store.store import Store
from continuity.vault import (
    EnvironmentKeyProvider,
    FileKeyProvider,
    KeyProvider,
    Keyring,
    PassphraseKeyProvider,
    RotatingKeys,
    ShredHead,
    ShredList,
    Vault,
    create_vault,
    files,
    open_vault,
)
from continuity.vault.passphrase import DEFAULT_COST, Cost

EVIDENCE_FORMAT: Final = 2
"""Format of a new vault; the first workflow opts it in to the next one."""


def key_provider(settings: Settings, *, passphrase: str | None = None, cost: Cost = DEFAULT_COST) -> RotatingKeys:
    """Return where the master key comes from. Takes it out of the environment: once a process, before any fork.

    `passphrase` is for the source of that name, and `cost` for a file of it that is made.
    """
    if settings.vault_key_variable is not None:
        return EnvironmentKeyProvider(name=settings.vault_key_variable)
    if settings.vault_key_source == "passphrase":
        return PassphraseKeyProvider(settings.vault_key_file, passphrase=passphrase, cost=cost)
    if settings.transit is not None:
        return _transit(settings, settings.transit)
    return FileKeyProvider(settings.vault_key_file)


def _transit(settings: Settings, place: TransitPlace) -> RotatingKeys:
    # Not above: it needs the extra `kms`, which only this source does.
    from continuity.vault.transit import TransitKeyProvider, TransitSettings  # noqa: PLC0415

    named = TransitSettings(
        url=place.url, mount=place.mount, key=place.key, token_file=place.token_file, ca_file=place.ca_file,
        namespace=place.namespace,
    )  # fmt: skip
    return TransitKeyProvider(settings.vault_key_file, named)


@contextmanager
def serving_keys(settings: Settings, keys: KeyProvider) -> Iterator[KeyProvider]:
    """Give a server the keys that it and its workers fetch again and again; see `app.handing`.

    Raises:
        UnavailableError: The database does not answer.
        ForbiddenError: ``wrong_passphrase``. KeySourceError: The keys cannot be had, or not be left.
    """
    if keys.kind not in handing.KINDS:
        yield keys
        return
    store = Store(make_engine(settings.database_url, pool_size=1))
    try:
        row = vault_row(store)
    finally:
        store.close()
        store.engine.dispose()
    ring = None
    if row is not None and row.state != "locked":
        with suppress(SealedError):
            ring = keys.load()
    forget = getattr(keys, "forget", None)
    if forget is not None:
        forget()
    with handing.received(settings, keys.kind, ring) as handed:
        # What is left lies sealed for this server; nothing in it may hold the keys beside that.
        ring = None
        yield handed


def vault_row(store: Store) -> sa.Row[Any] | None:
    """Return the vault's row, None before there is one."""
    return store.autocommit(lambda connection: connection.execute(sa.select(schema.vault)).first())


def create(store: Store, settings: Settings, keys: KeyProvider, *, now_us: int) -> None:
    """Write the vault's row, with keys made before it: a crash between leaves keys that the next try finds."""
    make_key = getattr(keys, "create", None)
    if make_key is not None:
        _make_file(settings.vault_key_file, make_key)
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
    """Open the vault of an instance. It comes back locked where the flag says so, or while a passphrase is waited for.

    Raises:
        UnavailableError: There is none yet, or the database does not answer.
        KeySourceError: The master key cannot be had.
        IntegrityError: The shred list is not the one that the database knows.
    """
    before = None
    while (row := vault_row(store)) is not None:
        vault = _closed(row, settings)
        if row.state == "locked":
            return vault
        try:
            with suppress(SealedError):
                unlock(vault, keys.load(), key_id=row.key_id, canary=row.sealed_canary, index_key=row.wrapped_index_key)
        except KeySourceError:
            # A lock or a rotation between the two looks takes a key away: then the row of now says another thing.
            if before == (row.state, row.key_id):
                if _waits_for_passphrase(settings, keys):
                    return vault
                raise
            before = (row.state, row.key_id)
        else:
            return vault
    raise UnavailableError("The instance has no vault yet. Run `atmem init`.")


def _waits_for_passphrase(settings: Settings, keys: KeyProvider) -> bool:
    """Say whether the keys lie sealed here: another host unlocked the vault, and this one's folder is not yet."""
    return keys.kind == "file" and not settings.vault_key_file.exists() and settings.locked_key_file.exists()


def unlock(vault: Vault, ring: Keyring, *, key_id: int, canary: bytes, index_key: bytes) -> None:
    """Open a vault with keys of whatever source; `key_id` is the one that the row names. KeySourceError if not its."""
    if key_id not in ring.key_ids:
        raise KeySourceError(f"The vault's master key is number {key_id}, and its source does not hold that one.")
    vault.unlock(ring.with_primary(key_id), canary=canary, wrapped_index_key=index_key)


def epoch(store: Store) -> int:
    """Return the vault's epoch, which rises with every restore."""
    return store.autocommit(lambda connection: connection.execute(sa.select(schema.vault.c.epoch)).scalar_one())


NEEDED: Final = (
    schema.vault.c.key_id, schema.vault.c.sealed_canary, schema.vault.c.wrapped_index_key,
    schema.vault.c.shred_length, schema.vault.c.shred_head,
)  # fmt: skip
"""What opening needs of the vault's row, at every revision."""


def opened_with(row: Any, ring: Keyring, shred_list: ShredList) -> Vault:
    """Open the vault of a row with keys and a list that a backup brought; raises as `open_stored`."""
    shred_list.verify(ShredHead(row.shred_length, row.shred_head))
    vault = Vault(shred_list)
    unlock(vault, ring, key_id=row.key_id, canary=row.sealed_canary, index_key=row.wrapped_index_key)
    return vault


def prove_rows(connection: sa.Connection, settings: Settings, keys: KeyProvider) -> None:
    """Prove the rows of a vault that is older than proofs. Only the step that makes room for them does this."""
    # The columns that there were then.
    row = connection.execute(sa.select(
        schema.vault.c.key_id, schema.vault.c.sealed_canary, schema.vault.c.wrapped_index_key,
        schema.vault.c.shred_length, schema.vault.c.shred_head,
    )).first()  # fmt: skip
    if row is not None:
        vault = _closed(row, settings)
        unlock(vault, keys.load(), key_id=row.key_id, canary=row.sealed_canary, index_key=row.wrapped_index_key)
        recounting.prove_all(connection, vault)


def _closed(row: sa.Row[Any], settings: Settings) -> Vault:
    """Make the vault of a row without its keys, its shred list compared with what the row knows."""
    shred_list = ShredList(settings.shred_list)
    shred_list.verify(ShredHead(row.shred_length, row.shred_head))
    return Vault(shred_list)
