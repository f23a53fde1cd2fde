"""One-time codes and how they are kept: the standard's own examples, one step of drift, nothing twice."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.auth.factor_seal import FactorSeal, SecretKeys
from app.auth.one_time_codes import (
    address_of,
    as_recovery_code,
    cleaned,
    code_at,
    in_groups,
    is_of_app,
    new_recovery_codes,
    new_secret,
    step_at,
    step_of,
)
from continuity.errors import DecryptionError

SECRET = base64.b32encode(b"12345678901234567890").decode()
SECOND = 1_000_000
NEW, OLD, OTHER = bytes(range(48)), bytes(range(1, 49)), bytes(range(2, 50))


@pytest.mark.parametrize(
    ("at_s", "code"),
    [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"), (2000000000, "279037")],
)
def test_codes_are_those_of_the_standard(at_s, code):
    assert code_at(SECRET, step_at(at_s * SECOND)) == code
    assert step_of(SECRET, code, now_us=at_s * SECOND, after=-1) == at_s // 30


@pytest.mark.parametrize(("steps", "counts"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_one_step_of_drift_is_forgiven_either_way(steps, counts):
    now = 1_750_000_000
    code = code_at(SECRET, now // 30 + steps)

    assert (step_of(SECRET, code, now_us=now * SECOND, after=-1) is not None) is counts


@given(st.integers(0, 2**33), st.integers(-3, 3), st.integers(-3, 3))
def test_no_code_of_a_used_step_or_an_older_one_counts(now_s, given_at, used_at):
    now = now_s // 30
    code = code_at(SECRET, max(0, now + given_at))

    found = step_of(SECRET, code, now_us=now_s * SECOND, after=now + used_at)

    assert found is None or found > now + used_at


@given(st.text(max_size=8))
def test_whatever_is_typed_is_compared_and_never_an_error(text):
    assert step_of(SECRET, text, now_us=59 * SECOND, after=-1) in {None, 1}


def test_what_the_app_is_told_names_the_account_and_the_product():
    address = address_of(SECRET, username="ada.l-1")

    assert address.startswith("otpauth://totp/AtMem%20Continuity:ada.l-1?")
    assert f"secret={SECRET}" in address
    assert "issuer=AtMem%20Continuity" in address


def test_secrets_have_160_bits_and_are_never_the_same():
    made = {new_secret() for _ in range(100)}

    assert len(made) == 100
    assert {len(base64.b32decode(secret)) for secret in made} == {20}


def test_ten_recovery_codes_of_80_bits():
    codes = new_recovery_codes()

    assert len(set(codes)) == 10
    assert all(len(code) == 16 and as_recovery_code(code) == code for code in codes)


@pytest.mark.parametrize(
    "typed", ["0123-4567-89AB-CDEF", "0123 4567 89ab cdef", " 0123456789abcdef ", "O123-4567-89AB-CDEF"]
)
def test_a_recovery_code_may_be_typed_as_people_type(typed):
    assert as_recovery_code(cleaned(typed)) == "0123456789ABCDEF"


@pytest.mark.parametrize("typed", ["", "0123456789ABCDE", "0123456789ABCDEFG", "0123456789ABCDEU", "é" * 16, "x" * 65])
def test_what_is_no_recovery_code_is_none(typed):
    assert as_recovery_code(cleaned(typed)) is None


@pytest.mark.parametrize(
    ("typed", "is_one"),
    [
        ("123456", True),
        ("123 456", True),
        ("12345", False),
        ("1234567", False),
        ("\u0661" * 6, False),
        ("12345a", False),
    ],
)
def test_six_plain_digits_are_a_code_of_the_app(typed, is_one):
    assert is_of_app(cleaned(typed)) is is_one


def test_what_is_to_be_typed_stands_in_groups():
    assert in_groups("ABCDEFGHIJ") == "ABCD EFGH IJ"


class TestSealing:
    def test_a_sealed_secret_opens_for_its_person_alone(self):
        seal = FactorSeal(SecretKeys(NEW))
        sealed = seal.seal(SECRET, user_pk=7)

        assert seal.open(sealed, user_pk=7) == SECRET
        assert SECRET.encode() not in sealed
        with pytest.raises(DecryptionError):
            seal.open(sealed, user_pk=8)

    def test_every_changed_byte_and_every_length_is_refused(self):
        seal = FactorSeal(SecretKeys(NEW))
        sealed = seal.seal(SECRET, user_pk=7)
        damaged = [sealed[:n] + bytes([sealed[n] ^ 1]) + sealed[n + 1 :] for n in range(len(sealed))]
        damaged += [sealed[:n] for n in range(len(sealed))] + [sealed + b"\0"]

        for each in damaged:
            with pytest.raises(DecryptionError):
                seal.open(each, user_pk=7)

    def test_an_older_key_opens_and_the_newest_seals(self):
        was = FactorSeal(SecretKeys(OLD)).seal(SECRET, user_pk=7)
        seal = FactorSeal(SecretKeys(NEW, (OTHER, OLD)))

        assert seal.open(was, user_pk=7) == SECRET
        assert seal.is_outdated(was)
        assert not seal.is_outdated(seal.seal(SECRET, user_pk=7))
        with pytest.raises(DecryptionError):
            FactorSeal(SecretKeys(NEW, (OTHER,))).open(was, user_pk=7)

    def test_a_recovery_code_of_an_older_key_is_known(self):
        was = FactorSeal(SecretKeys(OLD)).code_hash("0123456789ABCDEF", user_pk=7)

        assert was in FactorSeal(SecretKeys(NEW, (OLD,))).code_hashes("0123456789ABCDEF", user_pk=7)
        assert was not in FactorSeal(SecretKeys(NEW, (OLD,))).code_hashes("0123456789ABCDEF", user_pk=8)
        assert was not in FactorSeal(SecretKeys(NEW)).code_hashes("0123456789ABCDEF", user_pk=7)

    @pytest.mark.parametrize("older", ["old-secret", b"old-secret-of-bytes", [OLD]])
    def test_older_keys_that_are_no_tuple_are_refused(self, older):
        with pytest.raises(TypeError):
            SecretKeys(NEW, older)

    def test_no_key_stands_in_what_is_printed(self):
        assert "\\x" not in repr(SecretKeys(NEW, (OLD,)))
