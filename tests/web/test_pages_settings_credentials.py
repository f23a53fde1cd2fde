"""Settings → Credentials: list, issue, renew, revoke (T04 to T06, S12)."""

from __future__ import annotations

import html
import re

import pytest
import sqlalchemy as sa

from app.auth.accounts import LOCAL
from app.auth.schema import credentials
from continuity.services.callers import Role
from continuity.store import schema
from tests.web.pages import get, post
from tests.web.reading import text_of
from tests.web.scenes import Stage

CREDENTIALS = "/settings/credentials"
NEW = f"{CREDENTIALS}/new"
ISSUING = {
    "principal_id": "host-1", "kind": "evidence_collector", "workflow_id": "", "workspace": "default", "scope": "",
    "days": "90",
}  # fmt: skip
OLD_S = 11 * 60
MINUTE_S = 61
GRANTS = "/v1/evidence/grants"


@pytest.fixture
def ada(site):
    site.person("ada", Role.ADMINISTRATOR)
    return site.signed_in("ada")


def newest_in(page):
    return html.unescape(re.search(r'name="newest" value="([^"]*)"', page.text)[1])


def token_in(page):
    return re.search(r'<pre id="token"[^>]*>([^<]*)</pre>', page.text)[1]


def issue(browser, **fields):
    return post(browser, NEW, {**ISSUING, "newest": newest_in(get(browser, NEW)), **fields})


def page_of(site, principal_id="host-1"):
    """Return the page of the newest credential of a principal."""
    from app.auth.credential_list import CredentialQuestion  # noqa: PLC0415

    found = site.wiring.auth.credential_list.page(CredentialQuestion(principal_id=principal_id)).credentials
    return f"{CREDENTIALS}/{found[0].credential_id}"


def is_taken(site, token):
    return site.browser().send("GET", "/v1/continuity", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def holders(page):
    return re.findall(r'class="table-main"[^>]*><span class="row-tight">\s*([^<]*?)\s*</span>', page.text)


class TestIssuing:
    def test_the_token_is_shown_once_and_works(self, site, ada):
        newest = newest_in(get(ada, NEW))
        reply = post(ada, NEW, {**ISSUING, "newest": newest})

        token = token_in(reply)
        assert reply.status_code == 200
        assert reply.headers["Cache-Control"] == "no-store"
        assert 'data-copy-from="token"' in reply.text
        assert is_taken(site, token)
        assert token not in repr(site.everything())
        for path in (CREDENTIALS, page_of(site), NEW):
            assert token not in get(ada, path).text
        again = post(ada, NEW, {**ISSUING, "newest": newest})
        assert again.status_code == 409
        assert "It has changed since you opened this page" in again.text
        assert len(site.rows(credentials)) == 1

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"principal_id": ""}, "principal_id"),
            ({"principal_id": "a b"}, "principal_id"),
            ({"kind": "owner"}, "kind-evidence_collector"),
            ({"kind": "continuity_host"}, "workflow_id"),
            ({"workflow_id": "wf_" + "0" * 32}, "workflow_id"),
            ({"kind": "continuity_observer", "workspace": ""}, "scope"),
            ({"kind": "continuity_observer", "scope": "s"}, "workspace"),
            ({"scope": "s"}, "scope"),
            ({"workspace": "a/b"}, "workspace"),
            ({"agents": "writer"}, "agents"),
            ({"kind": "thread_worker"}, "agents"),
            ({"kind": "thread_worker", "agents": "a/b"}, "agents"),
            ({"days": "0"}, "days"),
            ({"days": "366"}, "days"),
            ({"days": "1.5"}, "days"),
            ({"days": "١"}, "days"),
        ],
    )
    def test_what_is_wrong_is_told_beside_its_field(self, site, ada, fields, field):
        reply = issue(ada, **fields)

        assert reply.status_code == 422
        assert re.findall(r'id="([\w-]+)-problem"', reply.text) == [field]
        assert site.rows(credentials) == []

    def test_every_kind_is_issued_with_what_it_needs(self, site, ada):
        workflow_id = Stage(site).mail().workflow_id
        kinds = {
            "o": {}, "w": {"kind": "continuity_host", "workflow_id": workflow_id, "workspace": ""},
            "c": {"kind": "continuity_coordinator"},
            "b": {"kind": "continuity_observer", "workspace": "", "scope": "somewhere"},
            "t": {"kind": "thread_worker", "agents": "writer, reader"},
            "a": {"kind": "thread_application"},
        }  # fmt: skip

        for letter, fields in kinds.items():
            token = token_in(issue(ada, principal_id=f"host-{letter}", **fields))
            assert token.startswith(f"atm_{letter}_")

    def test_a_workflow_that_is_not_there_is_not_found(self, site, ada):
        reply = issue(ada, kind="continuity_host", workflow_id="wf_" + "0" * 32, workspace="")

        assert reply.status_code == 404
        assert site.rows(credentials) == []

    def test_a_name_that_is_known_with_another_kind_is_refused_with_all_that_was_written(self, site, ada):
        issue(ada)

        reply = issue(ada, kind="continuity_coordinator", workspace="default")

        assert reply.status_code == 409
        assert "known with another role or workspace" in reply.text
        assert 'value="host-1"' in reply.text

    def test_without_a_fresh_password_it_is_asked_for_inside_the_form(self, site, ada):
        site.clock.advance(OLD_S)

        asked = issue(ada)

        assert asked.status_code == 403
        assert 'value="host-1"' in asked.text
        assert 'name="password"' in asked.text
        assert token_in(issue(ada, password=site.passwords["ada"]))


