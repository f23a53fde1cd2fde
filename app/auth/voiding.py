"""What a restore makes of people and credentials: nobody is signed in, no token counts, and passwords are chosen anew.

Rules:

* Sessions and half-made sign-ins are deleted and credentials revoked, beside the epoch that voids them anyway: the
  lists that people look at must say so too.
* Recovery codes are good once. Which of them were used since the copy nobody knows, so none of them counts; a second
  factor stays that of the copy, and whoever has it makes new ones.
* A password of before may be the very one that was changed since because somebody else knew it. It no longer signs
  in; an administrator gives a temporary one. The one who restores has just given his, or is given a temporary one.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth.accounts import FIRST_ADMINISTRATOR, Temporary
from app.auth.schema import challenges, credentials, recovery_codes, sessions, throttle, users
from continuity.errors import NotFoundError
from continuity.services.callers import Role

_LONG_AGO_US: Final = 1
_COLUMNS: Final = (users.c.user_pk, users.c.user_id, users.c.username, users.c.password_hash)
_ADMITTED: Final = sa.and_(users.c.role == Role.ADMINISTRATOR.value, users.c.disabled_at.is_(None))


def administrator(connection: Connection, username: str | None) -> sa.Row[Any]:
    """Return the account of whoever restores: of that name, else the first administrator.

    Raises:
        NotFoundError: There is no enabled administrator of that name, or none at all.
    """
    statement = sa.select(*_COLUMNS).where(_ADMITTED)
    if username is not None:
        row = connection.execute(statement.where(users.c.username == username)).one_or_none()
    else:
        is_first = sa.case((users.c.username == FIRST_ADMINISTRATOR, 0), else_=1)
        row = connection.execute(statement.order_by(is_first, users.c.user_pk).limit(1)).one_or_none()
    if row is None:
        named = "of that name " if username is not None else ""
        raise NotFoundError(f"There is no enabled administrator {named}in what is to be restored. Nothing was changed.")
    return row


def void(connection: Connection, *, user_pk: int, now_us: int, temporary: tuple[Temporary, str] | None) -> int:
    """End all sessions, credentials, recovery codes, and passwords but that of `user_pk`.

    Returns how many people must be given a password.

    Args:
        connection: The transaction of the restore.
        user_pk: Who restores.
        now_us: When.
        temporary: The temporary password that he is given, with its hash; None when he has given his own.
    """
    connection.execute(sa.delete(sessions))
    connection.execute(sa.delete(challenges))
    connection.execute(sa.delete(recovery_codes))
    connection.execute(sa.delete(throttle))
    connection.execute(sa.update(credentials).where(credentials.c.revoked_at.is_(None)).values(revoked_at=now_us))
    connection.execute(sa.update(users).values(stamp=users.c.stamp + 1))
    others = sa.and_(users.c.user_pk != user_pk, users.c.disabled_at.is_(None))
    connection.execute(sa.update(users).where(users.c.user_pk != user_pk).values(temporary_until=_LONG_AGO_US))
    if temporary is not None:
        made, password_hash = temporary
        connection.execute(
            sa.update(users)
            .where(users.c.user_pk == user_pk)
            .values(password_hash=password_hash, temporary_until=made.valid_until_us)
        )
    return connection.execute(sa.select(sa.func.count()).select_from(users).where(others)).scalar_one()
