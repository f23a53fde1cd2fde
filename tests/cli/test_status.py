"""`atmem status` and `atmem db`: where an instance stands."""

from __future__ import annotations

import json
import sqlite3

import pytest
from click.testing import CliRunner

from app.cli import main
from app.cli.terminal import plain, settings
from tests.servers import Instance, start, stop


@pytest.fixture
def run(fresh_instance, monkeypatch):
    monkeypatch.setenv("ATMEM_INSTANCE", str(fresh_instance.folder))
    return lambda *arguments: CliRunner().invoke(main, arguments)


def test_status_says_what_an_operator_asks_first(run):
    shown = json.loads(run("status", "--json").stdout)

    assert shown["url"] == shown["atflows_url"] == "http://127.0.0.1:8768"
    assert shown["is_running"] is False
    assert shown["version"]
    assert shown["database"]["kind"] == "sqlite"
    assert shown["database"]["journal_mode"] in {"wal", "truncate"}
    assert shown["database"]["synchronous"] == "full"
    assert shown["vault"]["format"] == 2
    assert shown["vault"]["capture_mode"] == "full"
    assert shown["vault"]["locked"] is False
    assert shown["needs_a_person"] == {"review": 0, "decision": 0}
    assert shown["problems"] == []


def test_status_for_a_person_is_text(run):
    result = run("status")

    assert result.exit_code == 0
    assert "Dashboard  http://127.0.0.1:8768   (not running)" in result.stdout
    assert "Nothing needs a person." in result.stdout


def test_a_locked_vault_needs_a_person_and_a_rotation_of_it_says_so_and_not_that_its_key_is_lost(run, tmp_path):
    given = tmp_path / "passphrase"
    given.write_text("harbour lantern mosaic\n")
    assert run("vault", "lock", "--passphrase-file", str(given)).exit_code == 0

    told, rotation = run("status").stdout, run("vault", "rotate")

    assert "The vault is locked, and all work stands still until: atmem vault unlock" in told
    assert "Nothing needs a person" not in told
    assert rotation.exit_code == 1
    assert "The vault is locked. Nothing was changed. Unlock it first: atmem vault unlock" in rotation.stderr
    assert "vault.key" not in rotation.stderr


def test_status_finds_the_server_that_runs_and_forgets_one_that_has_stopped(run, fresh_instance):
    server = start(fresh_instance)
    try:
        running = json.loads(run("status", "--json").stdout)
        assert server.terminate() == 0
        stopped = json.loads(run("status", "--json").stdout)
    finally:
        stop(server)

    assert (running["url"], running["is_running"]) == (server.url, True)
    assert (stopped["url"], stopped["is_running"]) == ("http://127.0.0.1:8768", False)


def test_status_tells_what_would_stop_a_start(run, fresh_instance):
    (fresh_instance.folder / "vault.key").unlink()

    result = run("status", "--json")

    assert result.exit_code == 1
    assert "vault.key" in json.loads(result.stdout)["problems"][0]
    assert json.loads(result.stdout)["vault"]["opens"] is False
    told = run("status").stdout
    assert "cannot be opened, key 1 from file" in told
    assert "open, key" not in told
    assert "Nothing needs a person" not in told


def test_a_database_that_cannot_be_opened_is_named_with_the_reason(run, monkeypatch, tmp_path):
    monkeypatch.setenv("ATMEM_DATABASE_URL", f"sqlite:///{tmp_path}/nowhere/continuity.db")

    result = run("status")

    assert result.exit_code == 1
    assert f"{tmp_path}/nowhere/continuity.db" in result.stderr
    assert "OperationalError" not in result.stderr
    assert "unable to open" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("status",), ("serve",), ("users", "list"), ("db", "upgrade")])
def test_a_damaged_database_is_named_by_its_path_with_what_to_do(run, fresh_instance, command):
    (fresh_instance.folder / "continuity.db").write_bytes(b"no database at all" * 500)

    result = run(*command)

    assert result.exit_code == 1
    assert f"The database {fresh_instance.folder}/continuity.db cannot be opened" in result.stderr
    assert "Restore it from the backup" in result.stderr
    assert "sqlite+" not in result.stderr


