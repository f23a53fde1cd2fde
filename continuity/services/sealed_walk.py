"""Opens everything that is sealed, once, and says what does not open. Changes nothing; reads in small steps.

Rules:

* A data key that does not open is told once, with the master key that it names; the rows under it are counted and not
  told one by one.
* A row under a data key that opens is told by table and column, never with content.
* What is on the shred list is being destroyed, or was put back by an older database: it must not open, and is left out.
* Whatever the size, one batch of rows is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from continuity.errors import DecryptionError, SealedError
from continuity.services.sealed_rows import SEALED, SealedColumn
from continuity.store import keyring as statements

if TYPE_CHECKING:
    from continuity.store.store import Store
    from continuity.vault.partition import PartitionKey
    from continuity.vault.vault import Vault

BATCH: Final = 100
"""Rows of one step: some of 256 KiB each."""
FINDINGS_AT_MOST: Final = 1_000
"""Who reads more has stopped reading; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Something that does not open.

    Attributes:
        partition_id: Whose content it is.
        key_id: The master key that its data key names; None when the data key is not there.
        where: ``data key``, or table and column.
    """

    partition_id: str
    key_id: int | None
    where: str


@dataclass(slots=True)
class Walked:
    """What a walk has found.

    Attributes:
        data_keys: How many data keys were tried.
        rows: How many sealed values were tried or lie under a data key that does not open.
        unreadable: How many of either do not open.
        findings: The first `FINDINGS_AT_MOST` of them; of a data key that does not open the key alone.
    """

    data_keys: int = 0
    rows: int = 0
    unreadable: int = 0
    findings: list[Unreadable] = field(default_factory=list)

    def note(self, found: Unreadable) -> None:
        """Keep a finding if there is room."""
        self.unreadable += 1
        if len(self.findings) < FINDINGS_AT_MOST:
            self.findings.append(found)


@dataclass(frozen=True, slots=True)
class SealedWalk:
    """Walks over all data keys and all sealed columns.

    Attributes:
        store: Where it is read.
        vault: Open.
        batch: Rows of one step.
    """

    store: Store
    vault: Vault
    batch: int = BATCH

    def walk(self, progress: Callable[[str, int], None] = lambda _what, _count: None) -> Walked:
        """Try everything.

        Args:
            progress: Called after each batch with what is counted (``data keys``, ``rows``) and how many so far.

        Raises:
            SealedError: The vault is locked, or was meanwhile.
            UnavailableError: Storage cannot answer.
        """
        if self.vault.is_locked or self.store.autocommit(lambda c: c.execute(statements.RING).one()).state == "locked":
            raise SealedError("The vault is locked.")
        walked = Walked()
        for row in self._data_keys():
            self._try_data_key(row, walked)
            if walked.data_keys % self.batch == 0:
                progress("data keys", walked.data_keys)
        for column in SEALED:
            for rows in self._rows(column):
                self._try_rows(column, rows, walked)
                progress("rows", walked.rows)
        return walked

    def _data_keys(self) -> Iterator[Any]:
        after = ""
        while rows := self._page(after):
            yield from rows
            after = rows[-1].partition_id

    def _page(self, after: str) -> Any:
        return self.store.read(lambda c: statements.data_keys_after(c, after=after, count=self.batch))

    def _try_data_key(self, row: Any, walked: Walked) -> None:
        walked.data_keys += 1
        if self._opened(row) is None and not self.vault.has_shredded(row.partition_id):
            walked.note(Unreadable(row.partition_id, row.key_id, "data key"))

    def _rows(self, column: SealedColumn) -> Iterator[Any]:
        after: tuple[Any, ...] | None = None
        width = len(column.table.primary_key.columns)
        while True:
            statement = column.statement(after, count=self.batch)
            rows = self.store.read(lambda connection, statement=statement: connection.execute(statement).all())  # type: ignore[misc]
            if not rows:
                return
            yield rows
            after = tuple(getattr(rows[-1], f"k{number}") for number in range(width))

    def _try_rows(self, column: SealedColumn, rows: Any, walked: Walked) -> None:
        where = f"{column.table.name}.{column.column.name}"
        known: tuple[str, PartitionKey | None] = ("", None)
        for row in rows:
            walked.rows += 1
            if row.partition_id != known[0]:
                known = (row.partition_id, self._opened(row))
            key = known[1]
            if key is None:
                self._count_under(row, where, walked)
                continue
            names = tuple(getattr(row, f"n{number}") for number in range(len(column.named_by)))
            try:
                key.open(row.sealed, place=column.place(row.partition_id, names))
            except DecryptionError:
                walked.note(Unreadable(row.partition_id, row.key_id, where))

    def _count_under(self, row: Any, where: str, walked: Walked) -> None:
        """Count a row whose data key does not open: the key was told already, unless it is not there at all."""
        if self.vault.has_shredded(row.partition_id):
            return
        if row.wrapped_key is None:
            walked.note(Unreadable(row.partition_id, row.key_id, where))
        else:
            walked.unreadable += 1

    def _opened(self, row: Any) -> PartitionKey | None:
        try:
            return self.vault.open_partition(row.partition_id, row.wrapped_key, key_id=row.key_id)
        except DecryptionError:
            return None
