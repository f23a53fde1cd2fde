"""Fixtures that more than one folder of tests uses. Databases: `tests/databases.py`. Servers: `tests/servers.py`."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from continuity.store.engine import make_engine
from continuity.store.store import Store
from continuity.vault import Keyring, ShredList, Vault, create_vault, open_vault
from tests import templates
from tests.databases import PostgreSQLServer, SQLiteTemplate
from tests.observing import taking
from tests.servers import fresh_instance, instance_template, running_server, shared_server

__all__ = ["fresh_instance", "instance_template", "running_server", "shared_server", "taking"]

POOL_SIZE = 16
MEMORY_BYTES = 4 * 2**30
"""What must be free in memory to put temporary files there; a whole run was seen to need a twentieth."""
BOTH = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgresql)]


def pytest_configure() -> None:
    """Put temporary files into memory where the machine has room: tests wait for no disk to sync.

    A killed process leaves the same there as on a disk. Another folder: ``TMPDIR``.
    """
    in_memory = Path("/dev/shm")
    if "TMPDIR" not in os.environ and in_memory.is_dir() and shutil.disk_usage(in_memory).free >= MEMORY_BYTES:
        # For this process and those that it starts.
        os.environ["TMPDIR"] = tempfile.tempdir = str(in_memory)
    templates.make()
    templates.share()


def pytest_unconfigure() -> None:
    templates.remove()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect thousands of tests without looking through them for garbage, then or later: they stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> SQLiteTemplate:
    return SQLiteTemplate(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQLServer]:
    server = PostgreSQLServer()
    yield server
    server.stop()


@pytest.fixture
def sqlite_database(sqlite_template: SQLiteTemplate, tmp_path: Path) -> str:
    """URL of a migrated SQLite database, for tests in which the database does not matter."""
    return sqlite_template.copy_to(tmp_path / "atmem.db")


@pytest.fixture(params=BOTH)
def database(request: pytest.FixtureRequest) -> str:
    """URL of a migrated database without content; the test runs once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_database")
    return request.getfixturevalue("postgresql_server").migrated()


@pytest.fixture(params=BOTH)
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database without tables, on SQLite not even a file; for tests of migrations."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'atmem.db'}"
        return
    server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
    name = server.create()
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def engine(database: str) -> Iterator[sa.Engine]:
    engine = make_engine(database, pool_size=POOL_SIZE)
    yield engine
    engine.dispose()


@pytest.fixture
def store(engine: sa.Engine) -> Iterator[Store]:
    """A store on `database`: migrated, empty, once on each database."""
    store = Store(engine)
    yield store
    store.close()


@pytest.fixture
def sqlite_store(sqlite_database: str) -> Iterator[Store]:
    """A store on SQLite alone."""
    engine = make_engine(sqlite_database, pool_size=POOL_SIZE)
    store = Store(engine)
    yield store
    store.close()
    engine.dispose()


@pytest.fixture
def postgresql_store(postgresql_server: PostgreSQLServer) -> Iterator[Store]:
    """A store on PostgreSQL alone."""
    engine = make_engine(postgresql_server.migrated(), pool_size=POOL_SIZE)
    yield Store(engine)
    engine.dispose()


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """An open vault with a key that every test knows; its row is not in the database."""
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    keyring = Keyring({1: bytes(range(32))}, primary_id=1)
    new = create_vault(keyring)
    shred_list = ShredList.create(folder / "vault.shred")
    return open_vault(
        keyring,
        canary=new.canary,
        wrapped_index_key=new.wrapped_index_key,
        shred_list=shred_list,
        recorded=shred_list.head,
    )
