"""The stories of Resume work, told in a real browser on a server whose clock the test moves."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from playwright.sync_api import expect

from app.auth import schema
from continuity.services.callers import Role
from continuity.services.sweeping import Sweeper
from tests.browser.halls import opened
from tests.browser.screenshots import take
from tests.browser.visits import WIDTHS
from tests.web.scenes import FINAL_QUERY, IDEMPOTENT, MAIL, PUBLISH, QUERY

pytestmark = pytest.mark.browser

SECOND_US = 1_000_000


@pytest.fixture(scope="module")
def hall(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("hall") / "instance")
    with opened(instance) as made:
        yield made


@pytest.fixture(autouse=True)
def _patient(hall):
    """Let everybody try passwords again: tests sign in faster than people."""
    hall.site.wiring.store.write(lambda connection: connection.execute(sa.delete(schema.throttle)).rowcount)


@pytest.fixture
def sign_in(hall, open_visit):
    """Open a browser and sign in; the browser's wall clock is the server's."""

    def signed_in(username="op", **options):
        visit = open_visit(hall.url, **options)
        visit.page.clock.set_fixed_time(hall.site.clock.now_us() / SECOND_US)
        visit.sign_in(username, hall.password(username))
        return visit

    return signed_in


@pytest.fixture
def op(sign_in):
    return sign_in()


def look_at(visit, scene):
    assert visit.go(f"/resume-work/{scene.workflow_id}") == 200


def press(visit, name):
    visit.page.get_by_role("button", name=name, exact=True).click()
    visit.page.wait_for_load_state()


def unfold(visit, name):
    """Open a control unless it is open."""
    control = visit.page.locator("details.control", has=visit.page.locator("summary", has_text=name)).first
    if control.get_attribute("open") is None:
        control.locator("summary").click()
    return control


def said(visit):
    return visit.page.get_by_role("alert").filter(has_text=re.compile(r"\w"))


def lead(visit):
    return visit.page.locator(".lead h2")


# ---- stories


def test_prepared_work_is_reviewed_and_enabled(hall, op, tmp_path):
    scene = hall.stage.prepare(PUBLISH, MAIL, key="publish-release-notes")
    op.go("/resume-work")
    op.page.get_by_role("link", name="Needs review").click()
    op.page.get_by_role("link", name="publish-release-notes").click()

    expect(lead(op)).to_have_text("Waits for your review")
    expect(op.page.locator("#operation-1")).to_contain_text("/srv/published")
    expect(op.page.locator("#control-enable")).to_contain_text("Start a worker: your host does that.")
    press(op, "Enable recovery")

    expect(said(op)).to_contain_text("Recovery is enabled.")
    expect(lead(op)).to_have_text("Ready for its first attempt")
    take(op.page, "work-enabled", tmp_path)
    scene.begin("publish")


def test_after_a_lost_worker_a_person_says_that_nothing_happened_and_it_runs_once_more(hall, op, tmp_path):
    scene = hall.stage.mail(key="invoice-4711")
    look_at(op, scene)
    scene.begin()
    expect(lead(op)).to_have_text("A worker is at it now")
    expect(op.page.locator(".countdown")).to_have_text(re.compile(r"1 min 5\d s|2 min 0 s"))

    hall.site.clock.advance(121)
    expect(lead(op)).to_have_text("Needs confirmation: no receipt came")
    expect(op.page.locator("#control-confirm-1")).to_have_attribute("open", "")
    take(op.page, "workflow", tmp_path)
    deny = op.page.locator(".answer", has_text="It did not happen").last
    deny.get_by_label("I looked at the destination just now, and it is not there").check()
    deny.get_by_label("Why you are sure").fill("Neither in the outbox nor in the provider's log.")
    press(op, "It did not happen")

    expect(said(op)).to_contain_text("It may be executed exactly once more.")
    expect(lead(op)).to_have_text("Ready once more, on a person's word")
    scene.begin().succeed("msg-2")
    expect(lead(op)).to_have_text("Everything is done")
    expect(op.page.locator("#workflow")).not_to_have_attribute("hx-get", re.compile("."))
    expect(op.page.locator(".history")).to_contain_text("Neither in the outbox nor in the provider's log.")


def test_a_person_says_that_it_happened_and_the_result_is_kept(hall, op, tmp_path):
    scene = hall.stage.mail()
    scene.lose()
    look_at(op, scene)

    agree = op.page.locator(".answer").first
    agree.get_by_label("Id of the effect at the destination").fill("msg-1")
    agree.get_by_label("Result for the agent, as JSON").fill('{"url": ')
    agree.get_by_label("Why you are sure").fill("Ada has the mail.")
    press(op, "It happened")
    expect(said(op)).to_contain_text("Something in the form is not right")
    assert op.findings() == []
    take(op.page, "work-incomplete", tmp_path)
    agree.get_by_label("Result for the agent, as JSON").fill('{"url": "https://example.org"}')
    press(op, "It happened")

    expect(lead(op)).to_have_text("Everything is done")
    expect(op.page.locator("#operation-1")).to_contain_text("operator-attested")
    take(op.page, "work-confirmed", tmp_path)


def test_a_late_receipt_contradicts_a_confirmation_and_stops_everything(hall, op, tmp_path):
    scene = hall.stage.mail()
    first = scene.lose()
    scene.confirm(happened=False)
    look_at(op, scene)
    expect(lead(op)).to_have_text("Ready once more, on a person's word")
    hall.site.clock.advance(1)
    first.succeed("msg-late")

    expect(lead(op)).to_have_text("A late receipt contradicts the confirmation")
    expect(op.page.locator(".side-late")).to_contain_text("It says the opposite: it happened.")
    expect(op.page.locator(".side-stands")).to_contain_text("A person confirmed that it did not happen.")
    take(op.page, "work-late-receipt", tmp_path)
    assert op.findings() == []


def test_work_is_paused_and_resumed(hall, op):
    scene = hall.stage.mail(**QUERY)
    scene.lose()
    look_at(op, scene)

    unfold(op, "Pause new attempts")
    press(op, "Pause new attempts")
    expect(lead(op)).to_have_text("Paused with an outcome not known")
    press(op, "Enable recovery")

    expect(lead(op)).to_have_text("The destination will be asked")
    scene.begin().succeed()


def test_work_is_stopped_and_deleted(hall, op):
    scene = hall.stage.ready(PUBLISH, MAIL, key="not-wanted")
    look_at(op, scene)
    control = unfold(op, "Stop this work")
    control.get_by_label("Why").fill("The release is off.")
    control.get_by_role("button", name="Stop this work").click()

    expect(lead(op)).to_have_text("Stopped before it had any effect")
    control = unfold(op, "Delete")
    control.get_by_label("Destroy the record of not-wanted for good").check()
    control.get_by_role("button", name="Delete").click()

    expect(said(op)).to_contain_text("The workflow is deleted.")
    assert op.path == "/resume-work"
    assert op.go(f"/resume-work/{scene.workflow_id}") == 409
    expect(op.page.get_by_role("heading", name="This workflow was deleted").first).to_be_attached()
    assert op.findings() == []


def test_of_two_who_decide_at_once_the_second_sees_why_not(hall, sign_in, tmp_path):
    scene = hall.stage.mail()
    scene.lose()
    first, second = sign_in("op"), sign_in("adm")
    for visit in (first, second):
        look_at(visit, scene)
    second.page.route("**/live?*", lambda route: route.abort())
    agree = first.page.locator(".answer").first
    agree.get_by_label("Id of the effect at the destination").fill("msg-1")
    agree.get_by_label("Why you are sure").fill("It is in the outbox.")
    press(first, "It happened")

    deny = second.page.locator(".answer").last
    deny.get_by_label("I looked at the destination just now, and it is not there").check()
    deny.get_by_label("Why you are sure").fill("I do not see it.")
    press(second, "It did not happen")

    expect(second.page.locator("#conflict")).to_contain_text("Not confirmed: there is something you have not seen")
    expect(second.page.locator("#conflict")).to_contain_text("Nothing was changed.")
    expect(second.page.locator(".history")).to_contain_text("by op")
    assert second.findings() == []
    take(second.page, "work-refused", tmp_path)


def test_a_button_that_is_pressed_twice_is_taken_once(hall, op):
    scene = hall.stage.mail()
    scene.lose()
    look_at(op, scene)
    sent = []
    op.page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    write_that_it_happened(op)

    op.page.get_by_role("button", name="It happened", exact=True).dblclick()

    expect(lead(op)).to_have_text("Everything is done")
    expect(op.page.locator("#conflict")).to_have_count(0)
    assert len(sent) == 1


def test_the_whole_line_of_the_list_leads_to_its_work_and_copying_stays_apart(hall, op):
    scene = hall.stage.prepare(key="anywhere-on-the-line")
    op.context.grant_permissions(["clipboard-read", "clipboard-write"])
    op.go("/resume-work?q=anywhere")

    op.page.get_by_role("button", name=f"Copy workflow id {scene.workflow_id}").click()
    expect(op.page.locator("#said")).to_have_text("Copied.")
    assert op.path == "/resume-work?q=anywhere"
    line = op.page.get_by_role("cell", name="0 of 1 completed").bounding_box()
    op.page.mouse.click(line["x"] + 5, line["y"] + 5)

    op.page.wait_for_url(f"**/resume-work/{scene.workflow_id}")


@pytest.mark.parametrize("path", ["/resume-work?q=nothing-of-the-kind", "/password", "/nowhere"])
def test_a_page_that_fits_does_not_scroll(op, path):
    op.go(path)

    assert op.page.evaluate("document.documentElement.scrollHeight - document.documentElement.clientHeight") == 0


def test_absence_can_be_attested_only_after_the_countdown(hall, op):
    scene = hall.stage.mail()
    scene.begin().report("unknown")
    hall.site.clock.advance(58)
    look_at(op, scene)
    button = op.page.locator("#confirm-1-no")
    expect(button).to_be_disabled()

    expect(button).to_be_enabled()
    hall.site.clock.advance(3)
    deny = op.page.locator(".answer").last
    deny.get_by_label("I looked at the destination just now, and it is not there").check()
    deny.get_by_label("Why you are sure").fill("Not there now.")
    press(op, "It did not happen")

    expect(lead(op)).to_have_text("Ready once more, on a person's word")


def test_what_somebody_is_writing_is_not_swapped_away(hall, op):
    scene = hall.stage.mail()
    scene.lose()
    look_at(op, scene)
    reason = op.page.locator("#confirm-1-yes-reason")
    reason.fill("Half a sentence")
    scene.stop()

    changed = op.page.locator("[data-changed]")
    expect(changed).to_be_visible()
    expect(reason).to_have_value("Half a sentence")
    views = sum(row.action == "workflow.viewed" for row in audit(hall))
    op.page.wait_for_timeout(6_000)
    assert sum(row.action == "workflow.viewed" for row in audit(hall)) == views
    assert op.findings() == []

    changed.get_by_role("link", name="Show the new state").click()
    expect(lead(op)).to_have_text("Stopped with its outcome not known")


def audit(hall):
    from continuity.store import schema as tables  # noqa: PLC0415

    return hall.site.wiring.store.read(lambda connection: connection.execute(sa.select(tables.audit)).all())


def test_what_somebody_has_unfolded_stays_open_when_the_page_changes(hall, op):
    scene = hall.stage.ready({**MAIL, "arguments": {"to": "ada", "body": "x" * 5_000}})
    look_at(op, scene)
    op.page.locator("#arguments-1-fold summary").click()
    scene.begin()

    expect(lead(op)).to_have_text("A worker is at it now")
    expect(op.page.locator("#arguments-1-fold")).to_have_attribute("open", "")


def test_what_was_said_of_an_older_state_goes_when_the_page_changes(hall, op):
    scene = hall.stage.prepare()
    look_at(op, scene)
    press(op, "Enable recovery")
    said = op.page.get_by_text("Recovery is enabled. Workers may go on.")
    expect(said).to_be_visible()

    scene.stop()

    expect(said).to_have_count(0)


def test_the_list_keeps_itself_up_to_date(hall, op):
    op.go("/resume-work")
    field = op.page.get_by_role("searchbox")
    field.fill("half a sea")
    hall.stage.prepare(key="just-prepared")

    expect(op.page.get_by_role("link", name="just-prepared")).to_be_visible()
    expect(field).to_have_value("half a sea")
    expect(field).to_be_focused()


def test_a_session_that_ends_leads_the_open_page_to_the_sign_in(hall, sign_in):
    scene = hall.stage.mail()
    visit = sign_in("op")
    look_at(visit, scene)
    visit.context.clear_cookies()

    visit.page.wait_for_url(lambda url: url.endswith("/login?ended=yes"))
    expect(visit.page.get_by_text("Your session has ended")).to_be_visible()
    expect(visit.page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()


def test_a_session_that_ends_takes_no_word_of_a_search_beside_the_list(hall, sign_in):
    hall.stage.mail()
    visit = sign_in("op")
    visit.go("/resume-work")
    field = visit.page.get_by_role("searchbox")
    field.fill("half a sea")
    visit.context.clear_cookies()

    expect(visit.page.locator("#trouble")).to_contain_text("You have been signed out.")
    assert visit.path == "/resume-work"
    expect(field).to_have_value("half a sea")


def write_that_it_happened(visit):
    agree = visit.page.locator(".answer").first
    agree.get_by_label("Id of the effect at the destination").fill("msg-1")
    agree.get_by_label("Result for the agent, as JSON").fill('{"url": "https://example.org/1"}')
    agree.get_by_label("Why you are sure").fill("Half an hour of reading the provider's log.\nIt is there.")
    return agree


def expect_it_all_kept(agree):
    expect(agree.get_by_label("Id of the effect at the destination")).to_have_value("msg-1")
    expect(agree.get_by_label("Result for the agent, as JSON")).to_have_value('{"url": "https://example.org/1"}')
    expect(agree.get_by_label("Why you are sure")).to_have_value(
        "Half an hour of reading the provider's log.\nIt is there."
    )


@pytest.mark.parametrize("scripts", [True, False])
def test_a_password_that_grows_old_while_somebody_writes_costs_no_word(hall, open_visit, scripts, tmp_path):
    scene = hall.stage.mail()
    scene.lose()
    visit = open_visit(hall.url, java_script_enabled=scripts)
    visit.sign_in("op", hall.password("op"))
    look_at(visit, scene)
    agree = write_that_it_happened(visit)
    hall.site.clock.advance(11 * 60)

    press(visit, "It happened")

    expect(visit.page.locator("#password-first")).to_contain_text("Nothing was changed.")
    assert visit.path == f"/resume-work/{scene.workflow_id}/confirm"
    expect_it_all_kept(agree)
    expect(agree.get_by_label("Your password", exact=True)).to_be_visible()
    assert not scripts or visit.findings() == []
    take(visit.page, "work-password-first", tmp_path)
    agree.get_by_label("Your password", exact=True).fill("not this one")
    press(visit, "It happened")
    expect(agree.get_by_text("The password is wrong.")).to_be_visible()
    expect_it_all_kept(agree)
    agree.get_by_label("Your password", exact=True).fill(hall.password("op"))
    press(visit, "It happened")

    expect(lead(visit)).to_have_text("Everything is done")
    assert visit.path == f"/resume-work/{scene.workflow_id}"


def test_a_deletion_asks_for_the_password_in_its_form(hall, op):
    scene = hall.stage.mail(key="old-password").stop()
    hall.site.clock.advance(11 * 60)
    look_at(op, scene)
    control = unfold(op, "Delete")
    control.get_by_label("Destroy the record of old-password for good").check()
    control.get_by_label("Your password", exact=True).fill(hall.password("op"))
    control.get_by_role("button", name="Delete").click()

    expect(said(op)).to_contain_text("The workflow is deleted.")


def test_a_session_that_ends_while_somebody_writes_costs_no_word(hall, op, tmp_path):
    scene = hall.stage.mail()
    scene.lose()
    look_at(op, scene)
    agree = write_that_it_happened(op)
    op.context.clear_cookies()

    told = op.page.locator("#trouble")
    expect(told).to_contain_text("You have been signed out.")
    expect_it_all_kept(agree)
    take(op.page, "work-signed-out", tmp_path)
    press(op, "It happened")

    assert op.heading == "You were signed out while you wrote"
    assert op.findings() == []
    take(op.page, "work-kept", tmp_path)
    with op.context.expect_page() as opened_page:
        op.page.get_by_role("link", name="Sign in in a new tab").click()
    tab = opened_page.value
    tab.get_by_label("Username", exact=True).fill("op")
    tab.get_by_label("Password", exact=True).fill(hall.password("op"))
    tab.get_by_role("button", name="Sign in", exact=True).click()
    tab.wait_for_url(f"**/resume-work/{scene.workflow_id}")
    press(op, "Go on with what I wrote")

    expect(op.page.locator("#outdated")).to_contain_text("Nothing was changed.")
    expect_it_all_kept(agree)
    press(op, "It happened")
    expect(lead(op)).to_have_text("Everything is done")


def test_a_reason_survives_a_password_given_again_in_another_tab(hall, op):
    scene = hall.stage.mail()
    look_at(op, scene)
    control = unfold(op, "Stop this work")
    control.get_by_label("Why").fill("Nobody wants it any more.")
    other = op.context.new_page()
    other.goto(f"{op.url}/reauthenticate?next=account")
    other.get_by_label("Password", exact=True).fill(hall.password("op"))
    other.get_by_role("button", name="Go on").click()
    other.wait_for_url("**/account")

    control.get_by_role("button", name="Stop this work").click()

    expect(op.page.locator("#outdated")).to_be_visible()
    expect(control.get_by_label("Why")).to_have_value("Nobody wants it any more.")
    control.get_by_role("button", name="Stop this work").click()
    expect(lead(op)).to_have_text("Stopped before it had any effect")


def test_everything_works_without_scripts(hall, open_visit):
    visit = open_visit(hall.url, java_script_enabled=False)
    visit.sign_in("op", hall.password("op"))
    scene = hall.stage.prepare(key="without-scripts")
    visit.go("/resume-work?q=scripts")
    visit.page.get_by_role("link", name="without-scripts").click()
    expect(visit.page.locator("time").first).to_have_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"))
    press(visit, "Enable recovery")
    scene.begin().report("unknown")
    visit.page.reload()
    expect(visit.page.locator("#confirm-1-no")).to_be_disabled()
    hall.site.clock.advance(61)
    visit.page.reload()

    deny = visit.page.locator(".answer").last
    deny.get_by_label("I looked at the destination just now, and it is not there").check()
    deny.get_by_label("Why you are sure").fill("Not there.")
    press(visit, "It did not happen")
    expect(lead(visit)).to_have_text("Ready once more, on a person's word")
    unfold(visit, "Stop this work").get_by_label("Why").fill("Enough.")
    press(visit, "Stop this work")

    expect(lead(visit)).to_have_text("Stopped before it had any effect")


def test_without_a_mouse_work_is_found_and_decided(hall, op):
    scene = hall.stage.mail(key="by-keyboard")
    scene.lose()
    op.go("/resume-work")
    keys = op.page.keyboard
    keys.press("/")
    keys.type("keyboard")
    keys.press("Enter")
    op.page.wait_for_url("**q=keyboard**")

    walk(op, "by-keyboard")
    keys.press("Enter")
    op.page.wait_for_url(f"**/{scene.workflow_id}")
    walk(op, "Id of the effect at the destination")
    keys.type("msg-9")
    keys.press("Tab")
    keys.press("Tab")
    keys.type("I looked.")
    keys.press("Tab")
    keys.press("Enter")

    expect(lead(op)).to_have_text("Everything is done")
    walk(op, "Delete")
    keys.press("Enter")
    expect(op.page.locator("#control-delete")).to_have_attribute("open", "")
    walk(op, "Destroy the record of by-keyboard for good")
    keys.press("Space")
    keys.press("Tab")
    keys.press("Enter")
    op.page.wait_for_url("**/resume-work")


@pytest.mark.parametrize("scripts", [True, False])
def test_the_keyboard_goes_on_where_something_was_said(hall, open_visit, scripts):
    scene = hall.stage.mail()
    scene.lose()
    visit = open_visit(hall.url, java_script_enabled=scripts)
    visit.sign_in("op", hall.password("op"))
    look_at(visit, scene)
    agree = write_that_it_happened(visit)
    keys = visit.page.keyboard

    agree.get_by_label("Result for the agent, as JSON").fill("{")
    agree.get_by_label("Why you are sure").press("Tab")
    keys.press("Enter")
    expect(agree.get_by_label("Result for the agent, as JSON")).to_be_focused()
    expect(agree.get_by_label("Result for the agent, as JSON")).to_be_in_viewport()
    keys.press("Control+A")
    keys.type("null")
    keys.press("Tab")
    keys.press("Tab")
    keys.press("Enter")

    expect(lead(visit)).to_have_text("Everything is done")
    expect(said(visit)).to_be_focused()
    keys.press("Tab")
    expect(visit.page.locator("#to-list")).to_be_focused()


def test_after_a_refusal_the_keyboard_begins_at_the_reason(hall, op):
    scene = hall.stage.mail()
    scene.lose()
    look_at(op, scene)
    op.page.route("**/live?*", lambda route: route.abort())
    write_that_it_happened(op)
    scene.pause()

    op.page.get_by_role("button", name="It happened", exact=True).press("Enter")

    expect(op.page.locator("#conflict")).to_be_focused()
    expect(op.page.locator("#conflict")).to_be_in_viewport()


def walk(visit, name):
    """Press Tab until what has the focus is called `name`."""
    for _ in range(80):
        visit.page.keyboard.press("Tab")
        found = visit.page.evaluate("(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim()")
        if found == name:
            return
    pytest.fail(f"no Tab leads to {name}")


def test_an_investigator_sees_and_cannot_decide(hall, sign_in, tmp_path):
    scene = hall.stage.mail()
    scene.lose()
    visit = sign_in("inv")
    look_at(visit, scene)

    expect(lead(visit)).to_have_text("Needs confirmation: no receipt came")
    expect(visit.page.locator("details.control")).to_have_count(0)
    expect(visit.page.get_by_text("Operators of this workspace and administrators decide.")).to_be_visible()
    take(visit.page, "work-investigator", tmp_path)


# ---- every state, looked at


def lost(scene):
    scene.lose()
    return scene


def settled(scene):
    scene.begin().succeed("msg-1")
    return scene


def begun(scene):
    scene.begin()
    return scene


def replaced(stage, key):
    """Two attempts and a late receipt, minutes apart."""
    scene = stage.mail(key, **QUERY)
    first = scene.lose()
    stage.site.clock.advance(600)
    scene.begin().succeed("msg-2")
    stage.site.clock.advance(30)
    first.succeed("msg-1")
    return scene


def refused(stage, key):
    scene = stage.mail(key)
    scene.begin().report("confirmed_refused", reason="The address does not exist.")
    return scene


def many(stage, key):
    """A long workflow, in the middle of its work."""
    scene = stage.ready(*({**MAIL, "name": f"mail-{number}"} for number in range(1, 9)), key=key)
    for number in (1, 2):
        scene.begin(f"mail-{number}").succeed(f"msg-{number}")
    scene.lose("mail-3")
    return scene


STATES = {
    "ended": (lambda stage, key: stage.mail(key).stop(), "newsletter-march"),
    "refused": (refused, "refund-0815"),
    "done": (lambda stage, key: settled(stage.mail(key)), "welcome-mail-ada"),
    "replaced": (replaced, "reminder-overdue"),
    "many": (many, "mail-all-regions"),
    "paused": (lambda stage, key: stage.mail(key).pause(), "newsletter-april"),
    "ready": (lambda stage, key: stage.mail(key), "welcome-mail-grace"),
    "repeatable": (lambda stage, key: lost(stage.mail(key, **IDEMPOTENT)), "charge-4712"),
    "absence": (lambda stage, key: lost(stage.mail(key, **FINAL_QUERY)), "book-room-12"),
    "resumable": (lambda stage, key: lost(stage.ready(PUBLISH, MAIL, key=key)), "weekly-report"),
    "decision": (lambda stage, key: lost(stage.mail(key)), "invoice-4711-reminder"),
    "running": (lambda stage, key: begun(stage.mail(key)), "welcome-mail-edsger"),
    "review": (lambda stage, key: stage.prepare(PUBLISH, MAIL, key=key), "publish-changelog"),
}
"""How to make each, and what somebody would call such work."""


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_sound_in_light_and_dark_and_fits_every_width(hall, sign_in, tmp_path, state):
    scene = STATES[state][0](hall.stage, None)
    visit = sign_in("op")
    look_at(visit, scene)

    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert visit.findings() == [], scheme
    visit.page.emulate_media(color_scheme="light")
    assert [width for width in WIDTHS if visit.overflow(width) > 0] == []
    take(visit.page, f"work-{state}", tmp_path)


def test_the_list_is_sound_in_light_and_dark_and_fits_every_width(hall, sign_in, tmp_path):
    for make, key in STATES.values():
        make(hall.stage, key)
    Sweeper(hall.site.wiring.store, hall.stage.services.attempts.ledger).sweep()
    hall.stage.host_of("elsewhere", workspace_id="warehouse")
    visit = sign_in("adm")

    for path, name in (
        ("/resume-work", "resume-work"), ("/resume-work?q=nothing-of-the-kind", "work-not-found"),
        ("/resume-work?q=...", "work-bad-search"), ("/resume-work?state=paused", "work-list-paused"),
    ):  # fmt: skip
        visit.go(path)
        for scheme in ("light", "dark"):
            visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert visit.findings() == [], (path, scheme)
        visit.page.emulate_media(color_scheme="light")
        assert [width for width in WIDTHS if visit.overflow(width) > 0] == [], path
        take(visit.page, name, tmp_path)


def test_an_empty_list_says_what_to_do_first(hall, sign_in, tmp_path):
    hall.site.person("fay", Role.OPERATOR, at=("empty",))
    visit = sign_in("fay")
    visit.go("/resume-work")

    expect(visit.page.get_by_role("heading", name="No work has been prepared yet")).to_be_visible()
    assert visit.findings() == []
    assert [width for width in WIDTHS if visit.overflow(width) > 0] == []
    take(visit.page, "work-empty", tmp_path)


def test_on_paper_there_is_what_is_known_and_no_controls(hall, op):
    scene = hall.stage.mail()
    scene.lose()
    look_at(op, scene)
    op.page.emulate_media(media="print")

    expect(lead(op)).to_be_visible()
    expect(op.page.locator("svg.timeline")).to_be_visible()
    expect(op.page.locator("details.control").first).to_be_hidden()
    expect(op.page.locator(".sidebar")).to_be_hidden()
