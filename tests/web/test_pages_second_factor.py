"""Signing in with a second factor and setting one up, by what the pages answer (security.md 3.1 to 3.3, S12)."""

from __future__ import annotations

import html
import logging
import re

import pytest

from app.auth.accounts import LOCAL
from app.auth.admission import admission_of
from app.auth.csrf import challenge_token_for, token_for
from app.auth.schema import challenges, recovery_codes, second_factors, sessions
from app.pages.problems import PAGE_BLUEPRINTS
from continuity.services.callers import Role
from tests.second_factors import App, enrolled
from tests.web.pages import HTMX, address_of, addresses, get, post, sign_in, token_in
from tests.web.site import COOKIE, LOGIN

STEP = "atmem_step"
PAGE = "/account/second-factor"


@pytest.fixture
def app(site) -> App:
    """Ada's authenticator app: she is an operator with a second factor."""
    return with_factor(site, "ada")


def with_factor(site, username, role=Role.OPERATOR) -> App:
    password = site.person(username, role)
    made = enrolled(site.wiring.auth, site.clock, username, password)
    site.clock.advance(61)
    return made


def between(site, username="ada"):
    """Give the password alone; return the browser."""
    browser = site.browser()
    reply = sign_in(browser, username, site.passwords[username])
    assert (reply.status_code, reply.headers["Location"]) == (303, "/login/code")
    return browser


def give(browser, code, *, path="/login/code"):
    return post(browser, path, {"code": code}, token=token_in(get(browser, path)))


def signed_in(site, app, username="ada"):
    browser = between(site, username)
    assert give(browser, app.next_code()).headers["Location"] == "/"
    return browser


def secret_in(page) -> str:
    found = re.search(r'data-copy="([A-Z2-7 ]+)"', page.text)
    assert found, page.text
    return found[1].replace(" ", "")


def codes_in(page) -> list[str]:
    return re.findall(r"\b(?:[0-9A-Z]{4}-){3}[0-9A-Z]{4}\b", page.text)


