"""Every page, fragment and file of activity × everybody who may ask: a second opinion, written by hand (T13)."""

from __future__ import annotations

import pytest

from app.auth.accounts import LOCAL
from app.auth.admission import Admission
from app.auth.requests import GrantRequest
from continuity.services.callers import Role
from tests.web.pages import HTMX, get
from tests.web.scenes import Stage
from tests.web.site import PRODUCER_TOKEN, site_on
from tests.web.told import ACTIVITY, Observer

MINUTE_S = 61
LOGIN, PASSWORD, ENDED = "/login", "/password", "/login?ended=yes"
PEOPLE = {
    "operator": ("oda", Role.OPERATOR, "default"),
    "investigator": ("ina", Role.INVESTIGATOR, "default"),
    "administrator": ("ava", Role.ADMINISTRATOR, "default"),
    "operator elsewhere": ("ole", Role.OPERATOR, "other"),
    "investigator elsewhere": ("ike", Role.INVESTIGATOR, "other"),
}
CREDENTIALS = {"operator's credential": {"role": "evidence_collector", "workspace_id": "default"},
               "observer's credential": {"role": "continuity_observer", "observation_scope": "local"}}  # fmt: skip
# Observations belong to no workspace: whoever may see some may see all.
SEEN = {
    "operator": 403, "operator elsewhere": 403, "investigator": 200, "investigator elsewhere": 200,
    "administrator": 200, "nobody": LOGIN, "person with a temporary password": PASSWORD,
    **dict.fromkeys(CREDENTIALS, 403), "environment token": 403,
}  # fmt: skip
PATHS = {
    "activity.index": "", "activity.live_index": "/live.html", "activity.workflows_csv": "/workflows.csv",
    "activity.workflows_json": "/workflows.json", "activity.show": "/flow-1", "activity.live": "/flow-1/live.html",
    "activity.attempts_csv": "/flow-1/attempts.csv", "activity.attempts_json": "/flow-1/attempts.json",
}  # fmt: skip
CELLS = [(endpoint, asker) for endpoint in PATHS for asker in SEEN]


class World:
    """One site for all cells, with something observed."""

    def __init__(self, site) -> None:
        self.site = site
        self.stage = Stage(site)
        self.stage.host_of("there", workspace_id="other")
        for name, role, workspace in PEOPLE.values():
            site.person(name, role, at=(workspace,))
        site.person("tmp", Role.ADMINISTRATOR)
        self.tokens = {"environment token": PRODUCER_TOKEN}
        for name, scope in CREDENTIALS.items():
            asked = GrantRequest.from_json({"principal_id": name.partition("'")[0], **scope})
            self.tokens[name] = site.wiring.auth.credentials.issue(self.stage.person, asked).token
        Observer(site).story()
        self.browsers = {}

    def ask(self, endpoint, asker, **headers):
        path = ACTIVITY + PATHS[endpoint]
        if asker in self.tokens:
            return get(self.site.browser(), path, Authorization=f"Bearer {self.tokens[asker]}", **headers)
        if asker not in self.browsers:
            self.browsers[asker] = self._browser(asker)
        return get(self.browsers[asker], path, **headers)

    def _browser(self, asker):
        if asker == "nobody":
            return self.site.browser()
        # Past the window of the throttle.
        self.site.clock.advance(MINUTE_S)
        if asker in PEOPLE:
            return self.site.signed_in(PEOPLE[asker][0])
        self.site.passwords["tmp"] = self.site.wiring.auth.accounts.reset_password("tmp", by=LOCAL).password
        return self.site.signed_in("tmp")


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("activity-matrix") / "instance")
    with site_on(instance.folder) as site:
        yield World(site)


def answer(reply):
    return reply.headers["Location"].partition("?")[0] if reply.status_code == 303 else reply.status_code


def test_every_route_has_a_row(world):
    endpoints = {rule.endpoint for rule in world.site.app.url_map.iter_rules()}

    assert {name for name in endpoints if name.startswith("activity.")} == set(PATHS)


@pytest.mark.parametrize(("endpoint", "asker"), CELLS)
def test_who_may_see_what_was_observed(world, endpoint, asker):
    reply = world.ask(endpoint, asker)

    assert answer(reply) == SEEN[asker]
    if SEEN[asker] != 200:
        # What was asked for may be named as the place to go on to, and nothing else.
        assert "flow-1" not in reply.text.replace(f"{ACTIVITY}/flow-1", "").replace("next=observed.flow-1", "")
        # The same money as a page, as JSON and as CSV write it; bare digits also stand in random ids.
        assert not [money for money in ("0.0042", '"4200"', ",4200,") if money in reply.text]


@pytest.mark.parametrize("endpoint", PATHS)
@pytest.mark.parametrize("asker", ["operator", "nobody", "person with a temporary password"])
def test_a_fragment_is_guarded_like_its_page(world, endpoint, asker):
    reply = world.ask(endpoint, asker, **HTMX)

    if SEEN[asker] in {LOGIN, PASSWORD}:
        moved = ENDED if SEEN[asker] == LOGIN else SEEN[asker]
        assert (reply.headers["HX-Redirect"], reply.data) == (moved, b"")
    else:
        assert reply.status_code == SEEN[asker]
        assert "flow-1" not in reply.text


def test_without_the_check_of_role_the_matrix_fails(fresh_instance, monkeypatch):
    monkeypatch.setattr(Admission, "require", lambda _admission, _caller: None)

    with site_on(fresh_instance.folder) as site:
        world = World(site)
        assert {endpoint for endpoint in PATHS if world.ask(endpoint, "operator").status_code == 200} == set(PATHS)


def test_looking_writes_nothing(world):
    before = None
    for endpoint in PATHS:
        world.ask(endpoint, "investigator")
        before = before or world.site.everything()
    assert world.site.everything() == before


def test_what_observers_say_changes_no_decision(world):
    scene = world.stage.mail()
    scene.begin()
    before = scene.view()
    observer = Observer(world.site)

    for event in ("completed", "blocked", "abandoned"):
        observer.tell(scene.workflow_id, "attempt-1", event)

    assert scene.view() == before
