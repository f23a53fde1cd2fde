"""The sign-in page, the password pages and the account page, by what they answer (security.md 3.1 to 3.3)."""

from __future__ import annotations

import html
import re

import pytest

from app.auth.accounts import LOCAL
from app.auth.schema import sessions
from continuity.services.callers import Role
from tests.web.pages import HTML, HTMX, cookie_of, get, post, sign_in, token_in

NEW = "seven lanterns above harbour"
ELSEWHERE = [
    "//e.example", "///e.example", "/\\e.example", "\\/e.example", "/%09/e.example", "\t//e.example", " //e.example",
    "/\n/e.example", "/\0", "https:e.example", "https://e.example", "javascript:alert(1)", "//e.example@localhost",
    "\u2044\u2044e.example", "\uff0f\uff0fe.example", "workflow.", "workflow.//e.example", "workflow.wf_0",
    "account.x", "account\n", "account.days=7", "resume-work.x", "resume-work.state=decision&next=//e.example",
    "resume-work.state=//e.example", "activity.cursor=x", "activity.days=7&days=30", "activity.days=7\n",
    "activity.q=%2F%2Fe.example", "activity.q=%0d%0aX", "observed.//e.example", "observed.a/b", "observed.",
    "workflow.wf_" + "0" * 32 + "\n", "", "login", "x" * 5000,
]  # fmt: skip

PAGES = [
    "/activity", "/activity?days=7", "/activity?from=2026-01-01&to=2026-02-01&scope=local&outcome=unknown&q=flow-1",
    "/activity/flow-1", "/resume-work", "/resume-work?state=decision", "/resume-work?workspace=main&q=key.1",
]  # fmt: skip


def shown(page):
    """Return the text of a page without its token."""
    return re.sub(r'value="[^"]*"', "", page.text)


