"""Accounts: temporary passwords, the last administrator, what a change of account ends (A05, A13, A15, A16, S04)."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from app.auth.accounts import LOCAL
from app.auth.schema import sessions, users
from continuity.errors import (
    ConflictError,
    ForbiddenError,
    MalformedError,
    NotFoundError,
    ThrottledError,
    UnauthenticatedError,
)
from continuity.store.store import Store
from tests.people import PASSWORD, VISIT, Installation, Role, install

DAY_S = 86_400


@pytest.fixture
def people(store, tmp_path):
    return install(store, tmp_path)


@pytest.fixture
def here(sqlite_store, tmp_path):
    """The same where the database does not matter."""
    return install(sqlite_store, tmp_path)


def sign_in(people: Installation, username: str, password: str):
    return people.auth.sign_in.sign_in(username, password, visit=VISIT, replaced=None)


def change(people: Installation, welcome, *, current: str, new: str):
    person = people.auth.sessions.find(welcome.session.session_id)
    assert person is not None
    return people.auth.sign_in.change_password(person, current=current, new=new, visit=VISIT)


def is_alive(people: Installation, welcome) -> bool:
    return people.auth.sessions.find(welcome.session.session_id) is not None


def together(*works):
    """Run all at the same moment; return the errors they ended with."""
    barrier, errors, lock = threading.Barrier(len(works)), [], threading.Lock()

    def run(work):
        barrier.wait()
        try:
            work()
        except (ConflictError, UnauthenticatedError, ThrottledError) as error:
            with lock:
                errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


class TestTemporaryPassword:
    def test_it_signs_in_to_nothing_but_its_own_replacement(self, people):
        made = people.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)

        welcome = sign_in(people, "ada", made.password)
        changed = change(people, welcome, current=made.password, new=PASSWORD)

        assert welcome.must_change
        assert not changed.must_change

    def test_it_is_dead_once_it_has_been_replaced(self, here):
        made = here.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)
        change(here, sign_in(here, "ada", made.password), current=made.password, new=PASSWORD)

        with pytest.raises(UnauthenticatedError):
            sign_in(here, "ada", made.password)

    def test_it_ends_after_24_hours_with_the_answer_of_a_wrong_one(self, here):
        made = here.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)
        with pytest.raises(UnauthenticatedError) as wrong:
            sign_in(here, "ada", "some other password")

        here.clock.advance(DAY_S + 1)
        with pytest.raises(UnauthenticatedError) as late:
            sign_in(here, "ada", made.password)

        assert late.value.message == wrong.value.message

    def test_it_works_until_its_last_second(self, here):
        made = here.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)

        here.clock.advance(DAY_S - 1)

        assert sign_in(here, "ada", made.password).must_change

    def test_it_cannot_be_kept(self, here):
        made = here.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)

        with pytest.raises(MalformedError, match="differ"):
            change(here, sign_in(here, "ada", made.password), current=made.password, new=made.password)

    def test_it_is_stored_nowhere(self, here):
        made = here.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)

        assert made.password not in repr(here.rows(users))
        assert made.password not in repr(made)


class TestCreate:
    def test_a_name_means_one_account(self, people):
        people.person("ada")

        with pytest.raises(ConflictError):
            people.person("ada")

    def test_two_who_make_the_same_account_make_one(self, people):
        def create():
            people.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)

        errors = together(create, create)

        assert len(errors) == 1
        assert [account.username for account in people.auth.accounts.all()] == ["ada"]

    def test_workspaces_are_made_when_they_are_first_named(self, people):
        people.person("ada", at=("north", "south"))
        people.person("bob", at=("south",))

        assert [account.workspaces for account in people.auth.accounts.all()] == [("north", "south"), ("south",)]
        assert people.caller("bob").workspaces < people.caller("ada").workspaces

    @pytest.mark.parametrize(
        "username", ["", "Ada", " ada", "ada ", "ada.", ".ada", "-ada", "ａｄａ", "a" * 65, "ada\n", "a/b", "ada@x"]
    )
    def test_only_canonical_names_are_given(self, here, username):
        with pytest.raises(MalformedError):
            here.auth.accounts.create(username, role=Role.OPERATOR, workspace_names=["default"], by=LOCAL)

    @pytest.mark.parametrize("workspace", ["", "a b", "ü", "a" * 129])
    def test_a_workspace_has_an_identifier_for_a_name(self, here, workspace):
        with pytest.raises(MalformedError):
            here.auth.accounts.create("ada", role=Role.OPERATOR, workspace_names=[workspace], by=LOCAL)

        assert here.rows(users) == []

    def test_numbers_and_ids_are_not_used_again_even_if_a_row_is_removed(self, people):
        people.person("ada")
        people.person("bob")
        before = {row.username: (row.user_pk, row.user_id) for row in people.rows(users)}
        people.store.write(
            lambda connection: connection.execute(sa.delete(users).where(users.c.username == "bob")).rowcount
        )

        people.person("bob")

        after = {row.username: (row.user_pk, row.user_id) for row in people.rows(users)}
        assert after["bob"][0] > before["bob"][0]
        assert after["bob"][1] != before["bob"][1]


class TestBootstrap:
    def test_the_first_administrator_is_made_once(self, people):
        made = people.auth.accounts.bootstrap()

        assert made is not None
        assert sign_in(people, "administrator", made.password).role is Role.ADMINISTRATOR
        assert people.auth.accounts.bootstrap() is None

    def test_of_two_that_start_at_once_one_shows_the_password(self, people):
        shown = []
        together(*[lambda: shown.append(people.auth.accounts.bootstrap())] * 2)

        assert sorted(made is None for made in shown) == [False, True]


class TestLastAdministrator:
    def test_it_can_be_neither_demoted_nor_disabled(self, people):
        people.person("ada", Role.ADMINISTRATOR)

        for attempt in (
            lambda: people.auth.accounts.set_role("ada", Role.OPERATOR, by=LOCAL),
            lambda: people.auth.accounts.disable("ada", by=LOCAL),
        ):
            with pytest.raises(ConflictError) as refused:
                attempt()
            assert refused.value.code == "last_administrator"
        assert people.caller("ada").role is Role.ADMINISTRATOR

    def test_a_disabled_administrator_does_not_count(self, people):
        people.person("ada", Role.ADMINISTRATOR)
        people.person("bob", Role.ADMINISTRATOR)
        people.auth.accounts.disable("bob", by=LOCAL)

        with pytest.raises(ConflictError):
            people.auth.accounts.disable("ada", by=LOCAL)

    @pytest.mark.parametrize("attempt", range(5))
    def test_of_two_demotions_at_once_one_is_refused(self, people, attempt):
        people.person("ada", Role.ADMINISTRATOR)
        people.person("bob", Role.ADMINISTRATOR)

        errors = together(
            lambda: people.auth.accounts.set_role("ada", Role.OPERATOR, by=LOCAL),
            lambda: people.auth.accounts.disable("bob", by=LOCAL),
        )

        assert [error.code for error in errors] == ["last_administrator"]
        left = [a for a in people.auth.accounts.all() if a.role is Role.ADMINISTRATOR and a.is_enabled]
        assert len(left) == 1


class TestWhatAChangeEnds:
    @pytest.mark.parametrize(
        "do",
        [
            lambda accounts: accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL),
            lambda accounts: accounts.disable("ada", by=LOCAL),
            lambda accounts: accounts.reset_password("ada", by=LOCAL),
            lambda accounts: accounts.recover_administrator("ada"),
        ],
        ids=["role", "disable", "reset", "recover"],
    )
    def test_every_session_of_the_person_and_of_nobody_else(self, people, do):
        ada, bob = people.person("ada"), people.person("bob")
        of_ada = [sign_in(people, "ada", ada) for _ in range(2)]
        of_bob = sign_in(people, "bob", bob)

        do(people.auth.accounts)

        assert not any(is_alive(people, welcome) for welcome in of_ada)
        assert is_alive(people, of_bob)

    def test_a_stamp_that_moved_is_enough_to_end_a_session(self, here):
        welcome = sign_in(here, "ada", here.person("ada"))

        here.change(users, stamp=99)

        assert not is_alive(here, welcome)
        assert here.rows(sessions) == []

    def test_a_disabled_account_has_no_session_whatever_its_stamp(self, here):
        welcome = sign_in(here, "ada", here.person("ada"))

        here.change(users, disabled_at=here.clock.now_us())

        assert not is_alive(here, welcome)

    def test_the_same_role_again_ends_nothing(self, here):
        welcome = sign_in(here, "ada", here.person("ada"))

        here.auth.accounts.set_role("ada", Role.OPERATOR, by=LOCAL)

        assert is_alive(here, welcome)

    def test_a_new_password_ends_the_other_sessions_and_this_ones_id(self, people):
        password = people.person("ada")
        here, elsewhere = sign_in(people, "ada", password), sign_in(people, "ada", password)

        changed = change(people, here, current=password, new="five green doors open slowly")

        assert not is_alive(people, here)
        assert not is_alive(people, elsewhere)
        assert is_alive(people, changed)
        assert len(people.rows(sessions)) == 1
        assert changed.session.csrf_token != here.session.csrf_token

    def test_enabling_lets_the_person_in_with_the_old_password(self, here):
        password = here.person("ada")
        here.auth.accounts.disable("ada", by=LOCAL)
        with pytest.raises(UnauthenticatedError):
            sign_in(here, "ada", password)

        here.auth.accounts.enable("ada", by=LOCAL)

        assert sign_in(here, "ada", password).username == "ada"

    def test_whoever_was_disabled_while_the_hash_was_computed_is_not_let_in(self, here, monkeypatch):
        password = here.person("ada")
        checked = here.auth.sign_in._passwords.verify

        def verify_while_disabled(stored, given):
            result = checked(stored, given)
            here.auth.accounts.disable("ada", by=LOCAL)
            return result

        monkeypatch.setattr(here.auth.sign_in._passwords, "verify", verify_while_disabled)
        with pytest.raises(UnauthenticatedError):
            sign_in(here, "ada", password)

        assert here.rows(sessions) == []


class TestRecovery:
    def test_the_host_lets_a_locked_out_administrator_in_again(self, people):
        people.person("ada", Role.ADMINISTRATOR)
        for _ in range(6):
            with pytest.raises((UnauthenticatedError, ThrottledError)):
                sign_in(people, "ada", "wrong")

        made = people.auth.accounts.recover_administrator("ada")

        assert sign_in(people, "ada", made.password).role is Role.ADMINISTRATOR

    def test_it_makes_an_administrator_of_whoever_is_named(self, people):
        people.person("ada", Role.INVESTIGATOR)
        people.auth.accounts.disable("ada", by=LOCAL)

        made = people.auth.accounts.recover_administrator("ada")
        new = people.auth.accounts.recover_administrator("carol")

        assert sign_in(people, "ada", made.password).role is Role.ADMINISTRATOR
        assert sign_in(people, "carol", new.password).role is Role.ADMINISTRATOR


class TestLocalPasswordChange:
    def test_it_needs_the_current_password(self, here):
        here.person("ada")

        with pytest.raises(UnauthenticatedError):
            here.auth.sign_in.change_password_locally("ada", current="wrong", new="five green doors open slowly")

    def test_it_refuses_the_same_and_the_guessable(self, here):
        password = here.person("ada")

        for new in (password, "password1234"):
            with pytest.raises(MalformedError):
                here.auth.sign_in.change_password_locally("ada", current=password, new=new)


def test_accounts_that_do_not_exist_are_not_found(here):
    for attempt in (
        lambda: here.auth.accounts.set_role("nobody", Role.OPERATOR, by=LOCAL),
        lambda: here.auth.accounts.disable("nobody", by=LOCAL),
        lambda: here.auth.accounts.enable("nobody", by=LOCAL),
        lambda: here.auth.accounts.reset_password("nobody", by=LOCAL),
    ):
        with pytest.raises(NotFoundError):
            attempt()


def test_everything_done_to_an_account_is_in_the_audit_log(people):
    password = people.person("ada")
    with pytest.raises(UnauthenticatedError):
        sign_in(people, "ada", "wrong")
    sign_in(people, "ada", password)
    people.auth.accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL)
    people.auth.accounts.disable("ada", by=LOCAL)
    people.auth.accounts.enable("ada", by=LOCAL)
    people.auth.accounts.reset_password("ada", by=LOCAL)
    people.auth.accounts.recover_administrator("ada")

    assert people.actions() == [
        ("user.create", "done"),
        ("user.change_password", "done"),
        ("user.sign_in", "unauthenticated"),
        ("user.sign_in", "done"),
        ("user.set_role", "done"),
        ("user.disable", "done"),
        ("user.enable", "done"),
        ("user.reset_password", "done"),
        ("user.recover_administrator", "done"),
    ]


def test_an_audit_that_cannot_be_written_undoes_the_change(here, monkeypatch):
    here.person("ada")

    def fail(*_args, **_kwargs):
        raise ForbiddenError("no room")

    monkeypatch.setattr(here.auth.accounts._audit, "append", fail)
    with pytest.raises(ForbiddenError):
        here.auth.accounts.disable("ada", by=LOCAL)

    assert here.auth.accounts.all()[0].is_enabled


def test_sign_in_goes_on_while_the_vault_is_locked(here):
    password = here.person("ada")
    here.vault.lock()

    assert sign_in(here, "ada", password).username == "ada"
    here.auth.accounts.disable("ada", by=LOCAL)


def test_the_store_of_another_process_sees_the_same_accounts(people, database):
    people.person("ada")
    from continuity.store.engine import make_engine  # noqa: PLC0415

    engine = make_engine(database, pool_size=1)
    other = Store(engine)
    try:
        assert other.read(lambda connection: connection.execute(sa.select(users.c.username)).scalar_one()) == "ada"
    finally:
        other.close()
        engine.dispose()
