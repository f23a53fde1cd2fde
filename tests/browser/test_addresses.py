"""What a browser asks for: no secret in any address, and nothing that hostile text would have it ask (W04, W16)."""

from __future__ import annotations

import logging
import re

import pytest
import sqlalchemy as sa
from playwright.sync_api import expect

from app.auth import schema
from tests.browser.halls import opened
from tests.web.scenes import MAIL

pytestmark = pytest.mark.browser

HOSTILE = (
    '"><div hx-get="/stolen-get" hx-trigger="load"></div>'
    "<img src=/stolen-img><a hx-boost=true href=/stolen-link hx-trigger=load>x</a>"
    '<form method=post action=/stolen-form><script src="/stolen-script"></script>'
    "' onfocus=fetch('/stolen-event') autofocus hx-on::load=\"fetch('/stolen-on')\""
)
TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
POLLED_MS = 6_000


@pytest.fixture(scope="module")
def hall(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("hall") / "instance")
    with opened(instance) as made:
        yield made


@pytest.fixture(autouse=True)
def _patient(hall):
    hall.site.wiring.store.write(lambda connection: connection.execute(sa.delete(schema.throttle)).rowcount)


@pytest.fixture
def asked(hall, open_visit):
    """Sign ``op`` in; return the visit, and every address that its browser asks for, with where it came from."""
    visit = open_visit(hall.url)
    addresses: list[str] = []
    visit.page.on("request", lambda request: addresses.append(f"{request.url} {request.headers.get('referer', '')}"))
    visit.sign_in("op", hall.password("op"))
    return visit, addresses


def test_hostile_text_asks_for_nothing(hall, asked):
    visit, addresses = asked
    scene = hall.stage.ready({**MAIL, "arguments": {"to": HOSTILE, HOSTILE: [HOSTILE]}})
    scene.begin().report("unknown", detail=HOSTILE)
    hall.site.clock.advance(300)
    scene.stop(reason=HOSTILE[:900])

    assert visit.go(f"/resume-work/{scene.workflow_id}") == 200
    assert "stolen-get" in visit.page.content()
    visit.page.wait_for_timeout(POLLED_MS)
    visit.go("/resume-work")
    visit.page.wait_for_timeout(500)

    assert [each for each in addresses if "stolen" in each] == []
    assert visit.page.locator("[hx-get*=stolen], [src*=stolen], [href*=stolen], [action*=stolen]").count() == 0


def test_no_form_puts_its_token_into_an_address_or_the_log(hall, asked, caplog):
    caplog.set_level(logging.DEBUG)
    visit, addresses = asked
    scene = hall.stage.ready(MAIL)
    tokens: set[str] = set()

    def look(path: str | None = None) -> None:
        if path is not None:
            visit.go(path)
        tokens.update(TOKEN.findall(visit.page.content()))

    for path in (
        "/account",
        "/password",
        "/account/second-factor",
        "/resume-work",
        f"/resume-work/{scene.workflow_id}",
    ):
        look(path)
    visit.go("/account/second-factor")
    visit.page.get_by_role("button", name="Set it up").click()
    look()
    visit.field("Code").fill("000000")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_text("The code is wrong")).to_be_visible()
    look()
    visit.go("/password")
    for label in ("Current password", "New password", "New password again"):
        visit.field(label).fill("wrong wrong wrong")
    visit.page.get_by_role("button", name="Change password").click()
    expect(visit.page.get_by_text("The password was not changed")).to_be_visible()
    look()
    visit.page.get_by_role("button", name="Sign out").click()
    visit.page.wait_for_url("**/login")
    look()

    assert len(tokens) >= 2
    assert len(addresses) > 10
    told = "\n".join(addresses) + caplog.text
    assert not any(token in told for token in tokens)
