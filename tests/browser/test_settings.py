"""Settings in a real browser: people, sessions, credentials, about; with and without scripts."""

from __future__ import annotations

import re

import pytest

from continuity.services.callers import Role
from tests.browser import halls
from tests.browser.screenshots import NARROW, WIDE, take
from tests.browser.visits import WIDTHS

pytestmark = pytest.mark.browser

PEOPLE = "/settings/people"
SESSIONS = "/settings/sessions"
CREDENTIALS = "/settings/credentials"
TOKEN = re.compile(r"atm_o_[A-Za-z0-9_-]{43}_[0-9A-Za-z]{6}")


@pytest.fixture(scope="module")
def hall(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("settings") / "instance")
    with halls.opened(instance) as opened:
        opened.site.person("bob", Role.OPERATOR, at=("default", "north"))
        yield opened


@pytest.fixture
def visit(hall, open_visit):
    return signed_in(hall, open_visit)


def signed_in(hall, open_visit, **options):
    # Past the window of the throttle.
    hall.site.clock.advance(61)
    visit = open_visit(hall.url, **options)
    visit.sign_in("adm", hall.password("adm"))
    return visit


@pytest.fixture
def check(tmp_path):
    """Look at the page as it stands: in both themes, wide and narrow, at every width, and on a picture."""

    def checked(visit, name):
        for scheme in ("light", "dark"):
            for size in (WIDE, NARROW):
                visit.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                visit.page.set_viewport_size(size)
                assert visit.findings() == [], (name, scheme, size)
        assert {width: visit.overflow(width) for width in WIDTHS} == dict.fromkeys(WIDTHS, 0), name
        assert visit.page.locator("script:not([src]), style, [style], [onclick]").count() == 0
        take(visit.page, name, tmp_path)

    return checked


def id_of(hall, username):
    return hall.site.wiring.auth.people.named(username).user_id


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("people", PEOPLE),
        ("people-none", f"{PEOPLE}?q=zzz"),
        ("person-new", f"{PEOPLE}/new"),
        ("sessions", SESSIONS),
        ("sessions-none", f"{SESSIONS}?q=zzz"),
        ("credentials-none", f"{CREDENTIALS}?q=&issuer=zzz".replace("q=&", "")),
        ("credential-new", f"{CREDENTIALS}/new"),
        ("about", "/settings/about"),
    ],
)
def test_every_screen_holds_what_every_page_holds_to(hall, visit, check, name, path):
    assert visit.go(path) == 200

    check(visit, f"settings-{name}")


def test_a_person_with_every_control_open(hall, visit, check):
    visit.go(f"{PEOPLE}/{id_of(hall, 'bob')}")
    for control in visit.page.locator("details.control > summary").all():
        control.click()

    check(visit, "settings-person")
