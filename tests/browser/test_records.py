"""Evidence and the audit log in a real browser: read, found, verified, taken away, destroyed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from playwright.sync_api import expect

from app.auth import schema
from continuity.evidence import RecordEvidence
from continuity.services.audit import AuditEntry
from continuity.store import schema as ledger
from tests.browser.halls import opened
from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import WIDTHS
from tests.integration.tampering import tamper
from tests.patience import PATIENCE_S
from tests.web.told import Observer

pytestmark = pytest.mark.browser

SECOND_US = 1_000_000
AUDIT, EVIDENCE = "/settings/audit", "/evidence"
HOSTILE = '<script>document.title="x"</script> "><img src=x onerror=alert(1)> {{7*7}} \u202egnp.exe \x1b[31m \u200b'
PASSPHRASE = "a passphrase of some length"


@pytest.fixture(scope="module")
def hall(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("records") / "instance")
    with opened(instance) as made:
        yield made


def record(hall, run_id, event, kind, content):
    now = hall.site.clock.now_us() / SECOND_US
    asked = RecordEvidence(run_id, "billing-agent", 1, f"{run_id}-{event}", kind, content, now)
    return hall.site.wiring.services.evidence.record(hall.stage.host, asked)["evidence_id"]


@pytest.fixture(scope="module")
def run(hall):
    """A run of every kind of record, with a workflow of the same name, and a few more runs."""
    for number in range(4):
        record(hall, f"nightly-{number}", "1", "text", "Nothing to do.")
    scene = hall.stage.mail(key="invoice-run-0815")
    scene.begin()
    Observer(hall.site).story(scene.workflow_id)
    record(hall, "run-1", "1", "text", "Find the invoice of May for ada@example.org and send it to her.")
    record(
        hall, "run-1", "2", "tool_call", {"tool": "invoices.search", "parameters": {"month": "2026-05", "to": "ada"}}
    )
    record(hall, "run-1", "3", "tool_result", {"found": [{"id": "inv-0815", "total": "120.00 EUR"}], "more": False})
    record(hall, "run-1", "4", "text", "I have found it.\n" + "It says a great deal.\n" * 60)
    return record(hall, "run-1", "5", "text", HOSTILE)


@pytest.fixture
def adm(hall, run, open_visit):
    return signed_in(hall, open_visit)


def signed_in(hall, open_visit, username="adm", **options):
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
    forms = visit.page.locator("form[method=post]")
    assert forms.count() == visit.page.locator("form[method=post] > input[name=csrf_token]").count()
    take(visit.page, name, folder)


def refuse(hall, action, code):
    """Put a refusal with a detail into the log, and as many entries as give its table a scroll bar of its own."""
    entry = AuditEntry(
        action=action, actor="nobody", result=code, object_id="coordinators.create", detail={"address": "192.0.2.1"}
    )
    for _ in range(20):
        hall.site.wiring.store.write(
            lambda connection: hall.site.wiring.audit.append(connection, entry, now_us=hall.site.clock.now_us())
        )


def last_action(hall):
    return hall.site.wiring.store.read(lambda connection: connection.execute(
        sa.select(ledger.audit.c.action).order_by(ledger.audit.c.seq.desc()).limit(1)
    ).scalar_one())  # fmt: skip


class TestEvidence:
    def test_from_the_runs_to_a_transcript_to_its_workflow(self, hall, adm, tmp_path):
        adm.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Evidence").click()
        adm.page.wait_for_url(f"**{EVIDENCE}")
        check(adm, "evidence", tmp_path)
        adm.page.get_by_role("link", name="run-1", exact=True).click()

        assert adm.heading == "run-1"
        expect(adm.page.locator(".transcript > li")).to_have_count(5)
        expect(adm.page.locator("#record-2")).to_contain_text("invoices.search")
        assert last_action(hall) == "evidence.viewed"
        check(adm, "evidence-run", tmp_path)
        adm.page.get_by_role("link", name="invoice-run-0815").click()
        assert adm.heading == "invoice-run-0815"

    def test_hostile_content_is_shown_as_what_it_is(self, adm, run):
        adm.go(f"{EVIDENCE}/{run}")

        told = adm.page.locator("#record-5 pre").inner_text()
        assert "<script>" in told
        assert "{{7*7}}" in told
        assert "\u202e" not in told
        assert r"\u{202E}" in told
        assert "run-1" in adm.page.title()

    def test_records_are_found_by_whole_words(self, adm, tmp_path):
        adm.go(f"{EVIDENCE}/records")
        adm.page.get_by_label("Words").fill("invoice MAY")
        adm.page.keyboard.press("Enter")
        adm.page.wait_for_url("**q=invoice**")

        expect(adm.page.locator("tbody tr")).to_have_count(1)
        check(adm, "evidence-records", tmp_path)
        adm.page.get_by_role("link", name="Record 1").click()
        assert adm.heading == "run-1"
        adm.go(f"{EVIDENCE}/records?q=nowhere")
        check(adm, "evidence-nothing", tmp_path)

    def test_a_manifest_without_content(self, adm, run, tmp_path):
        adm.go(f"{EVIDENCE}/{run}/manifest")

        assert "ada@example.org" not in adm.page.content()
        expect(adm.page.get_by_role("table")).to_contain_text("mail.send")
        check(adm, "evidence-manifest", tmp_path)

    def test_a_run_is_taken_away_sealed_with_the_keyboard_alone(self, hall, adm, run, tmp_path):
        adm.go(f"{EVIDENCE}/{run}/export")
        check(adm, "evidence-export", tmp_path)
        adm.field("Passphrase of the file").focus()
        adm.page.keyboard.type(PASSPHRASE)
        for _ in range(2):
            adm.page.keyboard.press("Tab")
        adm.page.keyboard.type(PASSPHRASE)

        with adm.page.expect_download() as download:
            adm.page.keyboard.press("Enter")

        path = Path(download.value.path())
        assert download.value.suggested_filename == f"{run}.atmem"
        assert b"ada@example.org" not in path.read_bytes()
        assert last_action(hall) == "evidence.exported"

    def test_without_scripts_a_run_is_read_and_destroyed(self, hall, run, open_visit, tmp_path):
        gone = record(hall, "to-delete", "1", "text", "Away with me.")
        visit = signed_in(hall, open_visit, java_script_enabled=False)
        visit.go(EVIDENCE)
        visit.page.get_by_role("link", name="to-delete").click()
        visit.page.get_by_role("link", name="Delete").click()
        expect(visit.page.get_by_text("no backup brings them back")).to_be_visible()
        visit.page.get_by_role("button", name="Delete for ever").click()
        visit.field("The id of the run, again").fill("er_0")
        visit.page.get_by_role("button", name="Delete for ever").click()
        expect(visit.page.get_by_text("Write the run's id as it stands here")).to_be_visible()

        visit.field("The id of the run, again").fill(gone)
        visit.page.get_by_role("button", name="Delete for ever").click()

        assert visit.heading == "Evidence"
        expect(visit.page.get_by_role("alert").first).to_contain_text("The run is destroyed")
        assert visit.go(f"{EVIDENCE}/{gone}") == 409
        assert visit.heading == "This run was deleted"

    def test_deleting_asks_first(self, adm, run, tmp_path):
        adm.go(f"{EVIDENCE}/{run}/delete")
        check(adm, "evidence-delete", tmp_path)

    def test_an_investigator_reads_and_deletes_nothing(self, hall, run, open_visit):
        visit = signed_in(hall, open_visit, "inv")
        visit.go(f"{EVIDENCE}/{run}")

        assert visit.page.get_by_role("link", name="Delete").count() == 0
        assert visit.page.get_by_role("link", name="what it reportedly cost").count() == 1
        assert visit.go(f"{EVIDENCE}/{run}/delete") == 403

    def test_an_operator_sees_no_costs(self, hall, run, open_visit):
        visit = signed_in(hall, open_visit, "op")
        visit.go(f"{EVIDENCE}/{run}")

        assert visit.page.get_by_role("link", name="invoice-run-0815").count() == 1
        assert visit.page.get_by_role("link", name="what it reportedly cost").count() == 0


class TestAudit:
    def test_the_log_is_read_filtered_and_opened(self, hall, adm, tmp_path):
        adm.go("/settings")
        adm.page.get_by_role("navigation", name="Settings").get_by_role("link", name="Audit").click()
        assert adm.heading == "Audit"
        adm.page.get_by_label("What", exact=True).fill("user.")
        adm.page.get_by_label("Who").fill("adm")
        adm.page.keyboard.press("Enter")
        adm.page.wait_for_url("**action=user.**")
        expect(adm.page.locator("tbody tr").first).to_contain_text("Signed in")
        adm.go(f"{AUDIT}?action=user.create")
        check(adm, "audit", tmp_path)
        # The longest words of a refusal, in a row with a sealed detail: the whole table is to be seen on a laptop.
        refuse(hall, "user.add_second_factor", "second_factor_enrolment_required")
        adm.go(AUDIT)
        assert {width: adm.overflow(width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0)
        for size in (WIDE, NARROW):
            adm.page.set_viewport_size(size)
            assert adm.page.locator("#entries-box").evaluate("box => box.scrollWidth - box.clientWidth") == 0, size
        adm.go(f"{AUDIT}?action=user.create")
        adm.page.locator("tbody tr").first.get_by_role("link", name=re.compile("^[0-9]+$")).click()

        expect(adm.page.get_by_role("region", name="Text of the detail")).to_contain_text("role")
        assert last_action(hall) == "audit.viewed"
        check(adm, "audit-entry", tmp_path)

    def test_it_is_verified_while_one_looks_on(self, hall, adm, tmp_path):
        adm.go(f"{AUDIT}/check")
        adm.page.get_by_role("button", name="Verify the log").click()

        expect(adm.page.locator("#check")).to_contain_text("The audit log is whole")
        hall.site.wiring.audits.checks.wait(PATIENCE_S)
        adm.go(f"{AUDIT}/check")
        check(adm, "audit-check", tmp_path)

    def test_without_scripts_against_a_checkpoint(self, hall, run, open_visit, tmp_path):
        visit = signed_in(hall, open_visit, java_script_enabled=False)
        visit.go(f"{AUDIT}/check")
        with visit.page.expect_download() as download:
            visit.page.get_by_role("link", name="Download").click()
        kept = tmp_path / "checkpoint.jsonl"
        download.value.save_as(kept)

        visit.field("Checkpoint").set_input_files(kept)
        visit.page.get_by_role("button", name="Verify against it").click()
        hall.site.wiring.audits.checks.wait(PATIENCE_S)
        visit.go(f"{AUDIT}/check")

        expect(visit.page.locator("#check")).to_contain_text("Nothing from before the checkpoint")

    def test_nothing_found_says_so(self, adm, tmp_path):
        adm.go(f"{AUDIT}?object=wf_nowhere")
        check(adm, "audit-nothing", tmp_path)


def test_a_log_that_is_not_whole_and_a_locked_vault(instance_template, tmp_path_factory, open_visit, tmp_path):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("broken") / "instance")
    with opened(instance) as hall:
        visit = signed_in(hall, open_visit)
        visit.go(EVIDENCE)
        check(visit, "evidence-empty", tmp_path)
        tamper(hall.site.wiring.store, "UPDATE continuity_audit SET actor = 'user:usr_x' WHERE seq = 2")
        visit.go(f"{AUDIT}/check")
        visit.page.get_by_role("button", name="Verify the log").click()
        hall.site.wiring.audits.checks.wait(PATIENCE_S)
        visit.go(f"{AUDIT}/check")
        check(visit, "audit-broken-check", tmp_path)
        visit.go(AUDIT)
        check(visit, "audit-broken", tmp_path)
        hall.site.wiring.vault.lock()
        assert visit.go(EVIDENCE) == 423
        check(visit, "evidence-locked", tmp_path)
        assert visit.go(AUDIT) == 200
