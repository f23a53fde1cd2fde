"""Delivering a receipt: the one request that is sent again.

An outcome may be repeated because its attempt, its token and its body stay the same: the server answers
the very same receipt as the first time. It is sent again when the vault is locked (423), when the server
is busy (429, 503) or broken (500), and when the answer was lost; every other refusal is final.

Source: operations.md "outcome"; security.md N05.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from continuity.errors import (
    ContinuityError,
    KeySourceError,
    SealedError,
    ThrottledError,
    TransportError,
    UnavailableError,
)

RESEND_FOR_S: Final = 300.0
"""The longer of the two bounds of operations.md: a lease ends at most 120 s after the last renewal."""
FIRST_WAIT_S: Final = 0.25
LONGEST_WAIT_S: Final = 15.0
TRIES_MOST: Final = 200
"""Far above what the waits allow within five minutes; a bound all the same."""

_MAY_PASS: Final = (SealedError, ThrottledError, UnavailableError, KeySourceError, TransportError)
_SERVER_FAULT: Final = "internal_error"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how to wait between two tries of the same outcome.

    Attributes:
        clock: Seconds that never go back and count suspension.
        sleep: Waits that many seconds.
        resend_for_s: No try starts later than this many seconds after the first.
        is_hurried: Says whether somebody waits for the end; from then on there is one more try.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], object]
    resend_for_s: float = RESEND_FOR_S
    is_hurried: Callable[[], bool] = bool


def deliver(send: Callable[[], dict[str, Any]], patience: Patience) -> dict[str, Any]:
    """Call `send` until it is answered for good or patience ends.

    Args:
        send: Sends the same outcome each time.
        patience: How long to go on.

    Returns:
        The reply of the first try that had one.

    Raises:
        ContinuityError: What the last try met. Whether it was recorded is unknown after a
            `TransportError`, and it was not after any other.
    """
    ends_at_s = patience.clock() + patience.resend_for_s
    for tries in range(TRIES_MOST - 1):
        is_last = patience.is_hurried()
        try:
            return send()
        except ContinuityError as error:
            wait_s = _wait_s(tries, error)
            if is_last or not is_passing(error) or patience.clock() + wait_s > ends_at_s:
                raise
        patience.sleep(wait_s)
    return send()


def is_passing(error: ContinuityError) -> bool:
    """Say whether an error tells nothing about what was asked: it may be asked again where that is safe."""
    return isinstance(error, _MAY_PASS) or error.code == _SERVER_FAULT


def _wait_s(tries: int, error: ContinuityError) -> float:
    """Double from try to try up to a cap, spread by half, and never less than what the server asks for."""
    longest_s = min(FIRST_WAIT_S * 2 ** min(tries, 10), LONGEST_WAIT_S)
    wait_s: float = longest_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
    if isinstance(error, ThrottledError | UnavailableError):
        return max(wait_s, error.retry_after_s)
    return wait_s
