"""`atmem vault backup`, `restore`, `close-recovery` and `accept-restore`, beside a real server and without one."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest
import requests
from click.testing import CliRunner

from app.cli import main
from tests.cli.commands import PASSWORD, Terminal
from tests.entry import OVERRIDES
from tests.patience import PATIENCE_S
from tests.servers import start, stop

TEXT = "correct horse battery"


@pytest.fixture
def terminal(running_server, tmp_path):
    return Terminal(running_server, tmp_path)


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "passphrase"
    path.write_text(f"{TEXT}\n")
    return "--passphrase-file", str(path)


def vault(folder, *arguments, **options):
    env = {"ATMEM_INSTANCE": str(folder), "ATMEM_URL": None, "ATMEM_DATABASE_URL": None}
    return CliRunner(env=env).invoke(main, ["vault", *arguments], obj=OVERRIDES, **options)


def told(done):
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def sign_in(url, password=PASSWORD):
    session = requests.Session()
    who = {"username": "administrator", "password": password}
    reply = session.post(f"{url}/api/auth/login", json=who, timeout=PATIENCE_S)
    return session, reply


WORK = {"workflow_key": "k", "operations": [{"name": "publish", "tool": "post", "arguments": {}}], "activate": True}


def created(url, token, key):
    work = {**WORK, "workflow_key": key}
    reply = requests.post(f"{url}/v1/continuity", json=work, headers=bearer(token), timeout=PATIENCE_S)
    return reply.json()


def ended(server):
    """Stop a server as an operator would."""
    assert server.terminate() == 0
    stop(server)


def test_the_whole_story_on_a_server(terminal, secret, tmp_path):
    server, folder = terminal.server, terminal.server.instance.folder
    token = terminal.token("--principal", "operator")
    work = created(server.url, token, "open")
    session, signed = sign_in(server.url)
    assert signed.status_code == 200, signed.text
    file = tmp_path / "one.backup"

    made = told(vault(folder, "backup", str(file), *secret, "--json"))
    assert made["made"]
    assert made["workflows"] == 1
    assert created(server.url, token, "later")["workflow_id"]
    refused = vault(folder, "restore", str(file), *secret, "--yes")
    assert refused.exit_code == 1
    assert "another server has" in refused.stderr
    assert server.terminate() == 0

    restored = told(vault(folder, "restore", str(file), *secret, "--yes", "--json"))

    assert restored["left"] is None
    again = start(server.instance)
    try:
        # Credentials and sessions of before are void; the page says what happened.
        assert requests.get(f"{again.url}/v1/continuity", headers=bearer(token), timeout=PATIENCE_S).status_code == 401
        old = session.get(f"{again.url}/resume-work", timeout=PATIENCE_S)
        assert "/sign-in" in old.url or "/login" in old.url
        _, wrong = sign_in(again.url)
        assert wrong.status_code == 401
        _, right = sign_in(again.url, restored["password"])
        assert right.status_code == 200
        status = CliRunner(env={"ATMEM_INSTANCE": str(folder)}).invoke(main, ["status"], obj=OVERRIDES)
        assert "a backup was restored" in status.output
        assert "1 decision" in status.output
        assert work["workflow_id"]
        assert vault(folder, "close-recovery").exit_code == 0
        assert "No recovery window is open" in vault(folder, "close-recovery").output
    finally:
        stop(again)


def test_a_restore_asks_before_it_replaces(fresh_instance, secret, tmp_path):
    file = tmp_path / "one.backup"
    assert vault(fresh_instance.folder, "backup", str(file), *secret).exit_code == 0

    done = vault(fresh_instance.folder, "restore", str(file), *secret, input="n\n")

    assert done.exit_code == 1
    assert "Nothing was changed" in done.stderr


def test_whoever_restores_may_name_himself(fresh_instance, secret, tmp_path):
    file, both, own = tmp_path / "one.backup", tmp_path / "both", tmp_path / "own"
    both.write_text(f"{fresh_instance.password}\n{PASSWORD}\n")
    own.write_text(f"{PASSWORD}\n")
    env = {"ATMEM_INSTANCE": str(fresh_instance.folder)}
    changed = CliRunner(env=env).invoke(
        main, ["users", "change-password", "administrator", "--password-file", str(both)], obj=OVERRIDES
    )
    assert changed.exit_code == 0
    assert vault(fresh_instance.folder, "backup", str(file), *secret).exit_code == 0

    named = ("--as", "administrator", "--password-file", str(own))
    done = told(vault(fresh_instance.folder, "restore", str(file), *secret, *named, "--yes", "--json"))

    assert done["password"] is None
    assert not done["password_change_required"]
    own.write_text("bright otter sails south\n")
    wrong = vault(fresh_instance.folder, "restore", str(file), *secret, *named, "--yes", "--json")
    assert wrong.exit_code == 1
    assert json.loads(wrong.stderr)["error"]["code"] == "unauthenticated"


def test_a_backup_is_checked_and_a_wrong_passphrase_has_its_own_sentence(fresh_instance, secret, tmp_path):
    file, other = tmp_path / "one.backup", tmp_path / "other"
    other.write_text("another passphrase\n")
    assert vault(fresh_instance.folder, "backup", str(file), *secret).exit_code == 0

    assert told(vault(fresh_instance.folder, "backup", "--check", str(file), *secret, "--json"))["proved"]
    wrong = vault(fresh_instance.folder, "backup", "--check", str(file), "--passphrase-file", str(other))
    assert wrong.exit_code == 1
    assert "passphrase is not that of this file" in wrong.stderr


def test_no_passphrase_is_asked_for_where_there_is_no_terminal(fresh_instance, tmp_path):
    done = vault(fresh_instance.folder, "backup", str(tmp_path / "one.backup"))

    assert done.exit_code == 2
    assert "--passphrase-file" in done.stderr


def test_no_passphrase_is_an_argument_or_stands_in_the_process_list():
    help_text = CliRunner().invoke(main, ["vault", "backup", "--help"]).output

    assert "--passphrase " not in help_text
    assert "--passphrase-file" in help_text


def test_a_database_that_was_put_back_stops_the_start_until_somebody_says_that_it_is_meant(fresh_instance, tmp_path):
    folder = fresh_instance.folder
    kept = tmp_path / "kept.db"
    server = start(fresh_instance)
    try:
        terminal = Terminal(server, tmp_path)
    finally:
        ended(server)
    shutil.copy(folder / "continuity.db", kept)
    terminal.server = start(fresh_instance)
    try:
        assert created(terminal.server.url, terminal.token("--principal", "operator"), "work")["workflow_id"]
    finally:
        ended(terminal.server)

    for name in ("continuity.db", "continuity.db-wal", "continuity.db-shm"):
        (folder / name).unlink(missing_ok=True)
    shutil.copy(kept, folder / "continuity.db")
    (folder / "continuity.db").chmod(0o600)

    refused = CliRunner(env={"ATMEM_INSTANCE": str(folder)}).invoke(main, ["serve", "--port", "0"], obj=OVERRIDES)
    assert refused.exit_code == 1
    assert "accept-restore" in refused.stderr
    accepted = told(vault(folder, "accept-restore", "--yes", "--json"))
    assert accepted["epoch"] == 2
    assert accepted["password"]
    again = start(fresh_instance)
    try:
        assert sign_in(again.url, accepted["password"])[1].status_code == 200
    finally:
        stop(again)
    with closing(sqlite3.connect(folder / "continuity.db")) as connection:
        rows = connection.execute("SELECT action FROM continuity_audit").fetchall()
    assert ("vault.restore_accepted",) in rows


def test_the_commands_stand_in_the_help_of_the_noun():
    listed = CliRunner().invoke(main, ["vault", "--help"]).output

    for verb in ("backup", "restore", "close-recovery", "accept-restore"):
        assert verb in listed


def test_a_backup_by_a_process_of_its_own_is_readable_by_its_owner_alone(terminal, secret, tmp_path):
    file = tmp_path / "own.backup"
    done = terminal._run("tests.entry", "vault", "backup", str(file), *secret)

    assert done.returncode == 0, done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    assert isinstance(done, subprocess.CompletedProcess)
