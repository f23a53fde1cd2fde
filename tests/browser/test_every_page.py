"""What holds on every page that needs no workflow: axe, widths, policy, pictures."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.failing import FAILURES, failing_server
from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import WIDTHS

pytestmark = pytest.mark.browser

SIGNED_IN = {"account": "/account", "password": "/password", "password-again": "/reauthenticate", "nothing": "/nowhere"}
SIGNED_OUT = {"sign-in": "/login", "nothing-signed-out": "/nowhere"}


@pytest.fixture(autouse=True)
def _patient(people):
    people.forget_attempts()


@pytest.fixture
def check(tmp_path):
    """Look at the page as it stands: in both themes, wide and narrow, at every width, and on a picture."""

    def checked(visit, name):
        for scheme in ("light", "dark"):
            for size in (WIDE, NARROW):
                visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                visit.page.set_viewport_size(size)
                assert visit.findings() == [], (name, scheme, size)
        assert {width: visit.overflow(width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0), name
        forms = visit.page.locator("form[method=post]")
        assert forms.count() == visit.page.locator("form[method=post] > input[name=csrf_token]").count()
        assert visit.page.locator("script:not([src]), style, [style], [onclick]").count() == 0
        take(visit.page, name, tmp_path)

    return checked


@pytest.mark.parametrize("name", SIGNED_OUT)
def test_before_signing_in(people, open_visit, check, name):
    visit = open_visit(people.url)
    visit.go(SIGNED_OUT[name])

    check(visit, name)


@pytest.mark.parametrize("name", SIGNED_IN)
def test_after_signing_in(people, open_visit, check, name):
    visit = open_visit(people.url)
    visit.sign_in("op", people.passwords["op"])
    visit.go(SIGNED_IN[name])

    check(visit, name)


@pytest.mark.parametrize("username", ["inv", "adm"])
def test_everybody_reads_what_they_may(people, open_visit, check, username):
    visit = open_visit(people.url)
    visit.sign_in(username, people.passwords[username])
    visit.go("/account")

    check(visit, f"account-{username}")


def test_every_problem_has_a_page(people, open_visit, check):
    with failing_server(people.instance) as url:
        visit = open_visit(url)
        visit.sign_in("op", people.passwords["op"])

        for status in FAILURES:
            assert visit.go(f"/fail/{status}") == status
            check(visit, f"problem-{status}")


def test_a_problem_inside_a_page_stands_above_what_stays(people, open_visit, check):
    with failing_server(people.instance) as url:
        visit = open_visit(url)
        visit.sign_in("op", people.passwords["op"])
        visit.go("/account")
        before = visit.page.locator("main section").all_inner_texts()

        visit.page.evaluate("htmx.ajax('GET', '/fail/423', {target: 'main section', swap: 'outerHTML'})")

        expect(visit.page.locator("#trouble")).to_contain_text("The vault is locked")
        assert len(visit.page.locator("main section").all_inner_texts()) == len(before)
        check(visit, "problem-inside")
        visit.page.evaluate("htmx.ajax('GET', '/account', {target: '#said', swap: 'none'})")
        expect(visit.page.locator("#trouble")).to_be_empty()


def test_a_server_that_is_gone_is_told_without_losing_the_page(people, open_visit):
    visit = open_visit(people.url)
    visit.sign_in("op", people.passwords["op"])
    visit.go("/account")

    visit.context.set_offline(True)
    visit.page.evaluate("htmx.ajax('GET', '/account', {target: '#said', swap: 'none'}).catch(() => {})")

    expect(visit.page.get_by_role("alert")).to_contain_text("cannot be reached")
    assert visit.heading == "Your account"


def test_htmx_may_do_no_more_than_it_needs(people, open_visit):
    visit = open_visit(people.url)
    visit.sign_in("op", people.passwords["op"])
    visit.go("/account")
    visit.go("/password")
    visit.page.go_back()

    config = visit.page.evaluate("htmx.config")
    wanted = {
        "allowEval": False, "allowScriptTags": False, "includeIndicatorStyles": False, "selfRequestsOnly": True,
        "historyCacheSize": 0, "historyRestoreAsHxRequest": False, "refreshOnHistoryMiss": True,
        "withCredentials": False, "allowNestedOobSwaps": False, "timeout": 15_000,
    }  # fmt: skip
    assert {name: config[name] for name in wanted} == wanted
    assert "htmx-history-cache" not in visit.page.evaluate("Object.keys(sessionStorage)")
    assert visit.page.evaluate("Object.keys(localStorage)") == []


def test_the_theme_is_the_systems_until_one_is_chosen_and_outlasts_signing_out(people, open_visit):
    visit = open_visit(people.url, color_scheme="light")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    visit.sign_in("op", people.passwords["op"])
    visit.go("/account")
    light = visit.page.evaluate(ground)
    visit.page.emulate_media(color_scheme="dark")
    dark = visit.page.evaluate(ground)
    assert light != dark

    visit.page.get_by_role("button", name="Light theme").first.click()
    assert visit.page.evaluate(ground) == light
    visit.page.reload()
    assert visit.page.evaluate(ground) == light
    expect(visit.page.get_by_role("button", name="Light theme").first).to_have_attribute("aria-pressed", "true")
    visit.page.get_by_role("button", name="Sign out").click()
    visit.page.wait_for_url("**/login")
    assert visit.page.evaluate(ground) == light
    visit.page.get_by_role("button", name="System theme").click()
    assert visit.page.evaluate(ground) == dark


def test_a_password_is_shown_while_one_asks_for_it(people, open_visit):
    visit = open_visit(people.url)
    visit.go("/login")
    field = visit.field("Password")

    visit.page.get_by_role("button", name="Show: Password").click()
    assert field.get_attribute("type") == "text"
    visit.page.get_by_role("button", name="Show: Password").click()
    assert field.get_attribute("type") == "password"


def test_times_are_local_with_utc_at_hand(people, open_visit):
    visit = open_visit(people.url, timezone_id="Asia/Kolkata", locale="en-GB")
    visit.sign_in("op", people.passwords["op"])
    visit.go("/account")
    time = visit.page.locator("time").first

    assert time.get_attribute("title").endswith(" UTC")
    hours = visit.page.evaluate(
        "new Date(document.querySelector('time').dateTime).toLocaleTimeString('en-GB', {timeZone: 'Asia/Kolkata'})"
    )
    assert hours in time.inner_text()
    assert "now" in time.inner_text() or "ago" in time.inner_text()
