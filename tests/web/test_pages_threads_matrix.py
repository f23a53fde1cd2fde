"""Who may do what on the pages of threads: every route, for everybody. Another's thread is the 404 of none."""

from __future__ import annotations

import re

import pytest

from app.auth.accounts import LOCAL
from app.auth.requests import GrantRequest
from continuity.services.callers import Role
from tests.integration.conversing import question
from tests.web.pages import HTMX, get, post
from tests.web.site import site_on
from tests.web.talks import AGENT, Talks

THREADS, LOGIN, PASSWORD = "/threads", "/login", "/password"
MINUTE_S = 61
OWNER = "owner"
PEOPLE = {
    # Whoever signs in may own threads, an investigator as well, who sees nobody else's.
    OWNER: ("ira", Role.INVESTIGATOR, "default"), "operator": ("oda", Role.OPERATOR, "default"),
    "operator elsewhere": ("ole", Role.OPERATOR, "other"), "investigator": ("ina", Role.INVESTIGATOR, "default"),
    "administrator": ("ava", Role.ADMINISTRATOR, "default"),
}  # fmt: skip
ASKERS = [*PEOPLE, "nobody", "temporary", "operator's credential"]
LOOK, FEED, CONTROL, DELETE, ANYBODY, LED = "look", "feed", "control", "delete", "anybody", "led"
SEEING = {OWNER, "operator", "administrator"}
MAY = {LOOK: SEEING, FEED: {OWNER}, CONTROL: SEEING, DELETE: {OWNER, "administrator"}}
"""As docs/threads.md says; whoever may see and not do it gets 403, everybody else 404."""
ROUTES = {
    "threads.index": ("GET", "", ANYBODY, "idle"), "threads.live_index": ("GET", "/live", ANYBODY, "idle"),
    "threads.create": ("POST", "", ANYBODY, "idle"), "threads.show": ("GET", "/{id}", LOOK, "idle"),
    "threads.live": ("GET", "/{id}/live", LOOK, "idle"), "threads.acts": ("GET", "/{id}/acts", LOOK, "idle"),
    "threads.claim": ("GET", "/{id}/claim", LOOK, "running"),
    "threads.history": ("GET", "/{id}/history?cursor=none", LOOK, "idle"),
    "threads.instead": ("GET", "/{id}/stop", LED, "idle"),
    "threads.instead_of_reply": ("GET", "/{id}/waiting/{waiting}/reply", LED, "waiting"),
    "threads.message": ("POST", "/{id}/message", FEED, "idle"),
    "threads.steer": ("POST", "/{id}/steer", FEED, "running"),
    "threads.follow_up": ("POST", "/{id}/follow-up", FEED, "running"),
    "threads.stop": ("POST", "/{id}/stop", CONTROL, "running"),
    "threads.resume": ("POST", "/{id}/resume", CONTROL, "interrupted"),
    "threads.reply": ("POST", "/{id}/waiting/{waiting}/reply", FEED, "waiting"),
    "threads.delete": ("POST", "/{id}/delete", DELETE, "idle"),
}  # fmt: skip


def wanted(endpoint, asker, thread_id):
    """What somebody gets: a status, or where the browser is sent."""
    stopped = {"nobody": LOGIN, "temporary": PASSWORD, "operator's credential": 403}
    if asker in stopped:
        return stopped[asker]
    method, _, kind, _ = ROUTES[endpoint]
    if endpoint == "threads.create":
        # Whoever belongs to another workspace finds no such agent there.
        return 422 if asker == "operator elsewhere" else THREADS
    if kind in {ANYBODY, LED}:
        return 200 if kind == ANYBODY else f"{THREADS}/{thread_id}"
    if asker not in MAY[kind]:
        return 403 if asker in SEEING else 404
    if endpoint == "threads.delete":
        return THREADS
    return f"{THREADS}/{thread_id}" if method == "POST" or endpoint == "threads.history" else 200


