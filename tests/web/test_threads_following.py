"""A thread's page that follows by itself is no sign of somebody being there."""

from __future__ import annotations

import pytest

from tests.web.pages import HTMX
from tests.web.talks import Talks

IDLE_MINUTES = 30
FOLLOWED = {
    "journal": "/v1/threads/{thread}/journal?after=1-1",
    "conversation": "/threads/{thread}/live",
    "controls": "/threads/{thread}/acts",
}


@pytest.mark.parametrize("what", FOLLOWED)
def test_what_a_page_asks_by_itself_does_not_keep_a_session_alive(site, what):
    site.person("ada")
    thread = Talks(site, "ada").create()
    browser = site.signed_in("ada")
    path = FOLLOWED[what].format(thread=thread)

    for _ in range(IDLE_MINUTES - 1):
        site.clock.advance(60)
        assert browser.send("GET", path, headers=HTMX).status_code == 200
    site.clock.advance(60)

    assert browser.send("GET", path, headers=HTMX).status_code == 401