class TestList:
    @pytest.fixture
    def filled(self, site, ada):
        site.person("bob", at=("north",))
        bob = site.signed_in("bob")
        issue(ada, principal_id="host-1")
        site.clock.advance(MINUTE_S)
        issue(ada, principal_id="watch", kind="continuity_observer", workspace="", scope="somewhere", days="1")
        site.clock.advance(MINUTE_S)
        bob.post(GRANTS, {"principal_id": "host-2", "role": "evidence_collector", "workspace_id": "north"})
        return ada

    def test_it_shows_kind_scope_issuer_times_and_state(self, site, filled):
        words = text_of(get(filled, CREDENTIALS))

        assert re.search(r"host-1 Operator Alive default \S+ \S+ UTC by ada never", words)
        assert re.search(r"watch Observer Alive scope somewhere \S+ \S+ UTC by ada never", words)
        assert re.search(r"host-2 Operator Alive north \S+ \S+ UTC by bob never", words)

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("", ["host-2", "watch", "host-1"]),
            ("kind=continuity_observer", ["watch"]),
            ("workspace=north", ["host-2"]),
            ("issuer=ada", ["watch", "host-1"]),
            ("principal=host-1", ["host-1"]),
            ("principal=host", []),
            ("state=alive", ["host-2", "watch", "host-1"]),
            ("state=revoked", []),
            ("kind=evidence_collector&issuer=bob", ["host-2"]),
            ("kind=thread_worker", []),
        ],
    )
    def test_it_is_filtered(self, filled, query, found):
        page = get(filled, f"{CREDENTIALS}?{query}")

        assert holders(page) == found
        if not found:
            assert "No credential was found" in page.text

    def test_states_are_told_apart(self, site, filled):
        site.wiring.auth.accounts.disable("bob", by=LOCAL)
        post(filled, f"{page_of(site)}/revoke")
        site.clock.advance(24 * 3600)
        browser = site.signed_in("ada")

        words = text_of(get(browser, CREDENTIALS))

        assert "host-2 Operator Refused" in words
        assert "watch Observer Expired" in words
        assert "host-1 Operator Revoked" in words
        assert holders(get(browser, f"{CREDENTIALS}?state=expired")) == ["watch"]
        assert holders(get(browser, f"{CREDENTIALS}?state=revoked")) == ["host-1"]
        assert not is_taken(site, "atm_o_x")

    @pytest.mark.parametrize("query", ["kind=owner", "state=void", "before=1", "before=1.x", "sort=1"])
    def test_what_no_page_of_ours_asks_is_refused(self, ada, query):
        assert get(ada, f"{CREDENTIALS}?{query}").status_code == 400

    def test_it_goes_on_page_by_page_and_shows_each_once(self, site, filled, monkeypatch):
        monkeypatch.setattr("app.auth.credential_list.PAGE_SIZE", 1)
        shown, address = [], CREDENTIALS
        while address:
            page = get(filled, address)
            shown += holders(page)
            found = re.search(r'rel="next" href="([^"]*)"', page.text)
            address = html.unescape(found[1]) if found else None

        assert shown == ["host-2", "watch", "host-1"]

    def test_last_use_is_shown_once_it_was_written_down(self, site, ada):
        token = token_in(issue(ada))
        assert is_taken(site, token)
        before = text_of(get(ada, page_of(site)))
        site.wiring.auth.tidy()

        assert "Last used never" in before
        assert re.search(r"Last used \d{4}-", text_of(get(ada, page_of(site))))

    def test_without_any_it_says_what_to_do_first(self, ada):
        page = get(ada, CREDENTIALS)

        assert "No credential has been issued yet" in page.text
        assert "atmem continuity credential" in page.text

    def test_one_damaged_name_takes_no_other_row_away(self, site, filled):
        owners = schema.owners
        damaged = sa.select(credentials.c.owner_pk).where(credentials.c.kind == "continuity_observer")
        site.wiring.store.write(lambda connection: connection.execute(
            sa.update(owners).where(owners.c.owner_pk.in_(damaged)).values(sealed_principal=b"damaged")
        ).rowcount)  # fmt: skip

        site.wiring.auth.credential_list._owners.forget()

        words = text_of(get(filled, CREDENTIALS))

        assert "unreadable (key 1) Observer Alive" in words
        assert "host-1 Operator" in words
        assert "host-2 Operator" in words


