"""Activity → Resume work in a real browser: what observers report, told on a server whose clock the test moves."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from playwright.sync_api import expect

from app.auth import schema
from tests.browser.halls import opened
from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import WIDTHS
from tests.web.told import ACTIVITY, Observer

pytestmark = pytest.mark.browser

SECOND_US = 1_000_000
DAY_S = 86_400


@pytest.fixture(scope="module")
def hall(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("activity") / "instance")
    with opened(instance) as made:
        yield made


@pytest.fixture(scope="module")
def flow(hall):
    """A month of charges of every kind, and the id of a governed workflow with a story of its own."""
    observer, now = Observer(hall.site), hall.site.clock.now_us() // SECOND_US
    for day in range(28):
        at, name = now - day * DAY_S, f"nightly-{28 - day:02}"
        observer.tell(name, f"{name}-1", time=at)
        observer.charge(f"{name}-a", 180_000 + day * 7_431, workflow_id=name, attempt_id=f"{name}-1", time=at + 4,
                        charge_source=("model-api", "search-api")[day % 2], input_tokens=9_000)  # fmt: skip
        observer.tell(name, f"{name}-1", "completed", time=at + 9)
        if day % 5 == 0:
            again = {"workflow_id": name, "attempt_id": f"{name}-2", "retry": True}
            observer.charge(f"{name}-b", 90_000 + day * 1_000, time=at + 60, **again)
            observer.charge(f"{name}-c", None, time=at + 61, charge_source="ocr", **again)
            observer.tell(event="blocked", time=at + 64, **again)
    scene = hall.stage.mail(key="invoice-run-0815")
    observer.story(scene.workflow_id)
    observer.contradict("at-c2", 9_999, workflow_id=scene.workflow_id, attempt_id="at-2", run_id="run-2")
    Observer(hall.site, "demo").story("demo-flow", "made-up")
    return scene.workflow_id


@pytest.fixture
def inv(hall, flow, open_visit):
    """Sign in; the browser's wall clock is the server's."""
    return signed_in(hall, open_visit)


def signed_in(hall, open_visit, username="inv", **options):
    hall.site.wiring.store.write(lambda connection: connection.execute(sa.delete(schema.throttle)).rowcount)
    visit = open_visit(hall.url, **options)
    if options.get("java_script_enabled", True):
        visit.page.clock.set_fixed_time(hall.site.clock.now_us() / SECOND_US)
    visit.sign_in(username, hall.password(username))
    return visit


def check(visit, name, folder):
    """Look at the page as it stands: axe in both themes, wide and narrow, every width, and a picture."""
    for scheme in ("light", "dark"):
        for size in (WIDE, NARROW):
            visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            visit.page.set_viewport_size(size)
            assert visit.findings() == [], (name, scheme, size)
    assert {width: visit.overflow(width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0), name
    assert visit.page.locator("script:not([src]), style, [style], [onclick]").count() == 0
    take(visit.page, name, folder)


def test_an_investigator_reads_sums_chart_and_list(inv, tmp_path):
    inv.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Activity").click()
    inv.page.wait_for_url(f"**{ACTIVITY}")

    assert inv.heading == "Resume work"
    expect(inv.page.locator(".figures")).to_contain_text("at least")
    expect(inv.page.locator("svg.chart .bar-first")).to_have_count(28)
    expect(inv.page.locator("svg.chart .unknown-mark")).not_to_have_count(0)
    check(inv, "activity", tmp_path)


def test_from_the_list_to_one_workflow_to_its_decisions_and_back(inv, flow, tmp_path):
    inv.go(ACTIVITY)
    inv.page.get_by_label("Workflow or attempt").fill(flow[:12])
    inv.page.get_by_role("button", name="Show", exact=True).click()
    inv.page.get_by_role("link", name=flow).click()

    expect(inv.page.locator("svg.timeline")).to_be_visible()
    expect(inv.page.locator("#attempts-box")).to_contain_text("Recovery")
    expect(inv.page.locator("#charges-box")).to_contain_text("Conflicting")
    check(inv, "activity-workflow", tmp_path)
    inv.page.get_by_role("link", name="What was decided about it").click()
    assert inv.heading == "invoice-run-0815"
    inv.page.get_by_role("link", name="What observers report").click()
    assert inv.heading == flow


def test_the_table_of_the_chart_stays_open_while_the_page_brings_itself_up_to_date(hall, inv):
    inv.go(ACTIVITY)
    inv.page.locator("#chart-fold summary").click()

    Observer(hall.site).tell("came-later", "came-later-1")

    expect(inv.page.locator("#workflows-box")).to_contain_text("came-later")
    expect(inv.page.locator("#chart-fold")).to_have_attribute("open", "")
    expect(inv.page.get_by_role("region", name="Cost over time as a table")).to_be_visible()


def test_demo_data_is_left_out_by_a_click_and_by_the_form(inv):
    inv.go(f"{ACTIVITY}?q=demo-flow")
    expect(inv.page.locator("#workflows-box")).to_contain_text("Demo data")

    inv.page.get_by_role("link", name="Leave it out").click()

    expect(inv.page.get_by_text("Demo data is counted here")).to_have_count(0)
    expect(inv.page.get_by_label("Leave out demo data")).to_be_checked()
    expect(inv.page.get_by_role("link", name="demo-flow")).to_have_count(0)


def test_both_files_are_downloads(inv):
    inv.go(ACTIVITY)

    for name, ending in (("CSV", ".csv"), ("JSON", ".json")):
        with inv.page.expect_download() as download:
            inv.page.get_by_role("link", name=name).click()
        assert re.fullmatch(rf"atmem-\w+-[\d-]+-to-[\d-]+\{ending}", download.value.suggested_filename)


def test_without_scripts_everything_but_live_updates_is_there(hall, flow, open_visit):
    visit = signed_in(hall, open_visit, java_script_enabled=False)
    visit.go(ACTIVITY)

    visit.field("With an attempt").select_option("blocked")
    visit.page.get_by_role("button", name="Show", exact=True).click()

    expect(visit.page.locator("svg.chart")).to_be_visible()
    expect(visit.page.get_by_role("link", name="nightly-03")).to_be_visible()
    visit.page.locator("#chart-fold summary").click()
    expect(visit.page.locator("#chart-table-box")).to_be_visible()
    visit.page.get_by_role("link", name="nightly-03").click()
    assert visit.heading == "nightly-03"


def test_an_operator_meets_no_way_there(hall, flow, open_visit):
    visit = signed_in(hall, open_visit, "op")
    visit.go(f"/resume-work/{flow}")

    expect(visit.page.locator("a[href*='/activity']")).to_have_count(0)
    assert visit.go(ACTIVITY) == 403


def test_on_paper_there_are_sums_and_chart_and_no_controls(inv):
    inv.go(ACTIVITY)
    inv.page.emulate_media(media="print")

    expect(inv.page.locator("svg.chart")).to_be_visible()
    expect(inv.page.locator(".figures")).to_be_visible()
    for hidden in (".filters", ".downloads", ".sidebar"):
        expect(inv.page.locator(hidden).first).to_be_hidden()


def test_an_empty_page_says_what_to_do_first(instance_template, open_visit, tmp_path):
    instance = instance_template.copy_to(tmp_path / "instance")
    with opened(instance) as empty:
        visit = signed_in(empty, open_visit)
        visit.go(ACTIVITY)

        expect(visit.page.locator("#first-steps")).to_contain_text("--observer --scope local")
        check(visit, "activity-empty", tmp_path)
