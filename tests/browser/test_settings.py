"""Settings in a real browser: people, sessions, credentials, vault, about; with and without scripts."""

from __future__ import annotations

import re
import threading

import pytest
from playwright.sync_api import expect

from continuity.services.callers import Role
from tests.browser import halls
from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import WIDTHS

pytestmark = pytest.mark.browser

PEOPLE = "/settings/people"
SESSIONS = "/settings/sessions"
CREDENTIALS = "/settings/credentials"
VAULT = "/settings/vault"
TOKEN = re.compile(r"atm_o_[A-Za-z0-9_-]{43}_[0-9A-Za-z]{6}")
PASSPHRASE = "seven lanterns above the harbour"
OLD_S = 11 * 60


@pytest.fixture(scope="module")
def hall(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("settings") / "instance")
    with halls.opened(instance) as opened:
        opened.site.person("bob", Role.OPERATOR, at=("default", "north"))
        opened.site.person("cyd", Role.INVESTIGATOR)
        opened.site.person("eve", Role.ADMINISTRATOR)
        yield opened


@pytest.fixture
def visit(hall, open_visit):
    return signed_in(hall, open_visit)


def signed_in(hall, open_visit, username="adm", **options):
    # Past the window of the throttle.
    hall.site.clock.advance(61)
    visit = open_visit(hall.url, **options)
    visit.sign_in(username, hall.password(username))
    return visit


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
        take(visit.page, f"settings-{name}", tmp_path)

    return checked


def id_of(hall, username):
    return hall.site.wiring.auth.people.named(username).user_id


def person(hall, username):
    return f"{PEOPLE}/{id_of(hall, username)}"


def open_all(visit):
    for control in visit.page.locator("details.control").all():
        if control.get_attribute("open") is None:
            control.locator("summary").click()


def press(visit, name):
    visit.page.get_by_role("button", name=name, exact=True).click()
    visit.page.wait_for_load_state()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("people", PEOPLE),
        ("people-none", f"{PEOPLE}?q=zzz"),
        ("person-new", f"{PEOPLE}/new"),
        ("sessions", SESSIONS),
        ("sessions-none", f"{SESSIONS}?q=zzz"),
        ("credentials-none", f"{CREDENTIALS}?issuer=zzz"),
        ("credential-new", f"{CREDENTIALS}/new"),
        ("about", "/settings/about"),
    ],
)
def test_every_screen_holds_what_every_page_holds_to(visit, check, name, path):
    assert visit.go(path) == 200

    check(visit, name)


def test_a_person_with_every_control_open(hall, visit, check):
    visit.go(person(hall, "bob"))
    open_all(visit)

    check(visit, "person")


def test_no_administrator_finds_no_settings(hall, open_visit, check):
    visit = signed_in(hall, open_visit, "op")

    assert visit.go("/settings") == 403
    assert visit.page.get_by_role("link", name="Settings").count() == 0
    check(visit, "refused")


def test_an_account_is_made_with_the_keyboard_and_its_password_is_shown_once(hall, visit, open_visit, check):
    visit.go(PEOPLE)
    visit.page.get_by_role("link", name="New account").press("Enter")
    visit.page.wait_for_url("**/new")
    assert visit.page.evaluate("document.activeElement.name") == "username"
    keyboard = visit.page.keyboard
    keyboard.type("dana")
    keyboard.press("Tab")
    keyboard.press("ArrowDown")
    keyboard.press("Tab")
    keyboard.press("ControlOrMeta+a")
    keyboard.type("default south")
    keyboard.press("Enter")
    visit.page.wait_for_load_state()

    assert visit.heading == "Temporary password of dana"
    temporary = visit.page.locator("#temporary").inner_text()
    expect(visit.page.get_by_role("button", name="Copy Temporary password")).to_be_visible()
    check(visit, "temporary")
    visit.page.get_by_role("link", name="I have it: go on").click()
    visit.page.wait_for_load_state()
    assert temporary not in visit.page.content()
    assert hall.site.wiring.auth.people.named("dana").role is Role.INVESTIGATOR
    newcomer = open_visit(hall.url)
    newcomer.sign_in("dana", temporary)
    assert newcomer.heading == "Choose your password"


def test_a_refusal_and_an_old_password_check_keep_what_was_written(hall, visit, check):
    visit.go(f"{PEOPLE}/new")
    hall.site.clock.advance(OLD_S)
    visit.field("Name").fill("Bad Name")
    visit.field("Workspaces").fill("north south")
    visit.page.get_by_role("radio", name="Administrator").check()
    press(visit, "Make the account")

    assert "More than ten minutes have passed" in visit.page.locator("main").inner_text()
    assert visit.field("Name").input_value() == "Bad Name"
    assert visit.page.get_by_role("radio", name="Administrator").is_checked()
    check(visit, "person-password-first")
    visit.field("Your password").fill(hall.password("adm"))
    press(visit, "Make the account")
    assert visit.page.locator("[aria-invalid=true]").get_attribute("name") == "username"
    assert visit.field("Workspaces").input_value() == "north south"
    check(visit, "person-incomplete")


def test_what_was_decided_about_another_state_is_told(hall, visit, check):
    visit.go(person(hall, "cyd"))
    from app.auth.accounts import LOCAL  # noqa: PLC0415

    hall.site.wiring.auth.accounts.set_workspaces("cyd", ["elsewhere"], by=LOCAL)
    open_all(visit)
    press(visit, "Disable the account")

    expect(visit.page.get_by_role("alert").first).to_contain_text("It has changed since you opened this page")
    check(visit, "person-conflict")


