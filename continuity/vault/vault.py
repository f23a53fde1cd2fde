"""The vault: wraps the data key of every partition and makes the blind indexes.

Rules:

* Master keys wrap data keys, the index key and the canary, and nothing else. Content is sealed under
  data keys (`PartitionKey`).
* Opening the vault opens the canary, so a wrong master key fails at the start and not at the first read.
* The key id of a wrapped key says which master key is tried. No other one is.
* A partition on the shred list never opens, whatever the database holds; the list is asked each time.
* Once locked, everything raises `SealedError`: the vault and every data key that it gave out.
* The index key outlives rotations, or no name could be found again.
* Which master key wraps is said by whoever has read the vault's row under a lock (`new_partition`). A key that is not
  here is asked for once (`reload`): another process may have made it.
* A key that was retired stays here until the vault is locked or the process ends: a long reading that began before
  still needs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from continuity.errors import DecryptionError, KeySourceError, SealedError
from continuity.vault import envelope
from continuity.vault.keyring import Keyring
from continuity.vault.nonces import NonceSource
from continuity.vault.openkeys import CANARY, CANARY_PLACE, INDEX_KEY_PLACE, OpenKeys, key_place
from continuity.vault.partition import Latch, PartitionKey, WrappedKey
from continuity.vault.shred import ShredHead, ShredList

SHRED_PURPOSE: Final = "shredded_partition"


@dataclass(frozen=True, slots=True)
class NewVault:
    """What the row of a new vault holds.

    Attributes:
        key_id: Number of the master key that both are sealed under.
        canary: An envelope by which a master key is recognised.
        wrapped_index_key: An envelope of 65 bytes.
    """

    key_id: int
    canary: bytes = field(repr=False)
    wrapped_index_key: bytes = field(repr=False)


class Vault:
    """Opens and makes the partitions of one vault. Safe to share between threads.

    Attributes:
        shred_list: The list that every unwrap asks.
        reload: Fetches the master keys anew and calls `adopt`; None where nobody can.
    """

    __slots__ = ("_entropy", "_keys", "reload", "shred_list")

    reload: Callable[[], None] | None

    def __init__(self, shred_list: ShredList, *, entropy: Callable[[int], bytes] = os.urandom) -> None:
        """Make a locked vault; `unlock` opens it.

        Args:
            shred_list: Already compared with the database (`ShredList.verify`).
            entropy: Answers so many random bytes as it is asked for.
        """
        self.shred_list = shred_list
        self._entropy = entropy
        self.reload = None
        self._keys: OpenKeys | None = None

    def unlock(self, keyring: Keyring, *, canary: bytes, wrapped_index_key: bytes) -> None:
        """Open the vault with its master keys. Data keys opened before stay shut.

        Args:
            keyring: The master keys; it is not kept.
            canary: As stored in the vault's row.
            wrapped_index_key: As stored in the vault's row.

        Raises:
            KeySourceError: The keys are not this vault's. It stays as it was.
            DecryptionError: The index key was changed. It stays as it was.
        """
        opened = OpenKeys(
            keyring, canary=canary, wrapped_index_key=wrapped_index_key, nonces=NonceSource(self._entropy)
        )
        self.lock()
        self._keys = opened

    def adopt(self, keyring: Keyring) -> None:
        """Take more master keys of the same vault into an open one. What was opened stays open.

        Args:
            keyring: Keys by number; one that is here already is not replaced. It is not kept.

        Raises:
            SealedError: The vault is locked.
        """
        self._opened().adopt(keyring)

    def lock(self) -> None:
        """Drop the keys. What is being decrypted at this instant may finish; nothing starts after it."""
        keys, self._keys = self._keys, None
        if keys is not None:
            keys.latch.is_open = False

    @property
    def is_locked(self) -> bool:
        """Whether everything raises `SealedError` now."""
        return self._keys is None

    @property
    def key_ids(self) -> frozenset[int]:
        """Numbers of the master keys that are here; empty when the vault is locked."""
        keys = self._keys
        return frozenset() if keys is None else keys.key_ids

    @property
    def key_id(self) -> int:
        """Number of the master key that was primary when the vault was unlocked.

        Raises:
            SealedError: The vault is locked.
        """
        return self._opened().key_id

    def new_partition(self, partition_id: str, *, key_id: int | None = None) -> tuple[PartitionKey, WrappedKey]:
        """Make a fresh data key.

        Args:
            partition_id: An id that no partition had before, a destroyed one included.
            key_id: The master key that the vault's row names, read under a lock in the transaction that will write
                what this returns; None takes the one that was primary at the unlock, where there is no row yet.

        Returns:
            The data key, ready for use, and what the database keeps of it. Without the second in the
            database nothing sealed under the first can ever be read.

        Raises:
            SealedError: The vault is locked.
            KeySourceError: That master key is not here and cannot be had.
            VaultError: The random generator repeats itself, or the master key is worn out.
        """
        keys = self._opened()
        wrapping_id = keys.key_id if key_id is None else key_id
        if not self._has(keys, wrapping_id):
            raise KeySourceError(f"Master key {wrapping_id} is not here yet. Nothing was written.")
        key = self._entropy(envelope.KEY_BYTES)
        wrapped = keys.wrap(key, key_id=wrapping_id, place=key_place(partition_id))
        return self._partition(partition_id, AESGCM(key), keys.latch), WrappedKey(wrapping_id, wrapped)

    def open_partition(self, partition_id: str, wrapped: bytes, *, key_id: int) -> PartitionKey:
        """Unwrap a data key. Asks the shred list, which costs one `os.stat`.

        Args:
            partition_id: The partition whose row was read.
            wrapped: The wrapped key in that row; NULL fails like any other damage.
            key_id: The master key that the row names.

        Returns:
            The data key.

        Raises:
            SealedError: The vault is locked.
            DecryptionError: The partition is on the shred list, the master key is not here, or the
                wrapped key was changed or is another partition's. Which of these is never told.
            KeySourceError: The shred list cannot be read.
            IntegrityError: The shred list was damaged, shortened or replaced.
        """
        keys = self._opened()
        if self.has_shredded(partition_id):
            raise DecryptionError
        self._has(keys, key_id)
        cipher = keys.unwrap_key(wrapped, key_id=key_id, place=key_place(partition_id))
        return self._partition(partition_id, cipher, keys.latch)

    def rewrap(self, partition_id: str, wrapped: bytes, *, key_id: int, new_key_id: int) -> bytes:
        """Wrap a data key under another master key, and prove that it opens there.

        The shred list is not asked: whoever destroys the partition destroys what this returns.

        Args:
            partition_id: The partition whose row was read.
            wrapped: The wrapped key in that row; NULL fails like any other damage.
            key_id: The master key that the row names.
            new_key_id: The one to wrap under.

        Returns:
            An envelope of 65 bytes.

        Raises:
            SealedError: The vault is locked.
            DecryptionError: It does not open: damaged, another partition's, or under a key that is not here.
            KeySourceError: The new master key is not here and cannot be had.
        """
        keys = self._opened()
        if not self._has(keys, new_key_id):
            raise KeySourceError(f"Master key {new_key_id} is not here yet. Nothing was written.")
        self._has(keys, key_id)
        return keys.rewrap(wrapped, key_id=key_id, new_key_id=new_key_id, place=key_place(partition_id))

    def resealed(self, wrapped_index_key: bytes, *, new_key_id: int) -> NewVault:
        """Make canary and index key of the vault's row anew under another master key. The index key stays the same.

        Args:
            wrapped_index_key: As stored in the vault's row.
            new_key_id: The master key to seal under.

        Returns:
            What the row holds from then on.

        Raises:
            SealedError: The vault is locked.
            DecryptionError: The index key was changed.
            KeySourceError: The new master key is not here and cannot be had.
        """
        keys = self._opened()
        if not self._has(keys, new_key_id):
            raise KeySourceError(f"Master key {new_key_id} is not here yet. Nothing was written.")
        key_id = envelope.named_key_id(wrapped_index_key)
        return NewVault(
            key_id=new_key_id,
            canary=keys.wrap(CANARY, key_id=new_key_id, place=CANARY_PLACE),
            wrapped_index_key=keys.rewrap(
                wrapped_index_key, key_id=key_id, new_key_id=new_key_id, place=INDEX_KEY_PLACE
            ),
        )

    def _has(self, keys: OpenKeys, key_id: int) -> bool:
        """Say whether a master key is here, after asking for it once."""
        if key_id in keys.key_ids:
            return True
        if self.reload is not None:
            self.reload()
        return key_id in keys.key_ids

    def has_shredded(self, partition_id: str) -> bool:
        """Say whether a partition is on the shred list now, by whichever process.

        Raises:
            SealedError: The vault is locked.
            KeySourceError, IntegrityError: As `ShredList.contains`.
        """
        return self.shred_list.contains(self.index(SHRED_PURPOSE, partition_id))

    def shred(self, partition_id: str, *, recorded: ShredHead) -> ShredHead:
        """Put a partition on the shred list: from here on no process opens it again. Safe to repeat.

        Args:
            partition_id: The partition to destroy; its row in the database is for the caller to destroy.
            recorded: Length and head of the vault's row, read just before.

        Returns:
            The list's length and head, durable, for the vault's row unless that is further already.

        Raises:
            SealedError: The vault is locked.
            IntegrityError, KeySourceError: As `ShredList.append`.
        """
        return self.shred_list.append(self.index(SHRED_PURPOSE, partition_id), recorded=recorded)

    def index(self, purpose: str, *values: str | bytes | int) -> bytes:
        """Make a blind index: equal values are found again without being readable.

        Args:
            purpose: What the index is for, so that equal values of two columns do not look equal.
            values: What is indexed, in order. 1, "1" and b"1" are three different values.

        Returns:
            32 bytes, HMAC-SHA-256 under the index key; the same after every rotation.

        Raises:
            SealedError: The vault is locked.
        """
        return self._opened().index(purpose, values)

    def _opened(self) -> OpenKeys:
        keys = self._keys
        if keys is None:
            raise SealedError("The vault is locked.")
        return keys

    def _partition(self, partition_id: str, cipher: AESGCM, latch: Latch) -> PartitionKey:
        return PartitionKey(partition_id, cipher=cipher, latch=latch, entropy=self._entropy)

    def __repr__(self) -> str:
        """Say whether it is locked and nothing else."""
        return f"<Vault {'locked' if self.is_locked else 'open'}>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling and copying."""
        raise TypeError("a vault cannot be pickled or copied")


