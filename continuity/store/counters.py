"""Statements on the counters of coordinators, which the service above proves and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam

from continuity.store.compiled import Compiled
from continuity.store.schema import owners

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

COLUMNS: Final = (
    owners.c.owner_pk.label("counted_owner_pk"),
    owners.c.unfinished.label("owner_unfinished"),
    owners.c.retained_bytes.label("owner_retained"),
    owners.c.reserved_bytes.label("owner_reserved"),
    owners.c.proof.label("owner_proof"),
)
_COORDINATORS: Final = owners.c.kind == "continuity_coordinator"
LOCKED: Final = Compiled(
    sa.select(*COLUMNS).where(owners.c.owner_pk == bindparam("owner_pk")).with_for_update(key_share=True)
)
ALL: Final = sa.select(*COLUMNS).where(_COORDINATORS).order_by(owners.c.owner_pk)
UNPROVED: Final = ALL.where(owners.c.proof.is_(None))
_KIND: Final = sa.select(owners.c.kind).where(owners.c.owner_pk == bindparam("owner_pk"))

_VALUES: Final[dict[str, Any]] = {
    name: bindparam(name) for name in ("unfinished", "retained_bytes", "reserved_bytes", "proof")
}
_OWNER: Final = owners.c.owner_pk == bindparam("b_owner_pk")
_MOVE: Final = Compiled(sa.update(owners).where(_OWNER, owners.c.proof == bindparam("before")).values(_VALUES))
_BEGIN: Final = sa.update(owners).where(_OWNER, owners.c.proof.is_(None)).values(_VALUES)


def move(connection: Connection, owner_pk: int, *, before: bytes | None, after: Mapping[str, Any]) -> bool:
    """Write counters with their proof, if the proof there is still `before`.

    Args:
        connection: Inside `Store.write`.
        owner_pk: Whose counters.
        before: The proof that was read; None for a row that has none yet.
        after: ``unfinished, retained_bytes, reserved_bytes, proof``.

    Returns:
        Whether it was; False has changed nothing.
    """
    values = {"b_owner_pk": owner_pk, **after}
    if before is None:
        return connection.execute(_BEGIN, values).rowcount == 1
    return _MOVE.run(connection, {**values, "before": before}) == 1


def is_coordinator(connection: Connection, owner_pk: int) -> bool:
    """Say whether a key namespace is a coordinator's, and so is counted."""
    return connection.execute(_KIND, {"owner_pk": owner_pk}).scalar_one_or_none() == "continuity_coordinator"
