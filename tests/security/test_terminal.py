"""Secrets at a terminal: none is an argument, none is echoed, none is repeated when something fails (K01, K02, N01)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from app.cli import main
from tests.cli.commands import PASSWORD, Terminal
from tests.servers import ROOT, environment

SECRET = re.compile(r"passphrase|password|token|secret|(?<!\w)key(?!\w)|credential", re.IGNORECASE)
NAMES_ONLY = {"token_env", "token_variable", "workflow_key", "key"}
"""Options that hold the name of a variable, or a key that is no secret."""


def parameters(command=main, path=()):
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from parameters(command.get_command(context, name), (*path, name))
    for parameter in command.params:
        yield " ".join(path), parameter


def test_no_secret_can_be_given_as_an_argument():
    found = [
        (command, parameter.name)
        for command, parameter in parameters()
        if SECRET.search(str(parameter.name).replace("_", " "))
        and parameter.name not in NAMES_ONLY
        and not isinstance(parameter.type, click.File)
        and not getattr(parameter, "is_flag", False)
        and not isinstance(parameter.type, click.Path)
    ]

    assert found == []
    assert len(list(parameters())) > 60


@pytest.fixture
def terminal(shared_server, tmp_path):
    return Terminal(shared_server, tmp_path) if not PREPARED else _again(shared_server, tmp_path)


PREPARED: list[str] = []


def _again(server, folder):
    made = Terminal.__new__(Terminal)
    made.server, made.folder, made.variables = server, folder, {}
    made.password_file = folder / "password"
    made.password_file.write_text(f"{PASSWORD}\n")
    return made


def test_neither_password_nor_token_is_in_the_arguments_of_a_command_or_of_its_children(terminal):
    PREPARED.append("the password is chosen")
    command = ["continuity", "credential", "--principal", "seen", *terminal.as_person(), "--token-only"]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.entry", *command, "--url", terminal.server.url], cwd=ROOT, text=True,
        env=environment(terminal.server.instance.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        seen = set()
        while process.poll() is None:
            for each in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(each.read_bytes())
                except OSError:
                    continue
        token, said = process.communicate()

    assert re.fullmatch(r"atm_o_\S+\n", token), said
    arguments = b"".join(seen)
    assert PASSWORD.encode() not in arguments
    assert token.strip().encode() not in arguments


@pytest.mark.parametrize(
    "command",
    [["continuity", "list"], ["continuity", "show", "wf_" + "0" * 32], ["continuity", "revoke", "nobody"],
     ["continuity", "enable", "wf_" + "0" * 32]],
    ids=" ".join,
)  # fmt: skip
def test_a_failure_repeats_no_credential(terminal, command):
    if not PREPARED:
        PREPARED.append("the password is chosen")
    token = "atm_o_" + "Q" * 43 + "_000000"
    terminal.variables = {"ATMEM_EVIDENCE_TOKEN": token}

    done = terminal.here(*command)

    assert done.exit_code in {1, 2}
    assert "Q" * 16 not in done.output
    terminal.variables = {"ATMEM_EVIDENCE_TOKEN": f"{token}\n{token}"}
    assert "Q" * 16 not in terminal.here(*command).output
