"""PostgreSQL through psycopg 3 as the ledger needs it: durable commits, bounded waits, checked certificates.

Rules:

* ``synchronous_commit`` is on whatever the server's default: a reply may leave only after the commit is on disk.
* No statement, lock or forgotten transaction waits without end.
* To a server that is not this machine's: TLS, with the certificate checked against its name, unless the URL
  says otherwise with ``sslmode``.
* The driver never begins a transaction by itself: see `continuity.store.sqlite`, the same ``info[BEGIN]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from continuity.store.sqlite import BEGIN

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine.interfaces import ConnectArgsType
    from sqlalchemy.pool import PoolProxiedConnection

CONNECT_TIMEOUT_S: Final = 5
_SETTINGS: Final = {
    "synchronous_commit": "on",
    "statement_timeout": "15s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def _is_remote(host: str | None) -> bool:
    # libpq takes a host that begins with a slash (or @) for the folder of a Unix socket.
    return bool(host) and not str(host).startswith(("/", "@")) and host not in _LOOPBACK


class Dialect(PGDialect_psycopg):
    """psycopg with the rules at the head of this file. Registered as ``postgresql+continuity``."""

    supports_statement_cache = True

    def __init__(self, **options: Any) -> None:
        """Take SQLAlchemy's own options; hstore, which costs a query a connection, is not used."""
        super().__init__(use_native_hstore=False, **options)  # type: ignore[no-untyped-call]

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """Add the settings above to what `url` says; what the URL says itself wins."""
        positional, options = super().create_connect_args(url)  # type: ignore[no-untyped-call]
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        options["options"] = f"{settings} {options.get('options', '')}".rstrip()
        options.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
        options.setdefault("application_name", "atmem")
        options["autocommit"] = True
        if _is_remote(options.get("host")) and "sslmode" not in options:
            options["sslmode"] = "verify-full"
            options.setdefault("sslrootcert", "system")
        return positional, options

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        """Begin with the words in ``info[BEGIN]``; SQLAlchemy turns what the driver raises into its own errors."""
        statement = dbapi_connection.info.get(BEGIN, "BEGIN")
        if statement:
            dbapi_connection.execute(statement)
