"""A second factor in a real browser: set up, signed in with, turned off; with the keyboard, and without scripts."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import expect

from app.auth.accounts import LOCAL
from app.wiring import SystemClock
from continuity.services.callers import Role
from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import WIDTHS
from tests.second_factors import App

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def _patient(people):
    people.forget_attempts()
    yield
    people.wiring.auth.policy.set_administrators_need_second_factor(False, by=LOCAL)


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
        assert visit.page.locator("script:not([src]), style, [style], [onclick]").count() == 0
        take(visit.page, name, tmp_path)

    return checked


def newcomer(people, name, role=Role.OPERATOR) -> str:
    """Make an account for one test; return its name."""
    username = f"{name}{time.monotonic_ns()}"
    people.add(username, role)
    return username


def app_of(visit) -> App:
    secret = visit.page.locator(".qr-secret code").inner_text().replace(" ", "")
    return App(secret, SystemClock())


def test_from_setting_it_up_to_turning_it_off(people, open_visit, check):
    name = newcomer(people, "ada")
    visit = open_visit(people.url)
    visit.sign_in(name, people.passwords[name])
    visit.go("/account")
    visit.page.get_by_role("link", name="Set it up").click()
    check(visit, "second-factor-off")

    visit.page.get_by_role("button", name="Set it up").click()
    check(visit, "second-factor-secret")
    box = visit.page.locator("svg.qr").bounding_box()
    assert box is not None
    assert box["width"] >= 200
    app = app_of(visit)
    visit.field("Code").fill(app.wrong_code())
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_text("The code is wrong")).to_be_visible()
    expect(visit.field("Code")).to_be_focused()
    visit.field("Code").fill(app.code(steps=-1))
    visit.page.keyboard.press("Enter")

    expect(visit.page.get_by_role("heading", level=1)).to_have_text("Recovery codes")
    check(visit, "second-factor-codes")
    codes = re.findall(r"[0-9A-Z-]{19}", visit.page.locator("#recovery-codes").inner_text())
    assert len(codes) == 10
    visit.page.get_by_role("link", name="I have kept them").click()
    assert visit.path == "/account"
    visit.go("/account/second-factor")
    assert not any(code in visit.page.content() for code in codes)
    visit.page.get_by_text("Make new recovery codes").click()
    visit.page.get_by_text("Turn off the second factor").click()
    check(visit, "second-factor-on")

    visit.page.locator("#remove-code").fill(codes[0])
    visit.page.get_by_role("button", name="Turn it off").click()
    expect(visit.page.get_by_text("Your second factor is off.")).to_be_visible()
    assert visit.path == "/account"


def with_factor(people, open_visit, name) -> App:
    """Give an account a second factor by its pages; return its app, with the recovery codes."""
    visit = open_visit(people.url, java_script_enabled=False)
    visit.sign_in(name, people.passwords[name])
    visit.go("/account/second-factor")
    visit.page.get_by_role("button", name="Set it up").click()
    app = app_of(visit)
    visit.field("Code").fill(app.code(steps=-1))
    visit.page.get_by_role("button", name="Turn it on").click()
    app.recovery_codes = tuple(visit.page.locator("#recovery-codes").inner_text().split())
    return app


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_signing_in_takes_two_steps_and_the_keyboard_is_enough(people, open_visit, scripts):
    name = newcomer(people, "bob")
    app = with_factor(people, open_visit, name)
    people.forget_attempts()
    visit = open_visit(people.url, java_script_enabled=scripts)
    visit.go("/account")

    visit.field("Username").fill(name)
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.type(people.passwords[name])
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_url("**/login/code?next=account")
    expect(visit.field("Code")).to_be_focused()
    visit.page.keyboard.type("000000" if app.code() != "000000" else "111111")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_text("The code is wrong, or was used already.")).to_be_visible()
    visit.field("Code").fill(app.code())
    visit.page.keyboard.press("Enter")

    visit.page.wait_for_url("**/account")
    assert visit.heading == "Your account"


def test_the_step_to_the_code_is_a_page_like_the_others(people, open_visit, check):
    name = newcomer(people, "cleo")
    app = with_factor(people, open_visit, name)
    people.forget_attempts()
    visit = open_visit(people.url)
    visit.sign_in(name, people.passwords[name])

    assert (visit.path, visit.heading) == ("/login/code", "Your code")
    check(visit, "sign-in-code")
    visit.field("Code").fill(app.wrong_code())
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_text("The code is wrong")).to_be_visible()
    check(visit, "sign-in-code-wrong")
    visit.go("/account")
    assert visit.path == "/login?next=account"
    visit.go("/login/code")
    visit.field("Code").fill(app.recovery_codes[0].lower())
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_url("**/resume-work")


def test_an_administrator_whom_the_policy_holds_sets_one_up_first(people, open_visit, check):
    name = newcomer(people, "boss", Role.ADMINISTRATOR)
    people.wiring.auth.policy.set_administrators_need_second_factor(True, by=LOCAL)
    visit = open_visit(people.url)
    visit.sign_in(name, people.passwords[name])

    assert visit.path.startswith("/account/second-factor")
    assert visit.heading == "Set up a second factor"
    assert visit.page.get_by_role("navigation").count() == 0
    check(visit, "second-factor-forced")
    visit.go("/resume-work?state=decision")
    assert visit.path.startswith("/account/second-factor?next=")
    visit.page.get_by_role("button", name="Set it up").click()
    check(visit, "second-factor-forced-secret")
    visit.field("Code").fill(app_of(visit).code())
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("link", name="I have kept them").click()
    assert visit.path == "/resume-work?state=decision"


def test_a_policy_that_comes_while_an_administrator_writes_takes_no_word(people, open_visit):
    name = newcomer(people, "boss", Role.ADMINISTRATOR)
    visit = open_visit(people.url)
    visit.sign_in(name, people.passwords[name])
    visit.go("/resume-work")
    field = visit.page.get_by_role("searchbox")
    field.fill("half a sea")
    people.wiring.auth.policy.set_administrators_need_second_factor(True, by=LOCAL)

    expect(visit.page.locator("#trouble")).to_contain_text("Another page wants something of you first.")
    assert visit.path == "/resume-work"
    expect(field).to_have_value("half a sea")
    with visit.context.expect_page() as opened:
        visit.page.get_by_role("link", name="Open it in a new tab").click()
    opened.value.wait_for_load_state()
    assert "/account/second-factor" in opened.value.url
