"""`atmem init`: what it makes, and that it can be asked again."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest
from click.testing import CliRunner

from app.cli import main
from tests.entry import OVERRIDES
from tests.servers import ROOT, environment

FILES = {"continuity.db", "secret.key", "shred.list", "vault.key"}


@pytest.fixture
def instance(tmp_path, monkeypatch):
    """The folder of an instance that is not there yet."""
    for name in [name for name in os.environ if name.startswith("ATMEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ATMEM_INSTANCE", str(tmp_path / "instance"))
    before = os.umask(0o022)
    yield tmp_path / "instance"
    os.umask(before)


def run(*arguments: str):
    return CliRunner().invoke(main, arguments, obj=OVERRIDES)


def test_init_makes_an_instance_with_an_administrator(instance):
    result = run("init", "--json")

    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed["url"] == "http://127.0.0.1:8768"
    assert printed["bootstrap"]["username"] == "administrator"
    assert len(printed["bootstrap"]["password"]) >= 16
    assert printed["bootstrap"]["password_change_required"] is True
    assert {path.name for path in instance.iterdir()} == FILES


def test_init_for_a_person_says_where_to_go_and_that_the_password_is_shown_once(instance):
    result = run("init")

    assert "http://127.0.0.1:8768" in result.stdout
    assert "administrator" in result.stdout
    assert "shown once" in result.stdout
    assert "atmem serve" in result.stdout
    assert "atmem users change-password administrator" in result.stdout


def test_init_says_of_an_address_that_another_server_has_that_it_is_none_of_ours(instance, monkeypatch):
    monkeypatch.setattr("app.overview.answers", lambda url: url == "http://127.0.0.1:8768")

    told = run("init").stdout
    assert "another server answers at http://127.0.0.1:8768" in told
    # What is to be typed next is what will work.
    assert "Next        atmem serve --port PORT, and" in told


def test_init_again_names_the_address_at_which_the_instance_was_served(instance):
    run("init")
    (instance / "address.json").write_text('{"url": "http://127.0.0.1:9123"}')
    (instance / "address.json").chmod(0o600)

    assert "Dashboard   http://127.0.0.1:9123 " in run("init").stdout


def test_what_init_makes_is_private_whatever_the_umask_was(instance):
    os.umask(0o000)

    run("init")

    assert stat.S_IMODE(instance.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in instance.iterdir()} == dict.fromkeys(FILES, 0o600)


def test_init_again_keeps_everything_and_shows_no_password(instance):
    first = run("init", "--json")
    before = {name: (instance / name).read_bytes() for name in FILES - {"continuity.db"}}

    second = run("init", "--json")
    told = run("init").stdout

    assert "nothing was changed" in told
    assert "password" not in told.lower()
    assert second.exit_code == 0
    assert json.loads(second.stdout)["bootstrap"] is None
    assert json.loads(first.stdout)["bootstrap"]["password"] not in second.output
    assert {name: (instance / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("missing", [{"continuity.db", "shred.list"}, {"secret.key"}])
def test_init_finishes_what_an_interrupted_one_began(instance, missing):
    run("init")
    for name in missing:
        (instance / name).unlink()

    assert run("init").exit_code == 0

    assert {path.name for path in instance.iterdir()} == FILES
    assert run("status").exit_code == 0


@pytest.mark.parametrize("name", ["secret.key", "vault.key", "shred.list", "continuity.db"])
def test_init_fills_a_file_that_a_killed_one_made_and_did_not_fill(instance, name):
    instance.mkdir(mode=0o700)
    (instance / name).touch(mode=0o600)

    assert run("init").exit_code == 0

    assert {path.name for path in instance.iterdir()} == FILES
    assert run("status").exit_code == 0


@pytest.mark.parametrize("name", ["vault.key", "shred.list"])
def test_init_fills_no_empty_file_of_a_vault_that_exists(instance, name):
    run("init")
    (instance / name).write_bytes(b"")

    assert run("init").exit_code == 1

    assert (instance / name).read_bytes() == b""


def test_a_file_that_goes_while_the_folder_is_looked_at_stops_nothing(instance, monkeypatch):
    run("init")
    listed = [*instance.glob("*.db*"), instance / "continuity.db-wal"]
    monkeypatch.setattr(type(instance), "glob", lambda _folder, _pattern: listed)

    assert run("users", "list").exit_code == 0


@pytest.mark.parametrize("missing", ["vault.key", "shred.list"])
def test_init_makes_no_new_key_or_list_for_a_vault_that_exists(instance, missing):
    run("init")
    (instance / missing).unlink()

    result = run("init")

    assert result.exit_code == 1
    assert not (instance / missing).exists()
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


def test_a_key_of_another_vault_is_refused(instance, tmp_path, monkeypatch):
    run("init")
    monkeypatch.setenv("ATMEM_INSTANCE", str(tmp_path / "other"))
    run("init")
    (tmp_path / "other" / "vault.key").replace(instance / "vault.key")
    monkeypatch.setenv("ATMEM_INSTANCE", str(instance))

    result = run("init")

    assert result.exit_code == 1
    assert "key" in result.stderr


LOOSE = [("", 0o750), ("", 0o701), ("continuity.db", 0o640), ("vault.key", 0o604), ("secret.key", 0o660)]


@pytest.mark.parametrize(("name", "mode"), LOOSE)
@pytest.mark.parametrize("command", ["init", "status", "serve"])
def test_an_instance_that_others_can_look_into_is_refused(instance, command, name, mode):
    run("init")
    (instance / name).chmod(mode)

    result = run(command)

    assert result.exit_code == 1
    assert str(instance) in result.output
    assert result.stderr.count("\n") <= 1 or command == "status"


def test_an_instance_folder_that_is_a_symbolic_link_is_refused(instance, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    instance.symlink_to(tmp_path / "elsewhere")

    assert run("init").exit_code == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("secret", [b"", b"changeme", b"a" * 64])
def test_a_secret_key_that_is_none_stops_the_start(instance, secret):
    run("init")
    (instance / "secret.key").write_bytes(secret)

    result = run("serve")

    assert result.exit_code == 1
    assert "secret.key" in result.stderr


def test_a_key_in_the_environment_leaves_no_key_on_disk(instance, tmp_path, monkeypatch):
    monkeypatch.setenv("ATMEM_VAULT_KEY", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    monkeypatch.setenv("ATMEM_SHRED_LIST", str(tmp_path / "shred.list"))

    assert run("init").exit_code == 0

    assert {path.name for path in instance.iterdir()} == {"continuity.db", "secret.key"}
    assert "ATMEM_VAULT_KEY" not in os.environ


def test_a_wrong_setting_stops_every_command_with_one_line_that_names_it(instance, monkeypatch):
    monkeypatch.setenv("ATMEM_TRUSTED_PROXIES", "everybody")

    for command in (["init"], ["serve"], ["status"], ["db", "check"]):
        result = run(*command)

        assert result.exit_code == 2
        assert result.stderr.startswith("Error: ATMEM_TRUSTED_PROXIES: ")
        assert result.stderr.count("\n") == 1
    assert not instance.exists()


def test_the_console_script_and_flask_have_the_same_commands(tmp_path):
    def listed(*command: str) -> set[str]:
        shown = subprocess.run(
            [sys.executable, "-m", *command, "--help"], cwd=ROOT, env=environment(tmp_path / "instance"),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines = shown.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
        return {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}

    own = listed("app.cli")

    assert {"init", "serve", "status", "db", "users"} <= own
    assert own | {"routes", "run", "shell"} == listed("flask", "--app", "app")
