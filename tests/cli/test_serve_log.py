"""The audit log at the start of a server: verified without waiting, anchored beside the key, told when not whole."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from contextlib import closing

import pytest
from click.testing import CliRunner

from app import audits, instance
from app.cli import main
from app.config import load_settings
from continuity.vault import AnchorFile
from tests.patience import PATIENCE_S
from tests.servers import start, stop


@pytest.fixture
def run(fresh_instance, monkeypatch):
    monkeypatch.setenv("ATMEM_INSTANCE", str(fresh_instance.folder))
    return lambda *arguments: CliRunner().invoke(main, arguments)


def settings_of(made):
    return load_settings({"ATMEM_INSTANCE": str(made.folder)})


def owner(made, *statements):
    """Do what the owner of the database can: past the triggers."""
    with closing(sqlite3.connect(made.folder / "continuity.db")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            database.execute(statement)
        database.commit()


def served(made):
    """Start a server, wait until it has walked the log, and end it; return what it has written."""
    settings = settings_of(made)
    instance.drop_note(settings, audits.CHECK_NOTE)
    server = start(made)
    try:
        until = time.monotonic() + PATIENCE_S
        while instance.read_note(settings, audits.CHECK_NOTE).get("state") != audits.FINISHED:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert server.terminate() == 0
        return server.process.stderr.read() if server.process.stderr else ""
    finally:
        stop(server)


def test_a_start_verifies_the_log_and_anchors_it(run, fresh_instance):
    for name in ("ada", "ben"):
        assert run("users", "create", name).exit_code == 0
    assert "not verified yet" in run("status").stdout

    served(fresh_instance)

    shown = json.loads(run("status", "--json").stdout)
    assert shown["audit"]["faults"] == 0
    assert shown["problems"] == []
    assert "Audit log  whole, verified" in run("status").stdout
    kept = AnchorFile(settings_of(fresh_instance).anchor_file)
    last = json.loads(run("audit", "list", "--json", "--limit", "1").stdout)["entries"][0]
    # Reading the list is an entry where it opens details; the anchor is of before.
    assert kept.read().seq == last["seq"]
    assert kept.path.stat().st_mode & 0o777 == 0o600


def test_a_broken_log_is_told_by_log_and_status_and_stops_nothing(run, fresh_instance):
    for name in ("ada", "ben"):
        assert run("users", "create", name).exit_code == 0
    owner(fresh_instance, "UPDATE continuity_audit SET actor = 'user:nobody' WHERE seq = 2")

    served(fresh_instance)

    told = run("status")
    assert told.exit_code == 1
    assert "Problem: The audit log is not whole. Audit entry 2: the entry is not what was written here" in told.stderr
    assert json.loads(run("status", "--json").stdout)["audit"]["faults"] == 1
    last = json.loads(run("audit", "list", "--json", "--limit", "5").stdout)["entries"]
    assert [each for each in last if each["action"] == "audit.verified" and each["result"] != "done"]


def test_an_older_database_does_not_start_and_is_left_as_it_is(run, fresh_instance, tmp_path):
    database = fresh_instance.folder / "continuity.db"
    served(fresh_instance)
    shutil.copy(database, tmp_path / "older.db")
    assert run("users", "create", "ada").exit_code == 0
    served(fresh_instance)
    for left in fresh_instance.folder.glob("continuity.db-*"):
        left.unlink()
    shutil.copy(tmp_path / "older.db", database)
    before = database.read_bytes()

    refused = run("serve", "--port", "0")

    assert refused.exit_code == 1
    assert "An older one was put back" in refused.output
    assert "Traceback" not in refused.output
    assert database.read_bytes() == before
    told = run("status")
    assert told.exit_code == 1
    assert "audit log ends with entry" in told.output
    assert run("users", "create", "eve").exit_code == 1
    # What proves it can still be read.
    assert run("audit", "list").exit_code == 0


def test_an_anchor_that_is_none_is_said(run, fresh_instance):
    path = settings_of(fresh_instance).anchor_file
    path.write_text("x")
    path.chmod(0o600)

    refused = run("serve", "--port", "0")

    assert refused.exit_code == 1
    assert "shred.list.anchor is not an anchor of format 1" in refused.output
