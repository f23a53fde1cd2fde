"""`atmem evidence`, `atmem vault capture` and `atmem retention` against the real server, as a person types them."""

from __future__ import annotations

import json
import stat
import time

import pytest

from continuity.services import exporting
from continuity.transport import Transport
from tests.cli.commands import Terminal
from tests.web.matrix import EVIDENCE

PASSPHRASE = "a long passphrase of tests"
HOSTILE = "<script>alert(1)</script> \x1b[31mred \u202e{{7*7}}"


@pytest.fixture(scope="module")
def shared_shell(shared_server, tmp_path_factory):
    return Terminal(shared_server, tmp_path_factory.mktemp("shell"))


@pytest.fixture(scope="module")
def token(shared_shell):
    shared_shell.variables = {}
    return shared_shell.token("--principal", "evidence-operator")


@pytest.fixture
def operator(shared_shell, token):
    """The terminal with an operator's credential in the environment."""
    shared_shell.variables = {"ATMEM_EVIDENCE_TOKEN": token}
    return shared_shell


@pytest.fixture
def person(operator):
    """Run a command as the administrator."""
    who = ("--username", "administrator", *operator.as_person())
    return lambda *arguments, **options: operator.here(*arguments, *who, **options)


@pytest.fixture
def run(operator, token):
    """A run of three records; its name."""
    name = f"run-{time.time_ns()}"
    with Transport(operator.server.url, token) as connection:
        for number, content in enumerate(["Hello harbour", {"tool": "mail", "text": HOSTILE}, "x" * 500]):
            body = {**EVIDENCE, "run_id": name, "event_id": f"{name}-{number}", "content": content}
            assert connection.call("POST", "/v1/evidence", body)["accepted"]
    return name


@pytest.fixture
def passphrase(tmp_path):
    path = tmp_path / "passphrase"
    path.write_text(f"{PASSPHRASE}\n")
    return "--passphrase-file", str(path)


def test_runs_and_records_are_listed_and_found(operator, run):
    listed = operator.json("evidence", "list")["runs"]
    assert (listed[0]["run_id"], listed[0]["records_total"]) == (run, 3)
    found = operator.json("evidence", "search", "hello", "HARBOUR", "--run", run)["records"]
    assert [record["seq"] for record in found] == [1]
    assert operator.json("evidence", "search", "harb", "--run", run)["records"] == []
    table = operator.here("evidence", "search", "--run", run)
    assert table.exit_code == 0
    assert listed[0]["evidence_id"] in table.stdout
    assert run in operator.here("evidence", "list").stdout


def test_a_run_is_shown_in_order_and_speaks_to_no_terminal(operator, run):
    shown = operator.json("evidence", "show", run)
    assert shown["is_whole"]
    assert shown["records"][1]["content"]["text"] == HOSTILE
    text = operator.here("evidence", "show", shown["evidence_id"], "--full")
    assert text.exit_code == 0
    assert "\x1b" not in text.stdout
    assert "\u202e" not in text.stdout
    assert "x" * 500 in text.stdout
    assert "(--full)" in operator.here("evidence", "show", run).stdout
    manifest = operator.json("evidence", "manifest", run)
    assert manifest["tools"] == [{"tool": "mail", "records": 1, "operations": 0}]
    assert "mail" in operator.here("evidence", "manifest", run).stdout


def test_nothing_of_another_name_is_there(operator):
    done = operator.here("evidence", "show", "nowhere", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stderr)["error"]["code"] == "not_found"
    assert operator.here("evidence", "show", "a b").exit_code == 2


def test_an_export_is_sealed_under_the_whole_first_line(person, run, tmp_path):
    text, target, file = "lantern\u2028harbour\x85window", tmp_path / "taken.atmem", tmp_path / "strange"
    file.write_bytes(f"{text}\r\nand a second line\n".encode())

    done = person("evidence", "export", run, "--output", str(target), "--passphrase-file", str(file))

    assert done.exit_code == 0, done.output
    with target.open("rb") as stream:
        assert len(list(exporting.opened_lines(stream, text))) == 5


