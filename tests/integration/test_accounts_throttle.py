"""How often a password may be tried (security.md A08 to A13)."""

from __future__ import annotations

import statistics
import threading
import time

import pytest
from argon2 import PasswordHasher

from app.auth import services
from app.auth.accounts import LOCAL
from app.auth.schema import throttle, users
from app.auth.settings import CHEAP_HASHING, AuthSettings, HashingSettings, ThrottleSettings
from app.auth.signin import Visit
from app.auth.throttle import canonical
from continuity.errors import MalformedError, ThrottledError, UnauthenticatedError
from tests.people import SECRET_KEYS, Installation, Role, install

ELSEWHERE = Visit(address="198.51.100.9", request_id="req_test")
HERE = Visit(address="127.0.0.1", request_id="req_test")


@pytest.fixture
def people(store, tmp_path):
    return install(store, tmp_path)


@pytest.fixture
def here(sqlite_store, tmp_path):
    return install(sqlite_store, tmp_path)


@pytest.fixture
def hashes(monkeypatch):
    """Count every computation of argon2."""
    counted = []
    lock = threading.Lock()
    for name in ("hash", "verify"):
        original = getattr(PasswordHasher, name)

        def counting(self, *args, _original=original, **kwargs):
            with lock:
                counted.append(1)
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(PasswordHasher, name, counting)
    return counted


def attempt(people: Installation, username: str, password: str = "wrong", visit: Visit = ELSEWHERE) -> str:
    try:
        people.auth.sign_in.sign_in(username, password, visit=visit, replaced=None)
    except (UnauthenticatedError, ThrottledError, MalformedError) as error:
        return error.code
    return "in"


def test_the_sixth_attempt_on_an_account_in_a_minute_is_refused(people):
    people.person("ada")

    answers = [attempt(people, "ada") for _ in range(6)]

    assert answers == ["unauthenticated"] * 5 + ["throttled"]


def test_the_right_password_is_refused_too_until_the_window_ends(people):
    password = people.person("ada")
    for _ in range(5):
        attempt(people, "ada")

    assert attempt(people, "ada", password) == "throttled"
    people.clock.advance(59)
    assert attempt(people, "ada", password) == "throttled"
    people.clock.advance(1)
    assert attempt(people, "ada", password) == "in"


def test_trying_on_does_not_prolong_the_wait(here):
    password = here.person("ada")
    for _ in range(30):
        here.clock.advance(2)
        attempt(here, "ada")

    here.clock.advance(2)

    assert attempt(here, "ada", password) == "in"


def test_the_refusal_says_how_long_to_wait(here):
    for _ in range(5):
        attempt(here, "ada")
    here.clock.advance(20)

    with pytest.raises(ThrottledError) as refused:
        here.auth.sign_in.sign_in("ada", "wrong", visit=ELSEWHERE, replaced=None)

    assert refused.value.retry_after_s == 40


def test_another_account_is_not_affected(people):
    people.person("ada")
    password = people.person("bob")
    for _ in range(8):
        attempt(people, "ada")

    assert attempt(people, "bob", password) == "in"


def test_success_clears_the_account_and_not_the_address(here):
    limited = AuthSettings(hashing=CHEAP_HASHING, throttle=ThrottleSettings(per_account=3, per_address=6))
    here.auth = install_again(here, limited)
    password = here.person("ada")

    answers = [attempt(here, "ada", given) for given in ("wrong", "wrong", password, "wrong", "wrong", password)]

    assert answers == ["unauthenticated", "unauthenticated", "in"] * 2
    assert attempt(here, "ada", password) == "throttled"
    assert attempt(here, "ada", password, Visit(address="203.0.113.5", request_id="req_test")) == "in"


def test_all_together_have_a_limit(here):
    here.auth = install_again(here, AuthSettings(hashing=CHEAP_HASHING, throttle=ThrottleSettings(overall=4)))

    answers = [attempt(here, f"user{n}", visit=Visit(f"192.0.2.{n}", "req_test")) for n in range(5)]

    assert answers == ["unauthenticated"] * 4 + ["throttled"]


@pytest.mark.parametrize("spelled", ["Admin", " admin", "admin ", "ａｄｍｉｎ", "admin.", "ADMIN..", "\tadmin"])
def test_every_spelling_of_a_name_has_one_counter(here, spelled):
    for _ in range(5):
        attempt(here, spelled)

    assert canonical(spelled) == "admin"
    assert attempt(here, "admin") == "throttled"


@pytest.mark.parametrize("spelled", ["Ada", " ada", "ada ", "ada.", "ａｄａ", "ADA"])
def test_only_the_canonical_spelling_signs_in(here, spelled):
    password = here.person("ada")

    assert attempt(here, spelled, password) == "unauthenticated"
    assert attempt(here, "ada", password) == "in"


