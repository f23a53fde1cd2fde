"""Settings → Vault and About: also while the vault is locked (V11, V12, V14, S12)."""

from __future__ import annotations

import html
import platform
import re

import pytest
import sqlalchemy as sa

from app.pages.settings.about import BUNDLED
from app.vendored import VENDORED
from continuity.services.callers import Role
from continuity.store import schema
from tests.web.pages import HTMX, get, post
from tests.web.reading import poll_of, text_of
from tests.web.scenes import Stage

VAULT = "/settings/vault"
LIVE = f"{VAULT}/live"
PASSPHRASE = "seven lanterns above the harbour"
OLD_S = 11 * 60
MINUTE_S = 61


@pytest.fixture
def ada(site):
    site.person("ada", Role.ADMINISTRATOR)
    return site.signed_in("ada")


def lock(browser, **fields):
    return post(browser, f"{VAULT}/lock", {"passphrase": PASSPHRASE, "again": PASSPHRASE, **fields})


def unlock(browser, **fields):
    return post(browser, f"{VAULT}/unlock", {"passphrase": PASSPHRASE, **fields})


def seen_in(page, control):
    form = re.search(rf'<form[^>]*action="{VAULT}/{control}".*?</form>', page.text, re.DOTALL)[0]
    return html.unescape(re.search(r'name="seen" value="([^"]*)"', form)[1])


def rotate(browser, **fields):
    return post(browser, f"{VAULT}/rotate", {"seen": seen_in(get(browser, VAULT), "rotate"), **fields})


def finish_rotation(site):
    """Work as the housekeeping of a server does, once whoever began is no longer at it."""
    site.clock.advance(6)
    for _ in range(50):
        site.wiring.vault_life.drive()
        if site.wiring.vault_life.rotation().is_finished:
            return
    raise AssertionError("The rotation did not end.")


def actions(site):
    return [row.action for row in site.wiring.store.read(
        lambda connection: connection.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all()
    )]  # fmt: skip


def test_it_shows_where_the_keys_stand(ada):
    words = text_of(get(ada, VAULT))

    assert "Keys Open Master key number 1, from a file of this host" in words
    assert "Capture full" in words
    assert "atmem vault backup" in words
    assert "vault.key" not in words


