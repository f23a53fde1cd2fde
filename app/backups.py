"""Makes backups of an instance, while its server runs, and proves them without restoring.

Rules:

* One file holds everything: database, master keys, secret key, shred list, accounts. A passphrase seals it.
* It is said in the audit log before anything leaves.
* The file stands under its name only once it is complete and durable; nothing is written over.
* Master keys are asked for before and after the copy, so that a rotation that crosses it loses none.
* Bounded memory: a copy of SQLite needs room on the disk for a moment, beside the database.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from app import backup_contents as contents
from app import databases, instance
from app.auth.accounts import LOCAL, By
from app.backup_contents import BackupError, Head
from app.config import Settings
from app.replacing import Tell
from app.wiring import Wiring
from continuity.errors import SealedError, SealedFileError
from continuity.services.audit import AuditEntry
from continuity.store import copies, sqlite
from continuity.store.engine import make_engine
from continuity.vault import Keyring, files, kept_keys, passphrase
from continuity.vault.parts import PartReader, PartWriter
from continuity.vault.passphrase import DEFAULT_COST, Cost
from continuity.vault.sealed_file import SealedReader, SealedWriter

_LOCK: Final = "backup.lock"
_COPY: Final = "backup.copy"
_BLOCK_BYTES: Final = 1024 * 1024
Keys = Callable[[], Keyring]
"""Loads the master keys from wherever they are."""


@dataclass(frozen=True, slots=True)
class Made:
    """A backup that was made or proved."""

    path: Path
    size_bytes: int
    head: Head


def silent(_step: str, _done: int, _whole: int) -> None:
    """Tell nobody."""


def make(
    wiring: Wiring, keys: Keys, target: Path, text: str, *, tell: Tell = silent, cost: Cost = DEFAULT_COST,
    by: By = LOCAL,
) -> Made:  # fmt: skip
    """Write a backup of the instance to `target`, sealed under the passphrase `text`.

    Raises:
        BackupError: Another backup is under way, or the disk or the database does not let it be. Nothing is left.
        MalformedError: The passphrase is none that anything new is sealed under.
        SealedError: The vault is locked.
        KeySourceError: The keys cannot be had.
    """
    passphrase.check_new(text)
    if wiring.vault.is_locked:
        raise SealedError("The vault is locked: its keys are not here to be backed up. Unlock it first.")
    with _alone(wiring.settings), written(target) as stream, _told_of_storage():
        _record(wiring, by)
        before = keys()
        parts = PartWriter(SealedWriter(stream, text, purpose=contents.PURPOSE, cost=cost))
        write = _write_postgresql if wiring.settings.is_postgresql else _write_sqlite
        head = write(wiring, parts, lambda found: kept_keys.union(before, keys(), primary_id=found.key_id), tell)
        tell("sealing", 1, 1)
        parts.finish()
    return Made(target, target.stat().st_size, head)


@contextmanager
def _told_of_storage() -> Iterator[None]:
    try:
        yield
    except databases.storage_errors() as error:
        why = str(getattr(error, "orig", error)).strip().partition("\n")[0].rstrip(".")
        raise BackupError(f"The database cannot be copied: {why}. Nothing was left of the backup.") from error


def check(source: Path, text: str, *, tell: Tell = silent) -> Made:
    """Read all of a backup and prove it, its keys by the vault's canary. Changes nothing.

    Raises:
        SealedFileError: It does not open, or is damaged.
        BackupError: It cannot be read, or is a newer program's.
    """
    with opened(source) as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        found: dict[str, bytes] = {}
        for name, blocks in parts_of(stream, text):
            tell("reading", stream.tell(), size_bytes)
            if name in {contents.HEAD, contents.KEYS}:
                found[name] = small(blocks)
            else:
                for _ in blocks:
                    tell("reading", stream.tell(), size_bytes)
    head = checked_head(found)
    return Made(source, size_bytes, head)


def checked_head(found: dict[str, bytes]) -> Head:
    """Return the head of a backup whose small parts were read, its master keys proved by the canary."""
    if contents.HEAD not in found or contents.KEYS not in found:
        raise SealedFileError("The file is damaged or was changed.")
    head = contents.parsed(found[contents.HEAD])
    head.check_keys(kept_keys.opened(found[contents.KEYS]))
    return head


def parts_of(stream: IO[bytes], text: str) -> PartReader:
    """Open a backup. Raises `SealedFileError`."""
    return PartReader(SealedReader(stream, text, purpose=contents.PURPOSE))


def small(blocks: Iterable[bytes]) -> bytes:
    """Read a part that must be small."""
    content = bytearray()
    for block in blocks:
        content += block
        if len(content) > contents.SMALL_BYTES_MAX:
            raise SealedFileError("The file is damaged or was changed.")
    return bytes(content)


@contextmanager
def opened(source: Path) -> Iterator[IO[bytes]]:
    """Open a file that is said to be a backup."""
    try:
        with source.open("rb") as stream:
            yield stream
    except OSError as error:
        raise BackupError(f"{source} cannot be read: {error.strerror or error}. Nothing was changed.") from error


@contextmanager
def written(target: Path) -> Iterator[IO[bytes]]:
    """Write a new private file: under another name until it is complete and durable, and never over one.

    Raises:
        BackupError: There is such a file, another process writes it, or the disk does not take it. Nothing is left.
    """
    partial = target.with_name(f"{target.name}.partial")
    if target.exists() or target.is_symlink():
        raise BackupError(f"{target} is there already, and is not written over. Nothing was changed.")
    try:
        descriptor = _claimed(partial)
    except OSError as error:
        raise BackupError(f"{partial} cannot be written: {error.strerror}. Nothing was changed.") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            # Unlike a rename, a link never takes the place of a file that has come meanwhile.
            os.link(partial, target)
        partial.unlink()
        _sync(target.parent)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):
            why = error.strerror or type(error).__name__
            raise BackupError(f"{target} cannot be written: {why}. Nothing was left of it.") from error
        raise


def _claimed(partial: Path) -> int:
    """Open an empty private file of ours; what a killed process left there counts for nothing."""
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    with suppress(FileNotFoundError):
        if not partial.is_symlink() and partial.stat().st_uid == files.effective_user_id():
            partial.unlink()
    return os.open(partial, flags | os.O_EXCL, 0o600)


def _sync(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    descriptor = instance.claim(settings, _LOCK)
    if descriptor is None:
        raise BackupError("Another backup of this instance is under way. Nothing was changed.")
    try:
        yield
    finally:
        os.close(descriptor)


def _record(wiring: Wiring, by: By) -> None:
    entry = AuditEntry(action="vault.backup", actor=by.actor, result="done", request_id=by.request_id)
    wiring.store.write(lambda connection: wiring.audit.append(connection, entry, now_us=wiring.clock.now_us()))


def _write_small(wiring: Wiring, parts: PartWriter, head: Head, keyring: Keyring) -> None:
    settings = wiring.settings
    parts.add(contents.HEAD, [head.spelled()])
    parts.add(contents.KEYS, [kept_keys.content(keyring)])
    parts.add(contents.SECRET, [instance.read_secret_key(settings)])
    older = settings.instance / instance.OLDER_SECRETS
    if older.exists():
        parts.add(contents.OLDER_SECRETS, _blocks(older))
    # After the copy: whatever the copy knows to be on the list is on it.
    parts.add(contents.SHRED, _blocks(settings.shred_list))


def _write_sqlite(wiring: Wiring, parts: PartWriter, keyring: Callable[[Head], Keyring], tell: Tell) -> Head:
    copy = wiring.settings.instance / _COPY
    _drop(copy)
    try:
        sqlite.create_file(copy)
        made_us = wiring.clock.now_us()
        copies.copy_sqlite(wiring.store.engine, copy, progress=lambda done, whole: tell("copying", done, whole))
        head = _head_of_copy(copy, made_us=made_us)
        _write_small(wiring, parts, head, keyring(head))
        size_bytes, sealed_bytes = copy.stat().st_size, 0

        def told() -> Iterator[bytes]:
            nonlocal sealed_bytes
            for block in _blocks(copy):
                yield block
                sealed_bytes += len(block)
                tell("sealing", sealed_bytes, size_bytes)

        parts.add(contents.DATABASE, told())
    finally:
        _drop(copy)
    return head


def _head_of_copy(copy: Path, *, made_us: int) -> Head:
    engine = make_engine(f"sqlite:///{copy}", pool_size=1)
    try:
        with engine.connect() as connection:
            damage = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            if damage != "ok":
                raise BackupError(f"The database is damaged: {damage}. No backup was made; keep the older ones.")
            return contents.read_head(connection, kind="sqlite", made_us=made_us)
    finally:
        engine.dispose()


def _write_postgresql(wiring: Wiring, parts: PartWriter, keyring: Callable[[Head], Keyring], tell: Tell) -> Head:
    tables = contents.tables()
    with copies.snapshot(wiring.store.engine) as connection:
        head = contents.read_head(
            connection, kind="postgresql", made_us=wiring.clock.now_us(),
            tables={table.name: [column.name for column in table.columns] for table in tables},
            counters=copies.counters(connection, tables),
        )  # fmt: skip
        _write_small(wiring, parts, head, keyring(head))
        for number, table in enumerate(tables):
            tell("copying", number, len(tables))
            parts.add(f"{contents.TABLE}{table.name}", copies.rows_of(connection, table))
    return head


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _drop(copy: Path) -> None:
    for path in (copy, *(copy.with_name(copy.name + end) for end in ("-wal", "-shm", "-journal"))):
        path.unlink(missing_ok=True)
