"""Second factors: proved once, never twice, on both databases (ASVS 6.3.3, 6.5; security.md A09, A11, S13)."""

from __future__ import annotations

import itertools
import threading

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.auth import services
from app.auth.accounts import LOCAL, By
from app.auth.challenges import Challenge
from app.auth.factor_seal import SecretKeys
from app.auth.schema import challenges, recovery_codes, second_factors, sessions, throttle
from app.auth.settings import CHEAP_HASHING, AuthSettings
from app.auth.signin import Visit
from continuity.errors import ConflictError, ForbiddenError, NotFoundError, ThrottledError, UnauthenticatedError
from continuity.services.callers import Role
from continuity.store import schema
from tests.people import SECRET_KEYS, install
from tests.second_factors import VISIT, App, enrolled, forget_attempts, person

NUMBERS = itertools.count()
HOST = Visit(address="127.0.0.1", request_id="req_host")


@pytest.fixture
def people(store, tmp_path):
    return install(store, tmp_path)


@pytest.fixture
def here(sqlite_store, tmp_path):
    return install(sqlite_store, tmp_path)


def with_factor(people, username="ada", role=Role.OPERATOR) -> App:
    password = people.person(username, role)
    return enrolled(people.auth, people.clock, username, password)


def attempt(people, code, username="ada", *, visit=VISIT, password=None) -> str:
    """Sign in with password and code at once, as commands do."""
    try:
        people.auth.sign_in.sign_in(
            username, password or people.passwords[username], visit=visit, replaced=None, code=code
        )
    except (UnauthenticatedError, ThrottledError) as error:
        return error.code
    return "in"


def begun(people, username="ada", password=None) -> str:
    """Give the password as a page does; return the id of the step to the code."""
    made = people.auth.sign_in.begin(username, password or people.passwords[username], visit=VISIT, replaced=None)
    assert isinstance(made, Challenge)
    return made.challenge_id


def finished(people, challenge_id, code, *, visit=VISIT) -> str:
    try:
        people.auth.sign_in.finish(challenge_id, code, visit=visit, replaced=None)
    except (UnauthenticatedError, ThrottledError) as error:
        return error.code
    return "in"


def at_once(count, work):
    """Run `work` in threads that begin at the same moment; return what each answers."""
    barrier, answers, lock = threading.Barrier(count), [], threading.Lock()

    def run(number):
        barrier.wait()
        answer = work(number)
        with lock:
            answers.append(answer)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


