"""Every page, fragment and control of Resume work × everybody who may ask: a second opinion, written by hand."""

from __future__ import annotations

import itertools

import pytest

from app.auth.accounts import LOCAL
from app.auth.admission import Admission
from continuity.services import deletion, opening, reviewing
from continuity.services.callers import Role
from tests.web.pages import HTMX, get, post
from tests.web.reading import LIST
from tests.web.scenes import Stage
from tests.web.site import site_on

MINUTE_S = 61
DONE = 303
LOGIN, PASSWORD, ENDED = "/login", "/password", "/login?ended=yes"

PEOPLE = {
    "operator": ("oda", Role.OPERATOR, "default"),
    "investigator": ("ina", Role.INVESTIGATOR, "default"),
    "administrator": ("ava", Role.ADMINISTRATOR, "default"),
    "operator elsewhere": ("ole", Role.OPERATOR, "other"),
    "investigator elsewhere": ("ike", Role.INVESTIGATOR, "other"),
    "operator with an old password check": ("old", Role.OPERATOR, "default"),
}
ASKERS = (*PEOPLE, "nobody", "person with a temporary password", "operator's credential", "another's form token")

SEEN = {
    "operator": 200, "investigator": 200, "administrator": 200, "operator elsewhere": 404,
    "investigator elsewhere": 404, "operator with an old password check": 200, "nobody": LOGIN,
    "person with a temporary password": PASSWORD, "operator's credential": 403, "another's form token": 200,
}  # fmt: skip
LISTED = {**SEEN, "operator elsewhere": 200, "investigator elsewhere": 200}
CONTROLLED = {
    **SEEN, "operator": DONE, "administrator": DONE, "operator with an old password check": DONE,
    "investigator": 403, "investigator elsewhere": 403, "another's form token": 403,
}  # fmt: skip
LED = {asker: DONE if seen in {200, 404} else seen for asker, seen in SEEN.items()}
# The form comes again with a field for the password.
CONFIRMED = {**CONTROLLED, "operator with an old password check": 403}

EXPECTED = {
    "resume_work.index": ("GET", "", LISTED),
    "resume_work.live_index": ("GET", "/live", LISTED),
    "resume_work.show": ("GET", "/{id}", SEEN),
    "resume_work.live": ("GET", "/{id}/live", SEEN),
    "resume_work.instead": ("GET", "/{id}/enable", LED),
    "resume_work.enable": ("POST", "/{id}/enable", CONTROLLED),
    "resume_work.pause": ("POST", "/{id}/pause", CONTROLLED),
    "resume_work.stop": ("POST", "/{id}/stop", CONTROLLED),
    "resume_work.confirm": ("POST", "/{id}/confirm", CONFIRMED),
    "resume_work.delete": ("POST", "/{id}/delete", CONFIRMED),
}
CELLS = [(endpoint, asker) for endpoint in EXPECTED for asker in ASKERS]


