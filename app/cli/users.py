"""`atmem users`: accounts, on the host. Works on the instance itself, so it needs no sign-in and no server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from app.cli.passphrases import lines_of
from app.cli.terminal import (
    Failure,
    InstanceGroup,
    ask,
    json_option,
    plain,
    print_facts,
    print_json,
    print_table,
    settings,
)
from continuity.errors import MalformedError, NotFoundError

if TYPE_CHECKING:
    from app.auth.accounts import AccountView, Temporary
    from app.auth.signin import SignIn
    from app.wiring import Wiring

_ADMINISTRATOR = "administrator"
ROLES = ("operator", "investigator", "administrator")
_PASSWORD_BYTES = 4_096
"""A password has at most 128 characters; two of them with room for any encoding."""


@click.group(cls=InstanceGroup)
def command() -> None:
    """Make and change accounts, on the host that has the instance."""


@command.command("create")
@click.argument("username")
@click.option("--role", type=click.Choice(ROLES), default="operator", show_default=True)
@click.option(
    "--workspace", "workspaces", multiple=True, default=("default",), show_default=True,
    help="A workspace the person belongs to; repeat it for several. Administrators see all.",
)  # fmt: skip
@json_option
@click.pass_context
def create(ctx: click.Context, *, username: str, role: str, workspaces: tuple[str, ...], as_json: bool) -> None:
    """Make an account. Its temporary password is shown this once."""
    from app.auth.accounts import LOCAL
    from continuity.services.callers import Role

    with _wired(ctx) as wiring:
        made = wiring.auth.accounts.create(username, role=Role(role), workspace_names=workspaces, by=LOCAL)
    _show_temporary(made, as_json=as_json)


@command.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, *, as_json: bool) -> None:
    """Show all accounts."""
    with _wired(ctx) as wiring:
        accounts = wiring.auth.accounts.all()
    if as_json:
        print_json({"users": [_account(account) for account in accounts]})
        return
    rows = [
        (account.username, account.role.value, ", ".join(account.workspaces), _state(account)) for account in accounts
    ]
    print_table(("username", "role", "workspaces", "state"), rows)


@command.command("set-role")
@click.argument("username")
@click.argument("role", type=click.Choice(ROLES))
@json_option
@click.pass_context
def set_role(ctx: click.Context, *, username: str, role: str, as_json: bool) -> None:
    """Change the role and end all sessions of the person."""
    from app.auth.accounts import LOCAL
    from continuity.services.callers import Role

    with _wired(ctx) as wiring:
        wiring.auth.accounts.set_role(username, Role(role), by=LOCAL)
        _show_account(wiring, username, as_json=as_json)


@command.command("set-workspaces")
@click.argument("username")
@click.option("--workspace", "workspaces", multiple=True, required=True, help="One the person belongs to; repeat it.")
@json_option
@click.pass_context
def set_workspaces(ctx: click.Context, *, username: str, workspaces: tuple[str, ...], as_json: bool) -> None:
    """Let the person belong to exactly these workspaces, from the next request on. Sessions go on."""
    from app.auth.accounts import LOCAL

    with _wired(ctx) as wiring:
        wiring.auth.accounts.set_workspaces(username, workspaces, by=LOCAL)
        _show_account(wiring, username, as_json=as_json)


@command.command("end-sessions")
@click.argument("username")
@json_option
@click.pass_context
def end_sessions(ctx: click.Context, *, username: str, as_json: bool) -> None:
    """End all sessions of the person, from their next request on. Password and account stay as they are."""
    from app.auth.accounts import LOCAL

    with _wired(ctx) as wiring:
        ended = wiring.auth.others_sessions.end_all(wiring.auth.people.named(username).user_id, by=LOCAL)
    if as_json:
        print_json({"username": username, "ended": ended})
    else:
        click.echo(f"{ended} {'session' if ended == 1 else 'sessions'} of {username} ended.", err=True)


@command.command("disable")
@click.argument("username")
@json_option
@click.pass_context
def disable(ctx: click.Context, *, username: str, as_json: bool) -> None:
    """Refuse sign-in, sessions and issued credentials of the person."""
    from app.auth.accounts import LOCAL

    with _wired(ctx) as wiring:
        wiring.auth.accounts.disable(username, by=LOCAL)
        _show_account(wiring, username, as_json=as_json)


@command.command("enable")
@click.argument("username")
@json_option
@click.pass_context
def enable(ctx: click.Context, *, username: str, as_json: bool) -> None:
    """Let a disabled person sign in again."""
    from app.auth.accounts import LOCAL

    with _wired(ctx) as wiring:
        wiring.auth.accounts.enable(username, by=LOCAL)
        _show_account(wiring, username, as_json=as_json)


@command.command("reset-password")
@click.argument("username")
@json_option
@click.pass_context
def reset_password(ctx: click.Context, *, username: str, as_json: bool) -> None:
    """Replace the password by a temporary one, shown this once, and end all sessions."""
    from app.auth.accounts import LOCAL

    with _wired(ctx) as wiring:
        made = wiring.auth.accounts.reset_password(username, by=LOCAL)
    _show_temporary(made, as_json=as_json)


@command.command("change-password")
@click.argument("username")
@click.option(
    "--password-file", type=click.File("rb"),
    help="File with the current password, the new one and, with a second factor, a code of it, a line each; "
    "- for standard input.",
)  # fmt: skip
@json_option
@click.pass_context
def change_password(ctx: click.Context, *, username: str, password_file: Any, as_json: bool) -> None:
    """Replace a password that is known, a temporary one too. All sessions of the person end.

    Whoever has a second factor is asked for a code of it as well.

    A password has 12 to 128 characters of any kind; common and guessable ones are refused.
    """
    if password_file is None:
        _check_terminal()
    with _wired(ctx) as wiring:
        change = wiring.auth.sign_in
        try:
            given = _prompted(change, username) if password_file is None else _from_file(password_file)
            change.change_password_locally(username, current=given.current, new=given.new, code=given.code)
        except MalformedError as error:
            raise Failure(
                f"{error.message} The current password still holds.", code=error.code, as_json=as_json
            ) from None
        if not as_json:
            click.echo(f"The password of {username} is changed; all sessions have ended.", err=True)
        _show_account(wiring, username, as_json=as_json)


@command.command("reset-second-factor")
@click.argument("username")
@json_option
@click.pass_context
def reset_second_factor(ctx: click.Context, *, username: str, as_json: bool) -> None:
    """Take the person's second factor away and end all sessions: for whoever has lost phone and recovery codes."""
    from app.auth.accounts import LOCAL

    with _wired(ctx) as wiring:
        had_one = wiring.auth.accounts.reset_second_factor(username, by=LOCAL)
        if not as_json:
            told = (
                f"The second factor of {username} is gone; the password alone signs in. All sessions have ended."
                if had_one
                else f"{username} has no second factor. Nothing was changed."
            )
            click.echo(told, err=True)
        _show_account(wiring, username, as_json=as_json)