def create_vault(keyring: Keyring, *, entropy: Callable[[int], bytes] = os.urandom) -> NewVault:
    """Make what the row of a new vault holds: a canary and a fresh index key. Writes nothing.

    Args:
        keyring: The master keys; the primary one seals.
        entropy: Answers so many random bytes as it is asked for.

    Returns:
        What `open_vault` asks back.
    """
    cipher, key_id, nonces = keyring.cipher(keyring.primary_id), keyring.primary_id, NonceSource(entropy)
    return NewVault(
        key_id=key_id,
        canary=envelope.seal(cipher, CANARY, key_id=key_id, nonce=nonces.draw(), place=CANARY_PLACE),
        wrapped_index_key=envelope.seal(
            cipher, entropy(envelope.KEY_BYTES), key_id=key_id, nonce=nonces.draw(), place=INDEX_KEY_PLACE
        ),
    )


def open_vault(
    keyring: Keyring,
    *,
    canary: bytes,
    wrapped_index_key: bytes,
    shred_list: ShredList,
    recorded: ShredHead,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Vault:
    """Open a vault with everything checked: the master key by the canary, the shred list by its head.

    Args:
        keyring: The master keys; it is not kept.
        canary: As stored in the vault's row.
        wrapped_index_key: As stored in the vault's row.
        shred_list: The list beside the key.
        recorded: Length and head of that list, as stored in the vault's row.
        entropy: Answers so many random bytes as it is asked for.

    Returns:
        The open vault.

    Raises:
        KeySourceError: The master key is not this vault's, or the shred list cannot be read.
        IntegrityError: The shred list is shorter than recorded, or another one.
        DecryptionError: The index key was changed.
    """
    shred_list.verify(recorded)
    vault = Vault(shred_list, entropy=entropy)
    vault.unlock(keyring, canary=canary, wrapped_index_key=wrapped_index_key)
    return vault
