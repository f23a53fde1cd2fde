"""Where master keys come from: a private file or an environment variable. Layouts: ``FORMAT.md``.

Others: a file sealed under a passphrase (`continuity.vault.passkeys`), a key service (`continuity.vault.transit`).

Rules:

* A provider answers a `Keyring` or raises `KeySourceError` with the reason. It never guesses: a file or
  value that is not exactly of the documented form is refused whole.
* No key byte gets into a message, a repr, or the variables of a frame that raises.
* A key is durable at its source before `RotatingKeys.add` returns, and stays there until `RotatingKeys.drop`.
* Which key wraps stands in the vault's row; what a source says of that only counts for a vault that has none yet.
"""

from __future__ import annotations

import base64
import ctypes
import os
import re
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Final, NoReturn, Protocol

from continuity.errors import KeySourceError, SealedError
from continuity.vault import cleartext, files
from continuity.vault.envelope import KEY_BYTES, KEY_ID_MAX
from continuity.vault.keyring import KEYS_MAX, Keyring

ENVIRONMENT_NAME: Final = "ATMEM_VAULT_KEY"
FIRST_KEY_ID: Final = 1

FILE_HEAD: Final = b"atmem-vault-key 1\n"
_FILE_LINE: Final = re.compile(rb"([1-9][0-9]{0,9}) (primary|accepted) ([A-Za-z0-9+/]{43}=)\n")
_FILE_BYTES_MAX: Final = len(FILE_HEAD) + KEYS_MAX * (10 + 1 + 8 + 1 + 44 + 1)
_VALUE_ENTRY: Final = re.compile(r"(?:([1-9][0-9]{0,9}):)?([A-Za-z0-9+/]{43}=)")

_Entry = tuple[int, bool, bytes]


class KeyProvider(Protocol):
    """What the vault needs of whatever keeps its master keys, an external service included."""

    @property
    def kind(self) -> str:
        """Short name for status pages: ``file``, ``environment``, ``passphrase``, ``transit``."""

    def load(self) -> Keyring:
        """Fetch the keys.

        Returns:
            All keys that this vault may need, one of them primary.

        Raises:
            KeySourceError: They cannot be had or must not be used. Nothing has happened.
            SealedError: They wait for a passphrase that nobody has given. Nothing has happened.
        """


class RotatingKeys(KeyProvider, Protocol):
    """A source whose keys change. Every method may be called again after a kill: what is done stays done."""

    def next_key_id(self, current: int) -> int:
        """Say which number the key after `current` has or will have.

        Raises:
            KeySourceError: There can be none as things are; the message says what to do.
        """

    def add(self, key_id: int) -> Keyring:
        """Make a key that only unwraps as yet, durable at the source before this returns; keep one that is there.

        Raises:
            KeySourceError: It cannot be made durable. It may be there or not; call again.
        """

    def settle(self, key_id: int, *, keep: frozenset[int]) -> None:
        """Let a key be the source's first one, and drop all but it and `keep` for ever.

        Raises:
            KeySourceError: The source cannot be written. It may have been; call again.
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
        files.create(self.path, lambda: _file_content([(FIRST_KEY_ID, True, entropy(KEY_BYTES))]))
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

    def store(self, keyring: Keyring) -> None:
        """Put a file with these keys in place of what is there, durably. Raises `KeySourceError`."""
        files.replace(self.path, lambda: _ring_content(keyring))

    def next_key_id(self, current: int) -> int:
        """See `RotatingKeys`."""
        return next_after(self.load(), current)

    def add(self, key_id: int) -> Keyring:
        """See `RotatingKeys`."""
        ring = with_new_key(self.load(), key_id)
        self.store(ring)
        return self.load()

    def settle(self, key_id: int, *, keep: frozenset[int]) -> None:
        """See `RotatingKeys`."""
        ring = self.load()
        wanted = only(ring, key_id, keep=keep)
        if (wanted.key_ids, wanted.primary_id) != (ring.key_ids, ring.primary_id):
            self.store(wanted)

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

    __slots__ = ("_is_forgotten", "_keyring", "_name")

    def __init__(self, *, name: str = ENVIRONMENT_NAME, environment: MutableMapping[str, str] = os.environ) -> None:
        """Take the value of `name` out of `environment`.

        Args:
            name: The variable.
            environment: Where it is looked up and removed.
        """
        self._name = name
        self._is_forgotten = False
        _wipe(name)
        self._keyring = _keyring(_value_entries(environment.pop(name, "")))

    def load(self) -> Keyring:
        """Give the keys that stood in the variable.

        Returns:
            The keys; the first one of the value is primary.

        Raises:
            KeySourceError: The variable was not set or not of the documented form.
            SealedError: They were dropped since.
        """
        if self._is_forgotten:
            raise SealedError("The vault is locked.")
        if self._keyring is None:
            raise KeySourceError(
                f"{self._name} must hold 32 bytes as base64 (44 characters), or several keys as id:base64,id:base64."
            )
        return self._keyring

    def forget(self) -> None:
        """Drop the keys for the life of this process."""
        self._keyring = None
        self._is_forgotten = True

    def next_key_id(self, current: int) -> int:
        """See `RotatingKeys`: the variable must hold the new key already, with a higher number."""
        return next_given(self.load(), current, name=self._name)

    def add(self, key_id: int) -> Keyring:
        """See `RotatingKeys`: nothing can be written here, the key must be there."""
        return given(self.load(), key_id, name=self._name)

    def settle(self, key_id: int, *, keep: frozenset[int]) -> None:
        """See `RotatingKeys`: whoever sets the variable takes the old key out at the next start."""

    def __repr__(self) -> str:
        """Name the variable and nothing else."""
        return f"<EnvironmentKeyProvider {self._name}>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling and copying."""
        raise TypeError("a key provider cannot be pickled or copied")


