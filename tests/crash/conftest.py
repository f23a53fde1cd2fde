"""Fixtures of the crash tests: one parent that forks, one server on each database for a worker of the run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.clocked import follow_clock
from tests.crash.forks import Forks
from tests.crash.stage import Stage, staged
from tests.databases import PostgreSQLServer
from tests.servers import Instance, initialised


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def sqlite_stage(
    forks: Forks, instance_template: Instance, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("sqlite-stage")
    with staged(forks, instance_template.copy_to(folder / "instance"), clock_file=folder / "clock") as stage:
        yield stage


@pytest.fixture(scope="session")
def postgresql_stage(
    forks: Forks, postgresql_server: PostgreSQLServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Four server processes on one database, whose clock is the tests' as well."""
    folder = tmp_path_factory.mktemp("postgresql-stage")
    url = postgresql_server.url(postgresql_server.create())
    extra = {"ATMEM_DATABASE_URL": url}
    # Where the database's own user can read it.
    with tempfile.TemporaryDirectory() as public:
        Path(public).chmod(0o755)
        clock_file = Path(public) / "clock"
        instance = initialised(folder / "instance", extra)
        follow_clock(url, clock_file)
        with staged(forks, instance, clock_file=clock_file, extra=extra, options=["--workers", "4"]) as stage:
            yield stage


BOTH = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgresql)]


@pytest.fixture(params=BOTH)
def stage(request: pytest.FixtureRequest) -> Stage:
    """A running server; the test runs once on each database."""
    return request.getfixturevalue(f"{request.param}_stage")
