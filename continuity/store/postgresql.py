"""PostgreSQL through psycopg 3 as the ledger needs it: durable commits, bounded waits, checked certificates.

Rules:

* ``synchronous_commit`` is on whatever the server's default: a reply may leave only after the commit is on disk.
* No statement, lock or forgotten transaction waits without end.
* To a server that is not this machine's: TLS, with the certificate checked against its name, unless the URL
  says otherwise with ``sslmode``.
* A connection whose other end is gone without a word is given up after half a minute.
* The driver never begins a transaction by itself: see `continuity.store.sqlite`, the same ``info[BEGIN]``.
* Where a connection has a pipeline (`continuity.store.pipeline`), what is queued there runs before whatever
  SQLAlchemy sends: the order is that of the calls. Statements are prepared there and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from continuity.store.compiled import PIPELINE
from continuity.store.sqlite import BEGIN

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine.interfaces import ConnectArgsType
    from sqlalchemy.pool import PoolProxiedConnection

CONNECT_TIMEOUT_S: Final = 5
_LIVENESS: Final = {
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000,
}  # fmt: skip
"""Of TCP; longer than ``statement_timeout`` lets anybody wait for an answer."""
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
        for name, value in _LIVENESS.items():
            options.setdefault(name, value)
        options["autocommit"] = True
        # psycopg deallocates *all* prepared statements when it sees DROP, ALTER or ROLLBACK and has some of its own.
        options["prepare_threshold"] = None
        if _is_remote(options.get("host")) and "sslmode" not in options:
            options["sslmode"] = "verify-full"
            options.setdefault("sslrootcert", "system")
        return positional, options

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        """Begin with the words in ``info[BEGIN]``; SQLAlchemy turns what the driver raises into its own errors."""
        statement = dbapi_connection.info.get(BEGIN, "BEGIN")
        if statement:
            dbapi_connection.execute(statement)

    def do_commit(self, dbapi_connection: PoolProxiedConnection) -> None:
        """Commit what is open, in a unit with what is queued."""
        info = dbapi_connection.info
        if info.get(BEGIN) != "" or PIPELINE not in info:
            super().do_commit(dbapi_connection)  # type: ignore[no-untyped-call]
        elif info[PIPELINE].is_open:
            info[PIPELINE].commit()

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any | None = None) -> None:
        """Run what is queued first."""
        _flush(context)
        super().do_execute(cursor, statement, parameters, context)  # type: ignore[no-untyped-call]

    def do_execute_no_params(self, cursor: Any, statement: str, context: Any | None = None) -> None:
        """Run what is queued first."""
        _flush(context)
        super().do_execute_no_params(cursor, statement, context)  # type: ignore[no-untyped-call]

    def do_executemany(self, cursor: Any, statement: str, parameters: Any, context: Any | None = None) -> None:
        """Run what is queued first."""
        _flush(context)
        super().do_executemany(cursor, statement, parameters, context)  # type: ignore[no-untyped-call]


def _flush(context: Any | None) -> None:
    pipeline = None if context is None else _info_of(context.root_connection.connection).get(PIPELINE)
    if pipeline is not None:
        pipeline.flush()


def _info_of(connection: PoolProxiedConnection) -> dict[str, Any]:
    try:
        return connection.info
    except NotImplementedError:
        # SQLAlchemy's own first look at a connection that is not in the pool yet.
        return {}
