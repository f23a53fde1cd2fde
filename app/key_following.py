"""Follows the vault's row in one serving process: drops the keys once the flag is set, fetches them when it may.

It runs twice a second in a thread of its own and needs nobody's word, so that a command beside the server is enough to
lock, unlock or rotate. What a process holds it writes down for all to see (`continuity_key_holders`): at every change,
and now and then as a sign of life.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from app import logs
from app.housekeeping import Housekeeping
from continuity.errors import ContinuityError, KeySourceError, SealedError, UnavailableError
from continuity.services.locking import Locking, RingState
from continuity.store import keyring as statements
from continuity.store.store import Store
from continuity.vault import Vault

if TYPE_CHECKING:
    from app.key_sources import Sources

FOLLOW_S: Final = 0.5
"""A quarter of the two seconds within which every process has dropped its keys."""
REPORT_US: Final = 20_000_000
FORGET_US: Final = 3_600_000_000
_RELOAD_S: Final = 1.0


class KeyFollower:
    """One for each process that serves. Safe to share between threads."""

    def __init__(
        self, store: Store, vault: Vault, locking: Locking, sources: Sources, now_us: Callable[[], int]
    ) -> None:
        self._store = store
        self._vault = vault
        self._locking = locking
        self._sources = sources
        self._now_us = now_us
        self._thread = Housekeeping()
        self._thread.add("vault", self.follow, interval_s=FOLLOW_S)
        self._following = threading.Lock()
        self._generation = 0
        self._told: tuple[Any, ...] = ()
        self._told_us = 0
        self._complaint = ""
        self._holder_id: str | None = None
        self._reloaded_s = 0.0
        vault.reload = self._reload

    def start(self) -> None:
        """Begin to follow: after any fork, once."""
        self._holder_id = f"kh_{secrets.token_hex(16)}"
        if not self._store.is_postgresql:
            # The instance is ours alone: whoever is named there was killed.
            self._store.write(statements.drop_holders)
        self._thread.start()

    def stop(self) -> None:
        """End following; safe to call when nothing was started."""
        self._thread.stop()
        holder_id, self._holder_id = self._holder_id, None
        if holder_id is not None:
            with suppress(UnavailableError):
                self._store.write(lambda connection: statements.drop_holder(connection, holder_id))

    def follow(self) -> None:
        """Do what the flag and the generation of the vault's row ask of this process."""
        with self._following:
            try:
                state = self._locking.state()
            except UnavailableError:
                # Whoever cannot read the flag cannot decide either; keys alone do nothing.
                return
            try:
                self._follow(state)
                self._complaint = ""
            except SealedError:
                # The keys wait for a passphrase; until then everything that needs them answers so.
                self._complaint = ""
            except ContinuityError as error:
                self._complain(error)
            self._report(state)

    def _follow(self, state: RingState) -> None:
        if state.is_locked:
            self._vault.lock()
            self._sources.forget()
            self._sources.finish_lock(state)
        elif self._vault.is_locked or state.generation != self._generation:
            ring = self._sources.ring(state)
            if self._vault.is_locked:
                self._sources.open(ring, state)
            else:
                self._vault.adopt(ring)
            self._sources.finish_unlock(state)
        self._generation = state.generation

    def _complain(self, error: ContinuityError) -> None:
        """Log a trouble once, not twice a second."""
        if error.message != self._complaint:
            logs.event(logging.ERROR, "vault_keys", code=error.code, message=error.message)
        self._complaint = error.message

    def _reload(self) -> None:
        """Fetch the keys for a reader or writer that misses one, once a second at most."""
        now_s = time.monotonic()
        if self._sources.is_remote or now_s - self._reloaded_s < _RELOAD_S:
            # A key service is not asked while a transaction is open: `follow` does it within half a second.
            return
        self._reloaded_s = now_s
        with suppress(KeySourceError, SealedError):
            self._vault.adopt(self._sources.ring(self._locking.state()))

    def _report(self, state: RingState) -> None:
        if self._holder_id is None:
            return
        now_us = self._now_us()
        ids = ",".join(map(str, sorted(self._vault.key_ids)))
        told = ("locked" if self._vault.is_locked else "open", state.generation, ids)
        if told == self._told and 0 <= now_us - self._told_us < REPORT_US:
            return
        values = {
            "holder_id": self._holder_id, "state": told[0], "generation": told[1], "key_ids": ids, "seen_at": now_us,
        }  # fmt: skip
        with suppress(UnavailableError):
            self._store.write(lambda connection: statements.write_holder(
                connection, values, seen_before=now_us - FORGET_US
            ))  # fmt: skip
            self._told, self._told_us = told, now_us
