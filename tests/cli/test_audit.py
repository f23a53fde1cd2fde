"""`atmem audit`: read on the host, proved, and compared with what was kept elsewhere."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from app.cli import main
from tests.servers import initialised


@pytest.fixture
def run(fresh_instance, monkeypatch):
    monkeypatch.setenv("ATMEM_INSTANCE", str(fresh_instance.folder))
    return lambda *arguments: CliRunner().invoke(main, ["audit", *arguments])


@pytest.fixture
def grown(run):
    """A log of a few entries, and where its newest one stands."""
    for name in ("ada", "ben", "cyd"):
        made = CliRunner().invoke(main, ["users", "create", name])
        assert made.exit_code == 0, made.output
    return json.loads(run("list", "--json", "--limit", "1").stdout)["entries"][0]["seq"]


def owner(instance, *statements):
    """Do what the owner of the database can: past the triggers."""
    with closing(sqlite3.connect(instance.folder / "continuity.db")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            database.execute(statement)
        database.commit()


def kept(run, folder):
    path = folder / "checkpoint"
    done = run("checkpoint", "--output", str(path))
    assert done.exit_code == 0, done.output
    return path


def test_the_log_is_shown_newest_first_and_goes_on_where_a_page_ended(run, grown):
    first = json.loads(run("list", "--json", "--limit", "2").stdout)
    second = json.loads(run("list", "--json", "--limit", "2", "--before", str(first["next_before"])).stdout)

    told = [each["seq"] for page in (first, second) for each in page["entries"]]
    assert told == sorted(told, reverse=True)
    assert len(told) == len(set(told)) == 4
    # Newer entries of this reading itself, as details were opened.
    made = [each for each in second["entries"] + first["entries"] if each["action"] == "user.create"]
    assert {each["actor"] for each in made} == {"cli"}
    assert all(each["detail_state"] in {"open", "none"} for each in made)


def test_a_person_reads_a_table(run, grown):
    shown = run("list")

    assert shown.exit_code == 0
    assert "action" in shown.stdout
    assert "user.create" in shown.stdout
    assert '{"role": "operator"}' in shown.stdout
    assert "sealed" not in shown.output


def test_without_the_key_the_clear_columns_are_shown_and_the_rest_named(run, grown, fresh_instance):
    (fresh_instance.folder / "vault.key").unlink()

    shown, told = run("list"), json.loads(run("list", "--json").stdout)

    assert shown.exit_code == 0
    assert "user.create" in shown.stdout
    assert '"operator"' not in shown.stdout
    assert "Details stay sealed: " in shown.stderr
    assert "vault.key" in shown.stderr
    assert {each["detail_state"] for each in told["entries"]} <= {"sealed", "none"}
    verified = run("verify")
    assert verified.exit_code == 0
    assert "Histories were not compared" in verified.stderr


def test_a_sound_log_ends_with_0_and_says_how_much_was_read(run, grown):
    said, told = run("verify"), json.loads(run("verify", "--json").stdout)

    assert said.exit_code == 0
    assert said.stdout == (f"The audit log is whole: {told['entries']} entries. So are the histories of 0 workflows.\n")
    assert said.stderr == ""
    assert told == {
        "sound": True, "entries": told["entries"], "workflows": 0, "compared": None, "heads_compared": True,
        "findings": [],
    }  # fmt: skip


def test_an_edit_past_the_triggers_ends_with_1_and_one_line(run, grown, fresh_instance):
    owner(fresh_instance, "UPDATE continuity_audit SET actor = 'user:u_2' WHERE seq = 2")

    said, told = run("verify"), run("verify", "--json")

    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.startswith("Audit entry 2: the entry is not what was written here")
    assert said.stderr.count("\n") == 1
    assert told.exit_code == 1
    [finding] = json.loads(told.stdout)["findings"]
    assert (finding["kind"], finding["workflow_id"], finding["seq"]) == ("changed", None, 2)


def test_a_database_that_is_not_of_the_time_of_its_key_files_is_a_finding(run, grown, fresh_instance):
    owner(fresh_instance, "UPDATE continuity_vault SET shred_length = 5")

    said, told = run("verify"), run("verify", "--json")

    assert (said.exit_code, told.exit_code) == (1, 1)
    assert said.stderr.startswith("The vault: ")
    assert [each["kind"] for each in json.loads(told.stdout)["findings"]] == ["vault"]
    assert run("list").exit_code == 0


def test_nothing_before_a_checkpoint_was_changed(run, grown, tmp_path):
    path = kept(run, tmp_path)
    assert CliRunner().invoke(main, ["users", "create", "dan"]).exit_code == 0

    said = run("verify", "--against", str(path))

    assert said.exit_code == 0, said.output
    assert "Nothing from before the checkpoint of 20" in said.stdout


def test_a_database_put_back_is_older_than_the_checkpoint(run, grown, fresh_instance, tmp_path):
    database = fresh_instance.folder / "continuity.db"
    with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(tmp_path / "old.db")) as copy:
        old.backup(copy)
    assert CliRunner().invoke(main, ["users", "create", "dan"]).exit_code == 0
    path = kept(run, tmp_path)
    with closing(sqlite3.connect(tmp_path / "old.db")) as old, closing(sqlite3.connect(database)) as copy:
        old.backup(copy)

    assert run("verify").exit_code == 0
    said = run("verify", "--against", str(path))

    assert said.exit_code == 1
    assert "the checkpoint is newer than the log" in said.stderr


def test_a_checkpoint_of_another_instance_says_so(run, grown, tmp_path, monkeypatch):
    path = kept(run, tmp_path)
    monkeypatch.setenv("ATMEM_INSTANCE", str(initialised(tmp_path / "another").folder))

    said = run("verify", "--against", str(path))

    assert said.exit_code == 1
    assert "the checkpoint is of another vault" in said.stderr


def test_a_file_that_is_no_checkpoint_says_so(run, grown, tmp_path):
    (tmp_path / "file").write_text("hello\n")

    said, told = (run("verify", "--against", str(tmp_path / "file"), *more) for more in ((), ("--json",)))

    assert said.exit_code == told.exit_code == 1
    assert said.stderr == "Error: The file is no checkpoint that `atmem audit checkpoint` has written.\n"
    assert json.loads(told.stderr)["error"]["code"] == "malformed"


def test_a_checkpoint_is_printed_and_never_written_over(run, grown, tmp_path):
    path = kept(run, tmp_path)
    before = path.read_bytes()

    printed, again = run("checkpoint"), run("checkpoint", "--output", str(path))

    lines = printed.stdout.splitlines()
    assert json.loads(lines[0])["audit"] == json.loads(before.splitlines()[0])["audit"]
    assert json.loads(lines[-1])["workflows"] == 0
    assert again.exit_code == 1
    assert "is not written over" in again.stderr
    assert path.read_bytes() == before


def test_a_log_without_its_true_end_leaves_no_file(run, grown, fresh_instance, tmp_path):
    owner(fresh_instance, f"DELETE FROM continuity_audit WHERE seq >= {grown}")

    done = run("checkpoint", "--output", str(tmp_path / "checkpoint"))

    assert done.exit_code == 1
    assert "Run `atmem audit verify`." in done.stderr
    assert not (tmp_path / "checkpoint").exists()


def test_an_instance_that_is_not_there_is_said_in_one_line(run, monkeypatch, tmp_path):
    monkeypatch.setenv("ATMEM_INSTANCE", str(tmp_path / "nowhere"))

    for arguments in (("list",), ("verify",), ("checkpoint",)):
        done = run(*arguments)
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: ")
