"""Restores an instance from a backup: all of it, or nothing.

Order: read and prove the whole file into prepared files; bring its tables to those of this program; begin a new
epoch in it; decide; move the files to their places (`app.replacing`). Until the decision nothing that was there is
touched, and what was prepared is thrown away by whoever comes next. After it the next one finishes.

What was deleted stays deleted: the shred list of the instance is kept, and followed at once and at every start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import sqlalchemy as sa

from app import backup_contents as contents
from app import backups, databases, instance, migrating, renewals, replacing, revisions, vaults
from app.auth.settings import AuthSettings
from app.backup_contents import BackupError, Head
from app.config import InstanceError, Settings
from app.renewals import Renewed, Who, database_file
from app.replacing import Journal, Tell, prepared
from continuity.errors import ContinuityError, IntegrityError
from continuity.services import recounting
from continuity.services.restoring import Restored
from continuity.store import copies
from continuity.store.store import Store
from continuity.vault import FileKeyProvider, KeyProvider, Keyring, ShredList, Vault, files, kept_keys, sealedkeys
from continuity.vault.passkeys import SealedKeyFile
from continuity.vault.passphrase import DEFAULT_COST, Cost

_FOLDER: Final = "restoring"
_BLOCK_BYTES: Final = 1024 * 1024
_IN_USE: Final = "Another program has the database open: stop servers, and let commands end. Nothing was changed."


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a restore has done.

    Attributes:
        head: What was restored.
        renewed: The new epoch.
        deletions: ``kept`` (the list of this instance is further than the backup's, or the same) or ``backup`` (the
            list in the backup is all that is known: what was deleted after it may be back).
        key_place: What was done with the master keys: ``written`` in the clear, ``sealed`` under the passphrase of
            the backup, or ``known`` to the key source already.
    """

    head: Head
    renewed: Renewed
    deletions: str
    key_place: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """One restore under way."""

    settings: Settings
    keys: KeyProvider
    who: Who
    now_us: int
    auth: AuthSettings
    cost: Cost
    tell: Tell
    text: str = field(repr=False)


@dataclass(slots=True)
class _Unpacked:
    """What was read and proved, and where it lies."""

    head: Head
    keyring: Keyring
    shred_list: ShredList
    deletions: str = "kept"
    key_place: str = "written"
    moves: list[tuple[Path, Path]] = field(default_factory=list)


def restore(
    settings: Settings, source: Path, text: str, *, who: Who, keys: KeyProvider, now_us: int,
    auth: AuthSettings | None = None, cost: Cost = DEFAULT_COST, tell: Tell = backups.silent,
) -> Outcome:  # fmt: skip
    """Put a backup in the place of the instance.

    Raises:
        SealedFileError: The file does not open, or is damaged.
        BackupError: It cannot be restored here, and why.
        InstanceError: A server has the instance open, or another restore is under way.
        UnauthenticatedError, NotFoundError: `who` is no administrator of the backup.
        VaultError: Its keys or the shred list do not fit.
            In no case was anything changed.
    """
    plan = _Plan(settings, keys, who, now_us, auth or AuthSettings(), cost, tell, text)
    _make_folder(settings)
    instance.guard(settings)
    with ExitStack() as stack:
        stack.enter_context(instance.held(settings))
        stack.enter_context(replacing.alone(settings))
        stack.callback(_sweep, settings)
        _sweep(settings)
        with backups.opened(source) as stream, _told_of_the_disk(settings):
            unpacked = _unpack(plan, stream)
            outcome = _replace(plan, unpacked)
    return outcome


def _make_folder(settings: Settings) -> None:
    os.umask(0o077)
    for folder in {settings.instance, settings.shred_list.parent, settings.vault_key_file.parent}:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InstanceError(f"ATMEM_INSTANCE: {folder} cannot be made: {error.strerror}.") from error


