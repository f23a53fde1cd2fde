"""Passwords: what is hashed, what is refused, what is never hashed at all (security.md A01 to A04)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time

import pytest
from argon2 import PasswordHasher, extract_parameters
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.auth import passwords
from app.auth.passwords import Passwords, check_new, check_text, temporary_password
from app.auth.settings import CHEAP_HASHING, HashingSettings
from continuity.errors import MalformedError, UnavailableError
from tests.patience import PATIENCE_S
from tests.servers import ROOT

CHEAP = Passwords(CHEAP_HASHING)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=128)


def test_the_product_hashes_with_argon2id_at_64_mib_and_three_passes():
    parameters = extract_parameters(Passwords(HashingSettings()).hash("bright otter sails north"))

    assert parameters.type.name == "ID"
    assert (parameters.memory_cost, parameters.time_cost, parameters.parallelism) == (65_536, 3, 1)
    assert (parameters.hash_len, parameters.salt_len) == (32, 16)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(TEXT)
def test_exactly_what_was_typed_is_verified(password):
    stored = CHEAP.hash(password)

    assert CHEAP.verify(stored, password)
    assert not CHEAP.verify(stored, password + "x")
    assert not CHEAP.verify(stored, " " + password)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Correct horse battery", "correct horse battery"),
        ("caf\u00e9 on the corner", "cafe\u0301 on the corner"),
        ("trailing space here ", "trailing space here"),
        ("x" * 72 + "one ending", "x" * 72 + "two endings"),
    ],
)
def test_nothing_is_folded_trimmed_or_cut(one, other):
    assert not CHEAP.verify(CHEAP.hash(one), other)


def test_a_damaged_hash_is_a_wrong_password():
    assert not CHEAP.verify("$argon2id$damaged", "bright otter sails north")


@pytest.mark.parametrize("length", [12, 64, 128])
def test_lengths_from_12_to_128_are_taken(length):
    check_new(("kT9 vQ2!xW7#" * 11)[:length], username="ada")


@pytest.mark.parametrize("password", ["kT9vQ2!xW7#", "kT9 vQ2!xW7#" * 10 + "kT9 vQ2!x", "", "é" * 129])
def test_other_lengths_are_refused(password):
    with pytest.raises(MalformedError, match="128 characters"):
        check_new(password, username="ada")


@pytest.mark.parametrize("password", ["\0" * 20, "bright otter \ud800 north", "x" * 129, "x" * 5_000_000])
def test_text_that_cannot_be_a_password_is_refused_before_hashing(password):
    with pytest.raises(MalformedError) as refused:
        check_text(password)

    assert len(refused.value.message) < 200


def test_length_counts_characters_and_not_bytes():
    check_text("𝛑" * 128)


@pytest.mark.parametrize(
    "password",
    [
        "123456789012", "password1234", "PASSWORD1234", "passwordpassword", "qwertyuiop12", "iloveyou1234",
        "aaaaaaaaaaaa", "unbelievable", "1q2w3e4r5t6y", "abcdefghijkl", "Password123!", "christmas2024",
    ],
)  # fmt: skip
def test_common_and_guessable_passwords_are_refused(password):
    with pytest.raises(MalformedError, match="easy to guess"):
        check_new(password, username="ada")


def test_every_common_password_long_enough_is_refused():
    from zxcvbn.frequency_lists import FREQUENCY_LISTS  # noqa: PLC0415

    long_enough = [password for password in FREQUENCY_LISTS["passwords"][:3_000] if len(password) >= passwords.SHORTEST]

    assert long_enough
    for password in long_enough:
        with pytest.raises(MalformedError):
            check_new(password, username="ada")


@pytest.mark.parametrize(
    "password", ["margaret kT9 vQ2!", "kT9 vQ2! MARGARET", "my AtMem kT9vQ2", "continuity kT9 vQ2"]
)
def test_the_username_and_the_products_name_are_refused(password):
    with pytest.raises(MalformedError, match="must not contain"):
        check_new(password, username="margaret")


@pytest.mark.parametrize(
    "password", ["four quiet lamps drift", "lowercase only but long", "7Gq#pZ!m2xKw", "ключ под ковриком у двери"]
)
def test_no_kind_of_character_is_demanded(password):
    check_new(password, username="ada")


def test_a_hostile_new_password_is_judged_in_bounded_time():
    started = time.thread_time()
    for password in ("4@8({[</369&1!|0$57+%2" * 5, "1" * 128, "aA1!" * 32):
        with contextlib.suppress(MalformedError):
            check_new(password, username="ada")

    assert time.thread_time() - started < 10


def test_a_temporary_password_holds_120_random_bits_and_no_leading_dash():
    made = {temporary_password() for _ in range(2_000)}

    assert len(made) == 2_000
    assert all(len(password) == 20 and not password.startswith("-") for password in made)


def test_hashes_at_the_same_time_are_bounded(monkeypatch):
    at_once, most, lock = 0, 0, threading.Lock()
    are_two = threading.Event()
    original = PasswordHasher.hash

    def slow(self, *args, **kwargs):
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
            if at_once == 2:
                are_two.set()
        # The first waits for a second one, however slowly it comes; from then on others could join them.
        assert are_two.wait(PATIENCE_S)
        time.sleep(0.01)
        with lock:
            at_once -= 1
        return original(self, *args, **kwargs)

    bounded = Passwords(HashingSettings(memory_kib=8, time_cost=1, slots=2, queue=10, wait_s=PATIENCE_S))
    monkeypatch.setattr(PasswordHasher, "hash", slow)
    threads = [threading.Thread(target=bounded.hash, args=("bright otter sails north",)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == 2


def test_who_waits_too_long_for_a_hash_is_told_to_come_back():
    busy = Passwords(HashingSettings(memory_kib=8, time_cost=1, slots=1, wait_s=0.01))

    with busy._slot(), pytest.raises(UnavailableError) as refused:
        busy.hash("bright otter sails north")

    assert refused.value.retry_after_s > 0


def test_a_flood_of_sign_ins_does_not_hold_every_thread():
    # Whoever waited would do so for longer than the test.
    busy = Passwords(HashingSettings(memory_kib=8, time_cost=1, slots=1, queue=0, wait_s=2 * PATIENCE_S))

    started = time.perf_counter()
    with busy._slot(), pytest.raises(UnavailableError):
        busy.hash("bright otter sails north")

    assert time.perf_counter() - started < PATIENCE_S
    assert busy.hash("bright otter sails north")


@pytest.mark.parametrize("what", ["hash", "verify", "verify_nothing"])
def test_whatever_needs_a_hash_waits_for_a_slot(what):
    """One way past the bound would be enough for a flood to take all memory (R04)."""
    busy = Passwords(HashingSettings(memory_kib=8, time_cost=1, slots=1, wait_s=0.01))
    stored = busy.hash("bright otter sails north")
    given = {"hash": ("x" * 12,), "verify": (stored, "x" * 12), "verify_nothing": ("x" * 12,)}[what]

    with busy._slot(), pytest.raises(UnavailableError) as refused:
        getattr(busy, what)(*given)

    assert refused.value.retry_after_s > 0


FLOOD = """
import resource, sys, threading
from app.auth.passwords import Passwords
from app.auth.settings import HashingSettings
from argon2 import PasswordHasher
from continuity.errors import UnavailableError
from tests.patience import PATIENCE_S

settings = HashingSettings()
passwords = Passwords(settings)
sent_away = 100 - settings.slots - settings.queue
are_sent_away = threading.Event()
verify = PasswordHasher.verify

def held(self, *given):
    # Whoever hashes goes on when everybody has come, however slowly threads begin.
    assert are_sent_away.wait(PATIENCE_S)
    return verify(self, *given)

PasswordHasher.verify = held
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = []

def attempt():
    try:
        passwords.verify_nothing("bright otter sails north")
    except UnavailableError:
        refused.append(1)
        if len(refused) >= sent_away:
            are_sent_away.set()

threads = [threading.Thread(target=attempt) for _ in range(100)]
for thread in threads: thread.start()
for thread in threads: thread.join()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown // 1024 if sys.platform == "linux" else grown // 1024 ** 2, len(refused))
"""


def test_a_hundred_sign_ins_at_once_do_not_take_a_hundred_times_the_memory():
    done = subprocess.run([sys.executable, "-c", FLOOD], cwd=ROOT, capture_output=True, text=True, check=True)
    grown_mib, refused = map(int, done.stdout.split())

    # Two slots of 64 MiB, what threads need, and room for the allocator; all hundred would take 6,400.
    assert grown_mib < 512
    assert refused > 50
