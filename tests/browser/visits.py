"""A person at a browser, and the people of an installation: what the stories are told with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from app.auth import schema
from app.auth.accounts import LOCAL
from app.config import load_settings
from app.wiring import Wiring, build
from continuity.services.callers import Role
from tests.entry import OVERRIDES
from tests.patience import PATIENCE_MS
from tests.people import PASSWORD
from tests.servers import Instance, RunningServer

WIDTHS = (320, 360, 768, 1280, 2560)
# What Chromium logs for a 4xx or 5xx page is the answer that the test is about.
_EXPECTED = re.compile(
    r"Failed to load resource: the server responded with a status of [45]\d\d|net::ERR_"
    r"|Response Status Error Code|^htmx:(?:afterRequest|sendError|responseError)\b"
)


@dataclass
class Visit:
    """One browser with its own cookies, on one server. `problems` is what it has complained about."""

    context: BrowserContext
    page: Page
    url: str
    problems: list[str] = field(default_factory=list)

    @classmethod
    def begun(cls, browser: Browser, url: str, **options: object) -> Visit:
        context = browser.new_context(**{"base_url": url, "viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(PATIENCE_MS)
        visit = cls(context, context.new_page(), url)
        visit.page.on("console", lambda message: visit._note(message.type, message.text))
        visit.page.on("pageerror", lambda error: visit.problems.append(f"uncaught: {error}"))
        visit.page.on("dialog", visit._dialog)
        return visit

    def go(self, path: str) -> int:
        """Open a page; return its status."""
        answer = self.page.goto(path)
        assert answer is not None
        return answer.status

    def sign_in(self, username: str, password: str) -> None:
        """Fill in the sign-in form that is on the page, or open it first."""
        if not self.page.url.startswith(f"{self.url}/login"):
            self.go("/login")
        self.field("Username").fill(username)
        self.field("Password").fill(password)
        self.page.get_by_role("button", name="Sign in", exact=True).click()
        self.page.wait_for_load_state()

    def field(self, label: str) -> Locator:
        """Return the field of exactly this label."""
        return self.page.get_by_label(label, exact=True)

    @property
    def path(self) -> str:
        return self.page.url.removeprefix(self.url)

    @property
    def heading(self) -> str:
        return self.page.get_by_role("heading", level=1).inner_text()

    def findings(self) -> list[str]:
        """Return what axe finds on the page as it stands."""
        found = Axe().run(self.page)
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]}"
            for each in found.response["violations"]
            for node in each["nodes"]
        ]

    def overflow(self, width: int) -> int:
        """Return by how many pixels the page is wider than a window of `width`."""
        self.page.set_viewport_size({"width": width, "height": 800})
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not _EXPECTED.search(text):
            self.problems.append(f"{kind}: {text}")

    def _dialog(self, dialog: object) -> None:
        self.problems.append("a dialog opened")
        dialog.dismiss()


@dataclass(frozen=True)
class People:
    """An installation with people who have passwords of their own, and its server."""

    instance: Instance
    wiring: Wiring
    passwords: dict[str, str] = field(default_factory=dict)
    server: RunningServer | None = None

    def at(self, server: RunningServer) -> People:
        return replace(self, server=server)

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url

    def add(self, username: str, role: Role = Role.OPERATOR, *, workspaces: tuple[str, ...] = ("default",)) -> str:
        """Make an account; return its password."""
        auth = self.wiring.auth
        made = auth.accounts.create(username, role=role, workspace_names=workspaces, by=LOCAL)
        password = f"{PASSWORD} {len(self.passwords)}"
        auth.sign_in.change_password_locally(username, current=made.password, new=password)
        self.passwords[username] = password
        return password

    def newcomer(self, username: str, role: Role = Role.OPERATOR) -> str:
        """Make an account that has never been used; return its temporary password."""
        return self.wiring.auth.accounts.create(username, role=role, workspace_names=["default"], by=LOCAL).password

    def end_sessions_of(self, username: str) -> None:
        """Have all sessions of a person end by having been unused for too long."""
        mine = sa.select(schema.users.c.user_pk).where(schema.users.c.username == username)
        self.wiring.store.write(lambda connection: connection.execute(
            sa.update(schema.sessions).where(schema.sessions.c.user_pk.in_(mine)).values(seen_at=1)
        ).rowcount)  # fmt: skip

    def forget_attempts(self) -> None:
        """Let everybody try passwords again: tests sign in faster than people."""
        self.wiring.store.write(lambda connection: connection.execute(sa.delete(schema.throttle)).rowcount)


@contextmanager
def people_of(instance: Instance) -> Iterator[People]:
    """Open the installation beside its server, with ``op``, ``inv`` and ``adm`` in it."""
    wiring = build(load_settings({"ATMEM_INSTANCE": str(instance.folder)}), overrides=OVERRIDES)
    try:
        people = People(instance, wiring)
        for username, role in (("op", Role.OPERATOR), ("inv", Role.INVESTIGATOR), ("adm", Role.ADMINISTRATOR)):
            people.add(username, role)
        yield people
    finally:
        wiring.close()
