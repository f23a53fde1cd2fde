"""What holds on every address for whoever is signed in (security.md S04, S10, W02, W10)."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.auth.accounts import LOCAL
from app.headers import HX_PATHS
from continuity.services.callers import Role
from tests.second_factors import enrolled
from tests.web.pages import HTMX, address_of, addresses, get
from tests.web.site import LOGIN

WRITING = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER)\b", re.IGNORECASE)
LAST_SEEN = re.compile(r"UPDATE auth_sessions SET seen_at=")
NEW = "five green doors open slowly"


def looked_at(app) -> list[str]:
    """Return an address of every rule that is only looked at."""
    return sorted({address_of(rule) for rule in app.url_map.iter_rules() if "GET" in rule.methods})


@pytest.fixture
def ada(site):
    site.person("ada", Role.ADMINISTRATOR)
    return site.signed_in("ada")


@pytest.fixture
def written(site):
    """Every statement that writes, as it is sent to the database."""
    found: list[str] = []

    def note(_connection, _cursor, statement, *_more):
        if WRITING.match(statement):
            found.append(statement)

    engine = site.wiring.store.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    yield found
    sa.event.remove(engine, "before_cursor_execute", note)


def test_looking_writes_nothing_but_when_somebody_was_last_seen(site, ada, written):
    for path in looked_at(site.app):
        for method in ("GET", "HEAD"):
            site.clock.advance(31)
            del written[:]
            reply = ada.send(method, path)
            # A look at what is sealed is itself on record, and no other row is (W02).
            rest = [each for each in written if not LAST_SEEN.match(each) and "continuity_audit" not in each]
            assert rest == [], (method, path, reply.status_code)
            ada = site.signed_in("ada") if reply.status_code == 401 else ada


def test_the_trace_of_writes_sees_one(site, written):
    site.person("bob")

    assert any("auth_users" in each for each in written)


def test_no_reply_to_whoever_is_signed_in_is_kept_by_a_cache(site, ada):
    for path in looked_at(site.app):
        if path.startswith("/static/"):
            continue
        reply = ada.send("GET", path)
        assert reply.headers["Cache-Control"] == "no-store", path
        varies = ", ".join(reply.headers.getlist("Vary"))
        assert "Cookie" in varies, path
        assert "HX-Request" in varies, path


@pytest.mark.parametrize("change", ["role", "disable", "reset", "password", "host password", "factor", "recover"])
def test_every_session_of_a_person_ends_with_the_next_request(site, change):
    password = site.person("ada", Role.ADMINISTRATOR)
    site.person("bob", Role.ADMINISTRATOR)
    app = enrolled(site.wiring.auth, site.clock, "ada", password)
    body = {"username": "ada", "password": password}
    browsers = [site.browser() for _ in range(3)]
    for browser in browsers:
        assert browser.post(LOGIN, {**body, "code": app.next_code()}).status_code == 200
    bob = site.signed_in("bob")
    accounts = site.wiring.auth.accounts
    {
        "role": lambda: accounts.set_role("ada", Role.OPERATOR, by=LOCAL),
        "disable": lambda: accounts.disable("ada", by=LOCAL),
        "reset": lambda: accounts.reset_password("ada", by=LOCAL),
        "factor": lambda: accounts.reset_second_factor("ada", by=LOCAL),
        "recover": lambda: accounts.recover_administrator("ada"),
        "password": lambda: browsers.pop().post(
            "/api/auth/change-password", {"current_password": password, "new_password": NEW}
        ),
        "host password": lambda: site.wiring.auth.sign_in.change_password_locally(
            "ada", current=password, new=NEW, code=app.next_code()
        ),
    }[change]()

    assert [browser.send("GET", "/v1/continuity").status_code for browser in browsers] == [401] * len(browsers)
    assert [get(browser, "/account").status_code for browser in browsers] == [303] * len(browsers)
    assert bob.send("GET", "/v1/continuity").status_code == 200


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=40), st.sampled_from(["next", "state", "q", "cursor", "ended", "over", "workspace"]))
def test_whatever_is_asked_htmx_is_sent_to_no_place_but_ours(site, text, name):
    for path in addresses(site.app, "GET"):
        reply = site.browser().client.get(
            path, query_string={name: text}, headers={**HTMX, "Accept": "text/html"}, base_url="http://localhost"
        )
        assert reply.status_code < 500, path
        for header in ("HX-Redirect", "HX-Location", "HX-Push-Url", "HX-Replace-Url", "HX-Refresh"):
            assert reply.headers.get(header, "true") in HX_PATHS, (path, header)
