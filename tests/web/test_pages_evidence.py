"""Evidence as people read it, per role, and as nobody else does."""

from __future__ import annotations

import json
import re

import pytest
import sqlalchemy as sa

from app.auth.accounts import LOCAL
from app.auth.admission import Admission
from app.auth.requests import GrantRequest
from continuity.evidence import RecordEvidence
from continuity.services.callers import Role
from continuity.store import schema
from tests.integration.tampering import tamper
from tests.web.pages import get, post
from tests.web.scenes import Stage
from tests.web.site import site_on

EVIDENCE = "/evidence"
LOGIN, PASSWORD = "/login", "/password"
MINUTE_S = 61
PASSPHRASE = "a passphrase of some length"
SEALED = {"passphrase": PASSPHRASE, "again": PASSPHRASE}
CORPUS = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "</textarea></pre>", "' \" `",
    "\u202eevil\u202c", "zero\u200bwidth", "\x1b[31mred", "a" * 10_000, "line\u2028sep", "javascript:alert(1)",
    '"><div hx-get=/account>', "=1+1", "\ufeff@SUM(A1)",
]  # fmt: skip
PEOPLE = {
    "operator": ("oda", Role.OPERATOR, "default"), "operator elsewhere": ("ole", Role.OPERATOR, "other"),
    "investigator": ("ina", Role.INVESTIGATOR, "default"), "administrator": ("ava", Role.ADMINISTRATOR, "default"),
}  # fmt: skip
READ, CLEAR = "read", "clear"
ROUTES = {
    "evidence_pages.index": ("GET", "", "list"), "evidence_pages.records": ("GET", "/records", "list"),
    "evidence_pages.show": ("GET", "/{run}", READ), "evidence_pages.manifest": ("GET", "/{run}/manifest", READ),
    "evidence_pages.export": ("GET", "/{run}/export", "list"),
    "evidence_pages.export_encrypted": ("POST", "/{run}/export/encrypted", READ),
    "evidence_pages.export_plaintext": ("POST", "/{run}/export/plaintext", CLEAR),
    "evidence_pages.export_workflow": ("GET", "/workflows/{workflow}/export", "list"),
    "evidence_pages.export_workflow_encrypted": ("POST", "/workflows/{workflow}/export/encrypted", READ),
    "evidence_pages.export_workflow_plaintext": ("POST", "/workflows/{workflow}/export/plaintext", CLEAR),
    "evidence_pages.delete": ("GET", "/{run}/delete", CLEAR),
    "evidence_pages.delete_run": ("POST", "/{run}/delete", CLEAR),
}  # fmt: skip
FORMS = {"evidence_pages.export_encrypted": SEALED, "evidence_pages.export_workflow_encrypted": SEALED,
         "evidence_pages.export_plaintext": {"confirmation": "yes"},
         "evidence_pages.export_workflow_plaintext": {"confirmation": "yes"}}  # fmt: skip
ASKERS = [*PEOPLE, "nobody", "temporary", "operator's credential"]


def recorded(site, stage, content, *, run="run-1", event="1", kind="text", producer="agent"):
    asked = RecordEvidence(run, producer, 1, event, kind, content, site.clock.now_us() / 1e6)
    return site.wiring.services.evidence.record(stage.host, asked)["evidence_id"]


def wanted(endpoint, asker):
    """What somebody gets, by what kind of page it is."""
    kind = ROUTES[endpoint][2]
    if asker in {"nobody", "temporary"}:
        return LOGIN if asker == "nobody" else PASSWORD
    if asker == "operator's credential" or (kind == CLEAR and asker != "administrator"):
        return 403
    if kind == READ and asker == "operator elsewhere":
        return 404
    return 422 if endpoint == "evidence_pages.delete_run" else 200


