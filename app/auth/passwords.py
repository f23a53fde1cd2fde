"""Passwords: argon2id, and which passwords are refused.

Rules:

* What was typed is what counts: no trimming, no case folding, no normal form, no truncation.
* Length is counted in characters (code points), 12 to 128. NUL and lone surrogates are refused before hashing.
* A password is refused when it is easy to guess, not because of the kinds of characters in it. The judge is the
  library zxcvbn (MIT), which knows the 30,000 most common passwords, words, names, dates, keyboard walks and
  repeats; everything on its list of common passwords is refused.
* Whoever verifies pays one hash, whether the account exists or not (`verify_nothing`).

Source: security.md A01 to A05, A08; R04.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type

from app.auth.settings import HashingSettings
from continuity.errors import MalformedError, UnavailableError

SHORTEST: Final = 12
LONGEST: Final = 128
PRODUCT_WORDS: Final = ("atmem", "atflows", "continuity")

# zxcvbn: 3 is "safely unguessable", 10^8 guesses or more, against an attacker who meets argon2id.
_SCORE: Final = 3
# Its search grows faster than the text. What the first characters do not make strong is refused, and may be.
_JUDGED_CHARS: Final = 36
# A username shorter than this occurs in too many honest words.
_TELLING_NAME: Final = 4
_TEMPORARY_BYTES: Final = 15


class Passwords:
    """Hashes and verifies under the settings given; thread-safe, with a bound on hashes at the same time."""

    def __init__(self, settings: HashingSettings) -> None:
        self._hasher = PasswordHasher(
            time_cost=settings.time_cost,
            memory_cost=settings.memory_kib,
            parallelism=settings.parallelism,
            hash_len=32,
            salt_len=16,
            type=Type.ID,
        )
        self._slots = threading.BoundedSemaphore(settings.slots)
        self._queue = threading.BoundedSemaphore(settings.slots + settings.queue)
        self._wait_s = settings.wait_s
        # Of the same cost as a real one, and of a password that nobody knows.
        self._nobody = self._hasher.hash(secrets.token_bytes(32))

    def hash(self, password: str) -> str:
        """Hash a password that `check_text` accepts. UnavailableError when too many hashes are wanted at once."""
        with self._slot():
            return self._hasher.hash(password.encode("utf-8", "strict"))

    def verify(self, stored: str, password: str) -> bool:
        """Say whether `password` is the one that `stored` was made of. One hash, whatever the answer."""
        with self._slot():
            try:
                return self._hasher.verify(stored, password.encode("utf-8", "strict"))
            except VerificationError:
                return False
            except InvalidHashError:
                # A damaged row must not tell itself from a wrong password by being fast.
                self._spend(password)
                return False

    def verify_nothing(self, password: str) -> None:
        """Spend what `verify` spends, for an account that does not exist or may not sign in."""
        with self._slot():
            self._spend(password)

    def is_outdated(self, stored: str) -> bool:
        """Say whether `stored` was made under weaker settings than today's."""
        return self._hasher.check_needs_rehash(stored)

    def _spend(self, password: str) -> None:
        try:
            self._hasher.verify(self._nobody, password.encode("utf-8", "strict"))
        except VerificationError:
            return

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._queue.acquire(blocking=False):
            raise _busy()
        try:
            if not self._slots.acquire(timeout=self._wait_s):
                raise _busy()
            try:
                yield
            finally:
                self._slots.release()
        finally:
            self._queue.release()


def check_text(password: str, *, name: str = "password") -> None:
    """Refuse, before any hashing, what could never be a password: over-long text, NUL, lone surrogates."""
    if len(password) > LONGEST:
        raise MalformedError(f"{name} must be at most {LONGEST} characters.")
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in password):
        raise MalformedError(f"{name} must be text without NUL and without lone surrogates.")


def check_new(password: str, *, username: str, name: str = "password") -> None:
    """Refuse a new password that is too short, too long, not text, or easy to guess."""
    check_text(password, name=name)
    if len(password) < SHORTEST:
        raise MalformedError(f"{name} must be {SHORTEST} to {LONGEST} characters.")
    folded = password.casefold()
    words = (*PRODUCT_WORDS, username.casefold())
    if any(len(word) >= _TELLING_NAME and word in folded for word in words):
        raise MalformedError(f"{name} must not contain the username or the product's name.")
    if _is_guessable(password, words):
        raise MalformedError(f"{name} is easy to guess: take a longer one, for example a few unrelated words.")


def temporary_password() -> str:
    """Make a password for one first sign-in: 120 random bits in 20 characters."""
    while True:
        made = secrets.token_urlsafe(_TEMPORARY_BYTES)
        # One that begins with "-" is taken for an option when it is pasted into a command line.
        if not made.startswith("-"):
            return made


def _busy() -> UnavailableError:
    return UnavailableError("Too many passwords are being checked at once.", retry_after_s=2)


def _is_guessable(password: str, words: tuple[str, ...]) -> bool:
    # Imported here: its tables take 40 ms and 10 MB, and only who sets a password needs them.
    from zxcvbn import zxcvbn  # noqa: PLC0415
    from zxcvbn.frequency_lists import FREQUENCY_LISTS  # noqa: PLC0415

    if password.casefold() in FREQUENCY_LISTS["passwords"]:
        return True
    judged = zxcvbn(password[:_JUDGED_CHARS], user_inputs=list(words))
    return bool(judged["score"] < _SCORE)
