"""Master keys inside a backup: spelled, read back, put together across a rotation."""

from __future__ import annotations

import os

import pytest

from continuity.errors import KeySourceError, SealedFileError
from continuity.vault import Keyring, create_vault, kept_keys

ONE, TWO, THREE = (bytes([number]) * 32 for number in (1, 2, 3))


def test_a_ring_comes_back_as_it_was_kept():
    ring = Keyring({1: ONE, 2: TWO}, primary_id=2)

    again = kept_keys.opened(kept_keys.content(ring))

    assert again.primary_id == 2
    assert kept_keys.are_all_in(ring, again)
    assert kept_keys.are_all_in(again, ring)


@pytest.mark.parametrize("content", [b"", b"atmem-vault-key 1\n", b"atmem-vault-key 1\n1 primary AAAA\n", b"\0" * 99])
def test_what_is_no_ring_is_damage(content):
    with pytest.raises(SealedFileError):
        kept_keys.opened(content)


def test_a_backup_that_a_rotation_crosses_keeps_the_keys_of_before_and_after():
    before, after = Keyring({1: ONE}, primary_id=1), Keyring({2: TWO}, primary_id=2)

    kept = kept_keys.union(before, after, primary_id=1)

    assert kept.primary_id == 1
    assert kept_keys.are_all_in(before, kept)
    assert kept_keys.are_all_in(after, kept)


@pytest.mark.parametrize(
    ("after", "primary_id"), [(Keyring({1: TWO}, primary_id=1), 1), (Keyring({2: TWO}, primary_id=2), 3)]
)
def test_keys_that_do_not_fit_the_copy_make_no_backup(after, primary_id):
    with pytest.raises(KeySourceError) as caught:
        kept_keys.union(Keyring({1: ONE}, primary_id=1), after, primary_id=primary_id)

    assert ONE.hex() not in repr(caught.value)


def test_a_ring_is_proved_by_the_canary_of_its_vault():
    ring = Keyring({1: ONE}, primary_id=1)
    new = create_vault(ring)

    kept_keys.prove(ring, canary=new.canary, wrapped_index_key=new.wrapped_index_key)
    with pytest.raises(KeySourceError):
        kept_keys.prove(Keyring({1: THREE}, primary_id=1), canary=new.canary, wrapped_index_key=new.wrapped_index_key)
    assert not kept_keys.are_all_in(ring, Keyring({1: os.urandom(32)}, primary_id=1))
