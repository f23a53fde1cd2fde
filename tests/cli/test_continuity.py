"""`atmem continuity`: each command against the real server, as a person types it and as a script calls it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
import subprocess
import sys
import termios
import time
from contextlib import closing

import pytest

from continuity.client import ContinuityClient
from tests.cli.commands import PASSWORD, Terminal
from tests.patience import PATIENCE_S
from tests.sdk.stub_server import serving
from tests.servers import ROOT, environment

OPERATION = {"name": "publish", "tool": "files", "arguments": {"text": "hello"}}


@pytest.fixture(scope="module")
def shared_shell(shared_server, tmp_path_factory):
    return Terminal(shared_server, tmp_path_factory.mktemp("shell"))


@pytest.fixture
def shell(shared_shell):
    """The terminal, with no credential in its environment."""
    shared_shell.variables = {}
    return shared_shell


@pytest.fixture(scope="module")
def token(shared_shell):
    shared_shell.variables = {}
    return shared_shell.token("--principal", "cli-operator")


@pytest.fixture
def operator(shell, token):
    """The terminal with an operator's credential in the environment."""
    shell.variables = {"ATMEM_EVIDENCE_TOKEN": token}
    return shell


@pytest.fixture
def person(shell):
    """Run a command as the administrator, whatever credential is in the environment."""
    who = ("--username", "administrator", *shell.as_person())
    return lambda *arguments, **options: shell.here(*arguments, *who, **options)


@pytest.fixture
def work(operator, tmp_path, request):
    """Make a workflow by `create` and return its view."""

    def make(**over):
        path = tmp_path / "work.json"
        body = {"workflow_key": f"k-{time.time_ns()}", "operations": [OPERATION], **over}
        path.write_text(json.dumps(body))
        return operator.json("continuity", "create", "--file", str(path))

    return make


# --- Credentials ---


def test_token_only_prints_the_secret_and_nothing_else(person):
    done = person("continuity", "credential", "--principal", "only-a-token", "--token-only")

    assert done.exit_code == 0
    assert done.stdout.startswith("atm_o_")
    assert len(done.stdout.rstrip("\n")) == 56
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_credential_is_shown_with_what_it_is_for(person):
    done = person("continuity", "credential", "--principal", "shown", "--coordinator", "--workspace", "my-project")

    assert done.exit_code == 0
    assert "continuity_coordinator" in done.stdout
    assert "atm_c_" in done.stdout
    assert "shown this once" in done.stderr


def test_a_credential_for_a_workflow_is_a_workers_and_may_do_nothing_else(shell, work, person):
    workflow_id = work()["workflow_id"]
    issued = json.loads(
        person("continuity", "credential", workflow_id, "--principal", "narrow", "--expires", "2h", "--json").stdout
    )
    shell.variables = {"ATMEM_EVIDENCE_TOKEN": issued["token"]}

    assert issued["role"] == "continuity_host"
    assert issued["expires_at"] - time.time() == pytest.approx(7_200, abs=60)
    assert shell.here("continuity", "show", workflow_id).exit_code == 0
    refused = shell.here("continuity", "enable", workflow_id)
    assert refused.exit_code == 1
    for text in ("ATMEM_EVIDENCE_TOKEN", "of the kind worker", "--username", "atmem continuity credential"):
        assert text in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("expires", ["", "90", "0d", "d", "1w", "-1d", "1.5h"])
def test_an_expiry_that_cannot_be_read_is_wrong_usage(person, expires):
    done = person("continuity", "credential", "--principal", "p", "--expires", expires)

    assert done.exit_code == 2
    assert "--expires" in done.stderr


def test_work_that_does_not_open_is_told_with_what_finds_the_rest_of_the_damage(operator, work, shared_server):
    workflow_id = work()["workflow_id"]
    database = sqlite3.connect(shared_server.instance.folder / "continuity.db")
    with closing(database), database:
        database.execute(
            "UPDATE continuity_workflows SET sealed_head = zeroblob(60) WHERE workflow_id = ?", (workflow_id,)
        )

    shown, listed = operator.here("continuity", "show", workflow_id), operator.here("continuity", "list")

    assert shown.exit_code == 1
    assert "Nothing was changed." in shown.stderr
    assert "atmem vault check" in shown.stderr
    line = next(line for line in listed.stdout.splitlines() if workflow_id in line)
    assert "(unreadable, key 1)" in line
    assert "0 of 0" not in line


