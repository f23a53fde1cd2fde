"""Which pairs of charge source and price source a scope and day names, and the sum of the others.

The `PAIRS_NAMED` that rank first (`observations.costs.pair_rank`) are named, whichever came first, so that the order
of events does not matter; the rest are hidden, and one row holds their sum.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from observations import schema, store
from observations.costs import Vector, pair_rank
from observations.store import PairKey

PAIRS_NAMED: Final = 500
"""Pairs of charge source and price source that a scope and day names; the rest are ``other``."""


def add_to_pair(connection: Connection, scope_pk: int, day: int, *, names: tuple[str, str], vector: Vector) -> None:
    """Add to a pair of a day, and decide again which pairs are named."""
    key = PairKey(scope_pk, day, pair_rank(*names))
    row = store.find_pair(connection, key)
    if row is None:
        _insert_pair(connection, key, names=names, vector=vector)
        return
    store.add(connection, schema.pairs, key.columns, vector)
    if row.shown == schema.PAIR_HIDDEN:
        _add_to_other(connection, key, vector)
    if row.charges + vector.get("charges", 0) == 0:
        store.delete_pair(connection, key)
        if row.shown == schema.PAIR_NAMED:
            _name_next(connection, key)


def _insert_pair(connection: Connection, key: PairKey, *, names: tuple[str, str], vector: Vector) -> None:
    shown = schema.PAIR_NAMED
    if store.count_named(connection, key.scope_pk, key.day) >= PAIRS_NAMED:
        last = store.edge_pair(connection, key.scope_pk, key.day, shown=schema.PAIR_NAMED)
        if last is not None and key.pair_ix < last.pair_ix:
            store.show_pair(connection, store.key_of(last), shown=schema.PAIR_HIDDEN)
            _add_to_other(connection, key, store.vector_of(last))
        else:
            shown = schema.PAIR_HIDDEN
    store.insert_pair(connection, key, names=names, shown=shown, vector=vector)
    if shown == schema.PAIR_HIDDEN:
        _add_to_other(connection, key, vector)


def _name_next(connection: Connection, key: PairKey) -> None:
    first = store.edge_pair(connection, key.scope_pk, key.day, shown=schema.PAIR_HIDDEN)
    if first is not None:
        store.show_pair(connection, store.key_of(first), shown=schema.PAIR_NAMED)
        _add_to_other(connection, key, store.negated(store.vector_of(first)))


def _add_to_other(connection: Connection, key: PairKey, vector: Vector) -> None:
    other = PairKey(key.scope_pk, key.day, store.OTHER)
    row = store.find_pair(connection, other)
    if row is None:
        store.insert_pair(connection, other, names=("", ""), shown=schema.PAIR_OTHER, vector=vector)
        return
    store.add(connection, schema.pairs, other.columns, vector)
    if row.charges + vector.get("charges", 0) == 0:
        store.delete_pair(connection, other)
