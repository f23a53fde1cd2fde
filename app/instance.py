"""The instance folder: who may look into it, and the private files that are not the vault's.

Rules:

* The folder is 0700 and ours, every file in it 0600. What is looser stops the start: somebody else may have
  read or changed what lies there.
* The umask is set before anything is opened. A ``-wal`` file that SQLite makes later has the mode that was
  asked for then, whatever the database's own mode is now.
* A file that exists is never written over.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from app import replacing
from app.config import InstanceError, Settings
from continuity.errors import KeySourceError
from continuity.vault import files

if sys.platform == "win32":  # pragma: no cover
    import msvcrt
else:
    import fcntl

SECRET_BYTES: Final = 48
OLDER_SECRETS: Final = "secret.older"
"""Name of the file of older secret keys, beside today's."""
MOVED: Final = "moved"
"""Note of a SQLite database whose vault was moved to PostgreSQL: ``to``, the database without user and password."""
_LOCK: Final = "server.lock"
_KEYS_LOCK: Final = "keys.lock"
_ADDRESS: Final = "address"
"""Note of where a server listens; it goes when the server ends, and stays when it is killed."""
_LOCAL: Final = re.compile(r"http://(?:127\.0\.0\.1|localhost|\[::1\]):[0-9]{1,5}")
_SECRET_BYTES_MIN: Final = 32
_SECRET_BYTES_MAX: Final = 4_096
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_UMASK: Final = 0o077


def prepare(settings: Settings) -> None:
    """Make the folder and the key that signs form tokens where they are missing. Safe to repeat.

    Raises:
        InstanceError: The folder cannot be made, or is not private.
        KeySourceError: The key file cannot be made safely.
    """
    os.umask(_UMASK)
    try:
        settings.instance.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InstanceError(f"ATMEM_INSTANCE: {settings.instance} cannot be made: {error.strerror}.") from error
    guard(settings)
    if files.is_unwritten(settings.secret_key_file):
        files.create(settings.secret_key_file, lambda: secrets.token_hex(SECRET_BYTES).encode())


def guard(settings: Settings) -> None:
    """Set the umask, refuse a folder or a database file that others can reach, finish what a restore has decided.

    Raises:
        InstanceError: The folder is missing, somebody else's, or open to others; or a restore was interrupted and
            cannot be finished.
    """
    os.umask(_UMASK)
    if not settings.instance.is_dir():
        raise InstanceError(
            f"ATMEM_INSTANCE: {settings.instance} is not there. Run `atmem init` first, or set ATMEM_INSTANCE to the "
            "folder of the instance."
        )
    _check_private(settings.instance, wanted="0700")
    for path in sorted(settings.instance.glob("*.db*")):
        _check_private(path, wanted="0600")
    replacing.settle(settings)


def read_secret_key(settings: Settings) -> bytes:
    """Return the key that signs form tokens.

    Raises:
        KeySourceError: The file is missing or not private.
        InstanceError: It is too short to be a key.
    """
    with files.opened(settings.secret_key_file, os.O_RDONLY) as descriptor:
        secret = files.read_from(descriptor, 0)
    _check_secret(secret, settings.secret_key_file)
    return secret


def _check_secret(secret: bytes, path: Path) -> None:
    if not _SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX or len(set(secret)) <= 2:  # noqa: PLR2004
        raise InstanceError(f"{path}: must hold at least {_SECRET_BYTES_MIN} random bytes.")


def read_older_secret_keys(settings: Settings) -> tuple[bytes, ...]:
    """Return the secret keys before today's, the newest first: one a line of ``secret.older``, which may be missing.

    They open what was sealed under them, and make nothing new.

    Raises:
        KeySourceError: The file is not private.
        InstanceError: A line is too short to be a key.
    """
    path = settings.secret_key_file.with_name(OLDER_SECRETS)
    if not path.is_symlink() and not path.exists():
        return ()
    with files.opened(path, os.O_RDONLY) as descriptor:
        lines = files.read_from(descriptor, 0).splitlines()
    keys = tuple(line.strip() for line in lines if line.strip())
    for key in keys:
        _check_secret(key, path)
    return keys


def of_key(settings: Settings, error: KeySourceError, *, environ: Mapping[str, str]) -> str:
    """Return what an error of a key's file says, with the variable that names it and the way on when it is gone."""
    for path, variable, way_on in (
        (settings.vault_key_file, "ATMEM_VAULT_KEY_FILE", "Without it nothing that is sealed can be read."),
        (settings.shred_list, "ATMEM_SHRED_LIST", ""),
        (settings.secret_key_file, "", ""),
    ):
        if error.message.startswith(f"{path} "):
            named = f"{variable}: " if environ.get(variable) else ""
            advice = f" Nothing was changed. Restore it from its backup. {way_on}" if not path.exists() else ""
            return f"{named}{error.message}{advice}".rstrip()
    return error.message


@contextmanager
def held(settings: Settings) -> Iterator[None]:
    """Keep a second server off an instance on SQLite. The lock ends with this process, however that ends.

    Servers on one PostgreSQL share a database that is made for it, and nothing is locked.

    Raises:
        InstanceError: Another server holds the instance, or its folder takes no lock.
    """
    if settings.is_postgresql:
        yield
        return
    path = settings.instance / _LOCK
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise InstanceError(f"ATMEM_INSTANCE: {path} cannot be opened: {error.strerror}.") from error
    try:
        if not _has_locked(descriptor):
            raise InstanceError(
                f"ATMEM_INSTANCE: another server has {settings.instance} open. On SQLite an instance has one server: "
                "stop that one first, or use PostgreSQL (ATMEM_DATABASE_URL)."
            )
        yield
    finally:
        os.close(descriptor)


