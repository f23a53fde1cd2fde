"""What a cookie alone cannot do (security.md W01, W03, W05)."""

from __future__ import annotations

import pytest

from app.auth import csrf
from app.auth.admission import STATIC, admission_of
from app.auth.schema import sessions
from continuity.services.callers import Role
from tests.web.pages import address_of
from tests.web.site import LOGIN

REVOKE = "/v1/evidence/revoke"
GRANT = "/v1/evidence/grants"
BODY = {"principal_id": "worker-1", "role": "evidence_collector"}
OUT = "/api/auth/logout"


def writing_paths(app):
    """Return (method, path) of every route that a session may change something with.

    Pages that anybody may open are swept with their forms, in test_pages_forms.py.
    """
    for rule in app.url_map.iter_rules():
        is_open = admission_of(app, rule.endpoint).is_open
        if rule.endpoint == STATIC or (is_open and not rule.rule.startswith("/api/auth/")) or rule.rule == LOGIN:
            continue
        for method in rule.methods - {"GET", "HEAD", "OPTIONS"}:
            yield method, address_of(rule)


@pytest.mark.parametrize("bad", ["missing", "empty", "wrong", "another's", "of an earlier session", "not ASCII"])
def test_without_the_sessions_own_token_nothing_is_written(site, bad):
    site.person("ada", Role.ADMINISTRATOR)
    site.person("bob")
    earlier = site.signed_in("ada").csrf
    browser = site.signed_in("ada")
    token = {
        "missing": None,
        "empty": "",
        "wrong": "A" * 43,
        "another's": site.signed_in("bob").csrf,
        "of an earlier session": earlier,
        "not ASCII": "é",
    }[bad]
    before = site.everything()

    asked = list(writing_paths(site.app))
    for method, path in asked:
        reply = browser.send(method, path, {}, headers={"X-CSRF-Token": token})
        assert reply.status_code == 403, path
        assert reply.json is None or reply.json["error"]["code"] == "csrf_failed", path

    assert len(asked) > 8
    assert site.everything() == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "nonsense"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://localhost:1"},
        {"Origin": ""},
    ],
    ids=str,
)
def test_another_site_is_refused_even_with_the_right_token(site, headers):
    site.person("ada")
    browser = site.signed_in("ada")

    assert browser.post(GRANT, BODY, headers=headers).status_code == 403
    assert browser.post(OUT, headers=headers).status_code == 403
    assert browser.send("GET", "/v1/continuity").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost"},
        {"Origin": "http://127.0.0.1:8768"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
def test_ones_own_pages_and_programs_without_a_browser_are_served(site, headers):
    site.person("ada")

    assert site.signed_in("ada").post(GRANT, BODY, headers=headers).status_code == 200


def test_behind_a_proxy_that_ends_tls_the_configured_address_is_ones_own(https_site):
    https_site.person("ada")
    browser = https_site.signed_in("ada")

    assert browser.post(GRANT, BODY, headers={"Origin": "https://atmem.example"}).status_code == 200
    assert browser.post(GRANT, BODY, headers={"Origin": "https://evil.example"}).status_code == 403


def test_another_site_cannot_sign_its_visitor_in(site):
    password = site.person("ada")
    body = {"username": "ada", "password": password}

    reply = site.browser().post(LOGIN, body, headers={"Origin": "https://evil.example"})

    assert reply.status_code == 403
    assert site.rows(sessions) == []


def test_the_token_is_bound_to_the_session_and_not_stored(site):
    site.person("ada")
    browser = site.signed_in("ada")

    assert browser.csrf == csrf.token_for(browser.cookie())
    assert browser.csrf not in repr(site.everything())


def test_the_token_in_the_address_or_in_the_body_counts_for_nothing(site):
    site.person("ada")
    browser = site.signed_in("ada")
    token, browser.csrf = browser.csrf, None

    assert browser.post(f"{GRANT}?X-CSRF-Token={token}&csrf_token={token}", BODY).status_code == 403
    assert browser.post(GRANT, {**BODY, "csrf_token": token}).status_code == 403


class TestBearer:
    @pytest.fixture
    def token(self, site):
        site.person("ada")
        return site.signed_in("ada").post(GRANT, BODY).json["token"]

    def test_it_needs_no_csrf_token_and_no_cookie(self, site, token):
        reply = site.browser().send("GET", "/v1/continuity", headers={"Authorization": f"Bearer {token}"})

        assert reply.status_code == 200

    def test_with_it_cookies_are_not_looked_at(self, site, token):
        browser = site.signed_in("ada")

        refused = browser.post(GRANT, BODY, headers={"Authorization": f"Bearer {token}"})
        unknown = browser.send("GET", "/v1/continuity", headers={"Authorization": "Bearer atm_o_wrong"})
        basic = browser.send("GET", "/v1/continuity", headers={"Authorization": "Basic YTpi"})

        assert refused.status_code == 403
        assert unknown.status_code == 401
        assert basic.status_code == 401

    @pytest.mark.parametrize("path", [OUT, "/api/auth/change-password", "/api/auth/reauthenticate"])
    def test_it_is_nobody_to_the_paths_of_sessions(self, site, token, path):
        browser = site.signed_in("ada")

        assert browser.post(path, headers={"Authorization": f"Bearer {token}"}).status_code == 401
        assert browser.send("GET", "/v1/continuity").status_code == 200

    def test_it_is_taken_from_its_header_alone(self, site, token):
        client = site.app.test_client()
        client.set_cookie("atmem_session", token[6:49])
        client.set_cookie("Authorization", f"Bearer {token}")

        for path in (f"/v1/continuity?access_token={token}", f"/v1/continuity?token={token}", "/v1/continuity"):
            reply = client.get(path, headers={"X-Api-Key": token, "Proxy-Authorization": f"Bearer {token}"})
            assert reply.status_code in {400, 401}
            assert token not in reply.text


def test_other_origins_are_allowed_nothing(site):
    site.person("ada")
    browser = site.signed_in("ada")
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}

    for path in (GRANT, LOGIN, "/v1/continuity"):
        preflight = browser.send("OPTIONS", path, headers=headers)
        assert preflight.status_code == 405
        for reply in (preflight, browser.send("GET", path, headers=headers)):
            assert not [name for name, _ in reply.headers if name.lower().startswith("access-control-")]
