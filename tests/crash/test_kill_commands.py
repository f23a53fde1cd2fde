"""`atmem init` and `atmem db upgrade`, killed wherever they are: run again they end where one run would have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from alembic import command

from app import databases, migrating, wiring
from app.config import load_settings
from continuity.services.callers import CallerKind
from continuity.wire import CreateWorkflow
from tests.crash.commanding import Commands, operator, points
from tests.crash.forks import Forks
from tests.servers import initialised

BEFORE_PROOFS = "0004"
ONE = {"workflow_key": "one", "operations": [{"name": "publish", "tool": "publisher"}], "activate": True}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    forks = Forks("tests.crash.making")
    yield forks
    forks.close()


def killed_and_run_again(commands, *arguments, at):
    status, _ = commands.run(*arguments, last=at)
    assert status == -9
    return commands.run(*arguments)


def test_an_instance_whose_making_was_killed_is_made_by_the_next_try(forks, tmp_path):
    steps = Commands(forks, tmp_path / "whole").count("init")

    for at in points(steps):
        commands = Commands(forks, tmp_path / f"killed-{at}")
        status, said = killed_and_run_again(commands, "init", at=at)

        assert status == 0, (at, said)
        # Whoever was killed after the account was made has lost its password: there is a command for that.
        assert "Password" in said or "already" in said, (at, said)
        assert commands.problems() == [], at
        assert commands.run("users", "list")[1].count("administrator") >= 1
        assert not list(commands.folder.glob("*.tmp")), at


@pytest.mark.postgresql
def test_an_instance_on_postgresql_whose_making_was_killed_is_made_by_the_next_try(forks, postgresql_server, tmp_path):
    def on_new(name):
        url = postgresql_server.url(postgresql_server.create())
        return Commands(forks, tmp_path / name, {"ATMEM_DATABASE_URL": url})

    steps = on_new("whole").count("init")

    for at in points(steps, most=4)[1:]:
        commands = on_new(f"killed-{at}")
        status, said = killed_and_run_again(commands, "init", at=at)

        assert status == 0, (at, said)
        assert commands.problems() == [], at


def older(folder, extra=None):
    """Make an instance with a coordinator's work in it, and take its database back before the rows were proved."""
    initialised(folder, extra)
    settings = load_settings({"ATMEM_INSTANCE": str(folder), **(extra or {})})
    with wiring.built(settings) as built:
        owner_pk = built.store.write(
            lambda c: wiring.Owners(built.store, built.vault).ensure(
                c, "agent", kind=CallerKind.COORDINATOR, workspace_pk=1
            )
        )
        caller = operator(kind=CallerKind.COORDINATOR, owner_pk=owner_pk, principal="agent")
        built.services.workflows.create(caller, CreateWorkflow.from_json(ONE))
    engine = databases.open_engine(settings)
    config = migrating.configuration()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, BEFORE_PROOFS)
    engine.dispose()
    return settings


def upgraded(commands):
    """Say what is wrong after an upgrade that was killed and run again."""
    engine = databases.open_engine(commands.settings)
    assert migrating.current(engine) == migrating.head()
    engine.dispose()
    assert commands.run("db", "upgrade")[1].strip() == "Nothing to do."
    return commands.problems()


def test_an_upgrade_that_was_killed_is_finished_by_the_next_try(forks, tmp_path):
    older(tmp_path / "older")
    whole = shutil.copytree(tmp_path / "older", tmp_path / "whole")
    steps = Commands(forks, whole).count("db", "upgrade")

    for at in points(steps):
        commands = Commands(forks, shutil.copytree(tmp_path / "older", tmp_path / f"killed-{at}"))
        status, said = killed_and_run_again(commands, "db", "upgrade", at=at)

        assert status == 0, (at, said)
        assert upgraded(commands) == [], at
        assert list(commands.folder.glob("continuity.db.before-*.*")) == [], at
        # The copy from before the first step is whole, whenever it was made.
        copy = commands.folder / "continuity.db.before-0005"
        engine = sa.create_engine(f"sqlite:///{copy}")
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
            assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == BEFORE_PROOFS
        engine.dispose()


@pytest.mark.postgresql
def test_an_upgrade_on_postgresql_that_was_killed_is_finished_by_the_next_try(forks, postgresql_server, tmp_path):
    extra = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    older(tmp_path / "instance", extra)
    commands = Commands(forks, tmp_path / "instance", extra)

    # Each on what the one before it has left.
    statuses = [commands.run("db", "upgrade", last=at)[0] for at in (8, 14, 20, 26)]
    status, _ = commands.run("db", "upgrade")

    assert statuses[0] == -9
    assert status == 0
    assert upgraded(commands) == []


def test_an_upgrade_without_the_vaults_key_changes_nothing(forks, tmp_path):
    settings = older(tmp_path / "instance")
    key = settings.vault_key_file
    hidden = key.rename(key.with_suffix(".hidden"))
    commands = Commands(forks, tmp_path / "instance")

    status, said = commands.run("db", "upgrade")
    engine = databases.open_engine(settings)
    revision = migrating.current(engine)
    engine.dispose()
    hidden.rename(key)

    assert (status, said.startswith("Error: "), revision) == (1, True, BEFORE_PROOFS)
    assert commands.run("db", "upgrade")[0] == 0
    assert upgraded(commands) == []