class World:
    """One site for all cells, with a run and a workflow in the workspace ``default``."""

    def __init__(self, site):
        self.site = site
        self.stage = Stage(site)
        self.stage.host_of("there", workspace_id="other")
        for name, role, workspace in PEOPLE.values():
            site.person(name, role, at=(workspace,))
        site.person("tmp", Role.ADMINISTRATOR)
        asked = GrantRequest.from_json({"principal_id": "op", "role": "evidence_collector", "workspace_id": "default"})
        self.token = site.wiring.auth.credentials.issue(self.stage.person, asked).token
        self.run = recorded(site, self.stage, "sentinel content")
        self.workflow = self.stage.mail().workflow_id
        self.browsers = {}

    def ask(self, endpoint, asker, **headers):
        method, path, _ = ROUTES[endpoint]
        path = EVIDENCE + path.format(run=self.run, workflow=self.workflow)
        browser = self.browsers.get(asker) or self.browsers.setdefault(asker, self._browser(asker))
        if asker == "operator's credential":
            headers["Authorization"] = f"Bearer {self.token}"
        return (
            get(browser, path, **headers)
            if method == "GET"
            else post(browser, path, FORMS.get(endpoint, {}), **headers)
        )

    def _browser(self, asker):
        if asker in {"nobody", "operator's credential"}:
            return self.site.browser()
        self.site.clock.advance(MINUTE_S)
        if asker == "temporary":
            self.site.passwords["tmp"] = self.site.wiring.auth.accounts.reset_password("tmp", by=LOCAL).password
            return self.site.signed_in("tmp")
        return self.site.signed_in(PEOPLE[asker][0])


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("evidence-matrix") / "instance")
    with site_on(instance.folder) as site:
        made = World(site)
        # Within ten minutes of their passwords all of them.
        for asker in ASKERS:
            made.ask("evidence_pages.index", asker)
        yield made


def test_every_route_has_a_row(world):
    endpoints = {rule.endpoint for rule in world.site.app.url_map.iter_rules()}

    assert {name for name in endpoints if name.startswith("evidence_pages.")} == set(ROUTES)


@pytest.mark.parametrize("endpoint", ROUTES)
@pytest.mark.parametrize("asker", ASKERS)
def test_who_may_do_what(world, endpoint, asker):
    reply = world.ask(endpoint, asker)

    got = reply.headers["Location"].partition("?")[0] if reply.status_code == 303 else reply.status_code
    assert got == wanted(endpoint, asker)
    is_shown = got == 200 and endpoint in {"evidence_pages.show", "evidence_pages.export_plaintext"}
    assert (b"sentinel content" in reply.data) is is_shown


def test_without_the_check_of_role_the_matrix_fails(fresh_instance, monkeypatch):
    monkeypatch.setattr(Admission, "require", lambda _admission, _caller: None)

    with site_on(fresh_instance.folder) as site:
        assert World(site).ask("evidence_pages.delete", "investigator").status_code == 200


@pytest.fixture
def stage(site):
    return Stage(site)


@pytest.fixture
def ava(site, stage):
    site.person("ava", Role.ADMINISTRATOR)
    return site.signed_in("ava")


def actions(site):
    rows = site.wiring.store.read(
        lambda connection: connection.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all()
    )
    return [(row.action, row.object_id) for row in rows]


