"""``python -m continuity.langgraph_example`` against a real server: what it does, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys

import pytest

from continuity.langgraph_example import main
from tests.servers import ROOT


@pytest.fixture(autouse=True)
def desk(hall, monkeypatch, tmp_path):
    """A folder with a document, and the credential of a coordinator of its own."""
    monkeypatch.delenv("ATFLOWS_CONTINUITY_TOKEN", raising=False)
    monkeypatch.setenv("ATMEM_EVIDENCE_TOKEN", hall.token())
    monkeypatch.setenv("ATMEM_URL", hall.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# Mine\n")
    return tmp_path


COMMON = ["--enabled", "--checkpoints", "./agent-state/checkpoints.db", "--output", "./published"]


def start(*more, thread="my-document"):
    return main(["start", *COMMON, "--thread", thread, "--document", "./README.md", *more])


def resume(*more, thread="my-document"):
    return main(["resume", *COMMON, "--thread", thread, *more])


def published(desk):
    return [path.read_text() for path in (desk / "published").iterdir()] if (desk / "published").exists() else []


def test_it_publishes_once_and_resuming_gives_the_saved_result(desk, capsys):
    assert start() == 0
    first = json.loads(capsys.readouterr().out)
    assert resume() == 0
    again = json.loads(capsys.readouterr().out)

    assert published(desk) == ["# Mine\n"]
    assert first == again
    assert first["thread"] == "my-document"
    assert first["result"]["bytes"] == 7
    assert first["result"]["path"] == str(next((desk / "published").iterdir()))


def test_checkpoints_and_documents_are_for_their_owner_alone(desk):
    start()

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (desk / "agent-state", desk / "published")}
    assert set(modes.values()) == {0o700}
    assert stat.S_IMODE((desk / "agent-state" / "checkpoints.db").stat().st_mode) == 0o600


class Interrupted(BaseException):
    """Stands for whatever ends a process."""


def interrupted_at(point):
    def trace(passed):
        if passed == point:
            raise Interrupted

    with pytest.raises(Interrupted):
        main([
            "start", *COMMON, "--thread", "my-document", "--document", "./README.md",
        ], trace=trace)  # fmt: skip


def test_what_was_interrupted_before_it_began_is_resumed_without_the_document(desk, capsys):
    interrupted_at("begin.before_send")
    (desk / "README.md").unlink()
    capsys.readouterr()

    assert resume() == 0

    assert published(desk) == ["# Mine\n"]
    assert json.loads(capsys.readouterr().out)["result"]["bytes"] == 7


def test_what_was_published_before_the_interrupt_is_not_published_again(desk, capsys):
    interrupted_at("outcome.after_reply")
    before = {path: path.stat().st_ino for path in (desk / "published").iterdir()}
    capsys.readouterr()

    assert resume() == 0

    assert {path: path.stat().st_ino for path in (desk / "published").iterdir()} == before
    assert json.loads(capsys.readouterr().out)["result"]["path"] == str(next(iter(before)))


def test_a_second_thread_is_new_work_and_the_first_is_not_begun_twice(desk, capsys):
    assert start() == 0
    assert start(thread="another") == 0
    assert start() == 1

    assert len(published(desk)) == 2
    assert "has begun: resume it" in capsys.readouterr().err


def test_work_that_another_attempt_holds_or_a_person_paused_is_stopped_safely_and_says_where(desk, capsys, hall):
    interrupted_at("begin.after_reply")
    capsys.readouterr()

    assert resume() == 2

    said = json.loads(capsys.readouterr().out)
    assert said["stopped_safely"] == "attempt_in_progress"
    assert 0 < said["retry_after_seconds"] <= 120
    assert said["page"] == f"{hall.url}/resume-work/{said['workflow_id']}"
    hall.pause(said["workflow_id"])

    assert resume() == 2
    said = json.loads(capsys.readouterr().out)
    assert said["stopped_safely"] == "workflow_disabled_or_capture_unavailable"
    assert published(desk) == []


def fails(capsys):
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1, printed.err
    return printed.err


def test_a_document_that_is_not_there_leaves_nothing_behind(desk, capsys):
    assert main(["start", *COMMON, "--thread", "t", "--document", "nowhere.md"]) == 1

    assert "nowhere.md: No such file" in fails(capsys)
    assert sorted(path.name for path in desk.iterdir()) == ["README.md"]


def test_no_credential_leaves_nothing_behind(desk, capsys, monkeypatch):
    monkeypatch.delenv("ATMEM_EVIDENCE_TOKEN")

    assert start() == 2

    assert "ATMEM_EVIDENCE_TOKEN" in fails(capsys)
    assert sorted(path.name for path in desk.iterdir()) == ["README.md"]


def test_a_server_that_is_not_there_is_named_and_the_thread_can_be_resumed(desk, capsys, hall):
    assert start("--url", "http://127.0.0.1:1") == 1
    assert "Is `atmem serve` running?" in fails(capsys)

    assert resume("--url", hall.url) == 0
    assert published(desk) == ["# Mine\n"]


def test_a_wrong_credential_is_refused_by_name(capsys, monkeypatch):
    monkeypatch.setenv("ATMEM_EVIDENCE_TOKEN", "atm_c_nothing")

    assert start() == 1

    assert fails(capsys).startswith("Error: unauthenticated: ")


def test_the_credential_of_a_worker_is_refused_by_name(capsys, monkeypatch, hall):
    work = hall.operator.create_workflow("somebody-elses", [{"name": "a", "tool": "t"}])
    monkeypatch.setenv("ATMEM_EVIDENCE_TOKEN", hall.grant("w", "continuity_host", run_id=work["workflow_id"]))

    assert start() == 1

    assert fails(capsys).startswith("Error: forbidden: ")


def test_resuming_names_what_is_not_there(desk, capsys):
    assert resume() == 1
    assert "There is no checkpoint file" in fails(capsys)
    assert start() == 0
    capsys.readouterr()

    assert resume(thread="other") == 1
    assert "'other' has not begun" in fails(capsys)

    assert main(["resume", *COMMON[:-1], "./elsewhere", "--thread", "my-document"]) == 1
    assert str(desk / "published") in fails(capsys)
    assert not (desk / "elsewhere").exists()


def test_a_file_that_is_no_checkpoint_file_is_named(desk, capsys):
    (desk / "agent-state").mkdir()
    (desk / "agent-state" / "checkpoints.db").write_text("not a database at all, and longer than a header of one " * 9)

    assert start() == 1

    assert "cannot be used: file is not a database" in fails(capsys)


def test_a_checkpoint_file_that_another_process_holds_is_named(desk, capsys, monkeypatch):
    assert start() == 0
    capsys.readouterr()
    holder = sqlite3.connect(desk / "agent-state" / "checkpoints.db")
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("continuity.langgraph_example.BUSY_S", 0.1)

    assert start(thread="another") == 1

    holder.close()
    assert "database is locked" in fails(capsys)


def test_nothing_runs_without_the_word_of_whoever_starts_it(desk, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["start", *COMMON[1:], "--thread", "t", "--document", "README.md"])

    assert caught.value.code == 2
    assert "--enabled" in capsys.readouterr().err
    assert sorted(path.name for path in desk.iterdir()) == ["README.md"]


def test_a_directory_that_is_gone_is_not_asked_and_nothing_is_published_elsewhere(desk, capsys):
    interrupted_at("effect.after")
    (desk / "published").rename(desk / "moved")
    capsys.readouterr()

    assert resume() == 2

    said = json.loads(capsys.readouterr().out)
    assert said["stopped_safely"] == "outcome_unknown"
    assert not (desk / "published").exists()


def test_attempts_are_reported_to_atflows_when_asked(desk, capsys, hall, monkeypatch):
    assert start("--atflows-url", hall.url) == 2
    assert "ATFLOWS_CONTINUITY_TOKEN" in fails(capsys)
    monkeypatch.setenv(
        "ATFLOWS_CONTINUITY_TOKEN", hall.grant("watch", "continuity_observer", observation_scope="local")
    )

    assert start("--atflows-url", hall.url) == 0

    assert "observation_errors" not in json.loads(capsys.readouterr().out)


def test_it_runs_as_a_program_and_its_help_does_not_wait_for_langgraph(desk):
    code = "import sys, continuity.langgraph_example; assert not {'langgraph', 'langchain_core'} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True)
    command = [sys.executable, "-m", "continuity.langgraph_example", "start", *COMMON, "--thread", "t"]
    done = subprocess.run(
        [*command, "--document", "README.md"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["thread"] == "t"


def test_an_output_directory_that_cannot_be_made_spends_no_thread(desk, capsys):
    (desk / "file").write_text("in the way")
    where = ["--enabled", "--checkpoints", "./agent-state/checkpoints.db", "--thread", "my-document"]

    assert main(["start", *where, "--document", "./README.md", "--output", "./file/published"]) == 1

    assert "Not a directory" in fails(capsys)
    assert not (desk / "agent-state").exists()
    assert start() == 0
