"""Coming in and going out, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.screenshots import take

pytestmark = pytest.mark.browser

NEW = "seven lanterns above harbour"


@pytest.fixture(autouse=True)
def _patient(people):
    people.forget_attempts()


@pytest.fixture
def visit(people, open_visit):
    return open_visit(people.url)


def test_the_first_sign_in_leads_through_a_password_of_ones_own(people, visit, tmp_path):
    temporary = people.newcomer("ada")

    visit.go("/account")
    assert visit.path == "/login?next=account"
    take(visit.page, "sign-in", tmp_path)
    visit.sign_in("ada", temporary)

    assert (visit.path, visit.heading) == ("/password?next=account", "Choose your password")
    take(visit.page, "first-password", tmp_path)
    for path in ("/", "/account"):
        visit.go(path)
        assert visit.path == "/password"
    visit.field("Temporary password").fill(temporary)
    visit.field("New password").fill(NEW)
    visit.field("New password again").fill(NEW)
    visit.page.get_by_role("button", name="Set password and go on").click()

    visit.page.wait_for_url(lambda url: "/password" not in url)
    expect(visit.page.get_by_role("button", name="Sign out")).to_be_visible()
    visit.go("/account")
    assert visit.heading == "Your account"
    assert "ada" in visit.page.get_by_role("main").inner_text()


@pytest.mark.parametrize(
    ("current", "new", "again", "said"),
    [
        ("wrong", NEW, NEW, "The current password is wrong."),
        (None, "short", "short", "must be 12 to 128 characters"),
        (None, "password1234", "password1234", "easy to guess"),
        (None, NEW, NEW + "!", "not the same"),
    ],
)
def test_a_new_password_that_cannot_be_is_told_why_beside_its_field(people, visit, current, new, again, said):
    visit.sign_in("op", people.passwords["op"])
    visit.go("/password")

    visit.field("Current password").fill(current or people.passwords["op"])
    visit.field("New password").fill(new)
    visit.field("New password again").fill(again)
    visit.page.get_by_role("button", name="Change password").click()

    field = visit.page.locator("[aria-invalid=true]")
    expect(field).to_have_count(1)
    described = field.get_attribute("aria-describedby").split()
    assert said in " ".join(visit.page.locator(f"#{each}").inner_text() for each in described)
    assert visit.findings() == []


def test_a_wrong_password_is_refused_and_says_nothing_more(people, visit, tmp_path):
    said = []
    for username in ("op", "nobody-of-this-name"):
        visit.sign_in(username, "not this one either")
        said.append(visit.page.get_by_role("alert").inner_text())
        assert visit.field("Username").input_value() == username

    assert said == ["Username or password is wrong."] * 2
    take(visit.page, "sign-in-refused", tmp_path)
    visit.sign_in("op", people.passwords["op"])
    expect(visit.page.get_by_role("button", name="Sign out")).to_be_visible()


def test_whoever_tries_too_often_must_wait(people, visit, tmp_path):
    people.add("hasty")
    for _ in range(6):
        visit.sign_in("hasty", "guess after guess")

    expect(visit.page.get_by_role("alert")).to_contain_text("Too many attempts")
    visit.sign_in("hasty", people.passwords["hasty"])
    expect(visit.page.get_by_role("alert")).to_contain_text("Too many attempts")
    take(visit.page, "sign-in-throttled", tmp_path)


def test_after_signing_in_one_goes_on_where_one_was(people, visit):
    visit.go("/account")
    visit.sign_in("op", people.passwords["op"])

    assert visit.path == "/account"


def test_signing_out_ends_the_session_and_the_way_back(people, visit):
    visit.sign_in("op", people.passwords["op"])
    visit.go("/account")
    cookie = next(each for each in visit.context.cookies() if each["name"] == "atmem_session")

    visit.page.get_by_role("button", name="Sign out").click()
    visit.page.wait_for_url("**/login")

    visit.context.add_cookies([cookie])
    visit.go("/account")
    assert visit.path.startswith("/login")
    visit.page.go_back()
    expect(visit.page.get_by_role("heading", name="Your account")).to_have_count(0)


def test_a_session_that_ends_in_a_poll_moves_the_whole_page(people, visit):
    people.add("sleeper")
    visit.sign_in("sleeper", people.passwords["sleeper"])
    visit.go("/account")
    people.end_sessions_of("sleeper")

    visit.page.evaluate("htmx.ajax('GET', '/account', '#trouble')")
    visit.page.wait_for_url("**/login?ended=yes")

    assert visit.heading == "Sign in"
    expect(visit.page.get_by_text("Your session has ended")).to_be_visible()
    expect(visit.page.locator("form")).to_have_count(1)


def test_a_list_left_open_through_the_night_leads_to_the_sign_in_page_by_itself(people, visit):
    people.add("night")
    visit.sign_in("night", people.passwords["night"])
    visit.go("/resume-work")
    people.end_sessions_of("night")

    visit.page.wait_for_url("**/login?ended=yes")

    expect(visit.page.locator("form")).to_have_count(1)


def test_another_session_of_ones_own_can_be_ended(people, open_visit, tmp_path):
    people.add("two")
    here, there = open_visit(people.url), open_visit(people.url)
    for visit in (here, there):
        visit.sign_in("two", people.passwords["two"])
    here.go("/account")
    take(here.page, "account", tmp_path)

    expect(here.page.get_by_role("row")).to_have_count(3)
    here.page.get_by_role("row").filter(has_text="Another").get_by_role("button").click()

    expect(here.page.get_by_role("alert").filter(has_text="That session has ended.")).to_be_visible()
    expect(here.page.get_by_role("row")).to_have_count(2)
    here.page.reload()
    expect(here.page.get_by_text("That session has ended.")).to_have_count(0)
    there.go("/account")
    assert there.path.startswith("/login")


def test_all_other_sessions_can_be_ended_at_once(people, open_visit):
    people.add("many")
    visits = [open_visit(people.url) for _ in range(3)]
    for visit in visits:
        visit.sign_in("many", people.passwords["many"])

    visits[0].go("/account")
    visits[0].page.get_by_role("button", name="End all others").click()

    expect(visits[0].page.get_by_text("Every other session of yours has ended.")).to_be_visible()
    for visit in visits[1:]:
        visit.go("/account")
        assert visit.path.startswith("/login")


def test_changing_the_password_ends_the_other_sessions_and_keeps_this_one(people, open_visit):
    people.add("mover")
    here, there = open_visit(people.url), open_visit(people.url)
    for visit in (here, there):
        visit.sign_in("mover", people.passwords["mover"])

    here.go("/password")
    here.field("Current password").fill(people.passwords["mover"])
    here.field("New password").fill(NEW)
    here.field("New password again").fill(NEW)
    here.page.get_by_role("button", name="Change password").click()

    expect(here.page.get_by_text("Your password is changed.")).to_be_visible()
    there.go("/account")
    assert there.path.startswith("/login")


def test_without_a_mouse_one_comes_in_and_goes_out(people, visit):
    visit.go("/login")
    keys = visit.page.keyboard
    keys.type("op")
    keys.press("Tab")
    keys.type(people.passwords["op"])
    keys.press("Enter")
    visit.page.wait_for_url(lambda url: "/login" not in url)
    visit.go("/account")

    keys.press("Tab")
    expect(visit.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    keys.press("Enter")
    expect(visit.page.locator("main")).to_be_focused()
    out = visit.page.get_by_role("button", name="Sign out")
    for _ in range(40):
        if out.evaluate("element => element === document.activeElement"):
            break
        keys.press("Shift+Tab")
    expect(out).to_be_focused()
    keys.press("Enter")
    visit.page.wait_for_url("**/login")


def test_without_scripts_everything_is_there_but_what_needs_them(people, open_visit):
    visit = open_visit(people.url, java_script_enabled=False)
    temporary = people.newcomer("plain")

    visit.sign_in("plain", temporary)
    visit.field("Temporary password").fill(temporary)
    visit.field("New password").fill(NEW)
    visit.field("New password again").fill(NEW)
    visit.page.get_by_role("button", name="Set password and go on").click()
    visit.go("/account")

    assert visit.heading == "Your account"
    expect(visit.page.locator(".needs-js:visible")).to_have_count(0)
    assert "UTC" in visit.page.get_by_role("table").inner_text()
    visit.page.get_by_role("button", name="Sign out").click()
    assert visit.path == "/login"
