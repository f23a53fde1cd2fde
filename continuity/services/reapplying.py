"""Deletes again what a restored database has brought back: whatever is on the shred list.

Rules:

* The list beside the key is older and newer than any database: it decides.
* The database notes every line of the list that it has followed. Where it has fewer notes than the list has lines,
  all partitions are asked, once; what is noted in the end is the whole list.
* Until then nothing of it can be read: a partition on the list does not open.

Source: vault.md, "delete" and "restore"; security.md V19.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from continuity.errors import UnavailableError
from continuity.store import deletion
from continuity.store import restoring as statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from continuity.store.store import Store
    from continuity.vault.vault import Vault

BATCH: Final = 500

Destroy = Callable[[str], object]
"""Destroys the rows and the key of a partition on the shred list, and leaves its tombstone; safe to repeat."""


@dataclass(frozen=True, slots=True)
class Reapplying:
    """Follows the shred list.

    Attributes:
        store: Where everything is written.
        vault: Holds the list.
        destroy: What destroys a partition, by its kind. Of any other kind the key alone is destroyed.
        now_us: The clock.
    """

    store: Store
    vault: Vault
    destroy: Mapping[str, Destroy]
    now_us: Callable[[], int]

    def run(self) -> int:
        """Delete what is on the list and in the database. For the start of a server, and after a restore.

        Returns:
            How many partitions were destroyed; 0 without looking at any where the database is up with the list.

        Raises:
            SealedError: The vault is locked: ask again after it is unlocked.
            UnavailableError: Storage cannot answer: ask again.
            VaultError: The list or a proof is damaged. What was destroyed before stays so.
        """
        length = self.vault.shred_list.length
        if self.store.read(statements.noted) >= length:
            return 0
        destroyed = 0
        for partition_id, kind in self._partitions():
            if self.vault.has_shredded(partition_id):
                self._destroy(partition_id, kind)
                destroyed += 1
        if destroyed:
            self.store.write(statements.forget_words_of_deleted)
        self._note_all()
        if destroyed and not self.store.scrub():
            raise UnavailableError("What was deleted again is still in a file that somebody reads. Ask again.")
        return destroyed

    def _partitions(self) -> Iterator[tuple[str, str]]:
        after = ""
        while page := self._page(after):
            yield from page
            after = page[-1][0]

    def _page(self, after: str) -> list[tuple[str, str]]:
        rows = self.store.read(lambda connection: statements.partitions_after(connection, after, count=BATCH))
        return [(row.partition_id, row.kind) for row in rows]

    def _destroy(self, partition_id: str, kind: str) -> None:
        destroy = self.destroy.get(kind)
        if destroy is not None:
            destroy(partition_id)
        else:
            self.store.write(lambda connection: statements.forget_key(connection, partition_id))

    def _note_all(self) -> None:
        members = iter(sorted(self.vault.shred_list.members()))
        while batch := list(islice(members, BATCH)):
            self.store.write(partial(self._note, batch=batch))
        head = self.vault.shred_list.head
        self.store.write(lambda connection: deletion.advance_shred_head(connection, length=head.length, head=head.head))

    def _note(self, connection: Connection, *, batch: list[bytes]) -> None:
        # A deletion that is under way takes the vault's row before it notes its own.
        connection.execute(statements.EXCLUSIVE).one()
        known = statements.known(connection, batch)
        for partition_ix in batch:
            if partition_ix not in known:
                deletion.note_shredded(connection, partition_ix=partition_ix, at_us=self.now_us())
