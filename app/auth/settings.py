"""Every limit of sign-in and credentials. The defaults are the product's; tests pass cheaper ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from continuity.services.callers import Role

SECOND_US: Final = 1_000_000
MINUTE_S: Final = 60
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class HashingSettings:
    """Cost of argon2id.

    `slots` bounds memory: at most this many hashes at once, 64 MiB each. `queue` bounds how many more requests may
    wait for one, `wait_s` how long: a flood of sign-ins must leave the server's other threads to the workers.
    """

    memory_kib: int = 65_536
    time_cost: int = 3
    parallelism: int = 1
    slots: int = 2
    queue: int = 6
    wait_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """Password attempts in one window. A hash takes about a tenth of a second, so the last bounds the load."""

    window_s: int = MINUTE_S
    per_account: int = 5
    per_address: int = 60
    overall: int = 300
    codes_per_account: int = 5
    codes_a_day: int = 50
    """Of an account's second factor. Three codes of a million are right at any time: at this rate a thief of the
    password needs years to guess one."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How long a person stays signed in."""

    idle_s: int = 30 * MINUTE_S
    administrator_idle_s: int = 15 * MINUTE_S
    absolute_s: int = 12 * HOUR_S
    fresh_s: int = 10 * MINUTE_S
    per_user: int = 5
    touch_s: int = 30
    """The row says when the session was last seen, to this many seconds: one write in that time, not one a request."""

    def idle_of(self, role: str) -> int:
        """Return how long somebody of this role may be away, in seconds."""
        return self.administrator_idle_s if role == Role.ADMINISTRATOR else self.idle_s


@dataclass(frozen=True, slots=True)
class SecondFactorSettings:
    """How long somebody may take between password and code, and between the start of a second factor and its end."""

    challenge_s: int = 5 * MINUTE_S
    enrolment_s: int = 10 * MINUTE_S


@dataclass(frozen=True, slots=True)
class CredentialSettings:
    """How long bearer tokens live, and how often their last use is written down."""

    default_s: int = 90 * DAY_S
    longest_s: int = 365 * DAY_S
    last_used_s: int = MINUTE_S


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """All of the above."""

    hashing: HashingSettings = field(default_factory=HashingSettings)
    throttle: ThrottleSettings = field(default_factory=ThrottleSettings)
    session: SessionSettings = field(default_factory=SessionSettings)
    credential: CredentialSettings = field(default_factory=CredentialSettings)
    second_factor: SecondFactorSettings = field(default_factory=SecondFactorSettings)
    temporary_s: int = DAY_S
    """A temporary password that has not been replaced by then is dead."""


CHEAP_HASHING: Final = HashingSettings(memory_kib=8, time_cost=1, parallelism=1, slots=8, queue=64)
"""For tests alone: `app.config` has no way to ask for it."""
