"""The commands of the example's README, and `atmem threads`, as a person types them."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tests.patience import PATIENCE_S

pytest.importorskip("langchain")

from app.cli import main
from examples.local_server import Records
from examples.order_support import talk
from examples.order_support.agent import NAME
from tests.entry import OVERRIDES
from tests.langgraph.hall import PASSWORD
from tests.patience import wait_for
from tests.servers import ROOT

WORKER = ["threads", "worker", "examples.order_support.agent:agent"]


@pytest.fixture
def variables(town, tmp_path, monkeypatch):
    found = {
        "ATMEM_URL": town.url, "ATMEM_THREADS_TOKEN": town.worker_token(NAME), "ATMEM_EVIDENCE_TOKEN": town.token(),
        "ORDER_SUPPORT_TOKEN": town.application, "ORDER_SUPPORT_FOLDER": str(tmp_path / "shop"),
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def atmem(*arguments, **options):
    return CliRunner().invoke(main, list(arguments), obj=OVERRIDES, **options)


def test_a_newcomer_who_types_the_readme_cancels_one_order(town, variables, tmp_path, capsys):
    name = f"talk-{secrets.token_hex(4)}"
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.entry", *WORKER], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        assert "Running order_support" in worker.stderr.readline()
        assert talk.main(["--thread", name, "Where is order 18?"]) == 0
        assert "Order 18 (two cups) is packed." in capsys.readouterr().out
        assert talk.main(["--thread", name, "Please cancel order 17."], answer=lambda _question: "y") == 0
        assert "Order 17 is cancelled." in capsys.readouterr().out
    finally:
        worker.send_signal(signal.SIGTERM)
        ended = worker.wait(timeout=PATIENCE_S)
        rest = worker.stderr.read()
        worker.stderr.close()
    assert (ended, rest) == (0, "")
    assert [each["order"] for each in Records(tmp_path / "shop" / "cancellations.jsonl").all()] == ["17"]

    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    listed = atmem("threads", "list", "--all", "--json", "--password-file", str(password))
    assert listed.exit_code == 0, listed.output
    (thread,) = [each for each in json.loads(listed.stdout)["threads"] if each["name"] == name]
    shown = atmem("threads", "show", thread["thread_id"], "--password-file", str(password))
    assert "user: Please cancel order 17." in shown.stdout
    assert "[cancel_order] ok" in shown.stdout
    assert re.search(r"^cred:crd_[0-9a-f]+ approved: cancel_order$", shown.stdout, re.MULTILINE)
    rows = atmem("threads", "list", "--all", "--password-file", str(password)).stdout.splitlines()
    assert ["shop for ann" in row for row in rows if name in row] == [True]


def test_a_thread_that_wants_somebody_needs_a_person_in_the_status(town, monkeypatch):
    monkeypatch.setenv("ATMEM_INSTANCE", str(town.folder))
    before = json.loads(atmem("status", "--json").stdout)["threads"]["needs_attention"]
    hand = town.by_hand()
    with town.talker() as client:
        client.message(hand.thread(client), "Anything.")
    hand.write(hand.claim(), "fail", reason="failed", message="It could not.")

    told = atmem("status").stdout

    assert json.loads(atmem("status", "--json").stdout)["threads"]["needs_attention"] == before + 1
    assert "nothing goes on until somebody resumes or stops it" in told
    assert "They are listed by: atmem threads list --all --state needs_attention" in told
    assert "Nothing needs a person." not in told


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("nowhere_at_all:agent", "cannot be imported"),
        ("examples.order_support.agent:nobody", "has no agent nobody"),
        ("examples.order_support.agent", "module:agent"),
    ],
)
def test_a_worker_without_its_agents_says_which(variables, named, said):
    ended = atmem("threads", "worker", named)
    assert ended.exit_code != 0
    assert said in ended.stderr


def test_a_worker_without_a_credential_says_how_to_make_one(variables, monkeypatch):
    monkeypatch.delenv("ATMEM_THREADS_TOKEN")
    ended = atmem(*WORKER)
    assert ended.exit_code == 2
    assert "atmem continuity credential --thread-worker" in ended.stderr


def test_governed_tools_without_a_coordinator_are_refused_before_anything_runs(variables, monkeypatch):
    monkeypatch.delenv("ATMEM_EVIDENCE_TOKEN")
    ended = atmem(*WORKER)
    assert ended.exit_code == 2
    assert "ATMEM_EVIDENCE_TOKEN is not set" in ended.stderr
    assert "--coordinator" in ended.stderr


def test_a_credential_of_another_kind_is_named_before_anything_runs(variables, monkeypatch):
    monkeypatch.setenv("ATMEM_THREADS_TOKEN", variables["ATMEM_EVIDENCE_TOKEN"])
    ended = atmem(*WORKER)
    assert ended.exit_code == 2
    assert "ATMEM_THREADS_TOKEN holds a credential of the kind coordinator" in ended.stderr
    monkeypatch.setenv("ATMEM_THREADS_TOKEN", variables["ATMEM_THREADS_TOKEN"][:-1])
    assert "mistyped, or cut off" in atmem(*WORKER).stderr


def test_a_credential_that_does_not_name_the_agent_says_which_and_what_to_do(town, variables, monkeypatch):
    monkeypatch.setenv("ATMEM_THREADS_TOKEN", town.worker_token("somebody_else"))
    ended = atmem(*WORKER)
    assert ended.exit_code == 1
    assert "ATMEM_THREADS_TOKEN does not name all of these agents: order_support" in ended.stderr
    assert "--agents order_support" in ended.stderr


def test_a_worker_without_its_server_says_where_it_looked(variables):
    ended = atmem(*WORKER, "--url", "http://127.0.0.1:1")
    assert ended.exit_code == 1
    assert "http://127.0.0.1:1 was not reached" in ended.stderr
    assert "--url or ATMEM_URL" in ended.stderr


def test_threads_are_listed_a_page_at_a_time_and_a_question_says_where_it_is_answered(town, variables, tmp_path):
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    asking = town.by_hand()
    thread = asking.thread(ann := town.talker())
    ann.message(thread, "Well?")
    asked = {"task": "t", "ordinal": 0, "kind": "approval", "shown": {"tool": "pay"}, "schema": {"type": "boolean"}}
    asking.write(asking.claim(), "wait", requests=[asked])
    asking.thread(ann)
    given = ("--all", "--password-file", str(password))

    first = atmem("threads", "list", "--limit", "1", *given)
    cursor = first.stderr.split("--cursor ")[1].strip()
    assert thread not in first.stdout
    assert thread in atmem("threads", "list", "--cursor", cursor, *given).stdout

    shown = atmem("threads", "show", thread, *given[1:])
    assert 'Questions   {"tool": "pay"}' in shown.stdout
    assert f"{town.url}/threads/{thread}" in shown.stderr


def test_the_talking_program_says_what_is_missing(town, variables, monkeypatch, capsys):
    monkeypatch.setattr(talk, "NAME", "nobody_runs_this")
    assert talk.main(["--thread", "monday", "Where is order 18?"]) == 1
    assert "Nobody runs nobody_runs_this yet" in capsys.readouterr().err
    monkeypatch.delenv("ORDER_SUPPORT_TOKEN")
    assert talk.main(["--thread", "monday", "Where is order 18?"]) == 2
    assert "--application" in capsys.readouterr().err


def test_what_needs_an_extra_names_the_package_that_is_missing():
    script = (
        "import sys; sys.modules['langgraph'] = None\n"
        "from continuity.threads import ThreadClient, WorkerClient\n"
        "try:\n    from continuity.threads import define_agent\n"
        "except ImportError as error:\n    print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "define_agent needs langgraph" in found.stdout
    assert "[threads]" in found.stdout


def test_the_client_loads_neither_langgraph_nor_the_server():
    script = (
        "import sys; from continuity.threads import ThreadClient\n"
        "names = ('langgraph', 'langchain_core', 'pydantic', 'flask', 'sqlalchemy')\n"
        "print([name for name in names if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_worker_that_is_killed_leaves_the_talk_to_the_next(town, variables, capsys):
    name = f"talk-{secrets.token_hex(4)}"
    ann = town.talker()
    first = subprocess.Popen(
        [sys.executable, "-m", "tests.entry", *WORKER], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    first.stderr.readline()
    thread = ann.create(name, NAME)["thread_id"]
    ann.message(thread, "Please cancel order 17.")
    wait_for(lambda: ann.snapshot(thread)["thread"]["state"] == "waiting")
    first.kill()
    first.wait()
    first.stderr.close()
    second = subprocess.Popen(
        [sys.executable, "-m", "tests.entry", *WORKER], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        assert talk.main(["--thread", name], answer=lambda _question: "yes") == 0
        assert "Order 17 is cancelled." in capsys.readouterr().out
    finally:
        second.terminate()
        second.wait(timeout=PATIENCE_S)
        second.stderr.close()
