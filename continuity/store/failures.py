"""Which database errors mean "storage cannot answer now", which mean "try again", and which are ours.

Rules:

* Full disk, failed read or write, read-only file, damaged file, lost connection, full pool, a lock waited for
  too long: `UnavailableError`, whatever the driver called it. SQLite reports a full disk as an I/O error too.
* A violated constraint stays `sqlalchemy.exc.IntegrityError`: only the service knows what it means.
* A statement that the database does not understand, or a value of the wrong type, is a programmer's mistake
  and passes unchanged.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import exc

from continuity.errors import UnavailableError

_SQLITE_BUSY: Final = 5
_SQLITE_LOCKED: Final = 6
_SQLITE_ERROR: Final = 1
"""Primary code of a statement that is wrong: no such table, syntax."""
_RETRY_STATES: Final = frozenset({"40001", "40P01"})
"""PostgreSQL: serialisation failure and deadlock; the transaction did nothing and may be run again."""

_WAITED_STATES: Final = frozenset({"55P03", "40001", "40P01"})
"""PostgreSQL: a lock that others held for too long, and conflicts without end. Nothing has happened."""


def _driver_error(error: BaseException) -> BaseException:
    original = error.orig if isinstance(error, exc.DBAPIError) else None
    return original if original is not None else error


def _sqlite_code(error: BaseException) -> int | None:
    code = getattr(_driver_error(error), "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Say whether SQLite refused because another connection holds the lock."""
    return _sqlite_code(error) in {_SQLITE_BUSY, _SQLITE_LOCKED}


def sqlstate(error: BaseException) -> str | None:
    """Return PostgreSQL's code of an error, if it has one."""
    code: str | None = getattr(_driver_error(error), "sqlstate", None)
    return code


def is_conflict(error: BaseException) -> bool:
    """Say whether PostgreSQL undid the transaction only because of others, so that it may be run again."""
    return sqlstate(error) in _RETRY_STATES


def is_ours(error: BaseException) -> bool:
    """Say whether the error tells of a constraint or of a mistake in a statement, not of the storage."""
    if isinstance(error, (exc.IntegrityError, exc.ProgrammingError, exc.DataError, exc.NotSupportedError)):
        return True
    return _sqlite_code(error) == _SQLITE_ERROR


def unavailable(error: BaseException) -> UnavailableError:
    """Make the error that callers see. Its message never holds text of the database's own error."""
    if isinstance(error, exc.TimeoutError):
        return UnavailableError("All database connections are in use.")
    if is_busy(error) or sqlstate(error) in _WAITED_STATES:
        return UnavailableError("The database is busy with another writer.")
    return UnavailableError("The database cannot answer now.", retry_after_s=5)


def undone() -> UnavailableError:
    """Make the error of a unit whose connection was lost, again and again, before anything took effect."""
    return UnavailableError("The database cannot answer now. Nothing has happened.", retry_after_s=5)
