"""`atmem users`: accounts, on the host."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from app.cli import main
from app.config import load_settings
from app.wiring import SystemClock, built
from tests.entry import OVERRIDES
from tests.second_factors import VISIT, App, person

OLD = "bright otter sails north"
NEW = "five green doors open slowly"
ABSENT = "There is no account nobody; `atmem users list` shows those that there are. Nothing was changed."


@pytest.fixture
def users(fresh_instance):
    """Run ``atmem users …`` on a fresh instance; the result is click's."""

    def run(*arguments: str, given: str | None = None, exit_code: int = 0):
        runner = CliRunner(env={"ATMEM_INSTANCE": str(fresh_instance.folder), "ATMEM_DATABASE_URL": None})
        result = runner.invoke(main, ["users", *arguments], obj=OVERRIDES, input=given)
        assert result.exit_code == exit_code, result.output
        return result

    return run


def listed(users) -> dict[str, dict]:
    return {line["username"]: line for line in json.loads(users("list", "--json").stdout)["users"]}


def test_an_account_is_made_with_a_temporary_password(users):
    made = json.loads(users("create", "ada", "--workspace", "north", "--workspace", "south", "--json").stdout)

    assert made["username"] == "ada"
    assert made["password_change_required"] is True
    assert len(made["password"]) == 20
    ada = listed(users)["ada"]
    assert (ada["role"], ada["workspaces"], ada["enabled"]) == ("operator", ["north", "south"], True)
    assert made["password"] not in users("list", "--json").stdout


def test_without_a_workspace_it_is_the_default_one(users):
    users("create", "ada", "--role", "investigator")

    assert listed(users)["ada"]["workspaces"] == ["default"]
    assert listed(users)["ada"]["role"] == "investigator"


def test_people_read_a_table_and_the_password_stands_alone_on_its_line(users):
    made = users("create", "ada")

    assert made.stdout.startswith("Username  ada\nPassword  ")
    assert "temporary" in made.stderr
    table = users("list").stdout
    assert "must change password" in table
    assert "administrator" in table


def test_a_temporary_password_is_replaced_from_a_file_of_two_lines(users):
    temporary = json.loads(users("create", "ada", "--json").stdout)["password"]

    users("change-password", "ada", "--password-file", "-", given=f"{temporary}\n{OLD}\n")
    users("change-password", "ada", "--password-file", "-", given=f"{OLD}\n{NEW}")

    assert listed(users)["ada"]["password_change_required"] is False


def test_a_password_may_have_what_other_programs_take_for_the_end_of_a_line(users):
    temporary = json.loads(users("create", "ada", "--json").stdout)["password"]
    strange = "lantern\u2028harbour\x85window\x0b92"

    users("change-password", "ada", "--password-file", "-", given=f"{temporary}\n{strange}\n")
    users("change-password", "ada", "--password-file", "-", given=f"{strange}\r\n{NEW}\r\n")

    assert listed(users)["ada"]["password_change_required"] is False


@pytest.mark.parametrize("given", ["", "one line\n", "a\nb\n123456\nc\n"])
def test_a_password_file_that_has_not_two_lines_or_three_is_refused(users, given):
    users("change-password", "administrator", "--password-file", "-", given=given, exit_code=2)


def test_a_password_file_that_is_not_utf_8_is_refused(users):
    result = users("change-password", "administrator", "--password-file", "-", given=b"\xff\n\xff\n", exit_code=2)

    assert "UTF-8" in result.stderr


def test_without_a_terminal_and_without_a_file_nothing_is_asked(users):
    assert "--password-file" in users("change-password", "administrator", exit_code=2).stderr


def test_a_wrong_current_password_is_one_clear_line(users):
    result = users("change-password", "administrator", "--password-file", "-", given=f"{OLD}\n{NEW}\n", exit_code=1)

    assert result.stderr == "Error: Username or password is wrong.\n"
    assert result.stdout == ""


def test_no_password_can_be_given_as_an_argument(users):
    for command in ("create", "reset-password", "change-password", "recover-administrator"):
        assert "no such option" in users(command, "ada", "--password", NEW, exit_code=2).stderr.lower()


def test_role_and_state_are_changed(users):
    users("create", "ada")

    assert json.loads(users("set-role", "ada", "investigator", "--json").stdout)["role"] == "investigator"
    assert json.loads(users("disable", "ada", "--json").stdout)["enabled"] is False
    assert "disabled" in users("list").stdout
    assert json.loads(users("enable", "ada", "--json").stdout)["enabled"] is True
    assert users("set-role", "ada", "operator").stdout.startswith("Username  ada")


def test_the_last_administrator_stays(users):
    for arguments in (("set-role", "administrator", "operator"), ("disable", "administrator")):
        assert "last administrator" in users(*arguments, exit_code=1).stderr

    assert listed(users)["administrator"]["role"] == "administrator"


