"""Pictures of pages: light, dark and narrow.

The tests take them while they tell their stories, into a folder of theirs. ``make screenshots`` keeps those of `KEPT`
in docs/images, where the README shows them; ``ATMEM_SCREENSHOTS`` with any other folder keeps all, to look through.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

FOLDER: Final = "ATMEM_SCREENSHOTS"
README_FOLDER: Final = Path("docs/images")
KEPT: Final = frozenset({"account", "resume-work", "sign-in", "thread-interrupted", "workflow"})
"""Pages that the README shows."""
WIDE: Final = {"width": 1280, "height": 800}
NARROW: Final = {"width": 360, "height": 740}
_PAINTED_MS: Final = 100
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
        page.screenshot(path=path, full_page=True, animations="disabled")
        taken.append(path)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)
    page.evaluate("scrolled => scrollTo(0, scrolled)", scrolled)
    return taken
