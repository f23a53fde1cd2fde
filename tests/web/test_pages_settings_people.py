"""Settings → People: what an administrator sees of accounts and does to them (A05, A15, S04, S12)."""

from __future__ import annotations

import html
import re

import pytest
import sqlalchemy as sa

from app.auth.accounts import LOCAL
from app.auth.schema import sessions, users
from continuity.services.callers import Role
from continuity.store import schema
from tests.people import PASSWORD
from tests.web.pages import get, post, sign_in
from tests.web.reading import text_of

PEOPLE = "/settings/people"
NEW = f"{PEOPLE}/new"
MAKING = {"username": "cyd", "role": "investigator", "workspaces": "default north"}
OLD_S = 11 * 60


@pytest.fixture
def ada(site):
    site.person("ada", Role.ADMINISTRATOR)
    return site.signed_in("ada")


@pytest.fixture
def bob(site, ada):
    site.person("bob", Role.OPERATOR)
    return Subject(site, "bob")


class Subject:
    """Somebody whose account is decided about."""

    def __init__(self, site, username):
        self.site = site
        self.username = username

    @property
    def now(self):
        return self.site.wiring.auth.people.named(self.username)

    @property
    def page(self):
        return f"{PEOPLE}/{self.now.user_id}"

    def send(self, browser, control, **fields):
        return post(browser, f"{self.page}/{control}", {"seen": self.now.mark, **fields})


def password_in(reply):
    return html.unescape(re.search(r'<pre id="temporary"[^>]*>([^<]*)</pre>', reply.text)[1])


def actions(site):
    return [row.action for row in site.wiring.store.read(
        lambda connection: connection.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all()
    )]  # fmt: skip


class TestList:
    def test_it_shows_role_state_workspaces_second_factor_and_last_sign_in(self, site, ada):
        site.person("bob", Role.OPERATOR, at=("south", "north"))
        site.wiring.auth.accounts.create("new", role=Role.INVESTIGATOR, workspace_names=["default"], by=LOCAL)
        site.person("off")
        site.wiring.auth.accounts.disable("off", by=LOCAL)

        words = text_of(get(ada, PEOPLE))

        assert re.search(r"ada you Administrator Active all no \d{4}-\d\d-\d\d", words)
        assert "bob Operator Active north, south no never" in words
        assert "new Investigator Temporary password default no never" in words
        assert "off Operator Disabled default no never" in words

    def test_a_temporary_password_that_was_not_used_in_time_is_told(self, site, ada):
        site.wiring.auth.accounts.create("new", role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)
        site.clock.advance(24 * 3600 + 1)
        browser = site.signed_in("ada")

        assert "new Operator Temporary, ended" in text_of(get(browser, PEOPLE))

    def test_it_is_filtered_by_role_and_by_how_the_name_begins(self, site, ada):
        for name, role in (("bob", Role.OPERATOR), ("bea", Role.OPERATOR), ("ben", Role.INVESTIGATOR)):
            site.person(name, role)

        found = text_of(get(ada, f"{PEOPLE}?role=operator&q=b"))

        assert [name for name in ("ada", "bea", "ben", "bob") if f" {name} Op" in found or f" {name} Inv" in found] == [
            "bea", "bob",
        ]  # fmt: skip
        assert "Nobody was found" in text_of(get(ada, f"{PEOPLE}?q=%25"))

    def test_it_goes_on_page_by_page_and_shows_each_once(self, site, ada, monkeypatch):
        monkeypatch.setattr("app.auth.people.PAGE_SIZE", 2)
        for name in ("bob", "cyd", "dan"):
            site.person(name)
        shown, address = [], PEOPLE
        while address:
            page = get(ada, address)
            shown += re.findall(r'class="table-main"[^>]*>([^<]*)<', page.text)
            found = re.search(r'rel="next" href="([^"]*)"', page.text)
            address = html.unescape(found[1]) if found else None

        assert shown == sorted(shown) == ["ada", "administrator", "bob", "cyd", "dan"]


