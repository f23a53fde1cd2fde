"""Conversations as people meet them on their pages."""

from __future__ import annotations

import pytest

from continuity.services.callers import Role
from tests.integration.conversing import said
from tests.web.pages import HTMX, get
from tests.web.talks import Talks

THREADS = "/threads"


@pytest.fixture
def ava(site):
    site.person("ava", Role.ADMINISTRATOR)
    return site.signed_in("ava")


@pytest.fixture
def talks(site, ava):
    return Talks(site, "ava")


class TestList:
    def test_an_empty_list_says_what_to_do_first(self, ava):
        page = get(ava, THREADS)

        assert "No conversations yet" in page.text
        assert "atmem threads worker" in page.text


class TestConversation:
    def test_what_was_said_and_done_is_to_be_read(self, ava, talks):
        thread_id, held = talks.running("Where is it?", name="monday")
        talks.append(held, *said("On its way."))

        page = get(ava, f"{THREADS}/{thread_id}")

        assert page.status_code == 200
        assert "Where is it?" in page.text
        assert "On its way." in page.text
        for part in ("live", "acts"):
            assert get(ava, f"{THREADS}/{thread_id}/{part}?mark=x", **HTMX).status_code == 200