def test_a_reset_shows_a_new_temporary_password(users):
    one = json.loads(users("reset-password", "administrator", "--json").stdout)["password"]
    two = json.loads(users("reset-password", "administrator", "--json").stdout)["password"]

    assert one != two
    users("change-password", "administrator", "--password-file", "-", given=f"{two}\n{NEW}\n")


def test_an_administrator_is_recovered_on_the_host(users):
    users("create", "ada", "--role", "investigator")
    users("disable", "ada")

    made = json.loads(users("recover-administrator", "ada", "--yes", "--json").stdout)

    assert (listed(users)["ada"]["role"], listed(users)["ada"]["enabled"]) == ("administrator", True)
    users("change-password", "ada", "--password-file", "-", given=f"{made['password']}\n{NEW}\n")


def test_a_name_that_nobody_has_is_not_made_an_administrator(users):
    refused = users("recover-administrator", "nobody", exit_code=1)

    assert "There is no account nobody. Administrators: administrator." in refused.stderr
    assert "nobody" not in listed(users)
    users("recover-administrator", "nobody", "--create")
    assert listed(users)["nobody"]["role"] == "administrator"


def test_making_somebody_else_an_administrator_asks_and_is_said(users):
    users("create", "ada")

    refused = users("recover-administrator", "ada", given="n\n", exit_code=1)
    assert "Make ada an administrator (operator now)?" in refused.stderr
    assert refused.stderr.endswith(
        "Error: Nothing was changed. Where there is no terminal to answer at, --yes answers.\n"
    )
    assert "Nothing was changed" in users("recover-administrator", "ada", given="", exit_code=1).stderr
    assert listed(users)["ada"]["role"] == "operator"
    done = users("recover-administrator", "ada", given="y\n")
    assert "ada is an administrator (was: operator)" in done.stderr
    assert listed(users)["ada"]["role"] == "administrator"


def test_a_changed_password_is_said(users):
    temporary = json.loads(users("create", "ada", "--json").stdout)["password"]

    done = users("change-password", "ada", "--password-file", "-", given=f"{temporary}\n{OLD}\n")

    assert "The password of ada is changed" in done.stderr


@pytest.mark.parametrize("new", ["short", "passwordpassword", "adaadaadaada"])
def test_a_refused_new_password_says_that_the_current_one_still_holds(users, new):
    temporary = json.loads(users("create", "ada", "--json").stdout)["password"]

    refused = users("change-password", "ada", "--password-file", "-", given=f"{temporary}\n{new}\n", exit_code=1)

    assert "The current password still holds." in refused.stderr
    users("change-password", "ada", "--password-file", "-", given=f"{temporary}\n{OLD}\n")


def test_a_wrong_current_password_is_refused_before_a_new_one_is_asked_for(users, monkeypatch):
    """The terminal is click's seam: what it would ask is written down."""
    asked = []
    monkeypatch.setattr("app.cli.users._check_terminal", lambda: None)
    monkeypatch.setattr("click.prompt", lambda text, **_: asked.append(text) or "not the password")

    refused = users("change-password", "administrator", exit_code=1)

    assert asked == ["Current password"]
    assert refused.stderr == "Error: Username or password is wrong.\n"


def test_too_many_attempts_say_when_to_try_again(users):
    for _ in range(5):
        users("change-password", "administrator", "--password-file", "-", given=f"{OLD}\n{NEW}\n", exit_code=1)

    refused = users("change-password", "administrator", "--password-file", "-", given=f"{OLD}\n{NEW}\n", exit_code=1)

    assert re.search(r"Try again in \d+ s\.", refused.stderr)


def test_an_error_for_a_script_is_json_on_standard_error(users):
    refused = users("disable", "nobody", "--json", exit_code=1)

    assert json.loads(refused.stderr) == {"error": {"code": "not_found", "message": ABSENT}}
    assert refused.stdout == ""


def test_a_question_that_is_not_answered_ends_with_what_has_happened(users, monkeypatch):
    monkeypatch.setattr("app.cli.users._check_terminal", lambda: None)

    refused = users("change-password", "administrator", given="", exit_code=1)

    assert refused.stderr.endswith("Error: Nothing was changed.\n")


def test_help_says_which_instance_is_meant(users):
    assert "ATMEM_INSTANCE" in users("create", "--help").stdout


def test_without_a_name_the_first_administrator_is_recovered(users):
    assert json.loads(users("recover-administrator", "--json").stdout)["username"] == "administrator"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("create", "administrator"), "There is an account of this name already."),
        (("disable", "nobody"), "There is no account nobody; `atmem users list`"),
        (("disable", "\udcff"), "There is no account \\udcff; "),
        (("reset-password", "nobody"), "There is no account nobody; "),
        (("set-role", "nobody", "operator"), "There is no account nobody; "),
    ],
)
def test_what_is_refused_is_one_clear_line(users, arguments, line):
    result = users(*arguments, exit_code=1)

    assert result.stderr.startswith("Error: ")
    assert line in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [("create", "ada", "--role", "king"), ("set-role", "ada", "king"), ("create",)])