class TestSigningIn:
    def test_asks_for_a_code_after_the_password_and_for_nothing_without_a_second_factor(self, people):
        app = with_factor(people)
        people.person("bob")

        assert attempt(people, None) == "second_factor_required"
        assert attempt(people, "") == "second_factor_required"
        assert attempt(people, app.code()) == "in"
        assert attempt(people, None, "bob") == "in"
        assert attempt(people, "000000", "bob") == "in"

    def test_a_wrong_password_tells_nothing_of_the_second_factor(self, people):
        app = with_factor(people)

        assert attempt(people, app.code(), password="wrong") == "unauthenticated"
        assert attempt(people, None, password="wrong") == "unauthenticated"
        assert attempt(people, app.code()) == "in"

    def test_in_two_steps_the_password_begins_no_session(self, people):
        app = with_factor(people)
        before = people.rows(sessions)

        challenge_id = begun(people)

        assert people.rows(sessions) == before
        assert people.auth.sessions.find(challenge_id) is None
        assert finished(people, challenge_id, app.wrong_code()) == "second_factor_failed"
        assert finished(people, challenge_id, app.code()) == "in"
        assert people.rows(challenges) == []

    @pytest.mark.parametrize("kind", ["wrong", "used", "old", "early", "recovery", "used recovery", "empty", "text"])
    def test_whatever_is_wrong_with_a_code_has_one_answer(self, here, kind):
        app = with_factor(here)
        used = app.code()
        assert attempt(here, used) == "in"
        assert attempt(here, app.recovery_codes[0]) == "in"
        given = {
            "wrong": app.wrong_code(), "used": used, "old": app.code(steps=-2), "early": app.code(steps=2),
            "recovery": "0000-0000-0000-0000", "used recovery": app.recovery_codes[0], "empty": " ", "text": "é" * 64,
        }[kind]  # fmt: skip

        with pytest.raises(UnauthenticatedError) as refused:
            here.auth.sign_in.sign_in("ada", here.passwords["ada"], visit=VISIT, replaced=None, code=given)

        assert (refused.value.code, refused.value.message) == (
            "second_factor_failed", "The code is wrong, or was used already.",
        )  # fmt: skip

    def test_a_code_signs_in_once_in_whichever_way_it_is_given(self, people):
        app = with_factor(people)
        code = app.code()

        assert attempt(people, code) == "in"
        assert attempt(people, code) == "second_factor_failed"
        assert finished(people, begun(people), code) == "second_factor_failed"
        assert attempt(people, app.code(steps=-1)) == "second_factor_failed"
        assert attempt(people, app.next_code()) == "in"

    def test_the_code_that_set_it_up_signs_nobody_in(self, people):
        password = people.person("ada")
        who = person(people.auth, "ada", password)
        app = App(people.auth.second_factors.start(who, visit=VISIT).secret, people.clock)
        people.auth.second_factors.confirm(who, app.code(), visit=VISIT)

        assert attempt(people, app.code()) == "second_factor_failed"

    def test_a_recovery_code_signs_in_once(self, people):
        app = with_factor(people)

        assert attempt(people, app.recovery_codes[3].lower().replace("-", " ")) == "in"
        assert attempt(people, app.recovery_codes[3]) == "second_factor_failed"
        assert people.auth.second_factors.state(people.rows(second_factors)[0].user_pk).codes_left == 9
        assert ("user.use_recovery_code", "done") in people.actions()

    def test_one_code_by_eight_at_once_lets_one_in(self, people):
        app = with_factor(people)
        steps = [begun(people) for _ in range(4)]
        code = app.code()

        answers = at_once(
            8, lambda n: finished(people, steps[n], code) if n < 4 else attempt(people, code)
        )  # fmt: skip

        assert answers.count("in") == 1
        assert set(answers) <= {"in", "second_factor_failed", "throttled"}
        assert people.actions().count(("user.sign_in", "done")) == 2

    def test_one_recovery_code_by_four_at_once_lets_one_in(self, people):
        app = with_factor(people)

        answers = at_once(4, lambda n: attempt(people, app.recovery_codes[0]))

        assert sorted(answers) == ["in"] + ["second_factor_failed"] * 3
        assert len(people.rows(recovery_codes)) == 9

    def test_one_step_with_two_right_codes_at_once_lets_one_in(self, people):
        app = with_factor(people)
        challenge_id = begun(people)
        given = [app.code(), app.recovery_codes[0]]

        answers = at_once(2, lambda n: finished(people, challenge_id, given[n]))

        assert sorted(answers) == ["in", "sign_in_over"]
        assert len(people.rows(recovery_codes)) in {9, 10}

    @settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(st.lists(st.tuples(st.integers(-120, 120), st.integers(-3, 3)), min_size=1, max_size=8))
    def test_whatever_the_clock_does_no_code_is_taken_twice(self, here, moves):
        forget_attempts(here.store)
        # Far enough ahead that no move reaches the vault's mark.
        here.clock.advance(10_000)
        username = f"p{next(NUMBERS)}"
        app = with_factor(here, username)
        taken = set()
        for seconds, steps in moves:
            here.clock.advance(seconds)
            forget_attempts(here.store)
            code = app.code(steps=steps)
            if attempt(here, code, username) == "in":
                assert code not in taken
                taken.add(code)