class TestSigningIn:
    def test_leads_to_the_first_page(self, site):
        password = site.person("ada")

        reply = sign_in(site.browser(), "ada", password)

        assert (reply.status_code, reply.headers["Location"]) == (303, "/")

    def test_every_reason_for_refusal_looks_the_same(self, site):
        site.person("ada")
        site.person("off")
        site.wiring.auth.accounts.disable("off", by=LOCAL)
        expired = site.wiring.auth.accounts.create("late", role=Role.OPERATOR, workspace_names=[], by=LOCAL).password
        site.clock.advance(24 * 3600 + 1)
        asked = [
            ("ada", "wrong"), ("nobody", "wrong"), ("off", site.passwords["off"]), ("late", expired), ("ada", ""),
            ("ada", "x" * 129), ("ada", "nul\0"),
        ]  # fmt: skip

        replies = [sign_in(site.browser(), *each) for each in asked]

        assert {reply.status_code for reply in replies} == {422}
        assert len({shown(reply) for reply in replies}) == 1
        assert site.rows(sessions) == []

    def test_is_throttled_with_a_page(self, site):
        site.person("ada")
        replies = [sign_in(site.browser(), "ada", "wrong") for _ in range(6)]

        assert replies[-1].status_code == 429
        assert int(replies[-1].headers["Retry-After"]) > 0
        assert "Too many attempts" in replies[-1].text

    def test_takes_only_a_form_that_this_browser_was_given(self, site):
        password = site.person("ada")
        other, browser = site.browser(), site.browser()
        fields = {"username": "ada", "password": password}
        before = site.everything()

        stolen = token_in(get(other, "/login"))
        get(browser, "/login")
        replies = [post(browser, "/login", fields, token=token) for token in (None, "", "A" * 43, stolen, "é")]
        replies.append(post(site.browser(), "/login", fields, token=stolen))

        assert {reply.status_code for reply in replies} == {403}
        assert site.everything() == before
        assert post(browser, "/login", fields, token=token_in(replies[-2])).status_code == 303

    def test_never_makes_the_visitors_cookie_a_session(self, site):
        password = site.person("ada")
        browser = site.browser()
        get(browser, "/login")
        visitor = browser.cookie("atmem_visitor")
        sign_in(browser, "ada", password)

        assert browser.cookie("atmem_visitor") is None
        assert browser.cookie() != visitor
        browser.set_cookie(visitor)
        assert get(browser, "/account").status_code == 303

    def test_never_takes_over_a_session_that_was_there_before(self, site):
        password = site.person("ada")
        browser = site.browser()
        browser.set_cookie("A" * 43)
        sign_in(browser, "ada", password)
        first = browser.cookie()
        assert first != "A" * 43

        get(browser, "/login")
        reply = post(browser, "/login", {"username": "ada", "password": password}, token="x")
        assert reply.status_code == 403
        post(browser, "/logout")
        sign_in(browser, "ada", password)
        browser_before = site.browser()
        browser_before.set_cookie(first)
        assert get(browser_before, "/account").status_code == 303

    def test_is_not_asked_of_somebody_who_is_signed_in(self, site):
        site.person("ada")

        assert get(site.signed_in("ada"), "/login?next=account").headers["Location"] == "/account"

    def test_sets_cookies_that_only_this_host_over_https_gets(self, https_site):
        password = https_site.person("ada")
        browser = https_site.browser()

        asked = [get(browser, "/login"), sign_in(browser, "ada", password)]
        token = None
        changed = post(browser, "/password", {
            "current_password": password, "new_password": NEW, "again": NEW,
        }, token=token or "own")  # fmt: skip
        asked.append(changed)

        cookies = [line for reply in asked for line in reply.headers.getlist("Set-Cookie")]
        names = {line.partition("=")[0] for line in cookies}
        assert names == {"__Host-atmem_visitor", "__Host-atmem_session", "__Host-atmem_note"}
        for line in cookies:
            assert {"Secure", "HttpOnly", "Path=/"} <= set(line.split("; ")), line
            assert "SameSite=Lax" in line or "SameSite=Strict" in line, line
            assert "Domain" not in line

    @pytest.mark.parametrize("code", ELSEWHERE, ids=ascii)
    def test_goes_on_to_nowhere_but_ones_own_pages(self, site, code):
        password = site.person("ada")
        browser = site.browser()

        page = browser.client.get("/login", query_string={"next": code}, headers=HTML, base_url=browser.base_url)
        reply = browser.client.post(
            "/login",
            query_string={"next": code},
            data={"username": "ada", "password": password, "csrf_token": token_in(page)},
            base_url=browser.base_url,
        )

        assert (reply.status_code, reply.headers["Location"]) == (303, "/")
        assert "e.example" not in page.text

    def test_goes_on_to_the_page_that_was_wanted(self, site):
        password = site.person("ada")
        browser = site.browser()
        wanted = get(browser, "/account").headers["Location"]

        assert sign_in(browser, "ada", password, path=wanted).headers["Location"] == "/account"

    @pytest.mark.parametrize("path", PAGES)
    def test_goes_on_to_the_page_that_was_wanted_with_its_filters(self, site, path):
        password = site.person("ada", Role.INVESTIGATOR)
        browser = site.browser()

        reply = sign_in(browser, "ada", password, path=get(browser, path).headers["Location"])

        assert (reply.status_code, reply.headers["Location"]) == (303, path)

    @pytest.mark.parametrize("path", PAGES)
    def test_goes_on_to_it_after_a_new_password_that_had_to_be(self, site, path):
        made = site.wiring.auth.accounts.create("new", role=Role.INVESTIGATOR, workspace_names=[], by=LOCAL)
        browser = site.browser()

        forced = sign_in(browser, "new", made.password, path=get(browser, path).headers["Location"]).headers["Location"]
        (action,) = re.findall(r'action="(/password[^"]*)"', get(browser, forced).text)
        fields = {"current_password": made.password, "new_password": NEW, "again": NEW}
        reply = post(browser, html.unescape(action), fields)

        assert forced.partition("?")[0] == "/password"
        assert reply.headers["Location"] == path

    def test_leaves_out_what_no_filter_can_be(self, site):
        password = site.person("ada")
        browser = site.browser()
        wanted = get(browser, "/resume-work?state=decision&q=//e.example&cursor=x&other=1").headers["Location"]

        reply = sign_in(browser, "ada", password, path=wanted)

        assert reply.headers["Location"] == "/resume-work?state=decision"

    def test_says_that_the_session_has_ended_to_whom_a_poll_sends_here(self, site):
        password = site.person("ada", Role.INVESTIGATOR)
        browser = site.signed_in("ada")
        site.wiring.auth.accounts.set_role("ada", Role.OPERATOR, by=LOCAL)

        reply = get(browser, "/activity/live.html?mark=x", **HTMX)
        page = get(browser, reply.headers["HX-Redirect"])

        assert (reply.status_code, page.status_code) == (401, 200)
        assert "Your session has ended" in page.text
        assert "Your session has ended" not in get(browser, "/login").text
        assert "Your session has ended" not in get(browser, "/login?ended=other").text
        assert sign_in(browser, "ada", password, path="/login?ended=yes").headers["Location"] == "/"


