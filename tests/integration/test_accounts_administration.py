"""Decisions about accounts: bound to what was seen, by whoever may, one at a time (A15, S04, S07, S11)."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from app.auth.accounts import LOCAL, By
from app.auth.credential_list import CredentialQuestion, State
from app.auth.people import PeopleQuestion
from app.auth.schema import sessions, users
from continuity.errors import ConflictError, ForbiddenError, MalformedError, NotFoundError, UnauthenticatedError
from tests.people import VISIT, Role, install


@pytest.fixture
def people(store, tmp_path):
    return install(store, tmp_path)


@pytest.fixture
def here(sqlite_store, tmp_path):
    """The same where the database does not matter."""
    return install(sqlite_store, tmp_path)


def by(people, username):
    return By(f"user:{people.auth.people.named(username).user_id}", "req_test")


def together(*works):
    """Run all at the same moment; return the errors they ended with."""
    barrier, errors, lock = threading.Barrier(len(works)), [], threading.Lock()

    def run(work):
        barrier.wait()
        try:
            work()
        except (ConflictError, ForbiddenError) as error:
            with lock:
                errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def administrators(people):
    return [row.username for row in people.rows(users) if row.role == "administrator" and row.disabled_at is None]


class TestTheLastAdministrator:
    @pytest.mark.parametrize("deed", ["demote", "disable", "one of each"])
    def test_two_who_take_each_other_away_at_once_leave_one(self, people, deed):
        people.person("ada", Role.ADMINISTRATOR)
        people.person("bob", Role.ADMINISTRATOR)
        accounts = people.auth.accounts
        marks = {name: people.auth.people.named(name).mark for name in ("ada", "bob")}

        def take(victim, by_whom, *, is_demotion):
            if is_demotion:
                return lambda: accounts.set_role(victim, Role.OPERATOR, by=by(people, by_whom), seen=marks[victim])
            return lambda: accounts.disable(victim, by=by(people, by_whom), seen=marks[victim])

        errors = together(
            take("ada", "bob", is_demotion=deed != "disable"), take("bob", "ada", is_demotion=deed == "demote")
        )

        assert len(errors) == 1
        assert len(administrators(people)) == 1

    def test_whoever_is_demoted_at_that_moment_demotes_nobody_more(self, people):
        for name in ("ada", "bob", "cyd"):
            people.person(name, Role.ADMINISTRATOR)
        accounts, actor = people.auth.accounts, by(people, "bob")
        accounts.set_role("bob", Role.OPERATOR, by=by(people, "ada"))

        for attempt in (
            lambda: accounts.set_role("ada", Role.OPERATOR, by=actor),
            lambda: accounts.disable("ada", by=actor),
            lambda: accounts.enable("ada", by=actor),
            lambda: accounts.reset_password("ada", by=actor),
            lambda: accounts.set_workspaces("ada", ["north"], by=actor),
            lambda: accounts.create("dan", role=Role.ADMINISTRATOR, workspace_names=[], by=actor),
        ):
            with pytest.raises(ForbiddenError):
                attempt()
        assert administrators(people) == ["ada", "cyd"]

    def test_one_who_cannot_come_in_any_more_does_not_count(self, people):
        people.person("ada", Role.ADMINISTRATOR)
        people.auth.accounts.create("new", role=Role.ADMINISTRATOR, workspace_names=[], by=LOCAL)
        people.clock.advance(24 * 3600 + 1)

        with pytest.raises(ConflictError) as refused:
            people.auth.accounts.disable("ada", by=LOCAL)
        assert refused.value.code == "last_administrator"
        people.auth.accounts.disable("new", by=LOCAL)
        assert administrators(people) == ["ada"]

    def test_the_last_one_who_is_enabled_is_kept_even_if_nobody_can_come_in(self, here):
        for name in ("new", "newer"):
            here.auth.accounts.create(name, role=Role.ADMINISTRATOR, workspace_names=[], by=LOCAL)
        here.clock.advance(24 * 3600 + 1)
        here.auth.accounts.disable("new", by=LOCAL)

        with pytest.raises(ConflictError):
            here.auth.accounts.disable("newer", by=LOCAL)


class TestWhatWasSeen:
    def test_of_two_who_decide_on_the_same_state_one_is_refused(self, people):
        people.person("root", Role.ADMINISTRATOR)
        people.person("ada")
        mark = people.auth.people.named("ada").mark
        accounts = people.auth.accounts

        errors = together(
            lambda: accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL, seen=mark),
            lambda: accounts.set_workspaces("ada", ["north"], by=LOCAL, seen=mark),
        )

        assert [error.code for error in errors] == ["stale_revision"]

    def test_a_password_that_was_changed_meanwhile_is_another_state(self, here):
        here.person("ada")
        mark = here.auth.people.named("ada").mark
        here.auth.accounts.reset_password("ada", by=LOCAL)

        with pytest.raises(ConflictError):
            here.auth.accounts.disable("ada", by=LOCAL, seen=mark)

    def test_signing_in_is_none(self, here):
        password = here.person("ada")
        mark = here.auth.people.named("ada").mark
        here.auth.sign_in.sign_in("ada", password, visit=VISIT, replaced=None)

        here.auth.accounts.disable("ada", by=LOCAL, seen=mark)

    def test_a_mark_says_nothing_of_what_it_is_made_from(self, here):
        here.person("ada")
        here.person("bob")

        marks = {here.auth.people.named(name).mark for name in ("ada", "bob")}

        assert len(marks) == 2
        assert all(len(mark) == 16 for mark in marks)


class TestWorkspaces:
    def test_they_hold_from_the_next_request_on_and_sessions_go_on(self, people):
        password = people.person("ada")
        welcome = people.auth.sign_in.sign_in("ada", password, visit=VISIT, replaced=None)

        people.auth.accounts.set_workspaces("ada", ["south", "north", "south"], by=LOCAL)

        found = people.auth.sessions.find(welcome.session.session_id)
        assert found.workspaces == {people.workspace("north"), people.workspace("south")}
        assert people.auth.people.named("ada").workspaces == ("north", "south")
        assert ("user.set_workspaces", "done") in people.actions()

    def test_the_same_again_changes_nothing(self, here):
        here.person("ada", at=("north", "south"))
        before = here.actions()

        here.auth.accounts.set_workspaces("ada", ["south", "north"], by=LOCAL)

        assert here.actions() == before

    @pytest.mark.parametrize("names", [[], ["a b"], [""]])
    def test_there_is_one_at_least_and_each_has_a_name(self, here, names):
        here.person("ada")

        with pytest.raises(MalformedError):
            here.auth.accounts.set_workspaces("ada", names, by=LOCAL)
        assert here.auth.people.named("ada").workspaces == ("default",)


class TestLooking:
    def test_a_page_goes_on_behind_a_name_in_the_databases_own_order(self, people, monkeypatch):
        monkeypatch.setattr("app.auth.people.PAGE_SIZE", 2)
        for name in ("a-b", "a.b", "a_b", "ab", "a1"):
            people.person(name)
        shown, after = [], ""
        while after is not None:
            page = people.auth.people.page(PeopleQuestion(after=after))
            shown += [person.username for person in page.people]
            after = page.next_after

        assert sorted(shown) == sorted(["a-b", "a.b", "a_b", "ab", "a1"])

    @pytest.mark.parametrize("q", ["%", "_", "a%", "\\"])
    def test_what_is_typed_is_text(self, people, q):
        people.person("ada")

        assert people.auth.people.page(PeopleQuestion(q=q)).people == ()

    def test_the_last_sign_in_is_there_and_giving_the_password_again_is_none(self, people):
        password = people.person("ada")
        assert people.auth.people.named("ada").signed_in_at_us is None
        welcome = people.auth.sign_in.sign_in("ada", password, visit=VISIT, replaced=None)
        at_us = people.clock.now_us()
        people.clock.advance(300)
        person = people.auth.sessions.find(welcome.session.session_id)
        people.auth.sign_in.reauthenticate(person, password=password, visit=VISIT)

        assert people.auth.people.named("ada").signed_in_at_us == at_us

    def test_nobody_is_not_found(self, here):
        for look in (here.auth.people.one, here.auth.people.named):
            with pytest.raises(NotFoundError):
                look("nobody")

    def test_only_sessions_that_are_alive_are_shown(self, people):
        root, ada = people.person("root", Role.ADMINISTRATOR), people.person("ada")
        for username, password in (("root", root), ("ada", ada)):
            people.auth.sign_in.sign_in(username, password, visit=VISIT, replaced=None)
        people.clock.advance(16 * 60)

        assert [each.username for each in people.auth.others_sessions.page().people] == ["ada"]
        people.auth.accounts.disable("ada", by=LOCAL)
        assert people.auth.others_sessions.page().people == ()

    def test_credentials_are_listed_newest_first_and_each_once(self, people, monkeypatch):
        monkeypatch.setattr("app.auth.credential_list.PAGE_SIZE", 2)
        people.person("root", Role.ADMINISTRATOR)
        caller = people.caller("root")
        # Three of one moment: then the id decides.
        for number in range(5):
            people.grant(caller, f"host-{number}")
            if number > 2:
                people.clock.advance(1)
        shown, before = [], None
        while True:
            page = people.auth.credential_list.page(CredentialQuestion(before=before))
            shown += [each.principal_id for each in page.credentials]
            if (before := page.next_before) is None:
                break

        assert sorted(shown) == [f"host-{number}" for number in range(5)]
        assert shown[0] == "host-4"

    def test_a_credential_that_would_be_refused_says_so(self, people):
        people.person("root", Role.ADMINISTRATOR)
        people.person("ada", at=("north",))
        people.grant(people.caller("ada"), "of-ada", workspace_id="north")
        question = CredentialQuestion(issuer="ada")
        assert people.auth.credential_list.page(question).credentials[0].state is State.ALIVE

        people.auth.accounts.set_workspaces("ada", ["south"], by=LOCAL)

        assert people.auth.credential_list.page(question).credentials[0].state is State.REFUSED


class TestOnceAForm:
    def test_of_two_that_come_at_once_one_makes_a_credential(self, people):
        from app.auth.requests import GrantRequest  # noqa: PLC0415

        people.person("root", Role.ADMINISTRATOR)
        caller = people.caller("root")
        newest = people.auth.credentials.newest(caller)
        asked = GrantRequest.from_json({"principal_id": "host", "role": "evidence_collector"})

        errors = together(*[lambda: people.auth.credentials.issue(caller, asked, newest=newest)] * 2)

        assert [error.code for error in errors] == ["stale_revision"]
        assert len(people.auth.credential_list.page(CredentialQuestion()).credentials) == 1


def test_ending_the_sessions_of_a_person_leaves_those_of_others(people):
    passwords = {name: people.person(name) for name in ("ada", "bob")}
    for username, password in passwords.items():
        people.auth.sign_in.sign_in(username, password, visit=VISIT, replaced=None)
    user_id = people.auth.people.named("ada").user_id

    assert people.auth.others_sessions.end_all(user_id, by=LOCAL) == 1

    left = people.store.read(lambda connection: connection.execute(
        sa.select(users.c.username).join(sessions, sessions.c.user_pk == users.c.user_pk)
    ).scalars().all())  # fmt: skip
    assert left == ["bob"]
    assert people.auth.others_sessions.end_all(user_id, by=LOCAL) == 0


class TestASessionThatWasEnded:
    """S07: a request of it that is under way begins no other one, whatever password it brings."""

    @pytest.fixture
    def ended(self, people):
        password = people.person("ada")
        welcome = people.auth.sign_in.sign_in("ada", password, visit=VISIT, replaced=None)
        person = people.auth.sessions.find(welcome.session.session_id)
        people.auth.others_sessions.end_all(person.user_id, by=LOCAL)
        return person, password

    def test_does_not_come_back_by_giving_the_password_again(self, people, ended):
        person, password = ended

        with pytest.raises(UnauthenticatedError):
            people.auth.sign_in.reauthenticate(person, password=password, visit=VISIT)
        assert people.rows(sessions) == []

    def test_does_not_come_back_by_changing_the_password(self, people, ended):
        person, password = ended

        with pytest.raises(UnauthenticatedError):
            people.auth.sign_in.change_password(person, current=password, new="seven lanterns above", visit=VISIT)
        assert people.rows(sessions) == []
        people.auth.sign_in.sign_in("ada", password, visit=VISIT, replaced=None)
