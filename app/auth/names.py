"""Who stands behind an actor of a history: the username or the principal's name, for people who read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import workspaces
from app.auth.schema import credentials, users
from continuity.services.owners import Owners
from continuity.store.schema import vault
from continuity.store.store import Store

_SYSTEM: Final = {"system": "the server itself", "cli": "the command line on the server"}


class Names:
    """Looks up names. An actor that is not known keeps its own spelling."""

    def __init__(self, store: Store, owners: Owners) -> None:
        self._store = store
        self._owners = owners

    def of(self, actors: Iterable[str]) -> dict[str, str]:
        """Return a name for every actor (``user:…``, ``cred:…``).

        Raises:
            SealedError: The vault is locked and one of them is a principal.
        """
        wanted = set(actors)
        names = {actor: _SYSTEM.get(actor, actor) for actor in wanted}
        people = _ids(wanted, "user")
        tokens = _ids(wanted, "cred")
        if people:
            rows = self._store.autocommit(lambda connection: connection.execute(
                sa.select(users.c.user_id, users.c.username).where(users.c.user_id.in_(people))
            ).all())  # fmt: skip
            names.update({f"user:{row.user_id}": row.username for row in rows})
        if tokens:
            epoch, rows = self._store.read(lambda connection: _principals(connection, tokens))
            names.update({f"cred:{key}": self._owners.name(owner_pk, epoch=epoch) for key, owner_pk in rows})
        return names

    def user_id(self, username: str) -> str | None:
        """Return the id of an account by its name, spelled as it is stored; None when there is none."""
        found: str | None = self._store.autocommit(lambda connection: connection.execute(
            sa.select(users.c.user_id).where(users.c.username == username)
        ).scalar_one_or_none())  # fmt: skip
        return found

    def workspaces(self, seen: frozenset[int] | None) -> dict[int, str]:
        """Return the names of the workspaces that somebody may see (None: all), by number."""
        names = self._store.autocommit(workspaces.names)
        return {number: name for number, name in names.items() if seen is None or number in seen}


def _ids(actors: Iterable[str], kind: str) -> list[str]:
    return sorted(actor.partition(":")[2] for actor in actors if actor.startswith(f"{kind}:"))


def _principals(connection: Connection, ids: list[str]) -> tuple[int, list[tuple[str, int]]]:
    epoch = connection.execute(sa.select(vault.c.epoch)).scalar_one()
    statement = sa.select(credentials.c.credential_id, credentials.c.owner_pk)
    rows = connection.execute(statement.where(credentials.c.credential_id.in_(ids)))
    return epoch, [(row.credential_id, row.owner_pk) for row in rows]
