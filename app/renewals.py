"""What begins after a database was put back, by a restore or by hand: a new epoch, in which only one person is known.

Rules:

* Whoever does it is an administrator of what was put back: by his password there, or by a temporary one that he is
  given. Everybody else needs one from him.
* The epoch is higher than every one that the instance is known to have had: by its database, if it can still be read,
  and by the anchor that lies beside the key.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from app import databases, instance, replacing, vaults
from app.auth import passwords as password_rules
from app.auth import voiding
from app.auth.accounts import Temporary
from app.auth.passwords import Passwords
from app.auth.settings import SECOND_US, AuthSettings
from app.config import Settings
from continuity.errors import IntegrityError, KeySourceError, SealedError, UnauthenticatedError, UnavailableError
from continuity.services import restoring
from continuity.services.audit import AuditLog
from continuity.services.restoring import Restored
from continuity.vault import KeyProvider, Vault
from continuity.vault.anchor import AnchorFile

_EPOCH_MOST: Final = 2**40
"""Above it a number in a database that is being replaced is no epoch of ours."""


@dataclass(frozen=True, slots=True)
class Who:
    """Whoever restores: an administrator of the backup, by his password there; without a name he gets a new one."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Renewed:
    """What a new epoch makes of people.

    Attributes:
        epoch: The vault's from now on.
        username: Who may sign in at once.
        temporary: His temporary password, this once; None when he has given his own.
        people_waiting: How many others need a password from an administrator.
    """

    epoch: int
    username: str
    temporary: Temporary | None
    people_waiting: int


def accept(
    settings: Settings, *, who: Who, keys: KeyProvider, now_us: int, auth: AuthSettings | None = None
) -> Renewed:
    """Begin a new epoch in a database that was put back by hand, which is refused until somebody says that it is meant.

    Raises:
        InstanceError: A server has the instance open.
        SealedError: The vault is locked.
        UnauthenticatedError, NotFoundError: `who` is no administrator of this database.
        UnavailableError, VaultError: As at a start. In no case was anything changed.
    """
    instance.guard(settings)
    with instance.held(settings), replacing.alone(settings), databases.opened(settings) as store:
        databases.check_schema(store)
        row = vaults.vault_row(store)
        vault = vaults.open_stored(store, settings, keys)
        if row is None or vault.is_locked:
            raise SealedError("The vault is locked. Nothing was changed.")
        above = epoch_above(settings)
        restored = Restored(
            action="vault.restore_accepted", actor="cli", epoch_above=above[0], mark_us=above[1], now_us=now_us,
            data_us=row.clock_high_water, detail={},
        )  # fmt: skip
        try:
            return store.write(lambda connection: begin(
                connection, vault, who=who, auth=auth or AuthSettings(), restored=restored
            ))  # fmt: skip
        finally:
            vault.lock()


def begin(connection: sa.Connection, vault: Vault, *, who: Who, auth: AuthSettings, restored: Restored) -> Renewed:
    """Void what was before, and begin the epoch; the last statements of a transaction."""
    person, temporary = _admitted(connection, who, auth=auth, now_us=restored.now_us)
    waiting = voiding.void(connection, user_pk=person.user_pk, now_us=restored.now_us, temporary=temporary)
    epoch = restoring.begin_epoch(connection, vault, AuditLog(vault), restored)
    return Renewed(epoch, person.username, None if temporary is None else temporary[0], waiting)


def _admitted(
    connection: sa.Connection, who: Who, *, auth: AuthSettings, now_us: int
) -> tuple[sa.Row[Any], tuple[Temporary, str] | None]:
    """Return the account of whoever restores, and the temporary password that it gets with its hash.

    Raises:
        NotFoundError: There is no such administrator.
        UnauthenticatedError: The password is not his.
    """
    person = voiding.administrator(connection, who.username)
    passwords = Passwords(auth.hashing)
    if who.password is not None:
        if not passwords.verify(person.password_hash, who.password):
            raise UnauthenticatedError("The password is not that of this account in the backup. Nothing was changed.")
        return person, None
    made = Temporary(person.username, password_rules.temporary_password(), now_us + auth.temporary_s * SECOND_US)
    return person, (made, passwords.hash(made.password))


def epoch_above(settings: Settings) -> tuple[int, int]:
    """Return the highest epoch and clock mark that this instance is known to have had."""
    anchor = None
    with suppress(KeySourceError, IntegrityError):
        anchor = AnchorFile(settings.anchor_file).read()
    epoch, mark_us = (0, 0) if anchor is None else (anchor.epoch, anchor.mark_us)
    database = database_file(settings)
    if database is None or database.exists():
        # What is there may be anything, damaged, of another program or gone: then the anchor is all that is known.
        with suppress(UnavailableError, *databases.storage_errors()), databases.opened(settings) as store:
            row = vaults.vault_row(store)
            if row is not None and 0 < row.epoch < _EPOCH_MOST:
                epoch = max(epoch, row.epoch)
    return epoch, mark_us


def database_file(settings: Settings) -> Path | None:
    return None if settings.is_postgresql else Path(str(sa.make_url(settings.database_url).database))