def claim(settings: Settings, name: str) -> int | None:
    """Claim something for this process by a lock on a file of the instance; None when another one has it.

    Returns:
        A descriptor: closing it, or the end of the process, gives the claim back.

    Raises:
        InstanceError: The folder takes no file or no lock.
    """
    path = settings.instance / name
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise InstanceError(f"ATMEM_INSTANCE: {path} cannot be opened: {error.strerror}.") from error
    try:
        is_ours = _has_locked(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    if is_ours:
        return descriptor
    os.close(descriptor)
    return None


def _has_locked(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":  # pragma: no cover
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}:
            return False
        raise InstanceError(f"ATMEM_INSTANCE: its folder takes no lock: {error.strerror}.") from error
    return True


@contextmanager
def keys_held(settings: Settings) -> Iterator[None]:
    """Wait for the one lock under which the sources of the vault's keys change, and hold it. Ends with the process.

    Raises:
        KeySourceError: The folder cannot be written.
    """
    path = settings.instance / _KEYS_LOCK
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise KeySourceError(f"{path} cannot be opened: {error.strerror}.") from error
    try:
        with files.exclusive(descriptor):
            yield
    finally:
        os.close(descriptor)


def note_address(settings: Settings, url: str) -> None:
    """Keep where a server of this instance listens, for commands on this host that are not told."""
    if not settings.is_postgresql:
        # The instance is ours alone: what is half written was left by one that was killed.
        drop_notes(settings, f"{_ADDRESS}.")
    leave_note(settings, _ADDRESS, {"url": url, "process": os.getpid()})


def forget_address(settings: Settings, url: str) -> None:
    """Remove what `note_address` kept, if it is this process's own: another program may take the port next."""
    if read_note(settings, _ADDRESS) == {"url": url, "process": os.getpid()}:
        drop_note(settings, _ADDRESS)


def served_at(folder: Path) -> str | None:
    """Return the address on this host at which a server of `folder` listens, None where nobody knows.

    One that was killed has left its own.

    Credentials and passwords are sent there: a note counts only in a folder that is ours alone, and for this host.
    """
    try:
        found = [path for path in (folder, folder / f"{_ADDRESS}.json") if not _is_private(path)]
        url = None if found else json.loads((folder / f"{_ADDRESS}.json").read_text(encoding="utf-8")).get("url")
    except (OSError, ValueError, AttributeError):
        return None
    return url if isinstance(url, str) and _LOCAL.fullmatch(url) else None


def _is_private(path: Path) -> bool:
    found = path.lstat()
    is_ours = files.effective_user_id() in {None, found.st_uid}
    return is_ours and not stat.S_ISLNK(found.st_mode) and (os.name != "posix" or not found.st_mode & _OTHERS)


def leave_note(settings: Settings, name: str, note: dict[str, int | str]) -> None:
    """Write a small note for `atmem status`, whole or not at all. What it says is a hint: its writer may be gone.

    Raises:
        OSError: The folder cannot be written.
    """
    partial = settings.instance / f"{name}.{os.getpid()}.json"
    partial.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(partial, flags, 0o600), "w") as stream:
        json.dump(note, stream)
    partial.replace(settings.instance / f"{name}.json")


def read_note(settings: Settings, name: str) -> dict[str, int | str]:
    """Return what `leave_note` wrote, empty when there is nothing or nothing sensible."""
    try:
        note = json.loads((settings.instance / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def notes(settings: Settings, prefix: str) -> list[dict[str, int | str]]:
    """Return the notes whose names begin with `prefix`, the youngest first; those of killed writers among them."""
    found = sorted(settings.instance.glob(f"{prefix}*.json"), key=_age)
    return [note for path in found if (note := read_note(settings, path.stem))]


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0


def require_not_moved(settings: Settings) -> None:
    """Refuse a SQLite database that was moved away: what is done since is in the other one, and would be repeated.

    Raises:
        InstanceError: It was moved, or a move is about to end.
    """
    to = "" if settings.is_postgresql else read_note(settings, MOVED).get("to")
    if to:
        raise InstanceError(
            f"ATMEM_DATABASE_URL: this vault was moved to {to}; set the variable to that database. If the move was "
            "interrupted, run atmem db migrate-to again. To go back to the SQLite file without what was done since: "
            "atmem vault accept-restore."
        )


def drop_notes(settings: Settings, prefix: str) -> None:
    """Remove all notes of a kind: for whoever knows that their writers are gone."""
    for path in settings.instance.glob(f"{prefix}*.json"):
        drop_note(settings, path.stem)


def drop_note(settings: Settings, name: str) -> None:
    """Remove a note. Its absence or a read-only folder is no reason to fail."""
    with suppress(OSError):
        (settings.instance / f"{name}.json").unlink()


def _check_private(path: Path, *, wanted: str) -> None:
    if files.effective_user_id() is None:
        return
    try:
        found = path.lstat()
    except FileNotFoundError:
        # Whoever closes the database last removes its -wal file, between our listing and our look.
        return
    if stat.S_ISLNK(found.st_mode):
        raise InstanceError(f"ATMEM_INSTANCE: {path} is a symbolic link.")
    if found.st_uid != files.effective_user_id():
        raise InstanceError(f"ATMEM_INSTANCE: {path} belongs to another user.")
    if found.st_mode & _OTHERS:
        raise InstanceError(f"ATMEM_INSTANCE: {path} is open to others; it must have mode {wanted}.")