@pytest.mark.parametrize("command", [("serve",), ("users", "list")])
def test_a_missing_key_says_what_to_restore(run, fresh_instance, command):
    (fresh_instance.folder / "vault.key").unlink()

    result = run(*command)

    assert result.exit_code == 1
    assert "vault.key cannot be opened" in result.stderr
    assert "Restore it from its backup" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("variable", ["ATMEM_VAULT_KEY_FILE", "ATMEM_SHRED_LIST"])
def test_a_file_that_a_variable_names_and_that_is_not_there_is_named_with_the_variable(run, monkeypatch, variable):
    monkeypatch.setenv(variable, "/nope")
    if variable == "ATMEM_VAULT_KEY_FILE":
        monkeypatch.setenv("ATMEM_SHRED_LIST", f"{settings().instance}/shred.list")

    refused = run("users", "list")
    shown = run("status")

    for said in (refused.stderr, shown.stderr):
        assert f"{variable}: /nope cannot be " in said


def test_a_password_in_the_address_of_a_database_is_not_repeated(run, monkeypatch):
    monkeypatch.setenv("ATMEM_DATABASE_URL", "postgresql://atmem:hunter2@127.0.0.1:1/atmem")

    result = run("status")

    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr
    assert "ATMEM_DATABASE_URL: " in result.stderr
    assert "hunter2" not in result.output


@pytest.mark.parametrize("command", [("status",), ("serve",), ("db", "check"), ("db", "upgrade"), ("users", "list")])
def test_without_an_instance_commands_say_what_to_do(tmp_path, monkeypatch, command):
    monkeypatch.setenv("ATMEM_INSTANCE", str(tmp_path / "nowhere"))

    result = CliRunner().invoke(main, command)

    assert result.exit_code == 1
    assert "atmem init" in result.stderr
    assert "set ATMEM_INSTANCE" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "nowhere").exists()


def damage(instance: Instance, *statements: str) -> None:
    with sqlite3.connect(instance.folder / "continuity.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("command", [("serve",), ("status",), ("db", "check"), ("users", "list")])
def test_a_database_of_a_newer_program_is_refused(run, fresh_instance, command):
    damage(fresh_instance, "UPDATE alembic_version SET version_num = '9999'")

    result = run(*command)

    assert result.exit_code == 1
    assert "9999" in result.stderr


def test_a_database_that_was_not_upgraded_is_refused_and_can_be_upgraded(run, fresh_instance):
    database = fresh_instance.folder / "continuity.db"
    database.unlink()
    database.touch(mode=0o600)
    # Made after the tables: with a list the database would be a lost one (tests/crash/test_damage.py).
    (fresh_instance.folder / "shred.list").unlink()

    refused = run("serve")
    upgraded = run("db", "upgrade", "--json")

    assert refused.exit_code == 1
    assert "atmem init" in refused.stderr
    assert json.loads(upgraded.stdout)["upgraded"][0] == "0001"
    assert run("db", "upgrade").stdout == "Nothing to do.\n"


def test_a_sound_database_passes_the_check(run):
    assert run("db", "check").stdout == "The database is sound.\n"
    assert json.loads(run("db", "check", "--json").stdout) == {"sound": True, "problems": []}


def test_the_check_finds_a_table_that_was_changed_and_an_audit_log_that_was_cut(run, fresh_instance):
    damage(
        fresh_instance,
        "DROP INDEX ix_continuity_workflows_due",
        "UPDATE continuity_audit_head SET seq = seq + 1",
    )

    result = run("db", "check", "--json")

    assert result.exit_code == 1
    problems = json.loads(result.stdout)["problems"]
    assert any("ix_continuity_workflows_due" in problem for problem in problems)
    assert any("audit" in problem for problem in problems)


def test_text_for_a_terminal_cannot_speak_to_it():
    assert plain("a\x1b[2J\u202eb\n") == "a\\u001b[2J\\u202eb\\u000a"
    assert plain("Zoë – ok") == "Zoë – ok"
    assert plain(None) == ""
