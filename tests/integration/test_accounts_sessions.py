"""Server-side sessions (security.md S01 to S07, S13)."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from app.auth.schema import sessions
from tests.patience import PATIENCE_S
from tests.people import VISIT, Installation, Role, install

MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400


@pytest.fixture
def people(store, tmp_path):
    return install(store, tmp_path)


@pytest.fixture
def here(sqlite_store, tmp_path):
    return install(sqlite_store, tmp_path)


def enter(people: Installation, username: str, *, replaced: str | None = None) -> str:
    password = people.passwords[username]
    return people.auth.sign_in.sign_in(username, password, visit=VISIT, replaced=replaced).session.session_id


def test_the_database_does_not_hold_what_the_cookie_holds(people):
    people.person("ada")
    session_id = enter(people, "ada")

    row = people.rows(sessions)[0]

    assert len(session_id) == 43
    assert session_id.encode() not in row.session_hash
    assert session_id not in repr(row)


def test_signing_in_again_ends_the_session_that_was_there(people):
    people.person("ada")
    before = enter(people, "ada")

    after = enter(people, "ada", replaced=before)

    assert people.auth.sessions.find(before) is None
    assert people.auth.sessions.find(after) is not None


def test_an_id_that_somebody_else_chose_is_never_adopted(here):
    here.person("ada")
    chosen = "A" * 43

    assert enter(here, "ada", replaced=chosen) != chosen
    assert here.auth.sessions.find(chosen) is None


def test_giving_the_password_again_makes_a_new_session(here):
    password = here.person("ada")
    before = enter(here, "ada")
    person = here.auth.sessions.find(before)

    after = here.auth.sign_in.reauthenticate(person, password=password, visit=VISIT).session

    assert here.auth.sessions.find(before) is None
    assert here.auth.sessions.find(after.session_id).is_fresh


def test_a_password_is_fresh_for_ten_minutes(here):
    here.person("ada")
    session_id = enter(here, "ada")

    here.clock.advance(10 * MINUTE_S - 1)
    assert here.auth.sessions.find(session_id).is_fresh
    here.clock.advance(1)
    assert not here.auth.sessions.find(session_id).is_fresh


@pytest.mark.parametrize(("role", "minutes"), [(Role.OPERATOR, 30), (Role.INVESTIGATOR, 30), (Role.ADMINISTRATOR, 15)])
def test_a_session_ends_when_it_is_not_used(people, role, minutes):
    people.person("ada", role)
    session_id = enter(people, "ada")

    people.clock.advance(minutes * MINUTE_S - 1)
    assert people.auth.sessions.peek(session_id) is not None
    people.clock.advance(1)
    assert people.auth.sessions.find(session_id) is None
    assert people.rows(sessions) == []


def test_use_keeps_a_session_alive_and_polls_do_not(people):
    people.person("ada")
    used, polled = enter(people, "ada"), enter(people, "ada")

    for _ in range(31):
        people.clock.advance(MINUTE_S)
        people.auth.sessions.find(used)
        people.auth.sessions.peek(polled)

    assert people.auth.sessions.find(used) is not None
    assert people.auth.sessions.find(polled) is None


def test_no_use_keeps_a_session_alive_for_more_than_twelve_hours(here):
    here.person("ada")
    session_id = enter(here, "ada")
    for _ in range(12 * 6 - 1):
        here.clock.advance(10 * MINUTE_S)
        assert here.auth.sessions.find(session_id) is not None

    here.clock.advance(10 * MINUTE_S)

    assert here.auth.sessions.find(session_id) is None


def test_being_seen_is_written_at_most_twice_a_minute(here):
    here.person("ada")
    session_id = enter(here, "ada")
    written = set()
    for _ in range(60):
        here.clock.advance(1)
        here.auth.sessions.find(session_id)
        written.add(here.rows(sessions)[0].seen_at)

    assert len(written) <= 3


def test_a_person_has_five_sessions_and_the_oldest_go_first(people):
    people.person("ada")
    people.person("bob")
    other = enter(people, "bob")
    opened = []
    for _ in range(7):
        people.clock.advance(20)
        opened.append(enter(people, "ada"))

    alive = [people.auth.sessions.find(session_id) is not None for session_id in opened]

    assert alive == [False, False, True, True, True, True, True]
    assert people.auth.sessions.find(other) is not None


def test_a_session_that_was_found_ended_stays_ended_when_the_clock_goes_back(here):
    here.person("ada")
    session_id = enter(here, "ada")
    here.clock.advance(13 * HOUR_S)
    assert here.auth.sessions.find(session_id) is None

    here.clock.set_back(DAY_S)

    assert here.auth.sessions.find(session_id) is None


def test_an_ended_session_that_nobody_looked_at_stays_ended_when_the_clock_goes_back(here):
    here.person("ada")
    session_id = enter(here, "ada")
    here.clock.advance(13 * HOUR_S)
    here.set_vault(clock_high_water=here.clock.now_us())

    here.clock.set_back(13 * HOUR_S)

    assert here.auth.sessions.find(session_id) is None


def test_a_clock_set_back_prolongs_nothing(here):
    here.person("ada")
    session_id = enter(here, "ada")
    here.clock.advance(5 * MINUTE_S)
    here.auth.sessions.find(session_id)
    here.set_vault(clock_high_water=here.clock.now_us())

    here.clock.set_back(HOUR_S)
    person = here.auth.sessions.find(session_id)

    assert person is not None
    here.set_vault(clock_high_water=here.clock.now_us() + HOUR_S * 1_000_000 + 5 * MINUTE_S * 1_000_000)
    assert not here.auth.sessions.find(session_id).is_fresh


def test_signing_in_works_while_the_clock_is_behind_the_vaults(here):
    here.person("ada")
    here.clock.set_back(DAY_S)

    assert here.auth.sessions.find(enter(here, "ada")) is not None


def test_a_restored_vault_knows_no_session_of_before(people):
    people.person("ada")
    session_id = enter(people, "ada")

    people.set_vault(epoch=2)

    assert people.auth.sessions.find(session_id) is None


def test_a_request_that_ends_late_does_not_bring_back_a_session_that_was_ended(people, monkeypatch):
    people.person("ada")
    session_id = enter(people, "ada")
    people.clock.advance(5 * MINUTE_S)
    looked, ended = threading.Event(), threading.Event()
    look = people.auth.sessions._look

    def look_and_wait(given):
        found = look(given)
        looked.set()
        assert ended.wait(PATIENCE_S)
        return found

    monkeypatch.setattr(people.auth.sessions, "_look", look_and_wait)
    request = threading.Thread(target=people.auth.sessions.find, args=(session_id,))
    request.start()
    assert looked.wait(PATIENCE_S)
    people.auth.sessions.end(session_id)
    ended.set()
    request.join()
    monkeypatch.undo()

    assert people.rows(sessions) == []
    assert people.auth.sessions.find(session_id) is None


def test_ended_sessions_are_swept_up(people):
    people.person("ada")
    for _ in range(3):
        enter(people, "ada")

    people.clock.advance(31 * MINUTE_S)
    people.auth.tidy()

    assert people.rows(sessions) == []


def test_what_a_person_sees_is_read_at_each_request(people):
    people.person("ada", at=("north",))
    session_id = enter(people, "ada")
    north = people.auth.sessions.find(session_id)
    assert north.workspaces == frozenset({people.workspace("north")})
    assert north.home_workspace == people.workspace("north")

    from app.auth.schema import memberships  # noqa: PLC0415

    people.store.write(lambda connection: connection.execute(sa.delete(memberships)).rowcount)

    assert people.auth.sessions.find(session_id).workspaces == frozenset()


def test_administrators_see_every_workspace(people):
    people.person("ada", Role.ADMINISTRATOR, at=("north",))

    caller = people.caller("ada")

    assert caller.workspaces is None
    assert caller.home_workspace == people.workspace("default")