@command.command("require-second-factor")
@click.argument("wanted", type=click.Choice(("on", "off")), required=False)
@json_option
@click.pass_context
def require_second_factor(ctx: click.Context, *, wanted: str | None, as_json: bool) -> None:
    """Say whether administrators must have a second factor, or switch it on or off.

    An administrator without one gets no further than setting one up, from the next request on.
    """
    from app.auth.accounts import LOCAL

    with _wired(ctx) as wiring:
        policy = wiring.auth.policy
        if wanted is not None:
            policy.set_administrators_need_second_factor(wanted == "on", by=LOCAL)
        is_on = policy.administrators_need_second_factor()
        without = [
            account.username
            for account in wiring.auth.accounts.all()
            if account.role.value == _ADMINISTRATOR and account.is_enabled and not account.has_second_factor
        ]
    if as_json:
        print_json({"administrators_need_second_factor": is_on, "administrators_without": without})
        return
    print_facts({
        "Administrators need a second factor": "yes" if is_on else "no",
        "Administrators without one": ", ".join(without) or "none",
    })  # fmt: skip


@command.command("recover-administrator")
@click.argument("username", default="administrator")
@click.option("--create", "may_create", is_flag=True, help="Make the account when there is none of this name.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask before somebody else is made an administrator.")
@json_option
@click.pass_context
def recover_administrator(ctx: click.Context, *, username: str, may_create: bool, is_sure: bool, as_json: bool) -> None:
    """Give the administrator USERNAME a temporary password, enabled whatever it was before.

    For whoever is locked out: it also takes the second factor away and forgets all counted sign-in attempts. Another
    account is made an administrator after a question; a name that is unknown is refused without --create.
    """
    with _wired(ctx) as wiring:
        accounts = wiring.auth.accounts.all()
        before = next((account for account in accounts if account.username == username), None)
        if before is None and accounts and not may_create:
            names = ", ".join(account.username for account in accounts if account.role.value == _ADMINISTRATOR)
            raise click.ClickException(
                f"There is no account {username}. Administrators: {names}. To make a new one give --create. "
                "Nothing was changed."
            )
        if before is not None and before.role.value != _ADMINISTRATOR:
            ask(f"Make {username} an administrator ({before.role.value} now)?", is_sure=is_sure)
        made = wiring.auth.accounts.recover_administrator(username)
    if not as_json:
        click.echo(_recovered(username, before), err=True)
    _show_temporary(made, as_json=as_json)