class TestReading:
    def test_an_empty_page_says_what_to_do_first(self, ava):
        page = get(ava, EVIDENCE)

        assert "No evidence yet" in page.text
        assert "/v1/evidence" in page.text
        # A credential on a command line can be read by every user of the host.
        assert '-H "Authorization' not in page.text

    def test_the_list_shows_no_content_and_is_no_look(self, site, stage, ava):
        run = recorded(site, stage, "sentinel content")
        before = actions(site)

        for path in ("", "/records", "/records?run=run-1&producer=agent&kind=text"):
            page = get(ava, EVIDENCE + path)
            assert run in page.text
            assert "sentinel" not in page.text

        assert actions(site) == before

    def test_a_search_by_words_and_every_look_are_entries_first(self, site, stage, ava):
        run = recorded(site, stage, "sentinel content")

        assert "Record 1" in get(ava, f"{EVIDENCE}/records?q=SENTINEL").text
        assert actions(site)[-1][0] == "evidence.searched"
        assert "sentinel content" in get(ava, f"{EVIDENCE}/{run}").text
        assert actions(site)[-1] == ("evidence.viewed", run)
        assert "sentinel" not in get(ava, f"{EVIDENCE}/{run}/manifest").text
        assert actions(site)[-1] == ("evidence.manifest_viewed", run)

    def test_a_look_that_cannot_be_written_down_shows_nothing(self, site, stage, ava):
        run = recorded(site, stage, "sentinel content")
        tamper(site.wiring.store, "DELETE FROM continuity_audit_head")

        for path in (f"/{run}", f"/{run}/manifest", "/records?q=sentinel"):
            page = get(ava, EVIDENCE + path)
            assert page.status_code >= 500, path
            assert "sentinel content" not in page.text
            assert "Record 1" not in page.text
        for form, fields in (("encrypted", SEALED), ("plaintext", {"confirmation": "yes"})):
            reply = post(ava, f"{EVIDENCE}/{run}/export/{form}", fields)
            assert reply.status_code >= 500
            assert b"sentinel" not in reply.data

    def test_a_long_run_comes_in_parts_and_in_order(self, site, stage, ava):
        for number in range(1, 251):
            run = recorded(site, stage, f"line {number}", event=str(number))
        seen, path = [], f"{EVIDENCE}/{run}"
        while path:
            page = get(ava, path)
            seen += re.findall(r">line (\d+)<", page.text)
            found = re.search(r'rel="next" href="([^"]+)"', page.text)
            path = found and found[1]

        assert seen == [str(number) for number in range(1, 251)]

    def test_pages_of_runs_and_records_go_on(self, site, stage, ava):
        for number in range(60):
            recorded(site, stage, "x", run=f"run-{number}", event=str(number))
        for start, wanted in ((EVIDENCE, 60), (f"{EVIDENCE}/records", 60)):
            seen, path = [], start
            while path:
                page = get(ava, path)
                seen += re.findall(r'table-main" href="[^"]*(er_[0-9a-f]{32})', page.text)
                found = re.search(r'rel="next" href="([^"]+)"', page.text)
                path = found and found[1].replace("&amp;", "&")
            assert (len(seen), len(set(seen))) == (wanted, wanted)

    def test_a_cursor_of_another_question_leads_to_the_newest(self, site, stage, ava):
        for number in range(60):
            recorded(site, stage, "x", run=f"run-{number}", event=str(number))
        cursor = re.search(r"cursor=([^\"&]+)", get(ava, EVIDENCE).text)[1]

        assert get(ava, f"{EVIDENCE}?cursor={cursor}").status_code == 200
        for path in (
            f"?cursor={cursor}A",
            "?cursor=x",
            f"/records?cursor={cursor}",
            f"/records?kind=text&cursor={cursor}",
        ):
            reply = get(ava, EVIDENCE + path)
            assert reply.status_code == 303
            assert "cursor" not in reply.headers["Location"]

    @pytest.mark.parametrize(
        "query",
        [
            "from=x", "to=2026-13-01", "q=%21%21", "run=a%20b", "from=2026-02-02&to=2026-02-01", "kind=" + "a" * 200,
            "q=a+b+c+d+e+f+g+h+i",
        ],
    )  # fmt: skip
    def test_a_filter_that_is_none_is_said_beside_it(self, ava, query):
        page = get(ava, f"{EVIDENCE}/records?{query}")

        assert page.status_code == 422
        assert 'id="filters-problem"' in page.text

    @pytest.mark.parametrize("path", ["?limit=9", "/records?limit=9", "/records?q=a&q=b", "?x=1"])
    def test_what_a_list_does_not_know_is_refused(self, ava, path):
        assert get(ava, EVIDENCE + path).status_code == 400

    @pytest.mark.parametrize("after", ["-1", "x", "1.5", "9" * 12, "%00"])
    def test_a_place_in_a_run_that_is_none_is_refused(self, site, stage, ava, after):
        run = recorded(site, stage, "x")
        assert get(ava, f"{EVIDENCE}/{run}?after={after}").status_code == 400

    def test_metadata_is_shown_as_that(self, site, stage, ava):
        site.wiring.services.capture.set_mode(stage.person, "metadata")
        run = recorded(site, stage, "sentinel content")

        page = get(ava, f"{EVIDENCE}/{run}")

        assert "Only metadata was captured" in page.text
        assert "sentinel" not in page.text

    def test_workflows_of_the_same_run_are_linked_for_who_may_see_them(self, site, stage, ava):
        scene = stage.mail()
        scene.begin()
        run = recorded(site, stage, "x")
        site.person("oda", Role.OPERATOR)
        site.person("ina", Role.INVESTIGATOR)

        for browser, has_costs in ((ava, True), (site.signed_in("oda"), False), (site.signed_in("ina"), True)):
            page = get(browser, f"{EVIDENCE}/{run}")
            assert f"/resume-work/{scene.workflow_id}" in page.text
            assert (f"/activity/{scene.workflow_id}" in page.text) is has_costs

    @pytest.mark.parametrize("path", ["", "/records", "/{run}", "/{run}/manifest"])
    def test_a_locked_vault_answers_with_a_page(self, site, stage, ava, path):
        run = recorded(site, stage, "sentinel content")
        site.wiring.vault.lock()

        page = get(ava, EVIDENCE + path.format(run=run))

        assert page.status_code == 423
        assert "The vault is locked" in page.text
        assert "sentinel" not in page.text
        for form, fields in (("encrypted", SEALED), ("plaintext", {"confirmation": "yes"})):
            assert post(ava, f"{EVIDENCE}/{run}/export/{form}", fields).status_code == 423


