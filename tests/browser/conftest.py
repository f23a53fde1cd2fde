"""Fixtures of the browser tests: one Chromium a module, one context a visit, the real server behind it.

A visit fails at its end when the page has logged a violation of the Content-Security-Policy or an uncaught error.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from tests.browser.visits import People, Visit, people_of
from tests.patience import PATIENCE_MS
from tests.servers import Instance, RunningServer, start, stop

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# No sandbox and no shared memory of a container's size. No GPU that is not there, and no process for it. Nothing is
# asked of the network but by the pages.
FLAGS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

expect.set_options(timeout=PATIENCE_MS)


def chromium(playwright: Playwright) -> str:
    """Return the program to drive: the system's, else the one that Playwright installs."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    own = playwright.chromium.executable_path
    if not Path(own).exists():
        pytest.fail("There is no Chromium for the browser tests: run `make tools`.")
    return own


# Not for the session: as long as it lives no other test of this process can run an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(playwright), args=FLAGS, timeout=PATIENCE_MS)
        yield started
        started.close()


@pytest.fixture
def visits(browser: Browser) -> Iterator[list[Visit]]:
    """Every visit of a test, checked and closed at its end."""
    opened: list[Visit] = []
    yield opened
    problems = [problem for visit in opened for problem in visit.problems]
    for visit in opened:
        visit.context.close()
    assert problems == []


@pytest.fixture
def open_visit(browser: Browser, visits: list[Visit]):
    """Open a browser of its own on a server: `open_visit(url, **options of the context)`."""

    def opened(url: str, **options: object) -> Visit:
        visit = Visit.begun(browser, url, **options)
        visits.append(visit)
        return visit

    return opened


@pytest.fixture(scope="module")
def people(instance_template: Instance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """One server for the module, with a person of every role: see `visits.People`."""
    instance = instance_template.copy_to(tmp_path_factory.mktemp("people") / "instance")
    with people_of(instance) as made:
        server: RunningServer = start(instance)
        yield made.at(server)
        stop(server)