def test_an_expiry_beyond_a_year_is_refused_by_name(person):
    done = person("continuity", "credential", "--principal", "p", "--expires", "366d")

    assert done.exit_code == 2
    assert "--expires" in done.stderr
    assert "expires_in_seconds" not in done.stderr


def test_a_principal_of_another_kind_is_refused_by_the_name_of_the_option(person):
    person("continuity", "credential", "--principal", "one-kind")

    done = person("continuity", "credential", "--principal", "one-kind", "--coordinator", "--workspace", "default")

    assert done.exit_code == 1
    assert "--principal is known with another role or workspace; take another name. Nothing was changed." in done.stderr


@pytest.mark.parametrize(
    ("options", "advice"), [((), "not for the agent"), (("--coordinator", "--workspace", "w"), "agent reads")]
)
def test_a_token_is_handed_out_with_who_is_to_have_it(person, options, advice):
    done = person("continuity", "credential", "--principal", f"holder-{len(options)}", *options)

    assert advice in done.stderr


def test_a_coordinator_has_no_workflow(person):
    done = person("continuity", "credential", "wf_" + "0" * 32, "--principal", "p", "--coordinator")

    assert done.exit_code == 2


def test_a_revoked_credential_is_refused_from_the_next_call_on(shell, person):
    token = shell.token("--principal", "to-be-ended")
    revoked = person("continuity", "revoke", "to-be-ended")
    shell.variables = {"ATMEM_EVIDENCE_TOKEN": token}

    assert (revoked.exit_code, revoked.stdout) == (0, "Revoked: 1.\n")
    done = shell.here("continuity", "list")
    assert done.exit_code == 1
    for text in ("ATMEM_EVIDENCE_TOKEN", "expired, revoked or mistyped", "atmem continuity credential"):
        assert text in done.stderr


def test_revoking_nobody_is_a_clear_failure(person):
    done = person("continuity", "revoke", "never-there")

    assert (done.exit_code, done.stderr) == (1, "Error: There is no such principal. Nothing was changed.\n")


# --- Who asks ---


def test_a_password_that_can_be_nobodys_is_refused_and_no_wrong_usage(shell, tmp_path):
    (tmp_path / "long").write_text("x" * 500)

    done = shell.here("continuity", "list", "--username", "administrator", "--password-file", str(tmp_path / "long"))

    assert done.exit_code == 1, done.output
    assert done.stderr.count("\n") == 1


def test_a_wrong_password_is_one_clear_line(shell, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("not the password\n")

    done = shell.here("continuity", "list", "--username", "administrator", "--password-file", str(wrong))

    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "Error: Username or password is wrong.\n")


def test_the_password_may_come_from_standard_input(shell):
    done = shell.here("continuity", "list", "--json", "--password-file", "-", input=f"{PASSWORD}\n")

    assert done.exit_code == 0, done.output
    assert "workflows" in json.loads(done.stdout)


def test_without_a_terminal_and_a_file_there_is_nobody_to_ask(shell):
    done = shell.here("continuity", "list")

    assert done.exit_code == 2
    assert "--password-file" in done.stderr
    assert "ATMEM_EVIDENCE_TOKEN" in done.stderr


def test_a_person_is_asked_for_the_password_without_echo_and_the_output_is_clean(shell):
    controller, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.entry", "continuity", "credential", "--principal", "typed", "--token-only",
         "--url", shell.server.url],
        cwd=ROOT, env=environment(shell.server.instance.folder), stdin=terminal, stderr=terminal,
        stdout=subprocess.PIPE, start_new_session=True, text=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads in the child
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while b"Password of administrator" not in shown:
        shown += os.read(controller, 1_024)
    os.write(controller, f"{PASSWORD}\n".encode())
    stdout, _ = process.communicate(timeout=PATIENCE_S)
    os.close(controller)

    assert process.returncode == 0
    assert stdout.startswith("atm_o_")
    assert stdout.count("\n") == 1
    assert PASSWORD.encode() not in shown