class TestTheStepBetween:
    def test_lasts_five_minutes(self, people):
        app = with_factor(people)
        first, second = begun(people), begun(people)
        people.clock.advance(299)
        assert finished(people, first, app.code()) == "in"
        people.clock.advance(30)

        assert finished(people, second, app.code()) == "sign_in_over"
        assert people.rows(challenges) == []

    def test_is_good_for_one_sign_in(self, people):
        app = with_factor(people)
        challenge_id = begun(people)
        assert finished(people, challenge_id, app.code()) == "in"

        assert finished(people, challenge_id, app.next_code()) == "sign_in_over"

    def test_a_clock_set_back_revives_none(self, here):
        app = with_factor(here)
        old = begun(here)
        here.clock.advance(301)
        assert finished(here, old, app.code()) == "sign_in_over"
        here.clock.set_back(300)

        assert finished(here, old, app.code()) == "sign_in_over"
        fresh = begun(here)
        here.clock.set_back(60)
        assert finished(here, fresh, app.code()) == "sign_in_over"

    @pytest.mark.parametrize("change", ["reset", "role", "disable", "password", "factor", "restore"])
    def test_ends_with_whatever_ends_sessions(self, here, change):
        app = with_factor(here)
        challenge_id = begun(here)
        accounts = here.auth.accounts
        {
            "reset": lambda: accounts.reset_password("ada", by=LOCAL),
            "role": lambda: accounts.set_role("ada", Role.INVESTIGATOR, by=LOCAL),
            "disable": lambda: accounts.disable("ada", by=LOCAL),
            "password": lambda: here.auth.sign_in.change_password_locally(
                "ada", current=here.passwords["ada"], new="five green doors open slowly", code=app.code()
            ),
            "factor": lambda: accounts.reset_second_factor("ada", by=LOCAL),
            "restore": lambda: here.set_vault(epoch=2),
        }[change]()

        assert finished(here, challenge_id, app.next_code()) == "sign_in_over"

    def test_nothing_that_a_browser_could_send_is_one(self, here):
        app = with_factor(here)

        assert finished(here, "A" * 43, app.code()) == "sign_in_over"

    def test_old_ones_are_forgotten(self, here):
        with_factor(here)
        begun(here)
        here.clock.advance(301)

        here.auth.tidy()

        assert here.rows(challenges) == []

    def test_the_database_does_not_hold_its_id_nor_a_secret_nor_a_code(self, people):
        app = with_factor(people)
        challenge_id = begun(people)

        kept = repr([people.rows(table) for table in (challenges, second_factors, recovery_codes, schema.audit)])

        assert challenge_id not in kept
        assert app.secret not in kept
        assert not any(code in kept or code.replace("-", "") in kept for code in app.recovery_codes)


