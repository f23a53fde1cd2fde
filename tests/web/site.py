"""The whole application on a fresh SQLite instance, with a clock moved by hand and people to sign in."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app import create_app
from app.auth.accounts import LOCAL
from app.auth.settings import CHEAP_HASHING, AuthSettings
from app.config import load_settings
from app.wiring import Overrides, Wiring, build
from continuity.services.callers import Role
from tests.people import PASSWORD, FakeClock

LOGIN = "/api/auth/login"
COOKIE = "atmem_session"
HTTPS = {"ATMEM_URL": "https://atmem.example"}
PRODUCER_TOKEN = "a-producer-token-for-tests-0123456789"
METRICS_TOKEN = "a-metrics-token-for-tests-0123456789"


@dataclass
class Browser:
    """A client with cookies that sends the CSRF token of its session, as a page would."""

    client: FlaskClient
    base_url: str
    csrf: str | None = None

    def send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> TestResponse:
        proof = {} if self.csrf is None else {"X-CSRF-Token": self.csrf}
        wanted = {name: value for name, value in {**proof, **(headers or {})}.items() if value is not None}
        given = {} if body is None else {"json": body}
        return self.client.open(path, method=method, headers=wanted, base_url=self.base_url, **given)

    def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> TestResponse:
        response = self.send("POST", path, {} if body is None else body, headers=headers)
        if response.status_code == 200 and "csrf_token" in response.json:
            self.csrf = response.json["csrf_token"]
        return response

    def sign_in(self, username: str, password: str) -> TestResponse:
        return self.post(LOGIN, {"username": username, "password": password})

    def cookie(self, name: str = COOKIE) -> str | None:
        found = self.client.get_cookie(name, domain=self.base_url.split("//")[1].split(":")[0])
        return None if found is None else found.value

    def set_cookie(self, value: str, name: str = COOKIE) -> None:
        self.client.set_cookie(name, value, domain=self.base_url.split("//")[1].split(":")[0])


@dataclass
class Site:
    """One installation: its application, and what is behind it."""

    app: Flask
    wiring: Wiring
    clock: FakeClock
    base_url: str = "http://localhost"
    passwords: dict[str, str] = field(default_factory=dict)

    def browser(self) -> Browser:
        return Browser(self.app.test_client(), self.base_url)

    def person(self, username: str, role: Role = Role.OPERATOR, *, at: tuple[str, ...] = ("default",)) -> str:
        """Make an account with a password of its own; return the password."""
        auth = self.wiring.auth
        made = auth.accounts.create(username, role=role, workspace_names=at, by=LOCAL)
        password = f"{PASSWORD} {username}"
        auth.sign_in.change_password_locally(username, current=made.password, new=password)
        self.passwords[username] = password
        return password

    def signed_in(self, username: str) -> Browser:
        browser = self.browser()
        assert browser.sign_in(username, self.passwords[username]).status_code == 200
        return browser

    def rows(self, table: sa.Table) -> list[tuple[object, ...]]:
        found = self.wiring.store.read(
            lambda connection: connection.execute(sa.select(table).order_by(*table.primary_key.columns)).all()
        )
        return [tuple(row) for row in found]

    def everything(self) -> dict[str, list[tuple[object, ...]]]:
        """Return all rows of all tables: equal before and after a request that must change nothing."""
        from app.auth import schema as accounts  # noqa: PLC0415
        from continuity.store import schema  # noqa: PLC0415
        from observations import schema as observed  # noqa: PLC0415

        every = (schema.metadata, accounts.metadata, observed.metadata)
        tables = [table for metadata in every for table in metadata.sorted_tables]
        return {table.name: self.rows(table) for table in tables}


@contextmanager
def site_on(
    folder: Path, extra: Mapping[str, str] | None = None, *, auth: AuthSettings | None = None
) -> Iterator[Site]:
    """Open the application on the instance in `folder`."""
    clock = FakeClock(wall_us=time.time_ns() // 1_000)
    overrides = Overrides(clock=clock, auth=auth or AuthSettings(hashing=CHEAP_HASHING))
    environment = {
        "ATMEM_INSTANCE": str(folder), "ATFLOWS_CONTINUITY_TOKEN": PRODUCER_TOKEN, "ATMEM_METRICS_TOKEN": METRICS_TOKEN,
        **(extra or {}),
    }  # fmt: skip
    settings = load_settings(environment)
    wiring = build(settings, overrides=overrides)
    base_url = settings.url if settings.is_https else "http://localhost"
    try:
        yield Site(create_app(wiring=wiring), wiring, clock, base_url)
    finally:
        wiring.close()