def _recovered(username: str, before: AccountView | None) -> str:
    if before is None:
        return f"{username} is a new account, an administrator."
    was = before.role.value if before.is_enabled else f"{before.role.value}, disabled"
    factor = " Its second factor is gone." if before.has_second_factor else ""
    return f"{username} is an administrator (was: {was}), enabled. All its sessions have ended.{factor}"


@contextmanager
def _wired(ctx: click.Context) -> Iterator[Wiring]:
    from app import wiring

    with wiring.built(settings(), overrides=ctx.find_object(wiring.Overrides)) as built:
        try:
            yield built
        except NotFoundError:
            raise NotFoundError(
                f"There is no account {plain(ctx.params['username'])}; `atmem users list` shows those that there are. "
                "Nothing was changed."
            ) from None


def _check_terminal() -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at: give --password-file.")


@dataclass(frozen=True, slots=True, repr=False)
class _Given:
    """What a change of password takes."""

    current: str
    new: str
    code: str | None = None


def _prompted(sign_in: SignIn, username: str) -> _Given:
    """Ask for all, the new one only once the current one is right. To standard error: there is nothing to capture."""
    current = click.prompt("Current password", hide_input=True, err=True)
    code = None
    if sign_in.check_locally(username, current):
        code = click.prompt("Code of the second factor", hide_input=True, err=True)
    click.echo("The new one: 12 to 128 characters of any kind; common and guessable ones are refused.", err=True)
    return _Given(current, click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True), code)


def _from_file(stream: Any) -> _Given:
    try:
        lines = lines_of(stream.read(_PASSWORD_BYTES))
    except UnicodeDecodeError:
        raise click.UsageError("The password file must be UTF-8.") from None
    if not 2 <= len(lines) <= 3:  # noqa: PLR2004
        raise click.UsageError(
            "The password file must have two lines, the current password and the new one; and a third with a code "
            "where there is a second factor."
        )
    return _Given(*lines)


def _show_temporary(made: Temporary, *, as_json: bool) -> None:
    if as_json:
        print_json({
            "username": made.username,
            "password": made.password,
            "password_change_required": True,
            "valid_until": made.valid_until_us // 1_000_000,
        })  # fmt: skip
        return
    print_facts({"Username": made.username, "Password": made.password})
    click.echo("The password is temporary: shown once, valid for 24 hours, good only for choosing another.", err=True)


def _show_account(wiring: Wiring, username: str, *, as_json: bool) -> None:
    account = next(account for account in wiring.auth.accounts.all() if account.username == username)
    if as_json:
        print_json(_account(account))
    else:
        print_facts({"Username": account.username, "Role": account.role.value, "State": _state(account)})


def _account(account: AccountView) -> dict[str, object]:
    return {
        "user_id": account.user_id,
        "username": account.username,
        "role": account.role.value,
        "workspaces": list(account.workspaces),
        "enabled": account.is_enabled,
        "password_change_required": account.must_change_password,
        "second_factor": account.has_second_factor,
        "created": account.created_at_us // 1_000_000,
        "last_signed_in": None if account.signed_in_at_us is None else account.signed_in_at_us // 1_000_000,
    }


def _state(account: AccountView) -> str:
    if not account.is_enabled:
        return "disabled"
    state = "must change password" if account.must_change_password else "enabled"
    return f"{state}, second factor" if account.has_second_factor else state
