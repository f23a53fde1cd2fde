"""The text of a bearer token, against vectors written down by hand and against damage."""

from __future__ import annotations

import re
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.auth import tokens
from continuity.services.callers import CallerKind

ZEROS = "atm_w_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA_"
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
KINDS = st.sampled_from(sorted(tokens.LETTERS))


def value_of(checksum: str) -> int:
    value = 0
    for character in checksum:
        value = value * 62 + BASE62.index(character)
    return value


def test_the_letter_says_the_kind():
    made = {kind: tokens.new_token(kind) for kind in tokens.LETTERS}

    assert {token[:6] for token in made.values()} == {
        "atm_o_",
        "atm_w_",
        "atm_c_",
        "atm_b_",
        "atm_t_",
        "atm_a_",
    }
    assert made[CallerKind.WORKER].startswith("atm_w_")
    assert tokens.letter_of(made[CallerKind.COORDINATOR]) == "c"


def test_a_token_is_the_one_written_down():
    assert tokens.token_of(CallerKind.WORKER, bytes(32)) == "atm_w_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA_4Q8icP"


def test_the_checksum_is_the_crc_32_of_what_stands_before_it():
    token = tokens.token_of(CallerKind.WORKER, bytes(32))

    assert token.startswith(ZEROS)
    assert value_of(token[-6:]) == zlib.crc32(ZEROS[:-1].encode())


def test_the_expression_for_scanners_finds_tokens_in_text():
    token = tokens.new_token(CallerKind.OPERATOR)

    assert tokens.PATTERN.findall(f"export TOKEN='{token}'; echo done") == [token]


@given(KINDS, st.binary(min_size=32, max_size=32))
def test_every_token_is_well_formed_whatever_its_random_part_holds(kind, random):
    token = tokens.token_of(kind, random)

    assert len(token) == tokens.LENGTH
    assert tokens.is_well_formed(token)


def test_underscores_in_the_random_part_do_not_move_the_cut():
    token = tokens.token_of(CallerKind.WORKER, b"\xff" * 32)

    assert "____" in token
    assert tokens.is_well_formed(token)


@given(KINDS, st.binary(min_size=32, max_size=32), st.integers(0, 55), st.sampled_from(BASE62 + "-_"))
def test_no_changed_character_goes_unnoticed(kind, random, place, character):
    token = tokens.token_of(kind, random)
    changed = token[:place] + character + token[place + 1 :]

    assert tokens.is_well_formed(changed) == (changed == token)


@given(st.text(max_size=80))
def test_text_that_is_no_token_is_refused_without_an_error(text):
    assert not tokens.is_well_formed(text)


@pytest.mark.parametrize(
    "change", [str.upper, lambda token: token + "\n", lambda token: token[:-1] + "é", lambda _: ""]
)
def test_near_misses_are_refused(change):
    assert not tokens.is_well_formed(change(tokens.new_token(CallerKind.WORKER)))


def test_what_is_stored_cannot_be_shown_as_the_token():
    token = tokens.new_token(CallerKind.WORKER)

    assert len(tokens.hash_of(token)) == 32
    assert token.encode() not in tokens.hash_of(token)


def test_two_tokens_are_never_alike():
    made = {tokens.new_token(CallerKind.WORKER) for _ in range(1_000)}

    assert len(made) == 1_000
    assert all(re.fullmatch(tokens.PATTERN, token) for token in made)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_token_carries_exactly_256_bits(length):
    with pytest.raises(ValueError, match="32 bytes"):
        tokens.token_of(CallerKind.WORKER, bytes(length))