def test_everything_works_without_scripts(hall, open_visit):
    visit = signed_in(hall, open_visit, java_script_enabled=False)
    visit.go(person(hall, "bob"))
    visit.page.locator("#control-disable > summary").click()
    press(visit, "Disable the account")
    assert "The account is disabled" in visit.page.locator("main").inner_text()
    visit.page.locator("#control-enable > summary").click()
    press(visit, "Enable the account")
    assert "The account is enabled" in visit.page.locator("main").inner_text()
    visit.go(f"{CREDENTIALS}/new")
    visit.field("Holder").fill("scriptless")
    press(visit, "Issue the credential")
    assert TOKEN.search(visit.page.locator("#token").inner_text())
    assert visit.page.locator(".copy:visible").count() == 0


def test_a_session_is_ended_from_the_list(hall, visit, open_visit):
    theirs = signed_in(hall, open_visit, "bob")
    visit.go(f"{SESSIONS}?q=bob")

    visit.page.get_by_role("button", name=re.compile("End all of bob")).click()
    visit.page.wait_for_load_state()

    expect(visit.page.locator("#note")).to_contain_text("Every session of this person has ended")
    theirs.go("/account")
    assert theirs.path.startswith("/login")


def test_a_credential_is_issued_copied_renewed_and_revoked(hall, visit, check):
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.go(f"{CREDENTIALS}/new")
    visit.field("Holder").fill("publisher")
    visit.field("Workspace").fill("default")
    press(visit, "Issue the credential")

    token = visit.page.locator("#token").inner_text()
    visit.page.get_by_role("button", name="Copy Token").click()
    expect(visit.page.locator("#said")).to_have_text("Copied.")
    assert visit.page.evaluate("navigator.clipboard.readText()") == token
    visit.page.locator("#token").evaluate("each => { each.textContent = 'atm_o_' + 'A'.repeat(43) + '_000000' }")
    check(visit, "token")
    visit.page.get_by_role("link", name="I have it: go on").click()
    visit.page.wait_for_load_state()
    assert token not in visit.page.content()
    open_all(visit)
    check(visit, "credential")
    press(visit, "Renew")
    assert TOKEN.search(visit.page.locator("#token").inner_text())
    visit.go(f"{CREDENTIALS}?principal=publisher")
    assert visit.page.locator(".table-main").count() == 2
    check(visit, "credentials")
    visit.page.locator(".table-main").first.click()
    visit.page.wait_for_load_state()
    visit.page.locator("#control-revoke > summary").click()
    press(visit, "Revoke this credential")
    expect(visit.page.locator("#note")).to_contain_text("The credential is revoked")


def test_the_vault_is_rotated_with_its_progress_and_the_poll_stops(hall, visit, check):
    hall.stage.mail()
    visit.go(VAULT)
    open_all(visit)
    check(visit, "vault")
    press(visit, "Rotate the master key")

    expect(visit.page.locator("#rotation")).to_contain_text("Rotation under way")
    check(visit, "vault-rotating")
    hall.site.clock.advance(6)
    driver = threading.Thread(target=hall.site.wiring.vault_life.drive)
    driver.start()
    driver.join()
    expect(visit.page.locator("#rotation")).to_contain_text("Last rotation")
    assert visit.page.locator("#vault-keys").get_attribute("hx-get") is None
    expect(visit.page.locator("#vault-keys")).to_contain_text("number 2")
    # Nothing on the page says that it goes on still, and the next one is a click away.
    expect(visit.page.locator("main")).not_to_contain_text("rotation is under way")
    visit.page.get_by_role("link", name="open it again").click()
    expect(visit.page.locator("#control-rotate")).to_be_visible()
    expect(visit.page.locator("#rotation")).not_to_contain_text("open it again")


def test_the_vault_is_locked_and_unlocked_here(hall, visit, check):
    scene = hall.stage.mail()
    visit.go(VAULT)
    visit.page.locator("#control-lock > summary").click()
    visit.field("Passphrase to lock with").fill(PASSPHRASE)
    visit.field("Passphrase to lock with, again").fill(f"{PASSPHRASE}!")
    press(visit, "Lock the vault")
    assert visit.page.locator("[aria-invalid=true]").get_attribute("name") == "again"
    visit.field("Passphrase to lock with").fill(PASSPHRASE)
    visit.field("Passphrase to lock with, again").fill(PASSPHRASE)
    press(visit, "Lock the vault")
    try:
        expect(visit.page.locator("#vault-keys")).to_contain_text("Locked")
        check(visit, "vault-locked")
        for path, name in ((CREDENTIALS, "credentials-locked"), (f"{CREDENTIALS}/new", "credential-new-locked")):
            assert visit.go(path) == 200
            check(visit, name)
        assert visit.go(f"/resume-work/{scene.workflow_id}") == 423
        visit.go(VAULT)
        visit.field("Passphrase of the vault").fill("not this one at all")
        press(visit, "Unlock the vault")
        assert "This is not the passphrase" in visit.page.locator("main").inner_text()
        check(visit, "vault-wrong-passphrase")
    finally:
        visit.go(VAULT)
        visit.field("Passphrase of the vault").fill(PASSPHRASE)
        press(visit, "Unlock the vault")
    expect(visit.page.locator("#note")).to_contain_text("The vault is unlocked")
    assert visit.go(f"/resume-work/{scene.workflow_id}") == 200


def test_what_keeps_the_capture_mode_is_listed(hall, visit, check):
    hall.stage.mail()
    visit.go(VAULT)
    visit.page.locator("#control-capture > summary").click()
    visit.page.get_by_role("radio", name="Off").check()
    press(visit, "Change the capture mode")

    expect(visit.page.get_by_role("alert").first).to_contain_text("Work that is not finished needs exact content")
    check(visit, "vault-capture-refused")