class TestTheStepBetween:
    def test_leads_on_to_the_page_that_was_wanted(self, site, app):
        browser = site.browser()
        reply = sign_in(browser, "ada", site.passwords["ada"], path="/login?next=account")

        assert reply.headers["Location"] == "/login/code?next=account"
        done = give(browser, app.code(), path="/login/code?next=account")

        assert (done.status_code, done.headers["Location"]) == (303, "/account")
        assert get(browser, "/account").status_code == 200
        assert browser.cookie(STEP) is None

    def test_is_no_session_and_reaches_nothing(self, site, app):
        browser = between(site)
        stolen = site.browser()
        stolen.set_cookie(browser.cookie(STEP))
        stolen.csrf = token_for(browser.cookie(STEP))
        before = site.everything()

        for each in (browser, stolen):
            for rule in site.app.url_map.iter_rules():
                path = address_of(rule)
                if admission_of(site.app, rule.endpoint).is_open and not rule.endpoint.startswith(
                    ("second_factor.", "password.")
                ):
                    continue
                for method in rule.methods - {"HEAD", "OPTIONS"}:
                    reply = each.send(method, path, {} if method == "POST" else None)
                    is_turned_away = reply.status_code == 401 or (
                        reply.status_code == 303 and reply.headers["Location"].startswith("/login")
                    )
                    assert is_turned_away, (method, path, reply.status_code)

        assert site.everything() == before

    def test_its_cookie_is_as_well_kept_as_a_sessions(self, https_site):
        with_factor(https_site, "ada")
        reply = sign_in(https_site.browser(), "ada", https_site.passwords["ada"])

        (cookie,) = [each for each in reply.headers.getlist("Set-Cookie") if "step" in each]
        parts = [part.strip() for part in cookie.split(";")]
        assert parts[0].startswith("__Host-atmem_step=")
        assert set(parts[1:]) == {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"}

    def test_takes_only_a_form_that_was_given_to_whoever_gave_the_password(self, site, app):
        browser, other = between(site), between(site)
        visitor = site.browser()
        foreign = [
            None, "", "A" * 43, "é", token_in(get(visitor, "/login")), challenge_token_for(other.cookie(STEP)),
            token_for(browser.cookie(STEP)),
        ]  # fmt: skip
        before = site.everything()

        for token in foreign:
            assert post(browser, "/login/code", {"code": app.code()}, token=token).status_code == 403
        right = challenge_token_for(browser.cookie(STEP))
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            assert post(browser, "/login/code", {"code": app.code()}, token=right, **headers).status_code == 403

        assert site.everything() == before
        assert give(browser, app.code()).status_code == 303

    def test_a_wrong_code_is_told_beside_its_field_and_may_be_given_again(self, site, app):
        browser = between(site)

        refused = give(browser, app.wrong_code())

        assert refused.status_code == 422
        assert "The code is wrong, or was used already." in refused.text
        assert "Set-Cookie" not in refused.headers
        assert give(browser, app.code()).status_code == 303

    def test_a_used_and_a_wrong_code_look_the_same(self, site, app):
        code = app.code()
        give(between(site), code)
        browser = between(site)

        pages = [give(browser, each) for each in (code, app.wrong_code(), "", "x" * 200, app.recovery_codes[0] + "0")]

        assert {page.status_code for page in pages} == {422}
        assert len({page.text for page in pages}) == 1

    def test_too_many_are_told_when_to_come_back(self, site, app):
        browser = between(site)
        replies = [give(browser, app.wrong_code()) for _ in range(6)]

        assert [reply.status_code for reply in replies] == [422] * 5 + [429]
        assert 0 < int(replies[-1].headers["Retry-After"]) <= 60

    def test_that_took_too_long_begins_again_and_says_so(self, site, app):
        browser = between(site)
        token = token_in(get(browser, "/login/code"))
        before = site.rows(sessions)
        site.clock.advance(301)

        late = post(browser, "/login/code", {"code": app.code()}, token=token)

        assert (late.status_code, late.headers["Location"]) == (303, "/login?over=yes")
        assert "Too much time has passed" in get(browser, "/login?over=yes").text
        assert browser.cookie(STEP) is None
        assert site.rows(sessions) == before

    def test_without_one_there_is_no_page(self, site):
        browser = site.browser()

        assert get(browser, "/login/code").headers["Location"] == "/login"
        assert get(browser, "/login/code", **HTMX).headers["HX-Redirect"] == "/login?ended=yes"
        browser.set_cookie("A" * 43, STEP)
        assert get(browser, "/login/code").headers["Location"] == "/login?over=yes"

    def test_a_session_from_before_ends_when_the_code_is_right(self, site, app):
        old = signed_in(site, app).cookie(COOKIE)
        browser = between(site)
        browser.set_cookie(old)

        assert give(browser, app.next_code()).status_code == 303

        assert browser.cookie(COOKIE) != old
        stale = site.browser()
        stale.set_cookie(old)
        assert get(stale, "/account").status_code == 303

    def test_a_temporary_password_and_a_code_lead_to_a_new_password(self, site, app):
        site.passwords["ada"] = site.wiring.auth.accounts.reset_password("ada", by=LOCAL).password

        assert give(between(site), app.code()).headers["Location"] == "/password"


class TestOverJson:
    def test_the_code_comes_with_the_password(self, site, app):
        body = {"username": "ada", "password": site.passwords["ada"]}

        asked = site.browser().post(LOGIN, body)
        refused = site.browser().post(LOGIN, {**body, "code": app.wrong_code()})
        taken = site.browser().post(LOGIN, {**body, "code": app.code()})
        again = site.browser().post(LOGIN, {**body, "code": app.code()})

        assert (asked.status_code, asked.json["error"]["code"]) == (401, "second_factor_required")
        assert (refused.status_code, refused.json["error"]["code"]) == (401, "second_factor_failed")
        assert taken.status_code == 200
        assert again.json["error"] == refused.json["error"]
        assert "Set-Cookie" not in asked.headers
        assert "Set-Cookie" not in refused.headers

    @pytest.mark.parametrize("code", [123456, ["123456"], {}, True, "1" * 65])
    def test_what_is_no_text_is_malformed(self, site, app, code):
        body = {"username": "ada", "password": site.passwords["ada"], "code": code}

        assert site.browser().post(LOGIN, body).status_code == 400

    def test_null_is_as_absent(self, site):
        site.person("bob")

        assert (
            site.browser()
            .post(LOGIN, {"username": "bob", "password": site.passwords["bob"], "code": None})
            .json["authenticated"]
        )

    def test_giving_the_password_again_asks_for_no_code(self, site, app):
        browser = site.browser()
        browser.post(LOGIN, {"username": "ada", "password": site.passwords["ada"], "code": app.code()})

        assert browser.post("/api/auth/reauthenticate", {"password": site.passwords["ada"]}).status_code == 200


class TestSettingItUp:
    def test_from_the_account_page_to_the_recovery_codes(self, site):
        site.person("ada")
        browser = site.signed_in("ada")
        assert "Set it up" in get(browser, "/account").text
        before = browser.cookie(COOKIE)

        shown = post(browser, f"{PAGE}/start")
        app = App(secret_in(shown), site.clock)
        refused = post(browser, f"{PAGE}/confirm", {"code": app.wrong_code()})
        done = post(browser, f"{PAGE}/confirm", {"code": app.code()})

        assert (shown.status_code, refused.status_code, done.status_code) == (200, 422, 200)
        assert secret_in(refused) == app.secret
        assert len(set(codes_in(done))) == 10
        assert browser.cookie(COOKIE) != before
        assert get(browser, "/account").status_code == 200
        app.recovery_codes = tuple(codes_in(done))
        assert give(between(site), app.recovery_codes[0]).status_code == 303

    def test_the_picture_says_what_the_text_says_and_needs_no_style(self, site):
        site.person("ada")
        page = post(site.signed_in("ada"), f"{PAGE}/start")

        picture = re.search(r"<svg class=\"qr\".*?</svg>", page.text, re.DOTALL)[0]
        assert "style" not in picture
        assert "data:" not in page.text
        assert "href" not in picture
        assert 'role="img"' in picture
        assert read_qr(picture) == expected_qr(secret_in(page), "ada")

    def test_each_begin_has_a_secret_of_its_own(self, site):
        site.person("ada")
        browser = site.signed_in("ada")

        first, second = (secret_in(post(browser, f"{PAGE}/start")) for _ in range(2))

        assert first != second
        refused = post(browser, f"{PAGE}/confirm", {"code": App(first, site.clock).code()})
        assert refused.status_code == 422

    def test_needs_the_password_again_after_ten_minutes(self, site):
        password = site.person("ada")
        browser = site.signed_in("ada")
        site.clock.advance(601)

        page = get(browser, PAGE)
        missing = post(browser, f"{PAGE}/start")
        wrong = post(browser, f"{PAGE}/start", {"password": "wrong"})
        right = post(browser, f"{PAGE}/start", {"password": password})

        assert 'name="password"' in page.text
        assert (missing.status_code, wrong.status_code, right.status_code) == (403, 422, 200)
        app = App(secret_in(right), site.clock)
        assert len(codes_in(post(browser, f"{PAGE}/confirm", {"code": app.code()}))) == 10

    def test_that_took_too_long_begins_again(self, site):
        site.person("ada")
        browser = site.signed_in("ada")
        app = App(secret_in(post(browser, f"{PAGE}/start")), site.clock)
        site.clock.advance(600)

        late = post(browser, f"{PAGE}/confirm", {"code": app.code()})

        assert late.status_code == 422
        assert "begin again" in late.text
        assert site.rows(recovery_codes) == []

    def test_on_pages_with_an_address_neither_secret_nor_codes_are_shown_again(self, site, caplog):
        caplog.set_level(logging.DEBUG)
        site.person("ada")
        browser = site.signed_in("ada")
        app = App(secret_in(post(browser, f"{PAGE}/start")), site.clock)
        done = post(browser, f"{PAGE}/confirm", {"code": (code := app.code())})
        assert done.headers["Cache-Control"] == "no-store"
        secrets = [app.secret, code, *codes_in(done), *(each.replace("-", "") for each in codes_in(done))]

        pages = [get(browser, path).text for path in addresses(site.app, "GET")]
        rest = [repr(site.everything()), caplog.text, *(repr(dict(reply.headers)) for reply in (done,))]

        for text in [*pages, *rest]:
            found = html.unescape(text).replace(" ", "")
            assert not any(re.search(rf"(?<![0-9]){re.escape(secret)}(?![0-9])", found) for secret in secrets)


class TestChangingIt:
    def test_new_codes_are_shown_once(self, site, app):
        browser = signed_in(site, app)

        done = post(browser, f"{PAGE}/codes", {"code": app.next_code()})

        assert len(set(codes_in(done))) == 10
        assert set(codes_in(done)).isdisjoint(app.recovery_codes)
        assert codes_in(get(browser, PAGE)) == []

    def test_turning_it_off_takes_a_code_and_says_so(self, site, app):
        browser, other = signed_in(site, app), signed_in(site, app)

        refused = post(browser, f"{PAGE}/remove", {"code": app.wrong_code()})
        done = post(browser, f"{PAGE}/remove", {"code": app.next_code()})

        assert refused.status_code == 422
        assert (done.status_code, done.headers["Location"]) == (303, "/account")
        assert "Your second factor is off." in get(browser, "/account").text
        assert get(other, "/account").status_code == 303
        assert site.rows(second_factors) == []

    @pytest.mark.parametrize("what", ["codes", "remove"])
    def test_takes_the_password_too_after_ten_minutes(self, site, app, what):
        browser = signed_in(site, app)
        site.clock.advance(601)

        missing = post(browser, f"{PAGE}/{what}", {"code": app.code()})
        right = post(browser, f"{PAGE}/{what}", {"code": app.next_code(), "password": site.passwords["ada"]})

        assert missing.status_code == 403
        assert right.status_code in {200, 303}

    def test_few_codes_left_are_told(self, site, app):
        for code in app.recovery_codes[:8]:
            site.clock.advance(61)
            give(between(site), code)
        browser = signed_in(site, app)

        assert "2 recovery codes are left" in get(browser, PAGE).text
        assert "2 recovery codes left" in get(browser, "/account").text


class TestThePolicy:
    @pytest.fixture
    def ada(self, site):
        """An administrator without a second factor, once the policy asks for one."""
        site.person("ada", Role.ADMINISTRATOR)
        browser = site.signed_in("ada")
        site.wiring.auth.policy.set_administrators_need_second_factor(True, by=LOCAL)
        return browser

    def test_an_administrator_without_one_reaches_only_setting_it_up(self, site, ada):
        before = site.everything()
        opened = set()
        for rule in site.app.url_map.iter_rules():
            path = address_of(rule)
            is_public = admission_of(site.app, rule.endpoint).is_open and not rule.endpoint.startswith(
                ("password.", "session.", "sign_in.", "second_factor.")
            )
            if is_public or path in {"/logout", "/api/auth/logout", "/login", LOGIN, "/login/code"}:
                continue
            for method in rule.methods - {"HEAD", "OPTIONS"}:
                if path.startswith(PAGE):
                    opened.add(path)
                    continue
                is_page = rule.endpoint.partition(".")[0] in PAGE_BLUEPRINTS
                reply = (
                    (get(ada, path) if method == "GET" else post(ada, path))
                    if is_page
                    else ada.send(method, path, {} if method == "POST" else None)
                )
                if reply.status_code == 303:
                    assert reply.headers["Location"].startswith(PAGE), (method, path)
                else:
                    assert reply.status_code == 403, (method, path, reply.status_code)
                    assert reply.json["error"]["code"] == "second_factor_enrolment_required", path
                if is_page and method == "GET":
                    assert get(ada, path, **HTMX).headers["HX-Redirect"] == PAGE, path

        assert opened == {PAGE, f"{PAGE}/start", f"{PAGE}/confirm", f"{PAGE}/codes", f"{PAGE}/remove"}
        assert site.everything() == before
        assert post(ada, "/logout").status_code == 303

    def test_setting_it_up_opens_the_rest(self, site, ada):
        shown = post(ada, f"{PAGE}/start")
        done = post(ada, f"{PAGE}/confirm", {"code": App(secret_in(shown), site.clock).code()})

        assert len(codes_in(done)) == 10
        assert get(ada, "/resume-work").status_code == 200

    def test_goes_on_to_the_page_that_was_wanted(self, site, ada):
        assert get(ada, "/activity").headers["Location"] == f"{PAGE}?next=activity"
        shown = post(ada, f"{PAGE}/start?next=activity")
        done = post(ada, f"{PAGE}/confirm?next=activity", {"code": App(secret_in(shown), site.clock).code()})

        assert 'href="/activity"' in done.text

    def test_a_temporary_password_comes_first(self, site, ada):
        made = site.wiring.auth.accounts.create("new", role=Role.ADMINISTRATOR, workspace_names=[], by=LOCAL)
        browser = site.browser()
        sign_in(browser, "new", made.password)

        assert get(browser, PAGE).headers["Location"] == "/password"
        fields = {
            "current_password": made.password,
            "new_password": (new := "seven lanterns above harbour"),
            "again": new,
        }
        assert post(browser, "/password", fields).status_code == 303
        assert get(browser, "/resume-work").headers["Location"].startswith(PAGE)

    def test_others_and_credentials_are_not_held(self, site, ada):
        site.person("bob", Role.OPERATOR)

        assert get(site.signed_in("bob"), "/resume-work").status_code == 200

    def test_credentials_of_such_an_administrator_go_on(self, site):
        site.person("ada", Role.ADMINISTRATOR)
        browser = site.signed_in("ada")
        token = browser.post("/v1/evidence/grants", {"principal_id": "p", "role": "evidence_collector"}).json["token"]
        site.wiring.auth.policy.set_administrators_need_second_factor(True, by=LOCAL)

        reply = site.browser().send("GET", "/v1/continuity", headers={"Authorization": f"Bearer {token}"})

        assert reply.status_code == 200

    def test_turned_off_again_it_holds_at_the_next_request(self, site):
        app = with_factor(site, "ada", Role.ADMINISTRATOR)
        site.wiring.auth.policy.set_administrators_need_second_factor(True, by=LOCAL)
        browser = signed_in(site, app)
        assert get(browser, "/resume-work").status_code == 200

        post(browser, f"{PAGE}/remove", {"code": app.next_code()})

        assert get(browser, "/resume-work").headers["Location"].startswith(PAGE)


def read_qr(picture: str) -> list[str]:
    """Return the dark and light modules that an SVG picture draws, row by row."""
    side = int(re.search(r'viewBox="0 0 (\d+)', picture)[1])
    rows = [[" "] * side for _ in range(side)]
    for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1", picture):
        rows[int(y)][int(x) : int(x) + int(width)] = ["#"] * int(width)
    return ["".join(row) for row in rows]


def expected_qr(secret: str, username: str) -> list[str]:
    import segno  # noqa: PLC0415

    from app.auth.one_time_codes import address_of  # noqa: PLC0415

    rows = segno.make(address_of(secret, username=username), error="m", micro=False).matrix
    side = len(rows) + 8
    blank = [" " * side] * 4
    return [*blank, *(" " * 4 + "".join("#" if dark else " " for dark in row) + " " * 4 for row in rows), *blank]


def test_the_rows_of_the_step_are_gone_after_it(site, app):
    signed_in(site, app)

    assert site.rows(challenges) == []
