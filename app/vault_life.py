"""The life of the vault's keys: lock, unlock, rotate, and tell where all of it stands.

A lock writes the sealed keys durably and proves that they open, then sets the flag, then destroys the plain file. An
unlock goes the other way round. Killed between two of these, the next one finishes, or `app.key_following`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from app import vaults
from app.auth.throttle import Throttle, clear_account
from app.config import Settings
from app.key_following import REPORT_US, KeyFollower
from app.key_sources import LOCK_PASSPHRASE, UNLOCK_PASSPHRASE, Sources
from continuity.errors import ForbiddenError, MalformedError, SealedError, UnavailableError
from continuity.services.audit import AuditLog
from continuity.services.callers import Caller, CallerKind, Role
from continuity.services.clock import Clock
from continuity.services.locking import Locking, RingState, require_administrator
from continuity.services.rotation import Rotation, RotationProgress
from continuity.store import keyring as statements
from continuity.store.store import Store
from continuity.vault import KeyProvider, Keyring, Vault
from continuity.vault.passphrase import Cost

_DRIVE_S: Final = 0.5
"""How long housekeeping works on a rotation at a time; its other tasks have their turn between."""
_OTHERS_US: Final = 5_000_000
"""After so long without a move, whoever drove a rotation is gone."""
_PAUSE_S: Final = 0.25
_ATTEMPTS: Final = "vault unlock"
_HERE: Final = "127.0.0.1"

LOCAL: Final = Caller(
    kind=CallerKind.PERSON, actor="cli", request_id="", workspaces=None, home_workspace=0, role=Role.ADMINISTRATOR,
    is_fresh=True,
)  # fmt: skip
"""Whoever may run commands on the instance: reading its key file is proof enough."""


@dataclass(frozen=True, slots=True)
class VaultStatus:
    """What may be told of the vault's keys. Times in microseconds since 1970, UTC.

    `state` is the flag, ``open`` or ``locked``; `is_open_here` is whether this process has the keys. `holders` counts
    the serving processes that said lately that they have the keys, `waiting` those that have none.
    """

    state: str
    is_open_here: bool
    key_source: str
    key_id: int
    format: int
    capture_mode: str
    locked_at_us: int | None
    locked_by: str | None
    needs_passphrase_to_lock: bool
    needs_passphrase_to_unlock: bool
    holders: int
    waiting: int
    rotation: RotationProgress | None


class VaultLife:
    """One for each process. Safe to share between threads."""

    def __init__(
        self, settings: Settings, store: Store, vault: Vault, audit: AuditLog, *, keys: KeyProvider, clock: Clock,
        throttle: Throttle, cost: Cost,
    ) -> None:  # fmt: skip
        self._store = store
        self._vault = vault
        self._clock = clock
        self._throttle = throttle
        self._locking = Locking(store, vault, audit, clock.now_us)
        self._sources = Sources(settings, store, vault, self._locking, keys=keys, cost=cost)
        self._rotation = Rotation(store, vault, audit, self._sources, clock.now_us)
        self._left: RotationProgress | None = None
        self.follower = KeyFollower(store, vault, self._locking, self._sources, clock.now_us)

    # ---- looking

    @property
    def kind(self) -> str:
        """The source of the master key."""
        return self._sources.kind

    @property
    def is_sealed_here(self) -> bool:
        """Whether the sealed keys of a locked vault lie in this host's folder."""
        return self._sources.locked_file.path.exists()

    def status(self) -> VaultStatus:
        """Tell where the keys stand. UnavailableError when storage cannot answer."""
        row = vaults.vault_row(self._store)
        if row is None:
            raise UnavailableError("The instance has no vault yet. Run `atmem init`.")
        since = self._clock.now_us() - 3 * REPORT_US
        found = self._store.autocommit(lambda connection: statements.holders(connection, seen_since=since))
        return VaultStatus(
            state="locked" if row.state == "locked" else "open", is_open_here=not self._vault.is_locked,
            key_source=self.kind, key_id=row.key_id, format=row.format, capture_mode=row.capture_mode,
            locked_at_us=row.locked_at, locked_by=row.locked_by,
            needs_passphrase_to_lock=self.kind in LOCK_PASSPHRASE,
            needs_passphrase_to_unlock=self.kind in UNLOCK_PASSPHRASE,
            holders=sum(each.state == "open" for each in found),
            waiting=sum(each.state != "open" for each in found), rotation=self.rotation(),
        )  # fmt: skip

    def rotation(self) -> RotationProgress | None:
        """Return the last rotation, over or not."""
        return self._rotation.progress()

    def unreadable(self) -> list[tuple[str, int]]:
        """Name data keys that are under another master key than that of now: partition and key, twenty at most."""
        return self._rotation.unreadable()

    def waited_for(self, progress: RotationProgress) -> list[str]:
        """Name the serving processes that lack the new key."""
        return self._rotation.waited_for(progress)

    def keyring(self) -> Keyring:
        """Fetch the master keys from their source, for a backup that is sealed at once.

        Raises:
            SealedError: The vault is locked. KeySourceError: They cannot be had.
        """
        state = self._locking.state()
        if state.is_locked or self._vault.is_locked:
            raise SealedError("The vault is locked.")
        return self._sources.ring(state)

    # ---- locking

    def lock(self, caller: Caller, passphrase: str | None = None) -> None:
        """Lock the vault in all processes. A vault that is locked stays so.

        Raises:
            ForbiddenError: The caller may not. MalformedError: The passphrase must not be one.
            SealedError: This process has no keys. KeySourceError: The sealed keys cannot be written.
                In every case nothing has happened.
            KeySourceError: The vault is locked, and the key in the clear cannot be removed; the message names it.
            ForbiddenError: ``wrong_passphrase``: it was locked already, under another passphrase than this one.
            ThrottledError: The same, after too many attempts; the vault stays locked.
        """
        require_administrator(caller)
        with self._sources.held():
            state = self._locking.state()
            if not state.is_locked:
                if self._vault.is_locked:
                    raise SealedError("The vault's keys are not here: nobody has given the passphrase.")
                self._sources.seal(state, passphrase)
                self._locking.lock(caller)
            else:
                self._sources.seal_left(state, passphrase)
            # Before the files: the flag is set, whatever becomes of them.
            self._vault.lock()
            self._sources.forget()
            self._sources.take_back()
            if state.is_locked:
                self._require_kept(caller, state, passphrase)

    def _require_kept(self, caller: Caller, state: RingState, passphrase: str | None) -> None:
        """Tell whoever locks a locked vault that their passphrase is not the one that opens it."""
        if passphrase is None or self.kind not in LOCK_PASSPHRASE:
            return
        self._throttle.count(_ATTEMPTS, address=_HERE)
        try:
            self._sources.unlocked(state, passphrase)
        except ForbiddenError as error:
            self._locking.note_refusal(caller, error.code)
            message = (
                "The vault was locked already, under another passphrase: that one opens it, and this one does not."
            )
            raise ForbiddenError(message, code=error.code) from None
        self._store.write(lambda connection: clear_account(connection, _ATTEMPTS))

    def unlock(self, caller: Caller, passphrase: str | None = None) -> None:
        """Unlock the vault in all processes. A vault that is open stays so.

        Raises:
            ForbiddenError: The caller may not, or ``wrong_passphrase``. ThrottledError: Too many attempts.
            MalformedError: It can be no passphrase, or there is none.
            KeySourceError: The keys cannot be had, or are not this vault's.
                In every case the vault is as it was.
        """
        require_administrator(caller)
        if not self._locking.state().is_locked and not self._vault.is_locked:
            return
        if self.kind in UNLOCK_PASSPHRASE:
            if passphrase is None:
                raise MalformedError("A passphrase is needed to unlock the vault.")
            self._throttle.count(_ATTEMPTS, address=_HERE)
        with self._sources.held():
            self._unlock(caller, passphrase)
        self._store.write(lambda connection: clear_account(connection, _ATTEMPTS))

    def _unlock(self, caller: Caller, passphrase: str | None) -> None:
        state = self._locking.state()
        try:
            ring = self._sources.unlocked(state, passphrase)
        except ForbiddenError as error:
            self._locking.note_refusal(caller, error.code)
            raise
        was_locked = self._vault.is_locked
        if was_locked:
            self._sources.open(ring, state)
        try:
            self._sources.spread(ring)
            self._locking.unlock(caller)
        except BaseException:
            # The flag stands, so nobody may go on with keys, and this process is no exception.
            if was_locked and state.is_locked:
                self._vault.lock()
            raise
        self._sources.drop_locked()

    # ---- rotating

    def start_rotation(self, caller: Caller, passphrase: str | None = None) -> RotationProgress:
        """Begin a rotation, or return the one that is under way; serving processes do the work, or `run`.

        Args:
            caller: An administrator.
            passphrase: Needed where the source is a passphrase, to seal the new key.

        Raises:
            ForbiddenError: The caller may not, or ``wrong_passphrase``. MalformedError: There is no passphrase.
            SealedError: The vault is locked. KeySourceError: There can be no new key as things are.
                In every case nothing is rewrapped; a key may lie at its source under which nothing is.
        """
        require_administrator(caller)
        # Before its source is asked, which has no key in the clear to show then and would call it lost.
        if self._locking.state().is_locked:
            raise SealedError("The vault is locked. Nothing was changed. Unlock it first: atmem vault unlock")
        if self.kind == "passphrase":
            self._throttle.count(_ATTEMPTS, address=_HERE)
        with self._sources.typed(passphrase):
            progress = self._rotation.start(caller)
            if progress.state == "adding":
                progress = self._rotation.step() or progress
        # Nobody else is known to drive it: the housekeeping of this process need not wait.
        self._left = progress
        return progress

    def run(self, tell: Callable[[RotationProgress], None]) -> RotationProgress | None:
        """Drive the rotation until it is over, for a command. Raises as `Rotation.step`."""
        while True:
            before = self._rotation.progress()
            if before is None or before.is_finished:
                return before
            took_s = self._timed_step()
            after = self._rotation.progress()
            if after is not None:
                tell(after)
            # As long as it took: the servers beside it have the other half.
            time.sleep(_PAUSE_S if _is_same(after, before) else took_s)

    def drive(self) -> None:
        """Work a little on an unfinished rotation that nobody drives. For the housekeeping."""
        progress = None if self._vault.is_locked else self._rotation.progress()
        if progress is None or progress.is_finished or self._is_driven(progress):
            return
        until = time.monotonic() + _DRIVE_S
        # Locked meanwhile, or the new key waits for its passphrase: both are somebody's to end, and no failure.
        with suppress(SealedError):
            while progress is not None and not progress.is_finished and time.monotonic() < until:
                took_s = self._timed_step()
                before, progress = progress, self._rotation.progress()
                if _is_same(progress, before):
                    break
                time.sleep(took_s)
        self._left = progress

    def _is_driven(self, progress: RotationProgress) -> bool:
        """Say whether another process works on it: it stands elsewhere than we left it, and was moved just now."""
        is_ours = _is_same(progress, self._left)
        return not is_ours and 0 <= self._clock.now_us() - progress.driven_at_us < _OTHERS_US

    def _timed_step(self) -> float:
        began = time.monotonic()
        self._rotation.step()
        return time.monotonic() - began


def _is_same(one: RotationProgress | None, other: RotationProgress | None) -> bool:
    """Say whether nothing was done between two looks."""
    if one is None or other is None:
        return one is other
    return replace(one, driven_at_us=0) == replace(other, driven_at_us=0)
