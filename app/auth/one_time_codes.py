"""One-time codes: those of an authenticator app (TOTP, RFC 6238), and recovery codes. No database, no clock.

Rules:

* Six digits, a step of 30 seconds, SHA-1: what every authenticator app takes. One step of drift either way.
* Whoever checks a code says which steps were used (`after`): neither they nor older ones count again.
* A recovery code is 80 random bits in 16 characters without I, L, O and U. Case, spaces and dashes do not count.

Source: ASVS 6.5.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

import pyotp

from app.auth.settings import SECOND_US

ISSUER: Final = "AtMem Continuity"
DIGITS: Final = 6
STEP_S: Final = 30
DRIFT_STEPS: Final = 1
RECOVERY_CODES: Final = 10
LONGEST: Final = 64
"""More characters than any code has, however it is spaced."""
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ALIKE: Final = str.maketrans({"O": "0", "I": "1", "L": "1", " ": "", "-": "", "\t": ""})
_RECOVERY_CHARS: Final = 16
_GROUP: Final = 4
_SECRET_CHARS: Final = 32


def new_secret() -> str:
    """Make a secret of 160 random bits, in base32."""
    return pyotp.random_base32(_SECRET_CHARS)


def address_of(secret: str, *, username: str) -> str:
    """Return what the QR code of a secret says to an authenticator app."""
    return pyotp.TOTP(secret).provisioning_uri(name=username, issuer_name=ISSUER)


def in_groups(text: str, *, between: str = " ") -> str:
    """Write a secret or a code so that it can be read and typed: four characters at a time."""
    return between.join(text[start : start + _GROUP] for start in range(0, len(text), _GROUP))


def step_at(now_us: int) -> int:
    """Return the number of the step that runs at this time."""
    return now_us // (STEP_S * SECOND_US)


def code_at(secret: str, step: int) -> str:
    """Return the code of one step."""
    return pyotp.TOTP(secret, digits=DIGITS, interval=STEP_S).generate_otp(step)


def step_of(secret: str, code: str, *, now_us: int, after: int) -> int | None:
    """Return the step whose code this is, None when it is none of those that count now.

    Every step is compared, in constant time, whichever is right.
    """
    now = step_at(now_us)
    found = None
    for step in range(max(0, now - DRIFT_STEPS), now + DRIFT_STEPS + 1):
        is_same = hmac.compare_digest(code_at(secret, step).encode("ascii"), code.encode("utf-8", "surrogatepass"))
        if is_same and step > after:
            found = step
    return found


def cleaned(given: str) -> str:
    """Return a code as it is compared, whichever kind it is, empty when it cannot be one."""
    if len(given) > LONGEST:
        return ""
    return given.strip().translate({ord(" "): "", ord("-"): "", ord("\t"): ""}).upper()


def is_of_app(code: str) -> bool:
    """Say whether a cleaned code has the form of an authenticator's."""
    return len(code) == DIGITS and code.isascii() and code.isdigit()


def new_recovery_codes() -> list[str]:
    """Make a set of recovery codes, as they are compared: without dashes."""
    return ["".join(secrets.choice(_ALPHABET) for _ in range(_RECOVERY_CHARS)) for _ in range(RECOVERY_CODES)]


def as_recovery_code(code: str) -> str | None:
    """Return a cleaned code with characters that look alike made one, None when it cannot be a recovery code."""
    made = code.translate(_ALIKE)
    return made if len(made) == _RECOVERY_CHARS and all(character in _ALPHABET for character in made) else None
