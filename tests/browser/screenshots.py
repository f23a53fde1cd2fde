"""Pictures of pages: light, dark and narrow.

The tests take them while they tell their stories, into a folder of theirs. ``make screenshots`` keeps those of `KEPT`
in docs/images, where the README shows them; ``ATMEM_SCREENSHOTS`` with any other folder keeps all, to look through.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, ViewportSize
from playwright.sync_api import TimeoutError as NoPicture

from tests.patience import PATIENCE_MS

FOLDER: Final = "ATMEM_SCREENSHOTS"
README_FOLDER: Final = Path("docs/images")
KEPT: Final = frozenset({"account", "resume-work", "sign-in", "thread-interrupted", "workflow"})
"""Pages that the README shows."""
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 360, "height": 740}
_PAINTED_MS: Final = 100
_TRIES: Final = 3
LOOKS: Final = (("light", "light", WIDE), ("dark", "dark", WIDE), ("narrow", "light", NARROW))


def take(page: Page, name: str, folder: Path) -> list[Path]:
    """Save the whole page as ``name-light.png``, ``name-dark.png`` and ``name-narrow.png``; return the files."""
    asked = Path(os.environ.get(FOLDER) or folder)
    target = folder if asked == README_FOLDER and name not in KEPT else asked
    target.mkdir(parents=True, exist_ok=True)
    taken, scrolled = [], page.evaluate("scrollY")
    for look, scheme, size in LOOKS:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size(size)
        # What keeps its place while one scrolls is taken in the place that it has at the top of the page. A page that
        # was just resized may be taken before all of it is painted again.
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(_PAINTED_MS)
        path = target / f"{name}-{look}.png"
        _picture(page, path, size)
        taken.append(path)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)
    page.evaluate("scrolled => scrollTo(0, scrolled)", scrolled)
    return taken


def _picture(page: Page, path: Path, size: ViewportSize) -> None:
    """Take one picture. A headless Chromium that is short of time may never paint again after its page has changed.

    Then no patience helps, and one more change does: a picture is no assertion, so it is tried again.
    """
    for left in reversed(range(_TRIES)):
        try:
            page.screenshot(path=path, full_page=True, animations="disabled", timeout=PATIENCE_MS / _TRIES)
        except NoPicture:
            if not left:
                raise
            page.set_viewport_size({"width": size["width"], "height": size["height"] + 1})
            page.set_viewport_size(size)
        else:
            return
