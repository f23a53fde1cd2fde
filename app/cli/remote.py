"""How a command reaches a server: with a credential from the environment, or as a person who signs in.

A password is prompted for without echo or read from a file; it is never an argument, and neither is a token. A
session begins with the command and ends with it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from app.cli import refusals
from app.cli.passphrases import lines_of
from app.config import DEFAULT_HOST, DEFAULT_PORT
from continuity.errors import (
    ConflictError,
    ContinuityError,
    IntegrityError,
    MalformedError,
    NotFoundError,
    NotReachedError,
    TransportError,
)
from continuity.transport import Connection, Transport

ADMINISTRATOR: Final = "administrator"
TOKEN_VARIABLE: Final = "ATMEM_EVIDENCE_TOKEN"  # noqa: S105 - the name of a variable
_PASSWORD_BYTES: Final = 1_024
_ALIVE: Final = "/healthz"
_LOGIN: Final = "/api/auth/login"
_CODE_REQUIRED: Final = "second_factor_required"
_COOKIE: Final = re.compile(r"((?:__Host-)?atmem_session)=([A-Za-z0-9_-]{43})(?:;|\Z)")


@dataclass(frozen=True, slots=True)
class Server:
    """Where and as whom: what the options of a command say. `username` None: the credential, when there is one."""

    url: str
    username: str | None
    password_file: Any
    token_variable: str | None = None


class _Asking(Connection):
    """A connection whose errors say what to do about them."""

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        changes_nothing = method == "GET" or path == _LOGIN
        try:
            return super().call(method, path, body, **options)
        except (ConflictError, MalformedError, NotFoundError) as error:
            if isinstance(error, NotFoundError):
                self._check_prefix()
            raise error if changes_nothing else refusals.of_a_change(error) from None
        except IntegrityError as error:
            raise refusals.of_damage(error, changes_nothing=changes_nothing) from None
        except TransportError as error:
            if changes_nothing or isinstance(error, NotReachedError):
                raise refusals.of_a_look(error, self.url) from error
            raise

    def fetch(self, path: str, body: Mapping[str, Any], **options: Any) -> bytes:
        try:
            return super().fetch(path, body, **options)
        except NotFoundError:
            self._check_prefix()
            raise
        except TransportError as error:
            raise refusals.of_a_look(error, self.url) from error

    def _check_prefix(self) -> None:
        """Refuse an address with a path below which there is no AtMem: everything there would be "not found"."""
        prefix = urlsplit(self.url).path
        if not prefix:
            return
        try:
            super().call("GET", _ALIVE)
        except NotFoundError:
            raise NotFoundError(
                f"AtMem is not below {prefix} of this address: leave the path out of {self.url} (--url or ATMEM_URL). "
                f"{refusals.NOTHING_CHANGED}"
            ) from None


class _TokenConnection(_Asking, Transport):
    """A connection with a credential."""


class PersonConnection(_Asking):
    """A connection of somebody who has signed in."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._cookie = ""
        self._csrf_token = ""

    def sign_in(self, username: str, password: str, code: str | None = None) -> Mapping[str, Any]:
        """Begin a session; return the account."""
        proof = {"username": username, "password": password}
        reply = self.call("POST", _LOGIN, proof if code is None else {**proof, "code": code})
        csrf_token, account = reply.get("csrf_token"), reply.get("account")
        if not isinstance(csrf_token, str) or not isinstance(account, dict) or not self._cookie:
            raise TransportError("The server's reply to signing in is not that of its contract.")
        self._csrf_token = csrf_token
        return account

    def sign_out(self) -> None:
        self.call("POST", "/api/auth/logout", {})

    def _proof(self) -> dict[str, str]:
        return {"Cookie": self._cookie, "X-CSRF-Token": self._csrf_token} if self._cookie else {}

    def _heard(self, headers: Mapping[str, str]) -> None:
        found = _COOKIE.match(headers.get("Set-Cookie", ""))
        if found is not None:
            self._cookie = f"{found[1]}={found[2]}"


