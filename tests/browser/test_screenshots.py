"""Taking pictures: a browser that does not paint is asked again, and one that never does is told of."""

from __future__ import annotations

import pytest
from playwright.sync_api import TimeoutError as NoPicture

from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import Visit

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser):
    visit = Visit.begun(browser, "http://127.0.0.1")
    visit.page.set_content("<h1>Still here</h1>")
    yield visit.page
    visit.context.close()


def failing(page, monkeypatch, times):
    """Have the first `times` pictures fail as if no frame came; return the sizes that were set."""
    picture, resize, sizes, left = page.screenshot, page.set_viewport_size, [], [times]

    def screenshot(**options):
        if left[0]:
            left[0] -= 1
            raise NoPicture("no frame")
        return picture(**options)

    monkeypatch.setattr(page, "screenshot", screenshot)
    monkeypatch.setattr(page, "set_viewport_size", lambda size: (sizes.append(size), resize(size)))
    return sizes


def test_a_picture_that_did_not_come_is_taken_again_of_a_page_that_was_changed(page, monkeypatch, tmp_path):
    sizes = failing(page, monkeypatch, times=2)

    taken = take(page, "page", tmp_path)

    assert [path.name for path in taken] == ["page-light.png", "page-dark.png", "page-narrow.png"]
    assert all(path.stat().st_size for path in taken)
    nudged = {**WIDE, "height": WIDE["height"] + 1}
    assert sizes == [WIDE, nudged, WIDE, nudged, WIDE, WIDE, NARROW, WIDE]


def test_a_picture_that_never_comes_is_told_of(page, monkeypatch, tmp_path):
    failing(page, monkeypatch, times=3)

    with pytest.raises(NoPicture):
        take(page, "page", tmp_path)
