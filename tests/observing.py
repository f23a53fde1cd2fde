"""What tests of observations share: events, an ingest and queries on a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from observations import schema
from observations.answers import Range
from observations.cursors import Cursors
from observations.events import FORMAT, Event, parse_event
from observations.ingest import Ingest
from observations.queries import Queries

NOW_US = 1_750_000_000_000_000
WHOLE = Range(("local", "demo", "other"), 0, 3_000)
LEAST = {
    "event_id": "ev_1", "workflow_id": "wf_1", "operation_id": "op_1", "run_id": "run_1", "attempt_id": "at_1",
    "event": "execute", "time": 1_000,
}  # fmt: skip
_numbers = iter(range(10**9))


def event(**over: Any) -> Event:
    """An event of today's least, with an id of its own unless it is given one."""
    return parse_event({"format": FORMAT, **LEAST, "event_id": f"ev_{next(_numbers)}", **over})


def charge(charge_id: str = "c1", **over: Any) -> Event:
    return event(**{"event": "usage", "charge_id": charge_id, "charge_source": "account", **over})


def priced(cost: int, charge_id: str = "c1", **over: Any) -> Event:
    return charge(charge_id, **{"cost_microusd": cost, "price_source": "list-1", **over})


def taking_on(store: Any) -> Ingest:
    return Ingest(store, now_us=lambda: NOW_US, pause_s=0)


def queries_on(store: Any, *, now_us: int = NOW_US) -> Queries:
    return Queries(store, Cursors(bytes(32)), lambda: now_us)


def emptied(store: Any) -> None:
    """Delete everything that was observed."""

    def work(connection: sa.Connection) -> None:
        for table in schema.metadata.sorted_tables:
            connection.execute(sa.delete(table))

    store.write(work)


@pytest.fixture
def taking(store: Any) -> Iterator[Ingest]:
    """An ingest on `store`, once on each database."""
    return taking_on(store)
