"""The command line of the example, against a server that answers as a test says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from continuity.example import main
from tests.sdk.scripts import OPERATION, TOKEN, WORKFLOW, accepted, blocked, completed, granted, refused, world
from tests.sdk.stub_server import serving

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("ATMEM_URL", "ATFLOWS_CONTINUITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ATMEM_EVIDENCE_TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# Mine\n")


def prepared(there, capsys):
    """Prepare, and return what was printed and the operation that was sent."""
    status = main([
        "prepare", "--workflow-key", "publish-my-document", "--document", "README.md", "--output", "./published",
        "--url", there.server.url,
    ])  # fmt: skip
    assert status == 0
    return json.loads(capsys.readouterr().out), there.server.seen[-1].body


def creating(handler, seen):
    handler.reply({"workflow_id": WORKFLOW, "enabled": False})


def granting(mode, operation):
    return granted(mode, tool=operation["tool"], arguments=operation["arguments"])


def run(there, *more, output="./published"):
    return main(["run", "--workflow-id", WORKFLOW, "--output", output, "--url", there.server.url, *more])


def test_prepare_defines_the_work_and_says_what_comes_next(capsys, tmp_path):
    with world(others=creating) as there:
        printed, body = prepared(there, capsys)

    assert printed["workflow_id"] == WORKFLOW
    assert WORKFLOW in printed["next"]
    assert printed["output"] == str(tmp_path / "published")
    assert printed["bytes"] == 7
    assert body["workflow_key"] == "publish-my-document"
    assert "activate" not in body
    (operation,) = body["operations"]
    assert operation["capability"] == "query"
    assert operation["arguments"]["output"] == str(tmp_path / "published")


@pytest.mark.parametrize(
    ("phase", "advice"),
    [
        ("review", "Review"), ("paused", "paused"), ("ready", "enabled"), ("done", "published already"),
        ("ended", "New work needs a new"), ("decision", "atmem continuity show"),
    ],
)  # fmt: skip
def test_preparing_work_that_exists_says_what_is_next_for_it(phase, advice, capsys):
    def existing(handler, _seen):
        handler.reply({"workflow_id": WORKFLOW, "enabled": phase != "review", "phase": phase})

    with world(others=existing) as there:
        printed, _ = prepared(there, capsys)

    assert advice in printed["next"]
    assert phase == "review" or "Review the work" not in printed["next"]


@pytest.mark.parametrize(("phase", "advice"), [("ended", "will not run"), ("paused", "paused"), ("review", "Review")])
def test_running_work_that_is_not_enabled_says_which_of_the_reasons_it_is(phase, advice, capsys):
    view = {"workflow_id": WORKFLOW, "phase": phase}
    disabled = blocked("workflow_disabled_or_capture_unavailable")

    with world(begin=[disabled], view=lambda _seen: view) as there:
        assert run(there) == 2

    assert advice in json.loads(capsys.readouterr().out)["next"]


@pytest.mark.parametrize("refusal", [refused(409, "definition_conflict"), refused(401, "unauthenticated")])
def test_a_refused_prepare_leaves_no_directory_behind(refusal, tmp_path):
    with world(others=refusal) as there:
        status = main([
            "prepare", "--workflow-key", "k", "--document", "README.md", "--output", "new", "--url", there.server.url,
        ])  # fmt: skip

    assert status == 1
    assert not (tmp_path / "new").exists()


def test_an_output_directory_that_cannot_be_made_spends_no_workflow_key(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")

    with world(others=creating) as there:
        status = main([
            "prepare", "--workflow-key", "k", "--document", "README.md", "--output", "file/deep/er",
            "--url", there.server.url,
        ])  # fmt: skip

        assert there.server.seen == []
    assert status == 1
    assert capsys.readouterr().err.endswith("Not a directory.\n")


def test_a_refused_prepare_keeps_a_directory_that_was_there(tmp_path):
    (tmp_path / "mine").mkdir()

    with world(others=refused(409, "definition_conflict")) as there:
        main([
            "prepare", "--workflow-key", "k", "--document", "README.md", "--output", "mine/new/er",
            "--url", there.server.url,
        ])  # fmt: skip

    assert list((tmp_path / "mine").iterdir()) == []


def test_an_accepted_prepare_makes_the_directory(capsys, tmp_path):
    with world(others=creating) as there:
        prepared(there, capsys)

    assert (tmp_path / "published").is_dir()


def test_run_publishes_and_prints_the_result_and_running_again_prints_the_same(capsys, tmp_path):
    with world(others=creating) as there:
        _, body = prepared(there, capsys)
    (operation,) = body["operations"]

    with world(begin=[granting("execute", operation)], outcome=[accepted()]) as there:
        assert run(there) == 0
        first = capsys.readouterr().out
        (receipt,) = there.receipts()
    with world(begin=[completed(receipt)]) as there:
        assert run(there) == 0
        assert capsys.readouterr().out == first

    result = json.loads(first)["result"]
    assert Path(result["path"]).read_text() == "# Mine\n"
    assert [path.name for path in (tmp_path / "published").iterdir()] == [f"{OPERATION}.md"]


def test_another_output_directory_is_refused_before_the_effect(capsys, tmp_path):
    with world(others=creating) as there:
        _, body = prepared(there, capsys)
    (operation,) = body["operations"]

    with world(begin=[granting("execute", operation)], outcome=[accepted("pending")]) as there:
        assert run(there, output="./elsewhere") == 2

        assert there.receipts()[0]["outcome"] == "not_dispatched"
    printed = json.loads(capsys.readouterr().out)
    assert printed["stopped_safely"] == "not_dispatched"
    # Reviewed and given, so that the operator need not look for either.
    assert printed["because"] == (
        f"The output directory that was reviewed is {tmp_path / 'published'}, and this one is {tmp_path / 'elsewhere'}."
    )
    assert printed["next"]
    assert not (tmp_path / "elsewhere").exists()
    assert list((tmp_path / "published").iterdir()) == []


def test_an_output_directory_that_is_gone_is_named_with_what_to_do(capsys, tmp_path):
    with world(others=creating) as there:
        _, body = prepared(there, capsys)
    (tmp_path / "published").rmdir()

    with world(begin=[granting("execute", body["operations"][0])], outcome=[accepted("pending")]) as there:
        assert run(there) == 2

    assert f"make {tmp_path / 'published'}" in json.loads(capsys.readouterr().out)["because"]


def test_a_stop_says_why_and_what_is_next_and_exits_2(capsys):
    with world(begin=[blocked("attempt_in_progress", lease_until=2_000_000_000)]) as there:
        assert run(there) == 2

    printed = json.loads(capsys.readouterr().out)
    assert printed["stopped_safely"] == "attempt_in_progress"
    assert printed["next"]
    assert printed["lease_until"] == 2_000_000_000
    assert printed["page"].endswith(WORKFLOW)


def test_a_receipt_that_nobody_takes_is_a_safe_stop_too(capsys):
    with world(others=creating) as there:
        _, body = prepared(there, capsys)

    with world(
        begin=[granting("execute", body["operations"][0])], outcome=[refused(401, "unauthenticated")]
    ) as there:  # fmt: skip
        assert run(there) == 2

    assert json.loads(capsys.readouterr().out)["stopped_safely"] == "outcome_not_recorded"


def test_a_refusal_is_one_line_on_standard_error_and_exits_1(capsys):
    with world(others=refused(409, "definition_conflict")) as there:
        status = main([
            "prepare", "--workflow-key", "k", "--document", "README.md", "--output", "o", "--url", there.server.url,
        ])  # fmt: skip

    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert said.err.startswith("Error: definition_conflict: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["prepare", "--workflow-key", "k", "--document", "missing.md", "--output", "o"], 1, "missing.md"),
        (["prepare", "--workflow-key", "k", "--document", "big.md", "--output", "o"], 1, "document"),
        (["run", "--workflow-id", "not an id", "--output", "o"], 2, "--workflow-id"),
        (["run", "--workflow-id", WORKFLOW, "--output", "o", "--url", "http://evil.example"], 2, "--url"),
        (["run", "--workflow-id", WORKFLOW, "--output", "o", "--url", "foo"], 2, "ATMEM_URL"),
        (
            ["run", "--workflow-id", WORKFLOW, "--output", "o", "--atflows-url", "http://127.0.0.1:1"],
            2, "ATFLOWS_CONTINUITY_TOKEN",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_it(arguments, status, named, capsys, tmp_path):
    (tmp_path / "big.md").write_bytes(b"x" * 200_000)

    assert main(arguments) == status

    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("Error: ")
    assert named in said.err
    assert "Errno" not in said.err
    assert said.out == ""


def test_a_missing_document_and_a_wrong_id_are_named(capsys):
    main(["prepare", "--workflow-key", "k", "--document", "missing.md", "--output", "o"])
    main(["run", "--workflow-id", "wf_none", "--output", "o"])

    missing, wrong = capsys.readouterr().err.splitlines()
    assert missing == "Error: missing.md: No such file or directory."
    assert "32 hexadecimal digits" in wrong


def test_a_server_that_is_not_there_is_named_with_what_to_do(capsys):
    assert main(["run", "--workflow-id", WORKFLOW, "--output", "o", "--url", "http://127.0.0.1:1"]) == 1

    said = capsys.readouterr().err
    for text in ("http://127.0.0.1:1", "Nothing was sent", "atmem serve", "--url", "ATMEM_URL"):
        assert text in said


def test_help_names_the_variables(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])

    assert "ATMEM_EVIDENCE_TOKEN" in capsys.readouterr().out


def test_without_a_credential_nothing_is_sent(capsys, monkeypatch):
    monkeypatch.delenv("ATMEM_EVIDENCE_TOKEN")

    with world(begin=[completed()]) as there:
        assert run(there) == 2
        monkeypatch.setenv("ATMEM_EVIDENCE_TOKEN", "two words")
        assert run(there) == 2

        assert there.server.seen == []
    assert capsys.readouterr().err.count("ATMEM_EVIDENCE_TOKEN") == 2


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [(401, "unauthenticated", "expired, revoked or mistyped"), (403, "forbidden", "of the kind worker")],
)
def test_a_credential_that_is_refused_is_named_by_its_variable(status, code, said, capsys, monkeypatch):
    monkeypatch.setenv("ATMEM_EVIDENCE_TOKEN", "atm_w_something")
    with world(others=refused(status, code)) as there:
        done = main([
            "prepare", "--workflow-key", "k", "--document", "README.md", "--output", "o", "--url", there.server.url,
        ])  # fmt: skip

    line = capsys.readouterr().err
    assert done == 1
    assert line.startswith(f"Error: {code}: The credential in ATMEM_EVIDENCE_TOKEN")
    assert said in line


@pytest.mark.parametrize("arguments", [[], ["run"], ["publish"], ["run", "--workflow-id", WORKFLOW]])
def test_wrong_usage_exits_2(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2


def test_the_address_comes_from_the_environment_if_it_is_not_given(monkeypatch, capsys):
    with world(begin=[completed()]) as there:
        monkeypatch.setenv("ATMEM_URL", there.server.url)

        assert main(["run", "--workflow-id", WORKFLOW, "--output", "o"]) == 0


def test_attempts_are_reported_to_atflows_and_its_failure_changes_nothing(monkeypatch, capsys):
    monkeypatch.setenv("ATFLOWS_CONTINUITY_TOKEN", "t" * 40)
    with world(others=creating) as there:
        _, body = prepared(there, capsys)
    (operation,) = body["operations"]
    view = {"operations": [{"name": "publish", "status": "pending", "attempts": []}]}

    with serving(lambda handler, _seen: handler.refuse(503, "storage_unavailable")) as atflows:
        with world(
            begin=[granting("execute", operation)], outcome=[accepted()], view=lambda _seen: view
        ) as there:  # fmt: skip
            assert run(there, "--atflows-url", atflows.url) == 0
        assert [seen.body["event"] for seen in atflows.seen] == ["execute", "completed"]

    printed = json.loads(capsys.readouterr().out)
    assert printed["observation_errors"] == {"storage_unavailable": 2}
    assert "Nothing needs to be put right" in printed["observation_next"]


@pytest.mark.parametrize(
    ("answer", "code", "step"),
    [
        (lambda handler, _seen: handler.refuse(401, "unauthenticated"), "unauthenticated", "--observer --scope SCOPE"),
        (lambda handler, _seen: handler.refuse(403, "forbidden"), "forbidden", "--observer --scope SCOPE"),
        (lambda handler, _seen: handler.hang_up(), "transport_error", "--atflows-url is the address"),
        (lambda handler, _seen: handler.refuse(409, "event_conflict"), "event_conflict", "log of the server"),
    ],
)  # fmt: skip
def test_of_attempts_that_are_not_reported_the_code_and_a_next_step_are_said(monkeypatch, capsys, answer, code, step):
    monkeypatch.setenv("ATFLOWS_CONTINUITY_TOKEN", "t" * 40)
    with world(others=creating) as there:
        _, body = prepared(there, capsys)
    (operation,) = body["operations"]
    view = {"operations": [{"name": "publish", "status": "pending", "attempts": []}]}

    with serving(answer) as atflows, world(
        begin=[granting("execute", operation)], outcome=[accepted()], view=lambda _seen: view
    ) as there:  # fmt: skip
        assert run(there, "--atflows-url", atflows.url) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed["observation_errors"] == {code: 2}
    assert step in printed["observation_next"]


def test_it_runs_as_a_module_and_keeps_the_token_out_of_what_it_prints(tmp_path):
    with world(begin=[completed()]) as there:
        ended = subprocess.run(
            [sys.executable, "-m", "continuity.example", "run", "--workflow-id", WORKFLOW, "--output", "o",
             "--url", there.server.url],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["result"] == {"url": "there"}
    assert TOKEN not in ended.stdout + ended.stderr