def test_somebody_with_a_temporary_password_is_told_how_to_replace_it(shell, tmp_path):
    made = json.loads(shell.here("users", "create", "tom", "--json", server=False).stdout)
    temporary = tmp_path / "temporary"
    temporary.write_text(made["password"])

    done = shell.here("continuity", "list", "--username", "tom", "--password-file", str(temporary))

    assert done.exit_code == 1
    assert "atmem users change-password tom" in done.stderr
    assert made["password"] not in done.output


def test_a_named_person_is_asked_even_when_there_is_a_credential(operator):
    assert operator.here("continuity", "list").exit_code == 0
    assert operator.here("continuity", "list", "--username", "administrator").exit_code == 2


def test_another_variable_may_hold_the_credential(shell, token):
    shell.variables = {"MY_TOKEN": token}

    assert shell.here("continuity", "list", "--token-env", "MY_TOKEN").exit_code == 0


def test_a_command_leaves_no_session_behind(shell, person):
    from sqlalchemy import create_engine, text  # noqa: PLC0415

    assert person("continuity", "list").exit_code == 0

    engine = create_engine(f"sqlite:///{shell.server.instance.folder / 'continuity.db'}")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM auth_sessions")).scalar_one() == 0
    engine.dispose()


def test_a_server_that_is_not_there_is_one_clear_line(shell, token):
    shell.variables = {"ATMEM_EVIDENCE_TOKEN": token}

    done = shell.here("continuity", "list", "--url", "http://127.0.0.1:1", server=False)

    assert done.exit_code == 1
    for text in ("Error: http://127.0.0.1:1 was not reached", "Nothing was sent", "atmem serve", "--url", "ATMEM_URL"):
        assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_nobody_types_a_password_for_a_server_that_is_not_there(shell, monkeypatch):
    def ask(*_, **__):
        raise AssertionError("it asked")

    monkeypatch.setattr("click.prompt", ask)
    monkeypatch.setattr("app.cli.remote._has_terminal", lambda: True)

    done = shell.here("continuity", "list", "--url", "http://127.0.0.1:1", server=False)

    assert done.exit_code == 1
    assert "was not reached" in done.stderr


def test_an_error_for_a_script_is_json_with_its_code(operator):
    refused = operator.here("continuity", "show", "wf_" + "0" * 32, "--json")
    lost = operator.here("continuity", "list", "--json", "--url", "http://127.0.0.1:1", server=False)

    assert json.loads(refused.stderr)["error"]["code"] == "not_found"
    assert json.loads(lost.stderr)["error"]["code"] == "server_not_reached"
    assert refused.stdout == lost.stdout == ""


def test_a_credential_goes_to_no_plain_address_elsewhere(shell, token):
    shell.variables = {"ATMEM_EVIDENCE_TOKEN": token}

    done = shell.here("continuity", "list", "--url", "http://atmem.example", server=False)

    assert done.exit_code == 2
    assert "https" in done.stderr
    assert token not in done.output


@pytest.mark.parametrize("variable", ["ATMEM_EVIDENCE_TOKEN", "MY_TOKEN"])
def test_a_credential_that_is_none_is_named_by_its_variable(shell, variable):
    shell.variables = {variable: "atm_o_bogus"}

    done = shell.here("continuity", "list", "--token-env", variable)
    shell.variables = {variable: "with a space"}
    never_sent = shell.here("continuity", "list", "--token-env", variable)

    assert (done.exit_code, never_sent.exit_code) == (1, 2)
    assert f"The credential in {variable} is not valid" in done.stderr
    assert f"{variable}: The token must be" in never_sent.stderr


@pytest.mark.parametrize("address", ["foo", "http://example.com", "http://localhost:0", "ftp://localhost"])
def test_an_address_that_is_none_is_wrong_usage_that_names_where_it_was_given(shell, address):
    given = shell.here("continuity", "list", "--url", address, server=False)
    shell.variables = {"ATMEM_URL": address}
    exported = shell.here("continuity", "list", server=False)

    for done in (given, exported):
        assert done.exit_code == 2
        assert "--url" in done.stderr
        assert "ATMEM_URL" in done.stderr


