"""What somebody does to a database who may do everything in it and has no key."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from continuity.store.store import Store


def past_triggers(store: Store, work: Callable[[sa.Connection], object]) -> None:
    """Run `work` in one transaction in which no trigger refuses anything."""

    def unwatched(connection: sa.Connection) -> None:
        if store.is_postgresql:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        else:
            triggers = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars()
            for trigger in triggers.all():
                connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        work(connection)

    store.write(unwatched)


def tamper(store: Store, *statements: str) -> None:
    """Run statements past the triggers."""
    past_triggers(store, lambda connection: [connection.exec_driver_sql(statement) for statement in statements])


def blob(store: Store, value: bytes) -> str:
    """Write bytes as a literal."""
    return f"'\\x{value.hex()}'::bytea" if store.is_postgresql else f"X'{value.hex()}'"