def as_person(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--url``, ``--username`` and ``--password-file``, given to the function as `server`."""

    @wraps(command)
    def run(*, url: str, username: str | None, password_file: Any, token_env: str | None = None, **options: Any) -> Any:
        return command(server=Server(url, username, password_file, token_env), **options)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def as_anybody(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `as_person` and ``--token-env``: for what a credential may do as well."""
    return _TOKEN_OPTION(as_person(command))


def _own_url() -> str:
    """Return where the server of ATMEM_INSTANCE listens; else where one listens without options."""
    from app import instance

    folder = Path(os.environ.get("ATMEM_INSTANCE") or "instance").absolute()
    return instance.served_at(folder) or f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"


def checked_address(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an address that nothing may be sent to, before anything is done."""
    try:
        return None if value is None else Connection(value).url
    except MalformedError as error:
        raise click.BadParameter(error.message) from None


url_option: Final = click.option(
    "--url", envvar="ATMEM_URL", default=_own_url, callback=checked_address, show_envvar=True,
    show_default="where the server of ATMEM_INSTANCE listens", help="Address of the server.",
)  # fmt: skip
_OPTIONS: Final = (
    url_option,
    click.option("--username", help=f"Who signs in.  [default: {ADMINISTRATOR}]"),
    click.option(
        "--password-file", type=click.File("rb"),
        help="File whose first line is the password, and whose second is a code of the second factor where there is "
        "one; - for standard input. Without it you are asked.",
    ),
)  # fmt: skip
_TOKEN_OPTION: Final = click.option(
    "--token-env", default=TOKEN_VARIABLE, show_default=True,
    help="Variable that holds the credential to use; without one, or with --username, you sign in.",
)  # fmt: skip


@contextmanager
def connected(server: Server) -> Iterator[Connection]:
    """Connect with the credential when there is one and nobody was named, else as a person."""
    token = os.environ.get(server.token_variable, "").strip() if server.token_variable else ""
    if token and server.username is None:
        with _with_token(server.url, token, variable=str(server.token_variable)) as connection:
            yield connection
        return
    with signed_in(server) as connection:
        yield connection


@contextmanager
def _with_token(url: str, token: str, *, variable: str) -> Iterator[Connection]:
    try:
        connection = _TokenConnection(url, token)
    except MalformedError as error:
        raise click.UsageError(f"{variable}: {error.message}") from None
    try:
        with connection:
            yield connection
    except ContinuityError as error:
        raise refusals.of_credential(error, variable=variable, token=token) from None


@contextmanager
def signed_in(server: Server) -> Iterator[PersonConnection]:
    """Sign in for one command. Whoever has a temporary password is told how to replace it."""
    username = server.username or ADMINISTRATOR
    with PersonConnection(server.url) as connection:
        password, code = _password(server, username, connection)
        try:
            account = _signed_in_as(connection, username, password, code)
        except MalformedError as error:
            # What a file or a prompt held is refused, and no option that cannot be what it is.
            raise ContinuityError(error.message, code=error.code) from None
        try:
            if account.get("password_change_required"):
                raise click.ClickException(
                    f"The password of {username} is temporary. Choose your own first, on the server's host: "
                    f"atmem users change-password {username}"
                )
            yield connection
        finally:
            # A session that cannot be ended ends by itself; what the command met is what is told.
            with suppress(ContinuityError):
                connection.sign_out()


def _signed_in_as(connection: PersonConnection, username: str, password: str, code: str | None) -> Mapping[str, Any]:
    """Sign in. Whoever turns out to have a second factor gives its code, asked for when nothing else has it."""
    try:
        return connection.sign_in(username, password)
    except ContinuityError as error:
        if error.code != _CODE_REQUIRED:
            raise
    if code is None and not _has_terminal():
        raise ContinuityError(
            f"{username} has a second factor: give its code as the second line of --password-file.",
            code=_CODE_REQUIRED,
        )
    asked: str = code or click.prompt("Code of the second factor", hide_input=True, err=True)
    return connection.sign_in(username, password, asked)


def _password(server: Server, username: str, connection: Connection) -> tuple[str, str | None]:
    """Return the password, and the code of the second factor when a file holds one."""
    if server.password_file is not None:
        return _of_file(server.password_file.read(_PASSWORD_BYTES))
    if not _has_terminal():
        other = f", or put a credential into {server.token_variable}" if server.token_variable else ""
        raise click.UsageError(f"There is no terminal to ask at for the password: give --password-file{other}.")
    # Nobody types a password for a server that is not there.
    connection.call("GET", _ALIVE)
    # To standard error, as standard output may be what a script captures.
    return click.prompt(f"Password of {username}", hide_input=True, err=True), None


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _of_file(raw: bytes) -> tuple[str, str | None]:
    try:
        lines = lines_of(raw)
    except UnicodeDecodeError:
        raise click.UsageError("The password file must be UTF-8.") from None
    if not lines:
        raise click.UsageError("The password file is empty.")
    return lines[0], lines[1].strip() or None if len(lines) > 1 else None