def test_an_address_below_which_there_is_no_server_says_to_leave_its_path_out(shell, token):
    shell.variables = {"ATMEM_EVIDENCE_TOKEN": token}

    for command in (("list",), ("show", "wf_" + "0" * 32), ("list", "--username", "administrator", *shell.as_person())):
        done = shell.here("continuity", *command, "--url", f"{shell.server.url}/foo", server=False)

        assert done.exit_code == 1
        assert "leave the path out" in done.stderr
        assert "/foo" in done.stderr


@pytest.mark.parametrize("as_whom", ["credential", "person"])
def test_another_program_at_the_address_is_no_reason_to_think_that_anything_took_effect(shell, token, as_whom):
    def answer(handler, _seen):
        handler.send_response(200)
        handler.send_header("Content-Length", "2")
        handler.end_headers()
        handler.wfile.write(b"ok")

    shell.variables = {"ATMEM_EVIDENCE_TOKEN": token} if as_whom == "credential" else {}
    who = () if as_whom == "credential" else shell.as_person()
    with serving(answer) as other:
        wrong_kind = shell.here("continuity", "list", *who, "--url", other.url, server=False)
        wrong_scheme = shell.here(
            "continuity", "list", *who, "--url", other.url.replace("http:", "https:"), server=False
        )

    for done in (wrong_kind, wrong_scheme):
        assert done.exit_code == 1
        assert "http or https" in done.stderr
        assert "Nothing was changed" in done.stderr
        assert "unknown" not in done.stderr
        assert done.stderr.count("\n") == 1


def test_commands_find_the_server_of_their_own_instance(shell, token):
    shell.variables = {"ATMEM_EVIDENCE_TOKEN": token}

    assert shell.here("continuity", "list", server=False).exit_code == 0


# --- Work ---


def test_created_work_is_listed_shown_enabled_and_paused(operator, work):
    made = work()
    workflow_id = made["workflow_id"]

    enabled = operator.here("continuity", "enable", workflow_id)
    assert enabled.exit_code == 0
    assert "Recovery is enabled" in enabled.stdout
    listed = operator.json("continuity", "list", "--state", "ready", "--key", made["workflow_key"])["workflows"]
    assert [summary["workflow_id"] for summary in listed] == [workflow_id]
    assert operator.json("continuity", "disable", workflow_id)["enabled"] is False
    shown = operator.here("continuity", "show", workflow_id)
    for text in (workflow_id, made["workflow_key"], "publish", "files", '{"text": "hello"}', "paused", "cli-operator"):
        assert text in shown.stdout


def test_an_empty_list_says_so(operator):
    assert operator.here("continuity", "list", "--key", "never-used").stdout == "No workflows match.\n"


def test_creating_says_whether_it_was_there(operator, tmp_path):
    path = tmp_path / "work.json"
    path.write_text(json.dumps({"workflow_key": f"k-{time.time_ns()}", "operations": [OPERATION]}))

    first = operator.here("continuity", "create", "--file", str(path))
    again = operator.here("continuity", "create", "--file", str(path))

    assert first.stderr == "Created.\n"
    assert again.stderr == "It was there already; nothing was changed.\n"


def test_pausing_and_enabling_say_what_they_came_to(operator, work):
    workflow_id = work()["workflow_id"]

    assert "never enabled" in operator.here("continuity", "disable", workflow_id).stdout
    operator.here("continuity", "abandon", workflow_id, "--operation", "publish", "--reason", "No.", "--yes")
    before = operator.json("continuity", "show", workflow_id)
    for verb in ("enable", "disable"):
        done = operator.here("continuity", verb, workflow_id)
        assert "Nothing was changed: it is over." in done.stdout
        assert workflow_id in done.stdout
    assert operator.json("continuity", "show", workflow_id) == before


def test_what_finished_while_it_was_paused_can_still_be_enabled_for_its_saved_results(operator, work):
    made = work(activate=True)
    worker = operator.token(made["workflow_id"], "--principal", f"w-{time.time_ns()}")
    with ContinuityClient(operator.server.url, worker) as host:
        granted = host.begin(made["workflow_id"], "publish", run_id="r", attempt_id="a")
        operator.here("continuity", "disable", made["workflow_id"])
        receipt = {"outcome": "confirmed_succeeded", "operation_id": granted["operation_id"], "effect_id": "e"}
        host.outcome(
            made["workflow_id"], "publish", receipt={**receipt, "result": 1}, run_id="r", attempt_id="a",
            lease_token=granted["lease_token"],
        )  # fmt: skip
        done = operator.here("continuity", "enable", made["workflow_id"])

        assert "workers get the saved results" in done.stdout
        again = operator.here("continuity", "disable", made["workflow_id"])
        assert "Nothing was changed: it is over." in again.stdout
        assert host.begin(made["workflow_id"], "publish", run_id="s", attempt_id="b")["action"] == "completed"