def test_an_export_opens_with_its_passphrase_and_is_never_written_over(person, operator, run, tmp_path, passphrase):
    target, wrong = tmp_path / "out.atmem", tmp_path / "wrong"
    wrong.write_text("another passphrase\n")

    done = person("evidence", "export", run, "--output", str(target), *passphrase)

    assert done.exit_code == 0, done.output
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_bytes()
    assert b"harbour" not in before
    again = person("evidence", "export", run, "--output", str(target), *passphrase, "--json")
    assert (again.exit_code, json.loads(again.stderr)["error"]["code"]) == (1, "file_exists")
    assert target.read_bytes() == before
    opened = operator.here("evidence", "open", str(target), *passphrase, server=False)
    assert opened.exit_code == 0, opened.output
    lines = [json.loads(line) for line in opened.stdout.splitlines()]
    assert next(line["record"]["content"] for line in lines if "record" in line) == "Hello harbour"
    checked = operator.here("evidence", "open", str(target), "--check", *passphrase, server=False)
    assert "is whole: 5 lines" in checked.stdout
    refused = operator.here(
        "evidence", "open", str(target), "--passphrase-file", str(wrong), "--json", server=False
    )  # fmt: skip
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert json.loads(refused.stderr)["error"]["code"] == "wrong_passphrase"
    target.write_bytes(before[:-5])
    assert operator.here("evidence", "open", str(target), *passphrase, server=False).exit_code == 1
    person("evidence", "export", run, "--output", str(target), "--overwrite", *passphrase)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    plain = tmp_path / "plain.jsonl"
    assert operator.here(
        "evidence", "open", str(target), "--output", str(plain), *passphrase, server=False
    ).exit_code == 0  # fmt: skip
    assert stat.S_IMODE(plain.stat().st_mode) == 0o600


def test_plaintext_is_for_administrators_and_is_asked_about(person, operator, run, tmp_path):
    target = tmp_path / "out.jsonl"
    by_credential = operator.here("evidence", "export", run, "--plaintext", "--yes", "--output", str(target))
    assert by_credential.exit_code == 1
    # It is an operator's already: another one of that kind would be refused as well.
    assert by_credential.stderr.endswith("Nothing was changed. Sign in with --username NAME.\n")
    assert person("evidence", "export", run, "--plaintext", "--output", str(target)).exit_code == 1
    assert not target.exists()

    done = person("evidence", "export", run, "--plaintext", "--yes", "--output", str(target))

    assert done.exit_code == 0, done.output
    assert "Hello harbour" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_deleted_run_is_gone(person, operator, run):
    assert person("evidence", "delete", run).exit_code == 1

    done = person("evidence", "delete", run, "--yes")

    assert done.exit_code == 0, done.output
    assert "3 records" in done.stdout
    gone = operator.here("evidence", "show", run, "--json")
    assert json.loads(gone.stderr)["error"]["code"] == "evidence_deleted"
    assert person("evidence", "delete", "wf_" + "0" * 32, "--yes").exit_code == 2


def test_the_capture_mode_is_shown_and_changed(person):
    assert json.loads(person("vault", "capture", "--json").stdout)["capture_mode"] == "full"
    assert person("vault", "capture", "metadata").exit_code == 1
    changed = person("vault", "capture", "metadata", "--yes")
    assert changed.exit_code == 0, changed.output
    assert "size, SHA-256 and type" in changed.stdout
    assert "full" in person("vault", "capture", "full").stdout


def test_unfinished_work_keeps_capture_full_and_is_named(person, operator, tmp_path):
    path = tmp_path / "work.json"
    operations = [{"name": "publish", "tool": "files"}]
    path.write_text(json.dumps({"workflow_key": f"k-{time.time_ns()}", "operations": operations, "activate": True}))
    workflow_id = operator.json("continuity", "create", "--file", str(path))["workflow_id"]

    refused = person("vault", "capture", "off", "--yes")
    assert refused.exit_code == 1
    assert workflow_id in refused.stderr
    assert workflow_id in person("vault", "capture").stdout
    operator.here("continuity", "disable", workflow_id)
    assert workflow_id not in person("vault", "capture").stdout


def test_retention_says_what_is_old_and_deletes_nothing_of_today(person, operator, run):
    said = person("retention", "--older-than", "1d", "--json")
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["items"] == []
    assert "Nothing is that old" in person("retention", "--older-than", "30d", "--apply", "--yes").stdout
    by_credential = operator.here("retention", "--older-than", "1d")
    assert by_credential.exit_code == 0
    # Nothing else on its line, and none that is empty: scripts keep what stands here.
    assert by_credential.stderr == (
        "evidence: Administrators alone delete evidence.\nthreads: Administrators alone trim threads.\n"
    )
    assert by_credential.stdout == "Nothing is that old.\n"
    assert operator.here("retention", "--older-than", "1d", "--kind", "evidence").exit_code == 1
    assert operator.here("retention", "--older-than", "1d", "--kind", "threads").exit_code == 1
    assert person("retention", "--older-than", "1d", "--kind", "threads").stdout == "Nothing is that old.\n"
    assert operator.here("retention", "--older-than", "0d").exit_code == 2
