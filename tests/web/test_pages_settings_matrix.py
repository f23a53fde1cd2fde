"""Who may open which screen of Settings and send which of its forms; a route without a row fails."""

from __future__ import annotations

import pytest

from app.auth.accounts import LOCAL
from app.auth.admission import Admission
from app.auth.credential_list import CredentialQuestion
from continuity.services.callers import Role
from tests.web.pages import HTMX, get, post
from tests.web.scenes import Stage
from tests.web.site import site_on

LOGIN, PASSWORD, ENDED = "/login", "/password", "/login?ended=yes"
OLD_S = 11 * 60
MINUTE_S = 61
PASSPHRASE = "seven lanterns above the harbour"
PEOPLE = {
    "administrator": ("ada", Role.ADMINISTRATOR),
    "operator": ("oda", Role.OPERATOR),
    "investigator": ("ida", Role.INVESTIGATOR),
}
ASKERS = (
    "nobody", "administrator", "administrator with an old password check", "operator", "investigator",
    "person with a temporary password", "another's form token", "operator's credential",
)  # fmt: skip
ONLY = {
    "nobody": LOGIN, "operator": 403, "investigator": 403, "person with a temporary password": PASSWORD,
    "operator's credential": 403,
}  # fmt: skip
READ = {**ONLY, "administrator": 200, "administrator with an old password check": 200, "another's form token": 200}
LED = {**READ, **{name: 303 for name, status in READ.items() if status == 200}}
QUICK = {**ONLY, "administrator": 303, "administrator with an old password check": 303, "another's form token": 403}
PROVED = {**QUICK, "administrator with an old password check": 403}
SHOWN = {**PROVED, "administrator": 200}

EXPECTED = {
    "settings.index": ("GET", "/settings", {}, LED),
    "settings.people": ("GET", "/settings/people", {}, READ),
    "settings.people_new": ("GET", "/settings/people/new", {}, READ),
    "settings.people_create": (
        "POST", "/settings/people/new", {"username": "new-one", "role": "operator", "workspaces": "default"}, SHOWN,
    ),
    "settings.people_show": ("GET", "/settings/people/{person}", {}, READ),
    "settings.people_instead": ("GET", "/settings/people/{person}/role", {}, LED),
    "settings.people_role": ("POST", "/settings/people/{person}/role", {"seen": ..., "role": "operator"}, PROVED),
    "settings.people_workspaces": (
        "POST", "/settings/people/{person}/workspaces", {"seen": ..., "workspaces": "default"}, PROVED,
    ),
    "settings.people_reset": ("POST", "/settings/people/{person}/reset", {"seen": ...}, SHOWN),
    "settings.people_disable": ("POST", "/settings/people/{person}/disable", {"seen": ...}, PROVED),
    "settings.people_enable": ("POST", "/settings/people/{person}/enable", {"seen": ...}, PROVED),
    "settings.people_second_factor": ("POST", "/settings/people/{person}/second-factor", {"seen": ...}, PROVED),
    "settings.people_elsewhere": ("GET", "/settings/people/policy", {}, LED),
    "settings.people_policy": ("POST", "/settings/people/policy", {"wanted": "no"}, PROVED),
    "settings.sessions": ("GET", "/settings/sessions", {}, READ),
    "settings.sessions_instead": ("GET", "/settings/sessions/end", {}, LED),
    "settings.sessions_end": ("POST", "/settings/sessions/end", {"person": ..., "session": "x"}, QUICK),
    "settings.sessions_end_all": ("POST", "/settings/sessions/end-all", {"person": ...}, QUICK),
    "settings.credentials": ("GET", "/settings/credentials", {}, READ),
    "settings.credentials_new": ("GET", "/settings/credentials/new", {}, READ),
    "settings.credentials_issue": (
        "POST", "/settings/credentials/new",
        {"principal_id": "p", "kind": "evidence_collector", "days": "1", "newest": ...}, SHOWN,
    ),
    "settings.credentials_show": ("GET", "/settings/credentials/{credential}", {}, READ),
    "settings.credentials_instead": ("GET", "/settings/credentials/{credential}/renew", {}, LED),
    "settings.credentials_renew": (
        "POST", "/settings/credentials/{credential}/renew", {"days": "1", "newest": ...}, SHOWN,
    ),
    "settings.credentials_revoke": ("POST", "/settings/credentials/{credential}/revoke", {}, QUICK),
    "settings.credentials_revoke_principal": (
        "POST", "/settings/credentials/{credential}/revoke-principal", {}, QUICK,
    ),
    "settings.vault": ("GET", "/settings/vault", {}, READ),
    "settings.vault_live": ("GET", "/settings/vault/live", {}, READ),
    "settings.vault_instead": ("GET", "/settings/vault/lock", {}, LED),
    "settings.vault_lock": (
        "POST", "/settings/vault/lock", {"passphrase": PASSPHRASE, "again": PASSPHRASE}, PROVED,
    ),
    "settings.vault_unlock": ("POST", "/settings/vault/unlock", {"passphrase": PASSPHRASE}, PROVED),
    "settings.vault_rotate": ("POST", "/settings/vault/rotate", {"seen": ...}, PROVED),
    "settings.vault_capture": ("POST", "/settings/vault/capture", {"seen": "full", "mode": "full"}, PROVED),
    "settings.vault_close_recovery": ("POST", "/settings/vault/close-recovery", {}, PROVED),
    "settings.about": ("GET", "/settings/about", {}, READ),
}  # fmt: skip
CELLS = [(endpoint, asker) for endpoint in EXPECTED for asker in ASKERS]


