"""Keys made of passphrases: argon2id, with its cost written beside whatever is sealed under such a key.

Rules:

* What was typed is what counts: no trimming, no case folding, no normal form. UTF-8 goes in, 32 bytes come out.
* Length is bounded before anything is computed: an over-long text or absurd cost in a file must not cost a gibibyte.
* `AT_ONCE` keys are made at a time in a process, others wait: many exports together must not take all memory.
* The cost is an argument and stands in the file that it made; whoever opens the file uses the file's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from continuity.errors import KeySourceError, MalformedError

SALT_BYTES: Final = 16
KEY_BYTES: Final = 32
SHORTEST: Final = 12
LONGEST: Final = 1_024
AT_ONCE: Final = 2

_MEMORY_KIB_MAX: Final = 1024 * 1024
_TIME_COST_MAX: Final = 64
_PARALLELISM_MAX: Final = 16
_MEMORY_KIB_MIN_A_LANE: Final = 8
_turns = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one guess at a passphrase costs.

    Attributes:
        memory_kib: Memory in KiB, 8 a lane to 1 GiB.
        time_cost: Passes over it, 1 to 64.
        parallelism: Lanes, 1 to 16.
    """

    memory_kib: int
    time_cost: int
    parallelism: int

    @property
    def is_sound(self) -> bool:
        """Whether argon2id takes these numbers and they are within our bounds."""
        return (
            1 <= self.parallelism <= _PARALLELISM_MAX
            and _MEMORY_KIB_MIN_A_LANE * self.parallelism <= self.memory_kib <= _MEMORY_KIB_MAX
            and 1 <= self.time_cost <= _TIME_COST_MAX
        )


DEFAULT_COST: Final = Cost(memory_kib=65_536, time_cost=3, parallelism=1)
"""64 MiB, three passes: a quarter of a second on a small machine."""


def check_new(text: str, *, name: str = "passphrase") -> None:
    """Refuse what must not become a passphrase, before anything is computed.

    Args:
        text: What was typed or read.
        name: What the message calls it.

    Raises:
        MalformedError: Shorter than 12 or longer than 1,024 characters, NUL, a lone surrogate, or one character
            again and again.
    """
    check_text(text, name=name)
    if len(text) < SHORTEST or len(set(text)) <= 2:  # noqa: PLR2004 - "aaaaaaaaaaaa", "abababababab"
        raise MalformedError(f"{name} must have at least {SHORTEST} characters, and more than two different ones.")


def check_text(text: str, *, name: str = "passphrase") -> None:
    """Refuse what can be no passphrase at all. Raises `MalformedError`."""
    if len(text) > LONGEST:
        raise MalformedError(f"{name} must have at most {LONGEST:,} characters.")
    if not text or any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text):
        raise MalformedError(f"{name} must be text without NUL and without lone surrogates, and not empty.")


def new_salt(entropy: Callable[[int], bytes] = os.urandom) -> bytes:
    """Draw a salt, 16 random bytes."""
    return entropy(SALT_BYTES)


def derive(text: str, *, salt: bytes, cost: Cost) -> bytes:
    """Make the key of a passphrase. Takes as long and as much memory as `cost` says, after those that came before.

    Args:
        text: The passphrase, as `check_text` lets it pass.
        salt: 16 bytes that stand beside what is sealed.
        cost: As it stands there.

    Returns:
        32 bytes.

    Raises:
        MalformedError: The text can be no passphrase.
        KeySourceError: Salt or cost are out of bounds: the file was not written by this program. Nothing was computed.
    """
    check_text(text)
    if len(salt) != SALT_BYTES or not cost.is_sound:
        raise KeySourceError("The cost of a passphrase is out of bounds; the file is not one of this program.")
    with _turns:
        return Argon2id(
            salt=salt, length=KEY_BYTES, iterations=cost.time_cost, lanes=cost.parallelism, memory_cost=cost.memory_kib
        ).derive(text.encode("utf-8", "strict"))
