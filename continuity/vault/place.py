"""Where a sealed value stands: the associated data of every seal.

Rules:

* A place is spelled so that no two places have the same bytes: each part carries its length. Gluing
  the parts together would let (``wf1``, ``12``) pass for (``wf11``, ``2``).
* A value moved to another table, partition, row or column does not open there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

FORMAT_NAME: Final = "atmem-envelope-1"
"""First part of every place. A second format needs a second name, so that neither opens the other's."""

LENGTH_BYTES: Final = 4
"""Size of each length, big endian."""


def length_prefixed(part: bytes) -> bytes:
    """Spell one part as its length (4 bytes, big endian) and then itself.

    Args:
        part: Any bytes, at most 2^32 - 1 of them.

    Returns:
        ``length (4) | part``. Parts so spelled and joined can be told apart again in one way only.
    """
    return len(part).to_bytes(LENGTH_BYTES, "big") + part


_FORMAT_PART: Final = length_prefixed(FORMAT_NAME.encode())


# Tables and columns are constants of the program: a few dozen texts that stand in front of every seal.
@lru_cache(maxsize=256)
def _spelled(constant: str) -> bytes:
    return length_prefixed(constant.encode())


@dataclass(frozen=True, slots=True)
class Place:
    """The one row and column at which a sealed value may be opened. Holds no secret.

    Attributes:
        table: Name of the table.
        partition_id: Id of the partition whose data key seals the value.
        row_id: What names the row within its table, for ever: an opaque id, or several joined by the caller.
        column: Name of the column.
    """

    table: str
    partition_id: str
    row_id: str
    column: str

    def associated_data(self) -> bytes:
        """Spell the place for AES-GCM.

        Returns:
            Format name, table, partition id, row id and column in this order, UTF-8, each after its
            length (4 bytes, big endian).
        """
        partition_id, row_id = self.partition_id.encode(), self.row_id.encode()
        return b"".join((
            _FORMAT_PART, _spelled(self.table), length_prefixed(partition_id), length_prefixed(row_id),
            _spelled(self.column),
        ))  # fmt: skip
