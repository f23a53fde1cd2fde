"""Who was refused stands in the audit log, whoever it was and however often; and nobody can flood it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from app.denials import ENTRIES_A_MINUTE, Denial, Denials
from continuity.errors import UnavailableError
from continuity.services.callers import Role
from continuity.store import schema
from tests.web.pages import get, post
from tests.web.scenes import Stage

NOTE = {"request_id": "req_1", "address": "203.0.113.7"}
MINUTE_S = 61


def told(site, *actions):
    site.wiring.audits.denials.write()
    wanted = actions or ("access.refused", "access.throttled", "vault.integrity_failure")
    rows = site.wiring.store.read(
        lambda connection: connection.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all()
    )
    return [row for row in rows if row.action in wanted]


def detail(site, row):
    return site.wiring.store.read(lambda connection: site.wiring.audit.detail(connection, row.seq))


@pytest.fixture
def oda(site):
    site.person("oda", Role.OPERATOR)
    return site.signed_in("oda")


class TestRequests:
    def test_a_page_that_is_not_for_a_role_is_one_entry_with_a_count(self, site, oda):
        replies = [get(oda, "/settings/audit") for _ in range(20)]

        [row] = told(site)
        assert (row.action, row.object_id, row.result) == ("access.refused", "audit_pages.index", "forbidden")
        assert row.actor == f"user:{site.wiring.auth.names.user_id('oda')}"
        assert row.request_id == replies[0].headers["X-Request-Id"]
        assert detail(site, row) == {"address": "127.0.0.1", "times": 20}

    def test_what_comes_within_the_minute_is_told_after_it(self, site, oda):
        get(oda, "/settings/audit")
        assert len(told(site)) == 1
        for _ in range(5):
            get(oda, "/settings/audit")
        assert len(told(site)) == 1

        site.clock.advance(MINUTE_S)

        assert detail(site, told(site)[-1])["times"] == 5

    def test_a_form_without_its_token(self, site, oda):
        assert post(oda, "/account/sessions/end-others", token="A" * 43).status_code == 403

        [row] = told(site)
        assert (row.object_id, row.result) == ("account.end_other_sessions", "csrf_failed")
        assert row.actor.startswith("user:")

    def test_a_credential_that_is_none(self, site):
        reply = get(site.browser(), "/v1/continuity", Authorization="Bearer atm_o_nothing")

        assert reply.status_code == 401
        [row] = told(site)
        assert (row.actor, row.object_id, row.result) == ("nobody", "operators.index", "unauthenticated")

    def test_nobody_at_all_is_only_asked_to_sign_in(self, site):
        assert get(site.browser(), "/settings/audit").status_code == 303
        assert get(site.browser(), "/v1/continuity").status_code == 401

        assert told(site) == []

    def test_giving_the_password_first_is_no_refusal(self, site):
        site.person("ava", Role.ADMINISTRATOR)
        ava = site.signed_in("ava")
        site.clock.advance(601)

        assert get(ava, "/settings/audit/entries.csv").status_code == 303

        assert told(site) == []

    def test_too_many_passwords_are_told_once(self, site, oda):
        for _ in range(12):
            site.browser().sign_in("oda", "a wrong password of some length")

        rows = told(site, "access.throttled")
        assert [(row.actor, row.result) for row in rows] == [("nobody", "throttled")]

    def test_what_contradicts_itself_is_told_with_its_id(self, site, oda):
        scene = Stage(site).mail()
        site.wiring.store.write(lambda connection: connection.execute(
            sa.update(schema.workflows).values(sealed_head=b"x" * 200)
        ).rowcount)  # fmt: skip

        assert get(oda, f"/resume-work/{scene.workflow_id}").status_code == 500

        [row] = told(site, "vault.integrity_failure")
        assert (row.object_id, row.result) == (scene.workflow_id, "vault_integrity_error")

    def test_a_refusal_itself_writes_nothing(self, site, oda):
        before = site.everything()["continuity_audit"]
        get(oda, "/settings/audit")
        assert site.everything()["continuity_audit"] == before


@pytest.fixture
def denials(site):
    return Denials(site.wiring.store, site.wiring.audit, now_us=site.clock.now_us)


class TestBounds:
    def test_a_flood_of_kinds_is_a_bounded_number_of_entries(self, site, denials):
        for number in range(5_000):
            denials.note(Denial("access.refused", f"cred:{number}", "view", "forbidden"), **NOTE)
        for _ in range(10):
            denials.write()

        assert len(told(site)) == ENTRIES_A_MINUTE
        for _ in range(30):
            site.clock.advance(MINUTE_S)
            denials.write()
        rows = told(site)
        # A thousand kinds are remembered; the rest is counted.
        [rest] = [row for row in rows if row.result == "too_many_kinds"]
        assert (len(rows), detail(site, rest)["times"]) == (1_001, 4_000)

    def test_what_could_not_be_written_is_written_later(self, site, denials, monkeypatch):
        denials.note(Denial("access.refused", "cred:1", "view", "forbidden"), **NOTE)
        write = site.wiring.store.write

        def full(_work):
            raise UnavailableError("The disk is full.")

        monkeypatch.setattr(site.wiring.store, "write", full)
        with pytest.raises(UnavailableError):
            denials.write()
        monkeypatch.setattr(site.wiring.store, "write", write)
        denials.note(Denial("access.refused", "cred:1", "view", "forbidden"), **NOTE)
        denials.write()

        [row] = told(site)
        assert detail(site, row)["times"] == 2

    def test_a_clock_that_steps_back_ends_no_record(self, site, denials):
        for seconds in (0, -86_400, 86_400):
            site.clock.advance(seconds)
            denials.note(Denial("access.refused", "cred:1", "view", "forbidden"), **NOTE)
            denials.write()

        assert len(told(site)) == 3