def test_wrong_usage_ends_with_2(users, arguments):
    users(*arguments, exit_code=2)


@pytest.fixture
def ada(users, fresh_instance):
    """Somebody with a second factor: the app that makes the codes, by the clock of this machine."""
    temporary = json.loads(users("create", "ada", "--role", "administrator", "--json").stdout)["password"]
    users("change-password", "ada", "--password-file", "-", given=f"{temporary}\n{OLD}\n")
    with built(load_settings({"ATMEM_INSTANCE": str(fresh_instance.folder)}), overrides=OVERRIDES) as wiring:
        who = person(wiring.auth, "ada", OLD)
        app = App(wiring.auth.second_factors.start(who, visit=VISIT).secret, SystemClock())
        done = wiring.auth.second_factors.confirm(who, app.code(steps=-1), visit=VISIT)
    app.recovery_codes = done.codes
    return app


class TestSecondFactor:
    def test_a_new_password_takes_a_code_from_the_third_line(self, users, ada):
        change = ("change-password", "ada", "--password-file", "-")
        missing = users(*change, given=f"{OLD}\n{NEW}\n", exit_code=1)
        wrong = users(*change, given=f"{OLD}\n{NEW}\n{ada.wrong_code()}\n", exit_code=1)

        users(*change, given=f"{OLD}\n{NEW}\n{ada.recovery_codes[0]}\n")

        assert missing.stderr == "Error: This account has a second factor: give its code.\n"
        assert wrong.stderr == "Error: The code is wrong, or was used already.\n"

    def test_a_new_password_asks_for_a_code_at_the_terminal(self, users, ada, monkeypatch):
        asked = []
        answers = iter([OLD, ada.recovery_codes[0], NEW])
        monkeypatch.setattr("app.cli.users._check_terminal", lambda: None)
        monkeypatch.setattr("click.prompt", lambda text, **options: (asked.append((text, options)), next(answers))[1])

        users("change-password", "ada")

        assert [text for text, _ in asked] == ["Current password", "Code of the second factor", "New password"]
        assert all(options["hide_input"] and options["err"] for _, options in asked)

    def test_it_is_taken_away_on_the_host(self, users, ada):
        assert listed(users)["ada"]["second_factor"] is True
        assert "second factor" in users("list").stdout

        done = users("reset-second-factor", "ada")
        again = users("reset-second-factor", "ada")

        assert "the password alone signs in" in done.stderr
        assert "has no second factor. Nothing was changed." in again.stderr
        assert listed(users)["ada"]["second_factor"] is False
        users("change-password", "ada", "--password-file", "-", given=f"{OLD}\n{NEW}\n")

    def test_nobodys_is_taken_away(self, users):
        assert users("reset-second-factor", "nobody", exit_code=1).stderr == f"Error: {ABSENT}\n"

    def test_recovering_an_administrator_takes_it_away_and_says_so(self, users, ada):
        done = users("recover-administrator", "ada")

        assert "Its second factor is gone." in done.stderr
        assert listed(users)["ada"]["second_factor"] is False

    def test_the_policy_is_shown_and_switched(self, users, ada):
        def policy(*wanted):
            return json.loads(users("require-second-factor", *wanted, "--json").stdout)

        assert policy() == {"administrators_need_second_factor": False, "administrators_without": ["administrator"]}
        assert policy("on")["administrators_need_second_factor"] is True
        assert policy()["administrators_need_second_factor"] is True
        assert "yes" in users("require-second-factor").stdout
        assert policy("off")["administrators_need_second_factor"] is False


def test_workspaces_are_set_as_on_the_page(users):
    users("create", "ada", "--workspace", "north")

    changed = json.loads(users("set-workspaces", "ada", "--workspace", "south", "--workspace", "east", "--json").stdout)

    assert changed["workspaces"] == ["east", "south"]
    assert listed(users)["ada"]["workspaces"] == ["east", "south"]
    users("set-workspaces", "ada", exit_code=2)
    assert ABSENT in users("set-workspaces", "nobody", "--workspace", "south", exit_code=1).output


def test_sessions_are_ended_as_on_the_page(users, fresh_instance):
    users("create", "ada")
    settings = load_settings({"ATMEM_INSTANCE": str(fresh_instance.folder)})
    temporary = json.loads(users("reset-password", "ada", "--json").stdout)["password"]
    with built(settings, overrides=OVERRIDES) as wiring:
        for _ in range(2):
            wiring.auth.sign_in.sign_in("ada", temporary, visit=VISIT, replaced=None)

    assert listed(users)["ada"]["last_signed_in"] > 1_700_000_000
    assert listed(users)["administrator"]["last_signed_in"] is None
    assert json.loads(users("end-sessions", "ada", "--json").stdout) == {"username": "ada", "ended": 2}
    assert "0 sessions of ada ended" in users("end-sessions", "ada").stderr
    assert ABSENT in users("end-sessions", "nobody", exit_code=1).output