class TestLocking:
    def test_it_stops_what_is_sealed_and_everything_here_goes_on(self, site, ada):
        scene = Stage(site).mail()

        assert lock(ada).headers["Location"] == VAULT

        page = get(ada, VAULT)
        assert "Every process drops its keys" in page.text
        assert re.search(r"Keys Locked Locked \S+ \S+ UTC by ada", text_of(page))
        for path in ("/settings/people", "/settings/sessions", "/settings/credentials", "/settings/about"):
            assert get(ada, path).status_code == 200, path
        assert get(ada, f"/resume-work/{scene.workflow_id}").status_code == 423
        assert "vault.lock" in actions(site)

    def test_whoever_can_unlock_it_is_led_there_from_a_page_that_it_keeps_shut(self, site, ada):
        site.person("bob")
        lock(ada)

        closed, theirs = get(ada, "/resume-work"), get(site.signed_in("bob"), "/resume-work")

        assert closed.status_code == theirs.status_code == 423
        assert f'href="{VAULT}"' in closed.text
        assert "Unlock it" in text_of(closed)
        assert VAULT not in theirs.text
        assert "until an administrator unlocks the vault" in text_of(theirs)

    def test_people_and_credentials_are_decided_about_while_it_is_locked(self, site, ada):
        site.person("bob")
        theirs = site.signed_in("bob")
        asked = {"principal_id": "p", "role": "evidence_collector"}
        token = theirs.post("/v1/evidence/grants", asked).json["token"]
        lock(ada)
        bob = site.wiring.auth.people.named("bob")
        credential = site.wiring.auth.credential_list.page(_all()).credentials[0]

        page = get(ada, "/settings/credentials")
        assert "sealed" in text_of(page)
        path = f"/settings/credentials/{credential.credential_id}"
        assert get(ada, path).status_code == 200
        assert post(ada, f"{path}/revoke").status_code == 303
        assert theirs.send("GET", "/v1/continuity", headers={"Authorization": f"Bearer {token}"}).status_code == 401
        assert post(ada, f"/settings/people/{bob.user_id}/disable", {"seen": bob.mark}).status_code == 303
        assert get(theirs, "/account").status_code == 303
        new = get(ada, "/settings/credentials/new")
        assert "The vault is locked" in new.text
        assert "Issue the credential" not in new.text
        assert "cannot be looked for while the vault is locked" in get(ada, "/settings/credentials?principal=p").text

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"passphrase": "", "again": ""}, "lock-passphrase"),
            ({"passphrase": "short", "again": "short"}, "lock-passphrase"),
            ({"again": "another one altogether"}, "lock-again"),
        ],
    )
    def test_a_passphrase_that_cannot_be_is_told_and_never_shown(self, site, ada, fields, field):
        reply = lock(ada, **fields)

        assert reply.status_code == 422
        assert f'id="{field}-problem"' in reply.text
        assert PASSPHRASE not in reply.text
        assert not site.wiring.vault.is_locked

    def test_unlocking_takes_the_passphrase_and_work_goes_on(self, site, ada):
        scene = Stage(site).mail()
        lock(ada)

        wrong = unlock(ada, passphrase="not this one at all")
        assert wrong.status_code == 422
        assert "This is not the passphrase" in wrong.text
        assert "not this one at all" not in wrong.text
        assert site.wiring.vault.is_locked
        assert unlock(ada, passphrase="").status_code == 422

        assert unlock(ada).headers["Location"] == VAULT
        assert "The vault is unlocked" in get(ada, VAULT).text
        assert get(ada, f"/resume-work/{scene.workflow_id}").status_code == 200
        assert "vault.unlock" in actions(site)

    def test_guessing_the_passphrase_is_throttled(self, site, ada):
        lock(ada)
        for _ in range(5):
            unlock(ada, passphrase="not this one at all")

        reply = unlock(ada)

        assert reply.status_code == 429
        assert reply.headers["Retry-After"]
        assert "Too many attempts" in reply.text
        site.clock.advance(MINUTE_S)
        assert unlock(ada).status_code == 303

    def test_locking_twice_changes_nothing(self, site, ada):
        lock(ada)

        assert lock(ada).status_code == 303
        assert unlock(ada).status_code == 303

    def test_whoever_locks_it_a_second_time_is_told_that_another_passphrase_opens_it(self, site, ada):
        lock(ada)

        reply = lock(ada, passphrase="another passphrase", again="another passphrase")

        assert reply.status_code == 409
        assert "under another passphrase: that one opens it" in text_of(reply)
        assert unlock(ada).status_code == 303


class TestRotating:
    def test_it_goes_on_by_itself_and_the_poll_stops_when_it_is_done(self, site, ada):
        Stage(site).mail()

        assert rotate(ada).status_code == 303
        page = get(ada, VAULT)
        poll = poll_of(page)
        assert "Rotation under way" in page.text
        assert poll.startswith(LIVE)
        assert get(ada, poll, **HTMX).status_code == 204
        finish_rotation(site)

        over = get(ada, poll, **HTMX)
        assert over.status_code == 200
        assert "hx-get" not in over.text
        assert "Last rotation" in over.text
        assert "number 2" in text_of(over)
        assert poll_of(get(ada, VAULT)) is None
        assert "vault.rotate" in " ".join(actions(site))

    def test_a_form_that_is_sent_once_more_rotates_once(self, site, ada):
        seen = seen_in(get(ada, VAULT), "rotate")
        post(ada, f"{VAULT}/rotate", {"seen": seen})
        finish_rotation(site)

        again = post(ada, f"{VAULT}/rotate", {"seen": seen})

        assert again.status_code == 409
        assert "It has changed since you opened this page" in again.text
        assert site.wiring.vault_life.status().key_id == 2

    def test_while_it_is_locked_there_is_none(self, site, ada):
        seen = seen_in(get(ada, VAULT), "rotate")
        lock(ada)

        assert "Rotate the master key" not in get(ada, VAULT).text
        assert post(ada, f"{VAULT}/rotate", {"seen": seen}).status_code == 409
        assert site.wiring.vault_life.rotation() is None

    def test_the_address_of_the_poll_is_a_page_as_well(self, ada):
        page = get(ada, LIVE)

        assert page.status_code == 200
        assert "What you can do" in page.text


