"""Where master keys come from: a private file or an environment variable. Layouts: ``FORMAT.md``.

Rules:

* A provider answers a `Keyring` or raises `KeySourceError` with the reason. It never guesses: a file or
  value that is not exactly of the documented form is refused whole.
* No key byte gets into a message, a repr, or the variables of a frame that raises.
* A key file is created once and never overwritten.
"""

from __future__ import annotations

import base64
import ctypes
import os
import re
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Final, NoReturn, Protocol

from continuity.errors import KeySourceError
from continuity.vault import files
from continuity.vault.envelope import KEY_BYTES, KEY_ID_MAX
from continuity.vault.keyring import Keyring

ENVIRONMENT_NAME: Final = "ATMEM_VAULT_KEY"
FIRST_KEY_ID: Final = 1
KEYS_MAX: Final = 16
"""Keys in one file or value. A rotation needs two; more are what failed rotations leave behind."""

FILE_HEAD: Final = b"atmem-vault-key 1\n"
_FILE_LINE: Final = re.compile(rb"([1-9][0-9]{0,9}) (primary|accepted) ([A-Za-z0-9+/]{43}=)\n")
_FILE_BYTES_MAX: Final = len(FILE_HEAD) + KEYS_MAX * (10 + 1 + 8 + 1 + 44 + 1)
_VALUE_ENTRY: Final = re.compile(r"(?:([1-9][0-9]{0,9}):)?([A-Za-z0-9+/]{43}=)")

_Entry = tuple[int, bool, bytes]


class KeyProvider(Protocol):
    """What the vault needs of whatever keeps its master keys, an external service included."""

    @property
    def kind(self) -> str:
        """Short name for status pages: ``file``, ``environment`` and the like."""

    def load(self) -> Keyring:
        """Fetch the keys.

        Returns:
            All keys that this vault may need, one of them primary.

        Raises:
            KeySourceError: They cannot be had or must not be used. Nothing has happened.
        """


class FileKeyProvider:
    """Master keys in a private file, the default: ``instance/vault.key``."""

    kind: Final = "file"

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read yet."""
        self.path = path

    def create(self, *, entropy: Callable[[int], bytes] = os.urandom) -> Keyring:
        """Make a new random master key and its file, 0600, durable before this returns.

        Args:
            entropy: Answers so many random bytes as it is asked for.

        Returns:
            The keyring as read back from the file; its only key is number 1.

        Raises:
            KeySourceError: The file exists, or cannot be made safely. No key has been made.
        """
        files.create(self.path, lambda: _file_content(entropy(KEY_BYTES)))
        return self.load()

    def load(self) -> Keyring:
        """Read the file after every check of `continuity.vault.files`.

        Returns:
            The keys in it.

        Raises:
            KeySourceError: The file is missing, not private, or not of the documented form.
        """
        keyring = _keyring(self._entries())
        if keyring is None:
            raise KeySourceError(f"{self.path} is not a complete vault key file of format 1.")
        return keyring

    def _entries(self) -> list[_Entry] | None:
        with files.opened(self.path, os.O_RDONLY) as descriptor:
            # Above the limit it is not ours: do not read a huge file to say so.
            if os.fstat(descriptor).st_size > _FILE_BYTES_MAX:
                return None
            return _file_entries(files.read_from(descriptor, 0))


class EnvironmentKeyProvider:
    """Master keys in an environment variable, taken out of the environment when this is made.

    The value is wiped from the process's initial environment as well (``/proc/self/environ``), so make
    one provider a process, before it forks or starts others, and keep it.
    """

    kind: Final = "environment"

    __slots__ = ("_keyring", "_name")

    def __init__(self, *, name: str = ENVIRONMENT_NAME, environment: MutableMapping[str, str] = os.environ) -> None:
        """Take the value of `name` out of `environment`.

        Args:
            name: The variable.
            environment: Where it is looked up and removed.
        """
        self._name = name
        _wipe(name)
        self._keyring = _keyring(_value_entries(environment.pop(name, "")))

    def load(self) -> Keyring:
        """Give the keys that stood in the variable.

        Returns:
            The keys; the first one of the value is primary.

        Raises:
            KeySourceError: The variable was not set or not of the documented form.
        """
        if self._keyring is None:
            raise KeySourceError(
                f"{self._name} must hold 32 bytes as base64 (44 characters), or several keys as id:base64,id:base64."
            )
        return self._keyring

    def __repr__(self) -> str:
        """Name the variable and nothing else."""
        return f"<EnvironmentKeyProvider {self._name}>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling and copying."""
        raise TypeError("a key provider cannot be pickled or copied")


def _file_content(key: bytes) -> bytes:
    return FILE_HEAD + b"%d primary %s\n" % (FIRST_KEY_ID, base64.b64encode(key))


def _file_entries(content: bytes) -> list[_Entry] | None:
    """Read a key file; None if it is not exactly of the documented form."""
    lines = content.splitlines(keepends=True)
    if lines[:1] != [FILE_HEAD]:
        return None
    entries: list[_Entry] = []
    for line in lines[1:]:
        match = _FILE_LINE.fullmatch(line)
        if match is None:
            return None
        entries.append((int(match[1]), match[2] == b"primary", base64.b64decode(match[3])))
        if base64.b64encode(entries[-1][2]) != match[3]:
            return None  # stray bits in the last character: not what was written
    return entries


def _value_entries(value: str) -> list[_Entry] | None:
    """Read the environment variable; None if it is not exactly of the documented form."""
    entries: list[_Entry] = []
    for text in value.split(","):
        match = _VALUE_ENTRY.fullmatch(text)
        if match is None:
            return None
        entries.append((int(match[1] or FIRST_KEY_ID), not entries, base64.b64decode(match[2])))
        if base64.b64encode(entries[-1][2]).decode() != match[2]:
            return None
    return entries


def _keyring(entries: Iterable[_Entry] | None) -> Keyring | None:
    """Make the keyring of what was read; None unless the ids differ and one key is primary."""
    found = list(entries or ())
    keys = {key_id: key for key_id, _, key in found}
    primary_ids = [key_id for key_id, is_primary, _ in found if is_primary]
    if len(primary_ids) != 1 or not len(keys) == len(found) <= KEYS_MAX or max(keys) > KEY_ID_MAX:
        return None
    return Keyring(keys, primary_id=primary_ids[0])


def _wipe(name: str) -> None:
    """Overwrite a variable's value where the process got it: removing it leaves those bytes readable."""
    if files.effective_user_id() is None:
        return
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    getenv.argtypes = [ctypes.c_char_p]
    address = getenv(name.encode())
    if address is not None:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))