class World:
    """One site for all cells; every cell has a workflow and a session of its own."""

    def __init__(self, site) -> None:
        self.site = site
        self.stage = Stage(site)
        self.numbers = itertools.count()
        self.stage.host_of("there", workspace_id="other")
        for name, role, workspace in PEOPLE.values():
            site.person(name, role, at=(workspace,))
        site.person("tmp")

    def target(self, endpoint):
        """Make work to which the control of `endpoint` applies; return it and the form's fields."""
        stage = self.stage
        action = endpoint.partition(".")[2]
        scene = stage.prepare() if action == "enable" else stage.mail()
        if action == "confirm":
            scene.lose()
        if action == "delete":
            scene.stop()
        view = scene.view()
        fields = {"revision": str(view["revision"])}
        if action == "stop":
            fields |= {"name": "send-mail", "reason": "Not wanted."}
        if action == "confirm":
            fields |= {"name": "send-mail", "happened": "no", "looked": "yes", "reason": "No.", "late_receipts": "0"}
        return scene, {"mark": view["pulse"], "sure": "yes"} if action == "delete" else fields

    def browser(self, asker):
        site = self.site
        # Past the window of the throttle.
        site.clock.advance(MINUTE_S)
        if asker in {"nobody", "operator's credential"}:
            return site.browser()
        name = {"person with a temporary password": "tmp", "another's form token": "oda"}.get(asker)
        name = name or PEOPLE[asker][0]
        if name == "tmp":
            site.passwords["tmp"] = site.wiring.auth.accounts.reset_password("tmp", by=LOCAL).password
        browser = site.signed_in(name)
        if asker == "operator with an old password check":
            site.clock.advance(11 * 60)
        return browser

    def ask(self, endpoint, asker, **headers):
        method, path, _ = EXPECTED[endpoint]
        scene, fields = self.target(endpoint)
        browser = self.browser(asker)
        address = LIST + path.format(id=scene.workflow_id)
        if asker == "operator's credential":
            principal = f"host-{next(self.numbers)}"
            token = self.stage.site.wiring.auth.credentials.issue(self.stage.person, asked(principal)).token
            headers["Authorization"] = f"Bearer {token}"
        if method == "GET":
            return get(browser, address, **headers)
        token = "A" * 43 if asker == "another's form token" else "own"
        return post(browser, address, fields, token=token, **headers)


def asked(principal):
    from app.auth.requests import GrantRequest  # noqa: PLC0415

    return GrantRequest.from_json({"principal_id": principal, "role": "evidence_collector", "workspace_id": "default"})


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("pages-matrix") / "instance")
    with site_on(instance.folder) as site:
        yield World(site)


def answer(reply):
    """Return the status, or where the browser is sent to prove who it is."""
    if reply.status_code == DONE:
        place = reply.headers["Location"].partition("?")[0]
        return place if place in {LOGIN, PASSWORD} else DONE
    return reply.status_code


def test_every_route_has_a_row(world):
    endpoints = {rule.endpoint for rule in world.site.app.url_map.iter_rules()}

    assert {name for name in endpoints if name.startswith("resume_work.")} == set(EXPECTED)


@pytest.mark.parametrize(("endpoint", "asker"), CELLS)
def test_who_may_see_and_do_what(world, endpoint, asker):
    assert answer(world.ask(endpoint, asker)) == EXPECTED[endpoint][2][asker]


@pytest.mark.parametrize("endpoint", EXPECTED)
@pytest.mark.parametrize("asker", ["operator elsewhere", "nobody", "person with a temporary password"])
def test_a_fragment_is_guarded_like_its_page(world, endpoint, asker):
    expected = EXPECTED[endpoint][2][asker]
    reply = world.ask(endpoint, asker, **HTMX)

    if expected in {LOGIN, PASSWORD}:
        assert reply.headers["HX-Redirect"] == (ENDED if expected == LOGIN else expected)
        assert reply.data == b""
    else:
        assert reply.status_code == expected


def surprises(world, status):
    cells = [(endpoint, asker) for endpoint, asker in CELLS if EXPECTED[endpoint][2][asker] == status]
    return {endpoint for endpoint, asker in cells if answer(world.ask(endpoint, asker)) != status}


def rows_with(status):
    return {endpoint for endpoint, (_, _, row) in EXPECTED.items() if status in row.values()}


def test_without_the_check_of_scope_the_matrix_fails(fresh_instance, monkeypatch):
    for module in (opening, deletion, reviewing):
        monkeypatch.setattr(module, "is_visible", lambda _row, _caller: True)

    with site_on(fresh_instance.folder) as site:
        assert surprises(World(site), 404) == rows_with(404)


def test_without_the_check_of_role_the_matrix_fails(fresh_instance, monkeypatch):
    monkeypatch.setattr(Admission, "require", lambda _admission, _caller: None)

    with site_on(fresh_instance.folder) as site:
        # A list is refused to credentials alone, and a form without its proof by the check of forms.
        assert surprises(World(site), 403) == rows_with(403)