def test_a_shown_workflow_says_why_it_stands_there_and_what_is_next(operator, work):
    workflow_id = work()["workflow_id"]

    waiting = operator.here("continuity", "show", workflow_id).stdout
    operator.here("continuity", "abandon", workflow_id, "--operation", "publish", "--reason", "Not wanted.", "--yes")
    stopped = operator.here("continuity", "show", workflow_id).stdout

    assert f"atmem continuity enable {workflow_id}" in waiting
    assert "Not wanted." in stopped
    assert "stopped for good, by cred:" in stopped


def test_stopping_work_under_way_says_how_long_it_is_held(operator, work):
    made = work(activate=True)
    worker = operator.token(made["workflow_id"], "--principal", f"w-{time.time_ns()}")
    with ContinuityClient(operator.server.url, worker) as host:
        assert host.begin(made["workflow_id"], "publish", run_id="r", attempt_id="a")["action"] == "execute"

    done = operator.here(
        "continuity", "abandon", made["workflow_id"], "--operation", "publish", "--reason", "No.", "--yes"
    )

    assert done.exit_code == 1
    assert re.search(r"for another \d+ s", done.stderr)


def test_the_list_for_a_person_is_a_table_that_says_how_to_go_on(operator, work):
    for _ in range(2):
        work()

    done = operator.here("continuity", "list", "--limit", "1")

    assert "workflow_id" in done.stdout
    cursor = done.stderr.partition("--cursor ")[2].strip()
    assert operator.here("continuity", "list", "--limit", "1", "--cursor", cursor).exit_code == 0


def test_a_person_controls_what_was_seen(person, work):
    workflow_id = work()["workflow_id"]

    enabled = person("continuity", "enable", workflow_id, "--json")
    stopped = person(
        "continuity", "abandon", workflow_id, "--operation", "publish", "--reason", "Not wanted.", "--yes", "--json"
    )

    assert json.loads(enabled.stdout)["enabled"] is True
    (operation,) = json.loads(stopped.stdout)["operations"]
    assert operation["status"] == "abandoned"


def test_creating_with_a_key_that_is_used_says_so(operator, work, tmp_path):
    made = work()
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"workflow_key": made["workflow_key"], "operations": [{**OPERATION, "tool": "other"}]}))

    done = operator.here("continuity", "create", "--file", str(path))

    assert done.exit_code == 1
    assert "another definition" in done.stderr
    assert done.stderr.endswith(" Nothing was changed.\n")


def test_a_definition_that_is_none_names_the_file_and_says_that_nothing_was_changed(operator, tmp_path):
    path = tmp_path / "work.json"
    path.write_text(json.dumps({"workflow_key": "k", "operations": []}))

    done = operator.here("continuity", "create", "--file", str(path))

    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {path}: ")
    assert done.stderr.endswith(" Nothing was changed.\n")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', '{"a": NaN}', "\ufeff{}"])
def test_a_file_that_is_not_the_json_of_a_request_is_refused_before_it_is_sent(operator, tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)

    done = operator.here("continuity", "create", "--file", str(path))

    assert done.exit_code == 1
    assert "broken.json" in done.stderr
    assert "Nothing was changed." in done.stderr


@pytest.mark.parametrize("workflow_id", ["wf_1", "", "../x", "WF_" + "0" * 32])
@pytest.mark.parametrize("verb", ["show", "enable", "delete"])
def test_a_workflow_id_of_another_form_is_wrong_usage(operator, verb, workflow_id):
    assert operator.here("continuity", verb, workflow_id).exit_code == 2


def test_an_unknown_workflow_is_one_clear_line(operator):
    done = operator.here("continuity", "show", "wf_" + "0" * 32)

    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "Error: There is no such workflow.\n")