class TestAttempts:
    def test_the_sixth_code_in_a_minute_is_refused_the_right_one_too(self, people):
        app = with_factor(people)
        wrong = app.wrong_code()
        challenge_id = begun(people)

        answers = [finished(people, challenge_id, wrong) for _ in range(6)]

        assert answers == ["second_factor_failed"] * 5 + ["throttled"]
        assert finished(people, challenge_id, app.code()) == "throttled"
        people.clock.advance(60)
        assert finished(people, challenge_id, app.code()) == "in"

    def test_a_right_password_does_not_give_more_codes(self, people):
        app = with_factor(people)
        wrong = app.wrong_code()

        answers = [finished(people, begun(people), wrong) for _ in range(5)]

        assert answers == ["second_factor_failed"] * 5
        assert [row.attempts for row in people.rows(throttle) if row.bucket.startswith("code:")] == [5]
        assert attempt(people, app.code(), visit=VISIT) == "throttled"

    def test_nobody_guesses_all_day(self, here):
        app = with_factor(here)
        answers = []
        for _ in range(12):
            here.clock.advance(61)
            answers += [attempt(here, app.wrong_code()) for _ in range(5)]

        assert answers.count("second_factor_failed") == 50 - 1
        here.clock.advance(61)
        with pytest.raises(ThrottledError) as refused:
            here.auth.sign_in.sign_in("ada", here.passwords["ada"], visit=VISIT, replaced=None, code=app.code())
        assert refused.value.retry_after_s > 80_000
        assert attempt(here, app.code(), visit=HOST) == "in"

    def test_thirty_codes_at_once_count_as_thirty(self, people):
        app = with_factor(people)
        people.clock.advance(61)
        steps = [begun(people) for _ in range(5)]
        wrong = app.wrong_code()

        answers = at_once(30, lambda n: finished(people, steps[n % 5], wrong))

        assert answers.count("second_factor_failed") == 5
        assert answers.count("throttled") == 25

    def test_guessing_in_an_open_session_is_throttled_as_well(self, here):
        app = with_factor(here)
        who = person(here.auth, "ada", here.passwords["ada"], code=app.code())
        factors = here.auth.second_factors
        answers = []
        for n in range(6):
            try:
                (factors.remove if n % 2 else factors.renew_codes)(who, app.wrong_code(), visit=VISIT)
            except (UnauthenticatedError, ThrottledError) as error:
                answers.append(error.code)

        assert answers == ["second_factor_failed"] * 5 + ["throttled"]

    def test_the_password_given_again_does_not_give_more_codes(self, people):
        app = with_factor(people)
        who = person(people.auth, "ada", people.passwords["ada"], code=app.code())
        factors, wrong = people.auth.second_factors, app.wrong_code()
        for _ in range(5):
            with pytest.raises(UnauthenticatedError):
                factors.remove(who, wrong, visit=VISIT)

        again = people.auth.sign_in.reauthenticate(who, password=people.passwords["ada"], visit=VISIT)

        with pytest.raises(ThrottledError):
            factors.remove(people.auth.sessions.find(again.session.session_id), app.next_code(), visit=VISIT)
        people.clock.advance(60)
        factors.remove(people.auth.sessions.find(again.session.session_id), app.code(), visit=VISIT)


class TestTheClock:
    def test_set_back_revives_no_code(self, here):
        app = with_factor(here)
        unused = app.code()
        here.clock.advance(3_600)
        here.set_vault(clock_high_water=here.clock.now_us())
        here.clock.set_back(3_600)

        assert app.code() == unused
        assert attempt(here, unused) == "second_factor_failed"
        assert attempt(here, app.recovery_codes[0]) == "in"

    def test_set_back_revives_no_used_code(self, here):
        app = with_factor(here)
        here.clock.advance(3_600)
        assert attempt(here, app.code()) == "in"
        here.clock.set_back(3_600)

        assert attempt(here, app.code()) == "second_factor_failed"


