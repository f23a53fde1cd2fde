"""Every address of the real application with every method, as nobody: the edge stands before all of them."""

from __future__ import annotations

import json

import pytest

from app import create_app
from app.config import load_settings
from app.pages.problems import PAGE_BLUEPRINTS
from app.wiring import build
from tests.entry import OVERRIDES
from tests.web.pages import address_of

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
BASE = "http://localhost"


@pytest.fixture
def application(fresh_instance):
    wiring = build(load_settings({"ATMEM_INSTANCE": str(fresh_instance.folder)}), overrides=OVERRIDES)
    yield create_app(wiring=wiring)
    wiring.close()


def addresses(application) -> list[str]:
    """One address of every rule, in order."""
    return sorted({address_of(rule) for rule in application.url_map.iter_rules()})


def replies(application):
    client = application.test_client()
    for address in addresses(application):
        for method in METHODS:
            yield method, address, client.open(address, method=method, base_url=BASE)


def is_page(application, address, reply) -> bool:
    """Whether it is for people. Of a method that nobody takes the server does not know for whom it would be."""
    if reply.status_code == 405:
        return False
    adapter = application.url_map.bind("localhost")
    method = next(iter(adapter.allowed_methods(address)))
    return adapter.match(address, method=method)[0].partition(".")[0] in PAGE_BLUEPRINTS


def test_every_reply_of_every_address_is_guarded(application):
    for method, address, reply in replies(application):
        where = f"{method} {address}"
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"], where
        assert "unsafe" not in reply.headers["Content-Security-Policy"], where
        assert reply.headers["X-Content-Type-Options"] == "nosniff", where
        assert reply.headers["Cache-Control"], where
        assert reply.headers["X-Request-Id"].startswith("req_"), where
        assert "Access-Control-Allow-Origin" not in reply.headers, where
        # The form of the sign-in page needs a cookie of its own (test_pages_sign_in.py); nothing else gives nobody one.
        assert "Set-Cookie" not in reply.headers or address == "/login", where


def test_no_address_answers_nobody_with_a_defect_or_a_redirect_elsewhere(application):
    for method, address, reply in replies(application):
        assert reply.status_code < 500, f"{method} {address}"
        assert reply.headers.get("Location", "/").startswith("/"), f"{method} {address}"


def test_every_refusal_of_a_page_is_a_page(application):
    for method, address, reply in replies(application):
        if reply.status_code >= 400 and method != "HEAD" and is_page(application, address, reply):
            assert reply.headers["Content-Type"] == "text/html; charset=utf-8", f"{method} {address}"
            assert "<title>" in reply.text, f"{method} {address}"


def test_every_other_refusal_has_the_one_format(application):
    for method, address, reply in replies(application):
        if reply.status_code >= 400 and method != "HEAD" and not is_page(application, address, reply):
            assert reply.headers["Content-Type"] == "application/json; charset=utf-8", f"{method} {address}"
            body = json.loads(reply.data)
            assert set(body) == {"error", "format", "request_id"}, f"{method} {address}"
            assert set(body["error"]) == {"code", "message"}, f"{method} {address}"
            assert body["request_id"] == reply.headers["X-Request-Id"]


def test_methods_that_nobody_takes_are_405_everywhere(application):
    for method, address, reply in replies(application):
        if method in {"OPTIONS", "TRACE", "PATCH", "PUT"}:
            assert reply.status_code == 405, f"{method} {address}"


def test_there_are_addresses_to_sweep(application):
    assert {"/healthz", "/readyz", "/v1/continuity", "/api/auth/login"} <= set(addresses(application))