class TestOne:
    def test_it_is_revoked_without_a_password_and_from_the_next_request_on(self, site, ada):
        token, other = token_in(issue(ada)), token_in(issue(ada))
        site.clock.advance(OLD_S)
        page = page_of(site)

        assert post(ada, f"{page}/revoke").headers["Location"] == page

        assert sorted(is_taken(site, each) for each in (token, other)) == [False, True]
        assert "The credential is revoked" in get(ada, page).text
        post(ada, f"{page}/revoke")
        assert "was revoked already" in get(ada, page).text

    def test_everything_of_a_holder_is_revoked(self, site, ada):
        tokens = [token_in(issue(ada)) for _ in range(2)]
        other = token_in(issue(ada, principal_id="host-2"))

        assert post(ada, f"{page_of(site)}/revoke-principal").status_code == 303

        assert [is_taken(site, each) for each in (*tokens, other)] == [False, False, True]

    def test_renewing_makes_another_token_and_leaves_the_older_one_alive(self, site, ada):
        old = token_in(issue(ada))
        page = page_of(site)
        newest = newest_in(get(ada, page))
        site.clock.advance(OLD_S)
        asked = post(ada, f"{page}/renew", {"days": "7", "newest": newest})

        reply = post(ada, f"{page}/renew", {"days": "7", "newest": newest, "password": site.passwords["ada"]})

        new = token_in(reply)
        assert asked.status_code == 403
        assert new != old
        assert is_taken(site, old)
        assert is_taken(site, new)
        again = post(ada, f"{page}/renew", {"days": "7", "newest": newest})
        assert again.status_code == 409
        assert len(site.rows(credentials)) == 2

    def test_a_renewed_worker_reaches_the_same_workflow(self, site, ada):
        workflow_id = Stage(site).mail().workflow_id
        issue(ada, kind="continuity_host", workflow_id=workflow_id, workspace="")
        page = page_of(site)

        reply = post(ada, f"{page}/renew", {"days": "7", "newest": newest_in(get(ada, page))})

        bearer = {"Authorization": f"Bearer {token_in(reply)}"}
        assert site.browser().send("GET", f"/v1/continuity/{workflow_id}", headers=bearer).status_code == 200

    def test_a_number_of_days_that_cannot_be_is_told(self, site, ada):
        issue(ada)
        page = page_of(site)

        reply = post(ada, f"{page}/renew", {"days": "x", "newest": newest_in(get(ada, page))})

        assert reply.status_code == 422
        assert 'id="days-problem"' in reply.text

    def test_one_that_is_not_there_is_not_found(self, ada):
        path = f"{CREDENTIALS}/crd_{'0' * 20}"
        assert get(ada, path).status_code == 404
        for control in ("renew", "revoke", "revoke-principal"):
            fields = {"days": "7", "newest": "none"} if control == "renew" else {}
            assert post(ada, f"{path}/{control}", fields).status_code == 404
            assert get(ada, f"{path}/{control}").headers["Location"] == path