class TestSettingItUp:
    def test_counts_only_once_a_code_was_given(self, people):
        password = people.person("ada")
        who = person(people.auth, "ada", password)
        begun_one = people.auth.second_factors.start(who, visit=VISIT)
        assert attempt(people, None) == "in"

        with pytest.raises(UnauthenticatedError):
            people.auth.second_factors.confirm(who, App(begun_one.secret, people.clock).wrong_code(), visit=VISIT)

        assert attempt(people, None) == "in"
        assert people.auth.second_factors.pending(who).secret == begun_one.secret

    def test_ends_every_other_session_and_begins_a_new_one(self, people):
        password = people.person("ada")
        elsewhere, who = (person(people.auth, "ada", password) for _ in range(2))
        app = App(people.auth.second_factors.start(who, visit=VISIT).secret, people.clock)

        done = people.auth.second_factors.confirm(who, app.code(), visit=VISIT)

        assert people.auth.sessions.find(elsewhere.session_id) is None
        assert people.auth.sessions.find(who.session_id) is None
        assert people.auth.sessions.find(done.welcome.session.session_id) is not None
        assert len(set(done.codes)) == 10

    def test_takes_ten_minutes_at_most(self, here):
        password = here.person("ada")
        who = person(here.auth, "ada", password)
        app = App(here.auth.second_factors.start(who, visit=VISIT).secret, here.clock)
        here.clock.advance(600)

        with pytest.raises(ConflictError):
            here.auth.second_factors.confirm(who, app.code(), visit=VISIT)

    @pytest.mark.parametrize("step", ["start", "pending", "confirm", "renew_codes", "remove"])
    def test_asks_for_a_fresh_password(self, here, step):
        app = with_factor(here)
        signed = person(here.auth, "ada", here.passwords["ada"], code=app.code())
        here.clock.advance(601)
        stale = here.auth.sessions.find(signed.session_id)
        factors = here.auth.second_factors
        before = here.rows(second_factors), here.rows(recovery_codes)

        with pytest.raises(ForbiddenError) as refused:
            {
                "start": lambda: factors.start(stale, visit=VISIT),
                "pending": lambda: factors.pending(stale),
                "confirm": lambda: factors.confirm(stale, app.code(), visit=VISIT),
                "renew_codes": lambda: factors.renew_codes(stale, app.code(), visit=VISIT),
                "remove": lambda: factors.remove(stale, app.code(), visit=VISIT),
            }[step]()

        assert refused.value.code == "reauthentication_required"
        assert (here.rows(second_factors), here.rows(recovery_codes)) == before

    def test_does_not_replace_one_that_counts(self, here):
        app = with_factor(here)
        who = person(here.auth, "ada", here.passwords["ada"], code=app.code())

        with pytest.raises(ConflictError):
            here.auth.second_factors.start(who, visit=VISIT)

        assert attempt(here, app.next_code()) == "in"

    def test_once_by_two_at_once(self, people):
        password = people.person("ada")
        who = person(people.auth, "ada", password)
        app = App(people.auth.second_factors.start(who, visit=VISIT).secret, people.clock)

        def confirm(_):
            try:
                return people.auth.second_factors.confirm(who, app.code(), visit=VISIT).codes
            except (ConflictError, UnauthenticatedError):
                return None

        answers = at_once(2, confirm)

        (codes,) = [codes for codes in answers if codes]
        assert len(people.rows(recovery_codes)) == 10
        assert attempt(people, codes[0]) == "in"