def test_fifty_attempts_at_once_count_as_fifty(people, hashes):
    people.person("ada")
    del hashes[:]
    barrier, answers, lock = threading.Barrier(50), [], threading.Lock()

    def run():
        barrier.wait()
        answer = attempt(people, "ada")
        with lock:
            answers.append(answer)

    threads = [threading.Thread(target=run) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers.count("unauthenticated") == 5
    assert answers.count("throttled") == 45
    assert len(hashes) == 5
    assert [row.attempts for row in people.rows(throttle) if row.bucket.startswith("account:")] == [50]


class TestOneAnswerAndOneHash:
    @pytest.fixture
    def branches(self, here, hashes):
        right = here.person("ada")
        here.person("bob")
        here.auth.accounts.disable("bob", by=LOCAL)
        temporary = here.auth.accounts.reset_password("bob", by=LOCAL).password
        stale = here.auth.accounts.create("carol", role=Role.OPERATOR, workspace_names=[], by=LOCAL).password
        here.clock.advance(86_401)
        del hashes[:]
        return {
            "unknown name": ("nobody", "some password"),
            "wrong password": ("ada", right + "x"),
            "empty password": ("ada", ""),
            "empty password of nobody": ("nobody", ""),
            "disabled": ("bob", temporary),
            "dead temporary password": ("carol", stale),
        }

    def test_whatever_is_wrong(self, here, hashes, branches):
        told = set()
        for name, (username, password) in branches.items():
            with pytest.raises(UnauthenticatedError) as refused:
                here.auth.sign_in.sign_in(username, password, visit=ELSEWHERE, replaced=None)
            told.add((refused.value.code, refused.value.message))
            assert len(hashes) == 1, name
            del hashes[:]

        assert len(told) == 1

    def test_takes_the_same_time(self, here, branches):
        """Under a hash that takes some milliseconds: whoever paid none, or two, would stand out by half or twice."""
        slow = HashingSettings(memory_kib=16_384, time_cost=1, parallelism=1)
        lavish = ThrottleSettings(per_account=1_000, per_address=10_000, overall=10_000)
        here.auth = install_again(here, AuthSettings(hashing=slow, throttle=lavish))
        here.change(users, password_hash=PasswordHasher(
            time_cost=1, memory_cost=16_384, parallelism=1
        ).hash("bright otter sails north"))  # fmt: skip
        taken: dict[str, list[float]] = {name: [] for name in branches}
        for _ in range(15):
            for name, (username, password) in branches.items():
                begun = time.process_time()
                attempt(here, username, password)
                taken[name].append(time.process_time() - begun)
        medians = {name: statistics.median(each) for name, each in taken.items()}

        assert max(medians.values()) < 2 * min(medians.values()), medians


def test_what_is_no_password_costs_no_hash_and_no_attempt(here, hashes):
    here.person("ada")
    del hashes[:]

    for password in ("x" * 129, "x" * 5_000_000, "\ud800", "a\0b"):
        assert attempt(here, "ada", password) == "malformed"

    assert hashes == []


def test_a_weak_hash_is_made_again_at_the_next_sign_in(here):
    password = here.person("ada")
    weak = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, hash_len=16).hash(password)
    here.change(users, password_hash=weak)

    assert attempt(here, "ada", password) == "in"
    once = here.rows(users)[0].password_hash
    assert attempt(here, "ada", password) == "in"

    assert once != weak
    assert here.rows(users)[0].password_hash == once


def test_sign_ins_at_once_survive_the_renewal_of_the_hash(people):
    password = people.person("ada")
    people.change(
        users, password_hash=PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, hash_len=16).hash(password)
    )
    barrier, answers = threading.Barrier(4), []

    def run():
        barrier.wait()
        answers.append(attempt(people, "ada", password))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == ["in"] * 4


def test_a_password_changed_on_the_host_clears_the_account(here):
    password = here.person("ada")
    for _ in range(5):
        attempt(here, "ada", visit=ELSEWHERE)

    here.auth.sign_in.change_password_locally("ada", current=password, new="five green doors open slowly")

    assert attempt(here, "ada", "five green doors open slowly") == "in"


def test_nobody_outside_can_lock_an_account_on_its_own_host(here):
    password = here.person("ada")
    for _ in range(20):
        attempt(here, "ada", visit=ELSEWHERE)

    assert attempt(here, "ada", password, visit=ELSEWHERE) == "throttled"
    assert attempt(here, "ada", password, visit=HERE) == "in"


def test_nobody_outside_can_use_up_the_attempts_of_the_host(here):
    here.auth = install_again(here, AuthSettings(hashing=CHEAP_HASHING, throttle=ThrottleSettings(overall=4)))
    password = here.person("ada")
    for n in range(9):
        attempt(here, f"user{n}", visit=Visit(f"192.0.2.{n}", "req_test"))

    assert attempt(here, "ada", password, visit=ELSEWHERE) == "throttled"
    assert attempt(here, "ada", password, visit=HERE) == "in"


def test_a_clock_set_back_does_not_lock_anybody_out(here):
    password = here.person("ada")
    for _ in range(6):
        attempt(here, "ada")

    here.clock.set_back(86_400)

    assert attempt(here, "ada", password) == "in"


def test_old_windows_are_forgotten(here):
    for n in range(20):
        attempt(here, f"user{n}")
    assert len(here.rows(throttle)) == 22

    here.clock.advance(2 * 86_400)
    here.auth.tidy()

    assert here.rows(throttle) == []


def install_again(people: Installation, settings: AuthSettings):
    """Wire the package once more, on the same rows, with other settings."""
    return services.build(
        people.store, people.owners, audit=people.audit, clock=people.clock, url=people.auth.url,
        secret_keys=SECRET_KEYS, settings=settings,
    )  # fmt: skip