class World:
    """One site for all cells; every cell has a session and a subject of its own."""

    def __init__(self, site):
        self.site = site
        self.made = 0
        self.stage = Stage(site)
        for name, role in PEOPLE.values():
            site.person(name, role)
        site.person("tmp")

    @property
    def auth(self):
        return self.site.wiring.auth

    def subject(self):
        """Make somebody whose account, and a credential, is decided about."""
        self.made += 1
        self.auth.accounts.create(f"sub{self.made}", role=Role.INVESTIGATOR, workspace_names=["default"], by=LOCAL)
        self.grant(f"host-{self.made}")
        return self.auth.people.named(f"sub{self.made}")

    def grant(self, principal):
        from app.auth.requests import GrantRequest  # noqa: PLC0415

        asked = {"principal_id": principal, "role": "evidence_collector", "workspace_id": "default"}
        return self.auth.credentials.issue(self.stage.person, GrantRequest.from_json(asked)).token

    def browser(self, asker):
        # Past the window of the throttle.
        self.site.clock.advance(MINUTE_S)
        if asker in {"nobody", "operator's credential"}:
            return self.site.browser()
        name = {
            "person with a temporary password": "tmp", "administrator with an old password check": "ada",
            "another's form token": "ada",
        }.get(asker) or PEOPLE[asker][0]  # fmt: skip
        if name == "tmp":
            self.site.passwords["tmp"] = self.auth.accounts.reset_password("tmp", by=LOCAL).password
        browser = self.site.signed_in(name)
        if asker == "administrator with an old password check":
            self.site.clock.advance(OLD_S)
        return browser

    def ask(self, endpoint, asker, **headers):
        method, path, given, _ = EXPECTED[endpoint]
        life = self.site.wiring.vault_life
        if life.status().state == "locked":
            life.unlock(self.stage.person, PASSPHRASE)
        person = self.subject()
        newest = self.auth.credential_list.page(CredentialQuestion()).credentials[0]
        address = path.format(person=person.user_id, credential=newest.credential_id)
        browser = self.browser(asker)
        if asker == "operator's credential":
            headers["Authorization"] = f"Bearer {self.grant('operator')}"
        if method == "GET":
            return get(browser, address, **headers)
        drawn = {"person": person.user_id, "newest": self.newest(), "seen": person.mark}
        if endpoint == "settings.vault_rotate":
            drawn["seen"] = self.rotation_seen()
        fields = {name: drawn[name] if value is ... else value for name, value in given.items()}
        return post(browser, address, fields, token="A" * 43 if asker == "another's form token" else "own", **headers)

    def newest(self):
        found = self.auth.credential_list.page(CredentialQuestion(issuer="ada")).credentials
        return found[0].credential_id if found else "none"

    def rotation_seen(self):
        from app.pages.settings.vault import _seen  # noqa: PLC0415

        return _seen(self.site.wiring.vault_life.status())


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("settings-matrix") / "instance")
    with site_on(instance.folder) as site:
        yield World(site)


def answer(reply):
    """Return the status, or where the browser is sent to prove who it is."""
    if reply.status_code == 303:
        place = reply.headers["Location"].partition("?")[0]
        return place if place in {LOGIN, PASSWORD} else 303
    return reply.status_code


def test_every_route_has_a_row(world):
    endpoints = {rule.endpoint for rule in world.site.app.url_map.iter_rules()}

    assert {name for name in endpoints if name.startswith("settings.")} == set(EXPECTED)


@pytest.mark.parametrize(("endpoint", "asker"), CELLS)
def test_who_may_see_and_do_what(world, endpoint, asker):
    assert answer(world.ask(endpoint, asker)) == EXPECTED[endpoint][3][asker]


@pytest.mark.parametrize("asker", ["operator", "investigator"])
def test_who_may_not_open_settings_has_it_nowhere_in_the_navigation(world, asker):
    browser = world.browser(asker)

    refused = get(browser, "/settings")

    assert refused.status_code == 403
    assert "You may not do this" in refused.text
    for page in (get(browser, "/account"), refused):
        assert 'href="/settings' not in page.text


@pytest.mark.parametrize("asker", ["operator", "nobody", "person with a temporary password"])
def test_the_poll_is_guarded_like_its_page(world, asker):
    expected = READ[asker]
    reply = world.ask("settings.vault_live", asker, **HTMX)

    if expected in {LOGIN, PASSWORD}:
        assert reply.headers["HX-Redirect"] == (ENDED if expected == LOGIN else expected)
        assert reply.data == b""
    else:
        assert reply.status_code == expected


def test_without_the_check_of_role_the_matrix_fails(fresh_instance, monkeypatch):
    monkeypatch.setattr(Admission, "require", lambda _admission, _caller: None)

    with site_on(fresh_instance.folder) as site:
        world = World(site)
        seen = {endpoint for endpoint in EXPECTED if answer(world.ask(endpoint, "investigator")) == 403}
    # What a service refuses by itself stays refused: the second check behind the first.
    assert seen <= {
        "settings.credentials_issue", "settings.credentials_renew", "settings.credentials_revoke",
        "settings.credentials_revoke_principal", "settings.people_create", "settings.people_role",
        "settings.people_workspaces", "settings.people_reset", "settings.people_disable", "settings.people_enable",
        "settings.people_second_factor", "settings.people_policy", "settings.vault", "settings.vault_live",
        "settings.vault_lock", "settings.vault_unlock", "settings.vault_rotate", "settings.vault_capture",
        "settings.vault_close_recovery", "settings.credentials_new", "settings.credentials_show",
    }  # fmt: skip
    assert {"settings.people", "settings.sessions", "settings.credentials", "settings.about"} & seen == set()
