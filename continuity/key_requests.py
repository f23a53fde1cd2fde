"""What travels to the server about the vault's keys: lock, unlock, rotate.

Pure: nothing here reads a clock, a database or a key. A passphrase stands in no repr and no message.

Source: wire.md, Paths; vault.md, Lock and rotate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self

from continuity.wire import Fields

LOCK: Final = "lock"
ROTATE: Final = "rotate"


@dataclass(frozen=True, slots=True)
class LockVault:
    """``POST /v1/evidence/settings/lock``.

    Attributes:
        confirmation: The word ``lock``, so that nothing stops by a slip.
        passphrase: What will open the vault again; needed where the key lies in a file or in the environment.
    """

    confirmation: str
    passphrase: str | None = field(default=None, repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(_confirmed(fields, LOCK), _passphrase(fields))
        fields.finish()
        return asked


@dataclass(frozen=True, slots=True)
class UnlockVault:
    """``POST /v1/evidence/settings/unlock``.

    Attributes:
        passphrase: That of the lock, or of the vault where its source is a passphrase; a key service needs none.
    """

    passphrase: str | None = field(default=None, repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(_passphrase(fields))
        fields.finish()
        return asked


@dataclass(frozen=True, slots=True)
class RotateVault:
    """``POST /v1/evidence/settings/rotate``.

    Attributes:
        confirmation: The word ``rotate``.
        passphrase: The one that the vault has, needed where its source is a passphrase: the new key is sealed
            under it.
    """

    confirmation: str
    passphrase: str | None = field(default=None, repr=False)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Check the request; raises `MalformedError`."""
        fields = Fields(value)
        asked = cls(_confirmed(fields, ROTATE), _passphrase(fields))
        fields.finish()
        return asked


def _confirmed(fields: Fields, word: str) -> str:
    if fields.need("confirmation") != word:
        raise fields.fail("confirmation", f'the word "{word}"')
    return word


def _passphrase(fields: Fields) -> str | None:
    value = fields.take("passphrase")
    if value is not None and not isinstance(value, str):
        raise fields.fail("passphrase", "a string")
    return value