class TestCreating:
    def test_the_temporary_password_is_shown_once_and_works(self, site, ada):
        reply = post(ada, NEW, MAKING)

        assert reply.status_code == 200
        assert reply.headers["Cache-Control"] == "no-store"
        temporary = password_in(reply)
        for path in (PEOPLE, Subject(site, "cyd").page):
            assert temporary not in get(ada, path).text
        again = post(ada, NEW, MAKING)
        assert again.status_code == 409
        assert temporary not in again.text
        assert "There is an account of this name already" in again.text
        assert sign_in(site.browser(), "cyd", temporary).headers["Location"] == "/password"
        now = site.wiring.auth.people.named("cyd")
        assert (now.role, now.workspaces) == (Role.INVESTIGATOR, ("default", "north"))
        assert "user.create" in actions(site)

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"username": "Cyd"}, "username"),
            ({"username": ""}, "username"),
            ({"role": "owner"}, "role-operator"),
            ({"workspaces": " "}, "workspaces"),
            ({"workspaces": "a/b"}, "workspaces"),
        ],
    )
    def test_what_is_wrong_is_told_beside_its_field_with_all_that_was_written(self, site, ada, fields, field):
        before = site.everything()

        reply = post(ada, NEW, {**MAKING, **fields})

        assert reply.status_code == 422
        assert f'id="{field}-problem"' in reply.text
        assert f'value="{html.escape({**MAKING, **fields}["workspaces"])}"' in reply.text
        assert site.everything() == before

    def test_without_a_fresh_password_it_is_asked_for_inside_the_form(self, site, ada):
        site.clock.advance(OLD_S)
        before = site.rows(users)

        asked = post(ada, NEW, MAKING)
        wrong = post(ada, NEW, {**MAKING, "password": "not this one either"})

        assert (asked.status_code, wrong.status_code) == (403, 422)
        for reply in (asked, wrong):
            assert 'name="password"' in reply.text
            assert 'value="cyd"' in reply.text
            assert 'value="default north"' in reply.text
            assert "not this one either" not in reply.text
        assert site.rows(users) == before
        done = post(ada, NEW, {**MAKING, "password": site.passwords["ada"]})
        assert done.status_code == 200
        assert password_in(done)

    def test_a_form_of_an_earlier_session_comes_again_with_what_was_written(self, site, ada):
        site.clock.advance(61)
        other = site.signed_in("ada")
        reply = post(other, NEW, MAKING, token="A" * 43, **{"Sec-Fetch-Site": "same-origin"})

        assert reply.status_code == 403
        assert "in another tab since" in reply.text
        assert 'value="cyd"' in reply.text

    def test_an_unknown_field_is_refused(self, site, ada):
        before = site.everything()

        assert post(ada, NEW, {**MAKING, "stamp": "9"}).status_code == 400
        assert site.everything() == before