class TestChangingIt:
    def test_new_recovery_codes_void_the_old_ones(self, people):
        app = with_factor(people)
        who = person(people.auth, "ada", people.passwords["ada"], code=app.code())

        fresh = people.auth.second_factors.renew_codes(who, app.next_code(), visit=VISIT)

        assert len(set(fresh)) == 10
        assert attempt(people, app.recovery_codes[5]) == "second_factor_failed"
        assert attempt(people, fresh[0]) == "in"

    def test_turned_off_the_password_alone_signs_in(self, people):
        app = with_factor(people)
        elsewhere = person(people.auth, "ada", people.passwords["ada"], code=app.code())
        who = person(people.auth, "ada", people.passwords["ada"], code=app.next_code())

        people.auth.second_factors.remove(who, app.next_code(), visit=VISIT)

        assert attempt(people, None) == "in"
        assert people.auth.sessions.find(elsewhere.session_id) is None
        assert (people.rows(second_factors), people.rows(recovery_codes)) == ([], [])

    def test_a_wrong_code_changes_nothing(self, people):
        app = with_factor(people)
        who = person(people.auth, "ada", people.passwords["ada"], code=app.code())
        for change in (people.auth.second_factors.remove, people.auth.second_factors.renew_codes):
            with pytest.raises(UnauthenticatedError):
                change(who, app.wrong_code(), visit=VISIT)

        assert people.auth.sessions.find(who.session_id) is not None
        assert attempt(people, app.recovery_codes[0]) == "in"

    def test_an_administrator_may_take_it_away_from_somebody_else(self, people):
        app = with_factor(people)
        who = person(people.auth, "ada", people.passwords["ada"], code=app.code())
        people.person("boss", Role.ADMINISTRATOR)
        boss = By(people.caller("boss").actor, "req_reset")

        assert people.auth.accounts.reset_second_factor("ada", by=boss) is True
        assert people.auth.accounts.reset_second_factor("ada", by=boss) is False

        assert people.auth.sessions.find(who.session_id) is None
        assert attempt(people, None) == "in"
        assert people.actions().count(("user.reset_second_factor", "done")) == 1

    @pytest.mark.parametrize(
        ("who", "refusal"), [("op", ForbiddenError), ("boss", ConflictError), ("nobody", NotFoundError)]
    )
    def test_nobody_else_may_and_nobody_their_own(self, here, who, refusal):
        here.person("op")
        app = with_factor(here, "boss", Role.ADMINISTRATOR)
        signed = person(here.auth, "boss", here.passwords["boss"], code=app.code())
        by = By(here.caller("op").actor) if who == "op" else By(signed.actor)

        with pytest.raises(refusal):
            here.auth.accounts.reset_second_factor("nobody" if who == "nobody" else "boss", by=by)

        assert attempt(here, app.next_code(), "boss") == "in"

    def test_the_host_lets_a_locked_out_administrator_in(self, people):
        app = with_factor(people, "boss", Role.ADMINISTRATOR)
        for _ in range(60):
            attempt(people, app.wrong_code(), "boss")

        made = people.auth.accounts.recover_administrator("boss")

        assert attempt(people, None, "boss", password=made.password) == "in"
        assert ("user.reset_second_factor", "done") in people.actions()

    def test_a_reset_password_leaves_it(self, here):
        app = with_factor(here)
        made = here.auth.accounts.reset_password("ada", by=LOCAL)

        assert attempt(here, None, password=made.password) == "second_factor_required"
        assert attempt(here, app.code(), password=made.password) == "in"

    def test_on_the_host_a_new_password_takes_a_code(self, here):
        app = with_factor(here)
        change = here.auth.sign_in.change_password_locally
        new = "five green doors open slowly"
        for code in (None, "", app.wrong_code()):
            with pytest.raises(UnauthenticatedError):
                change("ada", current=here.passwords["ada"], new=new, code=code)

        change("ada", current=here.passwords["ada"], new=new, code=app.code())

        assert attempt(here, app.next_code(), password=new) == "in"


class TestThePolicy:
    def test_is_off_until_somebody_switches_it_on_and_is_written_down_once(self, people):
        policy = people.auth.policy
        assert policy.administrators_need_second_factor() is False

        policy.set_administrators_need_second_factor(True, by=LOCAL)
        policy.set_administrators_need_second_factor(True, by=LOCAL)

        assert policy.administrators_need_second_factor() is True
        assert people.actions().count(("policy.set_second_factor", "done")) == 1
        policy.set_administrators_need_second_factor(False, by=LOCAL)
        assert policy.administrators_need_second_factor() is False

    def test_an_operator_cannot_change_it(self, here):
        here.person("op")

        with pytest.raises(ForbiddenError):
            here.auth.policy.set_administrators_need_second_factor(True, by=By(here.caller("op").actor))

        assert here.auth.policy.administrators_need_second_factor() is False

    @pytest.mark.parametrize(
        ("role", "is_on", "has_factor", "must"),
        [
            (Role.ADMINISTRATOR, True, False, True), (Role.ADMINISTRATOR, True, True, False),
            (Role.ADMINISTRATOR, False, False, False), (Role.OPERATOR, True, False, False),
            (Role.INVESTIGATOR, True, False, False),
        ],
    )  # fmt: skip
    def test_holds_administrators_without_one_and_nobody_else(self, people, role, is_on, has_factor, must):
        people.auth.policy.set_administrators_need_second_factor(is_on, by=LOCAL)
        password = people.person("ada", role)
        app = enrolled(people.auth, people.clock, "ada", password) if has_factor else None

        who = person(people.auth, "ada", password, code=app and app.code())

        assert who.must_enrol is must


