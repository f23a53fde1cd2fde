"""Keys for serving processes whose source can be read but once: the environment, and a passphrase that was typed.

Before it forks, a server makes a key pair in memory (`continuity.vault.handover`), leaves the public half in the
instance's private folder, and seals its keys for itself into a file there. From then on neither it nor its workers
keep the keys' source: a worker that is started again opens that file. A lock removes the files of all servers; whoever
unlocks seals the keys for each public half that it finds. A file without the process's memory opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from app import instance
from app.config import Settings
from continuity.errors import DecryptionError, KeySourceError, SealedError
from continuity.vault import Keyring, files, handover
from continuity.vault.keys import given, next_given

KINDS: Final = frozenset({"environment", "passphrase"})
_NOTE: Final = "handover"
_BYTES_MAX: Final = 1_024


class HandedKeys:
    """The key source of one server and its workers: what was left in the instance for it."""

    __slots__ = ("_path", "_receiver", "kind")

    def __init__(self, kind: str, path: Path, receiver: handover.Receiver) -> None:
        self.kind = kind
        self._path = path
        self._receiver = receiver

    def load(self) -> Keyring:
        """Open what was left; SealedError when nothing was."""
        if not self._path.exists():
            raise SealedError("The vault is locked.")
        sealed = files.read(self._path, most=_BYTES_MAX)
        try:
            return _ring(self._receiver.opened(sealed))
        except DecryptionError:
            raise KeySourceError(f"{self._path} does not open: it was left for another server.") from None

    def __repr__(self) -> str:
        return f"<HandedKeys {self.kind}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key provider cannot be pickled or copied")


class Variable:
    """What a server that was handed the keys of a variable can do to their source: nothing but look."""

    kind = "environment"

    def __init__(self, keys: HandedKeys) -> None:
        self._keys = keys

    def load(self) -> Keyring:
        return self._keys.load()

    def next_key_id(self, current: int) -> int:
        return next_given(self.load(), current)

    def add(self, key_id: int) -> Keyring:
        return given(self.load(), key_id)

    def settle(self, key_id: int, *, keep: frozenset[int]) -> None:
        """Do nothing: whoever sets the variable takes the old key out at the next start."""


@contextmanager
def received(settings: Settings, kind: str, ring: Keyring | None) -> Iterator[HandedKeys]:
    """Be somebody to whom keys can be handed, until the end of the context.

    Args:
        settings: Of the instance.
        kind: Where the keys came from first.
        ring: The keys, None to begin without.

    Raises:
        KeySourceError: The instance folder cannot be written.
    """
    receiver, process = handover.Receiver(), os.getpid()
    path = _path(settings, process)
    try:
        instance.leave_note(settings, f"{_NOTE}-{process}", {"public": receiver.public.hex(), "process": process})
        if ring is None:
            files.destroy(path)
        else:
            files.replace(path, lambda: handover.seal(ring, receiver.public))
    except OSError as error:
        raise KeySourceError(f"{settings.instance} cannot be written: {error.strerror}.") from error
    try:
        yield HandedKeys(kind, path, receiver)
    finally:
        instance.drop_note(settings, f"{_NOTE}-{process}")
        files.destroy(path)


def leave(settings: Settings, ring: Keyring) -> None:
    """Seal keys for every server of this instance that is alive on this host. Raises `KeySourceError`."""
    for note in instance.notes(settings, f"{_NOTE}-"):
        process, public = note.get("process"), note.get("public")
        if not isinstance(process, int) or not isinstance(public, str):
            continue
        if not _is_alive(process):
            # It was killed, and with it died what could open this.
            instance.drop_note(settings, f"{_NOTE}-{process}")
            files.destroy(_path(settings, process))
            continue
        half = bytes.fromhex(public)
        files.replace(_path(settings, process), lambda half=half: handover.seal(ring, half))  # type: ignore[misc]


def take_back(settings: Settings) -> None:
    """Remove what was left for every server. Raises `KeySourceError`."""
    for path in settings.instance.glob(f"{_NOTE}-*.keys*"):
        files.destroy(path)


def _ring(keys: dict[int, bytes]) -> Keyring:
    return Keyring(keys, primary_id=max(keys))


def _path(settings: Settings, process: int) -> Path:
    return settings.instance / f"{_NOTE}-{process}.keys"


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
