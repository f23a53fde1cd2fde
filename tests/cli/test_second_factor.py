"""Commands that sign in over HTTP, as somebody who has a second factor."""

from __future__ import annotations

import pytest

from app.config import load_settings
from app.wiring import SystemClock, built
from tests.cli.commands import PASSWORD, Terminal
from tests.entry import OVERRIDES
from tests.second_factors import VISIT, App, forget_attempts, person


@pytest.fixture
def shell(running_server, tmp_path) -> Terminal:
    return Terminal(running_server, tmp_path)


@pytest.fixture
def app(shell) -> App:
    """The administrator's authenticator app."""
    settings = load_settings({"ATMEM_INSTANCE": str(shell.server.instance.folder)})
    with built(settings, overrides=OVERRIDES) as wiring:
        who = person(wiring.auth, "administrator", PASSWORD)
        made = App(wiring.auth.second_factors.start(who, visit=VISIT).secret, SystemClock())
        done = wiring.auth.second_factors.confirm(who, made.code(steps=-1), visit=VISIT)
        forget_attempts(wiring.store)
    made.recovery_codes = done.codes
    return made


def credential(shell, *options):
    return shell.here("continuity", "credential", "--principal", "document-operator", "--token-only", *options)


def test_the_second_line_of_the_password_file_is_the_code(shell, app):
    shell.password_file.write_text(f"{PASSWORD}\n{app.recovery_codes[0]}\n")

    first, again = credential(shell, *shell.as_person()), credential(shell, *shell.as_person())

    assert first.stdout.startswith("atm_o_")
    assert again.exit_code == 1
    assert "The code is wrong, or was used already." in again.stderr


def test_without_one_and_without_a_terminal_it_says_where_to_put_it(shell, app):
    refused = credential(shell, *shell.as_person())

    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "administrator has a second factor: give its code as the second line of --password-file." in refused.stderr


def test_at_a_terminal_it_is_asked_for_without_echo(shell, app, monkeypatch):
    asked = []
    monkeypatch.setattr("app.cli.remote._has_terminal", lambda: True)
    monkeypatch.setattr(
        "click.prompt",
        lambda text, **options: (asked.append((text, options["hide_input"], options["err"])), answers[text])[1],
    )
    answers = {"Password of administrator": PASSWORD, "Code of the second factor": app.code()}

    done = credential(shell)

    assert done.stdout.startswith("atm_o_")
    assert asked == [("Password of administrator", True, True), ("Code of the second factor", True, True)]


def test_a_second_line_is_no_concern_of_whoever_has_none(shell):
    shell.password_file.write_text(f"{PASSWORD}\nanything at all, {'x' * 200}\n")

    assert credential(shell, *shell.as_person()).stdout.startswith("atm_o_")


def test_an_administrator_whom_the_policy_holds_is_told_so(shell):
    shell.here("users", "require-second-factor", "on", server=False)

    refused = credential(shell, *shell.as_person())

    assert refused.exit_code == 1
    assert "Set up a second factor first: Account, Second factor." in refused.stderr
