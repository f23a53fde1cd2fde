"""Settings → Sessions: where everybody is signed in, and ending it (S07, S11)."""

from __future__ import annotations

import re
import threading

import pytest
import sqlalchemy as sa

from app.auth.accounts import LOCAL
from app.auth.schema import sessions
from continuity.services.callers import Role
from continuity.store import schema
from tests.patience import PATIENCE_S
from tests.web.pages import get, post
from tests.web.reading import text_of

SESSIONS = "/settings/sessions"


@pytest.fixture
def ada(site):
    site.person("ada", Role.ADMINISTRATOR)
    return site.signed_in("ada")


def lines(page, username):
    """Return the handles of a person's sessions that can be ended, as they stand on the page."""
    part = next(each for each in page.text.split("<section") if f">{username}</a>" in each)
    return re.findall(r'name="session" value="([^"]*)"', part)


def fields(site, username, **more):
    return {"person": site.wiring.auth.people.named(username).user_id, "q": "", **more}


def test_everybody_who_is_signed_in_is_there_with_when(site, ada):
    site.person("bob")
    site.person("abe")
    for _ in range(2):
        site.signed_in("bob")

    words = text_of(get(ada, SESSIONS))

    assert "bob Operator End all of bob" in words
    assert "Session 2" in words
    assert "ada Administrator" in words
    assert "abe" not in words


def test_sessions_that_are_over_are_not_there(site, ada):
    site.person("bob")
    site.person("cyd")
    site.signed_in("bob")
    site.clock.advance(31 * 60)
    site.signed_in("cyd")
    site.wiring.auth.accounts.disable("cyd", by=LOCAL)

    words = text_of(get(site.signed_in("ada"), SESSIONS))

    assert "bob Operator" not in words
    assert "cyd Operator" not in words


def test_one_session_is_ended_from_its_next_request_on_and_the_others_go_on(site, ada):
    site.person("bob")
    first, second = site.signed_in("bob"), site.signed_in("bob")
    handles = lines(get(ada, SESSIONS), "bob")
    assert len(handles) == 2

    reply = post(ada, f"{SESSIONS}/end", fields(site, "bob", session=handles[0]))

    assert reply.headers["Location"] == SESSIONS
    assert "That session has ended" in get(ada, SESSIONS).text
    assert sorted(get(each, "/account").status_code for each in (first, second)) == [200, 303]
    again = post(ada, f"{SESSIONS}/end", fields(site, "bob", session=handles[0]))
    assert again.status_code == 303
    assert "had ended already" in get(ada, SESSIONS).text


def test_all_of_a_person_are_ended_and_the_log_says_by_whom(site, ada):
    site.person("bob")
    theirs = [site.signed_in("bob") for _ in range(3)]

    post(ada, f"{SESSIONS}/end-all", fields(site, "bob"))

    assert [get(each, "/account").status_code for each in theirs] == [303] * 3
    assert get(ada, "/account").status_code == 200
    entry = site.wiring.store.read(lambda connection: connection.execute(
        sa.select(schema.audit).where(schema.audit.c.action == "user.end_sessions")
    ).one())  # fmt: skip
    people = site.wiring.auth.people
    assert (entry.actor, entry.object_id) == (f"user:{people.named('ada').user_id}", people.named("bob").user_id)


def test_of_ones_own_all_others_end_and_this_one_goes_on(site, ada):
    other = site.signed_in("ada")

    assert len(lines(get(ada, SESSIONS), "ada")) == 1
    post(ada, f"{SESSIONS}/end-all", fields(site, "ada"))

    assert "Every other session of yours has ended" in get(ada, SESSIONS).text
    assert get(other, "/account").status_code == 303


def test_ending_asks_for_no_password_since_it_takes_power_away(site, ada):
    site.person("bob")
    site.clock.advance(11 * 60)
    theirs = site.signed_in("bob")

    assert post(ada, f"{SESSIONS}/end-all", fields(site, "bob")).status_code == 303
    assert get(theirs, "/account").status_code == 303


def test_a_handle_is_good_for_its_person_alone(site, ada):
    site.person("bob")
    site.person("cyd")
    site.signed_in("bob")
    theirs = site.signed_in("cyd")
    handle = lines(get(ada, SESSIONS), "cyd")[0]
    before = site.rows(sessions)

    for person in (fields(site, "bob", session=handle), {"person": "usr_nobody", "session": handle, "q": ""}):
        assert post(ada, f"{SESSIONS}/end", person).status_code == 303
    assert site.rows(sessions) == before
    assert get(theirs, "/account").status_code == 200
    assert post(ada, f"{SESSIONS}/end-all", {"person": "usr_nobody", "q": ""}).status_code == 404


def test_a_request_that_is_under_way_brings_no_ended_session_back(site, ada, monkeypatch):
    """S07: the row is deleted while a request of the session is between its check and its answer."""
    site.person("bob")
    theirs = site.signed_in("bob")
    cookie, answers = theirs.cookie(), []
    inside, go_on = threading.Event(), threading.Event()
    all_of = site.wiring.auth.own_sessions.all

    def paused(person):
        if person.username == "bob":
            inside.set()
            assert go_on.wait(PATIENCE_S)
        return all_of(person)

    monkeypatch.setattr(type(site.wiring.auth.own_sessions), "all", lambda _self, person: paused(person))
    request = threading.Thread(target=lambda: answers.append(get(theirs, "/account").status_code))
    request.start()
    assert inside.wait(PATIENCE_S)
    post(ada, f"{SESSIONS}/end-all", fields(site, "bob"))
    go_on.set()
    request.join()

    replay = site.browser()
    replay.set_cookie(cookie)
    assert answers == [200]
    assert get(replay, "/account").status_code == 303
    assert len(site.rows(sessions)) == 1


def test_the_list_holds_nothing_that_signs_in(site, ada):
    site.person("bob")
    theirs = site.signed_in("bob")

    page = get(ada, SESSIONS).text

    assert theirs.cookie() not in page
    assert ada.cookie() not in page


def test_it_is_searched_by_how_a_name_begins_and_goes_on_page_by_page(site, ada, monkeypatch):
    monkeypatch.setattr("app.auth.others_sessions.PAGE_SIZE", 1)
    for name in ("bea", "bob"):
        site.person(name)
        site.signed_in(name)

    first = get(ada, f"{SESSIONS}?q=b")
    following = re.search(r'rel="next" href="([^"]*)"', first.text)[1].replace("&amp;", "&")

    assert "bea Operator" in text_of(first)
    assert "bob Operator" not in text_of(first)
    assert "bob Operator" in text_of(get(ada, following))
    assert "Nobody is signed in of this name" in text_of(get(ada, f"{SESSIONS}?q=_"))
    back = post(ada, f"{SESSIONS}/end-all", {**fields(site, "bob"), "q": "b"})
    assert back.headers["Location"] == f"{SESSIONS}?q=b"


def test_the_address_of_a_control_leads_to_the_list(ada):
    for path in ("end", "end-all"):
        assert get(ada, f"{SESSIONS}/{path}").headers["Location"] == SESSIONS
