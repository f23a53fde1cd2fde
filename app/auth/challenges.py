"""The step between password and code: who has given the one and owes the other.

Rules:

* It is no session. Its cookie has a name and a table of its own; nothing reads it but the form for the code.
* It is known by 256 random bits, of which the row has the SHA-256; it lasts five minutes and is good for one sign-in.
* It counts while the account's stamp and the vault's epoch are those of its beginning: whatever ends sessions ends
  it too. Time is never earlier than the vault's high-water mark or its own beginning.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth.schema import challenges, users
from app.auth.settings import SECOND_US, SecondFactorSettings
from continuity.services.clock import Clock
from continuity.store.schema import vault
from continuity.store.store import Store

_ID_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Challenge:
    """A right password that a code must follow. The id goes into the cookie and nowhere else."""

    challenge_id: str = field(repr=False)


class Challenges:
    """Opens, finds and takes challenges."""

    def __init__(self, store: Store, clock: Clock, settings: SecondFactorSettings) -> None:
        self._store = store
        self._clock = clock
        self._lifetime_us = settings.challenge_s * SECOND_US

    def open(self, connection: Connection, *, user_pk: int, stamp: int) -> Challenge:
        """Begin one inside the caller's transaction."""
        mark = connection.execute(sa.select(vault.c.epoch, vault.c.clock_high_water)).one()
        now_us = max(self._clock.now_us(), mark.clock_high_water)
        self._prune(connection, now_us=now_us)
        challenge_id = secrets.token_urlsafe(_ID_BYTES)
        connection.execute(sa.insert(challenges).values(
            challenge_hash=_hash(challenge_id), user_pk=user_pk, stamp=stamp, epoch=mark.epoch, created_at=now_us,
        ))  # fmt: skip
        return Challenge(challenge_id)

    def user_of(self, challenge_id: str) -> int | None:
        """Return whose password was given, None when the step is over. Reads alone."""
        return self._store.autocommit(lambda connection: self._user_of(connection, challenge_id))

    def take(self, connection: Connection, challenge_id: str) -> bool:
        """Use the challenge up inside the caller's transaction; say whether it was there and counted."""
        counts = self._user_of(connection, challenge_id) is not None
        gone = connection.execute(sa.delete(challenges).where(challenges.c.challenge_hash == _hash(challenge_id)))
        return counts and gone.rowcount == 1

    def drop(self, challenge_id: str) -> None:
        """Delete one that is over, so that no clock set back revives it."""
        self._store.write(lambda connection: connection.execute(
            sa.delete(challenges).where(challenges.c.challenge_hash == _hash(challenge_id))
        ).rowcount)  # fmt: skip

    def prune(self) -> None:
        """Delete those whose time is over."""
        self._store.write(lambda connection: self._prune(connection, now_us=self._clock.now_us()))

    def _user_of(self, connection: Connection, challenge_id: str) -> int | None:
        row: Any = connection.execute(_FIND, {"challenge_hash": _hash(challenge_id)}).one_or_none()
        if row is None:
            return None
        now_us = max(self._clock.now_us(), row.clock_high_water)
        is_in_time = row.created_at <= now_us < row.created_at + self._lifetime_us
        is_same = row.stamp == row.user_stamp and row.epoch == row.vault_epoch and row.disabled_at is None
        return row.user_pk if is_in_time and is_same else None

    def _prune(self, connection: Connection, *, now_us: int) -> None:
        connection.execute(sa.delete(challenges).where(challenges.c.created_at <= now_us - self._lifetime_us))


_FIND: Final = (
    sa.select(
        challenges.c.user_pk, challenges.c.stamp, challenges.c.epoch, challenges.c.created_at, users.c.disabled_at,
        users.c.stamp.label("user_stamp"), vault.c.epoch.label("vault_epoch"), vault.c.clock_high_water,
    )
    .select_from(challenges.join(users, users.c.user_pk == challenges.c.user_pk).join(vault, vault.c.id == 1))
    .where(challenges.c.challenge_hash == sa.bindparam("challenge_hash"))
)  # fmt: skip


def end_all(connection: Connection, *, user_pk: int) -> None:
    """Delete every challenge of one person inside the caller's transaction."""
    connection.execute(sa.delete(challenges).where(challenges.c.user_pk == user_pk))


def _hash(challenge_id: str) -> bytes:
    return hashlib.sha256(challenge_id.encode("ascii")).digest()