def test_stopping_work_asks_first(operator, work):
    workflow_id = work()["workflow_id"]
    stop = ("continuity", "abandon", workflow_id, "--operation", "publish", "--reason", "No.")

    refused = operator.here(*stop, input="n\n")
    agreed = operator.here(*stop, input="y\n")

    assert (refused.exit_code, agreed.exit_code) == (1, 0)
    assert "Stop publish (pending) for good?" in refused.stderr
    assert agreed.stdout.startswith("Stopped publish of k-")
    assert workflow_id in agreed.stdout


def test_stopping_an_operation_that_is_not_there_names_those_that_are(operator, work):
    workflow_id = work()["workflow_id"]

    done = operator.here("continuity", "abandon", workflow_id, "--operation", "other", "--reason", "No.", "--yes")

    assert done.exit_code == 1
    assert "publish" in done.stderr


def test_deleting_asks_first_and_is_for_good(operator, work):
    made = work()
    workflow_id = made["workflow_id"]
    assert operator.here("continuity", "delete", workflow_id, "--yes").exit_code == 1
    operator.here("continuity", "abandon", workflow_id, "--operation", "publish", "--reason", "No.", "--yes")

    assert operator.here("continuity", "delete", workflow_id, input="n\n").exit_code == 1
    assert operator.here("continuity", "show", workflow_id).exit_code == 0
    assert operator.json("continuity", "delete", workflow_id, "--yes")["deleted"]["workflows"] == 1
    gone = operator.here("continuity", "show", workflow_id)
    assert (gone.exit_code, "deleted" in gone.stderr) == (1, True)


def test_confirming_shows_what_is_known_and_what_will_follow_and_asks(person, work):
    workflow_id = work()["workflow_id"]
    confirm = ("continuity", "confirm", workflow_id, "--operation", "publish", "--reason", "I looked.")

    refused = person(*confirm, "--did-not-happen", input="n\n")
    done = person(*confirm, "--happened", "--effect-id", "doc-7", "--result", '{"pages": 3}', input="y\n")

    assert refused.exit_code == 1
    assert '{"text": "hello"}' in refused.stdout
    assert "performed once more" in refused.stderr
    assert done.exit_code == 0, done.output
    assert "Confirmed: publish happened." in done.stdout
    (operation,) = json.loads(person("continuity", "show", workflow_id, "--json").stdout)["operations"]
    assert operation["assurance"] == "operator_attested"
    assert operation["receipt"]["effect_id"] == "doc-7"
    assert operation["receipt"]["result"] == {"pages": 3}


@pytest.mark.parametrize(
    "options",
    [
        (), ("--happened",), ("--did-not-happen", "--effect-id", "e"), ("--did-not-happen", "--result", "1"),
        ("--happened", "--effect-id", "e", "--result", "{"), ("--happened", "--effect-id", "e", "--result", '1,"x":2'),
    ],
)  # fmt: skip
def test_a_confirmation_that_says_nothing_clear_is_wrong_usage(person, options):
    done = person("continuity", "confirm", "wf_" + "0" * 32, "--operation", "o", "--reason", "r", *options)

    assert done.exit_code == 2


def test_confirming_is_for_people_alone(operator, work):
    """Whatever credential is in the environment, the command signs somebody in."""
    workflow_id = work()["workflow_id"]

    done = operator.here(
        "continuity", "confirm", workflow_id, "--operation", "publish", "--did-not-happen", "--reason", "r", "--yes"
    )

    assert done.exit_code == 2
    assert "--password-file" in done.stderr


def test_what_hosts_wrote_cannot_speak_to_the_terminal(operator, work):
    hostile = {**OPERATION, "arguments": {"text": "a\x1b[2J\u202eb"}}
    workflow_id = work(operations=[hostile])["workflow_id"]

    shown = operator.here("continuity", "show", workflow_id).stdout

    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    "verb",
    ["credential", "revoke", "create", "list", "show", "enable", "disable", "abandon", "confirm", "delete"],
)
def test_every_command_has_help_and_json(shell, verb):
    done = shell.here("continuity", verb, "--help", server=False)

    assert done.exit_code == 0
    assert "--json" in done.stdout
    assert "--url" in done.stdout
    assert "ATMEM_URL" in done.stdout
    for secret in ("--password ", "--token "):
        assert secret not in done.stdout
