"""Resume work after a restore: the banner that says what happened and what to do."""

from __future__ import annotations

import os

import pytest

from app.vault_life import LOCAL
from tests.restoring import Place, create
from tests.web.pages import HTMX, get
from tests.web.reading import LIST, text_of
from tests.web.site import site_on


@pytest.fixture
def restored(fresh_instance):
    place = Place(fresh_instance.folder)
    with place.wired() as built:
        create(built, "was-open")
    outcome = place.restore(place.backup())
    assert place.follow() is None
    os.umask(0o077)
    with site_on(place.folder) as site:
        yield site, outcome


def test_the_list_says_that_a_backup_was_restored_of_when_and_what_to_do(restored):
    site, _ = restored
    site.person("op")

    said = text_of(get(site.signed_in("op"), LIST))

    assert "A backup was restored" in said
    assert "atmem vault close-recovery" in said
    assert "1 workflow needs a decision" in said


def test_the_banner_goes_with_the_window_and_a_poll_brings_the_news(restored):
    site, _ = restored
    site.person("op")
    browser = site.signed_in("op")
    before = get(browser, f"{LIST}/live", headers=HTMX)
    assert "A backup was restored" in text_of(before)

    site.wiring.recovery.close(LOCAL)

    after = get(browser, f"{LIST}/live", headers=HTMX)
    assert after.status_code == 200
    assert "A backup was restored" not in text_of(after)


def test_without_a_restore_nothing_is_said(site):
    site.person("op")

    assert "A backup was restored" not in text_of(get(site.signed_in("op"), LIST))
