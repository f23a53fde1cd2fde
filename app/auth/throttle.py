"""How often a password or a code may be tried: by account, by address, and by all together.

Rules:

* An attempt is counted before anything is hashed, in a transaction of its own, so that parallel attempts all count.
* A window begins with its first attempt and ends by time alone: trying on does not prolong it.
* A success clears the account's counter and no other. Until a window ends the right password is refused too.
* Codes of a second factor have counters of their own for each account, one of a minute and one of a day. A right
  password clears neither; a right code clears the first alone.
* The account is counted under one name however it is written (`canonical`), whether it exists or not.
* Attempts from this very machine have counters of their own, for each account and for all together: nobody
  outside can keep the administrator from signing in on the host.
* The address is what the server believes the peer to be; see the trusted proxies in `app.config`.

Source: security.md A09 to A13.
"""

from __future__ import annotations

import hashlib
import ipaddress
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from app.auth.schema import throttle
from app.auth.settings import DAY_S, SECOND_US, ThrottleSettings
from continuity.errors import ThrottledError
from continuity.services.clock import Clock
from continuity.store.store import Store

REFUSED: Final = "Too many attempts to give a password. Try again later."
REFUSED_CODE: Final = "Too many attempts to give a code. Try again later."
_KEPT_US: Final = DAY_S * SECOND_US
_BOTH: Final = (True, False)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """What is counted together, and how often it may be in one window; `window_s` None: the window of passwords."""

    name: str
    most: int
    window_s: int | None = None


class Throttle:
    """Counts attempts in the database, so that every process and every restart knows them."""

    def __init__(self, store: Store, clock: Clock, settings: ThrottleSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    def count(self, username: str, *, address: str) -> None:
        """Count one attempt. ThrottledError when it is one too many; it has been counted all the same."""
        own = _Bucket(_account_bucket(username, is_local=is_loopback(address)), self._settings.per_account)
        self._count([own, *self._of_all(address)], refusal=REFUSED)

    def count_code(self, username: str, *, address: str) -> None:
        """Count one attempt to give a code. ThrottledError when it is one too many; it has been counted all the same.

        The day's counter is the last: whoever waits for a minute does not use up the day.
        """
        is_local = is_loopback(address)
        own = _Bucket(_code_bucket(username, is_local=is_local), self._settings.codes_per_account)
        self._count([own, *self._of_all(address)], refusal=REFUSED_CODE)
        day = _Bucket(_day_bucket(username, is_local=is_local), self._settings.codes_a_day, window_s=DAY_S)
        self._count([day], refusal=REFUSED_CODE)

    def _of_all(self, address: str) -> list[_Bucket]:
        return [
            _Bucket(f"address:{_digest(address)}", self._settings.per_address),
            _Bucket("overall:local" if is_loopback(address) else "overall", self._settings.overall),
        ]

    def _count(self, buckets: list[_Bucket], *, refusal: str) -> None:
        """Count in each, always in this order: on PostgreSQL each statement locks its row until the commit."""
        now_us = self._clock.now_us()

        def work(connection: Connection) -> int:
            return max(self._wait_us(connection, bucket, now_us=now_us) for bucket in buckets)

        wait_us = self._store.write(work)
        if wait_us:
            raise ThrottledError(refusal, retry_after_s=-(-wait_us // SECOND_US))

    def prune(self) -> None:
        """Forget windows that ended long ago."""
        before_us = self._clock.now_us() - _KEPT_US
        self._store.write(lambda connection: connection.execute(
            sa.delete(throttle).where(throttle.c.window_start < before_us)
        ).rowcount)  # fmt: skip

    def _wait_us(self, connection: Connection, bucket: _Bucket, *, now_us: int) -> int:
        """Count one attempt in `bucket`; return how long it must wait, 0 when it may go on."""
        window_us = (bucket.window_s or self._settings.window_s) * SECOND_US
        insert = sqlite_insert if connection.dialect.name == "sqlite" else postgresql_insert
        # A window of the future is one from before the clock was set back: it ends too.
        is_over = sa.or_(throttle.c.window_start <= now_us - window_us, throttle.c.window_start > now_us + window_us)
        statement = (
            insert(throttle)
            .values(bucket=bucket.name, window_start=now_us, attempts=1)
            .on_conflict_do_update(
                index_elements=[throttle.c.bucket],
                set_={
                    "attempts": sa.case((is_over, 1), else_=throttle.c.attempts + 1),
                    "window_start": sa.case((is_over, now_us), else_=throttle.c.window_start),
                },
            )
            .returning(throttle.c.attempts, throttle.c.window_start)
        )
        attempts, window_start = connection.execute(statement).one()
        return max(1, window_start + window_us - now_us) if attempts > bucket.most else 0


def clear_account(connection: Connection, username: str) -> None:
    """Forget the attempts to give one account's password, inside the caller's transaction; no attempt at a code."""
    _clear(connection, username, _account_bucket)


def clear_code(connection: Connection, username: str) -> None:
    """Forget the attempts to give a code, for a right one; not how many the day has seen."""
    _clear(connection, username, _code_bucket)


def clear_codes(connection: Connection, username: str) -> None:
    """Forget all attempts, those at codes of the day too: for whoever has taken the second factor away."""
    _clear(connection, username, _account_bucket, _code_bucket, _day_bucket)


def _clear(connection: Connection, username: str, *buckets: Callable[..., str]) -> None:
    names = [bucket(username, is_local=is_local) for bucket in buckets for is_local in _BOTH]
    connection.execute(sa.delete(throttle).where(throttle.c.bucket.in_(names)))


def clear(connection: Connection) -> None:
    """Forget all attempts, inside the caller's transaction: for whoever recovers an installation on its host."""
    connection.execute(sa.delete(throttle))


def canonical(username: str) -> str:
    """Return the one name under which all spellings of `username` are counted."""
    folded = unicodedata.normalize("NFKC", username).casefold()
    return unicodedata.normalize("NFKC", folded).strip().rstrip(".").strip()


def is_loopback(address: str) -> bool:
    """Say whether the peer is this machine."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _account_bucket(username: str, *, is_local: bool) -> str:
    return f"{'local' if is_local else 'account'}:{_digest(canonical(username))}"


def _code_bucket(username: str, *, is_local: bool) -> str:
    return f"{'local-code' if is_local else 'code'}:{_digest(canonical(username))}"


def _day_bucket(username: str, *, is_local: bool) -> str:
    return f"{'local-day' if is_local else 'day'}:{_digest(canonical(username))}"


def _digest(text: str) -> str:
    # Hashed for its length alone: a bucket's name fits its column whatever was typed.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
