"""The source of one instance's master keys, as a lock, an unlock and a rotation change it.

Rules:

* Whatever changes it holds one lock file of the instance: a lock seals the keys that there are, so none may be added
  meanwhile.
* A plain key file of a locked vault is destroyed only when the sealed one holds all of its keys and the flag is proved.
* What a kill has left between the files and the flag is finished by the next who looks (`finish_lock`,
  `finish_unlock`), once nobody holds the lock file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from app import handing, instance, vaults
from app.config import Settings
from continuity.errors import KeySourceError, MalformedError, SealedError
from continuity.services import proofs
from continuity.services.locking import Locking, RingState
from continuity.store import keyring as statements
from continuity.store.store import Store
from continuity.vault import (
    FileKeyProvider,
    KeyProvider,
    Keyring,
    PassphraseKeyProvider,
    SealedKeyFile,
    Vault,
    files,
    sealedkeys,
)
from continuity.vault.passphrase import Cost, check_new

LOCK_PASSPHRASE: Final = frozenset({"file", "environment"})
"""Sources that a lock seals under a passphrase: they lie in the clear otherwise."""
UNLOCK_PASSPHRASE: Final = frozenset({"file", "environment", "passphrase"})


class Sources:
    """What keeps the keys while the vault is open, and what keeps them while it is locked."""

    def __init__(
        self, settings: Settings, store: Store, vault: Vault, locking: Locking, *, keys: KeyProvider, cost: Cost
    ) -> None:
        self._settings = settings
        self._store = store
        self._vault = vault
        self._locking = locking
        self._keys = keys
        self._cost = cost
        self._typed: PassphraseKeyProvider | None = None
        self.locked_file = SealedKeyFile(settings.locked_key_file)

    @property
    def kind(self) -> str:
        """The name of the source."""
        return self._keys.kind

    @property
    def is_remote(self) -> bool:
        """Whether asking it goes over a network."""
        return self.kind == "transit"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes and threads from changing the source."""
        with instance.keys_held(self._settings):
            yield

    def ring(self, state: RingState) -> Keyring:
        """Fetch the keys from their source.

        Raises:
            SealedError: They wait for a passphrase. KeySourceError: They cannot be had.
        """
        ring = self._keys.load() if self._typed is None else self._typed.load()
        return ring.with_primary(state.key_id) if state.key_id in ring.key_ids else ring

    def open(self, ring: Keyring, state: RingState) -> None:
        """Open the vault of this process. KeySourceError when the keys are not its."""
        vaults.unlock(self._vault, ring, key_id=state.key_id, canary=state.canary, index_key=state.wrapped_index_key)

    def forget(self) -> None:
        """Drop what this process still holds of the source."""
        self._typed = None
        forget = getattr(self._keys, "forget", None)
        if forget is not None:
            forget()

    # ---- locking

    def seal(self, state: RingState, passphrase: str | None) -> None:
        """Write the keys under a passphrase, durably, and prove that they open: what follows destroys the others."""
        if self.kind not in LOCK_PASSPHRASE:
            return
        if passphrase is None:
            raise MalformedError("A passphrase is needed: it will open the vault again.")
        check_new(passphrase)
        ring = self.ring(state)
        self.locked_file.write(sealedkeys.seal(ring, passphrase, cost=self._cost))
        if self.locked_file.opened(passphrase, primary_id=state.key_id).key_ids != ring.key_ids:
            raise KeySourceError(f"{self.locked_file.path} does not hold what was written. Nothing was locked.")

    def seal_left(self, state: RingState, passphrase: str | None) -> None:
        """Seal what a lock on another host has left in the clear in this host's folder. The lock file is held."""
        if self.kind in LOCK_PASSPHRASE and not self.locked_file.path.exists():
            self.seal(state, passphrase)

    def take_back(self) -> None:
        """Remove what is in the clear, or was left for servers, of a vault whose flag is set. The lock file is held."""
        if self.kind == "file":
            self._destroy_plain()
        elif self.kind in handing.KINDS:
            handing.take_back(self._settings)

    def finish_lock(self, state: RingState) -> None:
        """Finish a lock that was killed behind its flag."""
        plain = self._settings.vault_key_file
        if self.kind == "file" and (plain.exists() or files.partial_of(plain).exists()):
            self._finish(state, self._destroy_plain)

    def finish_unlock(self, state: RingState) -> None:
        """Finish an unlock that was killed behind its flag, or a lock before it."""
        if self.kind in LOCK_PASSPHRASE and self.locked_file.path.exists():
            self._finish(state, self.drop_locked)

    def _finish(self, seen: RingState, work: Callable[[], None]) -> None:
        with self.held():
            if self._locking.state().is_locked == seen.is_locked:
                work()

    def _destroy_plain(self) -> None:
        plain = FileKeyProvider(self._settings.vault_key_file)
        # Nobody was ever told of what is half written.
        files.destroy(files.partial_of(plain.path))
        if not plain.path.exists():
            return
        if files.is_wiped(plain.path):
            files.destroy(plain.path)
            return
        if not self.locked_file.path.exists():
            # Locked on another host: these keys are sealed once somebody locks here as well.
            return
        ring = plain.load()
        row = self._store.read(lambda connection: connection.execute(statements.PROVABLE).one())
        if row.vault_state != "locked" or not ring.key_ids <= frozenset(self.locked_file.read().key_ids):
            return
        proving = Vault(self._vault.shred_list)
        vaults.unlock(proving, ring, key_id=row.key_id, canary=row.sealed_canary, index_key=row.wrapped_index_key)
        proofs.check_vault(proving, row)
        files.destroy(plain.path)

    # ---- unlocking

    def unlocked(self, state: RingState, passphrase: str | None) -> Keyring:
        """Open the keys of a locked vault, whatever their source.

        Raises:
            ForbiddenError: ``wrong_passphrase``. MalformedError: It can be none. KeySourceError: They cannot be had.
        """
        if passphrase is None or self.kind not in UNLOCK_PASSPHRASE:
            return self._keys.load()
        is_sealed_source = self.kind == "passphrase"
        file = SealedKeyFile(self._settings.vault_key_file) if is_sealed_source else self.locked_file
        return file.opened(passphrase, primary_id=state.key_id)

    def spread(self, ring: Keyring) -> None:
        """Put keys where the other processes find them: before the flag is cleared, or a rotation announced."""
        if self.kind == "file":
            FileKeyProvider(self._settings.vault_key_file).store(ring)
        elif self.kind in handing.KINDS:
            handing.leave(self._settings, ring)

    def drop_locked(self) -> None:
        """Remove the sealed keys of a vault that is open again."""
        if self.kind in LOCK_PASSPHRASE:
            files.destroy(self.locked_file.path)

    # ---- rotating: `continuity.services.rotation.RingKeeper`

    @contextmanager
    def typed(self, passphrase: str | None) -> Iterator[None]:
        """Seal under a passphrase that somebody gives now, where that is the source; it is proved first.

        Raises:
            MalformedError: There is none. ForbiddenError: ``wrong_passphrase``.
        """
        if self.kind != "passphrase":
            yield
            return
        if passphrase is None:
            raise MalformedError("The passphrase is needed to seal the new key.")
        provider = PassphraseKeyProvider(self._settings.vault_key_file, passphrase=passphrase)
        provider.load()
        self._typed = provider
        try:
            yield
        finally:
            self._typed = None
            provider.forget()

    def next_key_id(self, current: int) -> int:
        number: int = self._lasting().next_key_id(current)
        return number

    def add(self, key_id: int) -> None:
        with self.held():
            self._require_open()
            ring = self._lasting().add(key_id)
            if self.kind in handing.KINDS:
                handing.leave(self._settings, ring)
        self._vault.adopt(ring)

    def settle(self, key_id: int, *, keep: frozenset[int]) -> None:
        with self.held():
            self._require_open()
            self._lasting().settle(key_id, keep=keep)

    def _require_open(self) -> None:
        if self._locking.state().is_locked:
            raise SealedError("The vault is locked.")

    def _lasting(self) -> Any:
        """Return what keeps the keys for good; a server that was handed its keys knows where that is."""
        if self._typed is not None:
            return self._typed
        if not isinstance(self._keys, handing.HandedKeys):
            return self._keys
        if self.kind == "environment":
            return handing.Variable(self._keys)
        return PassphraseKeyProvider(self._settings.vault_key_file)
