"""The commands of the examples' READMEs do what is written there, in processes of their own."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest

from examples.local_server import Records
from tests.patience import PATIENCE_S
from tests.servers import ROOT

AGENTS = ["publishing", "paying", "mailing", "blind"]
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands(name):
    """The commands of a README, each as a list of words, with this interpreter."""
    text = (ROOT / "examples" / f"{name}_agent" / "README.md").read_text()
    return [
        [sys.executable, *shlex.split(line)[1:]]
        for block in BLOCK.findall(text)
        for line in block.replace("\\\n", "").splitlines()
    ]


def with_address(command, address):
    return [re.sub(r"http://127\.0\.0\.1:900\d", address, word) for word in command]


@pytest.fixture
def shell(hall, monkeypatch, tmp_path):
    """An empty folder, with the credential that the README has made; runs a command in a process of its own."""
    for variable, value in (("ATMEM_EVIDENCE_TOKEN", hall.token()), ("ATMEM_URL", hall.url), ("PYTHONPATH", str(ROOT))):
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    return lambda command: subprocess.run(command, capture_output=True, text=True, check=False)


def typed(command):
    """Run the command of an agent in this process; return its exit code."""
    _, _, module, *arguments = command
    return import_module(module).main(arguments)


def test_a_checkpoint_file_that_is_none_is_said_in_one_line(shell, tmp_path):
    (tmp_path / "notes.md").write_text("These are my notes, and no database at all. " * 40)
    ended = shell([
        sys.executable, "-m", "examples.publishing_agent.agent", "start", "--thread", "monday",
        "--checkpoints", "notes.md", "--output", "published",
    ])  # fmt: skip
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert "notes.md" in ended.stderr


@pytest.mark.parametrize("name", AGENTS)
def test_a_newcomer_who_types_the_readme_gets_three_effects(shell, tmp_path, name, capsys):
    *service, start, resume = commands(name)
    assert len(service) == (name != "publishing")
    server, address = None, ""
    if service:
        # On a free port: the one of the README may be taken.
        server = subprocess.Popen([*service[0][:-1], "0"], stdout=subprocess.PIPE, text=True)
        address = json.loads(server.stdout.readline())["url"]
    try:
        started = shell(with_address(start, address))
        # In this process, which has loaded LangGraph already.
        resumed = typed(with_address(resume, address))
    finally:
        if server is not None:
            server.kill()
            server.wait()
            server.stdout.close()

    assert (started.returncode, started.stderr) == (0, "")
    assert (resumed, capsys.readouterr().out) == (0, started.stdout)
    assert [call["status"] for call in json.loads(started.stdout)["calls"]] == ["success"] * 3
    if name == "publishing":
        assert len(list((tmp_path / "published").iterdir())) == 3
    else:
        (records,) = tmp_path.glob("*.jsonl")
        assert len(records.read_text().splitlines()) == 3


def test_a_thread_is_begun_once_and_resumed_when_it_has_begun(shell, capsys):
    start, resume = commands("publishing")

    assert typed(resume) == 1
    assert capsys.readouterr().err == "Error: The thread 'monday' has not begun: start it.\n"
    assert typed(start) == 0
    assert typed(start) == 1
    assert "has begun: resume it" in capsys.readouterr().err


def test_an_agent_that_pauses_can_be_killed_by_hand_and_resuming_says_how_long_to_wait(shell, tmp_path, capsys):
    start, resume = commands("publishing")
    agent = subprocess.Popen([*start, "--pause", "60"], stdout=subprocess.DEVNULL)
    give_up = time.monotonic() + PATIENCE_S
    while not list(tmp_path.glob("published/op_*")):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    # Long enough for an agent that does not pause to have published everything.
    time.sleep(1)
    agent.kill()
    agent.wait()

    assert typed(resume) == 2

    said = json.loads(capsys.readouterr().out)
    assert said["stopped_safely"] == "attempt_in_progress"
    assert 0 < said["retry_after_seconds"] <= 120
    assert len(list(tmp_path.glob("published/op_*"))) == 1


def test_ctrl_c_is_reported_so_that_resuming_need_not_wait(shell, tmp_path, capsys):
    start, resume = commands("publishing")
    agent = subprocess.Popen([*start, "--pause", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    give_up = time.monotonic() + PATIENCE_S
    while not list(tmp_path.glob("published/op_*")):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    time.sleep(0.5)
    agent.send_signal(signal.SIGINT)
    printed, said = agent.communicate(timeout=PATIENCE_S)

    assert (agent.returncode, printed, said) == (130, "", "Interrupted. Resume the thread: AtMem knows what is safe.\n")
    assert typed(resume) == 0
    assert len(json.loads(capsys.readouterr().out)["calls"]) == len(list(tmp_path.glob("published/op_*"))) == 3


# --- The services do what the READMEs say of them ---


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "records.jsonl")


INVOICE = {"invoice": "1", "to": "somebody", "amount_cents": 100}


def test_a_key_pays_once_within_its_window_and_again_after_it(records):
    from examples.paying_agent.payments_server import answer  # noqa: PLC0415

    def pay(key, body=INVOICE, window=3600):
        options = argparse.Namespace(window=window)
        return answer("POST", "/payments", {"Idempotency-Key": key}, body, records=records, options=options)

    first = pay("k")
    assert first == (201, {"id": "pay_1", **INVOICE})
    assert pay("k") == (200, first[1])
    assert pay("k", {**INVOICE, "amount_cents": 200})[0] == 422
    assert pay("k", window=0)[0] == 201
    assert pay("other")[0] == 201
    assert pay("none", {**INVOICE, "amount_cents": 0})[0] == 422
    assert len(records.all()) == 3


def test_the_post_office_finds_by_reference_and_sends_twice_what_it_is_told_twice(records):
    from examples.mailing_agent.post_office import answer  # noqa: PLC0415

    def ask(method, path, body=None):
        return answer(method, path, {}, body, records=records, options=argparse.Namespace())

    mail = {"to": "a@example.org", "subject": "s", "text": "t", "reference": "op_1"}
    assert [ask("POST", "/messages", mail)[0] for _ in range(2)] == [202, 202]

    assert [found["id"] for found in ask("GET", "/messages?reference=op_1")[1]] == ["mail_1", "mail_2"]
    assert ask("GET", "/messages?reference=op_2") == (200, [])
    assert ask("POST", "/messages", {**mail, "to": "nobody"})[0] == 422


def test_the_printer_can_do_nothing_but_print(records):
    from examples.blind_agent.printer import answer  # noqa: PLC0415

    def ask(method, path, body=None):
        return answer(method, path, {}, body, records=records, options=argparse.Namespace())

    assert ask("POST", "/labels", {"text": "Box"}) == (200, {"printed": True})
    assert ask("POST", "/labels", {"text": ""})[0] == 422
    assert ask("GET", "/labels")[0] == 404
    assert records.all() == [{"text": "Box"}]