class TestCapture:
    def test_it_is_changed_when_nothing_is_in_the_way(self, site, ada):
        assert post(ada, f"{VAULT}/capture", {"seen": "full", "mode": "metadata"}).status_code == 303

        assert "Capture metadata" in text_of(get(ada, VAULT))
        assert "vault.capture_changed" in actions(site)

    def test_what_is_in_the_way_is_listed_before_and_told_when_it_is_refused(self, site, ada):
        scene = Stage(site).mail()
        page = get(ada, VAULT)
        assert f'href="/resume-work/{scene.workflow_id}"' in page.text
        assert "is enabled and not finished: pause it" in page.text

        reply = post(ada, f"{VAULT}/capture", {"seen": "full", "mode": "off"})

        assert reply.status_code == 409
        assert "Work that is not finished needs exact content" in reply.text
        assert f'href="/resume-work/{scene.workflow_id}"' in reply.text
        assert site.wiring.vault_life.status().capture_mode == "full"

    def test_a_mode_that_is_none_and_a_mode_that_is_another_since_are_refused(self, site, ada):
        assert post(ada, f"{VAULT}/capture", {"seen": "full", "mode": "some"}).status_code == 422
        assert post(ada, f"{VAULT}/capture", {"seen": "off", "mode": "metadata"}).status_code == 409
        assert site.wiring.vault_life.status().capture_mode == "full"


class TestPassword:
    @pytest.mark.parametrize("control", ["lock", "rotate", "capture", "unlock", "close-recovery"])
    def test_an_old_check_is_made_up_for_inside_the_form(self, site, ada, control):
        if control == "unlock":
            lock(ada)
        page = get(ada, VAULT)
        fields = {
            "lock": {"passphrase": PASSPHRASE, "again": PASSPHRASE}, "unlock": {"passphrase": PASSPHRASE},
            "capture": {"seen": "full", "mode": "metadata"}, "close-recovery": {},
        }.get(control) or ({"seen": seen_in(page, "rotate")} if control == "rotate" else {})  # fmt: skip
        site.clock.advance(OLD_S)
        before = site.wiring.vault_life.status().state, site.wiring.vault_life.status().capture_mode

        asked = post(ada, f"{VAULT}/{control}", fields)

        assert asked.status_code == 403
        assert PASSPHRASE not in asked.text
        now = site.wiring.vault_life.status()
        assert (now.state, now.capture_mode, now.rotation) == (*before, None)
        assert post(ada, f"{VAULT}/{control}", {**fields, "password": site.passwords["ada"]}).status_code == 303

    def test_the_address_of_a_control_leads_to_the_page(self, ada):
        for control in ("lock", "unlock", "rotate", "capture", "close-recovery"):
            assert get(ada, f"{VAULT}/{control}").headers["Location"] == VAULT


class TestRecovery:
    def test_an_open_window_is_told_and_closed(self, site, ada):
        from tests.people import change_vault  # noqa: PLC0415

        now_us = site.clock.now_us()
        change_vault(site.wiring.store, site.wiring.vault, recovery_open=True, restored_at=now_us)
        page = get(ada, VAULT)
        assert "the recovery window is open" in page.text

        assert post(ada, f"{VAULT}/close-recovery").status_code == 303

        page = get(ada, VAULT)
        assert "The recovery window is closed" in page.text
        assert "the recovery window is open" not in page.text
        assert "vault.close_recovery" in actions(site)


class TestAbout:
    def test_it_says_what_the_installation_is_made_of_and_no_path(self, site, ada):
        page = get(ada, "/settings/about")

        words = text_of(page)
        assert f"Python {platform.python_version()}" in words
        assert re.search(r"Database SQLite 3\.\d+", words)
        assert re.search(r"Journal (wal|truncate), synchronous full", words)
        for secret in (str(site.wiring.settings.instance), "vault.key", ".sqlite", site.wiring.secret_key.hex()):
            assert secret not in page.text

    def test_everything_that_pages_carry_has_its_licence(self):
        assert {each.name for each in VENDORED} == {name for part in BUNDLED for name in part.files}


def _all():
    from app.auth.credential_list import CredentialQuestion  # noqa: PLC0415

    return CredentialQuestion()