class TestSigningOut:
    def test_ends_the_session_and_clears_the_browser(self, site):
        site.person("ada")
        browser = site.signed_in("ada")
        session = browser.cookie()

        reply = post(browser, "/logout")

        assert (reply.status_code, reply.headers["Location"]) == (303, "/login")
        assert reply.headers["Clear-Site-Data"] == '"cache", "storage"'
        assert site.rows(sessions) == []
        browser.set_cookie(session)
        assert get(browser, "/account").status_code == 303

    def test_is_no_link(self, site):
        site.person("ada")
        browser = site.signed_in("ada")

        assert get(browser, "/logout").status_code == 405
        assert get(browser, "/account").status_code == 200


class TestPassword:
    def fields(self, site, **changed):
        return {"current_password": site.passwords["ada"], "new_password": NEW, "again": NEW, **changed}

    def test_changing_it_begins_a_new_session_and_ends_all_others(self, site):
        site.person("ada")
        here, there = site.signed_in("ada"), site.signed_in("ada")
        before = here.cookie()

        reply = post(here, "/password", self.fields(site))

        assert (reply.status_code, reply.headers["Location"]) == (303, "/account")
        assert here.cookie() != before
        assert get(there, "/account").status_code == 303
        page = get(here, "/account")
        assert "Your password is changed." in page.text
        assert "Your password is changed." not in get(here, "/account").text
        assert post(here, "/logout", token=here.csrf).status_code == 403

    def test_the_temporary_one_cannot_be_kept_and_opens_nothing_afterwards(self, site):
        made = site.wiring.auth.accounts.create("new", role=Role.OPERATOR, workspace_names=[], by=LOCAL)
        browser = site.browser()
        sign_in(browser, "new", made.password)

        kept = {"current_password": made.password, "new_password": made.password, "again": made.password}
        assert post(browser, "/password", kept).status_code == 422
        assert post(browser, "/password", {**kept, "new_password": NEW, "again": NEW}).headers["Location"] == "/"
        assert sign_in(site.browser(), "new", made.password).status_code == 422

    @pytest.mark.parametrize(
        ("changed", "field"),
        [
            ({"current_password": "wrong"}, "current_password"),
            ({"current_password": "x" * 129}, "current_password"),
            ({"new_password": "short", "again": "short"}, "new_password"),
            ({"new_password": "atmem continuity now", "again": "atmem continuity now"}, "new_password"),
            ({"again": "something else"}, "again"),
        ],
    )
    def test_what_is_wrong_stands_beside_its_field(self, site, changed, field):
        site.person("ada")
        browser = site.signed_in("ada")
        before = site.rows(sessions)

        reply = post(browser, "/password", self.fields(site, **changed))

        assert reply.status_code == 422
        assert f'id="{field}-problem"' in reply.text
        assert reply.text.count('aria-invalid="true"') == 1
        assert site.rows(sessions) == before

    def test_no_page_gives_a_password_back(self, site):
        site.person("ada")
        reply = post(site.signed_in("ada"), "/password", self.fields(site, again="another sentinel"))

        for secret in (site.passwords["ada"], NEW, "another sentinel"):
            assert secret not in reply.text


