"""Every page, with every form: what it takes to change something, and what merely looking changes (W01, W02, S10)."""

from __future__ import annotations

import pytest

from app.auth.csrf import token_for
from continuity.services.callers import Role
from tests.web.pages import HTMX, addresses, cookie_of, get, post, sign_in, token_in

BAD = ["missing", "empty", "wrong", "another's", "of an earlier session", "of the sign-in form", "not ASCII"]


@pytest.fixture
def ada(site):
    site.person("ada", Role.ADMINISTRATOR)
    return site.signed_in("ada")


@pytest.mark.parametrize("bad", BAD)
def test_a_form_without_its_sessions_own_token_changes_nothing(site, ada, bad):
    site.person("bob")
    visitor = site.browser()
    token = {
        "missing": None,
        "empty": "",
        "wrong": "A" * 43,
        "another's": site.signed_in("bob").csrf,
        "of an earlier session": site.signed_in("ada").csrf,
        "of the sign-in form": token_in(get(visitor, "/login")),
        "not ASCII": "é",
    }[bad]
    before = site.everything()

    asked = [path for path in addresses(site.app, "POST") if path != "/login"]
    for path in asked:
        reply = post(ada, path, token=token)
        assert reply.status_code == 403, path
        assert "This form is out of date" in reply.text, path

    assert {"/logout", "/password", "/reauthenticate", "/account/sessions/end"} <= set(asked)
    assert site.everything() == before


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}], ids=str)
def test_a_form_from_another_site_changes_nothing_even_with_the_token(site, ada, headers):
    before = site.everything()

    for path in addresses(site.app, "POST"):
        assert post(ada, path, **headers).status_code == 403, path

    assert site.everything() == before


def test_a_token_in_the_address_counts_for_nothing(site, ada):
    token = token_for(ada.cookie())

    assert post(ada, f"/logout?csrf_token={token}", token=None).status_code == 403


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"csrf_token=%s&session=1&session=2", "application/x-www-form-urlencoded", 400),
        (b"csrf_token=%s&session=%%FF", "application/x-www-form-urlencoded", 400),
        (b"csrf_token=%s&session=\xff", "application/x-www-form-urlencoded", 400),
        (b"csrf_token=%s" + b"&x=1" * 100, "application/x-www-form-urlencoded", 400),
        (b'{"csrf_token": "%s"}', "application/json", 403),
        (b"csrf_token=%s", "text/plain", 403),
        (b"csrf_token=%s&x=" + b"x" * 210_000, "application/x-www-form-urlencoded", 413),
    ],
    ids=["twice", "not UTF-8", "raw bytes", "many fields", "JSON", "text", "too long"],
)
def test_a_body_that_no_form_of_ours_sends_is_refused_with_a_page(site, ada, body, content_type, status):
    body = body.replace(b"%s", token_for(ada.cookie()).encode()).replace(b"%%", b"%")
    before = site.everything()

    reply = ada.client.post("/account/sessions/end", data=body, content_type=content_type, base_url=ada.base_url)

    assert reply.status_code == status
    assert "<title>" in reply.text
    assert site.everything() == before


@pytest.mark.parametrize("role", list(Role))
def test_looking_at_a_page_changes_nothing(site, role):
    site.person("ada", role)
    browser = site.signed_in("ada")
    before = without_log(site.everything())

    for path in addresses(site.app, "GET"):
        for headers in ({}, HTMX):
            assert get(browser, path, **headers).status_code < 500, path
        assert browser.client.head(path, base_url=browser.base_url).data == b""

    assert without_log(site.everything()) == before


def without_log(everything):
    """Leave out what looking itself leaves: that somebody looked, or took a file (security.md W02)."""
    # The first detail of the log makes its key.
    log = {"continuity_audit", "continuity_audit_head", "continuity_partitions"}
    return {table: rows for table, rows in everything.items() if table not in log}