class World:
    """One site for all cells, with an owner in the workspace ``default``."""

    def __init__(self, site):
        self.site = site
        for name, role, workspace in PEOPLE.values():
            site.person(name, role, at=(workspace,))
        site.person("tmp", Role.ADMINISTRATOR)
        self.talks = Talks(site, PEOPLE[OWNER][0])
        asked = GrantRequest.from_json({"principal_id": "op", "role": "evidence_collector", "workspace_id": "default"})
        self.token = site.wiring.auth.credentials.issue(self.talks.person_of("ava"), asked).token
        self.browsers = {}

    def thread(self, state):
        talks, known = self.talks, {"waiting": "wr_" + "0" * 32}
        thread_id = talks.create()
        if state != "idle":
            talks.say(thread_id, "sentinel content")
        if state in {"waiting", "interrupted"}:
            held = talks.claim()
            while held.run["thread_id"] != thread_id:
                held = talks.claim()
            if state == "waiting":
                known["waiting"] = talks.wait(held, question())["waiting"][0]["waiting_id"]
            else:
                talks.fail(held)
        return thread_id, known

    def ask(self, endpoint, asker, *, absent=False, **headers):
        method, path, _, state = ROUTES[endpoint]
        browser = self.browsers.get(asker) or self.browsers.setdefault(asker, self._browser(asker))
        thread_id, known = ("th_" + "0" * 32, {"waiting": "wr_" + "0" * 32}) if absent else self.thread(state)
        if asker == "operator's credential":
            headers["Authorization"] = f"Bearer {self.token}"
        path = THREADS + path.format(id=thread_id, **known)
        if method == "GET":
            return thread_id, get(browser, path, **headers)
        return thread_id, post(browser, path, self._form(endpoint, thread_id), **headers)

    def _form(self, endpoint, thread_id):
        name = endpoint.partition(".")[2]
        fields = {"request_id": self.talks.fresh()}
        if name == "create":
            return {**fields, "name": self.talks.fresh(), "agent": AGENT}
        if name == "delete":
            return {"sure": "yes"}
        if name == "reply":
            return {**fields, "revision": "1", "reply-0": "true"}
        if name in {"stop", "resume"}:
            is_there = thread_id != "th_" + "0" * 32
            revision = self.talks.snapshot(thread_id)["thread"]["revision"] if is_there else 1
            return {**fields, "revision": str(revision)}
        return {**fields, "content": "sentinel words"}

    def _browser(self, asker):
        if asker in {"nobody", "operator's credential"}:
            return self.site.browser()
        self.site.clock.advance(MINUTE_S)
        if asker == "temporary":
            self.site.passwords["tmp"] = self.site.wiring.auth.accounts.reset_password("tmp", by=LOCAL).password
            return self.site.signed_in("tmp")
        return self.site.signed_in(PEOPLE[asker][0])


@pytest.fixture(scope="module")
def world(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("threads-matrix") / "instance")
    with site_on(instance.folder) as site:
        made = World(site)
        # Within ten minutes of their passwords all of them.
        for asker in ASKERS:
            made.ask("threads.index", asker)
        yield made


def test_every_route_has_a_row(world):
    endpoints = {rule.endpoint for rule in world.site.app.url_map.iter_rules()}

    assert {name for name in endpoints if name.startswith("threads.")} == set(ROUTES)


@pytest.mark.parametrize("endpoint", ROUTES)
@pytest.mark.parametrize("asker", ASKERS)
def test_who_may_do_what(world, endpoint, asker):
    thread_id, reply = world.ask(endpoint, asker)

    got = reply.headers["Location"].partition("?")[0] if reply.status_code == 303 else reply.status_code
    expected = wanted(endpoint, asker, thread_id)
    if endpoint == "threads.create" and expected == THREADS:
        assert re.fullmatch(f"{THREADS}/th_[0-9a-f]{{32}}", got)
    else:
        assert got == expected
    if reply.status_code in {403, 404}:
        assert b"sentinel" not in reply.data


@pytest.mark.parametrize("endpoint", [name for name, row in ROUTES.items() if row[2] in {LOOK, FEED, CONTROL, DELETE}])
@pytest.mark.parametrize("asker", ["investigator", "operator elsewhere"])
def test_anothers_thread_is_as_if_there_were_none(world, endpoint, asker):
    there, absent = (
        world.ask(endpoint, asker, absent=is_absent, **({} if endpoint.endswith("show") else HTMX))[1]
        for is_absent in (False, True)
    )

    assert there.status_code == absent.status_code == 404
    assert plain(there) == plain(absent)


def plain(reply):
    """Return a reply without what differs between any two requests."""
    return re.sub(r"req_[0-9a-f]{24}|th_[0-9a-f]{32}|wr_[0-9a-f]{32}", "", reply.text)


def test_an_owner_who_left_the_workspace_sees_nothing_of_it(world):
    site = world.site
    site.person("lea", Role.OPERATOR)
    talks = world.talks
    thread_id = talks.create(by=talks.person_of("lea"))
    site.clock.advance(MINUTE_S)
    site.wiring.auth.accounts.set_workspaces("lea", ["other"], by=LOCAL)

    lea = site.signed_in("lea")

    assert get(lea, f"{THREADS}/{thread_id}").status_code == 404
    assert thread_id not in get(lea, THREADS).text


def test_without_the_check_of_rights_the_matrix_fails(world, monkeypatch):
    monkeypatch.setattr("continuity.services.threads_rights.require", lambda *_given, **_named: None)

    assert world.ask("threads.show", "investigator")[1].status_code == 200
