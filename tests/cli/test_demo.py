"""The demo as somebody runs it first. It takes as long as a lease: two minutes of waiting, little work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.cli import demo, demo_conversation
from app.cli.demo_conversation import Conversation
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
MIDDLE = "The killed worker's claim on the thread ends"
"""Said while leases live: a server and a worker of threads run."""


def _demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", "demo", *options], cwd=ROOT, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def test_the_demo_publishes_one_document_cancels_one_order_and_ends_with_status_0(tmp_path: Path) -> None:
    document = tmp_path / "notes.txt"
    document.write_text("What the demo publishes.\n")

    told = _demo("--exit", "--instance", str(tmp_path / "demo"), "--document", str(document))

    assert told.returncode == 0, told.stderr
    published = list((tmp_path / "demo" / "published").iterdir())
    assert [path.read_text() for path in published] == ["What the demo publishes.\n"]
    assert re.findall(r"^ +(\d+)\. ", told.stdout, re.MULTILINE) == [str(n) for n in range(1, 25)]
    assert "work in every phase" in told.stdout
    assert told.stdout.count("killed (SIGKILL)") == 2
    assert "threads in every state" in told.stdout
    books = (tmp_path / "demo" / "order-support" / "cancellations.jsonl").read_text().splitlines()
    assert [json.loads(line)["order"] for line in books] == ["17"]
    *_, asked, cancelled, approved, ticked, answer = told.stdout.splitlines()
    assert (asked, cancelled, ticked, answer) == (
        "  assistant: It can still be cancelled.", "  [cancel_order] ok", "  [write_todos] ok",
        "  assistant: Order 17 is cancelled.",
    )  # fmt: skip
    assert re.fullmatch(r"  user:\S+ approved: cancel_order", approved)
    assert "http://" not in told.stdout
    assert "at least $0.002345, 1 charge of unknown cost" in told.stdout


def test_without_langchain_the_conversation_is_left_out_and_the_demo_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "langchain", None)

    assert _conversation(tmp_path) is None

    (told,) = capsys.readouterr().out.strip().splitlines()
    assert "Left out: a conversation" in told
    assert told.endswith("python -m pip install '.[server,threads]'")


def test_away_from_a_checkout_the_conversation_is_left_out_and_the_demo_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo_conversation, "HOME", tmp_path)

    assert _conversation(tmp_path) is None

    assert "in the checkout" in capsys.readouterr().out


class Ended:
    """A server of the demo that has ended by itself."""

    def __init__(self, folder: Path, status: int) -> None:
        (folder / "server.log").write_text("first line\nthe last words\n")
        self.process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({status})"])
        self.demo = demo._Demo(folder, self.process, "http://127.0.0.1:1", "made up")


def _conversation(folder: Path) -> Conversation | None:
    ended = Ended(folder, 0)
    ended.process.wait()
    return Conversation.of(ended.demo)


def test_a_server_that_ctrl_c_has_ended_first_is_no_failure(tmp_path: Path) -> None:
    Ended(tmp_path, 0).demo.wait()


def test_a_server_that_fails_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(demo.StoryError, match="the last words") as told:
        Ended(tmp_path, 3).demo.wait()

    assert "status 3" in told.value.message
    assert str(tmp_path) not in told.value.message


def test_whoever_ends_the_demo_ends_its_server_and_its_worker(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli", "demo", "--instance", str(tmp_path / "demo")], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        told = process.stdout
        assert told is not None
        while MIDDLE not in told.readline():
            assert process.poll() is None
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE_S)

    assert len(started) >= len(("server", "worker of threads"))
    assert [each for each in started if each.is_running()] == []


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--exit",), 130)])
def test_ctrl_c_while_the_lease_lives_ends_the_demo_with_one_line(
    tmp_path: Path, options: tuple[str, ...], status: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli", "demo", *options, "--instance", str(tmp_path / "demo")], cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while MIDDLE not in process.stdout.readline():
            assert process.poll() is None
        # A terminal tells all of them, the server too.
        os.killpg(process.pid, signal.SIGINT)
        told, errors = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, told, errors) == (status, "\nStopped. The story was not told to its end.\n", "")


def test_the_demo_leaves_a_folder_alone_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")

    told = _demo("--exit", "--instance", str(tmp_path))

    assert told.returncode == 1
    assert "Nothing was changed" in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