class TestDamage:
    def test_one_record_that_does_not_open_hides_no_other(self, site, stage, ava):
        for number in range(1, 4):
            run = recorded(site, stage, f"sentinel {number}", event=str(number))
        tamper(site.wiring.store, "UPDATE continuity_evidence SET sealed_record = zeroblob(120) WHERE seq = 2")

        page = get(ava, f"{EVIDENCE}/{run}")

        assert page.status_code == 200
        assert "sentinel 1" in page.text
        assert "sentinel 3" in page.text
        assert "Unreadable" in page.text
        assert "This part is not what was recorded" in page.text
        assert "under key 1" in get(ava, f"{EVIDENCE}/records").text

    def test_one_run_that_does_not_open_hides_no_other(self, site, stage, ava):
        broken = recorded(site, stage, "x", run="broken")
        whole = recorded(site, stage, "y", run="whole", event="2")
        where = f"WHERE evidence_id = '{broken}'"
        tamper(site.wiring.store, f"UPDATE continuity_evidence_runs SET sealed_head = zeroblob(120) {where}")

        page = get(ava, EVIDENCE)

        assert "under key 1" in page.text
        assert whole in page.text
        assert f'href="{EVIDENCE}/{broken}"' not in page.text
        reply = get(ava, f"{EVIDENCE}/{broken}")
        assert reply.status_code == 500
        assert "This run does not open" in reply.text
        site.wiring.audits.denials.write()
        assert actions(site)[-1] == ("vault.integrity_failure", broken)


