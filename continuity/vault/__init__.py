"""The encrypted vault: what an agent did is readable only with its key.

Making a vault, once, beside an empty database::

    keys = FileKeyProvider(instance / "vault.key")
    shred_list = ShredList.create(instance / "vault.shred")
    keyring = keys.create()
    new = create_vault(keyring)         # canary, wrapped index key and shred_list.head: the vault's row

Opening it, at every start::

    vault = open_vault(
        keys.load(), canary=row.canary, wrapped_index_key=row.wrapped_index_key,
        shred_list=ShredList(instance / "vault.shred"),
        recorded=ShredHead(row.shred_length, row.shred_head),
    )

Writing and reading a value; the place is part of the seal::

    key, stored = vault.new_partition("wf_1")      # store stored.key_id and stored.wrapped
    place = Place("continuity_operations", "wf_1", "op_1", "sealed_state")
    sealed = key.seal(b"what happened", place=place)

    key = vault.open_partition("wf_1", stored.wrapped, key_id=stored.key_id)
    assert key.open(sealed, place=place) == b"what happened"

Destroying a partition for ever, old backups included::

    head = vault.shred("wf_1", recorded=ShredHead(row.shred_length, row.shred_head))

What lives here: keys, envelopes, blind indexes, the shred list. What must not: SQL, HTTP, settings. The
byte layouts are in ``FORMAT.md``. Errors are those of `continuity.errors.VaultError`.
"""

from continuity.vault.anchor import Anchor, AnchorFile
from continuity.vault.keyring import KeyInfo, Keyring
from continuity.vault.keys import EnvironmentKeyProvider, FileKeyProvider, KeyProvider, RotatingKeys
from continuity.vault.partition import PartitionKey, WrappedKey
from continuity.vault.passkeys import PassphraseKeyProvider, SealedKeyFile
from continuity.vault.place import Place
from continuity.vault.shred import ShredHead, ShredList
from continuity.vault.vault import NewVault, Vault, create_vault, open_vault

__all__ = [
    "Anchor",
    "AnchorFile",
    "EnvironmentKeyProvider",
    "FileKeyProvider",
    "KeyInfo",
    "KeyProvider",
    "Keyring",
    "NewVault",
    "PartitionKey",
    "PassphraseKeyProvider",
    "Place",
    "RotatingKeys",
    "SealedKeyFile",
    "ShredHead",
    "ShredList",
    "Vault",
    "WrappedKey",
    "create_vault",
    "open_vault",
]