def test_every_page_of_a_session_is_kept_by_no_cache(site, ada):
    for path in addresses(site.app, "GET"):
        reply = get(ada, path)
        assert reply.headers["Cache-Control"] == "no-store", path
        varies = ", ".join(reply.headers.getlist("Vary"))
        assert "Cookie" in varies, path
        assert "HX-Request" in varies, path


def test_every_page_may_run_and_load_what_is_ours_alone(site, ada):
    paths = [*addresses(site.app, "GET"), "/nowhere"]

    for path in paths:
        reply = get(ada, path)
        policy = reply.headers["Content-Security-Policy"]
        # What is no page, a redirect or a file, runs nothing at all.
        if reply.status_code != 303 and reply.mimetype == "text/html":
            assert "script-src 'self'" in policy, path
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy, path
        assert "frame-ancestors 'none'" in policy, path


def test_nobody_is_led_from_every_page_to_the_sign_in_page(site):
    for path in addresses(site.app, "GET"):
        browser = site.browser()
        reply = get(browser, path)
        if path != "/login":
            assert (reply.status_code, reply.headers["Location"].partition("?")[0]) == (303, "/login"), path
            moved = get(browser, path, **HTMX)
            assert (moved.status_code, moved.headers["HX-Redirect"], moved.data) == (401, "/login?ended=yes", b""), path


def test_a_temporary_password_leads_from_every_page_to_a_new_one(site):
    from app.auth.accounts import LOCAL  # noqa: PLC0415

    made = site.wiring.auth.accounts.create("new", role=Role.ADMINISTRATOR, workspace_names=[], by=LOCAL)
    browser = site.browser()
    assert sign_in(browser, "new", made.password).headers["Location"] == "/password"

    for path in addresses(site.app, "GET"):
        if path == "/password":
            continue
        assert get(browser, path).headers["Location"] == "/password", path
        if path not in {"/login", "/login/code"}:
            assert get(browser, path, **HTMX).headers["HX-Redirect"] == "/password", path
    for path in addresses(site.app, "POST"):
        if path not in {"/login", "/login/code", "/logout", "/password"}:
            assert post(browser, path).headers["Location"] == "/password", path
    assert browser.cookie(cookie_of(browser))
    assert post(browser, "/logout").status_code == 303


@pytest.mark.parametrize("value", ["x", "A" * 43, "A" * 5000, '"; Path=/', "é" * 10, ""], ids=ascii)
def test_a_cookie_that_is_no_session_is_nobody(site, value):
    browser = site.browser()

    for path in ("/account", "/login", "/"):
        reply = browser.client.get(
            path, headers=[("Cookie", f"atmem_session={value}"), ("Accept", "text/html")], base_url=browser.base_url
        )
        assert reply.status_code in {200, 303}, path


def test_a_bearer_token_opens_no_page(site, ada):
    token = ada.post("/v1/evidence/grants", {"principal_id": "p", "role": "evidence_collector"}).json["token"]

    reply = get(ada, "/account", Authorization=f"Bearer {token}")

    assert reply.status_code == 403
    assert "Where you are signed in" not in reply.text


def test_what_a_page_asks_by_itself_keeps_no_session_alive(site):
    site.person("ada", Role.OPERATOR)
    polls = [
        path
        for path in addresses(site.app, "GET")
        if getattr(site.app.view_functions[endpoint_of(site.app, path)], "is_poll", False)
    ]
    assert polls

    for path in polls:
        browser = site.signed_in("ada")
        for _ in range(31):
            site.clock.advance(60)
            last = get(browser, path, **HTMX)
        assert (last.status_code, last.headers["HX-Redirect"]) == (401, "/login?ended=yes"), path


def test_what_a_person_asks_keeps_the_session_alive_until_its_end(site):
    site.person("ada", Role.OPERATOR)
    browser = site.signed_in("ada")
    answers = []
    for _ in range(25):
        site.clock.advance(29 * 60)
        answers.append(get(browser, "/account").status_code)

    assert answers == [200] * 24 + [303]


def endpoint_of(app, path):
    return app.url_map.bind("localhost").match(path, method="GET")[0]
