"""What the tests of pages share: a browser without scripts that fills in forms, and a walk over all pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping

from flask import Flask
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from app.auth.csrf import token_for
from app.pages.problems import PAGE_BLUEPRINTS
from tests.web.site import Browser

WORKFLOW_ID = "wf_" + "0" * 32
_ABSENT = {
    "evidence": "er_" + "0" * 32, "thread": "th_" + "0" * 32, "run": "rn_" + "0" * 32, "waiting": "wr_" + "0" * 32,
    "int": "999999",
}  # fmt: skip
HTML = {"Accept": "text/html,application/xhtml+xml;q=0.9"}
HTMX = {"HX-Request": "true"}


def get(browser: Browser, path: str, **headers: str) -> TestResponse:
    return browser.client.get(path, headers={**HTML, **headers}, base_url=browser.base_url)


def post(
    browser: Browser, path: str, fields: Mapping[str, str] | None = None, *, token: str | None = "own", **headers: str
) -> TestResponse:
    """Send a form as a browser does; with the token of its session unless another is given, None for no field."""
    if token == "own":
        token = token_for(browser.cookie(cookie_of(browser)) or "")
    data = {**(fields or {}), **({} if token is None else {"csrf_token": token})}
    return browser.client.post(path, data=data, headers={**HTML, **headers}, base_url=browser.base_url)


def sign_in(browser: Browser, username: str, password: str, *, path: str = "/login") -> TestResponse:
    """Open the sign-in page and send its form."""
    return post(browser, path, {"username": username, "password": password}, token=token_in(get(browser, path)))


def token_in(page: TestResponse) -> str:
    """Return the token of the first form of a page."""
    found = re.search(r'name="csrf_token" value="([^"]*)"', page.text)
    assert found, page.text
    return html.unescape(found[1])


def cookie_of(browser: Browser) -> str:
    return "__Host-atmem_session" if browser.base_url.startswith("https") else "atmem_session"


def address_of(rule: Rule) -> str:
    """Return an address of a rule, with an id of the form that it takes and that nothing has."""
    return re.sub(r"<(?:([a-z]+)(?:\([^)]*\))?:)?[^>]+>", lambda found: _ABSENT.get(found[1], WORKFLOW_ID), rule.rule)


def addresses(app: Flask, method: str) -> Iterator[str]:
    """Return an address of every rule of every page that takes `method`."""
    for rule in app.url_map.iter_rules():
        if rule.endpoint.partition(".")[0] in PAGE_BLUEPRINTS and method in rule.methods:
            yield address_of(rule)