def next_after(keyring: Keyring, current: int) -> int:
    """Return a number above all that a ring and a vault know.

    Raises:
        KeySourceError: The ring is full.
    """
    if len(keyring.key_ids) >= KEYS_MAX:
        raise KeySourceError(
            f"There are {KEYS_MAX} master keys already, each with data keys under it that do not open."
        )
    return max(*keyring.key_ids, current) + 1


def next_given(keyring: Keyring, current: int, *, name: str = ENVIRONMENT_NAME) -> int:
    """Return the number of the key after `current` in a variable, which nobody but its owner can add to.

    Raises:
        KeySourceError: There is none; the message says how to give one.
    """
    later = sorted(key_id for key_id in keyring.key_ids if key_id > current)
    if not later:
        raise KeySourceError(
            f"{name} holds no key after number {current}. Start every server and this command with both keys, "
            f"{current}:<old>,{current + 1}:<new>, and rotate then."
        )
    return later[0]


def given(keyring: Keyring, key_id: int, *, name: str = ENVIRONMENT_NAME) -> Keyring:
    """Return a variable's ring if it holds a key. Raises `KeySourceError`."""
    if key_id not in keyring.key_ids:
        raise KeySourceError(f"{name} does not hold key {key_id}.")
    return keyring


def with_new_key(keyring: Keyring, key_id: int, *, entropy: Callable[[int], bytes] = os.urandom) -> Keyring:
    """Return a ring that has a random key of that number, the one that is there if there is."""
    return keyring if key_id in keyring.key_ids else keyring.with_key(key_id, entropy(KEY_BYTES))


def only(keyring: Keyring, key_id: int, *, keep: frozenset[int]) -> Keyring:
    """Return a ring of `key_id`, primary, and those of `keep`."""
    ring = keyring.with_primary(key_id)
    for other in keyring.key_ids - keep - {key_id}:
        ring = ring.without_key(other)
    return ring


def _ring_content(keyring: Keyring) -> bytes:
    keys = cleartext.export(keyring)
    return _file_content([(key_id, key_id == keyring.primary_id, keys[key_id]) for key_id in sorted(keys)])


def _file_content(entries: Iterable[_Entry]) -> bytes:
    words = {True: b"primary", False: b"accepted"}
    lines = (b"%d %s %s\n" % (key_id, words[first], base64.b64encode(key)) for key_id, first, key in entries)
    return FILE_HEAD + b"".join(lines)


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