class TestTheSecretKey:
    def test_a_new_one_opens_what_the_older_sealed_and_seals_it_again(self, here):
        def keyed(keys):
            return services.build(
                here.store, here.owners, audit=here.audit, clock=here.clock, url=here.auth.url, secret_keys=keys,
                settings=AuthSettings(hashing=CHEAP_HASHING),
            )  # fmt: skip

        app = with_factor(here)
        sealed = here.rows(second_factors)[0].sealed_secret
        new = bytes(range(100, 148))
        here.auth = keyed(SecretKeys(new, (SECRET_KEYS.current,)))
        assert attempt(here, app.code()) == "in"
        assert attempt(here, app.recovery_codes[0]) == "in"
        assert here.rows(second_factors)[0].sealed_secret != sealed

        here.auth = keyed(SecretKeys(new))
        assert attempt(here, app.next_code()) == "in"
        here.auth = keyed(SecretKeys(bytes(range(48, 96))))
        assert attempt(here, app.next_code()) == "second_factor_failed"

    @pytest.mark.parametrize("damage", [b"", b"\x01", bytes(60)])
    def test_a_damaged_secret_lets_nobody_in_and_recovery_codes_still_do(self, here, damage):
        app = with_factor(here)
        here.change(second_factors, sealed_secret=damage)

        assert attempt(here, app.code()) == "second_factor_failed"
        assert attempt(here, app.recovery_codes[0]) == "in"

    def test_a_secret_moved_to_another_person_proves_nothing_there(self, here):
        ada, bob = with_factor(here), with_factor(here, "bob")
        rows = {row.user_pk: row.sealed_secret for row in here.rows(second_factors)}
        one, two = sorted(rows)
        for user_pk, sealed in ((one, rows[two]), (two, rows[one])):
            here.store.write(lambda connection, pk=user_pk, sealed=sealed: connection.execute(
                sa.update(second_factors).where(second_factors.c.user_pk == pk).values(sealed_secret=sealed)
            ).rowcount)  # fmt: skip

        assert attempt(here, bob.code()) == "second_factor_failed"
        assert attempt(here, ada.code()) == "second_factor_failed"


def test_signing_in_with_a_code_goes_on_while_the_vault_is_locked(here):
    app = with_factor(here)
    here.vault.lock()

    assert finished(here, begun(here), app.code()) == "in"
    assert attempt(here, app.recovery_codes[0]) == "in"
    who = person(here.auth, "ada", here.passwords["ada"], code=app.next_code())
    here.auth.second_factors.remove(who, app.next_code(), visit=VISIT)
    assert attempt(here, None) == "in"


def test_all_of_it_stands_in_the_audit_log(people):
    app = with_factor(people)
    people.clock.advance(61)
    attempt(people, None)
    attempt(people, app.wrong_code())
    who = person(people.auth, "ada", people.passwords["ada"], code=app.code())
    people.auth.second_factors.renew_codes(who, app.next_code(), visit=VISIT)
    with pytest.raises(UnauthenticatedError):
        people.auth.second_factors.remove(who, app.wrong_code(), visit=VISIT)
    people.auth.second_factors.remove(who, app.next_code(), visit=VISIT)

    told = [action for action in people.actions() if action[0].startswith("user.")]

    assert told[-8:] == [
        ("user.start_second_factor", "done"),
        ("user.add_second_factor", "done"),
        ("user.sign_in", "second_factor_required"),
        ("user.sign_in", "second_factor_failed"),
        ("user.sign_in", "done"),
        ("user.renew_recovery_codes", "done"),
        ("user.remove_second_factor", "second_factor_failed"),
        ("user.remove_second_factor", "done"),
    ]