class TestOnePerson:
    def test_a_role_is_changed_and_every_session_ends_at_once(self, site, ada, bob):
        theirs = site.signed_in("bob")

        reply = bob.send(ada, "role", role="investigator")

        assert (reply.status_code, reply.headers["Location"]) == (303, bob.page)
        assert "The role is changed" in get(ada, bob.page).text
        assert get(theirs, "/account").headers["Location"].startswith("/login")
        assert bob.now.role is Role.INVESTIGATOR
        assert "user.set_role" in actions(site)

    def test_workspaces_hold_from_the_next_request_on_and_end_no_session(self, site, ada, bob):
        theirs = site.signed_in("bob")

        assert bob.send(ada, "workspaces", workspaces="north, south").status_code == 303

        assert bob.now.workspaces == ("north", "south")
        asked = {"principal_id": "p", "role": "evidence_collector"}
        reached = [
            theirs.post("/v1/evidence/grants", {**asked, "workspace_id": name}).status_code
            for name in ("default", "north")
        ]
        assert reached == [404, 200]
        assert "user.set_workspaces" in actions(site)

    def test_a_reset_shows_a_temporary_password_once_and_ends_everything_else(self, site, ada, bob):
        theirs, mark = site.signed_in("bob"), bob.now.mark

        reply = bob.send(ada, "reset")
        again = post(ada, f"{bob.page}/reset", {"seen": mark})

        temporary = password_in(reply)
        assert again.status_code == 409
        assert temporary not in again.text
        assert get(theirs, "/account").headers["Location"].startswith("/login")
        site.clock.advance(61)
        assert sign_in(site.browser(), "bob", site.passwords["bob"]).status_code == 422
        assert sign_in(site.browser(), "bob", temporary).headers["Location"] == "/password"
        assert temporary not in repr(site.everything())

    def test_disabling_refuses_sessions_sign_in_and_credentials_until_it_is_enabled(self, site, ada, bob):
        theirs = site.signed_in("bob")
        token = theirs.post("/v1/evidence/grants", {"principal_id": "p", "role": "evidence_collector"}).json["token"]
        bearer = {"Authorization": f"Bearer {token}"}

        assert bob.send(ada, "disable").status_code == 303
        assert get(theirs, "/account").headers["Location"].startswith("/login")
        assert site.browser().send("GET", "/v1/continuity", headers=bearer).status_code == 401
        site.clock.advance(61)
        assert sign_in(site.browser(), "bob", site.passwords["bob"]).status_code == 422

        assert bob.send(ada, "enable").status_code == 303
        assert sign_in(site.browser(), "bob", site.passwords["bob"]).status_code == 303
        assert site.browser().send("GET", "/v1/continuity", headers=bearer).status_code == 200

    @pytest.mark.parametrize("control", ["role", "workspaces", "reset", "disable", "enable", "second-factor"])
    def test_what_was_decided_about_another_state_is_refused_and_changes_nothing(self, site, ada, bob, control):
        more = {"role": {"role": "administrator"}, "workspaces": {"workspaces": "north"}}.get(control, {})
        mark = bob.now.mark
        site.wiring.auth.accounts.set_workspaces("bob", ["elsewhere"], by=LOCAL)
        before = site.rows(users), bob.now

        reply = post(ada, f"{bob.page}/{control}", {"seen": mark, **more})

        assert reply.status_code == 409
        assert "It has changed since you opened this page" in reply.text
        assert "Nothing was changed" in reply.text
        assert "elsewhere" in reply.text
        assert (site.rows(users), bob.now) == before

    @pytest.mark.parametrize("control", ["role", "workspaces", "reset", "disable", "enable", "second-factor"])
    def test_an_old_password_check_is_made_up_for_inside_the_form(self, site, ada, bob, control):
        more = {"role": {"role": "administrator"}, "workspaces": {"workspaces": "north"}}.get(control, {})
        site.clock.advance(OLD_S)
        before = site.rows(users)

        asked = bob.send(ada, control, **more)

        assert asked.status_code == 403
        form = re.search(rf'<form[^>]*action="{bob.page}/{control}".*?</form>', asked.text, re.DOTALL)
        if control not in {"enable", "second-factor"}:
            assert "More than ten minutes have passed" in form[0]
        assert site.rows(users) == before
        done = bob.send(ada, control, **more, password=site.passwords["ada"])
        assert done.status_code in {200, 303}

    def test_the_last_administrator_is_kept_and_the_page_says_what_is_in_the_way(self, site, ada):
        # The first one has never signed in, and by now cannot.
        site.clock.advance(24 * 3600 + 1)
        browser, subject = site.signed_in("ada"), Subject(site, "ada")
        before = site.rows(users)

        for control, more in (("role", {"role": "operator"}), ("disable", {})):
            reply = subject.send(browser, control, **more)
            assert reply.status_code == 409
            assert "This is the last administrator" in reply.text
        assert site.rows(users) == before
        assert get(browser, PEOPLE).status_code == 200

    def test_ones_own_password_is_not_reset_here(self, site, ada):
        subject = Subject(site, "ada")

        assert "Reset the password" not in get(ada, subject.page).text
        reply = subject.send(ada, "reset")
        assert reply.status_code == 409
        assert "Your own password is changed on your own page" in reply.text

    def test_an_administrator_may_step_down_while_there_is_another(self, site, ada):
        site.person("eve", Role.ADMINISTRATOR)

        assert Subject(site, "ada").send(ada, "role", role="operator").status_code == 303
        assert get(ada, PEOPLE).headers["Location"].startswith("/login")

    def test_a_second_factor_is_removed_or_was_not_there(self, site, ada, bob):
        assert bob.send(ada, "second-factor").headers["Location"] == bob.page
        assert "had no second factor" in get(ada, bob.page).text

    def test_nobody_of_an_unknown_id_is_there(self, ada):
        for path in (f"{PEOPLE}/usr_{'0' * 20}", f"{PEOPLE}/nobody"):
            assert get(ada, path).status_code == 404
            assert post(ada, f"{path}/disable", {"seen": ""}).status_code == 404

    def test_the_address_of_a_control_leads_to_the_person(self, ada, bob):
        for control in ("role", "workspaces", "reset", "disable", "enable", "second-factor"):
            assert get(ada, f"{bob.page}/{control}").headers["Location"] == bob.page


def test_administrators_are_required_to_have_a_second_factor_and_released_again(site, ada):
    policy = site.wiring.auth.policy
    site.clock.advance(OLD_S)

    assert post(ada, f"{PEOPLE}/policy", {"wanted": "yes"}).status_code == 403
    assert not policy.administrators_need_second_factor()
    done = post(ada, f"{PEOPLE}/policy", {"wanted": "yes", "password": site.passwords["ada"]})
    assert (done.status_code, policy.administrators_need_second_factor()) == (303, True)
    assert "policy.set_second_factor" in actions(site)
    assert get(ada, PEOPLE).headers["Location"].startswith("/account/second-factor")


def test_a_policy_is_on_or_off(site, ada):
    assert post(ada, f"{PEOPLE}/policy", {"wanted": "maybe"}).status_code == 400
    assert get(ada, f"{PEOPLE}/policy").headers["Location"] == PEOPLE


def test_no_session_outlives_a_change_that_ends_them(site, ada, bob):
    for _ in range(3):
        site.signed_in("bob")

    bob.send(ada, "reset")

    assert len(site.rows(sessions)) == 1
    assert PASSWORD not in get(ada, bob.page).text