class TestGivingThePasswordAgain:
    def test_begins_a_new_session_that_is_fresh(self, site):
        password = site.person("ada")
        browser = site.signed_in("ada")
        before = browser.cookie()
        site.clock.advance(11 * 60)

        assert post(browser, "/reauthenticate?next=account", {"password": "wrong"}).status_code == 422
        assert browser.cookie() == before
        reply = post(browser, "/reauthenticate?next=account", {"password": password})

        assert (reply.status_code, reply.headers["Location"]) == (303, "/account")
        assert browser.cookie() != before
        assert site.wiring.auth.sessions.peek(browser.cookie()).is_fresh
        browser.set_cookie(before)
        assert get(browser, "/account").status_code == 303


class TestAccount:
    def handles(self, page):
        return re.findall(r'name="session" value="([0-9a-f]+)"', page.text)

    def test_one_ends_ones_own_other_sessions_and_nobody_elses(self, site):
        site.person("ada")
        site.person("bob")
        ada, ada_there, bob, bob_there = (site.signed_in(name) for name in ("ada", "ada", "bob", "bob"))
        (handle_of_ada,) = self.handles(get(ada, "/account"))

        post(bob, "/account/sessions/end", {"session": handle_of_ada})
        assert "had ended already" in get(bob, "/account").text
        assert get(ada_there, "/account").status_code == 200

        post(ada, "/account/sessions/end", {"session": handle_of_ada})
        assert get(ada_there, "/account").status_code == 303
        assert get(bob_there, "/account").status_code == 200
        assert get(ada, "/account").status_code == 200

    @pytest.mark.parametrize("handle", ["", "x", "é", "0" * 24, "0" * 5000, "\0"], ids=ascii)
    def test_a_session_that_is_not_there_is_told_gone(self, site, handle):
        site.person("ada")
        browser = site.signed_in("ada")

        assert post(browser, "/account/sessions/end", {"session": handle}).headers["Location"] == "/account"
        assert len(site.rows(sessions)) == 1

    def test_ending_a_session_stands_in_the_audit(self, site):
        from continuity.store.schema import audit  # noqa: PLC0415

        site.person("ada")
        site.signed_in("ada")
        browser = site.signed_in("ada")
        before = len(site.rows(audit))

        post(browser, "/account/sessions/end-others")

        assert len(site.rows(audit)) == before + 1
        assert len(site.rows(sessions)) == 1

    def test_neither_session_nor_hash_stands_on_the_page(self, site):
        site.person("ada")
        site.signed_in("ada")
        browser = site.signed_in("ada")
        page = get(browser, "/account").text

        assert browser.cookie() not in page
        assert all(row[0].hex() not in page for row in site.rows(sessions))

    @pytest.mark.parametrize("what", ["role", "disable", "reset"])
    def test_what_happens_to_the_account_ends_its_session_at_the_next_click(self, site, what):
        site.person("ada")
        browser = site.signed_in("ada")
        accounts = site.wiring.auth.accounts
        if what == "role":
            accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL)
        elif what == "disable":
            accounts.disable("ada", by=LOCAL)
        else:
            accounts.reset_password("ada", by=LOCAL)

        assert get(browser, "/account").status_code == 303
        assert get(browser, "/account", **HTMX).status_code == 401

    def test_a_note_says_nothing_but_our_own_words(self, site):
        site.person("ada")
        browser = site.signed_in("ada")
        browser.set_cookie("<b>Call 555-0100</b>", "atmem_note")

        assert "555-0100" not in get(browser, "/account").text


def test_cookies_have_another_name_over_plain_http(site):
    site.person("ada")
    browser = site.signed_in("ada")

    assert cookie_of(browser) == "atmem_session"
    assert "Plain HTTP" in get(browser, "/account").text
