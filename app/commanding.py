"""What commands do with an instance that nobody serves: make it, bring its tables up to date, look for damage.

Each opens what it needs and gives it back; nothing here serves requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app import databases, instance, vaults
from app.auth import schema as accounts_schema
from app.auth.accounts import Temporary
from app.config import Settings
from app.databases import check_schema, open_observations, upgrade_schema
from app.vaults import key_provider
from app.wiring import Overrides, SystemClock, built, overridden, passphrase_cost
from continuity.errors import KeySourceError, SealedError, VaultError
from continuity.services.audit import AuditLog
from continuity.services.auditing import Auditing
from continuity.services.clockwatch import ClockWatch
from continuity.services.opening import Opener
from continuity.store import schema
from continuity.store.store import Store
from continuity.vault import Vault
from observations import schema as observed_schema
from observations.ingest import Ingest

__all__ = [
    "Auditing", "auditing", "check_database", "check_whole", "ingest_on", "initialise", "observing", "upgrade",
]  # fmt: skip


def ingest_on(store: Store) -> Ingest:
    """Return an ingest for a command that runs beside the server."""
    return Ingest(store, now_us=SystemClock().now_us)


@contextmanager
def observing(settings: Settings) -> Iterator[Store]:
    """Open what was observed for a command that runs and ends; it needs no key.

    Raises:
        SettingsError: The instance folder is missing or not private.
        UnavailableError: The database does not answer, or its tables are not those of this program.
    """
    instance.guard(settings)
    store = open_observations(settings)
    try:
        check_schema(store)
        yield store
    finally:
        databases.close(store)


def initialise(
    settings: Settings, *, overrides: Overrides | None = None, passphrase: str | None = None
) -> Temporary | None:
    """Make whatever of an instance is missing: folder, keys, shred list, tables, vault, first administrator.

    Safe to repeat, also after a crash at any point: each step finds what is there and keeps it. A key is never
    made for a vault that exists, since it could not open it.

    Returns:
        The first administrator's temporary password, this once; None when there are accounts already.

    Raises:
        SettingsError, UnavailableError, KeySourceError, IntegrityError: As `build`. What was made so far stays.
    """
    instance.prepare(settings)
    overrides = overridden(overrides)
    keys = key_provider(settings, passphrase=passphrase, cost=passphrase_cost(overrides))
    with databases.opened(settings) as store:
        upgrade_schema(store, settings, keys)
        if vaults.vault_row(store) is None:
            vaults.create(store, settings, keys, now_us=SystemClock().now_us())
    with built(settings, keys=keys, overrides=overrides) as wiring:
        return wiring.auth.accounts.bootstrap()


def upgrade(settings: Settings) -> list[str]:
    """Run the migrations that are missing; return their names, oldest first."""
    instance.guard(settings)
    with databases.opened(settings) as store:
        return upgrade_schema(store, settings, key_provider(settings))


def check_whole(settings: Settings) -> None:
    """Refuse a database with damaged pages: what a server asks before it serves. Takes as long as reading all of it.

    Raises:
        UnavailableError: It is damaged, or does not answer.
    """
    tables = [table for each in (schema, accounts_schema, observed_schema) for table in each.metadata.sorted_tables]
    with databases.opened(settings) as store:
        check_schema(store)
        databases.check_whole(store, tables)


def check_database(settings: Settings) -> list[str]:
    """Look for damage: revision, tables, SQLite's own integrity check, the audit chain.

    Returns:
        What was found, one line each; empty when the database is sound.
    """
    instance.guard(settings)
    with databases.opened(settings) as store:
        check_schema(store)
        problems = databases.problems(store)
        fault = store.read(AuditLog(None).verify).fault
        if fault is not None:
            problems.append(f"The audit log is not whole: {fault.kind} at entry {fault.seq}.")
        return problems


@contextmanager
def auditing(settings: Settings) -> Iterator[tuple[Auditing, str | None]]:
    """Open the audit log for a command that runs and ends.

    Returns:
        What reads it, and why the vault does not open here; None when it does.

    Raises:
        SettingsError: The instance folder is missing or not private.
        UnavailableError: The database does not answer, or its tables are not those of this program.
    """
    instance.guard(settings)
    clock = SystemClock()
    with databases.opened(settings) as store:
        check_schema(store)
        try:
            vault = _unlocked(store, settings)
        except VaultError as error:
            # A shred list that is not the database's is what a database put back looks like: a finding, and no end.
            damage = None if isinstance(error, KeySourceError | SealedError) else error.message
            yield Auditing(store, AuditLog(None), None, clock.now_us, damage), error.message
            return
        try:
            yield Auditing(store, AuditLog(vault), Opener(vault, ClockWatch(clock)), clock.now_us), None
        finally:
            vault.lock()


def _unlocked(store: Store, settings: Settings) -> Vault:
    vault = vaults.open_stored(store, settings, key_provider(settings))
    if vault.is_locked:
        raise SealedError("The vault is locked.")
    return vault
