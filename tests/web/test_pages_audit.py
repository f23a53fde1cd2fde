"""Settings → Audit as an administrator uses it, and as everybody else does not."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from app import audits, instance
from app.auth.accounts import LOCAL
from app.auth.admission import Admission
from app.auth.csrf import token_for
from app.auth.requests import GrantRequest
from app.pages.audit_view import checked as shown_check
from continuity.services import audit_search
from continuity.services.audit import AuditEntry
from continuity.services.callers import Role
from continuity.store import schema
from tests.integration.tampering import tamper
from tests.patience import PATIENCE_S
from tests.web.pages import HTML, HTMX, cookie_of, get, post
from tests.web.scenes import Stage
from tests.web.site import site_on

AUDIT = "/settings/audit"
CHECK = f"{AUDIT}/check"
LOGIN, PASSWORD, AGAIN = "/login", "/password", "/reauthenticate"
MINUTE_S = 61
PATHS = {
    "audit_pages.index": ("GET", ""), "audit_pages.entry": ("GET", "/entries/1"),
    "audit_pages.entries_csv": ("GET", "/entries.csv"), "audit_pages.entries_json": ("GET", "/entries.json"),
    "audit_pages.checkpoint": ("GET", "/checkpoint.jsonl"), "audit_pages.check": ("GET", "/check"),
    "audit_pages.check_live": ("GET", "/check/live"), "audit_pages.check_begin": ("POST", "/check"),
}  # fmt: skip
PEOPLE = {"operator": ("oda", Role.OPERATOR), "investigator": ("ina", Role.INVESTIGATOR),
          "administrator": ("ava", Role.ADMINISTRATOR)}  # fmt: skip
ASKERS = [*PEOPLE, "nobody", "temporary", "operator's credential"]
HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "</textarea>", "=1+1", "@SUM(A1)",
    "javascript:alert(1)", "' OR 1=1 --", "a" * 160,
]  # fmt: skip


@pytest.fixture
def ava(site):
    site.person("ava", Role.ADMINISTRATOR)
    return site.signed_in("ava")


def append(site, *, times=1, **members):
    entry = AuditEntry(**{"action": "workflow.pause", "actor": "user:usr_x", "result": "done", **members})

    def work(connection):
        return [site.wiring.audit.append(connection, entry, now_us=site.clock.now_us()) for _ in range(times)][-1]

    return site.wiring.store.write(work)


def entries(site):
    return site.wiring.store.read(
        lambda connection: connection.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all()
    )


def shown(page):
    return [int(seq) for seq in re.findall(r"/settings/audit/entries/(\d+)", page.text)]


def older(page):
    found = re.search(r'rel="next" href="([^"]+)"', page.text)
    return None if found is None else found[1].replace("&amp;", "&")


def checked(site, browser, fields=None, file=None):
    data = dict(fields or {})
    if file is not None:
        data["checkpoint"] = (io.BytesIO(file), "checkpoint.jsonl")
    reply = post_file(browser, data)
    site.wiring.audits.checks.wait(PATIENCE_S)
    return reply


def post_file(browser, data):

    token = token_for(browser.cookie(cookie_of(browser)) or "")
    return browser.client.post(
        CHECK, data={"csrf_token": token, **data}, content_type="multipart/form-data", headers=HTML,
        base_url=browser.base_url,
    )  # fmt: skip


class World:
    """One site for all cells."""

    def __init__(self, site):
        self.site = site
        for name, role in PEOPLE.values():
            site.person(name, role)
        site.person("tmp", Role.ADMINISTRATOR)
        asked = GrantRequest.from_json({"principal_id": "op", "role": "evidence_collector", "workspace_id": "default"})
        self.token = site.wiring.auth.credentials.issue(Stage(site).person, asked).token
        self.browsers = {}

    def ask(self, endpoint, asker, **headers):
        method, path = PATHS[endpoint]
        browser = self.browsers.get(asker) or self.browsers.setdefault(asker, self._browser(asker))
        if asker == "operator's credential":
            headers["Authorization"] = f"Bearer {self.token}"
        return (get if method == "GET" else post)(browser, AUDIT + path, **headers)

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
    instance = instance_template.copy_to(tmp_path_factory.mktemp("audit-matrix") / "instance")
    with site_on(instance.folder) as site:
        yield World(site)


def test_every_route_has_a_row(world):
    endpoints = {rule.endpoint for rule in world.site.app.url_map.iter_rules()}

    assert {name for name in endpoints if name.startswith("audit_pages.")} == set(PATHS)


@pytest.mark.parametrize("endpoint", PATHS)
@pytest.mark.parametrize("asker", ASKERS)
def test_administrators_alone_see_the_log(world, endpoint, asker):
    reply = world.ask(endpoint, asker)
    world.site.wiring.audits.checks.wait(PATIENCE_S)

    # A form without a session has no token; nobody is told more than that.
    wanted = {
        "administrator": 303 if endpoint == "audit_pages.check_begin" else 200, "nobody": LOGIN, "temporary": PASSWORD,
    }.get(asker, 403)  # fmt: skip
    got = reply.headers["Location"].partition("?")[0] if reply.status_code == 303 else reply.status_code
    assert (303 if got == CHECK else got) == wanted
    if asker != "administrator":
        assert "user.sign_in" not in reply.text


def test_without_the_check_of_role_the_matrix_fails(fresh_instance, monkeypatch):
    monkeypatch.setattr(Admission, "require", lambda _admission, _caller: None)

    with site_on(fresh_instance.folder) as site:
        world = World(site)
        assert {world.ask(endpoint, "operator").status_code for endpoint in PATHS} <= {200, 303, 409}
        site.wiring.audits.checks.wait(PATIENCE_S)


class TestList:
    def test_the_newest_entry_is_first_and_people_have_names(self, site, ava):
        page = get(ava, AUDIT)

        assert shown(page)[0] == entries(site)[-1].seq
        assert ">ava</a>" in re.sub(r"\s+", "", page.text)
        assert "Signed in" in page.text

    def test_reading_the_list_writes_nothing(self, site, ava):
        before = site.everything()
        get(ava, AUDIT)
        after = site.everything()
        assert after["continuity_audit"] == before["continuity_audit"]

    def test_pages_go_on_without_gap_or_repeat_while_the_log_grows(self, site, ava):
        append(site, times=120)
        last = entries(site)[-1].seq
        page = get(ava, AUDIT)
        seen = shown(page)
        while older(page):
            append(site)
            page = get(ava, older(page))
            seen += shown(page)
        assert seen == list(range(last, 0, -1))

    @pytest.mark.parametrize(
        ("query", "wanted"),
        [
            ("action=vault.test_a", {"vault.test_a"}),
            ("action=vault.", {"vault.test_a", "vault.test_b"}),
            ("object=wf_x", {"vault.test_a"}),
            ("actor=cred:c1", {"vault.test_b"}),
            ("result=refused&action=vault.", {"vault.test_b"}),
            ("result=vault_locked", {"vault.test_b"}),
            ("result=done&action=vault.", {"vault.test_a"}),
            ("action=vault.&actor=cred:c1&object=wf_x", set()),
        ],
    )
    def test_filters_find_what_they_say_and_nothing_else(self, site, ava, query, wanted):
        append(site, action="vault.test_a", object_id="wf_x")
        append(site, action="vault.test_b", actor="cred:c1", result="vault_locked")
        append(site, action="vaults.other")

        page = get(ava, f"{AUDIT}?{query}")

        by_seq = {row.seq: row.action for row in entries(site)}
        assert {by_seq[seq] for seq in shown(page)} == wanted
        assert ("No entry was found" in page.text) is (not wanted)

    def test_a_username_stands_for_its_account(self, site, ava):
        page = get(ava, f"{AUDIT}?actor=ava")
        by_seq = {row.seq: row.actor for row in entries(site)}
        assert {by_seq[seq] for seq in shown(page)} == {f"user:{site.wiring.auth.names.user_id('ava')}"}

    def test_days_are_of_utc_and_both_ends_count(self, site, ava):
        append(site, action="vault.test_a")
        day = f"{datetime.fromtimestamp(site.clock.now_us() / 1e6, UTC):%Y-%m-%d}"
        site.clock.advance(86_400)
        append(site, action="vault.test_b")
        site.person("ben", Role.ADMINISTRATOR)
        ben = site.signed_in("ben")

        page = get(ben, f"{AUDIT}?action=vault.&from={day}&to={day}")

        by_seq = {row.seq: row.action for row in entries(site)}
        assert [by_seq[seq] for seq in shown(page)] == ["vault.test_a"]

    @pytest.mark.parametrize(
        "query", ["from=2026-13-01", "to=yesterday", "from=2026-02-02&to=2026-02-01", "from=1969-12-31"]
    )
    def test_a_day_that_is_none_is_said_beside_the_filters(self, ava, query):
        page = get(ava, f"{AUDIT}?{query}")

        assert page.status_code == 422
        assert 'id="filters-problem"' in page.text

    @pytest.mark.parametrize("query", ["limit=1000000", "action=a&action=b", "actor=%00", "x=1", "order=at"])
    def test_what_the_list_does_not_know_is_refused(self, ava, query):
        assert get(ava, f"{AUDIT}?{query}").status_code == 400

    def test_a_cursor_is_good_for_its_reader_and_question_alone(self, site, ava):
        append(site, times=120)
        address = older(get(ava, AUDIT))
        cursor = address.partition("cursor=")[2]
        site.person("ben", Role.ADMINISTRATOR)
        ben = site.signed_in("ben")

        changed = [cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :] for at in range(len(cursor))]
        for wrong in [*changed, cursor + "A", cursor + "=", cursor[:-1], "AAAA", "!"]:
            reply = get(ava, f"{AUDIT}?cursor={wrong}")
            assert (reply.status_code, reply.headers["Location"]) == (303, AUDIT), wrong
        assert get(ben, address).status_code == 303
        assert get(ava, f"{address}&action=workflow.").status_code == 303
        assert get(ava, address).status_code == 200
        site.clock.advance(901)
        assert get(ava, address).status_code == 303

    def test_a_restore_voids_cursors(self, site, ava):
        append(site, times=120)
        address = older(get(ava, AUDIT))
        tamper(site.wiring.store, "UPDATE continuity_vault SET epoch = epoch + 1")

        assert get(ava, address).status_code == 303

    def test_somebody_who_lost_the_role_loses_the_next_page(self, site, ava):
        append(site, times=120)
        address = older(get(ava, AUDIT))
        site.wiring.auth.accounts.set_role("ava", Role.OPERATOR, by=LOCAL)

        assert get(ava, address).headers["Location"].startswith(LOGIN)

    def test_hostile_columns_are_text(self, site, ava):
        for value in HOSTILE:
            append(site, action=value[:64], actor=value, object_id=value, result=value[:64], request_id=value[:64])

        pages = [get(ava, AUDIT), *(get(ava, f"{AUDIT}/entries/{row.seq}") for row in entries(site)[-len(HOSTILE) :])]

        for page in pages:
            assert page.status_code == 200
            assert "<script>alert" not in page.text
            assert "<img src=x" not in page.text
            assert 'href="javascript' not in page.text
            assert ">49<" not in page.text

    @pytest.mark.parametrize("hostile", HOSTILE)
    def test_a_hostile_filter_is_text(self, ava, hostile):
        page = ava.client.get(AUDIT, query_string={"object": hostile, "actor": hostile}, base_url=ava.base_url)

        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text


class TestEntry:
    def test_a_detail_is_shown_after_the_log_says_who_looked(self, site, ava):
        seq = append(site, detail={"reason": "sentinel <b>why</b>"})

        page = get(ava, f"{AUDIT}/entries/{seq}")

        assert "sentinel &lt;b&gt;why" in page.text
        last = entries(site)[-1]
        assert (last.action, last.object_id, last.result) == ("audit.viewed", str(seq), "done")
        assert last.actor == f"user:{site.wiring.auth.names.user_id('ava')}"
        assert last.request_id == page.headers["X-Request-Id"]

    def test_an_entry_without_detail_is_no_look(self, site, ava):
        seq = append(site)

        page = get(ava, f"{AUDIT}/entries/{seq}")

        assert "has no detail" in page.text
        assert entries(site)[-1].seq == seq

    def test_what_cannot_be_written_down_is_not_opened(self, site, ava):
        seq = append(site, detail={"reason": "sentinel"})
        tamper(site.wiring.store, "DELETE FROM continuity_audit_head")

        page = get(ava, f"{AUDIT}/entries/{seq}")

        assert page.status_code == 200
        assert "sentinel" not in page.text
        assert "could not be written down" in page.text
        assert get(ava, f"{AUDIT}/entries.csv").status_code >= 500

    def test_a_detail_that_was_changed_is_unreadable_and_the_rest_is_shown(self, site, ava):
        seq = append(site, detail={"reason": "sentinel"}, object_id="wf_shown")
        tamper(site.wiring.store, f"UPDATE continuity_audit SET sealed_detail = zeroblob(90) WHERE seq = {seq}")

        page = get(ava, f"{AUDIT}/entries/{seq}")

        assert page.status_code == 200
        assert "Unreadable" in page.text
        assert "wf_shown" in page.text

    @pytest.mark.parametrize("seq", ["0", "999999", "-1", "1.5", "9" * 30, "x", "%00", "\uff11"])
    def test_an_entry_that_is_not_there_is_not_found(self, ava, seq):
        # What is no address is refused before it is looked for.
        assert get(ava, f"{AUDIT}/entries/{seq}").status_code == (404 if seq.isascii() and seq != "%00" else 400)

    def test_a_locked_vault_shows_the_clear_columns(self, site, ava):
        seq = append(site, detail={"reason": "sentinel"}, object_id="wf_shown")
        site.wiring.vault.lock()

        for path in ("", "?action=workflow.", f"/entries/{seq}", "/check", "/entries.csv", "/checkpoint.jsonl"):
            page = get(ava, AUDIT + path)
            assert page.status_code == 200, path
            assert "sentinel" not in page.text
        assert "wf_shown" in get(ava, f"{AUDIT}/entries/{seq}").text
        assert "The vault is locked" in get(ava, f"{AUDIT}/entries/{seq}").text


class TestFiles:
    def test_csv_holds_the_clear_columns_of_what_is_shown(self, site, ava):
        append(site, action="vault.test_a", object_id="=cmd|' /C calc'!A0", detail={"reason": "sentinel"})

        reply = get(ava, f"{AUDIT}/entries.csv?action=vault.test_a")

        assert reply.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert reply.headers["Content-Disposition"] == 'attachment; filename="atmem-audit-filtered.csv"'
        head, row = csv.reader(io.StringIO(reply.text))
        assert dict(zip(head, row, strict=True))["object"] == "'=cmd|' /C calc'!A0"
        assert "sentinel" not in reply.text
        last = entries(site)[-1]
        assert (last.action, last.object_id) == ("audit.exported", f"{row[0]}-{row[0]}")

    def test_json_says_what_it_is(self, site, ava):
        append(site, action="vault.test_a", detail={"reason": "sentinel"})

        reply = get(ava, f"{AUDIT}/entries.json?action=vault.")

        assert reply.headers["Content-Type"] == "application/json; charset=utf-8"
        assert [each["action"] for each in reply.json["entries"]] == ["vault.test_a"]
        assert "sentinel" not in reply.text

    @pytest.mark.parametrize("path", ["entries.csv", "entries.json"])
    def test_a_file_asks_for_the_password_after_ten_minutes(self, site, ava, path):
        site.clock.advance(601)
        before = len(entries(site))

        reply = get(ava, f"{AUDIT}/{path}?action=user.sign_in")

        assert reply.headers["Location"] == f"{AGAIN}?next=audit.action%3Duser.sign_in"
        assert len(entries(site)) == before

    def test_a_file_holds_no_more_than_it_says(self, site, ava, monkeypatch):
        monkeypatch.setattr("continuity.services.audit_reading.EXPORT_MOST", 1_000)
        append(site, times=2_500)
        assert len(get(ava, f"{AUDIT}/entries.json").json["entries"]) == 1_000

    def test_a_checkpoint_is_one_that_the_command_takes(self, site, ava):
        Stage(site).mail()
        reply = get(ava, f"{AUDIT}/checkpoint.jsonl")

        first, *_, last = [json.loads(line) for line in reply.text.splitlines()]
        assert first["format"] == "atmem-audit-checkpoint-1"
        assert last["workflows"] == 1
        assert entries(site)[-1].action == "audit.checkpointed"
        assert first["audit"]["seq"] == entries(site)[-1].seq - 1

    def test_a_log_without_an_end_gives_no_checkpoint(self, site, ava):
        seq = append(site, times=3)
        tamper(site.wiring.store, f"DELETE FROM continuity_audit WHERE seq = {seq}")
        reply = get(ava, f"{AUDIT}/checkpoint.jsonl")
        assert reply.status_code == 409
        assert "does not end where its head says" in reply.text


class TestVerifying:
    def test_a_whole_log_is_said_to_be_whole(self, site, ava):
        Stage(site).mail()

        assert checked(site, ava).headers["Location"] == CHECK

        page = get(ava, CHECK)
        assert "The audit log is whole" in page.text
        assert "So is the history of 1 workflow." in page.text
        last = entries(site)[-1]
        assert (last.action, last.result) == ("audit.verified", "done")

    def test_an_edit_is_named_with_what_to_do_and_stays_said(self, site, ava):
        append(site, times=5)
        tamper(site.wiring.store, "UPDATE continuity_audit SET actor = 'user:usr_y' WHERE seq = 3")

        checked(site, ava)

        page = get(ava, CHECK)
        assert "Audit entry 3: the entry is not what was written here" in page.text
        assert "What to do" in page.text
        assert "make a copy of its files" in page.text
        assert "The log is not whole" in get(ava, AUDIT).text
        assert entries(site)[-1].result == "vault_integrity_error"

    def test_a_checkpoint_of_before_is_compared(self, site, ava):
        append(site, times=3)
        kept = get(ava, f"{AUDIT}/checkpoint.jsonl").data
        append(site, times=3)

        assert checked(site, ava, {"against": "yes"}, kept).status_code == 303

        assert "Nothing from before the checkpoint of" in get(ava, CHECK).text

    def test_a_log_written_anew_contradicts_its_checkpoint_and_is_not_called_damaged(self, site, ava):
        kept = get(ava, f"{AUDIT}/checkpoint.jsonl").data
        lines = [json.loads(line) for line in kept.splitlines()]
        lines[0]["audit"]["seq"] += 500
        made = [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines[:-1]]
        digest = hashlib.sha256(b"".join(made)).hexdigest()
        made.append(json.dumps({"workflows": lines[-1]["workflows"], "sha256": digest}).encode())

        checked(site, ava, {"against": "yes"}, b"".join(made))

        page = get(ava, CHECK)
        assert "the checkpoint is newer than the log" in page.text
        assert "If you have restored a backup since" in page.text
        assert "The log is not whole" not in get(ava, AUDIT).text

    @pytest.mark.parametrize(
        ("file", "said"),
        [
            (b"", "Choose the file"), (b"hello", "is no checkpoint"), (b"\xff\xfe" * 40, "is no checkpoint"),
            (b'{"format":"atmem-audit-checkpoint-9"}', "does not read"), (None, "Choose the file"),
        ],
    )  # fmt: skip
    def test_a_file_that_is_no_checkpoint_begins_nothing(self, site, ava, file, said):
        before = site.wiring.audits.checks.last()

        reply = checked(site, ava, {"against": "yes"}, file)

        assert reply.status_code == 422
        assert said in reply.text
        assert site.wiring.audits.checks.last() == before

    def test_a_file_that_is_too_large_is_refused(self, ava):
        assert post_file(ava, {"against": "yes", "checkpoint": (io.BytesIO(b"x" * 300_000), "x")}).status_code == 413

    def test_one_verification_at_a_time(self, site, ava):

        taken = instance.claim(site.wiring.settings, "audit-check.lock")
        reply = checked(site, ava)
        os.close(taken)

        assert reply.status_code == 409
        assert "being verified already" in reply.text

    def test_a_form_of_another_session_begins_nothing(self, site, ava):
        reply = ava.client.post(CHECK, data={"csrf_token": "A" * 43}, content_type="multipart/form-data",
                                base_url=ava.base_url)  # fmt: skip

        assert reply.status_code == 403
        assert site.wiring.audits.checks.last() is None

    @pytest.mark.parametrize("data", [{"csrf_token": ["a", "b"]}, {"against": ["yes", "no"]}])
    def test_a_field_that_comes_twice_is_refused(self, site, ava, data):
        assert post_file(ava, data).status_code in {400, 403}
        assert site.wiring.audits.checks.last() is None

    def test_no_other_form_brings_a_file(self, site, ava):

        data = {"csrf_token": token_for(ava.cookie(cookie_of(ava))), "password": "x"}
        reply = ava.client.post(AGAIN, data=data, content_type="multipart/form-data", base_url=ava.base_url)
        assert reply.status_code == 403

    def test_the_poll_answers_nothing_while_nothing_changes(self, site, ava):
        checked(site, ava)
        page = get(ava, f"{CHECK}/live", **HTMX)
        assert page.status_code == 200
        assert "<html" not in page.text

        log = site.wiring.audits
        mark = shown_check(log.checks.last(), log.auditing().head()).mark
        assert get(ava, f"{CHECK}/live?mark={mark}", **HTMX).status_code == 204
        append(site)
        assert get(ava, f"{CHECK}/live?mark={mark}", **HTMX).status_code == 200

    def test_a_walk_whose_process_ended_says_so(self, site, ava):

        checked(site, ava)
        note = instance.read_note(site.wiring.settings, audits.CHECK_NOTE)
        instance.leave_note(site.wiring.settings, audits.CHECK_NOTE, {**note, "state": "running"})
        site.clock.advance(31)

        assert "Did not finish" in get(ava, CHECK).text

    @pytest.mark.parametrize("note", ['{"kind": 1}', "[]", "x", '{"kind":"whole","state":"finished"}'])
    def test_a_note_that_is_none_is_no_verification(self, site, ava, note):
        (site.wiring.settings.instance / "audit-check.json").write_text(note)
        (site.wiring.settings.instance / "audit-verdict.json").write_text(note)

        assert "None yet" in get(ava, CHECK).text
        assert "Not verified yet" in get(ava, AUDIT).text


def test_a_search_that_stopped_early_says_so_and_goes_on_where_it_stopped(site, ava, monkeypatch):
    monkeypatch.setattr(audit_search, "LOOKED_AT_MOST", 2)
    wanted = append(site, actor="user:usr_rare", action="user.create")
    append(site, times=60, actor="user:usr_rare")
    append(site, times=60, action="user.create")

    page = get(ava, f"{AUDIT}?action=user.create&actor=user:usr_rare")

    assert shown(page) == []
    assert "No entry was found so far" in page.text
    assert "Look further" in page.text
    assert "No entry was found<" not in page.text
    pages = 1
    while not shown(page):
        page, pages = get(ava, older(page)), pages + 1
    assert shown(page) == [wanted]
    assert pages == 2