class TestLeaving:
    def test_a_sealed_file_opens_with_its_passphrase_alone(self, site, stage, ava):
        run = recorded(site, stage, "sentinel content")

        reply = post(ava, f"{EVIDENCE}/{run}/export/encrypted", SEALED)

        assert reply.headers["Content-Disposition"] == f'attachment; filename="{run}.atmem"'
        assert b"sentinel" not in reply.data
        assert actions(site)[-1] == ("evidence.exported", run)

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"passphrase": PASSPHRASE, "again": "another one"}, "not the same passphrase"),
            ({"passphrase": "short", "again": "short"}, "12"), ({}, "12"),
        ],
    )  # fmt: skip
    def test_a_passphrase_that_is_none_takes_nothing_and_is_not_repeated(self, site, stage, ava, fields, said):
        run = recorded(site, stage, "x")
        before = actions(site)

        reply = post(ava, f"{EVIDENCE}/{run}/export/encrypted", fields)

        assert reply.status_code == 422
        assert said in reply.text
        assert PASSPHRASE not in reply.text
        assert actions(site) == before

    def test_in_the_clear_only_after_a_tick(self, site, stage, ava):
        run = recorded(site, stage, "sentinel content")

        assert post(ava, f"{EVIDENCE}/{run}/export/plaintext", {}).status_code == 422
        reply = post(ava, f"{EVIDENCE}/{run}/export/plaintext", {"confirmation": "yes"})

        assert [json.loads(line) for line in reply.data.splitlines()]
        assert actions(site)[-1] == ("evidence.exported_in_clear", run)

    @pytest.mark.parametrize(
        ("path", "fields"),
        [("export/encrypted", SEALED), ("export/plaintext", {"confirmation": "yes"}), ("delete", None)],
    )
    def test_a_password_of_long_ago_is_asked_for_in_the_form(self, site, stage, ava, path, fields):
        run = recorded(site, stage, "sentinel content")
        fields = fields or {"confirmation": run}
        site.clock.advance(601)

        assert 'name="password"' in get(ava, f"{EVIDENCE}/{run}/{path.partition('/')[0]}").text
        asked = post(ava, f"{EVIDENCE}/{run}/{path}", fields)
        wrong = post(ava, f"{EVIDENCE}/{run}/{path}", {**fields, "password": "not this one at all"})
        site.clock.advance(MINUTE_S)
        right = post(ava, f"{EVIDENCE}/{run}/{path}", {**fields, "password": site.passwords["ava"]})

        assert (asked.status_code, wrong.status_code) == (403, 422)
        assert right.status_code in {200, 303}
        assert b"sentinel" not in asked.data + wrong.data

    def test_deleting_needs_the_whole_id_and_is_for_ever(self, site, stage, ava):
        run = recorded(site, stage, "sentinel content")

        page = get(ava, f"{EVIDENCE}/{run}/delete")
        assert "no backup brings them back" in page.text
        assert "Close its name for ever" in page.text
        assert post(ava, f"{EVIDENCE}/{run}/delete", {"confirmation": run[:-1]}).status_code == 422
        assert "sentinel content" in get(ava, f"{EVIDENCE}/{run}").text
        assert post(ava, f"{EVIDENCE}/{run}/delete", {"confirmation": f" {run} "}).headers["Location"] == EVIDENCE

        assert get(ava, f"{EVIDENCE}/{run}").status_code == 409
        assert "This run was deleted" in get(ava, f"{EVIDENCE}/{run}/manifest").text
        assert run not in get(ava, EVIDENCE).text
        assert post(ava, f"{EVIDENCE}/{run}/delete", {"confirmation": run}).status_code == 303

    @pytest.mark.parametrize("path", ["export/encrypted", "export/plaintext", "delete"])
    def test_a_field_that_no_form_has_is_refused(self, site, stage, ava, path):
        run = recorded(site, stage, "x")
        assert post(ava, f"{EVIDENCE}/{run}/{path}", {"role": "administrator"}).status_code == 400


@pytest.mark.parametrize("hostile", CORPUS)
def test_hostile_content_is_text_wherever_it_stands(site, stage, ava, hostile):
    recorded(site, stage, hostile, event="1")
    recorded(site, stage, {hostile: [hostile, {"tool": hostile}]}, event="2", kind="tool_call")
    run = recorded(site, stage, {"tool": hostile, "parameters": hostile}, event="3", kind="tool_call")

    pages = [get(ava, f"{EVIDENCE}/{run}"), get(ava, f"{EVIDENCE}/{run}/manifest"), get(ava, EVIDENCE),
             get(ava, f"{EVIDENCE}/records")]  # fmt: skip

    for page in pages:
        assert page.status_code == 200
        for wrong in ("<script>alert", "<img src=x", "<div hx-get", ">49<", "</textarea></pre>", 'href="javascript'):
            assert wrong not in page.text
        assert not re.search("[\u202e\u202c\u200b\x1b\u2028\ufeff]", page.text)


def test_a_workflow_is_taken_away_from_its_own_page(site, stage, ava):
    workflow_id = stage.mail().workflow_id

    page = get(ava, f"/resume-work/{workflow_id}")
    assert f'href="{EVIDENCE}/workflows/{workflow_id}/export"' in page.text
    reply = post(ava, f"{EVIDENCE}/workflows/{workflow_id}/export/encrypted", SEALED)

    assert reply.headers["Content-Disposition"] == f'attachment; filename="{workflow_id}.atmem"'
    assert actions(site)[-1] == ("evidence.exported", workflow_id)
