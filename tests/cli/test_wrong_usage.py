"""Wrong usage ends with 2, whoever finds it out; what is refused or amiss ends with 1."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from app.cli import main
from tests.entry import OVERRIDES


@pytest.fixture
def run(fresh_instance):
    """Run ``atmem …`` on a fresh instance, with more variables; the result is click's."""

    def run(*arguments: str, **variables: str):
        environment = {"ATMEM_INSTANCE": str(fresh_instance.folder), "ATMEM_DATABASE_URL": None, **variables}
        return CliRunner(env=environment).invoke(main, arguments, obj=OVERRIDES)

    return run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ATFLOWS_CONTINUITY_TOKEN", "short"),
        ("ATFLOWS_CONTINUITY_SCOPE", "b ad"),
        ("ATMEM_REQUESTS_PER_SECOND", "abc"),
        ("ATMEM_EVENTS_PER_SECOND", "abc"),
        ("ATMEM_TRUSTED_HOSTS", "http://a"),
        ("ATMEM_DATABASE_URL", "mysql://x/y"),
        ("ATMEM_VAULT_KEY", "abc"),
        ("ATMEM_URL", "nonsense"),
    ],
)
@pytest.mark.parametrize("command", [("status",), ("serve",), ("users", "list")])
def test_a_variable_that_cannot_be_what_it_is_is_wrong_usage(run, command, name, value):
    done = run(*command, **{name: value})

    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"Error: {name}: ")
    assert done.stderr.count("\n") == 1


def test_a_wrong_variable_is_still_an_object_for_a_script(run):
    done = run("status", "--json", ATMEM_URL="nonsense")

    assert (done.exit_code, json.loads(done.stderr)["error"]["code"]) == (2, "settings")


@pytest.mark.parametrize("command", [("status",), ("users", "list"), ("observations", "export")])
def test_an_instance_that_is_not_there_is_a_failure_and_no_wrong_usage(run, command, tmp_path):
    done = run(*command, ATMEM_INSTANCE=str(tmp_path / "none"))

    assert (done.exit_code, "is not there" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("continuity", "credential", "--principal", "p", "--observer", "--scope", "b ad"), "--scope"),
        (("observations", "export", "--scope", "b ad"), "--scope"),
        (("observations", "export", "--otlp", "not-a-url"), "--otlp"),
        (("users", "create", "Bad Name"), "username must be"),
        (("users", "create", "ada", "--workspace", "b ad"), "workspace must be"),
    ],
)
def test_an_option_that_cannot_be_what_it_is_is_wrong_usage(run, command, named):
    done = run(*command)

    assert done.exit_code == 2, done.output
    assert named in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("passwords", ["wrong\nshort\n", f"{'x' * 200}\nfive green doors open slowly\n"])
def test_what_a_password_file_holds_is_no_wrong_usage(run, tmp_path, passwords):
    (tmp_path / "passwords").write_text(passwords)

    done = run("users", "change-password", "administrator", "--password-file", str(tmp_path / "passwords"))

    assert done.exit_code == 1, done.output