@contextmanager
def _told_of_the_disk(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BackupError(f"{settings.instance}: the backup cannot be unpacked: {why}. Nothing was changed.") from error
    except databases.storage_errors() as error:
        why = str(getattr(error, "orig", error)).strip().partition("\n")[0].rstrip(".")
        raise BackupError(f"The backup cannot be restored here: {why}. Nothing was changed.") from error
    except revisions.SchemaError as error:
        raise BackupError(f"{error} Nothing was changed.") from error


# ---- reading


def _unpack(plan: _Plan, stream: IO[bytes]) -> _Unpacked:
    """Read the whole file, prove it, and leave its parts beside their places."""
    settings, size_bytes, small = plan.settings, os.fstat(stream.fileno()).st_size, dict[str, bytes]()
    for name, blocks in backups.parts_of(stream, plan.text):
        plan.tell("reading", stream.tell(), size_bytes)
        if name in {contents.HEAD, contents.KEYS, contents.SECRET, contents.OLDER_SECRETS}:
            small[name] = backups.small(blocks)
        elif name in {contents.SHRED, contents.DATABASE} or name.startswith(contents.TABLE):
            place = _place(settings, name)
            with os.fdopen(_new(place), "wb") as file:
                for block in blocks:
                    file.write(block)
                    plan.tell("reading", stream.tell(), size_bytes)
                file.flush()
                os.fsync(file.fileno())
        else:
            raise BackupError(f"The backup has a part that is not known here: {name}. Nothing was changed.")
    head = backups.checked_head(small)
    _check_kind(settings, head)
    keyring = kept_keys.opened(small[contents.KEYS])
    shred_list, deletions = _choose_list(settings, head, keyring)
    unpacked = _Unpacked(head, keyring, shred_list, deletions)
    _prepare_secrets(settings, unpacked, small)
    _prepare_keys(plan, unpacked)
    return unpacked


def _place(settings: Settings, name: str) -> Path:
    if name == contents.SHRED:
        return prepared(settings.shred_list)
    if name == contents.DATABASE:
        return prepared(database_file(settings) or settings.instance / contents.DATABASE)
    folder = settings.instance / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / name


def _new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _check_kind(settings: Settings, head: Head) -> None:
    wanted = "postgresql" if settings.is_postgresql else "sqlite"
    if head.kind != wanted:
        names = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
        raise BackupError(
            f"The backup is one of {names.get(head.kind, 'another database')} and this instance is on {names[wanted]}: "
            "a backup is restored into the kind of database that it was made from. Nothing was changed."
        )


def _choose_list(settings: Settings, head: Head, keyring: Keyring) -> tuple[ShredList, str]:
    """Say which shred list holds from now on: never one that knows of fewer deletions than another."""
    packed = prepared(settings.shred_list)
    if not packed.exists():
        raise BackupError("The backup has no shred list. Nothing was changed.")
    brought = ShredList(packed)
    # The backup in itself first: its list is that of its database.
    head.open_vault(keyring, brought).lock()
    if files.is_unwritten(settings.shred_list):
        return brought, "backup"
    try:
        kept = ShredList(settings.shred_list)
    except IntegrityError as error:
        raise BackupError(
            f"{error.message} Without it nobody knows what was deleted since the backup. Restore the list from its own "
            "copy; or move it away, and the backup's counts. Nothing was changed."
        ) from error
    if kept.holds(brought.head):
        return kept, "kept"
    if kept.length == 0 or brought.holds(kept.head):
        return brought, "backup"
    raise BackupError(
        f"{settings.shred_list} is the list of another instance than the backup's. Restore into an empty folder "
        "(ATMEM_INSTANCE). Nothing was changed."
    )


def _prepare_secrets(settings: Settings, unpacked: _Unpacked, small: dict[str, bytes]) -> None:
    """Prepare what signs and seals beside the vault; second factors of the backup open with these alone."""
    places = {
        contents.SECRET: settings.secret_key_file, contents.OLDER_SECRETS: settings.instance / instance.OLDER_SECRETS
    }  # fmt: skip
    for name, place in places.items():
        if name in small:
            files.create(prepared(place), partial(small.__getitem__, name))
            unpacked.moves.append((prepared(place), place))
    if unpacked.deletions == "backup":
        unpacked.moves.append((prepared(settings.shred_list), settings.shred_list))


def _prepare_keys(plan: _Plan, unpacked: _Unpacked) -> None:
    settings = plan.settings
    if settings.vault_key_source == "file":
        FileKeyProvider(prepared(settings.vault_key_file)).store(unpacked.keyring)
        unpacked.moves.append((prepared(settings.vault_key_file), settings.vault_key_file))
        return
    if settings.vault_key_source == "passphrase":
        unpacked.key_place = "sealed"
        sealed = sealedkeys.seal(unpacked.keyring, plan.text, cost=plan.cost)
        SealedKeyFile(prepared(settings.vault_key_file)).write(sealed)
        unpacked.moves.append((prepared(settings.vault_key_file), settings.vault_key_file))
        return
    unpacked.key_place = "known"
    try:
        is_known = kept_keys.are_all_in(unpacked.keyring, plan.keys.load())
    except ContinuityError:
        is_known = False
    if not is_known:
        raise BackupError(
            f"The master keys of the backup are not those of the key source {settings.vault_key_source}. Restore with "
            "a key file first (no ATMEM_VAULT_KEY, ATMEM_VAULT_KEY_SOURCE=file), and move the keys afterwards. "
            "Nothing was changed."
        )


# ---- replacing


def _replace(plan: _Plan, unpacked: _Unpacked) -> Outcome:
    if plan.settings.is_postgresql:
        return _replace_postgresql(plan, unpacked)
    return _replace_sqlite(plan, unpacked)


def _replace_sqlite(plan: _Plan, unpacked: _Unpacked) -> Outcome:
    settings, database = plan.settings, database_file(plan.settings)
    if database is None or not prepared(database).exists():
        raise BackupError("The backup has no database. Nothing was changed.")
    inner = replace(settings, database_url=f"sqlite:///{prepared(database)}")
    with databases.opened(inner) as store:
        plan.tell("checking", 0, 0)
        _check_pages(store)
        plan.tell("renewing", 0, 0)
        outcome = store.write(partial(_renew, plan, unpacked, above=renewals.epoch_above(settings)))
        if not store.scrub():
            raise BackupError("The unpacked database is in use by another program. Nothing was changed.")
    for path in replacing.beside_sqlite(prepared(database)):
        path.unlink(missing_ok=True)
    _sync(prepared(database))
    unpacked.moves.append((prepared(database), database))
    plan.tell("deciding", 0, 0)
    with copies.exclusive(database) as is_ours:
        if not is_ours:
            raise BackupError(_IN_USE)
        replacing.decide(settings, Journal(tuple(unpacked.moves), replacing.beside_sqlite(database), None))
    plan.tell("decided", 0, 0)
    replacing.finish(settings, plan.tell)
    return outcome


def _check_pages(store: Store) -> None:
    damage = store.read(lambda connection: connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    if damage != "ok":
        raise BackupError(f"The database in the backup is damaged: {damage}. Nothing was changed.")


def _replace_postgresql(plan: _Plan, unpacked: _Unpacked) -> Outcome:
    settings = plan.settings
    with databases.opened(settings) as store:
        above = renewals.epoch_above(settings)

        def work(connection: sa.Connection) -> Outcome:
            copies.hurry_not(connection)
            if copies.others(connection):
                raise BackupError(_IN_USE)
            _refill(plan, unpacked, connection)
            plan.tell("renewing", 0, 0)
            outcome = _renew(plan, unpacked, connection, above=above)
            plan.tell("deciding", 0, 0)
            replacing.decide(settings, Journal(tuple(unpacked.moves), (), outcome.renewed.epoch))
            return outcome

        outcome = store.write(work)
    plan.tell("decided", 0, 0)
    replacing.finish(settings, plan.tell)
    return outcome


def _refill(plan: _Plan, unpacked: _Unpacked, connection: sa.Connection) -> None:
    """Make the tables of the backup's revision anew, fill them, and bring them to this program's."""
    head = unpacked.head
    plan.tell("emptying", 0, 0)
    migrating.begin_anew(connection, contents.tables(), revision=head.revision)
    tables = [_as_it_was(connection, name, columns) for name, columns in head.tables.items()]
    for number, table in enumerate(tables):
        plan.tell("filling", number, len(tables))
        copies.fill(connection, table, _blocks(_place(plan.settings, f"{contents.TABLE}{table.name}")))
    copies.set_counters(connection, tables, head.counters)


def _as_it_was(connection: sa.Connection, name: str, columns: list[str]) -> sa.Table:
    """Return a table with the columns of the backup, in their order, all of which must be there."""
    there = {column["name"]: column for column in sa.inspect(connection).get_columns(name)}
    keys = sa.inspect(connection).get_pk_constraint(name)["constrained_columns"]
    if set(there) != set(columns):
        raise BackupError(f"The backup's table {name} is not that of its revision. Nothing was changed.")
    return sa.Table(
        name, sa.MetaData(), *(sa.Column(each, there[each]["type"], primary_key=each in keys) for each in columns)
    )


def _renew(plan: _Plan, unpacked: _Unpacked, connection: sa.Connection, *, above: tuple[int, int]) -> Outcome:
    """Bring what is to be restored to this program's tables, and begin the new epoch in it."""

    def opened(connection: sa.Connection) -> Vault:
        row: Any = connection.execute(sa.select(*vaults.NEEDED)).one()
        return vaults.opened_with(row, unpacked.keyring, unpacked.shred_list)

    def prove(connection: sa.Connection) -> None:
        recounting.prove_all(connection, opened(connection))

    migrating.upgrade_within(connection, after={databases.PROVING: prove})
    vault = opened(connection)
    restored = Restored(
        action="vault.restored", actor="cli", epoch_above=above[0], mark_us=above[1], now_us=plan.now_us,
        data_us=unpacked.head.made_us,
        detail={"deletions": unpacked.deletions, "backup_epoch": unpacked.head.epoch},
    )  # fmt: skip
    try:
        renewed = renewals.begin(connection, vault, who=plan.who, auth=plan.auth, restored=restored)
    finally:
        vault.lock()
    return Outcome(unpacked.head, renewed, unpacked.deletions, unpacked.key_place)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(settings: Settings) -> None:
    """Throw away what a restore has prepared that was not decided. Needs the lock."""
    if (settings.instance / replacing.JOURNAL).exists():
        return
    places = [
        settings.secret_key_file, settings.instance / instance.OLDER_SECRETS, settings.shred_list,
        settings.vault_key_file,
    ]  # fmt: skip
    database = database_file(settings) or settings.instance / contents.DATABASE
    for path in map(prepared, places):
        files.destroy(path)
    for path in (prepared(database), *replacing.beside_sqlite(prepared(database))):
        path.unlink(missing_ok=True)
    folder = settings.instance / _FOLDER
    if folder.is_dir():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
