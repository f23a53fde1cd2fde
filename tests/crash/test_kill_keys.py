"""`atmem vault lock`, `unlock` and `rotate`, killed wherever they are: no row needs a key that exists nowhere.

Every run of the tests takes a few steps of each command, the first and the last among them; a soak lies closer.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from app import wiring
from app.config import load_settings
from continuity.vault import FileKeyProvider
from continuity.wire import CreateWorkflow
from tests.crash.commanding import Commands, operator, points, spread
from tests.crash.forks import Forks
from tests.servers import initialised

PASSPHRASE = "correct horse battery staple"
WORK = 3


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    forks = Forks("tests.crash.making")
    yield forks
    forks.close()


def filled(folder, extra=None):
    """Make an instance with work in it, and a file with its passphrase beside it."""
    initialised(folder, extra)
    fill(load_settings({"ATMEM_INSTANCE": str(folder), **(extra or {})}))
    passphrase_file(folder).write_text(f"{PASSPHRASE}\n")
    return folder


def fill(settings):
    with wiring.built(settings) as built:
        for number in range(WORK):
            work = {"workflow_key": f"work-{number}", "operations": [{"name": "publish", "tool": "t"}]}
            built.services.workflows.create(operator(), CreateWorkflow.from_json(work))


def passphrase_file(folder):
    return folder.parent / "passphrase"


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("keys") / "instance")


@pytest.fixture(scope="module")
def locked(instance, forks, tmp_path_factory):
    folder = shutil.copytree(instance, tmp_path_factory.mktemp("locked") / "instance")
    shutil.copy(passphrase_file(instance), passphrase_file(folder))
    assert Commands(forks, folder).run("vault", "lock", *given(folder))[0] == 0
    return folder


def given(folder):
    return "--passphrase-file", str(passphrase_file(folder))


def secrets_in(folder):
    """The master keys of a plain file, as they stand there."""
    return re.findall(rb"[A-Za-z0-9+/]{43}=", (folder / "vault.key").read_bytes())


def leaks(commands, secrets):
    """The files of an instance that hold one of these keys."""
    files = [path for path in commands.folder.iterdir() if path.is_file()]
    return [path.name for path in files if any(secret in path.read_bytes() for secret in secrets)]


def copied(forks, template, folder):
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(passphrase_file(template), passphrase_file(folder))
    return Commands(forks, shutil.copytree(template, folder))


def readable(commands):
    """Say what of the instance does not open; everything must."""
    status, said = commands.run("vault", "check", "--json")
    found = json.loads(said)
    assert found["data_keys"] >= WORK, said
    return status, found["findings"], found["contradictions"], commands.problems()


SOUND = (0, [], [], [])


def tried(forks, template, folder, *arguments, most):
    """Kill a command at so many of its steps, each on a fresh copy; give the copies and where it died."""
    steps = copied(forks, template, folder / "whole" / "i").count(*arguments)
    for at in points(steps, most=most):
        commands = copied(forks, template, folder / str(at) / "i")
        assert commands.run(*arguments, last=at)[0] == -9
        yield at, commands


@spread(6, 14)
def test_a_rotation_that_was_killed_is_finished_by_the_next_one(forks, instance, tmp_path, most):
    for at, commands in tried(forks, instance, tmp_path, "vault", "rotate", most=most):
        # As it lies there every row opens, before anybody goes on.
        assert readable(commands) == SOUND, at

        status, said = commands.run("vault", "rotate", "--json")

        found = json.loads(said)
        assert (status, found["state"], found["unreadable"]) == (0, "done", 0), (at, said)
        keys = FileKeyProvider(commands.settings.vault_key_file).load()
        assert keys.key_ids == {found["new_key_id"]}, at
        assert readable(commands) == SOUND, at
        assert not list(commands.folder.glob("*.new")), at


@spread(6, 10)
def test_a_lock_that_was_killed_is_finished_by_the_next_one(forks, instance, tmp_path, most):
    lock = ("vault", "lock", *given(instance))
    for at, commands in tried(forks, instance, tmp_path, *lock, most=most):
        settings = commands.settings
        assert settings.vault_key_file.exists() or settings.locked_key_file.exists(), at

        status, said = commands.run(*lock)

        assert (status, "The vault is locked." in said) == (0, True), (at, said)
        assert not settings.vault_key_file.exists(), at
        assert leaks(commands, secrets_in(instance)) == [], at
        assert commands.run("vault", "unlock", *given(instance))[0] == 0, at
        assert readable(commands) == SOUND, at


@spread(6, 10)
def test_an_unlock_that_was_killed_is_finished_by_the_next_one(forks, instance, locked, tmp_path, most):
    unlock = ("vault", "unlock", *given(locked))
    for at, commands in tried(forks, locked, tmp_path, *unlock, most=most):
        settings = commands.settings
        assert settings.vault_key_file.exists() or settings.locked_key_file.exists(), at

        status, said = commands.run(*unlock)

        assert (status, "The vault is open." in said) == (0, True), (at, said)
        assert readable(commands) == SOUND, at
        # And it can be locked again, under what is left of the first time or not.
        assert commands.run("vault", "lock", *given(locked))[0] == 0, at
        assert leaks(commands, secrets_in(instance)) == [], at


@spread(4, 8)
def test_a_rotation_that_was_killed_leaves_no_key_in_the_clear_when_the_vault_is_locked_then(
    forks, instance, tmp_path, most
):
    for at, commands in tried(forks, instance, tmp_path, "vault", "rotate", most=most):
        keys = commands.settings.vault_key_file
        secrets = [*secrets_in(commands.folder), *secrets_in(instance)]
        partial = keys.with_name("vault.key.new")
        if partial.exists():
            secrets += re.findall(rb"[A-Za-z0-9+/]{43}=", partial.read_bytes())

        assert commands.run("vault", "lock", *given(instance))[0] == 0, at

        assert leaks(commands, secrets) == [], at
        assert commands.run("vault", "unlock", *given(instance))[0] == 0, at
        assert commands.run("vault", "rotate")[0] == 0, at
        assert readable(commands) == SOUND, at


@pytest.mark.postgresql
def test_a_rotation_on_postgresql_that_was_killed_again_and_again_is_finished_in_the_end(
    forks, postgresql_server, tmp_path
):
    extra = {"ATMEM_DATABASE_URL": postgresql_server.url(postgresql_server.create())}
    folder = filled(tmp_path / "instance", extra)
    commands = Commands(forks, folder, extra)

    # Each on what the one before it has left.
    statuses = [commands.run("vault", "rotate", last=at)[0] for at in (30, 36, 42, 48, 54, 60)]
    assert readable(commands) == SOUND
    status, said = commands.run("vault", "rotate", "--json")

    assert -9 in statuses
    assert (status, json.loads(said)["state"]) == (0, "done")
    assert readable(commands) == SOUND
